"""Tables to fit: what `read_table` returns, and what passes over the rows in numbers learn about each column."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from itertools import compress
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from cvgp.data.rows import Array, Rows, draw_weight
from cvgp.data.scaling import Moments, Scaling, bulk_of, learn_scaling, learn_warped_scaling, moments_of, no_moments
from cvgp.data.transforms import NO_WARP, InputWarp
from cvgp.errors import CVGPError, CVGPWarning, InvalidInputError, InvalidTypeError
from cvgp.parallel.group import ALONE, Group, gather_text
from cvgp.tables import stream
from cvgp.tables.apply import BadRows, OnBadRows, RowReader, names_to_choose, schema_reader
from cvgp.tables.cells import READERS, check_categories, days, labels, look_like_dates, spells_number
from cvgp.tables.columns import (
    MAX_CATEGORIES,
    MAX_INDICATORS,
    MAX_LEVELS,
    PLACE,
    TYPICAL,
    Column,
    Extra,
    Impute,
    Reading,
    Schema,
    check_rule,
    feature_slices,
    named,
    varying_parts,
)
from cvgp.tables.encode import UNKNOWN
from cvgp.tables.levels import learn_levels
from cvgp.tables.read import Opened, open_table
from cvgp.tables.stream import SAMPLE_ROWS, GroupSizes, Numbered, NumberedRows, Store, StoredSource

Dates = Literal["auto", "season", "trend", "drop"]
ENOUGH_CELLS = 10_000  # needed to tell whether a column has a different text in nearly every row
PARTS_AT_ONCE = 256  # in which groups are counted before these are put together
MOST_TEXTS = 1_000_000  # different texts of a column that are counted before it is refused
NEARLY_EVERY = 0.95  # the share of a column's cells that hold different texts, where these name the rows
EMPTY, CONSTANT = "no values", "the same value in all rows"  # reasons why a column is left out
LEAST_ROWS = 20  # with fewer rows, values are all different, or all the same, by chance
_ID_NAME = re.compile(
    r"#|(unnamed(:? ?\d+)?|index|idx|id|uuid|guid|key|nr|no|row|rownames?|level_0)"
    r"|row[ _.-]?(id|nr|no|num|number|index|name)|(.*[ _.-])(id|uuid|guid|index|idx)|record[ _.-]?(id|nr|no|number)",
    re.IGNORECASE,
)
_CAMEL_ID = re.compile(r".*[a-z](Id|ID)")


@dataclass(frozen=True)
class Table:
    """A table and how to read it, as :func:`read_table` returns it."""

    opened: Opened = field(repr=False)
    target: str | tuple[str, ...] | None = None
    sample_weight: str | None = None
    noise_variance: str | None = None
    groups: str | None = None
    exposure: str | None = None
    drop: tuple[str, ...] = ()
    features: tuple[str, ...] | None = None
    always_keep: tuple[str, ...] = ()
    impute: Impute | None = None
    on_bad_rows: OnBadRows = "error"
    dates: Dates = "auto"
    geo: Sequence[str] | None = None
    periods: Mapping[str, float] | None = None
    time: str | None = None
    label: str | None = None  # the column of classes, whose indicators are the targets
    classes: tuple[Any, ...] = ()
    least_rows: int = 1  # with a text, or else it is one of those that are not told apart
    _learned: dict[Group, TrainingTable] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in self.extra:
            if name is not None and not isinstance(name, str):
                raise InvalidTypeError(
                    "The sample_weight, noise_variance, groups, exposure and time of a table are names of its columns; "
                    f"got {type(name).__name__}."
                )
        if self.geo is not None and (len(_names("geo", self.geo)) != 2 or self.geo[0] == self.geo[1]):
            raise InvalidInputError(f"geo names two columns, the latitude and the longitude; got {self.geo!r}.")
        for name, period in (self.periods or {}).items():
            if isinstance(period, bool) or not isinstance(period, int | float) or not 0.0 < period < np.inf:
                raise InvalidInputError(f"The period of column {name!r} must be a number above 0; got {period!r}.")
        if self.groups is not None and self.time is not None:
            raise InvalidInputError("Rows are judged by groups or by time; give one of the two.")
        check_rule(self.impute)
        for option, allowed in (("on_bad_rows", get_args(OnBadRows)), ("dates", get_args(Dates))):
            if getattr(self, option) not in allowed:
                raise InvalidInputError(f"{option} must be one of {allowed}; got {getattr(self, option)!r}.")

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

    @property
    def special(self) -> list[str]:
        """The targets, weights, noise, groups, exposures and times; all but the times are not features."""
        return [*self.targets, *(name for name in self.extra if name is not None)]

    @property
    def extra(self) -> Extra:
        """The columns of weights, noise, groups, exposures and times."""
        return self.sample_weight, self.noise_variance, self.groups, self.exposure, self.time

    @property
    def encodings(self) -> dict[str, str]:
        """The kinds of columns that are named as places or as periods."""
        return dict.fromkeys(self.periods or (), "cyclic") | dict(zip(self.geo or (), PLACE, strict=False))

    def with_target(self, target: object, **columns: Any) -> Table:
        """The same table with the columns that `fit` names."""
        chosen = _target(target) or self.target
        if chosen is None:
            raise InvalidInputError("The table has no target: name the column to predict, as in fit(table, 'y').")
        if self.target not in (None, chosen):
            raise InvalidInputError(f"read_table names the target {self.target!r}, and fit {chosen!r}; choose one.")
        known = {name: value for name, value in columns.items() if value is not None}
        found = replace(self, target=chosen, _learned={}, **known)
        return self if found == self else found

    def learn(self, group: Group = ALONE) -> TrainingTable:
        """Look through the rows once, and learn what the columns become."""
        if group not in self._learned:
            # A copy, so that the rows are freed as soon as nothing refers to this table.
            found = replace(self, _learned={})._shared_out(lambda table, own: _Learner(table, own).learn(), group)
            if found.left_out and group.rank == 0:
                warnings.warn(_left_out_line(found.left_out), CVGPWarning, stacklevel=4)
            self._learned[group] = found
        return self._learned[group]

    def apply(self, schema: Schema, group: Group = ALONE) -> TrainingTable:
        """The rows as the columns of a fitted model encode them; nothing is learned."""
        return self._shared_out(lambda table, own: _applied(table, schema, own), group)

    def _shared_out(self, read: Callable[[Table, Group], TrainingTable], group: Group) -> TrainingTable:
        """Each process of a group reads a small table whole; of a larger one, each reads its own parts."""
        width = 8 * len(self.opened.names)
        sizes = [part.num_bytes if part.num_rows is None else width * part.num_rows for part in self.opened.parts]
        if group.world > 1 and sum(sizes) <= stream.IN_MEMORY_BYTES:
            found = read(self, ALONE)
            if found.fits_in_memory:  # indicators of text may take more
                return found
        return read(self, group)

    def feature_columns(self) -> list[str]:
        """The columns that become features, as far as the options tell."""
        names, special, geo = self.names, self.special, self.geo or ()
        wanted = (*(self.features or ()), *self.always_keep, *self.encodings)
        for name in special:
            if names.count(name) != 1:
                how = f" It was read with {self.reading.describe()}; if that is wrong, give sep (--sep)."
                hint = how if self.reading.sep else ""
                raise InvalidInputError(
                    f"The table has no column {name!r}, or several; {names_to_choose(name, names)}{hint}"
                )
        for option in ("drop", "features", "always_keep", "geo", "periods"):
            for name in getattr(self, option) or ():
                if name not in names:
                    raise InvalidInputError(
                        f"The table has no column {name!r}, which {option} names; {names_to_choose(name, names)}"
                    )
        apart = [*self.targets, *(name for name in self.extra[:-1] if name is not None)]
        if both := [name for name in wanted if name in apart]:
            raise InvalidInputError(
                f"features, always_keep, geo or periods names {both}, which is the target or a column of weights, "
                "noise, groups or exposures."
            )
        if both := [name for name in self.drop if name in wanted]:
            raise InvalidInputError(f"drop leaves out {both}, which is asked for as well; choose.")
        among = names if self.features is None else wanted
        found = [name for name in names if name in among and name not in (*apart, *self.drop, *geo)] + list(geo)
        if len(set(special)) < len(special) or not found:
            raise InvalidInputError(
                f"A table needs different columns for {special} and at least one beside; got {names}."
            )
        return found


def _target(given: object) -> str | tuple[str, ...] | None:
    if given is None or isinstance(given, str):
        return given
    if not (isinstance(given, list | tuple) and given and all(isinstance(name, str) for name in given)):
        raise InvalidTypeError(
            "The target of a table is a column or a list of columns; got "
            f"{type(given).__name__}. Put the values into the table as a column, and name it."
        )
    return tuple(given)


def _names(option: str, given: object) -> tuple[str, ...]:
    several = (given,) if isinstance(given, str) else given
    if not isinstance(several, list | tuple) or not all(isinstance(name, str) for name in several):
        raise InvalidTypeError(f"{option} is a list of names of columns; got {given!r}.")
    return tuple(several)


def read_table(
    data: Any,
    target: str | Sequence[str] | None = None,
    *,
    sample_weight: str | None = None,
    noise_variance: str | None = None,
    groups: str | None = None,
    exposure: str | None = None,
    sep: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    encoding: str | None = None,
    drop: str | Sequence[str] = (),
    features: str | Sequence[str] | None = None,
    always_keep: str | Sequence[str] = (),
    impute: Impute | None = None,
    on_bad_rows: OnBadRows = "error",
    dates: Dates = "auto",
    geo: Sequence[str] | None = None,
    periods: Mapping[str, float] | None = None,
    time: str | None = None,
) -> Table:
    """Open a table for `fit`, with what you know of it; ``fit(data, "y")`` calls this with `data` and the target.

    Parameters
    ----------
    data : path, glob, folder, list of paths, pyarrow dataset, or DataFrame
        CSV and TSV (also .gz), JSON lines, Excel (``book.xlsx::sheet``), Parquet, Feather and Arrow files, or a frame
        in memory. Folders are searched to any depth, and ``key=value`` in a path becomes a column.
    target : str or list of str, optional
        The column to predict, or several; all others are features. `fit` can name it instead.
    sample_weight, noise_variance : str, optional
        The columns of sample weights and of known noise variances.
    groups : str, optional
        The column of the person, day or site of each row, if predictions are for new ones. It is not a feature.
    exposure : str, optional
        For counts, the column of the time, area or number at risk of each row. It is not a feature.
    sep, decimal, thousands, encoding : str, optional
        How text files are written, such as ``";"``, ``","``, ``"."`` and ``"cp1252"``; inferred from them by default.
    drop, features : str or list of str, optional
        Columns to leave out, or the only columns to use.
    always_keep : str or list of str, optional
        Columns to use even if they are constant, or only number or name the rows; others are left out with a warning.
    impute : {"mean", "median", "drop"}, optional
        Fill missing values (text, and true and false, with the most frequent one), or leave their rows out. By default
        the model learns from missing values: a feature says where they are.
    on_bad_rows : {"error", "skip"}
        Whether a row with infinity, or with text for a number, is an error or is left out. Rows without a target are
        left out in any case. `n_bad_rows_` counts all of them.
    dates : {"auto", "season", "trend", "drop"}
        The features that dates, in UTC, become: season, weekday and hour, as far as these vary, and with ``"trend"``
        also the day itself. ``"auto"`` keeps the trend if it improves predictions of the latest rows from the earlier
        ones. ``"drop"`` leaves dates out.
    geo : sequence of str, optional
        The columns of latitude and longitude, in degrees: distances between rows are then those on the sphere.
    periods : mapping of str to float, optional
        The periods of columns of numbers that go round, such as ``{"hour": 24}``.
    time : str, optional
        The column of dates or numbers by which the end of the series is held out in every choice. It stays a feature.

    Returns
    -------
    Table
        For `CVGPRegressor.fit` and `grow`.

    Raises
    ------
    MissingFileError, FileAccessError, FileFormatError, InvalidInputError, InvalidTypeError
        If the table is missing, cannot be read or is damaged, or if it or an option cannot be used.

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
    chosen = None if features is None else _names("features", features)
    if not (periods is None or isinstance(periods, Mapping)):
        raise InvalidTypeError(f"periods maps columns to numbers, as in {{'hour': 24}}; got {periods!r}.")
    choice: tuple[Any, ...] = (_names("drop", drop), chosen, _names("always_keep", always_keep), impute, on_bad_rows)
    choice = (*choice, dates, geo, periods, time)
    opened = open_table(data, {"sep": sep, "decimal": decimal, "thousands": thousands, "encoding": encoding})
    return Table(opened, _target(target), sample_weight, noise_variance, groups, exposure, *choice)


