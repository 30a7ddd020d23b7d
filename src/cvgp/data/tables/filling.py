"""What stands in for missing values: the mean, the median, or the most frequent value of a column."""

from dataclasses import replace

import numpy as np
import torch

from cvgp.data.rows import Array, Rows
from cvgp.data.schema import Column, Impute, feature_slices
from cvgp.data.tables.first_pass import Survey
from cvgp.data.tables.reader import read_batches
from cvgp.data.tables.reservoir import RESERVOIR_ROWS
from cvgp.errors import InvalidInputError
from cvgp.parallel.group import Group


def fill_gaps(survey: Survey, impute: Impute | None, *, fits_in_memory: bool, group: Group) -> Survey:
    """The survey of the table whose missing values are filled by a rule.

    Numbers get their column's mean or median. True and false, and text, get the most frequent value; the first in
    order if several are equally frequent. Means and frequencies are those of all rows that count. So are medians of a
    table that fits in memory; those of a larger one are the medians of the random sample of rows that was kept.
    """
    if impute not in ("mean", "median"):
        return survey
    encoder, moments = survey.encoder, survey.moments
    for column, present in zip(encoder.columns, _per_column(encoder.columns, moments.weight), strict=True):
        if present[0] == 0.0:
            raise InvalidInputError(f"Column {column.name!r} holds no values at all; leave it out.")
    typical = moments.means[: len(encoder.feature_names)]
    if impute == "median":
        medians = _medians(survey, fits_in_memory, group)
        typical = np.where(np.isnan(medians), typical, medians)  # a sample may have no value of a column
    per_column = _per_column(encoder.columns, moments.mean), _per_column(encoder.columns, typical)
    columns = [replace(c, fill=_fill(c, *values)) for c, *values in zip(encoder.columns, *per_column, strict=True)]
    fills = np.concatenate([_as_features(column) for column in columns])
    missing = np.maximum(moments.weight[-1] - moments.weight, 0.0)  # no row without target counts
    return replace(
        survey,
        encoder=replace(encoder, columns=tuple(columns)),
        moments=moments.filled(np.append(fills, np.zeros(len(encoder.targets))), missing),
        reservoir=survey.reservoir.with_features(lambda x: np.where(np.isnan(x), fills, x)),
    )


def _fill(column: Column, share: Array, typical: Array) -> float | bool | str:
    """What fills a column, from the share that each indicator has of the rows, and the typical number."""
    share = np.round(share, 12)  # shares that differ only by rounding are equal
    if column.kind == "categorical":
        return column.categories[int(share.argmax())]
    return bool(share[0] > 0.5) if column.kind == "boolean" else float(typical[0])


def _medians(survey: Survey, fits_in_memory: bool, group: Group) -> Array:
    """Of the features [D]."""
    if not fits_in_memory:
        return _median(common_sample(survey, group).x)
    if len(survey.reservoir.rows.x) == survey.num_rows:
        return _median(survey.reservoir.rows.x)
    encoder = replace(survey.encoder, targets=(), weight=None, noise=None)
    parts = []
    for known in survey.parts:
        batches = [encoder.encode(batch).x for batch in read_batches(known.part, encoder.names, encoder.kinds)]
        parts.append(np.delete(np.concatenate(batches), known.excluded, axis=0) if batches else encoder.no_rows().x)
    return _median(np.concatenate(parts))


def _median(x: Array) -> Array:
    """Of the columns [D] where they have values, one after the other, since each is copied."""
    return np.array([np.median(column[~np.isnan(column)]) if not np.isnan(column).all() else np.nan for column in x.T])


def common_sample(survey: Survey, group: Group) -> Rows[Array]:
    """A sample of the rows of all processes, the same everywhere."""
    count = -(-RESERVOIR_ROWS * survey.num_rows // survey.total_rows)
    rows = survey.reservoir.rows
    chosen = rows.take(np.sort(np.random.default_rng(0).permutation(len(rows.x))[:count]))
    return chosen.map(lambda values: torch.cat(group.gather(torch.from_numpy(values))).numpy())


def _per_column(columns: tuple[Column, ...], values: Array) -> list[Array]:
    """The values [D] of the features of each column."""
    return [values[own] for own in feature_slices(columns)]


def _as_features(column: Column) -> Array:
    if column.kind == "categorical":
        return np.array([float(category == column.fill) for category in column.categories])
    assert column.fill is not None
    return np.array([float(column.fill)])
