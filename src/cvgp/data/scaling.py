"""Standardization of inputs and outputs, by moments that parts of the rows add up to.

Outliers of an input do not count in its scale: they are moved to REACH typical distances from the median.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cvgp.data.rows import Array, Rows
from cvgp.data.transforms import KNOTS, NO_WARP, ROUNDING, InputWarp, Path, distinct_path, median, warp_of
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.files import SQUARABLE, TINY, Fields, State

PART_ROWS = 1 << 17  # looked at together, to bound the memory
REACH = 30.0  # how many typical distances from the median the bulk of a column may extend


class Scaling(NamedTuple):
    """x -> (x - x_mean) / x_scale after a warp, and y -> (y - y_mean) / y_scale; a constant x has scale 0."""

    x_mean: Array  # [D]
    x_scale: Array  # [D]
    y_mean: Array  # [T]
    y_scale: Array  # [T]
    x_limit: float = math.inf  # scaled inputs farther from zero count as this far
    warp: InputWarp = NO_WARP

    def to_state(self) -> State:
        """Values for a file."""
        return {**self._asdict(), "x_limit": np.asarray(self.x_limit), "warp": self.warp.to_state()}

    @classmethod
    def from_state(cls, state: Fields, num_dims: int, num_outputs: int) -> Scaling:
        """From a file that need not be trusted."""
        x_mean, x_scale = state.array("x_mean", (num_dims,)), state.array("x_scale", (num_dims,))
        if not ((x_scale >= TINY) | (x_scale == 0.0)).all():
            raise FileFormatError(f"{state.where}.x_scale must be positive, or 0 for a constant input.")
        y_mean = state.array("y_mean", (num_outputs,))
        y_scale = state.array("y_scale", (num_outputs,), limits=SQUARABLE)
        limit = state.array("x_limit", (), limits=(TINY, math.inf), finite=False).item()
        warp = state.part("warp", InputWarp.from_state, num_dims)
        return cls(x_mean, x_scale, y_mean, y_scale, limit, warp)

    @property
    def varies(self) -> NDArray[np.bool_]:
        """Which columns of x are not constant [D]."""
        return self.x_scale > 0.0

    def with_inputs(self, other: Scaling, columns: NDArray[np.bool_]) -> Scaling:
        """The same, with the means and standard deviations of another scaling for some columns of x [D]."""
        return self._replace(
            x_mean=np.where(columns, other.x_mean, self.x_mean), x_scale=np.where(columns, other.x_scale, self.x_scale)
        )

    def with_common_scale(self, columns: Sequence[int]) -> Scaling:
        """The same, with one scale for some columns of x, so that distances over them stay distances."""
        if not columns:
            return self
        x_scale = self.x_scale.copy()
        x_scale[list(columns)] = np.sqrt(np.square(x_scale[list(columns)]).mean())
        return self._replace(x_scale=x_scale)

    def scale_x(self, x: Array) -> Array:
        """Inputs in the model's units."""
        scaled = self.warp.apply(x)
        with np.errstate(over="ignore"):  # as far away as can be
            scaled -= self.x_mean
            scaled /= np.where(self.varies, self.x_scale, 1.0)  # in place: x may take most of the memory
        scaled[:, ~self.varies] = 0.0
        return np.clip(scaled, -self.x_limit, self.x_limit, out=scaled)

    def unscale_x(self, x: Array) -> Array:
        """Inputs in the user's units."""
        return self.warp.invert(x * self.x_scale + self.x_mean)

    def scale_y(self, y: Array) -> Array:
        """Outputs [N, T] in the model's units."""
        return (y - self.y_mean) / self.y_scale

    def unscale_y(self, y: Array) -> Array:
        """Outputs [N, T] in the user's units."""
        return y * self.y_scale + self.y_mean

    def tensors(
        self, rows: Rows[Array], *, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
    ) -> Rows[Tensor]:
        """Rows in the model's units, as tensors; y has no second axis where there is a single output."""
        y = self.scale_y(rows.y)
        known = None if rows.noise_variance is None else self._scale_noise(rows.noise_variance)
        scaled = rows._replace(x=self.scale_x(rows.x), y=y[:, 0] if y.shape[1] == 1 else y, noise_variance=known)
        return scaled.map(lambda values: torch.as_tensor(values, dtype=dtype, device=device))

    def _scale_noise(self, noise: Array) -> Array:
        with np.errstate(over="ignore"):
            known: Array = noise / self.y_scale[0] / self.y_scale[0]  # the square of the scale may be zero
        if not np.isfinite(known).all():
            raise InvalidInputError(
                f"noise_variance must be in the units of y, squared: it is up to {noise.max():.3g}, and the standard "
                f"deviation of y is {self.y_scale[0]:.3g}. Give both in the same units."
            )
        return known


