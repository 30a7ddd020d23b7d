"""Where the bulk of a column lies, so that one value far away does not squeeze all others to a point.

The standard deviation of a column is taken with its values moved into the range m - 30 t to m + 30 t. Here m is the
median, and t the median distance of the values that differ from it. Of a normal column that is 20 standard deviations,
and a column without outliers has its plain standard deviation. To leave out the values that equal the median lets a
column of many zeros keep its few others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cvgp.data.rows import Array

__all__ = ["Bulk", "bulk_of"]

REACH = 30.0
ROUNDING = 1e-12
"""Sums of weights that differ by less than this share are equal."""


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


def median(values: Array, weight: Array | None = None) -> float:
    """The median of values that stand as often as their weights say."""
    if weight is None:
        return float(np.median(values))
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weight[order]) / weight.sum() - 0.5
    lower, upper = np.searchsorted(share, [-ROUNDING, ROUNDING], side="right")
    return float(0.5 * (values[order[min(lower, len(order) - 1)]] + values[order[min(upper, len(order) - 1)]]))
