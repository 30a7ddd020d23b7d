"""Tables to fit: what `read_table` returns, and what one look through the rows tells.

The rows are parsed once and put into numbers, one per cell (:mod:`cvgp.tables.stream`). Passes over these numbers then
learn what each column becomes: indicators or effects of levels, parts of dates, fills and marks of missing cells.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import torch

from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import Moments, Scaling, bulk_of, learn_scaling, learn_warped_scaling, moments_of, no_moments
from cvgp.data.transforms import InputWarp
from cvgp.errors import CVGPError, CVGPWarning, InvalidInputError, InvalidTypeError
from cvgp.parallel.group import ALONE, Group, gather_text
from cvgp.tables import stream
from cvgp.tables.apply import SchemaReader
from cvgp.tables.cells import check_categories, days, labels, look_like_dates, numbers, spells_number, truths
from cvgp.tables.columns import (
    MAX_CATEGORIES,
    MAX_INDICATORS,
    MAX_LEVELS,
    TYPICAL,
    Column,
    Impute,
    Schema,
    check_rule,
    varying_parts,
)
from cvgp.tables.encode import UNKNOWN
from cvgp.tables.formats import Reading
from cvgp.tables.levels import learn_levels
from cvgp.tables.read import Opened, open_table
from cvgp.tables.select import (
    LEAST_ROWS,
    BadRows,
    ColumnChoice,
    OnBadRows,
    is_id_name,
    left_out_line,
    names_rows,
    numbers_rows,
    raise_unusable,
)
from cvgp.tables.stream import SAMPLE_ROWS, NumberedRows, Store, StoredSource

Dates = Literal["features", "refuse"]
ENOUGH_CELLS = 10_000
"""After this many cells it is clear whether a column with many texts has a different one in nearly every row."""
MOST_TEXTS = 1_000_000
"""Different texts of a column that are counted before it is refused."""
NAMES_ROWS, CONSTANT, NUMBERS_ROWS = (
    "a different text in nearly every row",
    "the same value in all rows",
    "numbers the rows",
)


@dataclass(frozen=True)
class Table:
    """A table and how to read it, as :func:`read_table` returns it."""

    opened: Opened = field(repr=False)
    target: str | tuple[str, ...] | None
    """The column to predict, or several; None if `fit` is told."""
    sample_weight: str | None = None
    noise_variance: str | None = None
    choice: ColumnChoice = field(default_factory=ColumnChoice)
    impute: Impute | None = None
    on_bad_rows: OnBadRows = "error"
    dates: Dates = "features"
    _learned: dict[Group, TrainingTable] = field(default_factory=dict, repr=False, compare=False)

    @property
    def names(self) -> list[str]:
        """The columns of the table."""
        return list(self.opened.names)

    @property
    def reading(self) -> Reading:
        """How its text is read."""
        return self.opened.reading

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns to predict."""
        return (self.target,) if isinstance(self.target, str) else self.target or ()

    def with_target(self, target: object, sample_weight: Any = None, noise_variance: Any = None) -> Table:
        """The same table with the columns that `fit` names."""
        chosen = _target(target) or self.target
        if chosen is None:
            raise InvalidInputError("The table has no target: name the column to predict, as in fit(table, 'y').")
        if self.target not in (None, chosen):
            raise InvalidInputError(f"read_table names the target {self.target!r}, and fit {chosen!r}; choose one.")
        given = tuple(
            own if new is None else new
            for own, new in ((self.sample_weight, sample_weight), (self.noise_variance, noise_variance))
        )
        _check_column_names(*given)
        if (chosen, *given) == (self.target, self.sample_weight, self.noise_variance):
            return self
        return replace(self, target=chosen, sample_weight=given[0], noise_variance=given[1], _learned={})

    def learn(self, group: Group = ALONE) -> TrainingTable:
        """Look through the rows once, and learn what the columns become."""
        if group not in self._learned:
            # A copy, so that the rows are freed as soon as nothing refers to this table.
            self._learned[group] = _learn(replace(self, _learned={}), group)
        return self._learned[group]

    def apply(self, schema: Schema, group: Group = ALONE) -> TrainingTable:
        """The rows as the columns of a fitted model encode them; nothing is learned."""
        small = group.world == 1 or _looks_small(self.opened)
        found = _apply(self, schema, ALONE if small else group)
        return found if found.group is group or found.fits_in_memory else _apply(self, schema, group)


