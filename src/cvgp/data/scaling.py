"""Standardisation of inputs and outputs, from the training data, once."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scaling", "learn_scaling", "no_scaling", "pool_scalings"]

Array = NDArray[np.float64]

PART_ROWS = 1 << 17


class Scaling(NamedTuple):
    """x -> (x - x_mean) / x_scale and y -> (y - y_mean) / y_scale."""

    x_mean: Array  # [D]
    x_scale: Array  # [D]
    y_mean: Array  # [T]
    y_scale: Array  # [T]

    def scale_x(self, x: Array) -> Array:
        """Inputs in the model's units."""
        scaled = x - self.x_mean
        scaled /= self.x_scale  # in place: x may be most of the memory that there is
        return scaled

    def unscale_x(self, x: Array) -> Array:
        """Inputs in the user's units."""
        return x * self.x_scale + self.x_mean

    def scale_y(self, y: Array) -> Array:
        """Outputs [N, T] in the model's units."""
        return (y - self.y_mean) / self.y_scale

    def unscale_y(self, y: Array) -> Array:
        """Outputs [N, T] in the user's units."""
        return y * self.y_scale + self.y_mean


def learn_scaling(x: Array, y: Array, sample_weight: Array | None = None) -> Scaling:
    """Weighted means and standard deviations of the columns of x [N, D] and y [N, T]."""
    return Scaling(*_moments(x, sample_weight), *_moments(y, sample_weight))


def no_scaling(num_dims: int, num_outputs: int) -> Scaling:
    """The scaling that changes nothing."""
    return Scaling(np.zeros(num_dims), np.ones(num_dims), np.zeros(num_outputs), np.ones(num_outputs))


def pool_scalings(scalings: Sequence[Scaling], rows: Array) -> Scaling:
    """The scaling of a data set from those of its parts and their numbers of rows [K]."""
    share = rows / rows.sum()

    def pooled(means: Sequence[Array], scales: Sequence[Array]) -> tuple[Array, Array]:
        mean = share @ np.stack(means)
        spread = np.hypot(np.stack(scales), np.stack(means) - mean)  # [K, n]
        largest = spread.max(axis=0)  # squares of 1e200 would overflow
        return mean, largest * np.sqrt(share @ (spread / largest) ** 2)

    x_mean, x_scale = pooled([s.x_mean for s in scalings], [s.x_scale for s in scalings])
    y_mean, y_scale = pooled([s.y_mean for s in scalings], [s.y_scale for s in scalings])
    return Scaling(x_mean, x_scale, y_mean, y_scale)


def _moments(values: Array, weight: Array | None) -> tuple[Array, Array]:
    # Divided by the largest magnitude first, so that squares of 1e200 or 1e-200 neither overflow nor vanish.
    largest = np.max([np.abs(part).max(axis=0) for part, _ in _parts(values, weight)], axis=0)
    magnitude = np.maximum(largest, np.finfo(np.float64).tiny)
    total = len(values) if weight is None else weight.sum()
    mean = sum(_sum(part / magnitude, w) for part, w in _parts(values, weight)) / total
    square = sum(_sum((part / magnitude - mean) ** 2, w) for part, w in _parts(values, weight)) / total
    deviation = np.sqrt(square)
    # A column whose spread is rounding noise of its size is constant; it stays as it is.
    constant = deviation <= 1e-12 * np.abs(mean)
    scale = np.where(constant | (deviation == 0.0), 1.0 / magnitude, deviation)
    return mean * magnitude, scale * magnitude


def _parts(values: Array, weight: Array | None) -> Iterator[tuple[Array, Array | None]]:
    """The rows a part at a time: what is computed of large data takes no memory of their size."""
    for begin in range(0, len(values), PART_ROWS):
        part = slice(begin, begin + PART_ROWS)
        yield values[part], None if weight is None else weight[part]


def _sum(rows: Array, weight: Array | None) -> Array:
    total: Array = (rows if weight is None else rows * weight[:, None]).sum(axis=0)
    return total
