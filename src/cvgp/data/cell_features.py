"""From one number per cell of a table to the features of a model.

A table is first put into numbers, one per cell: the number itself, 0 or 1, the position of a category, the days of a
date. NaN is a missing cell, and UNKNOWN a category that the training table did not have. The columns say which features
these become.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvgp.data.calendar import date_features
from cvgp.data.columns import Column, feature_slices
from cvgp.data.rows import Array

UNKNOWN = -1.0


class FoldEffects(NamedTuple):
    """Effects of levels for training rows: each row's own fold had no part in them."""

    effects: Array  # [K, L + 1, d]; the last one is that of levels that have none of their own

    def of(self, codes: NDArray[np.int64], folds: NDArray[np.int64]) -> Array:
        """The effects [n, d] of rows."""
        return np.asarray(self.effects[folds, codes])


def features_of(
    columns: Sequence[Column],
    cells: Array,
    fold_effects: Mapping[str, FoldEffects] | None = None,
    folds: NDArray[np.int64] | None = None,
) -> Array:
    """The features [n, D] of cells [n, C]; NaN where a cell is missing and its column has nothing to put there.

    Training rows have folds [n], and the effects of their levels are those of the other folds.
    """
    x = np.empty((len(cells), sum(len(column.feature_names) for column in columns)))
    for column, at, values in zip(columns, feature_slices(columns), cells.T, strict=True):
        own = None if fold_effects is None else fold_effects.get(column.name)
        if own is not None and folds is not None:
            codes = level_codes(column, values)
            is_open = np.isnan(values) & (codes < 0)
            x[:, at] = np.where(is_open[:, None], np.nan, own.of(codes, folds))
        else:
            x[:, at] = column_features(column, values)
    return x


def column_features(column: Column, cells: Array) -> Array:
    """The features [n, w] of the cells [n] of one column."""
    missing = np.isnan(cells)
    if column.kind == "levels":
        codes = level_codes(column, cells)
        effects = np.vstack([column.effects, np.zeros(len(column.dims))])  # an unknown level has the last one
        return np.where((missing & (codes < 0))[:, None], np.nan, effects[codes])
    if column.kind == "categorical":
        found = _indicators(column, cells)
    else:
        filled = cells if column.fill is None else np.where(missing, float(column.fill), cells)
        found = date_features(filled, column.parts) if column.kind == "date" else filled[:, None]
    if not column.marks_missing:
        return found
    if column.kind == "date":
        found[missing, 1:] = 0.0  # the middle of each circle
    return np.column_stack([found, missing])


def level_codes(column: Column, cells: Array) -> NDArray[np.int64]:
    """Positions [n] among the categories; that of a missing cell is behind them if it is marked, and -1 otherwise."""
    return _codes(column, cells, len(column.categories) if column.marks_missing else -1)


def _indicators(column: Column, cells: Array) -> Array:
    codes = _codes(column, cells, -1)
    found = np.zeros((len(cells), len(column.categories)))
    known = np.flatnonzero(codes >= 0)
    found[known, codes[known]] = 1.0
    if column.fill is None and not column.marks_missing:
        found[np.isnan(cells)] = np.nan
    return found


def _codes(column: Column, cells: Array, missing: int) -> NDArray[np.int64]:
    fill = missing if column.fill is None else column.categories.index(str(column.fill))
    return np.where(np.isnan(cells), fill, cells).astype(np.int64)
