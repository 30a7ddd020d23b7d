"""What the columns of a table are, and how they become features: learned from the training table, kept with the model.

A schema and its columns are plain data. They are stored as JSON and checked when they are read, so a file can make them
fail but not act.
"""

from __future__ import annotations

import math
import reprlib  # what comes from a file may be too long or too deep for repr
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate, chain, pairwise
from typing import Any, Literal, get_args

import numpy as np

from cvgp.data.rows import Array
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.tables.formats import Reading

YEAR, WEEK = 365.2425, 7.0
"""In days."""
FIRST_MONDAY = 4.0
"""1970 began on a Thursday, three days after a Monday."""
PART_FEATURES = {
    "trend": ("trend",),
    "season": ("season sin", "season cos"),
    "weekday": ("weekday sin", "weekday cos"),
    "hour": ("hour sin", "hour cos"),
}
"""The parts, and the features that each becomes."""


def date_features(days: Array, parts: tuple[str, ...]) -> Array:
    """The features [n, w] of dates in days [n]; NaN where a date is missing."""
    date = np.floor(days)
    phases = {
        "season": days / YEAR,
        "weekday": np.mod(date - FIRST_MONDAY, WEEK) / WEEK,
        "hour": days - date,
    }
    columns: list[Any] = []
    for part in parts:
        if part == "trend":
            columns.append(days)
        else:
            angle = 2.0 * math.pi * phases[part]
            columns += [np.sin(angle), np.cos(angle)]
    return np.stack(columns, axis=1)


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


Kind = Literal["numeric", "boolean", "categorical", "levels", "ordered", "date"]

MAX_INDICATORS = 10
"""Categories up to this many become one indicator each; more become the effects of levels."""
MAX_CATEGORIES = 50
"""Indicators of a column in a file; a fit makes fewer."""
MAX_LEVELS = 10_000
"""Levels with an effect of their own: the most frequent ones. Others count as unknown."""
MAX_COUNT = 2**53
"""Rows that a file may speak of."""
TYPICAL = 16
"""Values that represent the distribution of a column."""
LISTS = ("typical", "dims", "effects", "effect_sd", "prior_sd", "parts")


