"""How a table becomes a numeric matrix: learned from the training table, kept with the model.

A schema is plain data. It is stored as JSON and checked when it is read, so a file can make it fail but not act.
"""

from __future__ import annotations

import reprlib  # what comes from a file may be too long or too deep for repr
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Literal, get_args

from cvgp.data.reading import Reading
from cvgp.errors import CVGPWarning, FileFormatError, InvalidInputError

Kind = Literal["numeric", "boolean", "categorical"]
Impute = Literal["mean", "median", "drop"]

MAX_CATEGORIES = 50


@dataclass(frozen=True, slots=True)
class Column:
    """How one column of a table is encoded.

    Parameters
    ----------
    name : str
        The column's name in the table.
    kind : {"numeric", "boolean", "categorical"}
        As itself, as 0 and 1, or as one indicator per category.
    categories : tuple of str
        The categories in order, if the kind is categorical.
    fill : float, bool or str, optional
        What stands in for a missing value; None where there must be none.
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    fill: float | bool | str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.kind not in get_args(Kind):
            raise InvalidInputError(
                f"A column has a name and a kind of {get_args(Kind)}, got {reprlib.repr((self.name, self.kind))}."
            )
        if not all(isinstance(category, str) for category in self.categories):
            raise InvalidInputError(f"The categories of column {self.name!r} must be text.")
        n_allowed = range(1, MAX_CATEGORIES + 1) if self.kind == "categorical" else range(1)
        if len(self.categories) not in n_allowed or list(self.categories) != sorted(set(self.categories)):
            raise InvalidInputError(
                f"The {self.kind} column {self.name!r} cannot have the {len(self.categories)} categories given; a "
                f"categorical one has 1 to {MAX_CATEGORIES}, sorted and different."
            )
        if self.fill is not None and not self._is_value(self.fill):
            raise InvalidInputError(
                f"The {self.kind} column {self.name!r} cannot be filled with {reprlib.repr(self.fill)}."
            )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the numbers that stand for a cell, such as `color=blue` and `color=red`."""
        if self.kind == "categorical":
            return tuple(f"{self.name}={category}" for category in self.categories)
        return (self.name,)

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON types."""
        return {"name": self.name, "kind": self.kind, "categories": list(self.categories), "fill": self.fill}

    @classmethod
    def from_json(cls, data: object) -> Column:
        """The column of such a dictionary, which may come from an untrusted file."""
        if not isinstance(data, dict) or set(data) != {"name", "kind", "categories", "fill"}:
            raise FileFormatError("A column of the schema must have exactly a name, a kind, categories and a fill.")
        if not isinstance(data["categories"], list):
            raise FileFormatError("The categories of a column of the schema must be a list.")
        try:
            return cls(data["name"], data["kind"], tuple(data["categories"]), data["fill"])
        except InvalidInputError as error:
            raise FileFormatError(f"The schema holds a column that cannot be: {error}") from error

    def _is_value(self, value: object) -> bool:
        if self.kind == "categorical":
            return isinstance(value, str) and value in self.categories
        if self.kind == "boolean":
            return isinstance(value, bool)
        # The comparison is false for NaN and infinity, and exact for integers beyond the range of floats.
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


@dataclass(frozen=True, slots=True)
class Schema:
    """The target and the encoded columns of a table.

    Parameters
    ----------
    target : str
        The column to predict.
    columns : tuple of Column
        The other columns, in the order of the features.
    impute : {"mean", "median", "drop"}, optional
        The rule for missing values; None where they are an error.
    n_dropped : int
        How many rows of the training table the rule "drop" left out; no part of the schema's value.
    reading : Reading, optional
        How the text of the training table was read; no part of the schema's value.

    Examples
    --------
    >>> color = Column("color", "categorical", categories=("blue", "red"))
    >>> Schema("price", (color, Column("size", "numeric"))).feature_names
    ('color=blue', 'color=red', 'size')
    """

    target: str
    columns: tuple[Column, ...]
    impute: Impute | None = None
    n_dropped: int = field(default=0, compare=False)
    reading: Reading = field(default_factory=Reading, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.target, str):
            raise InvalidInputError(f"The target must be the name of a column, got {reprlib.repr(self.target)}.")
        check_rule(self.impute)
        names = [self.target, *(column.name for column in self.columns)]
        if not self.columns or len(set(names)) < len(names):
            raise InvalidInputError(f"A schema has a target and at least one other column, all different; got {names}.")
        if len(set(self.feature_names)) < len(self.feature_names):
            raise InvalidInputError(
                "One-hot encoding gives two features the same name, as with a column 'a=b' beside a column 'a' that "
                "holds 'b'; rename one of the columns."
            )
        fills = self.impute not in (None, "drop")
        if any((column.fill is not None) != fills for column in self.columns):
            raise InvalidInputError(f"With impute={self.impute!r}, {'all' if fills else 'no'} columns have a fill.")
        if type(self.n_dropped) is not int or self.n_dropped < 0:
            raise InvalidInputError(
                f"The number of dropped rows must be an integer, got {reprlib.repr(self.n_dropped)}."
            )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the columns of the encoded matrix."""
        return tuple(name for column in self.columns for name in column.feature_names)

    def to_json(self) -> dict[str, Any]:
        """The schema as a dictionary of JSON types."""
        return {
            "target": self.target,
            "columns": [column.to_json() for column in self.columns],
            "impute": self.impute,
            "n_dropped": self.n_dropped,
            "reading": self.reading.to_json(),
        }

    @classmethod
    def from_json(cls, data: object) -> Schema:
        """The schema of such a dictionary, which may come from an untrusted file."""
        if not isinstance(data, dict) or set(data) - {"reading"} != {"target", "columns", "impute", "n_dropped"}:
            raise FileFormatError("A schema must have exactly a target, columns, impute and n_dropped.")
        if not isinstance(data["columns"], list):
            raise FileFormatError("The columns of a schema must be a list.")
        columns = tuple(Column.from_json(column) for column in data["columns"])
        reading = Reading.from_json(data["reading"]) if "reading" in data else Reading()  # older files have none
        try:
            return cls(data["target"], columns, data["impute"], data["n_dropped"], reading)
        except InvalidInputError as error:
            raise FileFormatError(f"The schema cannot be used: {error}") from error


def feature_slices(columns: Sequence[Column]) -> list[slice]:
    """Which features stand for each column."""
    ends = accumulate((len(column.feature_names) for column in columns), initial=0)
    return [slice(start, stop) for start, stop in pairwise(ends)]


def check_rule(impute: object) -> None:
    """Refuse a rule for missing values that does not exist."""
    if impute is not None and impute not in get_args(Impute):
        raise InvalidInputError(
            f"The rule for missing values must be one of {get_args(Impute)} or None, got {reprlib.repr(impute)}."
        )


def warn_unknown(unknown: Mapping[str, int]) -> None:
    """Say how many cells hold a category that the training table did not have, if any do."""
    if unknown:
        counts = ", ".join(f"{name!r} {count}" for name, count in unknown.items())
        warnings.warn(
            f"Cells with a category that the training table did not have: {counts}; they are encoded as none of the "
            "known ones.",
            CVGPWarning,
            stacklevel=3,
        )
