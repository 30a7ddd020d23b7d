"""From one number per cell of a table to the features of a model (§14.2 of the mathematics).

NaN is a missing cell, and UNKNOWN a category that the training table did not have; such rows have DRAWS vectors.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from cvgp.data.rows import Array
from cvgp.errors import CVGPWarning
from cvgp.tables.columns import EARTH_RADIUS, TYPICAL, Column, date_features, feature_slices

UNKNOWN = -1.0
MOST_SHOWN = 3  # rows that an error or a warning names


def features_of(
    columns: Sequence[Column],
    cells: Array,
    fold_effects: Mapping[str, Array] | None = None,
    folds: NDArray[np.int64] | None = None,
) -> Array:
    """The features [n, D] of cells [n, C]; training rows have folds [n] and effects [K, L + 1, d] of these."""
    x = np.empty((len(cells), sum(len(column.feature_names) for column in columns)))
    for j, (column, at) in enumerate(zip(columns, feature_slices(columns), strict=True)):
        x[:, at] = column_features(column, cells[:, j], (fold_effects or {}).get(column.name), folds)
        if column.kind == "longitude":  # which follows the latitude
            x[:, at] *= np.cos(np.radians(cells[:, j - 1]))[:, None]
    return x


def column_features(
    column: Column, cells: Array, fold_effects: Array | None = None, folds: NDArray[np.int64] | None = None
) -> Array:
    """The features [n, w] of the cells [n] of one column."""
    missing = np.isnan(cells)
    if column.kind == "levels":
        codes = level_codes(column, cells)
        if fold_effects is None:
            effects = np.vstack([column.effects, np.zeros(len(column.dims))])[codes]  # an unknown level has the last
        else:
            effects = fold_effects[folds, codes]
        return np.where((missing & (codes < 0))[:, None], np.nan, effects)
    found: Array
    if column.kind == "categorical":
        codes = _codes(column, cells, -1)
        found = (codes[:, None] == np.arange(len(column.categories))).astype(np.float64)
        if column.fill is None and not column.marks_missing:
            found[missing] = np.nan
    else:
        filled = cells if column.fill is None else np.where(missing, float(column.fill), cells)
        found = date_features(filled, column.parts) if column.kind == "date" else _number_features(column, filled)
    if not column.marks_missing:
        return found
    if column.kind in ("date", "cyclic"):
        found[missing, int("trend" in column.parts) :] = 0.0  # the center of each circle
    return np.column_stack([found, missing])


def _number_features(column: Column, values: Array) -> Array:
    """The features [n, w] of numbers: themselves, on a circle, or on the sphere, of longitudes those at the equator."""
    if column.kind == "latitude":
        return EARTH_RADIUS * np.sin(np.radians(values))[:, None]
    if column.kind == "longitude":
        angle = np.radians(values)
        return EARTH_RADIUS * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if column.period is not None:
        angle = 2.0 * np.pi * np.mod(values / column.period, 1.0)
        return np.stack([np.sin(angle), np.cos(angle)], axis=1)
    return values[:, None]


def level_codes(column: Column, cells: Array) -> NDArray[np.int64]:
    """Positions [n] among the categories; that of a missing cell is behind them if it is marked, and -1 otherwise."""
    return _codes(column, cells, len(column.categories) if column.marks_missing else -1)


def _codes(column: Column, cells: Array, missing: int) -> NDArray[np.int64]:
    fill = missing if column.fill is None else column.categories.index(str(column.fill))
    return np.where(np.isnan(cells), fill, cells).astype(np.int64)


DRAWS = TYPICAL
SMALLEST_SD = 0.2  # levels whose effect has a standard deviation of less than this share of the prior's count as known
_INTEGRATED = "The column is integrated out there over the rows of the training table, and intervals are wider."
KINDS = {
    "unknown": (
        "Cells with a category that the training table did not have",
        f"{_INTEGRATED} Correct them if they are misspelled, or fit again with such rows.",
    ),
    "missing": ("Cells with no value, in columns that were complete in the training table", _INTEGRATED),
    "outside": (
        "Dates outside the range of the training table",
        "The model knows no trend there; fit it again with later rows.",
    ),
}


class Cells(NamedTuple):
    """Cells of one column that are not known, and the features that they may have."""

    features: slice
    rows: NDArray[np.int64]  # [r], in order
    values: Array  # [r, DRAWS, w]

    def of(self, chosen: NDArray[np.int64]) -> Cells:
        """The cells of some rows [k] in order, numbered among these."""
        _, where, inside = np.intersect1d(chosen, self.rows, assume_unique=True, return_indices=True)
        return Cells(self.features, where, self.values[inside])


class Findings:
    """The remarkable cells of new rows: how many there are of each kind (see KINDS) in each column, and the first."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.first: dict[tuple[str, str], str] = {}

    def note(self, kind: str, column: str, cells: NDArray[np.bool_], rows: NDArray[np.int64], file: str) -> None:
        """Count cells [n] of one kind in a column; the rows [n] have numbers in their file."""
        if cells.any():
            self.counts[kind, column] += int(cells.sum())
            shown = ", ".join(str(row + 1) for row in rows[cells][:MOST_SHOWN])
            self.first.setdefault((kind, column), f"{file}{', ' if file else ''}data row {shown}")

    def add(self, other: Findings) -> None:
        """Count those of other rows too, which come after."""
        self.counts.update(other.counts)
        self.first = other.first | self.first

    def warn(self) -> None:
        """Warn of what was found, if anything."""
        for kind, (words, advice) in KINDS.items():
            found = [(name, self.counts[own, name], self.first[own, name]) for own, name in self.counts if own == kind]
            if found:
                listed = ", ".join(f"{name!r} {count} ({first})" for name, count, first in found)
                warnings.warn(f"{words}: {listed}. {advice}", CVGPWarning, stacklevel=3)


