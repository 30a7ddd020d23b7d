"""What the cells of an Arrow column hold: its kind, its numbers, its labels."""

import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cvgp.data.rows import Array
from cvgp.data.schema import MAX_CATEGORIES
from cvgp.errors import InvalidInputError, InvalidTypeError

_DATE_ADVICE = "the days since a fixed date, the month, the day of the week or the hour"
_ISO_DATE = re.compile(
    r"\s*\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
    r"([T ]\d{2}:\d{2}(:\d{2}([.,]\d+)?)?\s*(Z|[+-]\d{2}(:?\d{2})?)?)?\s*"
)


def kind_of_type(name: str, arrow_type: Any) -> str:
    """How a column of this type is encoded; `null` for a column without any value; times are refused."""
    types = pa.types
    if types.is_null(arrow_type):
        return "null"
    if types.is_boolean(arrow_type):
        return "boolean"
    if types.is_integer(arrow_type) or types.is_floating(arrow_type) or types.is_decimal(arrow_type):
        return "numeric"
    if types.is_dictionary(arrow_type):
        kind_of_type(name, arrow_type.value_type)
        return "categorical"
    if types.is_string(arrow_type) or types.is_large_string(arrow_type) or types.is_string_view(arrow_type):
        return "categorical"
    if types.is_time(arrow_type):
        raise _time_error(name, "times of day", "the seconds since midnight")
    if types.is_duration(arrow_type):
        raise _time_error(name, "durations", "the total seconds")
    if types.is_temporal(arrow_type):
        raise _time_error(name, "dates", _DATE_ADVICE)
    raise InvalidTypeError(
        f"Column {name!r} holds values of type {arrow_type}, but a column must hold only numbers, only true and false, "
        "or only text (in a text file: of one encoding, --encoding); convert it to one of these or leave it out."
    )


def numbers(name: str, column: pa.Array) -> Array:
    """Numbers, or true and false as 1 and 0; NaN where a value is missing."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    types = pa.types
    if types.is_null(column.type):
        return np.full(len(column), np.nan)
    if types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif types.is_decimal(column.type):
        column = column.cast(pa.float64())
    elif not (types.is_integer(column.type) or types.is_floating(column.type)):
        raise InvalidTypeError(
            f"Column {name!r} must hold numbers, but it is stored as {column.type}; store it as numbers."
        )
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def truths(name: str, column: pa.Array) -> Array:
    """1 for true, 0 for false and NaN where a value is missing; the numbers 0 and 1 count as well."""
    values = numbers(name, column)
    other = ~(np.isnan(values) | (values == 0.0) | (values == 1.0))
    if other.any():
        raise InvalidTypeError(f"Column {name!r} must hold true and false, but it holds {values[other][0]:g}.")
    return values


def labels(name: str, column: pa.Array) -> tuple[NDArray[np.int64], list[str]]:
    """Codes [n] into a list of category names; -1 where a value is missing.

    Whole numbers have the name of the integer, since a table that holds `1` as text in one file may hold it as an
    integer, or as 1.0 beside missing values, in another.
    """
    if kind_of_type(name, column.type) == "null":
        return np.full(len(column), -1), []
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    entries = encoded.dictionary.to_pylist()
    texts = [None if entry is None or entry != entry else _label(entry) for entry in entries]  # NaN is not itself
    code = {text: number for number, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
    of_entry = np.array([*(-1 if text is None else code[text] for text in texts), -1])
    entry = pc.fill_null(encoded.indices.cast(pa.int64()), len(entries)).to_numpy(zero_copy_only=False)
    return of_entry[entry], list(code)


def check_categories(name: str, texts: Sequence[str], num_cells: int) -> None:
    """Refuse text that cannot be categories: dates, too many different texts, or a different text in every cell."""
    if not texts:
        raise InvalidInputError(f"Column {name!r} holds no values at all; leave it out.")
    if are_dates(texts):
        raise _time_error(name, "text that looks like dates", _DATE_ADVICE)
    is_long = len(texts) > MAX_CATEGORIES
    if not is_long and not len(texts) == num_cells > 1:
        return
    found = f"more than {MAX_CATEGORIES} different texts" if is_long else "a different text in every row"
    odd = [text for text in texts if not _spells_number(text)]
    if not odd:
        advice = "all of it spells numbers: convert the column to numbers"
    elif spell_numbers(texts):
        advice = f"most of it spells numbers: correct what does not, such as {odd[0]!r}, or leave those cells empty"
    else:
        advice = "leave it out if it only names the rows, or group its values into fewer"
    raise InvalidInputError(
        f"Column {name!r} holds {found}, such as {texts[0]!r}, but text is encoded as categories, at most "
        f"{MAX_CATEGORIES} and fewer than rows; {advice}."
    )


def are_dates(texts: Collection[str]) -> bool:
    """Whether all of some texts are dates as ISO 8601 writes them."""
    return all(_ISO_DATE.fullmatch(text) for text in texts)


def spell_numbers(texts: Collection[str]) -> bool:
    """Whether most of some texts could be read as numbers."""
    return 2 * sum(map(_spells_number, texts)) > len(texts)


def _time_error(name: str, found: str, numbers: str) -> InvalidTypeError:
    return InvalidTypeError(
        f"Column {name!r} holds {found}, which are not encoded by themselves; put numbers in its place that "
        f"matter for the target, such as {numbers}, or leave it out."
    )


def _label(cell: Any) -> str:
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _spells_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