def _check_column_names(*names: object) -> None:
    for name in names:
        if name is not None and not isinstance(name, str):
            raise InvalidTypeError(
                f"The sample_weight and noise_variance of a table are names of its columns; got {type(name).__name__}."
            )


def _target(given: object) -> Any:
    names: Any = (given,) if isinstance(given, str) else given
    if given is None:
        return None
    if not (isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names)):
        raise InvalidTypeError(
            "The target of a table is a column or a list of columns; got "
            f"{type(given).__name__}. Put the values into the table as a column, and name it."
        )
    return given if isinstance(given, str) else tuple(names)


def read_table(
    data: Any,
    target: str | Sequence[str] | None = None,
    *,
    sample_weight: str | None = None,
    noise_variance: str | None = None,
    sep: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    encoding: str | None = None,
    drop: str | Sequence[str] = (),
    features: str | Sequence[str] | None = None,
    always_keep: str | Sequence[str] = (),
    impute: Impute | None = None,
    on_bad_rows: OnBadRows = "error",
    dates: Dates = "features",
) -> Table:
    """Open a table for `fit`, with what you know of it; ``fit(data, "y")`` calls this with `data` and the target.

    Parameters
    ----------
    data : path, glob, folder, list of paths, pyarrow dataset, or DataFrame
        CSV and TSV (also .gz), JSON lines, Excel (``book.xlsx::sheet``), Parquet, Feather and Arrow files, tables of
        databases (``sqlite:///file::table``, ``duckdb:///file::table``), or a pandas or polars DataFrame or an Arrow
        table. Folders are searched to any depth, and ``key=value`` in a path becomes a column. A table that is too
        large to be loaded is read in parts.
    target : str or list of str, optional
        The column to predict, or several; all others are features. `fit` can name it instead.
    sample_weight : str, optional
        The column of sample weights.
    noise_variance : str, optional
        The column of known noise variances.
    sep : str, optional
        What separates the columns of text files: ``,``, ``;``, ``tab``, ``|`` or another character. This and the next
        three are inferred from the files if not given.
    decimal : str, optional
        The decimal sign of text files: ``.`` or ``,``.
    thousands : str, optional
        The sign between thousands in text files, or ``''`` for none.
    encoding : str, optional
        The encoding of text files, such as ``utf-8``, ``utf-16``, ``cp1252`` or ``latin-1``.
    drop : str or list of str, optional
        Columns to leave out.
    features : str or list of str, optional
        The only columns to use.
    always_keep : str or list of str, optional
        Columns to use even if they have one value in all rows, or only number or name the rows. Others like that are
        left out, with a warning that names them.
    impute : {"mean", "median", "drop"}, optional
        Fill missing values of features, or leave their rows out. Text, and true and false, are filled with the most
        frequent value. By default the model learns from missing values: a feature says where they are.
    on_bad_rows : {"error", "skip"}
        Whether a row without a target, or with infinity, is an error or is left out; `n_bad_rows_` counts them.
    dates : {"features", "refuse"}
        Whether columns of dates become features (their trend in days, and circles for season, weekday and hour, as far
        as these differ among rows) or are an error. Dates are read in UTC; one without a time zone is taken as it is.

    Returns
    -------
    Table
        For `CVGPRegressor.fit` and `grow`.

    Raises
    ------
    MissingFileError, FileAccessError, FileFormatError
        If the table does not exist, cannot be read or is damaged.
    InvalidInputError, InvalidTypeError
        If an option or the table cannot be used.

    Examples
    --------
    >>> import pandas as pd
    >>> from cvgp import CVGPRegressor, read_table
    >>> houses = pd.DataFrame({"area": [50.0, 80.0, 65.0], "color": ["red", "blue", "red"], "price": [1.0, 2.0, 1.4]})
    >>> read_table(houses, "price", drop="color").names
    ['area', 'color', 'price']
    >>> CVGPRegressor().fit(read_table("sales.csv", "price", sep=";", decimal=","))  # doctest: +SKIP
    """
    if isinstance(data, Table):
        raise InvalidTypeError("read_table was given what it returned; give it the path or the frame.")
    check_rule(impute)
    _check_column_names(sample_weight, noise_variance)
    for name, value, allowed in (("on_bad_rows", on_bad_rows, get_args(OnBadRows)), ("dates", dates, get_args(Dates))):
        if value not in allowed:
            raise InvalidInputError(f"{name} must be one of {allowed}; got {value!r}.")
    choice = ColumnChoice.of(drop, features, always_keep)
    opened = open_table(data, {"sep": sep, "decimal": decimal, "thousands": thousands, "encoding": encoding})
    return Table(opened, _target(target), sample_weight, noise_variance, choice, impute, on_bad_rows, dates)