def names_in(text: str) -> list[str]:
    """The names in a list like `id,tailnum`; a name with a comma is in double quotes."""
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]


def as_flag(option: str, names: Iterable[str]) -> str:
    """The flag to paste that gives these names."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(list(names))
    return f"--{option} {shlex.quote(line.getvalue())}"


def _raise_unusable(problems: Mapping[str, CVGPError]) -> None:
    """Raise one error for everything that is wrong with columns, with the flag that leaves them out."""
    if problems:
        kinds = {type(problem) for problem in problems.values()}
        lines = [str(problem) for problem in problems.values()]
        if len(lines) > 1:
            lines = [f"{len(lines)} columns cannot be used:", *(f"- {line}" for line in lines)]
        in_python = f"(in Python: read_table(..., drop={list(problems)}))"
        advice = f"To leave out what cannot be used: {as_flag('drop', problems)} {in_python}."
        raise (kinds.pop() if len(kinds) == 1 else InvalidInputError)("\n".join([*lines, advice]))


def _left_out_line(reasons: Mapping[str, str], useless: Collection[str] = (EMPTY,)) -> str:
    """The columns that were left out and why, with the flag that keeps them, unless they would be useless."""
    found = "; ".join(
        f"{named([repr(n) for n in reasons if reasons[n] == why])} ({why})" for why in dict.fromkeys(reasons.values())
    )
    line = f"Left out, since they are not informative: {found}."
    if others := [name for name in reasons if reasons[name] not in useless]:
        in_python = f"(in Python: read_table(..., always_keep={others}))"
        line += f" To use them anyway: {as_flag('always-keep', others)} {in_python}."
    return line


@dataclass(frozen=True)
class TrainingTable:
    """The rows of a table in numbers, and the features that they become."""

    table: Table
    rows: NumberedRows  # those of this process
    moments: Moments  # those of the columns of x, then of y, over all rows
    num_rows: int  # that count, of all processes
    bad: BadRows
    group: Group
    left_out: Mapping[str, str] = field(default_factory=dict)  # why, by the columns' names

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
        return _common_sample(self.rows, self.num_rows, self.group, self.rows.encode)

    def scaling(self, warp: InputWarp = NO_WARP) -> Scaling:
        """Means and standard deviations of all columns; those with a warp or outliers have them from a sample."""
        D, moments, sample = len(self.feature_names), self.moments, self.common_sample
        whole, bulk = moments.scaling(D), bulk_of(sample.x, sample.sample_weight)
        reach = np.maximum(np.abs(bulk.low), np.abs(bulk.high))
        is_far = (moments.magnitude[:D] > reach) | (bulk.moved_into(sample.x) != sample.x).any(axis=0)
        in_bulk = learn_scaling(sample.x, sample.y, sample.sample_weight, bulk)
        found = whole.with_inputs(in_bulk, is_far & in_bulk.varies)  # a column that is constant there has no bulk
        if warp.name == "identity":
            return found
        return found.with_inputs(learn_warped_scaling(warp, sample), warp.warped)._replace(warp=warp)

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
        return Schema(target, self.rows.columns, self.table.impute, dropped, self.table.reading, unused)

    @property
    def open_trends(self) -> dict[str, int]:
        """By column, the positions of the features that are trends of dates, if the fit has to decide about them."""
        columns = self.rows.columns
        return {
            column.name: at.start
            for column, at in zip(columns, feature_slices(columns), strict=True)
            if self.table.dates == "auto" and "trend" in column.parts and len(column.parts) > 1
        }

    def without_trends(self, names: Collection[str]) -> TrainingTable:
        """The same rows without the trends of these columns of dates."""
        columns = tuple(
            replace(column, parts=column.parts[1:]) if column.name in names else column for column in self.rows.columns
        )
        return self._changed(replace(self.rows, columns=columns))

    def hold_out(
        self, share: float, rng: np.random.Generator, *, copies: bool = False
    ) -> tuple[TrainingTable, Numbered]:
        """The table without a random share of its rows, and those of this process in numbers.

        They all come from its sample, of which at most half are taken.
        """
        found, numbers = self.rows.sample_in_numbers()
        share = min(share * self.rows.num_rows / max(len(numbers), 1), 0.5)
        drawn, weight = draw_weight(found, share, rng, copies=copies), found.sample_weight
        some = drawn > 0.0
        taken = np.where(drawn < (1.0 if weight is None else weight), drawn, np.inf)[some]
        apart = (found if weight is None else found._replace(sample_weight=drawn)).take(some)
        return self._changed(self.rows.without(self.rows.sample_numbers[some], taken)), (apart, numbers[some])

    def features(self, rows: Numbered) -> Rows[Array]:
        """Rows of each process with their features, the same in all of them."""
        return _gathered(self.rows.encode(*rows), self.group)

    @cached_property
    def group_sizes(self) -> GroupSizes:
        """The groups of all rows."""
        parts = list[Array]()
        for rows, _ in self.rows.cell_blocks():
            parts.append(np.stack(np.unique(np.asarray(rows.cluster), return_counts=True), axis=1))
            if len(parts) == PARTS_AT_ONCE:
                parts = [np.stack(GroupSizes.of(parts)[:2], axis=1)]
        own = np.stack(GroupSizes.of(parts)[:2], axis=1)  # [G, 2]
        return GroupSizes.of([part.numpy() for part in self.group.gather(torch.from_numpy(own))])

    def whole_groups(self, count: int, rng: np.random.Generator) -> Rows[Array]:
        """All rows of random groups, about `count` in all processes, the same everywhere."""
        rows = replace(self.rows, groups=self.rows.groups or self.group_sizes)
        return _gathered(rows.whole_groups(count, rng), self.group)

    def with_correlation(self, correlation: float) -> TrainingTable:
        """The same rows, which count less the more there are in their group."""
        rows = replace(self.rows, groups=self.group_sizes._replace(correlation=correlation))
        return self._changed(rows) if correlation else replace(self, rows=rows)

    def _changed(self, rows: NumberedRows) -> TrainingTable:
        """The table with other rows, or rows that count otherwise."""
        total = int(self.group.sum([torch.tensor(float(rows.num_rows), dtype=torch.float64)])[0])
        return replace(self, rows=rows, num_rows=total, moments=_moments(rows, rows.encode, self.group))

    def load(self) -> Rows[Array]:
        """All rows, in the user's units, with groups in the order in which they come."""
        rows = self.rows.read(0, self.rows.store.num_rows)
        if rows.cluster is None:
            return rows
        _, first, place = np.unique(rows.cluster, return_index=True, return_inverse=True)
        return rows._replace(cluster=first.argsort().argsort()[place].astype(np.float64))

    def source(self, scaling: Scaling, device: torch.device | str = "cpu") -> StoredSource:
        """The rows of this process in blocks, scaled."""
        return StoredSource(self.rows, self.moments, scaling, device)

    def describe(self) -> str:
        """Size and way of reading, in a line."""
        count, size = len({part.file for part in self.table.opened.parts}), f"{self.num_bytes / 1e6:.0f} MB"
        limit = f"{stream.IN_MEMORY_BYTES / 1e6:.0f} MB"
        how = f"loaded, {size}" if self.fits_in_memory else f"read in parts: {size} is more than {limit}"
        columns = f"{len(self.rows.columns)} columns as {len(self.feature_names)} features"
        return f"{count} file{'s' * (count > 1)}, {self.num_rows} rows, {columns} ({how})"


