"""The columns of a table and the features that they become: learned from the training table, stored with the model.

A schema and its columns are plain data, stored as JSON. They are checked when they are made, also from a file that need
not be trusted.
"""

from __future__ import annotations

import math
import reprlib  # what comes from a file may be too long or too deep for repr
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import accumulate, chain, pairwise
from typing import Any, Literal, get_args

import numpy as np

from cvgp.data.rows import Array
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.tables.formats import Reading

YEAR, WEEK = 365.2425, 7.0
"""In days."""
FIRST_MONDAY = 4.0
"""The first Monday of 1970, in days since the year began on a Thursday."""
PART_FEATURES = {
    "trend": ("trend",),
    "season": ("season sin", "season cos"),
    "weekday": ("weekday sin", "weekday cos"),
    "hour": ("hour sin", "hour cos"),
}
"""The parts of a date, and the features that each becomes."""


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
Impute = Literal["mean", "median", "drop"]

MAX_INDICATORS = 10
"""Categories up to this many become one indicator each; more become the effects of levels."""
MAX_CATEGORIES = 50
"""Indicators of a column in a file; a fit makes fewer."""
MAX_LEVELS = 10_000
"""Levels with an effect of their own: the most frequent ones. Others count as unknown."""
MAX_COUNT = 2**53
TYPICAL = 16
"""Values that represent the distribution of a column."""


@dataclass(frozen=True, slots=True)
class Column:
    """How one column of a table is encoded."""

    name: str
    kind: Kind
    """As itself, as 0 and 1, as one indicator per category, as the effect of its level on the target, as the position
    among ordered categories, or as parts of a date."""
    categories: tuple[str, ...] = ()
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
            found = reprlib.repr((self.name, self.kind))
            raise InvalidInputError(f"A column has a name and a kind of {get_args(Kind)}, got {found}.")
        if problem := self._problem():
            raise InvalidInputError(f"The {self.kind} column {self.name!r} {problem}.")

    def _problem(self) -> str:
        """Why there can be no such column; empty if there can be."""
        texts, is_levels, is_marked = self.categories, self.kind == "levels", self.marks_missing
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
        return (*names, f"{self.name} is missing") if self.marks_missing else names

    @property
    def is_text(self) -> bool:
        """Whether a cell is one of some categories."""
        return self.kind in ("categorical", "levels", "ordered")

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON types."""
        return {name: _as_lists(value) for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: object) -> Column:
        """The column of such a dictionary, which may come from an untrusted file."""
        names = {own.name for own in fields(cls)}
        if not isinstance(data, dict) or set(data) != names:
            raise FileFormatError(f"A column of the schema must have exactly {', '.join(sorted(names))}.")
        lists = [own.name for own in fields(cls) if own.default == ()]
        if not all(isinstance(data[name], list) for name in lists):
            raise FileFormatError(f"The {', '.join(lists)} of a column of the schema must be lists.")
        try:
            column = cls(**data | {name: _as_tuples(data[name]) for name in lists})
        except (InvalidInputError, TypeError) as error:
            raise FileFormatError(f"The schema has an invalid column: {error}") from error
        if column.marks_missing and not (column.effects if column.kind == "levels" else column.typical):
            raise FileFormatError(f"Column {column.name!r} of the schema has no features for its missing cells.")
        return column


def feature_slices(columns: Sequence[Column]) -> list[slice]:
    """The features of each column."""
    ends = accumulate((len(column.feature_names) for column in columns), initial=0)
    return [slice(start, stop) for start, stop in pairwise(ends)]


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, tuple) else value


def _as_tuples(value: list[Any]) -> tuple[Any, ...]:
    """A list of lists as tuples; deeper lists are refused later."""
    return tuple(tuple(item) if isinstance(item, list) else item for item in value)


def _is_float(value: object) -> bool:
    return type(value) is float and abs(value) <= sys.float_info.max


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
        if any((c.fill is not None) != fills and (self.impute or not c.marks_missing) for c in self.columns):
            raise InvalidInputError(f"With impute={self.impute!r}, {'all' if fills else 'no'} columns have a fill.")
        is_counted = type(self.n_dropped) is int and 0 <= self.n_dropped <= MAX_COUNT
        if not is_counted or not all(isinstance(name, str) for name in self.unused):
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
    def from_json(cls, data: object) -> Schema:
        """The schema of such a dictionary, which may come from an untrusted file."""
        names = [own.name for own in fields(cls)]
        if not isinstance(data, dict) or set(data) != set(names):
            raise FileFormatError(f"A schema must have exactly {', '.join(names)}.")
        if not (isinstance(data["columns"], list) and isinstance(data["unused"], list)):
            raise FileFormatError("The columns and the unused columns of a schema must be lists.")
        columns = tuple(Column.from_json(column) for column in data["columns"])
        target = tuple(data["target"]) if isinstance(data["target"], list) else data["target"]
        reading, unused = Reading.from_json(data["reading"]), tuple(data["unused"])
        try:
            return cls(target, columns, data["impute"], data["n_dropped"], reading, unused)
        except InvalidInputError as error:
            raise FileFormatError(f"The schema cannot be used: {error}") from error


def check_rule(impute: object) -> None:
    """Raise if `impute` is not a known rule for missing values."""
    if impute is not None and impute not in get_args(Impute):
        raise InvalidInputError(
            f"The rule for missing values must be one of {get_args(Impute)} or None, got {reprlib.repr(impute)}."
        )
