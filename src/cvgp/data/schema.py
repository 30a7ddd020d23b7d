"""How a table becomes a numeric matrix: learned from the training table, kept with the model.

A schema is plain data. It is stored as JSON and checked when it is read, so a file can make it fail but not act.
"""

from __future__ import annotations

import reprlib  # what comes from a file may be too long or too deep for repr
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from cvgp.data.cells import is_missing, numbers
from cvgp.data.columns import Column, Impute
from cvgp.errors import CVGPWarning, FileFormatError, InvalidInputError, InvalidTypeError

__all__ = ["Schema", "warn_unknown"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

_RULES = get_args(Impute)
_OPTION = f"--impute {'|'.join(_RULES)}"


@dataclass(frozen=True, slots=True)
class Schema:
    """The target and the encoded columns of a table.

    Parameters
    ----------
    target : str
        The column to predict.
    columns : tuple of Column
        The other columns, in the order of the features.
    impute : {"median", "mean", "most_frequent", "drop"}, optional
        The rule for missing values; None where they are an error.
    n_dropped : int
        How many rows of the training table the rule "drop" left out; no part of the schema's value.

    Examples
    --------
    >>> frame = pd.DataFrame({"color": ["red", "blue", "red"], "size": [1.0, 2.0, 3.0], "price": [5.0, 7.0, 9.0]})
    >>> schema = Schema.learn(frame, target="price")
    >>> schema.feature_names
    ('color=blue', 'color=red', 'size')
    >>> schema.encode(pd.DataFrame({"size": [4.0], "color": ["blue"]}))
    array([[1., 0., 4.]])
    """

    target: str
    columns: tuple[Column, ...]
    impute: Impute | None = None
    n_dropped: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.target, str):
            raise InvalidInputError(f"The target must be the name of a column, got {reprlib.repr(self.target)}.")
        _check_rule(self.impute)
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

    @classmethod
    def learn(cls, frame: pd.DataFrame, target: str, impute: Impute | None = None) -> Schema:
        """Learn the encoding from a training table.

        Parameters
        ----------
        frame : pandas.DataFrame
            The training table; every column but the target is a feature. Text becomes one indicator per category;
            dates are refused.
        target : str
            The name of the column to predict, which holds numbers.
        impute : {"median", "mean", "most_frequent", "drop"}, optional
            What to do about missing values: fill them with this of the column (with the most frequent value where
            the column holds text, or true and false), or drop the rows. By default they are an error. A row without
            target can only be dropped.
        """
        _check_rule(impute)
        _check_table(frame)
        if target not in frame.columns:
            raise InvalidInputError(f"There is no column {target!r} for the target; choose from {list(frame.columns)}.")
        names = [name for name in frame.columns if name != target]
        if not names or frame.empty:
            raise InvalidInputError(
                f"A training table needs rows and at least one column beside the target {target!r}; got a table of "
                f"{len(frame)} rows and the columns {list(frame.columns)}."
            )
        kept = frame[_complete_rows(frame, list(frame.columns))] if impute == "drop" else frame
        if kept.empty:
            counts = _missing_counts(frame, [*names, target])
            raise InvalidInputError(
                f"Every row has a missing value, so dropping leaves none: {counts}; leave out the emptiest columns or "
                "use another rule for missing values."
            )
        columns = tuple(Column.learn(kept[name], impute) for name in names)
        if impute is None:
            _refuse_missing(kept, names, f"fill them or choose a rule, impute=... in Python or {_OPTION}")
        _encode_target(frame[target], allow_missing=impute == "drop")
        return cls(target, columns, impute, n_dropped=len(frame) - len(kept))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the columns of the encoded matrix."""
        return tuple(name for column in self.columns for name in column.feature_names)

    def complete_rows(self, frame: pd.DataFrame, with_target: bool = False) -> BoolArray:
        """Mark the rows [n] in which no value of the features, and of the target if asked, is missing."""
        names = [column.name for column in self.columns] + ([self.target] if with_target else [])
        _check_present(frame, names)
        return _complete_rows(frame, names)

    def encode(self, frame: pd.DataFrame) -> FloatArray:
        """The features of a table as a matrix [n, D].

        Columns are found by name; those the schema does not know are ignored. A category that the training table
        did not have gets no indicator, and a warning counts such cells.

        Parameters
        ----------
        frame : pandas.DataFrame
            A table with the columns of the training table; the target may be absent.
        """
        names = [column.name for column in self.columns]
        _check_present(frame, names)
        if self.impute is None:
            _refuse_missing(frame, names, f"fill them, or fit the model again with a rule ({_OPTION})")
        elif self.impute == "drop":
            _refuse_missing(frame, names, "the model's rule is to drop such rows, so remove them first")
        values, unknown = self.encode_cells(frame, np.ones(len(frame), dtype=np.bool_))
        warn_unknown(unknown)
        return values

    def encode_target(self, frame: pd.DataFrame) -> FloatArray:
        """The target of a table as a vector [n]; a missing value is an error, since nothing can stand in for it.

        Parameters
        ----------
        frame : pandas.DataFrame
            A table with the target's column.
        """
        _check_present(frame, [self.target])
        return _encode_target(frame[self.target])

    def encode_both(self, frame: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
        """Features [n, D] and target [n] of a table; under the rule "drop" without its incomplete rows.

        Parameters
        ----------
        frame : pandas.DataFrame
            A table with all columns of the training table.
        """
        if self.impute != "drop":
            return self.encode(frame), self.encode_target(frame)
        rows = self.complete_rows(frame, with_target=True)
        values, unknown = self.encode_cells(frame, rows)
        warn_unknown(unknown)
        return values, _encode_target(frame[self.target], allow_missing=True)[rows]

    def to_json(self) -> dict[str, Any]:
        """The schema as a dictionary of JSON types."""
        return {
            "target": self.target,
            "columns": [column.to_json() for column in self.columns],
            "impute": self.impute,
            "n_dropped": self.n_dropped,
        }

    @classmethod
    def from_json(cls, data: object) -> Schema:
        """The schema of such a dictionary, which may come from an untrusted file."""
        if not isinstance(data, dict) or set(data) != {"target", "columns", "impute", "n_dropped"}:
            raise FileFormatError("A schema must have exactly a target, columns, impute and n_dropped.")
        if not isinstance(data["columns"], list):
            raise FileFormatError("The columns of a schema must be a list.")
        columns = tuple(Column.from_json(column) for column in data["columns"])
        try:
            return cls(data["target"], columns, data["impute"], data["n_dropped"])
        except InvalidInputError as error:
            raise FileFormatError(f"The schema cannot be used: {error}") from error

    def encode_cells(self, frame: pd.DataFrame, rows: BoolArray) -> tuple[FloatArray, Counter[str]]:
        """The features of some rows of a table, and how many cells of each column hold a category of no name.

        It is for callers who have looked for missing values themselves.
        """
        # All rows are encoded before some are left out, so that errors count them as the table does.
        parts, unknown = [], Counter[str]()
        for column in self.columns:
            values, is_unknown = column.encode(frame[column.name])
            parts.append(values[rows])
            if np.any(is_unknown[rows]):
                unknown[column.name] = int(np.sum(is_unknown[rows]))
        return np.hstack(parts), unknown


def warn_unknown(unknown: Mapping[str, int]) -> None:
    """Say how many cells hold a category that the training table did not have, if any do."""
    if unknown:
        warnings.warn(
            f"Cells with a category that the training table did not have: {_listing(unknown)}; they are encoded as "
            "none of the known ones.",
            CVGPWarning,
            stacklevel=3,
        )


def _check_rule(impute: object) -> None:
    if impute is not None and impute not in _RULES:
        raise InvalidInputError(
            f"The rule for missing values must be one of {_RULES} or None, got {reprlib.repr(impute)}."
        )


def _check_table(frame: pd.DataFrame) -> None:
    if not isinstance(frame, pd.DataFrame):
        raise InvalidTypeError(f"Expected a pandas DataFrame, got {type(frame).__name__}; convert it to one.")
    names = list(frame.columns)
    if not all(isinstance(name, str) for name in names):
        raise InvalidTypeError(f"Column names must be text, got {names}; use frame.rename(columns=str).")
    if len(set(names)) < len(names):
        raise InvalidInputError(f"Column names must be unique, got {names}; rename the repeated ones.")


def _check_present(frame: pd.DataFrame, names: Sequence[str]) -> None:
    _check_table(frame)
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise InvalidInputError(
            f"The table lacks the columns {absent}, which the model was fitted with; it has {list(frame.columns)}. "
            "Add or rename them."
        )


def _complete_rows(frame: pd.DataFrame, names: Sequence[str]) -> BoolArray:
    missing = [is_missing(frame[name]) for name in names]
    return np.asarray(~np.logical_or.reduce(missing), dtype=np.bool_)


def _encode_target(column: pd.Series[Any], allow_missing: bool = False) -> FloatArray:
    values = numbers(column)
    missing = np.isnan(values)
    if missing.any() and not allow_missing:
        raise InvalidInputError(
            f"The target {column.name!r} has {int(missing.sum())} missing values, the first in data row "
            f"{int(missing.argmax()) + 1}; remove these rows, or fit with impute='drop' (--impute drop)."
        )
    return values


def _refuse_missing(frame: pd.DataFrame, names: Sequence[str], remedy: str) -> None:
    counts = _missing_counts(frame, names)
    if counts:
        first = int(np.argmin(_complete_rows(frame, names))) + 1
        raise InvalidInputError(f"Missing values by column: {counts}; the first in data row {first}; {remedy}.")


def _missing_counts(frame: pd.DataFrame, names: Sequence[str]) -> str:
    counts = {name: int(np.sum(is_missing(frame[name]))) for name in names}
    return _listing({name: count for name, count in counts.items() if count})


def _listing(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name!r} {count}" for name, count in counts.items())