class Inputs:
    """The features x [n, D] of rows to predict at, with mean draws in cells that are `unknown`.

    Missing cells of columns that had some in the training table are `gaps`: their draws tell how much y spreads there.
    """

    def __init__(self, x: Array, unknown: Sequence[Cells] = (), gaps: Sequence[Cells] = ()) -> None:
        self.x = x
        self.unknown = [cells for cells in unknown if len(cells.rows)]
        self.gaps = [cells for cells in gaps if len(cells.rows)]

    def __len__(self) -> int:
        return len(self.x)

    @property
    def uncertain_rows(self) -> NDArray[np.int64]:
        """The rows [u] that have unknown cells, in order."""
        rows = [cells.rows for cells in self.unknown]
        return np.unique(np.concatenate(rows)) if rows else np.empty(0, dtype=np.int64)

    @property
    def filled(self) -> Inputs:
        """The same rows as if nothing was known of their gaps."""
        return Inputs(self.x, self.gaps)

    def take(self, chosen: NDArray[np.int64]) -> Inputs:
        """Some rows [k], in order."""
        parts = ([cells.of(chosen) for cells in part] for part in (self.unknown, self.gaps))
        return Inputs(self.x[chosen], *parts)

    def draws(self) -> Array:
        """The equally likely features [n, DRAWS, D] of all rows."""
        x = np.repeat(self.x[:, None, :], DRAWS, axis=1)
        for cells in self.unknown:
            x[cells.rows, :, cells.features] = cells.values
        return x

    @staticmethod
    def join(pieces: Sequence[Inputs]) -> Inputs:
        """All pieces, one after another."""
        starts = np.cumsum([0, *(len(piece) for piece in pieces)])
        moved: dict[str, list[Cells]] = {"unknown": [], "gaps": []}
        for piece, start in zip(pieces, starts, strict=False):
            for part, found in moved.items():
                found += [cells._replace(rows=cells.rows + start) for cells in getattr(piece, part)]
        return Inputs(np.concatenate([piece.x for piece in pieces]), **moved)


