"""How a table was read, its columns and their features: plain data, checked when it is made, stored with the model."""

from __future__ import annotations

import math
import reprlib  # what comes from a file may be too long or too deep for repr
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, field, fields
from itertools import accumulate, chain, pairwise
from typing import Any, Literal, TypeVar, get_args

import numpy as np

from cvgp.data.rows import Array
from cvgp.errors import FileFormatError, InvalidInputError, printable

Stored = TypeVar("Stored")
DECIMALS = (".", ",")
THOUSANDS = ("", ",", ".", " ", "'", "_")
SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
Kind = Literal["numeric", "boolean", "categorical", "levels", "ordered", "date", "cyclic", "latitude", "longitude"]
Extra = tuple[str | None, str | None, str | None, str | None, str | None]  # weights, noise, groups, exposures, times
Impute = Literal["mean", "median", "drop"]

MAX_INDICATORS = 10  # categories; a column with more becomes the effects of levels
MAX_CATEGORIES = 50  # indicators of a column in a file; a fit makes fewer
MAX_LEVELS = 10_000  # with an effect of their own: the most frequent
MOST_CLASSES = 100  # of a target
MAX_COUNT = 2**53
TYPICAL = 16  # values that represent the distribution of a column
YEAR, WEEK = 365.2425, 7.0  # in days
FIRST_MONDAY = 4.0  # the first Monday of 1970, in days since the year began on a Thursday
PERIODS = {"season": YEAR, "weekday": WEEK, "hour": 1.0}  # of the cyclic parts of a date, in days
PLACE: tuple[Kind, Kind] = ("latitude", "longitude")  # in degrees; together, a place on the sphere
EARTH_RADIUS = 6371.0  # in km
PART_FEATURES = {
    "trend": ("trend",),
    "season": ("season sin", "season cos"),
    "weekday": ("weekday sin", "weekday cos"),
    "hour": ("hour sin", "hour cos"),
}


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How the numbers of a column are written."""

    decimal: str = "."
    thousands: str = ""
    percent: bool = False  # whether a percent sign may follow; `12 %` is the number 12

    def __post_init__(self) -> None:
        is_known = self.decimal in DECIMALS and self.thousands in THOUSANDS and isinstance(self.percent, bool)
        if not is_known or self.decimal == self.thousands:
            raise InvalidInputError(
                f"Numbers have a decimal sign of {DECIMALS} and another sign of {THOUSANDS} between thousands; got "
                f"{reprlib.repr((self.decimal, self.thousands, self.percent))}."
            )

    def describe(self) -> str:
        """In words; empty for plain numbers."""
        words = ["decimal comma"] if self.decimal == "," else []
        words += [f"thousands {self.thousands!r}"] if self.thousands else []
        return ", ".join([*words, *(["percent"] if self.percent else [])])


PLAIN = NumberFormat()


@dataclass(frozen=True, slots=True)
class Reading:
    """How a table was read; without separator and encoding for a format that has none."""

    sep: str | None = None
    encoding: str | None = None
    numbers: Mapping[str, NumberFormat] = field(default_factory=dict)  # of columns of text

    @property
    def is_plain(self) -> bool:
        """Whether this is UTF-8 with plain numbers between commas or tabs."""
        plain_numbers = all(how == PLAIN for how in self.numbers.values())
        return self.sep in (None, ",", "\t") and self.encoding in (None, "utf-8") and plain_numbers

    def describe(self) -> str:
        """In words, in one line."""
        words = []
        if self.sep is not None:
            words += [f"columns separated by {SEPARATOR_NAMES.get(self.sep, repr(self.sep))}"]
            words += [f"encoding {self.encoding}"]
        columns: dict[str, list[str]] = {}
        for name, how in self.numbers.items():
            if how != PLAIN:
                columns.setdefault(how.describe(), []).append(repr(name))
        words += [f"{how} in {named(names)}" for how, names in columns.items()]
        return ", ".join(words)

    def __post_init__(self) -> None:
        texts = (self.sep, self.encoding, *self.numbers)
        if not all(text is None or isinstance(text, str) for text in texts):
            raise InvalidInputError(f"A separator and an encoding are text; got {reprlib.repr(texts)}.")

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON types."""
        numbers = {name: list(astuple(how)) for name, how in self.numbers.items()}
        return {"sep": self.sep, "encoding": self.encoding, "numbers": numbers}

    @classmethod
    def from_json(cls, data: object) -> Reading:
        """From a file that need not be trusted."""
        numbers = data.get("numbers") if isinstance(data, dict) else None
        if not isinstance(numbers, dict) or not all(isinstance(how, list) for how in numbers.values()):
            raise FileFormatError("How a table was read must say how its numbers are written.")
        with _as_stored("How the table was read"):
            return _from_fields(cls, data, numbers={name: NumberFormat(*how) for name, how in numbers.items()})