def _applied(table: Table, schema: Schema, group: Group) -> TrainingTable:
    table = replace(table, groups=None, time=None)  # only a fit asks for them
    extra = table.extra
    reader = schema_reader(table.opened, schema, table.targets, extra, table.on_bad_rows)
    store = Store(len(schema.columns) + len(table.special) + 1)
    for piece in reader.pieces(table.opened.parts[group.rank :: group.world]):
        store.append(piece.stored())
    rows = NumberedRows(store, schema.columns, range(len(schema.columns)), table.targets, extra)
    total = reader.bad.count_all(group, store.num_rows)
    return TrainingTable(table, rows, _moments(rows, rows.encode, group), total, reader.bad, group)


Encode = Callable[[Rows[Array], NDArray[np.int64]], Rows[Array]]


def _as_numbers(rows: Rows[Array], numbers: NDArray[np.int64]) -> Rows[Array]:
    return rows


def _common_sample(rows: NumberedRows, total: int, group: Group, encode: Encode) -> Rows[Array]:
    """A sample of the rows of all processes, in numbers or encoded."""
    found, numbers = rows.sample_in_numbers()
    count = -(-SAMPLE_ROWS * rows.num_rows // total)
    chosen = np.sort(np.random.default_rng(0).permutation(len(found.x))[:count])
    return _gathered(encode(found.take(chosen), numbers[chosen]), group)


def _gathered(own: Rows[Array], group: Group) -> Rows[Array]:
    """The rows of all processes, in all of them."""
    return own.map(lambda values: torch.cat(group.gather(torch.from_numpy(np.ascontiguousarray(values)))).numpy())


def _moments(rows: NumberedRows, encode: Encode, group: Group) -> Moments:
    """The moments of x and y over the rows of all processes, in numbers or encoded."""
    width = len(rows.columns if encode is _as_numbers else rows.feature_names)
    found = no_moments(width + len(rows.targets))
    for block in rows.cell_blocks():
        own = encode(*block)
        found = found.merge(moments_of(np.hstack([own.x, own.y]), own.sample_weight))
    gathered = group.gather(torch.from_numpy(np.stack(found)))
    return reduce(Moments.merge, (Moments(*part.numpy()) for part in gathered))


# Learning -----------------------------------------------------------------------------------------------------------


class _Texts:
    """The different texts of a column, numbered as they come and counted."""

    def __init__(self, name: str, is_ordered: bool, is_asked_for: bool) -> None:
        self.name, self.is_ordered, self.is_asked_for = name, is_ordered, is_asked_for
        self.numbers: dict[str, int] = {}
        self.counts: Counter[str] = Counter()  # of the rows that count; ordered texts are there even if no row has them
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
        self.counts.update(dict.fromkeys(texts, 0) if self.is_ordered else {})
        if len(self.numbers) > MOST_TEXTS:
            raise InvalidInputError(
                f"Column {self.name!r} holds more than {MOST_TEXTS} different texts, such as {texts[0]!r}, but text is "
                "encoded as categories that several rows have; group its values into fewer, or leave it out."
            )
        return np.array([*own, np.nan], dtype=np.float64)[codes]

    def count(self, cells: Array) -> None:
        """Count the numbers [n] of cells in rows that count."""
        if not self.names_rows:
            numbers, times = np.unique(cells[~np.isnan(cells)].astype(np.int64), return_counts=True)
            texts = list(self.numbers)
            for number, count in zip(numbers.tolist(), times.tolist(), strict=True):
                self.counts[texts[number]] += count
            if len(self.counts) > MAX_CATEGORIES and self.counts.total() >= ENOUGH_CELLS:
                self._settle()

    def share(self, group: Group) -> None:
        """Put together the counts of the processes of a group."""
        found = [json.loads(text) for text in gather_text(group, json.dumps([self.counts, self.names_rows]))]
        self.counts, self.names_rows = Counter(), any(names_rows for _, names_rows in found)
        for counts, _ in found:
            self.counts.update(counts)
        self._settle()

    def _settle(self) -> None:
        """Stop counting if the texts only name the rows."""
        num_texts, num_cells = len(self.counts), self.counts.total()
        is_free = not (self.is_ordered or self.is_asked_for)
        if is_free and num_cells >= LEAST_ROWS and num_texts >= NEARLY_EVERY * num_cells:
            is_numeric = 2 * sum(map(spells_number, self.counts)) > num_texts
            self.names_rows = not is_numeric and not look_like_dates(self.counts)


def _hashed(name: str, column: pa.Array) -> Array:
    """Numbers [n] for the labels of groups, which processes need not agree about; NaN where one is missing."""
    codes, texts = labels(name, column)
    own = [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest()) for text in texts]
    return np.array([*own, np.nan], dtype=np.float64)[codes]