def new_inputs(
    columns: Sequence[Column], cells: Array, numbers: NDArray[np.int64] | None = None, file: str = ""
) -> tuple[Inputs, Findings]:
    """The features of new rows from their cells [n, C], and what is remarkable in them; `numbers` [n] name the rows."""
    x = features_of(columns, cells)
    rows_in_file = np.arange(len(cells)) if numbers is None else numbers
    found, unknown, gaps = Findings(), list[Cells](), list[Cells]()
    for position, (column, at) in enumerate(zip(columns, feature_slices(columns), strict=True)):
        values = cells[:, position]
        is_new = values == UNKNOWN if column.is_text else np.zeros(len(values), dtype=np.bool_)
        is_gap = np.isnan(values) & (column.fill is None) & (not column.marks_missing)
        if "trend" in column.parts and column.typical:
            outside = (values < column.typical[0]) | (values > column.typical[-1])
            found.note("outside", column.name, outside, rows_in_file, file)
        found.note("unknown", column.name, is_new, rows_in_file, file)
        found.note("missing", column.name, is_gap, rows_in_file, file)
        drawn = np.random.default_rng(position).permutation(DRAWS)
        uncertain = _uncertain_cells(column, values, is_new | is_gap)
        if uncertain is not None:
            rows, draws = uncertain
            unknown.append(Cells(at, rows, np.ascontiguousarray(draws[:, drawn])))
            x[rows, at] = draws.mean(axis=1)
        if column.marks_missing and np.isnan(values).any():
            rows = np.flatnonzero(np.isnan(values))
            draws = np.broadcast_to(_gap_draws(column)[drawn], (len(rows), DRAWS, at.stop - at.start))
            gaps.append(Cells(at, rows, np.ascontiguousarray(draws)))
    return Inputs(x, unknown, gaps), found


def _uncertain_cells(
    column: Column, values: Array, is_open: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], Array] | None:
    """Rows [r] of uncertain cells of a column, and the features [r, DRAWS, w] that they may have."""
    if column.kind == "levels":
        if not column.effects:
            return None
        codes = np.where(is_open, -1, level_codes(column, values))
        sd = np.vstack([column.effect_sd, column.prior_sd])[codes]  # [n, d]
        effect = np.vstack([column.effects, np.zeros(len(column.dims))])[codes]
        rows = np.flatnonzero((sd > SMALLEST_SD * np.array(column.prior_sd)).any(axis=1))
        return rows, effect[rows, None] + sd[rows, None] * _normal_vectors(len(column.dims))
    if not column.typical or not is_open.any():
        return None
    rows = np.flatnonzero(is_open)
    draws = column_features(column, _typical_cells(column))  # [DRAWS, w]
    return rows, np.broadcast_to(draws, (len(rows), *draws.shape))


def _gap_draws(column: Column) -> Array:
    """The features [DRAWS, w] that rows with a marked gap would have if the cell was there."""
    if column.kind == "levels":
        return np.array(column.effects[-1]) + np.array(column.prior_sd) * _normal_vectors(len(column.dims))
    if column.kind == "categorical":
        column = replace(column, typical=(*column.typical[:-1], 0.0))
    return column_features(column, _typical_cells(column))


def _typical_cells(column: Column) -> Array:
    """Cells [DRAWS] that represent the training table."""
    if column.kind != "categorical":
        return np.array(column.typical)
    ends = np.cumsum(column.typical)
    codes = np.searchsorted(ends / ends[-1], (np.arange(DRAWS) + 0.5) / DRAWS).astype(np.float64)
    return np.where(codes == len(column.categories), np.nan, codes)  # behind the categories: missing


def _normal_vectors(num_dims: int) -> Array:
    """Quantiles [DRAWS, d] of a normal distribution, of variance one: each dimension has them in another order."""
    z = ndtri((np.arange(DRAWS) + 0.5) / DRAWS)
    orders = [np.random.default_rng(d).permutation(DRAWS) for d in range(num_dims)]
    return np.stack([z[order] / z.std() for order in orders], axis=1)
