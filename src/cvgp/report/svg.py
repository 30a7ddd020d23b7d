"""Charts as SVG: two axes, and marks on them. Colours are classes, which the page's style knows for light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cvgp.data.rows import Array
from cvgp.report.markup import number, text

WIDTH, HEIGHT = 400.0, 270.0
RIGHT, TOP, BOTTOM = 12.0, 12.0, 48.0
LETTER = 7.2
"""The width of a letter beside an axis."""
NAME_LENGTH, UPRIGHT_LENGTH = 14, 20
"""Characters of a name under the first axis, and beside the second one."""
LABEL_LENGTH = 40
"""Characters of what an axis is called."""


class Axis(NamedTuple):
    """What an axis shows: numbers from low to high, or names at 0, 1, 2, ..."""

    label: str
    low: float
    high: float
    names: tuple[str, ...] = ()
    is_log: bool = False
    shown: Callable[[float], str] = number

    @classmethod
    def around(cls, label: str, *values: Array, shown: Callable[[float], str] = number) -> Axis:
        """Numbers with a margin around some values, of which those that are not finite do not count."""
        every = np.concatenate([np.ravel(own) for own in values])
        every = every[np.isfinite(every)]
        low, high = (float(every.min()), float(every.max())) if len(every) else (0.0, 1.0)
        margin = 0.05 * (high - low) or max(0.05 * abs(high), 1e-12)
        return cls(label, low - margin, high + margin, shown=shown)

    @classmethod
    def of_names(cls, label: str, names: Sequence[str]) -> Axis:
        """One place per name."""
        return cls(label, -0.5, len(names) - 0.5, tuple(names))

    def share(self, values: Array) -> Array:
        """Values as shares of the way from low to high; those far beyond are moved nearer."""
        if self.is_log:
            low, high = math.log(self.low), math.log(self.high)
            found = (np.log(np.maximum(values, 1e-300)) - low) / (high - low)
        else:
            found = (np.asarray(values, dtype=np.float64) - self.low) / (self.high - self.low)
        return np.clip(found, -1.0, 2.0)

    def ticks(self) -> list[tuple[float, str]]:
        """Places and what is written there."""
        if self.names:
            step = math.ceil(len(self.names) / 12)
            return [(float(i), name) for i, name in enumerate(self.names) if i % step == 0]
        if self.is_log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            factors = (1.0, 2.0, 5.0) if len(powers) <= 3 else (1.0,)
            places = [factor * 10.0**power for power in powers for factor in factors]
            inside = [place for place in places if self.low <= place <= self.high]
            return [(place, self.shown(place)) for place in inside[:: math.ceil(len(inside) / 7) or 1]]
        places = _round_numbers(self.low, self.high)
        is_wide = max(len(self.shown(place)) for place in places) > 7
        return [(place, self.shown(place)) for place in (places[::2] if is_wide and len(places) > 3 else places)]


class Chart:
    """A chart whose marks are added one after the other.

    Parameters
    ----------
    key
        A name that no other chart of the page has.
    title, description
        For those who cannot see the chart.
    x, y
        The axes.
    """

    def __init__(self, key: str, title: str, description: str, x: Axis, y: Axis) -> None:
        self.key, self.title, self.description = key, title, description
        self.x, self.y = x, y
        widest = max(min(len(label), UPRIGHT_LENGTH) for _, label in y.ticks())
        self.left = (28.0 if y.label else 12.0) + LETTER * widest
        self._marks: list[str] = []

    def px(self, values: Array) -> Array:
        """Places from left to right, in units of the drawing."""
        return self.left + (WIDTH - RIGHT - self.left) * self.x.share(values)

    def py(self, values: Array) -> Array:
        """Places from top to bottom, in units of the drawing."""
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * self.y.share(values)

    def line(self, x: Array, y: Array, kind: str) -> None:
        """A line through some points."""
        self._marks.append(f"<path class='line {kind}' d='M{_path(self.px(x), self.py(y))}'/>")

    def band(self, x: Array, low: Array, high: Array, kind: str) -> None:
        """The space between two lines."""
        there, back = _path(self.px(x), self.py(low)), _path(self.px(x)[::-1], self.py(high)[::-1])
        self._marks.append(f"<path class='band {kind}' d='M{there}L{back}Z'/>")

    def dots(self, x: Array, y: Array, kind: str) -> None:
        """Many small points, as one path: a tenth of the size of as many circles."""
        places = zip(self.px(x), self.py(y), strict=True)
        self._marks.append(f"<path class='dots {kind}' d='{''.join(f'M{a:.1f} {b:.1f}h0' for a, b in places)}'/>")

    def circles(self, x: Array, y: Array, kind: str, radius: float = 4.0) -> None:
        """A few points."""
        self._marks += [
            f"<circle class='{kind}' cx='{a:.1f}' cy='{b:.1f}' r='{radius}'/>"
            for a, b in zip(self.px(x), self.py(y), strict=True)
        ]

    def errors(self, x: Array, low: Array, high: Array, kind: str, *, flat: bool = False) -> None:
        """Intervals at some places: upright, or `flat` with x and y exchanged."""
        across, first, last = (
            (self.py(x), self.px(low), self.px(high)) if flat else (self.px(x), self.py(low), self.py(high))
        )
        ends = zip(across, first, last, strict=True)
        paths = [f"M{a:.1f} {p:.1f}H{b:.1f}" if flat else f"M{p:.1f} {a:.1f}V{b:.1f}" for p, a, b in ends]
        self._marks.append(f"<path class='line {kind}' d='{''.join(paths)}'/>")

    def columns(self, edges: Array, heights: Array, kind: str) -> None:
        """Upright bars between edges, from zero."""
        ground = float(self.py(np.array(0.0)))
        for (a, b), top in zip(pairwise(self.px(edges)), self.py(heights), strict=True):
            self._marks.append(_rectangle(a, float(top), b - a, ground - float(top), kind))

    def bars(self, places: Array, lengths: Array, kind: str) -> None:
        """Flat bars at some places, from zero."""
        ground = float(self.px(np.array(0.0)))
        half = 0.36 * abs(float(self.py(np.array(1.0)) - self.py(np.array(0.0))))
        for end, middle in zip(self.px(lengths), self.py(places), strict=True):
            self._marks.append(_rectangle(min(ground, end), middle - half, abs(end - ground), 2.0 * half, kind))

    def add(self, mark: str) -> None:
        """A mark that is SVG already."""
        self._marks.append(mark)

    def svg(self) -> str:
        """The whole chart."""
        right, ground = WIDTH - RIGHT, HEIGHT - BOTTOM
        parts = [f"<path class='axis' d='M{self.left:.1f} {TOP}V{ground}H{right}'/><g class='ticks-x'>"]
        crowded = bool(self.x.names) and len(self.x.names) > 4
        for place, label in self.x.ticks():
            at = float(self.px(np.array(place)))
            turned = f" transform='rotate(-30 {at:.1f} {ground + 14})'" if crowded else ""
            anchor = "end" if crowded else "middle"
            parts.append(f"<path class='tick' d='M{at:.1f} {ground}v4'/>")
            shown = text(_short(label, NAME_LENGTH))
            # A wide label near the right end would be cut off.
            at = at if crowded else min(at, WIDTH - 3.5 * len(shown))
            parts.append(f"<text x='{at:.1f}' y='{ground + 16}' text-anchor='{anchor}'{turned}>{shown}</text>")
        parts.append("</g><g class='ticks-y'>")
        for place, label in self.y.ticks():
            at = float(self.py(np.array(place)))
            parts.append(f"<path class='grid-line' d='M{self.left:.1f} {at:.1f}H{right}'/>")
            parts.append(f"<text x='{self.left - 6:.1f}' y='{at + 4:.1f}' text-anchor='end'>")
            parts.append(f"{text(_short(label, UPRIGHT_LENGTH))}</text>")
        middle = 0.5 * (self.left + right)
        parts.append(f"</g><text class='label label-x' x='{middle:.1f}' y='{HEIGHT - 8}' text-anchor='middle'>")
        parts.append(f"{text(_short(self.x.label, LABEL_LENGTH))}</text>")
        centre = 0.5 * (TOP + ground)
        parts.append(
            f"<text class='label label-y' x='14' y='{centre}' text-anchor='middle' transform='rotate(-90 14 {centre})'>"
            f"{text(_short(self.y.label, LABEL_LENGTH - 10))}</text>"
        )
        return (
            f"<svg viewBox='0 0 {WIDTH:.0f} {HEIGHT:.0f}' role='img' aria-labelledby='{self.key}-t {self.key}-d' "
            f"id='{self.key}'><title id='{self.key}-t'>{text(self.title)}</title>"
            f"<desc id='{self.key}-d'>{text_of_any_length(self.description)}</desc>{''.join(parts)}"
            f"<clipPath id='{self.key}-c'><rect x='0' y='{TOP - 6}' width='{WIDTH}' height='{ground - TOP + 9}'/>"
            "</clipPath>"
            f"<g class='marks' clip-path='url(#{self.key}-c)'>{''.join(self._marks)}</g></svg>"
        )


def text_of_any_length(words: str) -> str:
    """Several sentences; names in them must have been shortened."""
    return " ".join(text(part) for part in words.split(" "))


def _path(x: Array, y: Array) -> str:
    return "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))


def _rectangle(x: float, y: float, width: float, height: float, kind: str) -> str:
    return (
        f"<rect class='{kind}' x='{x:.1f}' y='{y:.1f}' width='{max(width, 0.5):.1f}' height='{max(height, 0.0):.1f}'/>"
    )


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _round_numbers(low: float, high: float) -> list[float]:
    """A few round numbers between two."""
    rough = (high - low) / 5.0
    if not (math.isfinite(rough) and rough > 0.0):
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= rough)
    first = math.ceil(low / step)
    return [k * step for k in range(first, math.floor(high / step) + 1)] or [low]
