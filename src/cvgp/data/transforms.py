"""Monotone transforms: of y, so that a Gaussian model may be skewed (§11 of the mathematics), and of columns of x."""

from __future__ import annotations

from itertools import accumulate
from typing import Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import ndtr, ndtri

from cvgp.data.rows import Array
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.files import SQUARABLE, Fields, State

ROUNDING = 1e-12  # relative; values, weights and knots closer than this are equal, and a power below it is 0
TransformName = Literal["identity", "log", "yeo-johnson"]
TRANSFORMS: tuple[TransformName, ...] = ("identity", "log", "yeo-johnson")
POWERS = (0.0, 2.0)
BEYOND_THE_ROWS = 0.5  # standard deviations of T(y) by which predictions may exceed the most extreme rows
NORMAL_DISTANCE = 1.4826  # standard deviations per median distance, if normal


def median(values: Array, weight: Array | None = None) -> float:
    """The median of values that count as often as their weights say."""
    if weight is None:
        return float(np.median(values))
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weight[order]) / weight.sum() - 0.5
    lower, upper = np.searchsorted(share, [-ROUNDING, ROUNDING], side="right")
    return float(0.5 * (values[order[min(lower, len(order) - 1)]] + values[order[min(upper, len(order) - 1)]]))


class TargetTransform(NamedTuple):
    """A monotone function of each output; arrays are [Q], and empty where there is nothing to learn."""

    name: TransformName
    centre: Array = np.empty(0)
    unit: Array = np.empty(0)
    power: Array = np.empty(0)
    low: Array = np.empty(0)  # limits of T(y) in predictions, a little beyond the rows of the fit
    high: Array = np.empty(0)

    def to_state(self) -> State:
        """Values for a file."""
        return {name: value for name, value in self._asdict().items() if name == "name" or len(value)}

    @classmethod
    def from_state(cls, state: Fields, num_outputs: int) -> TargetTransform:
        """From a file that need not be trusted."""
        name = cast(TransformName, state.text("name", TRANSFORMS))
        if name == "identity":
            return cls(name)
        any_number = (-SQUARABLE[1], SQUARABLE[1])
        allowed = {"low": any_number, "high": any_number}
        if name == "yeo-johnson":
            allowed |= {"centre": any_number, "unit": SQUARABLE, "power": POWERS}
        found = {part: state.array(part, (num_outputs,), limits=limits) for part, limits in allowed.items()}
        if not (found["low"] < found["high"]).all():
            raise FileFormatError(f"{state.where}: the limits of predictions must be in order.")
        return cls(name, **found)

    def apply(self, y: Array) -> Array:
        """T(y) of outputs [n, Q]; minus infinity at and below the end of what it takes."""
        if self.name == "identity":
            return y
        if self.name == "log":
            return np.log(y, out=np.full(y.shape, -np.inf), where=y > 0.0)
        z = (y - self.centre) / self.unit
        power = self._power_at(z)
        a = np.log1p(np.abs(z))
        return np.sign(z) * np.where(power < ROUNDING, a, np.expm1(power * a) / np.maximum(power, ROUNDING))

    def invert(self, t: Array) -> Array:
        """The y [n, Q] with T(y) = t; infinite where it is beyond the range of floats."""
        if self.name == "identity":
            return t
        with np.errstate(over="ignore"):
            if self.name == "log":
                return np.exp(t)
            power = self._power_at(t)
            grown = np.log1p(power * np.abs(t)) / np.maximum(power, ROUNDING)
            a = np.expm1(np.where(power < ROUNDING, np.abs(t), grown))
            return self.centre + self.unit * np.sign(t) * a

    def with_limits(self, y: Array) -> TargetTransform:
        """A copy whose limits include those of outputs [n, Q]; the identity has none."""
        if self.name == "identity":
            return self
        t = self.apply(y)
        spread = t.std(axis=0)
        margin = BEYOND_THE_ROWS * np.where(spread > 1e-6 * np.abs(t).max(axis=0), spread, 1.0)
        low, high = t.min(axis=0) - margin, t.max(axis=0) + margin
        return self.joined(self._replace(low=low, high=high))

    def joined(self, other: TargetTransform) -> TargetTransform:
        """The same transform with limits that include those of another."""
        if not len(self.low):
            return other
        return self._replace(low=np.minimum(self.low, other.low), high=np.maximum(self.high, other.high))

    def predict(self, t: Array) -> Array:
        """The y with T(y) = t, within the limits: where f is unknown, its exponential may be arbitrarily large."""
        return self.invert(np.clip(t, self.low, self.high) if len(self.low) else t)

    def log_slope(self, y: Array) -> Array:
        """Log T'(y) [n, Q]: what a log density of T(y) gains as one of y."""
        if self.name == "identity":
            return np.zeros(y.shape)
        if self.name == "log":
            return -np.log(np.where(y > 0.0, y, 1.0))  # below zero the density of T(y) is zero already
        z = (y - self.centre) / self.unit
        return (self._power_at(z) - 1.0) * np.log1p(np.abs(z)) - np.log(self.unit)

    def _power_at(self, values: Array) -> Array:
        return np.where(values >= 0.0, self.power, 2.0 - self.power)


