"""The first pass over a table in files: its columns, its bad rows, its moments and a sample.

Text is read once before, by itself, since its categories must be known to count its indicators. The processes of a
group look at different parts each, and put together what they found.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Literal, NamedTuple, get_args

import numpy as np
import pyarrow.dataset as ds
import torch
from numpy.typing import NDArray

from cvgp.data.columns import MAX_LEVELS, Column
from cvgp.data.rows import Array
from cvgp.data.scaling import Moments, moments_of, no_moments
from cvgp.data.schema import check_rule
from cvgp.data.tables.arrow_cells import MAX_INDICATORS, check_categories, look_like_dates, refuse_dates
from cvgp.data.tables.bad_rows import BadRows, OnBadRows
from cvgp.data.tables.blocks import BLOCK_ROWS, Encoder, KnownPart
from cvgp.data.tables.choice import ColumnChoice, left_out_line, raise_unusable
from cvgp.data.tables.notes import notes_of
from cvgp.data.tables.reader import Part, column_kinds, list_parts, read_batches
from cvgp.data.tables.reservoir import Reservoir
from cvgp.data.tables.texts import NAMES_ROWS, NUMBERS, count_texts
from cvgp.errors import CVGPError, InvalidInputError, InvalidTypeError
from cvgp.parallel.group import ALONE, Group

Dates = Literal["refuse", "features"]


class TableColumns(NamedTuple):
    """Which columns of a table are what; those that are not named are features, unless the choice says otherwise."""

    targets: tuple[str, ...]
    weight: str | None = None
    noise: str | None = None
    choice: ColumnChoice = ColumnChoice()


@dataclass(frozen=True)
class Survey:
    """What a table was found to be."""

    encoder: Encoder
    parts: tuple[KnownPart, ...]
    """Those of this process."""
    moments: Moments
    """Of the columns of x, then of y, of all rows; before the columns are learned, of one number per cell."""
    reservoir: Reservoir
    """Some rows of this process's parts."""
    bad: BadRows
    """What was found in this process's parts, with the numbers of all."""
    total_rows: int
    """The rows that count, in the parts of all processes."""
    total_files: int
    missing: NDArray[np.int64]
    """How many cells of each column are missing in the rows that count, of all processes."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Why columns that could be features are none, by their names."""

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
    dates: Dates = "refuse",
    group: Group = ALONE,
) -> Survey:
    """Look at every row once, in one number per cell (:mod:`cvgp.data.cell_features`).

    Parameters
    ----------
    columns
        The targets, and the columns of sample weights and of known noise variances if there are any.
    impute
        What to do about missing values of features: learn from them (None), fill them with the column's ``mean`` or
        ``median`` (true or false, and text, with what is most frequent), or ``drop`` the rows. See
        :func:`~cvgp.data.tables.learned_columns.learn_columns` for what becomes of them.
    on_bad_rows
        Whether rows that are not finite, or have no target, are an ``error`` or are left out: ``skip``.
    dates
        Whether columns of dates are an error (``refuse``) or become ``features``.
    group
        The processes among which the parts of the table are dealt out.
    """
    every_part = list_parts(dataset)
    parts = every_part[group.rank :: group.world]
    check_rule(impute)
    encoder, left_out = _make_encoder(dataset, parts, columns, dates, group)
    bad = BadRows(encoder, impute, on_bad_rows)
    reservoir = Reservoir(encoder.no_rows())
    looks = [_survey_part(part, index, encoder, bad, reservoir) for index, part in enumerate(parts)]
    known = tuple(found for found, _, _ in looks)
    num_columns = len(encoder.columns) + len(encoder.targets)
    mine = reduce(Moments.merge, (in_part for _, in_part, _ in looks), no_moments(num_columns))
    gathered = group.gather(torch.from_numpy(np.stack(mine)))
    moments = reduce(Moments.merge, (Moments(*part.numpy()) for part in gathered))
    rows = bad.count_all(group, sum(found.num_rows - len(found.excluded) for found in known))
    if rows == 0:
        raise InvalidInputError(f"No row of the table is left to learn from; {bad.summary() or 'it has none'}.")
    (missing,) = group.sum([torch.from_numpy(sum((gaps for *_, gaps in looks), np.zeros(len(encoder.columns))))])
    gaps = missing.numpy().astype(np.int64)
    empty = [column.name for column, count in zip(encoder.columns, gaps, strict=True) if count == rows]
    raise_unusable(
        {n: InvalidInputError(f"Column {n!r} holds no values in rows that count; leave it out.") for n in empty}
    )
    num_files = len({part.file for part in every_part})
    return Survey(encoder, known, moments, reservoir, bad, rows, num_files, gaps, left_out)