class _Learner:
    """One look through the rows of a table, and what is learned from it."""

    def __init__(self, table: Table, group: Group) -> None:
        self.table, self.group, self.opened = table, group, table.opened
        names, self.encodings = table.feature_columns(), table.encodings
        self.asked_for = {*table.always_keep, *(table.features or ()), *self.encodings}
        self.problems: dict[str, CVGPError] = {}
        self.kinds = {name: self.opened.kind(name) for name in table.special}
        for name in names:
            try:
                self.kinds[name] = self.opened.kind(name)
            except InvalidTypeError as error:
                self.problems[name] = error
        if set(self.kinds.values()) == {"null"} and not self.problems:
            raise InvalidInputError("The table holds no rows, or only empty ones; it must have at least one.")
        for name in table.special:
            if self.kinds[name] == "null":
                raise InvalidInputError(f"Column {name!r} is empty, and it is needed in each row that counts.")
            if name == table.time:
                continue
            if name == table.groups:
                self.kinds[name] = "categorical"  # whatever they are, labels
            elif self.opened.is_text_file and self.kinds[name] == "categorical":
                self.kinds[name] = "numeric"  # the rows that hold text are bad ones
            elif self.kinds[name] not in ("numeric", "boolean"):
                raise InvalidTypeError(f"Column {name!r} must hold numbers; it holds text, or nothing at all.")
        for name, kind in self.encodings.items():
            if self.kinds.get(name, "null") not in ("numeric", "null"):
                option = "geo" if kind in PLACE else "periods"
                raise InvalidTypeError(
                    f"{option} names column {name!r}, which must hold numbers, but it holds text, dates, or true and "
                    "false. Name a column of numbers, or convert this one."
                )
        self.left_out: dict[str, str] = {}
        for name in names:
            if self.kinds.get(name) == "null":
                self._without_values(name)
        self.usable = [name for name in names if name not in self.problems and name not in self.left_out]
        self.texts = {
            name: _Texts(name, self.kinds[name] == "ordered", name in self.asked_for)
            for name in self.usable
            if self.kinds[name] in ("categorical", "ordered")
        }
        gaps = np.array([self.encodings.get(n) not in PLACE or table.impute == "drop" for n in self.usable], np.bool_)
        targets = [table.label or name for name in table.targets]
        known = [*self.usable, *targets, *(name for name in table.extra if name is not None)]
        self.bad = BadRows(self.opened, known, gaps, table.on_bad_rows, drops=table.impute == "drop")

    def learn(self) -> TrainingTable:
        """Read the rows, and learn what each column becomes."""
        store, missing = self._read()
        total = self.bad.count_all(self.group, store.num_rows)
        rows = self._numbered(store, missing == total)
        missing = missing[rows.places]
        moments = _moments(rows, _as_numbers, self.group)
        sample = _common_sample(rows, total, self.group, _as_numbers)
        used = self._informative(rows.columns, moments.scales, missing, sample.x)
        missing, sample = missing[used], sample._replace(x=sample.x[:, used])
        moments = Moments(*(values[np.append(used, [True] * len(rows.targets))] for values in moments))
        # Medians are exact for rows that are loaded, and else those of the sample.
        is_loaded = self.group.world == 1 and 8 * total * store.width <= stream.IN_MEMORY_BYTES
        every = rows.cells(0, total)[0].x[:, used] if is_loaded and missing.any() else sample.x
        facts = (missing.tolist(), moments.means.tolist(), every.T, sample.x.T)
        columns = tuple(map(self._learned, compress(rows.columns, used), *facts))
        rows = replace(rows, columns=columns, places=list(compress(rows.places, used)), fold_effects={})
        if any(column.kind == "levels" for column in columns):
            columns, effects = learn_levels(columns, rows.targets, sample, rows.cell_blocks(), self.group)
            rows = replace(rows, columns=columns, fold_effects=effects)
        if missing.any() or any(column.kind not in ("numeric", "boolean", "ordered") for column in columns):
            moments = _moments(rows, rows.encode, self.group)  # else the numbers are the features
        return TrainingTable(self.table, rows, moments, total, self.bad, self.group, self.left_out)

    def _read(self) -> tuple[Store, NDArray[np.int64]]:
        """The rows that count, in numbers (texts as they come), and the missing cells of each column."""
        table = self.table
        cells = {
            name: self.texts[name].add
            if name in self.texts
            else partial(READERS[self.encodings.get(name, self.kinds[name])], name)
            for name in self.usable
        }
        label = None if table.groups is None else partial(_hashed, table.groups)
        reader = RowReader(self.opened, cells, self.kinds, table.targets, table.extra, self.bad, label)
        store = Store(len(self.usable) + len(table.special) + 1)
        missing = torch.zeros(len(self.usable), dtype=torch.float64)
        for piece in reader.pieces(self.opened.parts[self.group.rank :: self.group.world]):
            store.append(piece.stored())
            kept = piece.rows.x[piece.kept]
            missing += torch.from_numpy(np.isnan(kept).sum(axis=0))
            for name, values in zip(self.usable, kept.T, strict=True):
                if name in self.texts:
                    self.texts[name].count(values)
        return store, self.group.sum([missing])[0].numpy().astype(np.int64)

    def _numbered(self, store: Store, is_empty: NDArray[np.bool_]) -> NumberedRows:
        """The rows with columns of which nothing is learned yet."""
        table, columns, places, codes = self.table, [], [], {}
        for texts in self.texts.values():
            texts.share(self.group)
            if texts.names_rows:
                self.left_out[texts.name] = "a different text in nearly every row"
        for place, name in enumerate(self.usable):
            if is_empty[place]:
                self._without_values(name)
            if name in self.left_out or name in self.problems:
                continue
            found = self.texts.get(name)
            try:
                kind = self.encodings.get(name, self.kinds[name])
                column = self._new_column(name, kind, Counter() if found is None else found.counts)
            except CVGPError as error:
                self.problems[name] = error
                continue
            if column.kind == "date" and table.dates == "drop":
                continue
            columns.append(column)
            places.append(place)
            if found is not None and column.kind == "date":
                codes[place] = days(name, pa.array(list(found.numbers), pa.string()))
            elif found is not None:
                position = {category: float(index) for index, category in enumerate(column.categories)}
                codes[place] = np.array([position.get(text, UNKNOWN) for text in found.numbers])
        _raise_unusable({name: self.problems[name] for name in table.names if name in self.problems})
        if not columns:
            raise self._nothing_left()
        return NumberedRows(store, tuple(columns), places, table.targets, table.extra, codes)

    def _nothing_left(self) -> InvalidInputError:
        reason = "All columns are dates, and dates='drop'."
        if self.left_out:
            reason = _left_out_line(self.left_out, (EMPTY, CONSTANT))
        return InvalidInputError(f"No column is left to learn from. {reason} Give a table with a column that varies.")

    def _without_values(self, name: str) -> None:
        if name not in self.asked_for:
            self.left_out[name] = EMPTY
        else:
            self.problems[name] = InvalidInputError(f"Column {name!r} holds no values in rows that count.")

    def _new_column(self, name: str, kind: str, counts: Counter[str]) -> Column:
        if kind == "date" or (kind == "categorical" and look_like_dates(counts)):
            return Column(name, "date", parts=("trend",))
        if kind in ("categorical", "ordered"):
            check_categories(name, list(counts), counts.total(), is_text_file=self.opened.is_text_file)
        if kind == "categorical" and (least := self.table.least_rows) > 1:
            counts = Counter({text: count for text, count in counts.items() if count >= least})
            if not counts:
                raise InvalidInputError(f"With private=True, column {name!r} needs a text that {least} rows have.")
        if kind == "ordered":
            return Column(name, "ordered", tuple(counts))
        if kind == "categorical" and len(counts) > MAX_INDICATORS:
            frequent = sorted(counts, key=lambda text: (-counts[text], text))[:MAX_LEVELS]
            return Column(name, "levels", tuple(sorted(frequent)), dims=(name,), prior_sd=(0.0,))
        period = float(self.table.periods[name]) if kind == "cyclic" and self.table.periods else None
        return Column(name, kind, tuple(sorted(counts)), period=period)  # type: ignore[arg-type]

    def _informative(
        self, columns: Sequence[Column], scales: Array, missing: NDArray[np.int64], sample: Array
    ) -> NDArray[np.bool_]:
        """Which columns are neither constant nor a number for each row, unless they are asked for."""
        for column, scale, gaps, values in zip(columns, scales, missing, sample.T, strict=False):
            if len(values) < LEAST_ROWS or column.name in self.asked_for or gaps:
                continue
            if scale == 0.0:
                self.left_out[column.name] = CONSTANT
            elif column.kind == "date" and self.table.dates == "season" and varying_parts(values) == ("trend",):
                self.left_out[column.name] = "dates without a season, a weekday or an hour that varies"
            elif column.kind == "numeric" and _numbers_rows(column.name, values):
                self.left_out[column.name] = "numbers the rows"
        used = np.array([column.name not in self.left_out for column in columns])
        if not used.any():
            raise self._nothing_left()
        if any(not column.name.strip() for column, use in zip(columns, used, strict=True) if use):
            raise InvalidInputError(
                "A column of the table has no name in the first line; name it, or remove it if it only numbers the "
                "rows (pandas writes such a column unless told index=False)."
            )
        return used

    def _learned(self, column: Column, missing: int, mean: float, every: Array, cells: Array) -> Column:
        """A column with its fill, its mark for missing cells and its distribution, from every cell or a sample."""
        impute = self.table.impute
        marks = impute is None and missing > 0
        counts = [float(self.texts[column.name].counts[text]) for text in column.categories]
        present = cells[~np.isnan(cells)]
        fill: float | bool | str | None = None
        if impute in ("mean", "median") or marks:
            if column.kind in ("categorical", "levels"):
                fill = None if marks else column.categories[int(np.argmax(counts))]
            elif column.kind == "boolean":
                fill = bool(round(mean, 12) > 0.5)
            elif column.kind == "ordered" and not marks:
                fill = float(np.argmax(counts))
            else:
                known = every[~np.isnan(every)]
                fill = float(mean) if impute == "mean" or not len(known) else float(np.median(known))
        finite = present[np.isfinite(present)]
        typical = tuple(np.quantile(finite, (np.arange(TYPICAL) + 0.5) / TYPICAL).tolist()) if len(finite) else ()
        if column.kind == "categorical":
            typical = (*counts, float(missing)) if marks else tuple(counts)
        elif column.kind in ("levels", *PLACE):
            typical = ()
        elif column.kind == "date" and len(finite):
            typical = (float(finite.min()), *typical[1:-1], float(finite.max()))
            parts = varying_parts(finite)
            cycles = tuple(part for part in parts if part != "trend")
            column = replace(column, parts=cycles if cycles and self.table.dates == "season" else parts)
        return replace(column, fill=fill, n_missing=missing, marks_missing=marks, typical=typical)


def _numbers_rows(name: str, values: Array) -> bool:
    """Whether a column only numbers the rows: by its name, and by whole numbers that are all different."""
    short = name.strip()
    is_id_name = not short or _ID_NAME.fullmatch(short) or _CAMEL_ID.fullmatch(short)
    is_whole = bool((values == np.round(values)).all())  # cells of rows that count are finite
    return bool(is_id_name) and is_whole and len(np.unique(values)) == len(values)