class Spread(NamedTuple):
    """How large scaled data are, where that is not one: what a start has to be in proportion to."""

    x: Array  # [D], standard deviations of the inputs; zero for a column that is constant
    y: float  # standard deviation of the outputs, as a root mean square over them
    y_level: float  # mean of the outputs

    @property
    def y_square(self) -> float:
        """The mean square of the outputs about zero."""
        return self.y**2 + self.y_level**2

    @classmethod
    def left_by(cls, scaling: Scaling, learned: Scaling) -> Spread:
        """That of data after a scaling, from the means and standard deviations that were learned of them."""
        y = learned.y_scale / scaling.y_scale
        level = (learned.y_mean - scaling.y_mean) / scaling.y_scale
        x = learned.x_scale / np.where(scaling.varies, scaling.x_scale, 1.0)
        return cls(x, float(np.sqrt((y**2).mean())), float(level.mean()))


class Moments(NamedTuple):
    """Weight, mean and summed squares of each column, in units of its largest magnitude against overflow."""

    weight: Array  # [C]
    magnitude: Array  # [C]
    mean: Array  # [C]
    squares: Array  # [C]

    def merge(self, other: Moments) -> Moments:
        """Those of both sets of rows (Chan, Golub and LeVeque, 1979)."""
        magnitude = np.maximum(self.magnitude, other.magnitude)
        mine, theirs = self.magnitude / magnitude, other.magnitude / magnitude
        weight = self.weight + other.weight
        share = np.divide(other.weight, weight, out=np.zeros_like(weight), where=weight > 0)
        apart = other.mean * theirs - self.mean * mine
        squares = self.squares * mine**2 + other.squares * theirs**2 + self.weight * share * apart**2
        return Moments(weight, magnitude, self.mean * mine + share * apart, squares)

    @property
    def means(self) -> Array:
        """The means in the columns' own units."""
        return self.mean * self.magnitude

    @property
    def scales(self) -> Array:
        """Standard deviations; zero for a column whose spread is rounding noise of its size, which is constant."""
        deviation = np.sqrt(self.squares / self.weight)
        return np.where(deviation <= ROUNDING * np.abs(self.mean), 0.0, deviation * self.magnitude)

    def scaling(self, num_dims: int) -> Scaling:
        """That of rows whose first columns are the inputs, and whose others are the outputs."""
        x, y = (Moments(*(values[part] for values in self)) for part in (slice(num_dims), slice(num_dims, None)))
        constant = y.scales == 0.0
        return Scaling(x.means, x.scales, y.means, np.where(constant, constant_output_sd(y.means, y.weight), y.scales))


class Bulk(NamedTuple):
    """Limits of each column [D]."""

    low: Array
    high: Array

    def moved_into(self, x: Array) -> Array:
        """Rows [n, D] with values beyond a limit put on it."""
        return np.clip(x, self.low, self.high)


def bulk_of(x: Array, weight: Array | None = None) -> Bulk:
    """The limits of columns [n, D]; a row of weight w counts as w rows."""
    limits = np.array([_limits(column, weight) for column in x.T]).reshape(-1, 2)
    return Bulk(limits[:, 0], limits[:, 1])


def _limits(column: Array, weight: Array | None) -> tuple[float, float]:
    middle = median(column, weight)
    distance = np.abs(column - middle)
    away = distance > 0.0
    if not away.any():
        return middle, middle
    reach = REACH * median(distance[away], None if weight is None else weight[away])
    return middle - reach, middle + reach


def constant_output_sd(value: Array, weight: Array) -> Array:
    """The standard deviation of an output that had one value in all N rows: |y| / N, or 1 / N if that value is zero."""
    return np.where(value == 0.0, 1.0, np.abs(value)) / np.maximum(weight, 1.0)


def no_moments(num_columns: int) -> Moments:
    """Those of no rows."""
    zeros = np.zeros(num_columns)
    return Moments(zeros, np.full(num_columns, TINY), zeros, zeros)


def moments_of(values: Array, weight: Array | None = None) -> Moments:
    """Those of rows [n, C]; NaN does not count."""
    present = ~np.isnan(values)
    unit = np.where(present, values, 0.0)
    magnitude = np.maximum(np.abs(unit).max(axis=0, initial=0.0), TINY)
    unit /= magnitude
    each = present.astype(np.float64) if weight is None else present * weight[:, None]
    total = each.sum(axis=0)
    mean = np.divide((each * unit).sum(axis=0), total, out=np.zeros_like(total), where=total > 0)
    return Moments(total, magnitude, mean, (each * (unit - mean) ** 2).sum(axis=0))


