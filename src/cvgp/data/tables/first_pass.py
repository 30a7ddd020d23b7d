"""The first pass over a table in files: its columns, its bad rows, its moments and a sample.

Text is read once before, by itself, since its categories must be known to count its indicators. The processes of a
group look at different parts each, and put together what they found.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import torch
from numpy.typing import NDArray

from cvgp.data.cells import kind_of
from cvgp.data.columns import MAX_CATEGORIES, Column
from cvgp.data.moments import Moments, moments_of, no_moments
from cvgp.data.tables.arrow_columns import column_labels
from cvgp.data.tables.bad_rows import BadRows, OnBadRows
from cvgp.data.tables.blocks import BLOCK_ROWS, Encoder, KnownPart
from cvgp.data.tables.parts import Part, column_kinds, list_parts, read_batches
from cvgp.data.tables.reservoir import Reservoir
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.parallel.group import ALONE, Group, gather_text

__all__ = ["Survey", "TableColumns", "survey_table"]

Array = NDArray[np.float64]


class TableColumns(NamedTuple):
    """Which columns of a table are what; those that are not named are features."""

    targets: tuple[str, ...]
    weight: str | None = None
    noise: str | None = None


@dataclass(frozen=True)
class Survey:
    """What a table was found to be."""

    encoder: Encoder
    parts: tuple[KnownPart, ...]
    """Those of this process."""
    moments: Moments
    """Of the columns of x, then of y, of all rows."""
    reservoir: Reservoir
    """Rows[Array] of this process's parts."""
    bad: BadRows
    """What was found in this process's parts, with the numbers of all."""
    total_rows: int
    """The rows that count, in the parts of all processes."""
    total_files: int

    @property
    def num_rows(self) -> int:
        """The rows that count, in the parts of this process."""
        return sum(known.num_rows - len(known.excluded) for known in self.parts)


def survey_table(
    dataset: ds.Dataset,
    columns: TableColumns,
    *,
    impute: str | None = None,
    on_bad_rows: OnBadRows = "error",
    group: Group = ALONE,
) -> Survey:
    """Look at every row once.

    Parameters
    ----------
    columns
        The targets, and the columns of sample weights and of known noise variances if there are any.
    impute
        What to do about missing values of features: fill them with the column's ``mean`` (true or false, and text, with
        what is most frequent), or ``drop`` the rows. The other rules need whole columns in memory.
    on_bad_rows
        Whether rows that are not finite (or, without a rule, not complete) are an ``error`` or are left out: ``skip``.
    group
        The processes among which the parts of the table are dealt out.
    """
    every_part = list_parts(dataset)
    parts = every_part[group.rank :: group.world]
    encoder = _make_encoder(dataset, parts, columns, impute, group)
    bad = BadRows(encoder, impute, on_bad_rows)
    reservoir = Reservoir(nothing=encoder.no_rows())
    known: list[KnownPart] = []
    D, T = len(encoder.feature_names), len(encoder.targets)
    moments = no_moments(D + T)
    for index, part in enumerate(parts):
        found, in_part = _survey_part(part, index, encoder, bad, reservoir)
        moments = moments.merge(in_part)
        known.append(found)
    moments = _moments_of_all(moments, group)
    rows = bad.count_all(group, sum(found.num_rows - len(found.excluded) for found in known))
    if rows == 0:
        raise InvalidInputError(f"No row of the table is left to learn from; {bad.summary() or 'it has none'}.")
    survey = Survey(encoder, tuple(known), moments, reservoir, bad, rows, len({part.file for part in every_part}))
    return _filled(survey) if impute == "mean" else survey


def _moments_of_all(moments: Moments, group: Group) -> Moments:
    gathered = group.gather(torch.from_numpy(np.stack(moments)))
    return reduce(Moments.merge, (Moments(*part.numpy()) for part in gathered))


def _survey_part(
    part: Part, index: int, encoder: Encoder, bad: BadRows, reservoir: Reservoir
) -> tuple[KnownPart, Moments]:
    moments = no_moments(len(encoder.feature_names) + len(encoder.targets))
    draw = np.random.default_rng([20240613, index])
    count = 0
    excluded: list[NDArray[np.int64]] = []
    weights: list[Array] = []
    for batch in read_batches(part, encoder.names, encoder.kinds):
        rows = encoder.encode(batch)
        kept = bad.find(rows, part, count)
        excluded.append(count + np.flatnonzero(~kept))
        if rows.sample_weight is not None:
            weights.append(np.where(kept, rows.sample_weight, 0.0))
        good = rows if kept.all() else rows.take(kept)
        moments = moments.merge(moments_of(np.hstack([good.x, good.y]), good.sample_weight))
        reservoir.add(good, index, count + np.flatnonzero(kept), draw)
        count += len(kept)
    blocks = None
    if encoder.weight is not None:
        edges = np.arange(0, max(count, 1), BLOCK_ROWS)
        blocks = np.add.reduceat(np.concatenate(weights), edges) if count else np.zeros(0)
    return KnownPart(part, count, np.concatenate([*excluded, np.zeros(0, np.int64)]), blocks), moments


