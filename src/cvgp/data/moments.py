"""Means and spreads of columns from parts of the rows, which add up to those of all rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Moments", "moments_of", "no_moments"]

Array = NDArray[np.float64]

TINY = float(np.finfo(np.float64).tiny)


class Moments(NamedTuple):
    """Weight, mean and summed squares about the mean of each column, in units of its largest magnitude.

    The units keep squares of 1e200 and of 1e-200 from overflowing and vanishing.
    """

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

    def filled(self, values: Array, weight: Array) -> Moments:
        """With values [C] that stand in for what was missing, each with the weight [C] of the rows that it fills."""
        return self.merge(Moments(weight, np.maximum(np.abs(values), TINY), np.sign(values), np.zeros_like(values)))

    @property
    def means(self) -> Array:
        """The means in the columns' own units."""
        return self.mean * self.magnitude

    @property
    def scales(self) -> Array:
        """Standard deviations; one for a column whose spread is rounding noise of its size, which is constant."""
        deviation = np.sqrt(self.squares / self.weight)
        constant = (deviation <= 1e-12 * np.abs(self.mean)) | (deviation == 0.0)
        return np.where(constant, 1.0, deviation * self.magnitude)


def no_moments(num_columns: int) -> Moments:
    """Those of no rows."""
    zeros = np.zeros(num_columns)
    return Moments(zeros, np.full(num_columns, TINY), zeros, zeros)


def moments_of(values: Array, weight: Array | None = None) -> Moments:
    """Those of rows [n, C]; NaN does not count."""
    present = ~np.isnan(values)
    magnitude = np.maximum(np.max(np.abs(values), axis=0, where=present, initial=0.0), TINY)
    unit = np.where(present, values, 0.0) / magnitude
    each = present.astype(np.float64) if weight is None else np.where(present, weight[:, None], 0.0)
    total = each.sum(axis=0)
    mean = np.divide((each * unit).sum(axis=0), total, out=np.zeros_like(total), where=total > 0)
    return Moments(total, magnitude, mean, (each * (unit - mean) ** 2).sum(axis=0))