@dataclass(frozen=True)
class TrainingTable:
    """The rows of a table in numbers, and the features that they become."""

    table: Table
    rows: NumberedRows
    """Those of this process."""
    moments: Moments
    """Those of the columns of x, then of y, over all rows."""
    num_rows: int
    """The rows that count, of all processes."""
    bad: BadRows
    group: Group
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why columns that could be features are not, by their names."""

    @property
    def single_output(self) -> bool:
        """Whether y has no second axis."""
        return isinstance(self.table.target, str)

    @property
    def reading(self) -> Reading:
        """How its text was read."""
        return self.table.reading

    @property
    def feature_names(self) -> list[str]:
        """The names of the columns of x."""
        return self.rows.feature_names

    @property
    def num_bytes(self) -> int:
        """The size of features and targets in float64."""
        return 8 * self.num_rows * len(self.moments.mean)

    @property
    def fits_in_memory(self) -> bool:
        """Whether the rows are loaded rather than read in blocks."""
        return self.group.world == 1 and self.num_bytes <= stream.IN_MEMORY_BYTES

    @cached_property
    def common_sample(self) -> Rows[Array]:
        """A sample of the rows of all processes, the same everywhere: all of them up to 100,000 rows."""
        return _shared(self.rows.encode(*_own_sample(self.rows, self.num_rows)), self.group)

    @property
    def scaling(self) -> Scaling:
        """The weighted means and standard deviations of all columns.

        Those of columns with outliers (:mod:`cvgp.data.scaling`) are of a sample of the rows: of all of them up to
        100,000 rows.
        """
        D, moments = len(self.feature_names), self.moments
        whole, sample = moments.scaling(D), self.common_sample
        bulk = bulk_of(sample.x, sample.sample_weight)
        reach = np.maximum(np.abs(bulk.low), np.abs(bulk.high))
        is_far = (moments.magnitude[:D] > reach) | (bulk.moved_into(sample.x) != sample.x).any(axis=0)
        in_bulk = learn_scaling(sample.x, sample.y, sample.sample_weight, bulk)
        # A column that is constant in the sample has no bulk to go by.
        is_far &= in_bulk.varies
        return whole._replace(
            x_mean=np.where(is_far, in_bulk.x_mean, whole.x_mean),
            x_scale=np.where(is_far, in_bulk.x_scale, whole.x_scale),
        )

    def warped_scaling(self, warp: InputWarp) -> Scaling:
        """The same with columns that are warped first, whose means and standard deviations are those of the sample."""
        plain = self.scaling
        if warp.name == "identity":
            return plain
        warped = learn_warped_scaling(warp, self.common_sample)
        return plain._replace(
            x_mean=np.where(warp.warped, warped.x_mean, plain.x_mean),
            x_scale=np.where(warp.warped, warped.x_scale, plain.x_scale),
            warp=warp,
        )

    @property
    def y_varies(self) -> bool:
        """Whether the rows have different outputs."""
        return bool(self.moments.scales[len(self.feature_names) :].any())

    @property
    def schema(self) -> Schema:
        """What turns another table into features."""
        target = self.table.target
        assert target is not None
        known = {*self.rows.targets, *(column.name for column in self.rows.columns)}
        unused = tuple(name for name in self.table.names if name not in known)
        dropped = self.bad.dropped
        return Schema(target, self.rows.columns, self.table.impute, dropped, self.reading, unused)

    def load(self) -> Rows[Array]:
        """All rows, in the user's units."""
        return self.rows.read(0, self.rows.store.num_rows)

    def source(self, scaling: Scaling, device: torch.device | str = "cpu") -> StoredSource:
        """The rows of this process in blocks, scaled."""
        return StoredSource(self.rows, self.moments, scaling, device)

    def describe(self) -> str:
        """Size and way of reading, in a line."""
        count = len({part.file for part in self.table.opened.parts})
        files = "1 file" if count == 1 else f"{count} files"
        columns, features = len(self.rows.columns), len(self.feature_names)
        size, limit = f"{self.num_bytes / 1e6:.0f} MB", f"{stream.IN_MEMORY_BYTES / 1e6:.0f} MB"
        how = f"loaded, {size}" if self.fits_in_memory else f"read in parts: {size} is more than {limit}"
        return f"{files}, {self.num_rows} rows, {columns} columns as {features} features ({how})"