def _survey_part(
    part: Part, index: int, encoder: Encoder, bad: BadRows, reservoir: Reservoir
) -> tuple[KnownPart, Moments, Array]:
    moments = no_moments(len(encoder.columns) + len(encoder.targets))
    missing = np.zeros(len(encoder.columns))
    draw = np.random.default_rng([20240613, index])
    count = 0
    excluded: list[NDArray[np.int64]] = []
    weights: list[Array] = []
    for batch in read_batches(part, encoder.names, encoder.kinds):
        rows = encoder.numbers(batch)
        kept = bad.find(rows, part, count)
        excluded.append(count + np.flatnonzero(~kept))
        if rows.sample_weight is not None:
            weights.append(np.where(kept, rows.sample_weight, 0.0))
        good = rows if kept.all() else rows.take(kept)
        moments = moments.merge(moments_of(np.hstack([good.x, good.y]), good.sample_weight))
        missing += np.isnan(good.x).sum(axis=0)
        reservoir.add(good, index, count + np.flatnonzero(kept), draw)
        count += len(kept)
    blocks = None
    if encoder.weight is not None:
        edges = np.arange(0, max(count, 1), BLOCK_ROWS)
        blocks = np.add.reduceat(np.concatenate(weights), edges) if count else np.zeros(0)
    return KnownPart(part, count, np.concatenate([*excluded, np.zeros(0, np.int64)]), blocks), moments, missing


def _make_encoder(
    dataset: ds.Dataset, parts: Sequence[Part], columns: TableColumns, dates: Dates, group: Group
) -> tuple[Encoder, dict[str, str]]:
    """What reads the rows, and why columns are left out of it."""
    if dates not in get_args(Dates):
        raise InvalidInputError(f"dates must be one of {get_args(Dates)}; got {dates!r}.")
    names = dataset.schema.names
    special = [*columns.targets, *(name for name in (columns.weight, columns.noise) if name is not None)]
    for name in special:
        if names.count(name) != 1:
            how = notes_of(dataset).reading
            hint = f" It was read with {how.describe()}; if that is wrong, say how (--sep, csv={{'sep': ...}})."
            raise InvalidInputError(
                f"The table has no column {name!r}, or several; choose from {names}.{hint if how.sep else ''}"
            )
    features = columns.choice.among(names, special)
    if len(set(special)) < len(special) or not features:
        raise InvalidInputError(f"A table needs different columns for {special} and at least one beside; got {names}.")
    problems: dict[str, CVGPError] = {}
    kinds = column_kinds(dataset, features, problems) | column_kinds(dataset, special)
    if set(kinds.values()) == {"null"} and not problems:
        raise InvalidInputError("The table holds no rows, or only empty ones; it must have at least one.")
    for name in features:
        if kinds.get(name) == "null":
            problems[name] = InvalidInputError(f"Column {name!r} holds no values at all; leave it out.")
    is_text_file = isinstance(getattr(dataset, "format", None), ds.CsvFileFormat)
    for name in special:
        if is_text_file and kinds[name] == "categorical":
            kinds[name] = "numeric"  # the rows that hold text are bad ones
        if kinds[name] not in ("numeric", "boolean"):
            raise InvalidTypeError(f"Column {name!r} must hold numbers; it holds text, or nothing at all.")
    text = [name for name in features if kinds.get(name) in ("categorical", "ordered")]
    counts, fates = count_texts(parts, text, kinds, columns.choice, group, is_text_file=is_text_file)
    kinds |= dict.fromkeys([name for name, fate in fates.items() if fate == NUMBERS], "numeric")
    left_out = {name: fate for name, fate in fates.items() if fate == NAMES_ROWS}
    problems |= {name: InvalidInputError(fate) for name, fate in fates.items() if fate not in (NUMBERS, NAMES_ROWS)}
    kinds |= {name: "date" for name, found in counts.items() if look_like_dates(found)}
    for name in features:
        try:
            if kinds.get(name) == "date" and dates == "refuse":
                refuse_dates(name)
            elif name in counts and kinds[name] != "date":
                check_categories(name, list(counts[name]), counts[name].total(), is_text_file=is_text_file)
        except CVGPError as error:
            problems[name] = error
    raise_unusable({name: problems[name] for name in features if name in problems})
    used = [name for name in features if name not in left_out]
    if not used:
        raise InvalidInputError(f"No column is left to learn from. {left_out_line(left_out)}")
    encoded = tuple(_new_column(name, kinds[name], counts.get(name, Counter())) for name in used)
    return Encoder(encoded, columns.targets, columns.weight, columns.noise, kinds), left_out


def _new_column(name: str, kind: str, counts: Counter[str]) -> Column:
    """A column of which nothing is learned yet."""
    if kind == "date":
        return Column(name, "date", parts=("trend",))
    if kind == "ordered":
        return Column(name, "ordered", tuple(counts))
    if kind == "categorical" and len(counts) > MAX_INDICATORS:
        frequent = sorted(counts, key=lambda text: (-counts[text], text))[:MAX_LEVELS]
        return Column(name, "levels", tuple(sorted(frequent)), dims=(name,), prior_sd=(0.0,))
    return Column(name, kind, tuple(sorted(counts)))  # type: ignore[arg-type]


def with_columns(survey: Survey, is_used: NDArray[np.bool_]) -> Survey:
    """With some of the columns only, before they are learned: each of them is one number."""
    columns = tuple(column for column, use in zip(survey.encoder.columns, is_used, strict=True) if use)
    moments = Moments(*(values[np.append(is_used, [True] * len(survey.encoder.targets))] for values in survey.moments))
    return replace(
        survey,
        encoder=replace(survey.encoder, columns=columns),
        moments=moments,
        reservoir=survey.reservoir.with_features(lambda x: x[:, is_used]),
        missing=survey.missing[is_used],
    )