@dataclass(frozen=True, slots=True)
class Column:
    """How one column of a table is encoded."""

    name: str
    kind: Kind
    """As itself, as 0 and 1, as one indicator per category, as the effect of its level on the target, as the position
    among ordered categories, or as parts of a date."""
    categories: tuple[str, ...] = ()
    """In order, of text."""
    fill: float | bool | str | None = None
    """The value of a missing cell, if there is one."""
    n_missing: int = 0
    """Missing cells of the training table."""
    marks_missing: bool = False
    """Whether a feature of its own says that the cell is missing; among levels, missing is a level of its own."""
    typical: tuple[float, ...] = ()
    """The distribution in the training table, over which an unknown cell is integrated out: quantiles, or the share of
    each category."""
    dims: tuple[str, ...] = ()
    """For levels: the features that a level is embedded by, its effect on the target and slopes in other features."""
    effects: tuple[tuple[float, ...], ...] = ()
    """For levels: the features of each; the last ones are those of missing cells, if they are marked."""
    effect_sd: tuple[tuple[float, ...], ...] = ()
    """Their standard deviations, beyond those of a typical training row."""
    prior_sd: tuple[float, ...] = ()
    """The standard deviations of the features of a level that was never seen."""
    parts: tuple[str, ...] = ()
    """For dates: which parts become features."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.kind not in get_args(Kind):
            raise InvalidInputError(
                f"A column has a name and a kind of {get_args(Kind)}, got {reprlib.repr((self.name, self.kind))}."
            )
        is_counted = type(self.n_missing) is int and 0 <= self.n_missing <= MAX_COUNT
        if type(self.marks_missing) is not bool or not is_counted:
            raise InvalidInputError(f"Column {self.name!r} must say how many cells are missing, and if that is marked.")
        self._check_categories()
        if self.fill is not None and not self._is_value(self.fill):
            raise InvalidInputError(
                f"The {self.kind} column {self.name!r} cannot be filled with {reprlib.repr(self.fill)}."
            )
        self._check_numbers()
        known = [part for part in PART_FEATURES if part in self.parts]
        if list(self.parts) != known or bool(known) != (self.kind == "date"):
            raise InvalidInputError(
                f"The {self.kind} column {self.name!r} cannot have the parts {reprlib.repr(self.parts)}."
            )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features, such as `color=blue` and `color=red`."""
        names: tuple[str, ...] = (self.name,)
        if self.kind == "categorical":
            names = tuple(f"{self.name}={category}" for category in self.categories)
        elif self.kind == "levels":
            names = self.dims
        elif self.kind == "date":
            names = tuple(f"{self.name} {feature}" for part in self.parts for feature in PART_FEATURES[part])
        return (*names, f"{self.name} is missing") if self._has_indicator else names

    @property
    def is_text(self) -> bool:
        """Whether a cell is one of some categories."""
        return self.kind in ("categorical", "levels", "ordered")

    @property
    def _has_indicator(self) -> bool:
        return self.marks_missing and self.kind != "levels"

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON types, without what is as by default."""
        always = {"name": self.name, "kind": self.kind, "categories": list(self.categories), "fill": self.fill}
        others = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in always}
        defaults = {field.name: field.default for field in fields(self)}
        changed = {name: value for name, value in others.items() if value != defaults[name]}
        return always | {name: _as_lists(value) for name, value in changed.items()}

    @classmethod
    def from_json(cls, data: object) -> Column:
        """The column of such a dictionary, which may come from an untrusted file."""
        known = {field.name for field in fields(cls)}
        if not isinstance(data, dict) or not {"name", "kind", "categories", "fill"} <= set(data) <= known:
            raise FileFormatError(
                "A column of the schema must have a name, a kind, categories and a fill, and nothing that is unknown."
            )
        lists = {"categories", *LISTS} & set(data)
        if not all(isinstance(data[name], list) for name in lists):
            raise FileFormatError(f"The {', '.join(sorted(lists))} of a column of the schema must be lists.")
        try:
            column = cls(**data | {name: _as_tuples(data[name]) for name in lists})
        except (InvalidInputError, TypeError) as error:
            raise FileFormatError(f"The schema holds a column that cannot be: {error}") from error
        if column.marks_missing and not (column.effects if column.kind == "levels" else column.typical):
            raise FileFormatError(
                f"Column {column.name!r} of the schema marks missing cells, and has no features for them."
            )
        return column

    def _check_categories(self) -> None:
        if not all(isinstance(category, str) for category in self.categories):
            raise InvalidInputError(f"The categories of column {self.name!r} must be text.")
        most = {"categorical": MAX_CATEGORIES, "levels": MAX_LEVELS, "ordered": MAX_LEVELS}.get(self.kind, 0)
        in_order = self.kind == "ordered" or list(self.categories) == sorted(self.categories)
        different = len(set(self.categories)) == len(self.categories)
        if not (min(most, 1) <= len(self.categories) <= most and in_order and different):
            raise InvalidInputError(
                f"The {self.kind} column {self.name!r} cannot have the {len(self.categories)} categories given; a "
                f"categorical one has 1 to {MAX_CATEGORIES}, one of levels up to {MAX_LEVELS}, sorted and different."
            )

    def _check_numbers(self) -> None:
        is_levels, is_marked = self.kind == "levels", self.marks_missing
        num_shares = len(self.categories) + is_marked if self.kind == "categorical" else TYPICAL
        num_levels = len(self.categories) + is_marked if self.effects else 0
        width = len(self.dims)
        rows = (*self.effects, *self.effect_sd, self.prior_sd)
        is_shaped = (
            len(self.typical) in (0, num_shares)
            and (is_levels or not self.effects)
            and len(self.effects) == len(self.effect_sd) == num_levels
            and all(isinstance(row, tuple) and len(row) == width for row in rows)
        )
        is_named = bool(width) == is_levels and all(isinstance(name, str) for name in self.dims)
        if not (is_shaped and is_named and all(map(_is_float, (*self.typical, *chain.from_iterable(rows))))):
            raise InvalidInputError(
                f"The numbers of the {self.kind} column {self.name!r} must be finite, and as many as it needs."
            )
        spreads = (*chain.from_iterable(self.effect_sd), *self.prior_sd)
        shares = self.typical if self.kind == "categorical" else (1.0,)
        if min((*spreads, *shares), default=0.0) < 0.0 or (shares and not any(shares)):
            raise InvalidInputError(f"Column {self.name!r} has a standard deviation or a share that cannot be.")

    def _is_value(self, value: object) -> bool:
        if self.kind in ("categorical", "levels"):
            return isinstance(value, str) and value in self.categories
        if self.kind == "boolean":
            return isinstance(value, bool)
        # The comparison is false for NaN and infinity, and exact for integers beyond the range of floats.
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def feature_slices(columns: Sequence[Column]) -> list[slice]:
    """The features of each column."""
    ends = accumulate((len(column.feature_names) for column in columns), initial=0)
    return [slice(start, stop) for start, stop in pairwise(ends)]


def _as_lists(value: Any) -> Any:
    return [list(item) if isinstance(item, tuple) else item for item in value] if isinstance(value, tuple) else value


def _as_tuples(value: list[Any]) -> tuple[Any, ...]:
    """A list of lists as tuples; deeper lists are refused later."""
    return tuple(tuple(item) if isinstance(item, list) else item for item in value)


def _is_float(value: object) -> bool:
    return type(value) is float and abs(value) <= sys.float_info.max


Impute = Literal["mean", "median", "drop"]


@dataclass(frozen=True, slots=True)
class Schema:
    """The target and the encoded columns of a table."""

    target: str | tuple[str, ...]
    columns: tuple[Column, ...]
    """The features, in order."""
    impute: Impute | None = None
    """The rule for missing values; None if the model learns from them."""
    n_dropped: int = field(default=0, compare=False)
    """Rows of the training table that the rule "drop" left out."""
    reading: Reading = field(default_factory=Reading, compare=False)
    """How the text of the training table was read."""
    unused: tuple[str, ...] = field(default=(), compare=False)
    """Columns of the training table that are neither target nor feature."""

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
        fills = self.impute not in (None, "drop")
        wrong = [c for c in self.columns if (c.fill is not None) != fills and not self._learns_from_gaps(c)]
        if wrong:
            raise InvalidInputError(f"With impute={self.impute!r}, {'all' if fills else 'no'} columns have a fill.")
        if type(self.n_dropped) is not int or not 0 <= self.n_dropped <= MAX_COUNT:
            raise InvalidInputError(
                f"The number of dropped rows must be an integer, got {reprlib.repr(self.n_dropped)}."
            )
        if not all(isinstance(name, str) for name in self.unused):
            raise InvalidInputError(f"Unused columns must be names, got {reprlib.repr(self.unused)}.")

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

    def _learns_from_gaps(self, column: Column) -> bool:
        return self.impute is None and column.marks_missing

    def to_json(self) -> dict[str, Any]:
        """The schema as a dictionary of JSON types."""
        return {
            "target": self.target if isinstance(self.target, str) else list(self.target),
            "columns": [column.to_json() for column in self.columns],
            "impute": self.impute,
            "n_dropped": self.n_dropped,
            "reading": self.reading.to_json(),
            "unused": list(self.unused),
        }

    @classmethod
    def from_json(cls, data: object) -> Schema:
        """The schema of such a dictionary, which may come from an untrusted file."""
        if not isinstance(data, dict) or set(data) != {"target", "columns", "impute", "n_dropped", "reading", "unused"}:
            raise FileFormatError(
                "A schema must have exactly a target, columns, impute, n_dropped, how it was read and unused columns."
            )
        if not isinstance(data["columns"], list):
            raise FileFormatError("The columns of a schema must be a list.")
        columns = tuple(Column.from_json(column) for column in data["columns"])
        target = tuple(data["target"]) if isinstance(data["target"], list) else data["target"]
        reading, unused = Reading.from_json(data["reading"]), data["unused"]
        if not isinstance(unused, list):
            raise FileFormatError("The unused columns of a schema must be a list.")
        try:
            return cls(target, columns, data["impute"], data["n_dropped"], reading, tuple(unused))
        except InvalidInputError as error:
            raise FileFormatError(f"The schema cannot be used: {error}") from error


def check_rule(impute: object) -> None:
    """Refuse a rule for missing values that does not exist."""
    if impute is not None and impute not in get_args(Impute):
        raise InvalidInputError(
            f"The rule for missing values must be one of {get_args(Impute)} or None, got {reprlib.repr(impute)}."
        )
