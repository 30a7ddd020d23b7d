"""What the columns of a table become, learned from the rows that count: fills, marks of gaps, effects of levels.

The first pass has put the table into one number per cell. Where its sample holds all rows, nothing is read again.
Otherwise one more pass counts levels, and another one has the moments of the features.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cvgp.data.calendar import varying_parts
from cvgp.data.cell_features import UNKNOWN
from cvgp.data.columns import TYPICAL, Column
from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import Moments, moments_of, no_moments
from cvgp.data.schema import Impute
from cvgp.data.tables.blocks import read_numbers
from cvgp.data.tables.first_pass import Survey
from cvgp.data.tables.learned_levels import learn_levels
from cvgp.data.tables.reservoir import RESERVOIR_ROWS
from cvgp.parallel.group import Group

Numbered = tuple[Rows[Array], NDArray[np.int64]]
"""Rows in numbers, and their numbers in their files."""


def learn_columns(survey: Survey, impute: Impute | None, *, fits_in_memory: bool, group: Group) -> Survey:
    """The survey of the features of a table.

    Without a rule, a column with missing cells gets a feature that says so, beside its median (the middle of each
    circle of dates); among categories and levels, missing is one of its own. With the rules `mean` and `median` numbers
    and dates get their column's mean or median, and others the most frequent value; the first in order if several are
    equally frequent. Means and frequencies are those of all rows that count. So are medians of a table that fits in
    memory; those of a larger one are the medians of the random sample of rows that was kept.
    """
    sample = common_sample(survey, group)
    survey, tallies = _without_unused(survey, _tallies(survey, group))
    medians = _medians(survey, sample.x, fits_in_memory)
    columns = tuple(
        _learned(column, impute, int(missing), tally, float(mean), median, cells)
        for column, missing, tally, mean, median, cells in zip(
            survey.encoder.columns, survey.missing, tallies, survey.moments.means, medians, sample.x.T, strict=False
        )
    )
    encoder = replace(survey.encoder, columns=columns)
    if any(column.kind == "levels" for column in columns):
        encoder = learn_levels(encoder, common_sample(survey, group), lambda: rows_in_numbers(survey), group)
    if not survey.missing.any() and all(column.kind in ("numeric", "boolean", "ordered") for column in columns):
        return replace(survey, encoder=encoder)  # the numbers are the features
    moments = no_moments(encoder.num_columns)
    for rows, numbers in rows_in_numbers(survey):
        x = encoder.training_features(rows.x, numbers)
        moments = moments.merge(moments_of(np.hstack([x, rows.y]), rows.sample_weight))
    gathered = group.gather(torch.from_numpy(np.stack(moments)))
    return replace(
        survey,
        encoder=encoder,
        moments=reduce(Moments.merge, (Moments(*part.numpy()) for part in gathered)),
        reservoir=survey.reservoir.with_features(lambda x: encoder.training_features(x, _sample_numbers(survey))),
    )


def rows_in_numbers(survey: Survey) -> Iterator[Numbered]:
    """The rows of this process that count, from the sample if it holds them all."""
    if len(survey.reservoir.rows.x) == survey.num_rows:
        yield survey.reservoir.rows, _sample_numbers(survey)
        return
    for known in survey.parts:
        for rows, where in read_numbers(known, survey.encoder):
            yield rows, known.part.first_row + where


def common_sample(survey: Survey, group: Group) -> Rows[Array]:
    """A sample of the rows of all processes, the same everywhere."""
    count = -(-RESERVOIR_ROWS * survey.num_rows // survey.total_rows)
    rows = survey.reservoir.rows
    chosen = rows.take(np.sort(np.random.default_rng(0).permutation(len(rows.x))[:count]))
    return chosen.map(lambda values: torch.cat(group.gather(torch.from_numpy(values))).numpy())


def quantiles(cells: Array) -> tuple[float, ...]:
    """Equally likely values that stand for those of a column; none for a column without values."""
    present = cells[np.isfinite(cells)]
    levels = (np.arange(TYPICAL) + 0.5) / TYPICAL
    return tuple(np.quantile(present, levels).tolist()) if len(present) else ()


class _Tally(NamedTuple):
    """What all rows say of a column that the sample may not show."""

    counts: Array
    """The weight of each category."""
    first: float
    last: float


def _tallies(survey: Survey, group: Group) -> list[_Tally]:
    columns = survey.encoder.columns
    wanted = [c.is_text or c.kind == "date" for c in columns]
    counts = [np.zeros(len(column.categories)) for column in columns]
    ends = np.full((len(columns), 2), -np.inf)  # the greatest of minus the cells, and of the cells
    if any(wanted):
        for rows, _ in rows_in_numbers(survey):
            weight = np.ones(len(rows.x)) if rows.sample_weight is None else rows.sample_weight
            for position, column in enumerate(columns):
                cells = rows.x[:, position]
                present = ~np.isnan(cells) & (cells != UNKNOWN) if column.is_text else ~np.isnan(cells)
                if column.is_text:
                    codes = cells[present].astype(np.int64)
                    counts[position] += np.bincount(codes, weight[present], minlength=len(column.categories))
                elif column.kind == "date" and present.any():
                    ends[position] = np.maximum(ends[position], [-cells[present].min(), cells[present].max()])
        counts = [part.numpy() for part in group.sum([torch.from_numpy(part) for part in counts])]
        ends = np.max([part.numpy() for part in group.gather(torch.from_numpy(ends)[None])], axis=(0, 1))
    return [_Tally(count, -low, high) for count, (low, high) in zip(counts, ends.tolist(), strict=True)]


def _without_unused(survey: Survey, tallies: list[_Tally]) -> tuple[Survey, list[_Tally]]:
    """Without the categories that stand only in rows that do not count."""
    columns, kept_tallies, renumbered = [], [], {}
    for position, (column, tally) in enumerate(zip(survey.encoder.columns, tallies, strict=True)):
        used = tally.counts > 0.0
        if column.kind in ("categorical", "levels") and not used.all():
            kept = tuple(category for category, use in zip(column.categories, used, strict=True) if use)
            column, tally = replace(column, categories=kept), tally._replace(counts=tally.counts[used])
            renumbered[position] = np.append(np.cumsum(used) - 1.0, UNKNOWN)  # the last one is that of unknown cells
        columns.append(column)
        kept_tallies.append(tally)
    if not renumbered:
        return survey, kept_tallies

    def change(x: Array) -> Array:
        x = x.copy()
        for position, new in renumbered.items():
            known = ~np.isnan(x[:, position])
            x[known, position] = new[x[known, position].astype(np.int64)]
        return x

    encoder = replace(survey.encoder, columns=tuple(columns))
    return replace(survey, encoder=encoder, reservoir=survey.reservoir.with_features(change)), kept_tallies


def _learned(
    column: Column, impute: Impute | None, missing: int, tally: _Tally, mean: float, median: float, cells: Array
) -> Column:
    """A column with its fill, its mark and its distribution."""
    marks = impute is None and missing > 0
    shares = np.round(tally.counts / max(tally.counts.sum(), 1e-300), 12)  # those that differ by rounding are equal
    fill: float | bool | str | None = None
    if impute in ("mean", "median") or marks:
        if column.kind in ("categorical", "levels"):
            fill = None if marks else column.categories[int(shares.argmax())]
        elif column.kind == "boolean":
            fill = bool(round(mean, 12) > 0.5)
        elif column.kind == "ordered" and not marks:
            fill = float(shares.argmax())
        else:
            fill = mean if impute == "mean" or np.isnan(median) else median
    typical = quantiles(cells)
    if column.kind == "categorical":
        typical = (*tally.counts.tolist(), *([float(missing)] if marks else []))
    elif column.kind == "levels":
        typical = ()
    elif column.kind == "date":
        typical = (tally.first, *typical[1:-1], tally.last)  # the range of all dates
        parts = varying_parts(np.append(cells[~np.isnan(cells)], [tally.first, tally.last]))
        column = replace(column, parts=parts)
    return replace(column, fill=fill, n_missing=missing, marks_missing=marks, typical=typical)


def _medians(survey: Survey, sample: Array, fits_in_memory: bool) -> list[float]:
    """Of the columns, where cells are missing and positions mean something."""
    whole = sample
    if fits_in_memory and survey.missing.any():
        whole = np.concatenate([rows.x for rows, _ in rows_in_numbers(survey)])
    return [_median(column) for column in whole.T]


def _median(cells: Array) -> float:
    present = cells[~np.isnan(cells)]
    return float(np.median(present)) if len(present) else np.nan


def _sample_numbers(survey: Survey) -> NDArray[np.int64]:
    first_rows = np.array([known.part.first_row for known in survey.parts], dtype=np.int64)
    where = survey.reservoir.where
    return first_rows[where[:, 0]] + where[:, 1] if len(where) else where[:, 1]