def learn_scaling(x: Array, y: Array, sample_weight: Array | None = None, bulk: Bulk | None = None) -> Scaling:
    """Weighted means and standard deviations of the columns of x [N, D], moved into `bulk` if given, and y [N, T]."""
    parts = [slice(begin, begin + PART_ROWS) for begin in range(0, len(x), PART_ROWS)]
    weights = [None if sample_weight is None else sample_weight[part] for part in parts]

    def inputs(part: slice) -> Array:
        return x[part] if bulk is None else bulk.moved_into(x[part])

    of_parts = (moments_of(np.hstack([inputs(part), y[part]]), w) for part, w in zip(parts, weights, strict=True))
    return reduce(Moments.merge, of_parts).scaling(x.shape[1])


def learn_warped_scaling(warp: InputWarp, rows: Rows[Array]) -> Scaling:
    """The scaling of rows whose inputs are warped first, with the means and standard deviations of their bulk."""
    x = rows.x if warp.name == "identity" else warp.apply(rows.x)
    return learn_scaling(x, rows.y, rows.sample_weight, bulk_of(x, rows.sample_weight))._replace(warp=warp)


def no_scaling(num_dims: int, num_outputs: int) -> Scaling:
    """The scaling that changes nothing."""
    return Scaling(np.zeros(num_dims), np.ones(num_dims), np.zeros(num_outputs), np.ones(num_outputs))


def pool_scalings(scalings: Sequence[Scaling], rows: Array) -> Scaling:
    """The scaling of a data set from those of its parts, without warps, and their numbers of rows [K]."""
    share = rows / rows.sum()

    def pooled(means: Sequence[Array], scales: Sequence[Array]) -> tuple[Array, Array]:
        mean = share @ np.stack(means)
        spread = np.hypot(np.stack(scales), np.stack(means) - mean)  # [K, n]
        largest = np.maximum(spread.max(axis=0), TINY)  # squares of 1e200 would overflow
        scale = largest * np.sqrt(share @ (spread / largest) ** 2)
        return mean, np.where(scale <= ROUNDING * np.abs(mean), 0.0, scale)

    x_mean, x_scale, y_mean, y_scale, x_limit, _ = zip(*scalings, strict=True)
    return Scaling(*pooled(x_mean, x_scale), *pooled(y_mean, y_scale), max(x_limit))


def pool_warped_scalings(scalings: Sequence[Scaling], rows: Array) -> tuple[Scaling, list[Scaling]]:
    """The scaling of a data set from those of its parts and their rows [K], and the latter in its units."""
    plain = np.zeros(len(scalings[0].x_mean))
    warps = [scaling.warp for scaling in scalings]
    is_warped = {int(d) for own in scalings for d in own.warp.paths() if own.varies[d]}
    paths = {d: _mean_path(d, scalings, rows) for d in sorted(is_warped)}
    shares = np.average([plain if warp.name == "identity" else warp.shares for warp in warps], axis=0, weights=rows)
    warp = warp_of("mixed", shares, paths)
    alike = [_in_form_of(scaling, paths)._replace(warp=warp) for scaling in scalings]
    return pool_scalings(alike, rows)._replace(warp=warp), alike


def _standard_path(d: int, scaling: Scaling) -> Path:
    """A column in standard deviations, as a function of its values."""
    mean, scale = scaling.x_mean[d], scaling.x_scale[d]
    path = scaling.warp.paths().get(d)
    if path is None:
        return Path(mean + np.array([-1.0, 1.0]) * scale, np.array([-1.0, 1.0]))
    return Path(path.knots, (path.values - mean) / scale)


def _mean_path(d: int, scalings: Sequence[Scaling], rows: Array) -> Path:
    """The mean of the functions of the parts in which the column varies."""
    known = [k for k, scaling in enumerate(scalings) if scaling.varies[d]]
    paths = [_standard_path(d, scalings[k]) for k in known]
    knots = np.unique(np.concatenate([path.knots for path in paths]))
    if len(knots) > 2 * KNOTS:
        knots = knots[np.unique(np.linspace(0, len(knots) - 1, 2 * KNOTS).round().astype(int))]
    return distinct_path(knots, np.average([path.apply(knots) for path in paths], axis=0, weights=rows[known]))


def _in_form_of(scaling: Scaling, paths: dict[int, Path]) -> Scaling:
    x_mean, x_scale = scaling.x_mean.copy(), scaling.x_scale.copy()
    for d, path in paths.items():
        is_known = scaling.varies[d]
        x_mean[d], x_scale[d] = (0.0, 1.0) if is_known else (path.apply(x_mean[[d]])[0], 0.0)
    return scaling._replace(x_mean=x_mean, x_scale=x_scale)
