"""The first pass over a table in files: its columns, its bad rows, its moments and a sample.

Text is read once before, by itself, since its categories must be known to count its indicators. The processes of a
group look at different parts each, and put together what they found.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import pyarrow.dataset as ds
import torch
from numpy.typing import NDArray

from cvgp.data.rows import Array
from cvgp.data.scaling import Moments, moments_of, no_moments
from cvgp.data.schema import Column, check_rule, feature_slices
from cvgp.data.tables.arrow_cells import check_categories
from cvgp.data.tables.bad_rows import BadRows, OnBadRows
from cvgp.data.tables.blocks import BLOCK_ROWS, Encoder, KnownPart
from cvgp.data.tables.choice import ColumnChoice, left_out_line, raise_unusable
from cvgp.data.tables.notes import notes_of
from cvgp.data.tables.reader import Part, column_kinds, list_parts, read_batches
from cvgp.data.tables.reservoir import Reservoir
from cvgp.data.tables.texts import NAMES_ROWS, NUMBERS, count_texts
from cvgp.errors import CVGPError, InvalidInputError, InvalidTypeError
from cvgp.parallel.group import ALONE, Group


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
    """Of the columns of x, then of y, of all rows."""
    reservoir: Reservoir
    """Some rows of this process's parts."""
    bad: BadRows
    """What was found in this process's parts, with the numbers of all."""
    total_rows: int
    """The rows that count, in the parts of all processes."""
    total_files: int
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
    group: Group = ALONE,
) -> Survey:
    """Look at every row once.

    Parameters
    ----------
    columns
        The targets, and the columns of sample weights and of known noise variances if there are any.
    impute
        What to do about missing values of features: fill them with the column's ``mean`` or ``median`` (true or false,
        and text, with what is most frequent), or ``drop`` the rows. See :func:`~cvgp.data.tables.filling.fill_gaps`
        for what fills them.
    on_bad_rows
        Whether rows that are not finite (or, without a rule, not complete) are an ``error`` or are left out: ``skip``.
    group
        The processes among which the parts of the table are dealt out.
    """
    every_part = list_parts(dataset)
    parts = every_part[group.rank :: group.world]
    encoder, left_out = _make_encoder(dataset, parts, columns, impute, group)
    bad = BadRows(encoder, impute, on_bad_rows)
    reservoir = Reservoir(encoder.no_rows())
    looks = [_survey_part(part, index, encoder, bad, reservoir) for index, part in enumerate(parts)]
    known = tuple(found for found, _ in looks)
    mine = reduce(Moments.merge, (in_part for _, in_part in looks), no_moments(encoder.num_columns))
    gathered = group.gather(torch.from_numpy(np.stack(mine)))
    moments = reduce(Moments.merge, (Moments(*part.numpy()) for part in gathered))
    rows = bad.count_all(group, sum(found.num_rows - len(found.excluded) for found in known))
    if rows == 0:
        raise InvalidInputError(f"No row of the table is left to learn from; {bad.summary() or 'it has none'}.")
    survey = Survey(encoder, known, moments, reservoir, bad, rows, len({part.file for part in every_part}), left_out)
    return _without_unused(survey)


def _survey_part(
    part: Part, index: int, encoder: Encoder, bad: BadRows, reservoir: Reservoir
) -> tuple[KnownPart, Moments]:
    moments = no_moments(encoder.num_columns)
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
) -> tuple[Encoder, dict[str, str]]:
    """What reads the rows, and why columns are left out of it."""
    check_rule(impute)
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
    text = [name for name in features if kinds.get(name) == "categorical"]
    counts, fates = count_texts(parts, text, kinds, columns.choice, group, is_text_file=is_text_file)
    kinds |= dict.fromkeys([name for name, fate in fates.items() if fate == NUMBERS], "numeric")
    left_out = {name: fate for name, fate in fates.items() if fate == NAMES_ROWS}
    problems |= {name: InvalidInputError(fate) for name, fate in fates.items() if fate not in (NUMBERS, NAMES_ROWS)}
    for name, found in counts.items():
        try:
            check_categories(name, list(found), sum(found.values()))
        except CVGPError as error:
            problems[name] = error
    raise_unusable({name: problems[name] for name in features if name in problems})
    used = [name for name in features if name not in left_out]
    if not used:
        raise InvalidInputError(f"No column is left to learn from. {left_out_line(left_out)}")
    encoded = tuple(Column(name, kinds[name], tuple(sorted(counts.get(name, ())))) for name in used)  # type: ignore[arg-type]
    return Encoder(encoded, columns.targets, columns.weight, columns.noise, kinds), left_out


def _without_unused(survey: Survey) -> Survey:
    """Without the categories that stand only in rows that do not count."""
    names = survey.encoder.feature_names
    text = {name for c in survey.encoder.columns if c.kind == "categorical" for name in c.feature_names}
    is_used = np.array([name not in text or survey.moments.mean[d] > 0.0 for d, name in enumerate(names)])
    if is_used.all():
        return survey
    columns = []
    for column, own in zip(survey.encoder.columns, feature_slices(survey.encoder.columns), strict=True):
        used = is_used[own]
        if not used.any():
            raise InvalidInputError(f"Column {column.name!r} holds no values in rows that count; leave it out.")
        kept = tuple(category for category, use in zip(column.categories, used, strict=False) if use)
        columns.append(replace(column, categories=kept))
    return with_features(survey, columns, is_used)


def with_features(survey: Survey, columns: Sequence[Column], is_used: NDArray[np.bool_]) -> Survey:
    """With some of the features only, and the columns that these stand for."""
    moments = Moments(*(values[np.append(is_used, [True] * len(survey.encoder.targets))] for values in survey.moments))
    reservoir = survey.reservoir.with_features(lambda x: x[:, is_used])
    return replace(
        survey, encoder=replace(survey.encoder, columns=tuple(columns)), moments=moments, reservoir=reservoir
    )