def _looks_small(opened: Opened) -> bool:
    """Whether the table can be loaded by what its files say of their size; indicators of text may take more."""
    width = 8 * len(opened.names)
    sizes = [part.num_bytes if part.num_rows is None else width * part.num_rows for part in opened.parts]
    return sum(sizes) <= stream.IN_MEMORY_BYTES


def _learn(table: Table, group: Group) -> TrainingTable:
    """Each process of a group looks through a small table; of a larger one, each reads its own parts."""
    own = ALONE if group.world == 1 or _looks_small(table.opened) else group
    learned = _Look(table, own).learn()
    if own is not group and not learned.fits_in_memory:
        learned = _Look(table, group).learn()
    if learned.left_out and group.rank == 0:
        warnings.warn(left_out_line(learned.left_out), CVGPWarning, stacklevel=5)
    return learned


def _apply(table: Table, schema: Schema, group: Group) -> TrainingTable:
    reader = SchemaReader(
        table.opened,
        schema,
        targets=table.targets,
        sample_weight=table.sample_weight,
        noise_variance=table.noise_variance,
        on_bad_rows=table.on_bad_rows,
    )
    store = Store(len(schema.columns) + len(reader.special) + 1)
    for piece in reader.pieces(table.opened.parts[group.rank :: group.world]):
        store.append(_stored(piece.rows.take(piece.kept), piece.numbers))
    has = (table.sample_weight is not None, table.noise_variance is not None)
    rows = NumberedRows(store, schema.columns, range(len(schema.columns)), table.targets, *has)
    total = reader.bad.count_all(group, store.num_rows)
    if total == 0:
        raise InvalidInputError(f"No row of the table can be used; {reader.bad.summary() or 'it has none'}.")
    return TrainingTable(table, rows, _feature_moments(rows, group), total, reader.bad, group)


def _stored(rows: Rows[Array], row_numbers: Any) -> Array:
    extra = [values[:, None] for values in (rows.sample_weight, rows.noise_variance) if values is not None]
    return np.hstack([rows.x, rows.y, *extra, row_numbers[:, None].astype(np.float64)])