@contextmanager
def _as_stored(what: str) -> Iterator[None]:
    """Turn errors about values that come from a file into errors about the file."""
    try:
        yield
    except (InvalidInputError, TypeError) as error:
        raise FileFormatError(f"{what} cannot be as the file says: {error}") from error


def _from_fields(cls: type[Stored], data: Any, **known: Any) -> Stored:
    """The dataclass that was stored as a dictionary; lists become tuples, down to lists of lists."""
    names = {own.name for own in fields(cls)}  # type: ignore[arg-type]
    if not isinstance(data, dict) or set(data) != names:
        raise FileFormatError(f"In a schema, a {cls.__name__.lower()} must have exactly {', '.join(sorted(names))}.")
    return cls(**{name: _as_tuples(value) for name, value in data.items()} | known)


def _as_tuples(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return tuple(tuple(item) if isinstance(item, list) else item for item in value)


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, tuple) else value


def named(names: list[str]) -> str:
    """Some of the names, and how many more there are."""
    shown = ", ".join(map(printable, names[:6]))
    return shown if len(names) <= 6 else f"{shown} and {len(names) - 6} more columns"


def date_features(days: Array, parts: tuple[str, ...]) -> Array:
    """The features [n, w] of dates in days [n]; NaN where a date is missing."""
    date = np.floor(days)
    phases = {"season": days / YEAR, "weekday": np.mod(date - FIRST_MONDAY, WEEK) / WEEK, "hour": days - date}
    columns: list[Any] = []
    for part in parts:
        if part == "trend":
            columns.append(days)
        else:
            angle = 2.0 * math.pi * phases[part]
            columns += [np.sin(angle), np.cos(angle)]
    return np.stack(columns, axis=1)


def place_in_cycle(features: Array, period: float) -> Array:
    """How far [n] into its cycle each value is, from its sine and cosine [n, 2]."""
    return np.mod(np.arctan2(features[:, 0], features[:, 1]) / (2.0 * math.pi), 1.0) * period


def varying_parts(days: Array) -> tuple[str, ...]:
    """The parts that differ among dates [n] without gaps: a season needs half a year, and weekdays need a week."""
    span = float(days.max() - days.min())
    wanted = {
        "trend": True,
        "season": span > YEAR / 2.0,
        "weekday": span >= WEEK and len(np.unique(np.mod(np.floor(days), WEEK))) > 1,
        "hour": bool(np.ptp(days - np.floor(days)) > 0.0),
    }
    return tuple(part for part in PART_FEATURES if wanted[part])


