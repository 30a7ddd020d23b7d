r"""Monotone warps of inputs: each column becomes a mixture of itself and of its ranks.

The ranks of a column are its normal scores :math:`r(x) = \Phi^{-1}(u(x))`. Here u is the share of the rows below x,
with half of the rows at x. A few knots hold this function, and it is linear between them, so that it is smooth where
values are dense and has no gaps at ties. With both versions in units of their standard deviations, the pair
:math:`((1 - s) x, s\, r(x))` is a path in the plane, and the warp is its length:

.. math:: t(x) = \int^x \sqrt{(1 - s)^2 + s^2 r'(v)^2} \; dv

A kernel of t sees the distances of a kernel with both versions as inputs, as far as close points are concerned, and has
one input less. A share s of 0 is the column itself, and 1 are its ranks. Beyond the outer knots t goes on in a straight
line, and no steeper than it is on average.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from cvgp.data.rows import Array

WarpName = Literal["identity", "rank", "mixed"]
WARPS: tuple[WarpName, ...] = ("identity", "rank", "mixed")

KNOTS = 32
"""Of each column, at most."""
LARGEST_SCORE = 3.5
"""Normal scores beyond this count as this far: one row in four thousand is there, and says little of its place."""
LEAST_STEP = 1e-12
"""Knots that differ by less than this share of their size, in x or in t, are one: the rest is rounding."""
LARGEST = 1e150
"""Columns with larger values stay as they are: their differences could overflow."""


class Path(NamedTuple):
    """A monotone piecewise linear function."""

    knots: Array  # [k], increasing
    values: Array  # [k], increasing

    def apply(self, x: Array) -> Array:
        """The function at x."""
        low, high = self.outer_slopes()
        with np.errstate(over="ignore"):  # as far away as can be
            below, above = np.minimum(x - self.knots[0], 0.0), np.maximum(x - self.knots[-1], 0.0)
            return np.asarray(np.interp(x, self.knots, self.values) + low * below + high * above)

    def invert(self, t: Array) -> Array:
        """The x with this value."""
        low, high = self.outer_slopes()
        below, above = np.minimum(t - self.values[0], 0.0), np.maximum(t - self.values[-1], 0.0)
        return np.asarray(np.interp(t, self.values, self.knots) + below / low + above / high)

    def outer_slopes(self) -> tuple[float, float]:
        """The slopes below the first knot and above the last one."""
        steps = np.diff(self.values) / np.diff(self.knots)
        mean = (self.values[-1] - self.values[0]) / (self.knots[-1] - self.knots[0])
        return float(min(steps[0], mean)), float(min(steps[-1], mean))


class InputWarp(NamedTuple):
    """A monotone function of each column; a column without knots stays as it is."""

    name: WarpName
    shares: Array = np.empty(0)  # [D], of ranks
    counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)  # [D], knots of each column
    knots: Array = np.empty(0)  # of one column after the other
    values: Array = np.empty(0)

    def apply(self, x: Array) -> Array:
        """Rows [n, D] with each column warped, in standard deviations; a copy."""
        warped = np.array(x, dtype=np.float64)
        for d, path in self.paths().items():
            warped[:, d] = path.apply(x[:, d])
        return warped

    def invert(self, t: Array) -> Array:
        """The rows [n, D] whose warped columns are these; a copy."""
        x = np.array(t, dtype=np.float64)
        for d, path in self.paths().items():
            x[:, d] = path.invert(t[:, d])
        return x

    def paths(self) -> dict[int, Path]:
        """The functions of the columns that are warped."""
        ends = np.cumsum(self.counts)
        parts = {d: slice(end - count, end) for d, (end, count) in enumerate(zip(ends, self.counts, strict=True))}
        return {d: Path(self.knots[part], self.values[part]) for d, part in parts.items() if self.counts[d]}

    @property
    def warped(self) -> NDArray[np.bool_]:
        """Which columns are warped [D]; empty for the identity."""
        return self.counts > 0


NO_WARP = InputWarp("identity")


def warp_of(name: WarpName, shares: Array, paths: dict[int, Path]) -> InputWarp:
    """The warp with these functions of some of the columns."""
    counts = np.array([len(paths[d].knots) if d in paths else 0 for d in range(len(shares))], dtype=np.int64)
    if not paths:
        return NO_WARP
    knots, values = (np.concatenate(parts) for parts in zip(*(paths[d] for d in sorted(paths)), strict=True))
    return InputWarp(name, np.where(counts > 0, shares, 0.0), counts, knots, values)


def mixed_path(score: Path, share: float, centre: float, spread: float) -> Path:
    """The length of the path of x, in units of its spread about its centre, and of its normal scores."""
    straight = (score.knots - centre) / spread
    steps = np.hypot((1.0 - share) * np.diff(straight), share * np.diff(score.values))
    return distinct_path(score.knots, np.append(0.0, np.cumsum(steps)))


def normal_scores(column: Array, weight: Array | None = None) -> Path | None:
    """The normal scores of a column, which count as often as the weights say; None where there is nothing to rank."""
    values, where = np.unique(column, return_inverse=True)
    if len(values) < 3 or np.abs(values[[0, -1]]).max() > LARGEST:
        return None
    mass = np.bincount(where.reshape(-1), weights=weight, minlength=len(values))
    below = (np.cumsum(mass) - 0.5 * mass) / mass.sum()
    score = np.clip(ndtri(below), -LARGEST_SCORE, LARGEST_SCORE)
    if len(values) > KNOTS:
        levels = ndtr(np.linspace(score[0], score[-1], KNOTS))
        kept = np.union1d(np.searchsorted(below, levels).clip(0, len(values) - 1), [0, len(values) - 1])
        values, score = values[kept], score[kept]
    path = distinct_path(values, score)
    return path if len(path.knots) > 2 else None


def distinct_path(knots: Array, values: Array) -> Path:
    """The path without knots that equal the one before to rounding; the last one stays."""
    least = LEAST_STEP * np.abs(knots).max(), LEAST_STEP * np.abs(values).max()
    kept = [len(knots) - 1]
    for i in range(len(knots) - 2, -1, -1):
        if knots[kept[-1]] - knots[i] > least[0] and values[kept[-1]] - values[i] > least[1]:
            kept.append(i)
    kept.reverse()
    return Path(knots[kept], values[kept])
