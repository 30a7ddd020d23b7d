"""How a table becomes a numeric matrix: learned from the training table, kept with the model.

A schema is plain data. It is stored as JSON and checked when it is read, so a file can make it fail but not act.
"""

from __future__ import annotations

import reprlib  # what comes from a file may be too long or too deep for repr
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from cvgp.data.columns import MAX_COUNT, Column
from cvgp.data.reading import Reading
from cvgp.errors import FileFormatError, InvalidInputError

Impute = Literal["mean", "median", "drop"]


@dataclass(frozen=True, slots=True)
class Schema:
    """The target and the encoded columns of a table.

    Parameters
    ----------
    target : str or tuple of str
        The column to predict, or several.
    columns : tuple of Column
        The other columns, in the order of the features.
    impute : {"mean", "median", "drop"}, optional
        The rule for missing values; None where the model learns from them: a column that had some has a feature that
        says so, and a column that had none is integrated out.
    n_dropped : int
        How many rows of the training table the rule "drop" left out; no part of the schema's value.
    reading : Reading, optional
        How the text of the training table was read; no part of the schema's value.
    unused : tuple of str
        The columns of the training table that are neither target nor feature; no part of the schema's value.

    Examples
    --------
    >>> color = Column("color", "categorical", categories=("blue", "red"))
    >>> Schema("price", (color, Column("size", "numeric"))).feature_names
    ('color=blue', 'color=red', 'size')
    """

    target: str | tuple[str, ...]
    columns: tuple[Column, ...]
    impute: Impute | None = None
    n_dropped: int = field(default=0, compare=False)
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
        if not isinstance(data, dict) or set(data) - {"reading", "unused"} != {
            "target",
            "columns",
            "impute",
            "n_dropped",
        }:
            raise FileFormatError("A schema must have exactly a target, columns, impute and n_dropped.")
        if not isinstance(data["columns"], list):
            raise FileFormatError("The columns of a schema must be a list.")
        columns = tuple(Column.from_json(column) for column in data["columns"])
        target = tuple(data["target"]) if isinstance(data["target"], list) else data["target"]
        # Older files have neither of these.
        reading = Reading.from_json(data["reading"]) if "reading" in data else Reading()
        unused = data.get("unused", [])
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