@dataclass(frozen=True, slots=True)
class Column:
    """How one column of a table is encoded: its kind decides which features it becomes."""

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    fill: float | bool | str | None = None
    n_missing: int = 0
    marks_missing: bool = False  # whether missing is a feature of its own, or a level of its own
    typical: tuple[float, ...] = ()  # quantiles, or the share of each category: unknown cells are integrated out
    dims: tuple[str, ...] = ()  # of levels: the names of the features that embed one, its effect and its slopes
    effects: tuple[tuple[float, ...], ...] = ()  # of each level; the last is that of missing cells, if marked
    effect_sd: tuple[tuple[float, ...], ...] = ()  # beyond that of a typical training row
    prior_sd: tuple[float, ...] = ()  # of a level that was never seen
    parts: tuple[str, ...] = ()  # of dates
    period: float | None = None  # of a number on a circle

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.kind not in get_args(Kind):
            found = reprlib.repr((self.name, self.kind))
            raise InvalidInputError(f"A column has a name and a kind of {get_args(Kind)}, got {found}.")
        if problem := self._problem():
            raise InvalidInputError(f"The {self.kind} column {self.name!r} {problem}.")

    def _problem(self) -> str:
        """Why there can be no such column; empty if there can be."""
        texts, is_levels, is_marked = self.categories, self.kind == "levels", self.marks_missing
        if not all(isinstance(getattr(self, own.name), tuple) for own in fields(self) if own.default == ()):
            return "must have its categories, parts and numbers in lists"
        if type(is_marked) is not bool or type(self.n_missing) is not int or not 0 <= self.n_missing <= MAX_COUNT:
            return "must say how many cells are missing, and if that is marked"
        most = {"categorical": MAX_CATEGORIES, "levels": MAX_LEVELS, "ordered": MAX_LEVELS}.get(self.kind, 0)
        if not min(most, 1) <= len(texts) <= most or not all(isinstance(text, str) for text in texts):
            return f"must have {min(most, 1)} to {most} categories of text; got {len(texts)}"
        if len(set(texts)) < len(texts) or (self.kind != "ordered" and list(texts) != sorted(texts)):
            return "must have categories that differ, in order"
        if self.fill is not None and not self._is_value(self.fill):
            return f"cannot be filled with {reprlib.repr(self.fill)}"
        known = [part for part in PART_FEATURES if part in self.parts]
        if list(self.parts) != known or bool(known) != (self.kind == "date"):
            return f"cannot have the parts {reprlib.repr(self.parts)}"
        is_period = _is_float(self.period) and self.period is not None and self.period > 0.0
        if is_period != (self.kind == "cyclic") or not (is_period or self.period is None):
            return f"cannot have the period {reprlib.repr(self.period)}"
        num_shares = len(texts) + is_marked if self.kind == "categorical" else TYPICAL
        num_levels = len(texts) + is_marked if self.effects else 0
        rows = (*self.effects, *self.effect_sd, self.prior_sd)
        if not (
            len(self.typical) in (0, num_shares)
            and len(self.effects) == len(self.effect_sd) == num_levels
            and (is_levels or not self.effects)
            and bool(self.dims) == is_levels
            and all(isinstance(name, str) for name in self.dims)
            and all(isinstance(row, tuple) and len(row) == len(self.dims) for row in rows)
            and all(map(_is_float, (*self.typical, *chain.from_iterable(rows))))
        ):
            return "must have finite numbers, as many as it needs"
        shares = self.typical if self.kind == "categorical" else (1.0,)
        if min((*chain.from_iterable(self.effect_sd), *self.prior_sd, *shares), default=0.0) < 0.0:
            return "has a standard deviation or a share below 0"
        return "has no share above 0" if shares and not any(shares) else ""

    def _is_value(self, value: object) -> bool:
        if self.kind in ("categorical", "levels"):
            return isinstance(value, str) and value in self.categories
        if self.kind == "boolean":
            return isinstance(value, bool)
        # The comparison is false for NaN and infinity, and exact for integers beyond the range of floats.
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features, such as `color=blue` and `color=red`."""
        names: tuple[str, ...] = (self.name,)
        if self.kind == "levels":
            return self.dims
        if self.kind == "categorical":
            names = tuple(f"{self.name}={category}" for category in self.categories)
        elif self.kind == "date":
            names = tuple(f"{self.name} {feature}" for part in self.parts for feature in PART_FEATURES[part])
        elif self.kind == "cyclic":
            names = f"{self.name} sin", f"{self.name} cos"
        elif self.kind in PLACE:  # coordinates of a point of the sphere, from its center
            names = tuple(f"{self.name} {axis} km" for axis in ("z" if self.kind == "latitude" else "xy"))
        return (*names, f"{self.name} is missing") if self.marks_missing else names

    @property
    def is_text(self) -> bool:
        """Whether a cell is one of some categories."""
        return self.kind in ("categorical", "levels", "ordered")

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON types."""
        found = {name: _as_lists(value) for name, value in asdict(self).items()}
        return {name: value for name, value in found.items() if name != "period" or value is not None}

    @classmethod
    def from_json(cls, data: object) -> Column:
        """From a file that need not be trusted."""
        with _as_stored("A column of the schema"):
            column = _from_fields(cls, {"period": None} | data if isinstance(data, dict) else data)
        if column.marks_missing and not (column.effects if column.kind == "levels" else column.typical):
            raise FileFormatError(f"Column {column.name!r} of the schema has no features for its missing cells.")
        return column


def feature_slices(columns: Sequence[Column]) -> list[slice]:
    """The features of each column."""
    ends = accumulate((len(column.feature_names) for column in columns), initial=0)
    return [slice(start, stop) for start, stop in pairwise(ends)]


def sphere_of(columns: Sequence[Column]) -> tuple[int, ...]:
    """The features that are a place on the sphere; distances over them are kilometers."""
    pairs = zip(columns, feature_slices(columns), strict=True)
    return tuple(d for column, at in pairs if column.kind in PLACE for d in range(at.start, at.stop))


