"""What one column of a table is, and the numbers that stand for its cells: learned from the training table.

A column is plain data. It is stored as JSON and checked when it is read, so a file can make it fail but not act.
"""

from __future__ import annotations

import reprlib  # what comes from a file may be too long or too deep for repr
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, chain, pairwise
from typing import Any, Literal, get_args

from cvgp.data.calendar import PART_FEATURES
from cvgp.errors import FileFormatError, InvalidInputError

Kind = Literal["numeric", "boolean", "categorical", "levels", "ordered", "date"]

MAX_CATEGORIES = 50
"""Indicators of a column in a file; a fit makes fewer."""
MAX_LEVELS = 10_000
"""Levels with an effect of their own: the most frequent ones. Others count as unknown."""
MAX_COUNT = 2**53
"""Rows that a file may speak of."""
TYPICAL = 16
"""Values that stand for the distribution of a column."""
LISTS = ("typical", "dims", "effects", "doubts", "prior_sd", "parts")


@dataclass(frozen=True, slots=True)
class Column:
    """How one column of a table is encoded.

    Parameters
    ----------
    name : str
        The column's name in the table.
    kind : {"numeric", "boolean", "categorical", "levels", "ordered", "date"}
        As itself, as 0 and 1, as one indicator per category, as the effect of its level on the target, as the position
        among ordered categories, or as parts of a date.
    categories : tuple of str
        The categories in order, of text.
    fill : float, bool or str, optional
        What stands in for a missing value; None where nothing does.
    n_missing : int
        How many cells were missing in the training table; no part of the column's value.
    marks_missing : bool
        Whether a feature of its own says that the cell is missing; among levels, missing is a level of its own.
    typical : tuple of float
        The distribution in the training table: quantiles of numbers, true and false, positions and days, or the share
        of each category. A cell of which nothing is known is integrated out over it.
    dims : tuple of str
        Of levels: the names of the features that a level is embedded by, its effect on the target and slopes in others.
    effects, doubts : tuple of tuples of float
        Of levels: the features of each, and the standard deviations of what is not known of them beyond what a typical
        training row does not know. The last ones are those of missing cells, if they are marked.
    prior_sd : tuple of float
        Of levels: the standard deviations of the features of a level that was never seen.
    parts : tuple of str
        Of dates: which parts become features.
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    fill: float | bool | str | None = None
    n_missing: int = 0
    marks_missing: bool = False
    typical: tuple[float, ...] = ()
    dims: tuple[str, ...] = ()
    effects: tuple[tuple[float, ...], ...] = ()
    doubts: tuple[tuple[float, ...], ...] = ()
    prior_sd: tuple[float, ...] = ()
    parts: tuple[str, ...] = ()

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
        """The names of the numbers that stand for a cell, such as `color=blue` and `color=red`."""
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
                f"Column {column.name!r} of the schema marks missing cells, and does not say what stands for them."
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
        rows = (*self.effects, *self.doubts, self.prior_sd)
        is_shaped = (
            len(self.typical) in (0, num_shares)
            and (is_levels or not self.effects)
            and len(self.effects) == len(self.doubts) == num_levels
            and all(isinstance(row, tuple) and len(row) == width for row in rows)
        )
        is_named = bool(width) == is_levels and all(isinstance(name, str) for name in self.dims)
        if not (is_shaped and is_named and all(map(_is_float, (*self.typical, *chain.from_iterable(rows))))):
            raise InvalidInputError(
                f"The numbers of the {self.kind} column {self.name!r} must be finite, and as many as it needs."
            )
        spreads = (*chain.from_iterable(self.doubts), *self.prior_sd)
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
    """Which features stand for each column."""
    ends = accumulate((len(column.feature_names) for column in columns), initial=0)
    return [slice(start, stop) for start, stop in pairwise(ends)]


def _as_lists(value: Any) -> Any:
    return [list(item) if isinstance(item, tuple) else item for item in value] if isinstance(value, tuple) else value


def _as_tuples(value: list[Any]) -> tuple[Any, ...]:
    """Of a list of lists: what is deeper is refused later."""
    return tuple(tuple(item) if isinstance(item, list) else item for item in value)


def _is_float(value: object) -> bool:
    return type(value) is float and abs(value) <= sys.float_info.max
