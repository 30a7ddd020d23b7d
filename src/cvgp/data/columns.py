"""One column of a table, and the numbers that stand for it."""

from __future__ import annotations

import reprlib  # what comes from a file may be too long or too deep for repr
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from cvgp.data.cells import Kind, is_missing, kind_of, labels, numbers, spells_number, truths
from cvgp.errors import FileFormatError, InvalidInputError

__all__ = ["MAX_CATEGORIES", "Column", "Impute"]

Impute = Literal["median", "mean", "most_frequent", "drop"]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

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

    @classmethod
    def learn(cls, column: pd.Series[Any], impute: Impute | None = None) -> Column:
        """Find out the kind of a column, its categories, and the value that fills its gaps.

        The mean and the median of text and of true and false are the most frequent value; the first in order if
        several are equally frequent.
        """
        name = str(column.name)
        present = column[~is_missing(column)]
        if present.empty:
            raise InvalidInputError(f"Column {name!r} holds no values at all; leave it out.")
        kind = kind_of(present)
        rule = None if impute == "drop" else impute
        if kind == "categorical":
            codes, names = labels(present)
            cells = np.array(names, dtype=object)[codes]
            categories, counts = np.unique(cells, return_counts=True)
            _check_categories(name, categories.tolist(), names, len(cells))
            fill = str(categories[counts.argmax()]) if rule else None
            return cls(name, kind, tuple(categories.tolist()), fill)
        if kind == "boolean":
            return cls(name, kind, fill=bool(truths(present).mean() > 0.5) if rule else None)
        values = numbers(present)  # checks them, whether or not there is anything to fill
        return cls(name, kind, fill=_typical(values, rule) if rule else None)

    def encode(self, column: pd.Series[Any]) -> tuple[FloatArray, BoolArray]:
        """The column as numbers [n, width], and which cells [n] hold a category that was not learned.

        Such a cell has no indicator set. Where a value is missing and there is no `fill`, the numbers are NaN.
        """
        if self.kind == "categorical":
            return self.encode_codes(*labels(column))
        values = numbers(column) if self.kind == "numeric" else truths(column)
        if self.fill is not None:
            values = np.where(np.isnan(values), float(self.fill), values)
        return values[:, None], np.zeros(len(values), dtype=np.bool_)

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

    def encode_codes(self, codes: npt.NDArray[np.intp], names: Sequence[str]) -> tuple[FloatArray, BoolArray]:
        """As :meth:`encode`, for text that is given as codes [n] into a list of names, -1 where it is missing."""
        position = {category: index for index, category in enumerate(self.categories)}
        # The code of a missing value is -1, which picks the last entry: that of the fill.
        lookup = np.array([position.get(name, -1) for name in [*names, str(self.fill)]])
        index = lookup[codes]  # [n]
        known = np.flatnonzero(index >= 0)
        values = np.zeros((len(codes), len(self.categories)))
        values[known, index[known]] = 1.0
        unfilled = (codes < 0) & (self.fill is None)
        values[unfilled] = np.nan
        return values, (index < 0) & ~unfilled

    def _is_value(self, value: object) -> bool:
        if self.kind == "categorical":
            return isinstance(value, str) and value in self.categories
        if self.kind == "boolean":
            return isinstance(value, bool)
        # The comparison is false for NaN and infinity, and exact for integers beyond the range of floats.
        return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _typical(values: FloatArray, rule: str) -> float:
    if rule == "median":
        return float(np.median(values))
    if rule == "mean":
        return float(np.mean(values))
    distinct, counts = np.unique(values, return_counts=True)
    return float(distinct[counts.argmax()])


def _check_categories(name: str, categories: Sequence[str], in_order: Sequence[str], n_rows: int) -> None:
    all_differ = len(categories) == n_rows > 1
    if len(categories) <= MAX_CATEGORIES and not all_differ:
        return
    found = "a different text in every row" if all_differ else f"{len(categories)} different texts"
    odd = [text for text in in_order if not spells_number(text)]
    if not odd:
        advice = "all of it spells numbers: convert the column to numbers"
    elif len(odd) < len(in_order) / 2:
        advice = f"most of it spells numbers: correct what does not, such as {odd[0]!r}, or leave those cells empty"
    else:
        advice = "leave it out if it only names the rows, or group its values into fewer"
    raise InvalidInputError(
        f"Column {name!r} holds {found}, but text is encoded as categories, at most {MAX_CATEGORIES} and fewer than "
        f"rows; {advice}."
    )