def _is_float(value: object) -> bool:
    return type(value) is float and abs(value) <= sys.float_info.max


@dataclass(frozen=True, slots=True)
class Schema:
    """The target and the encoded columns of a table."""

    target: str | tuple[str, ...]
    columns: tuple[Column, ...]
    impute: Impute | None = None  # the rule for missing values; None if the model learns from them
    n_dropped: int = field(default=0, compare=False)  # rows of the training table that the rule "drop" left out
    reading: Reading = field(default_factory=Reading, compare=False)
    unused: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        is_named = isinstance(self.target, str | tuple) and all(isinstance(name, str) for name in self.targets)
        if not (is_named and self.targets):
            raise InvalidInputError(f"The target must be the name of a column, got {reprlib.repr(self.target)}.")
        check_rule(self.impute)
        names = [*self.targets, *(column.name for column in self.columns)]
        if not self.columns or len(set(names)) < len(names):
            raise InvalidInputError(f"A schema has a target and at least one other column, all different; got {names}.")
        if len(set(self.feature_names)) < len(self.feature_names):
            raise InvalidInputError(
                "One-hot encoding gives two features the same name, as with a column 'a=b' beside a column 'a' that "
                "holds 'b'; rename one of the columns."
            )
        kinds = [column.kind for column in self.columns]
        if any((a == PLACE[0]) != (b == PLACE[1]) for a, b in pairwise(["", *kinds, ""])) or kinds.count(PLACE[0]) > 1:
            raise InvalidInputError("A column of longitudes must follow the column of latitudes, and nothing else.")
        fills = self.impute not in (None, "drop")
        if any((c.fill is not None) != fills and (self.impute or not c.marks_missing) for c in self.columns):
            raise InvalidInputError(f"With impute={self.impute!r}, {'all' if fills else 'no'} columns have a fill.")
        is_counted = type(self.n_dropped) is int and 0 <= self.n_dropped <= MAX_COUNT
        is_listed = isinstance(self.unused, tuple) and all(isinstance(name, str) for name in self.unused)
        if not is_counted or not is_listed:
            found = reprlib.repr((self.n_dropped, self.unused))
            raise InvalidInputError(f"Dropped rows must be a count, and unused columns names; got {found}.")

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns to predict."""
        return (self.target,) if isinstance(self.target, str) else self.target

    @property
    def is_numeric(self) -> bool:
        """Whether each column is one number that is its own feature."""
        return all(c.kind in ("numeric", "boolean") and c.fill is None and not c.marks_missing for c in self.columns)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the columns of the encoded matrix."""
        return tuple(name for column in self.columns for name in column.feature_names)

    def to_json(self) -> dict[str, Any]:
        """The schema as a dictionary of JSON types."""
        found = {own.name: _as_lists(getattr(self, own.name)) for own in fields(self)}
        return found | {"columns": [column.to_json() for column in self.columns], "reading": self.reading.to_json()}

    @classmethod
    def from_json(cls, data: Any) -> Schema:
        """From a file that need not be trusted."""
        columns = data.get("columns") if isinstance(data, dict) else None
        if not isinstance(columns, list):
            raise FileFormatError("A schema must have a list of columns.")
        known = tuple(map(Column.from_json, columns))
        with _as_stored("The schema"):
            return _from_fields(cls, data, columns=known, reading=Reading.from_json(data.get("reading")))


def check_number_of_classes(count: int) -> None:
    """Raise for a target of more classes than can be fitted."""
    if count > MOST_CLASSES:
        raise InvalidInputError(
            f"y has {count} different classes, and at most {MOST_CLASSES} are fitted. If y is a quantity, use "
            "CVGPRegressor (--task regress); if not, put rare classes together."
        )


def check_known_classes(where: str, labels: Iterable[Any], known: Collection[Any]) -> None:
    """Raise for labels that a model does not know."""
    if unseen := [label for label in dict.fromkeys(labels) if label not in known]:
        raise InvalidInputError(
            f"{where} has labels that the model was not fitted with: {unseen[:5]}. It knows {list(known)[:20]}. Leave "
            "these rows out, or fit a model with them."
        )


def check_rule(impute: object) -> None:
    """Raise if `impute` is not a known rule for missing values."""
    if impute is not None and impute not in get_args(Impute):
        raise InvalidInputError(
            f"The rule for missing values must be one of {get_args(Impute)} or None, got {reprlib.repr(impute)}."
        )
