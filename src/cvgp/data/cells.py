"""What the cells of a pandas column hold, whichever of pandas' many types store them.

A column of numbers may be a NumPy array, a nullable array, an Arrow array, a dictionary or a list of objects; the
functions here give the same answer for all of them.
"""

from __future__ import annotations

import re
import reprlib  # a cell may be too long to be shown in full
from collections.abc import Callable
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
from pandas.api.types import infer_dtype

from cvgp.errors import InvalidInputError, InvalidTypeError

__all__ = ["Kind", "is_missing", "kind_of", "labels", "numbers", "spells_number", "time_error", "truths"]

Kind = Literal["numeric", "boolean", "categorical"]
FloatArray = npt.NDArray[np.float64]

# pandas' words for the content of a column of objects
_KINDS: dict[str, Kind] = {
    "boolean": "boolean",
    "decimal": "numeric",
    "floating": "numeric",
    "integer": "numeric",
    "mixed-integer-float": "numeric",
    "string": "categorical",
}
_DATE_ADVICE = "the days since a fixed date, the month, the day of the week or the hour"
_DURATION_ADVICE = "the total seconds"
_TIME_ADVICE = {
    "date text": ("text that looks like dates", _DATE_ADVICE),
    "date": ("dates", _DATE_ADVICE),
    "datetime": ("dates", _DATE_ADVICE),
    "datetime64": ("dates", _DATE_ADVICE),
    "period": ("periods", _DATE_ADVICE),
    "time": ("times of day", "the seconds since midnight"),
    "timedelta": ("durations", _DURATION_ADVICE),
    "timedelta64": ("durations", _DURATION_ADVICE),
}
_ISO_DATE = re.compile(
    r"\s*\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
    r"([T ]\d{2}:\d{2}(:\d{2}([.,]\d+)?)?\s*(Z|[+-]\d{2}(:?\d{2})?)?)?\s*"
)


def kind_of(column: pd.Series[Any]) -> Kind:
    """How a column with at least one value is to be encoded; dates, durations and mixtures are refused."""
    if column.dtype.kind == "b":
        return "boolean"
    if column.dtype.kind in "iuf":
        return "numeric"
    cells = column.astype(object)
    content = infer_dtype(cells, skipna=True)
    if content in _TIME_ADVICE:
        raise time_error(column.name, content)
    if content == "string" and all(_ISO_DATE.fullmatch(text) for text in cells.dropna().unique()):
        raise time_error(column.name, "date text")
    if _is_dictionary(column):
        return "categorical"
    if content not in _KINDS:
        raise InvalidTypeError(
            f"Column {column.name!r} holds {content} values ({column.dtype}), but a column must hold only numbers, "
            "only true and false, or only text; convert it to one of these or leave it out."
        )
    return _KINDS[content]


def time_error(name: object, content: str) -> InvalidTypeError:
    """The refusal of a column of times, with `content` as pandas calls it."""
    found, numbers = _TIME_ADVICE[content]
    return InvalidTypeError(
        f"Column {name!r} holds {found}, which are not encoded by themselves; put numbers in its place that "
        f"matter for the target, such as {numbers}, or leave it out."
    )


def is_missing(column: pd.Series[Any]) -> npt.NDArray[np.bool_]:
    """Mark the cells without a value; NaN is one, also where pandas tells it from NA."""
    missing = column.isna().to_numpy(dtype=bool)
    if column.dtype.kind == "f":
        missing = missing | np.isnan(column.to_numpy(dtype=np.float64, na_value=np.nan))
    return missing


def numbers(column: pd.Series[Any]) -> FloatArray:
    """The column as float64, NaN where a value is missing; true and false count as 1 and 0."""
    if column.dtype.kind in "biuf":
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        values = _convert(column, "numbers", _is_number, spells_number)
    infinite = np.isinf(values)
    if infinite.any():
        raise InvalidInputError(
            f"Column {column.name!r} holds {int(infinite.sum())} infinite or overflowing values, the first in data row "
            f"{int(infinite.argmax()) + 1}; replace them by finite numbers, or leave the cells empty to treat them as "
            "missing."
        )
    return values


def truths(column: pd.Series[Any]) -> FloatArray:
    """The column as 1 for true, 0 for false and NaN where a value is missing; numbers 0 and 1 count as well."""
    if column.dtype.kind == "b":
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return _convert(column, "true and false", _is_truth, _spells_truth)


def labels(column: pd.Series[Any]) -> tuple[npt.NDArray[np.intp], list[str]]:
    """Codes [n] into a list of category names; -1 where a value is missing.

    Whole numbers have the name of the integer, since a table that holds `1` as text in one file may hold it as an
    integer, or as 1.0 beside missing values, in another.
    """
    try:
        codes, values = pd.factorize(column.astype(object))
    except TypeError as error:
        raise InvalidTypeError(
            f"Column {column.name!r} must hold text, but its cells are lists or the like."
        ) from error
    return codes, [_label(value) for value in values]


def spells_number(cell: Any) -> bool:
    """Tell whether a cell, such as one of text, could be read as a number."""
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True


def _label(cell: Any) -> str:
    is_whole = isinstance(cell, (float, np.floating)) and cell.is_integer()
    return str(int(cell)) if is_whole else str(cell)


def _is_dictionary(column: pd.Series[Any]) -> bool:
    dtype = column.dtype
    if isinstance(dtype, pd.ArrowDtype):
        return bool(pa.types.is_dictionary(dtype.pyarrow_dtype))
    return isinstance(dtype, pd.CategoricalDtype)


def _convert(
    column: pd.Series[Any], expected: str, accepts: Callable[[Any], bool], spells: Callable[[Any], bool]
) -> FloatArray:
    """Cells of any type as floats; the error names the first that is not what was expected.

    One word in a file makes text of the whole column, so text that spells a value is blamed only if all of it does.
    """
    cells = column.astype(object).to_numpy()
    present = np.flatnonzero(~is_missing(column))
    wrong = [row for row in present if not accepts(cells[row])]
    if wrong:
        first = next((row for row in wrong if not spells(cells[row])), wrong[0])
        found = reprlib.repr(cells[first])
        raise InvalidTypeError(
            f"Column {column.name!r} must hold {expected}, but data row {first + 1} holds {found}; correct it, or "
            "leave the cell empty if the value is missing."
        )
    values = np.full(len(cells), np.nan)
    values[present] = [_to_float(cells[row]) for row in present]
    return values


def _to_float(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:
        return np.inf


def _is_number(cell: Any) -> bool:
    return isinstance(cell, (Real, Decimal, np.bool_))


def _is_truth(cell: Any) -> bool:
    return isinstance(cell, (bool, np.bool_)) or (isinstance(cell, Real) and cell in (0, 1))


def _spells_truth(cell: Any) -> bool:
    return str(cell).strip().lower() in {"true", "false", "0", "1"}