IDENTITY = TargetTransform("identity")


def learn_target(name: TransformName, y: Array, weight: Array | None = None) -> TargetTransform:
    """The transform for outputs [n, Q]; its power is the one for which T(y) is most likely under a normal."""
    if name == "identity":
        return IDENTITY
    if name == "log":
        if not (y > 0.0).all():
            raise InvalidInputError(
                f"target_transform='log' is for y above 0; got {np.count_nonzero(y <= 0.0)} of {y.size} values at or "
                f"below it, the smallest {y.min():g}. Leave these rows out, or use "
                "target_transform='yeo-johnson', which takes any numbers."
            )
        return TargetTransform("log")
    centre = np.array([median(column, weight) for column in y.T])
    unit = np.array([_unit(column, weight) for column in (y - centre).T])
    powers = [_power(column, weight) for column in ((y - centre) / unit).T]
    return TargetTransform("yeo-johnson", centre, unit, np.array(powers))


def _unit(distance: Array, weight: Array | None) -> float:
    """What the standard deviation would be of a normal variable with these distances from the median."""
    away = distance != 0.0
    if not away.any():
        return 1.0
    return NORMAL_DISTANCE * median(np.abs(distance[away]), None if weight is None else weight[away])


def _power(z: Array, weight: Array | None) -> float:
    """The power with the largest likelihood of a normal T(y), its mean and variance at their best."""
    if not z.any():
        return 1.0
    share = np.full(len(z), 1.0 / len(z)) if weight is None else weight / weight.sum()

    def negative_density(power: float) -> float:
        transform = TargetTransform("yeo-johnson", np.zeros(1), np.ones(1), np.array([power]))
        t = transform.apply(z[:, None])[:, 0]
        variance = share @ (t - share @ t) ** 2
        return float(0.5 * np.log(variance) - share @ transform.log_slope(z[:, None])[:, 0])

    return float(minimize_scalar(negative_density, bounds=POWERS, method="bounded", options={"xatol": 1e-3}).x)


WarpName = Literal["identity", "rank", "mixed"]
WARPS: tuple[WarpName, ...] = ("identity", "rank", "mixed")

KNOTS = 32  # of a column, at most
LARGEST_SCORE = 3.5  # normal scores beyond are moved here: one row in four thousand
LARGEST = 1e150  # columns with larger values stay as they are: their differences could overflow


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
        first, last, mean = (
            (self.values[j] - self.values[i]) / (self.knots[j] - self.knots[i]) for i, j in ((0, 1), (-2, -1), (0, -1))
        )
        return float(min(first, mean)), float(min(last, mean))


class InputWarp(NamedTuple):
    """A monotone function of each column; a column without knots stays as it is.

    It is the length of the path ((1 - s) x, s r(x)) of a column and its normal scores r, in standard deviations. So a
    kernel sees the distances of one with both as inputs. A share s of 0 is the column itself, and 1 is its ranks.
    """

    name: WarpName
    shares: Array = np.empty(0)  # [D], of ranks
    counts: NDArray[np.int64] = np.empty(0, dtype=np.int64)  # [D], knots of each column
    knots: Array = np.empty(0)  # of one column after the other
    values: Array = np.empty(0)

    def to_state(self) -> State:
        """Values for a file."""
        return {"name": self.name} if self.name == "identity" else self._asdict()

    @classmethod
    def from_state(cls, state: Fields, num_dims: int) -> InputWarp:
        """From a file that need not be trusted."""
        name = cast(WarpName, state.text("name", WARPS))
        if name == "identity":
            return NO_WARP
        shares = state.array("shares", (num_dims,), limits=(0.0, 1.0))
        knots, values = (state.array(part, (None,), limits=(-LARGEST, LARGEST)) for part in ("knots", "values"))
        counts = state.array("counts", (num_dims,), dtypes=("int64",), limits=(0, len(knots)))
        if (counts == 1).any() or not counts.sum() == len(knots) == len(values):
            raise FileFormatError(f"{state.where}.counts must be the number of knots of each column.")
        warp = cls(name, shares, counts, knots, values)
        for path in warp.paths().values():
            steps = np.diff(path.knots)
            with np.errstate(all="ignore"):
                slopes = np.diff(path.values) / steps
            if not ((steps > 0.0) & (slopes >= SQUARABLE[0]) & (slopes <= SQUARABLE[1])).all():
                raise FileFormatError(f"{state.where}.knots and values must increase, neither of them abruptly.")
        return warp

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
        counts = self.counts.tolist()
        ends = list(accumulate(counts))
        parts = {d: slice(ends[d] - count, ends[d]) for d, count in enumerate(counts) if count}
        return {d: Path(self.knots[part], self.values[part]) for d, part in parts.items()}

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
    least = ROUNDING * np.abs(knots).max(), ROUNDING * np.abs(values).max()
    kept = [len(knots) - 1]
    for i in range(len(knots) - 2, -1, -1):
        if knots[kept[-1]] - knots[i] > least[0] and values[kept[-1]] - values[i] > least[1]:
            kept.append(i)
    kept.reverse()
    return Path(knots[kept], values[kept])