def _make_encoder(
    dataset: ds.Dataset, parts: Sequence[Part], columns: TableColumns, impute: str | None, group: Group
) -> Encoder:
    names = dataset.schema.names
    special = [*columns.targets, *(name for name in (columns.weight, columns.noise) if name is not None)]
    for name in special:
        if names.count(name) != 1:
            raise InvalidInputError(f"The table has no column {name!r}, or several; choose from {names}.")
    features = [name for name in names if name not in special]
    if len(set(special)) < len(special) or not features:
        raise InvalidInputError(f"A table needs different columns for {special} and at least one beside; got {names}.")
    if impute not in (None, "mean", "drop"):
        raise InvalidInputError(
            f"The rule {impute!r} for missing values needs whole columns in memory, and this table is read in parts; "
            "use 'mean' or 'drop'."
        )
    kinds = column_kinds(dataset, [*features, *special])
    for name in features:
        if kinds[name] == "null":
            raise InvalidInputError(f"Column {name!r} holds no values at all; leave it out.")
    for name in special:
        if kinds[name] not in ("numeric", "boolean"):
            raise InvalidTypeError(f"Column {name!r} must hold numbers; it holds text, or nothing at all.")
    text = [name for name in features if kinds[name] == "categorical"]
    counts = _count_texts(parts, text, kinds, group)
    categories = {name: _text_column(name, found, fills=impute == "mean") for name, found in counts.items()}
    encoded = tuple(categories.get(name) or Column(name, kinds[name]) for name in features)  # type: ignore[arg-type]
    return Encoder(encoded, columns.targets, columns.weight, columns.noise, kinds)


def _count_texts(
    parts: Sequence[Part], names: Sequence[str], kinds: dict[str, str], group: Group
) -> dict[str, Counter[str]]:
    """How often each text stands in each of some columns, of all processes' parts."""
    if not names:
        return {}
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for part in parts:
        for batch in read_batches(part, names, kinds):
            for name in names:
                codes, labels = column_labels(batch.column(name))
                times = np.bincount(codes[codes >= 0]).tolist()
                _count(name, counts[name], zip(labels, times, strict=False))
    total: dict[str, Counter[str]] = {name: Counter() for name in names}
    for text in gather_text(group, json.dumps(counts)):
        for name, found in json.loads(text).items():
            _count(name, total[name], found.items())
    return total


def _count(name: str, counts: Counter[str], found: Iterable[tuple[str, int]]) -> None:
    for label, times in found:
        counts[label] += times
    if len(counts) > MAX_CATEGORIES:
        raise InvalidInputError(
            f"Column {name!r} holds more than {MAX_CATEGORIES} different texts, such as {next(iter(counts))!r}, but "
            "text is encoded as categories, at most so many; leave it out if it only names the rows, convert it if it "
            "spells numbers, or group its values into fewer."
        )


def _text_column(name: str, counts: Counter[str], *, fills: bool) -> Column:
    if not counts:
        raise InvalidInputError(f"Column {name!r} holds no values at all; leave it out.")
    categories = sorted(counts)
    kind_of(pd.Series(categories, name=name, dtype=object))  # refuses text that spells dates
    fill = max(categories, key=counts.__getitem__) if fills else None
    return Column(name, "categorical", tuple(categories), fill)


def _filled(survey: Survey) -> Survey:
    """With the means of what is there in the place of what is missing."""
    moments, columns, position = survey.moments, [], 0
    total = float(moments.weight[-1])  # no row without target counts
    for column in survey.encoder.columns:
        if column.kind != "categorical":
            if moments.weight[position] == 0.0:
                raise InvalidInputError(f"Column {column.name!r} holds no values at all; leave it out.")
            mean = float(moments.means[position])
            fill: float | bool = mean > 0.5 if column.kind == "boolean" else mean
            moments = moments.filled(position, float(fill), total - float(moments.weight[position]))
            column = replace(column, fill=fill)
        columns.append(column)
        position += len(column.feature_names)
    encoder = replace(survey.encoder, columns=tuple(columns))
    fills = np.concatenate([np.full(len(c.feature_names), 0.0 if isinstance(c.fill, str) else c.fill) for c in columns])
    return replace(survey, encoder=encoder, moments=moments, reservoir=survey.reservoir.filled(fills))