def _own_sample(rows: NumberedRows, total_rows: int) -> tuple[Rows[Array], Any]:
    """The share of this process in a common sample, in numbers."""
    found, row_numbers = rows.sample_in_numbers()
    count = -(-SAMPLE_ROWS * rows.store.num_rows // total_rows)
    chosen = np.sort(np.random.default_rng(0).permutation(len(found.x))[:count])
    return found.take(chosen), row_numbers[chosen]


def _shared(rows: Rows[Array], group: Group) -> Rows[Array]:
    return rows.map(lambda values: torch.cat(group.gather(torch.from_numpy(np.ascontiguousarray(values)))).numpy())


def _feature_moments(rows: NumberedRows, group: Group) -> Moments:
    moments = no_moments(len(rows.feature_names) + len(rows.targets))
    for block in rows.cell_blocks():
        encoded = rows.encode(*block)
        moments = moments.merge(moments_of(np.hstack([encoded.x, encoded.y]), encoded.sample_weight))
    return _merged(moments, group)


def _merged(moments: Moments, group: Group) -> Moments:
    gathered = group.gather(torch.from_numpy(np.stack(moments)))
    return reduce(Moments.merge, (Moments(*part.numpy()) for part in gathered))


class _Texts:
    """The different texts of a column, numbered as they come and counted."""

    def __init__(self, name: str, is_ordered: bool, is_asked_for: bool) -> None:
        self.name = name
        self.is_ordered, self.is_asked_for = is_ordered, is_asked_for
        self.counts: Counter[str] = Counter()
        self.numbers: dict[str, int] = {}
        self.names_rows = False

    def add(self, column: pa.Array) -> Array:
        """The numbers [n] of cells; NaN where one is missing."""
        codes, texts = labels(self.name, column)
        if self.names_rows:
            return np.where(codes < 0, np.nan, 0.0)
        if self.is_ordered and self.numbers and list(self.numbers) != texts:
            raise InvalidInputError(
                f"The ordered categories of column {self.name!r} differ between parts of the table: "
                f"{list(self.numbers)} and {texts}; give all parts the same ones, or put the positions in their place."
            )
        own = [self.numbers.setdefault(text, len(self.numbers)) for text in texts]
        for text, count in zip(texts, np.bincount(codes[codes >= 0], minlength=len(texts)).tolist(), strict=True):
            if count or self.is_ordered:
                self.counts[text] += count
        if len(self.numbers) > MAX_CATEGORIES and self.counts.total() >= ENOUGH_CELLS:
            self.settle()
        if len(self.numbers) > MOST_TEXTS:
            raise InvalidInputError(
                f"Column {self.name!r} holds more than {MOST_TEXTS} different texts, such as {texts[0]!r}, but text is "
                "encoded as categories that several rows have; group its values into fewer, or leave it out."
            )
        return np.array([*own, np.nan], dtype=np.float64)[codes]

    def settle(self) -> None:
        """Stop counting if the texts only name the rows."""
        is_free = not (self.is_ordered or self.is_asked_for)
        if is_free and names_rows(len(self.counts), self.counts.total()):
            is_numeric = 2 * sum(map(spells_number, self.counts)) > len(self.counts)
            self.names_rows = not is_numeric and not look_like_dates(self.counts)

    def share(self, group: Group) -> None:
        """Put together what the processes of a group have counted."""
        found = [json.loads(text) for text in gather_text(group, json.dumps([self.counts, self.names_rows]))]
        self.names_rows = any(own for _, own in found)
        self.counts = reduce(lambda total, own: total + Counter(own[0]), found, Counter())
        if self.is_ordered:
            self.counts = Counter({text: self.counts[text] for own, _ in found for text in own})
        self.settle()


class _Tally(NamedTuple):
    """What all rows say of a column of text or dates."""

    counts: Array
    """The weight of each category."""
    first: float
    last: float


class _Look:
    """One look through the rows of a table, and what is learned from it."""

    def __init__(self, table: Table, group: Group) -> None:
        self.table, self.group, self.opened = table, group, table.opened
        self.special = [*table.targets, *(n for n in (table.sample_weight, table.noise_variance) if n is not None)]
        self.names = self._features()
        problems: dict[str, CVGPError] = {}
        self.kinds = self.opened.kinds(self.names, problems) | self.opened.kinds(self.special)
        if set(self.kinds.values()) == {"null"} and not problems:
            raise InvalidInputError("The table holds no rows, or only empty ones; it must have at least one.")
        self._check_special()
        for name in self.names:
            if self.kinds.get(name) == "null":
                problems[name] = InvalidInputError(f"Column {name!r} holds no values at all; leave it out.")
        self.problems = problems
        self.usable = [name for name in self.names if name not in problems]
        self.texts = {
            name: _Texts(name, self.kinds[name] == "ordered", table.choice.is_asked_for(name))
            for name in self.usable
            if self.kinds[name] in ("categorical", "ordered")
        }
        self.bad = BadRows(self.opened, self.usable, self.special, table.on_bad_rows, drops=table.impute == "drop")
        self.left_out: dict[str, str] = {}

    def learn(self) -> TrainingTable:
        """Go through the rows, and learn what each column becomes."""
        rows = self._numbered(self._read())
        rows, total, moments, missing = self._counted(rows)
        tallies = self._tallies(rows)
        rows, tallies = self._without_unused(rows, tallies)
        sample = _shared(_own_sample(rows, total)[0], self.group)
        medians = self._medians(rows, sample.x, missing, total)
        impute = self.table.impute
        columns = tuple(
            _learned(column, impute, int(gaps), tally, float(mean), median, cells)
            for column, gaps, tally, mean, median, cells in zip(
                rows.columns, missing, tallies, moments.means, medians, sample.x.T, strict=False
            )
        )
        rows = replace(rows, columns=columns, fold_effects={})
        if any(column.kind == "levels" for column in columns):
            columns, effects = learn_levels(columns, rows.targets, sample, rows.cell_blocks(), self.group)
            rows = replace(rows, columns=columns, fold_effects=effects)
        if missing.any() or any(column.kind not in ("numeric", "boolean", "ordered") for column in columns):
            moments = _feature_moments(rows, self.group)  # else the numbers are the features
        return TrainingTable(self.table, rows, moments, total, self.bad, self.group, self.left_out)

    def _features(self) -> list[str]:
        names = self.table.names
        for name in self.special:
            if names.count(name) != 1:
                how = self.opened.reading
                hint = (
                    f" It was read with {how.describe()}; if that is wrong, say how (--sep, read_table(..., sep=...))."
                )
                raise InvalidInputError(
                    f"The table has no column {name!r}, or several; choose from {names}.{hint if how.sep else ''}"
                )
        features = self.table.choice.among(names, self.special)
        if len(set(self.special)) < len(self.special) or not features:
            raise InvalidInputError(
                f"A table needs different columns for {self.special} and at least one beside; got {names}."
            )
        return features

    def _check_special(self) -> None:
        for name in self.special:
            if self.opened.is_text_file and self.kinds[name] == "categorical":
                self.kinds[name] = "numeric"  # the rows that hold text are bad ones
            elif self.kinds[name] not in ("numeric", "boolean"):
                raise InvalidTypeError(f"Column {name!r} must hold numbers; it holds text, or nothing at all.")

    def _read(self) -> Store:
        """The rows that count, in numbers; texts as the numbers in which they come."""
        table, special = self.table, self.special
        store = Store(len(self.usable) + len(special) + 1)
        readers = {"numeric": numbers, "boolean": truths, "date": days}
        for part in self.opened.parts[self.group.rank :: self.group.world]:
            before = 0
            for batch in self.opened.batches(part, [*self.usable, *special], self.kinds):
                x = np.empty((len(batch), len(self.usable)))
                for position, name in enumerate(self.usable):
                    texts, cells = self.texts.get(name), batch.column(position)
                    x[:, position] = readers[self.kinds[name]](name, cells) if texts is None else texts.add(cells)
                extra = [numbers(name, batch.column(len(self.usable) + i)) for i, name in enumerate(special)]
                y = np.stack(extra[: len(table.targets)], axis=1)
                others = iter(extra[len(table.targets) :])
                weight = None if table.sample_weight is None else next(others)
                rows = Rows(x, y, weight, None if table.noise_variance is None else next(others))
                kept = self.bad.find(rows, part, before)
                store.append(_stored(rows.take(kept), part.first_row + before + np.flatnonzero(kept)))
                before += len(batch)
        return store

    def _numbered(self, store: Store) -> NumberedRows:
        """The rows with columns of which nothing is learned yet."""
        table, columns, places, codes = self.table, [], [], {}
        for texts in self.texts.values():
            texts.share(self.group)
            if texts.names_rows:
                self.left_out[texts.name] = NAMES_ROWS
        for place, name in enumerate(self.usable):
            found = self.texts.get(name)
            if name in self.left_out:
                continue
            try:
                column = self._new_column(name, self.kinds[name], found)
            except CVGPError as error:
                self.problems[name] = error
                continue
            columns.append(column)
            places.append(place)
            if found is not None:
                position = {category: float(index) for index, category in enumerate(column.categories)}
                own = list(found.numbers)
                as_days = days(name, pa.array(own, pa.string())) if column.kind == "date" else None
                codes[place] = np.array([position.get(t, UNKNOWN) for t in own]) if as_days is None else as_days
        raise_unusable({name: self.problems[name] for name in self.names if name in self.problems})
        if not columns:
            raise InvalidInputError(f"No column is left to learn from. {left_out_line(self.left_out)}")
        has = (table.sample_weight is not None, table.noise_variance is not None)
        return NumberedRows(store, tuple(columns), places, table.targets, *has, codes)

    def _new_column(self, name: str, kind: str, texts: _Texts | None) -> Column:
        counts = Counter[str]() if texts is None else texts.counts
        if kind == "date" or (kind == "categorical" and look_like_dates(counts)):
            if self.table.dates == "refuse":
                raise InvalidTypeError(
                    f"Column {name!r} holds dates, which dates='refuse' does not allow. Use their trend, season, "
                    "weekday and hour (dates='features'), put numbers in their place, such as the days since a fixed "
                    "date, or leave it out."
                )
            return Column(name, "date", parts=("trend",))
        if texts is not None:
            check_categories(name, list(counts), counts.total(), is_text_file=self.opened.is_text_file)
        if kind == "ordered":
            return Column(name, "ordered", tuple(counts))
        if kind == "categorical" and len(counts) > MAX_INDICATORS:
            frequent = sorted(counts, key=lambda text: (-counts[text], text))[:MAX_LEVELS]
            return Column(name, "levels", tuple(sorted(frequent)), dims=(name,), prior_sd=(0.0,))
        return Column(name, kind, tuple(sorted(counts)))  # type: ignore[arg-type]

    def _counted(self, rows: NumberedRows) -> tuple[NumberedRows, int, Moments, Array]:
        """The rows without those that the rule "drop" leaves out and without uninformative columns, counted."""
        if self.table.impute == "drop":
            places = list(rows.places)
            kept = rows.store.keep(lambda block: ~np.logical_or.reduce(np.isnan(block[:, places]), axis=1))
            self.bad.dropped += rows.store.num_rows - kept.num_rows
            rows = replace(rows, store=kept)
        total = self.bad.count_all(self.group, rows.store.num_rows)
        if total == 0:
            raise InvalidInputError(
                f"No row of the table is left to learn from; {self.bad.summary() or 'it has none'}."
            )
        width = len(rows.columns) + len(rows.targets)
        moments, gaps = no_moments(width), np.zeros(len(rows.columns))
        for own, _ in rows.cell_blocks():
            moments = moments.merge(moments_of(np.hstack([own.x, own.y]), own.sample_weight))
            gaps += np.isnan(own.x).sum(axis=0)
        moments = _merged(moments, self.group)
        (found,) = self.group.sum([torch.from_numpy(gaps)])
        missing = found.numpy()
        empty = [column.name for column, count in zip(rows.columns, missing, strict=True) if count == total]
        raise_unusable(
            {n: InvalidInputError(f"Column {n!r} holds no values in rows that count; leave it out.") for n in empty}
        )
        used = self._telling(rows, total, moments, missing)
        kept_columns = np.append(used, [True] * len(rows.targets))
        rows = replace(
            rows,
            columns=tuple(column for column, use in zip(rows.columns, used, strict=True) if use),
            places=[place for place, use in zip(rows.places, used, strict=True) if use],
        )
        return rows, total, Moments(*(values[kept_columns] for values in moments)), missing[used]

    def _telling(self, rows: NumberedRows, total: int, moments: Moments, missing: Array) -> Any:
        """Which columns are neither constant nor a number for each row, unless they are asked for."""
        columns = rows.columns
        is_asked = any(is_id_name(column.name) for column in columns)  # the same in all processes
        sample = _shared(_own_sample(rows, total)[0], self.group).x if is_asked else None
        for position, column in enumerate(columns) if total >= LEAST_ROWS else ():
            if self.table.choice.is_asked_for(column.name) or missing[position]:
                continue
            if moments.scales[position] == 0.0:
                self.left_out[column.name] = CONSTANT
            elif sample is not None and column.kind == "numeric" and numbers_rows(column.name, sample[:, position]):
                self.left_out[column.name] = NUMBERS_ROWS
        used = np.array([column.name not in self.left_out for column in columns])
        if not used.any():
            raise InvalidInputError(f"No column is left to learn from. {left_out_line(self.left_out)}")
        if any(not column.name.strip() for column, use in zip(columns, used, strict=True) if use):
            raise InvalidInputError(
                "A column of the table has no name in the first line; name it, or remove it if it only numbers the "
                "rows (pandas writes such a column unless told index=False)."
            )
        return used

    def _tallies(self, rows: NumberedRows) -> list[_Tally]:
        columns = rows.columns
        counts = [np.zeros(len(column.categories)) for column in columns]
        ends = np.full((len(columns), 2), -np.inf)  # the greatest of minus the cells, and of the cells
        for own, _ in rows.cell_blocks():
            weight = np.ones(len(own.x)) if own.sample_weight is None else own.sample_weight
            for position, column in enumerate(columns):
                cells = own.x[:, position]
                if column.is_text:
                    present = ~np.isnan(cells) & (cells != UNKNOWN)
                    codes = cells[present].astype(np.int64)
                    counts[position] += np.bincount(codes, weight[present], minlength=len(column.categories))
                elif column.kind == "date" and not np.isnan(cells).all():
                    ends[position] = np.maximum(ends[position], [-np.nanmin(cells), np.nanmax(cells)])
        counts = [part.numpy() for part in self.group.sum([torch.from_numpy(part) for part in counts])]
        ends = np.max([part.numpy() for part in self.group.gather(torch.from_numpy(ends)[None])], axis=(0, 1))
        return [_Tally(count, -low, high) for count, (low, high) in zip(counts, ends.tolist(), strict=True)]

    def _without_unused(self, rows: NumberedRows, tallies: list[_Tally]) -> tuple[NumberedRows, list[_Tally]]:
        """Without the categories that occur only in rows that do not count."""
        columns, kept_tallies, codes = [], [], dict(rows.codes)
        for place, column, tally in zip(rows.places, rows.columns, tallies, strict=True):
            used = tally.counts > 0.0
            if column.kind in ("categorical", "levels") and not used.all():
                kept = tuple(category for category, use in zip(column.categories, used, strict=True) if use)
                column, tally = replace(column, categories=kept), tally._replace(counts=tally.counts[used])
                renumbered = np.append(np.where(used, np.cumsum(used) - 1.0, UNKNOWN), UNKNOWN)
                codes[place] = renumbered[codes[place].astype(np.int64)]
            columns.append(column)
            kept_tallies.append(tally)
        return replace(rows, columns=tuple(columns), codes=codes), kept_tallies

    def _medians(self, rows: NumberedRows, sample: Array, missing: Array, total: int) -> list[float]:
        """Exact for rows that are loaded, and else those of the sample."""
        is_small = self.group.world == 1 and 8 * total * rows.store.width <= stream.IN_MEMORY_BYTES
        cells = np.concatenate([own.x for own, _ in rows.cell_blocks()]) if is_small and missing.any() else sample
        return [float(np.median(present)) if len(present := c[~np.isnan(c)]) else np.nan for c in cells.T]


def _learned(
    column: Column, impute: Impute | None, missing: int, tally: _Tally, mean: float, median: float, cells: Array
) -> Column:
    """A column with its fill, its mark and its distribution.

    Without a rule, a column with missing cells gets a feature that says so, beside its median (the middle of each
    circle of dates); among categories and levels, missing is one of its own. With the rules `mean` and `median` numbers
    and dates get their column's mean or median, and others the most frequent value.
    """
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
    present = cells[np.isfinite(cells)]
    levels = (np.arange(TYPICAL) + 0.5) / TYPICAL
    typical = tuple(np.quantile(present, levels).tolist()) if len(present) else ()
    if column.kind == "categorical":
        typical = (*tally.counts.tolist(), *([float(missing)] if marks else []))
    elif column.kind == "levels":
        typical = ()
    elif column.kind == "date":
        typical = (tally.first, *typical[1:-1], tally.last)  # the range of all dates
        parts = varying_parts(np.append(cells[~np.isnan(cells)], [tally.first, tally.last]))
        column = replace(column, parts=parts)
    return replace(column, fill=fill, n_missing=missing, marks_missing=marks, typical=typical)
