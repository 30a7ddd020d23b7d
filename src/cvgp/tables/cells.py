"""What the cells of an Arrow column hold: its kind, and one number per cell."""

from __future__ import annotations

import re
import reprlib  # a cell may be very long
from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.tables.columns import MAX_INDICATORS, Column
from cvgp.tables.encode import MOST_SHOWN, UNKNOWN

SECONDS_PER_DAY = 86400.0
_DAY = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_TIME = r"\d{2}:\d{2}(:\d{2}([.,]\d+)?)?"
_ISO_DATE = re.compile(rf"\s*{_DAY}([T ]{_TIME}\s*(Z|[+-]\d{{2}}(:?\d{{2}})?)?)?\s*")
_CLOCK = re.compile(rf"\s*{_TIME}\s*")


def is_text_type(arrow_type: Any) -> bool:
    """Whether a column of this type holds text, which may be stored in one of several ways."""
    return str(arrow_type) in ("string", "large_string", "string_view")


def is_number_type(arrow_type: Any) -> bool:
    """Whether a column of this type holds numbers."""
    types = pa.types
    return bool(types.is_integer(arrow_type) or types.is_floating(arrow_type) or types.is_decimal(arrow_type))


def kind_of_type(name: str, arrow_type: Any) -> str:
    """How a column of this type is encoded; `null` for a column without any value."""
    types = pa.types
    if types.is_null(arrow_type):
        return "null"
    if types.is_boolean(arrow_type):
        return "boolean"
    if is_number_type(arrow_type):
        return "numeric"
    if types.is_dictionary(arrow_type):
        if kind_of_type(name, arrow_type.value_type) == "date":
            return "date"
        return "ordered" if arrow_type.ordered else "categorical"
    if is_text_type(arrow_type):
        return "categorical"
    if types.is_time(arrow_type):
        raise _time_error(name, "times of day", "the seconds since midnight")
    if types.is_duration(arrow_type):
        raise _time_error(name, "durations", "the total seconds")
    if types.is_temporal(arrow_type):
        return "date"
    raise InvalidTypeError(
        f"Column {name!r} holds values of type {arrow_type}, but a column must hold only numbers, only true and false, "
        "only dates or only text; convert it to one of these or leave it out."
    )


def _time_error(name: str, found: str, numbers: str) -> InvalidTypeError:
    return InvalidTypeError(
        f"Column {name!r} holds {found}, which are not encoded by themselves; put numbers in its place that "
        f"matter for the target, such as {numbers}, or leave it out."
    )


def cell_numbers(column: Column, cells: pa.Array) -> Array:
    """One number per cell of a column that a model knows; UNKNOWN for a category that it does not."""
    if column.is_text:
        codes, names = labels(column.name, cells)
        position = {category: float(index) for index, category in enumerate(column.categories)}
        # The code of a missing value is -1, which picks the last entry.
        return np.array([*(position.get(name, UNKNOWN) for name in names), np.nan])[codes]
    return READERS[column.kind](column.name, cells)


def numbers(name: str, column: pa.Array) -> Array:
    """Numbers, or true and false as 1 and 0; NaN where a value is missing."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    elif not is_number_type(column.type):
        raise _wrong_type(name, column, "numbers")
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def truths(name: str, column: pa.Array) -> Array:
    """1 for true, 0 for false and NaN where a value is missing; the numbers 0 and 1 count as well."""
    values = numbers(name, column)
    other = ~(np.isnan(values) | (values == 0.0) | (values == 1.0))
    if other.any():
        raise InvalidTypeError(f"Column {name!r} must hold true and false, but it holds {values[other][0]:g}.")
    return values


def days(name: str, column: pa.Array) -> Array:
    """Days since the beginning of 1970, in UTC; NaN where a date is missing, and infinity where text is not a date."""
    types = pa.types
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if types.is_null(column.type):
        return np.full(len(column), np.nan)
    if is_text_type(column.type):
        text = column.to_pandas()
        found = pd.to_datetime(text, format="ISO8601", utc=True, errors="coerce")
        values = found.to_numpy(dtype="datetime64[us]").astype(np.int64) / (1e6 * SECONDS_PER_DAY)
        return np.where(text.isna(), np.nan, np.where(found.isna(), np.inf, values))
    if not types.is_temporal(column.type) or types.is_time(column.type) or types.is_duration(column.type):
        raise _wrong_type(name, column, "dates")
    stamps = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False).cast(pa.int64())
    return np.asarray(stamps.to_numpy(zero_copy_only=False), dtype=np.float64) / (1e6 * SECONDS_PER_DAY)


READERS = {"numeric": numbers, "boolean": truths, "date": days}


def _wrong_type(name: str, column: pa.Array, wanted: str) -> InvalidTypeError:
    """An error with the first cells that are not what they should be; the column is the beginning of a table."""
    cells = [(row, cell) for row, cell in enumerate(column.to_pylist(), 1) if cell is not None]
    odd = [(row, cell) for row, cell in cells if not spells_number(str(cell))]
    shown = [f"row {row} holds {reprlib.repr(cell)}" for row, cell in (odd or cells)[:MOST_SHOWN]]
    found = ": ".join([str(column.type), *([", ".join(shown)] if shown else [])])
    return InvalidTypeError(f"Column {name!r} must hold {wanted}, but it is stored as {found}; store it as {wanted}.")


def labels(name: str, column: pa.Array) -> tuple[NDArray[np.int64], list[str]]:
    """Codes [n] into a list of category names; -1 where a value is missing.

    Whole numbers have the name of the integer, since a table that holds `1` as text in one file may hold it as an
    integer, or as 1.0 beside missing values, in another.
    """
    if kind_of_type(name, column.type) == "null":
        return np.full(len(column), -1), []
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    entries = encoded.dictionary.to_pylist()
    texts = [None if entry is None or entry != entry else label(entry) for entry in entries]  # NaN is not itself
    code = {text: number for number, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
    of_entry = np.array([*(-1 if text is None else code[text] for text in texts), -1])
    entry = pc.fill_null(encoded.indices.cast(pa.int64()), len(entries)).to_numpy(zero_copy_only=False)
    return of_entry[entry], list(code)


def label(cell: Any) -> str:
    """A cell as the name of a category."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def look_like_dates(texts: Collection[str]) -> bool:
    """Whether all of some texts are dates as ISO 8601 writes them."""
    return bool(texts) and all(_ISO_DATE.fullmatch(text) for text in texts)


def check_categories(name: str, texts: Collection[str], num_cells: int, *, is_text_file: bool) -> None:
    """Raise for text that cannot be categories: a different text in every cell, or numbers or times as text."""
    if not texts:
        raise InvalidInputError(f"Column {name!r} holds no values at all; leave it out.")
    if all(_CLOCK.fullmatch(text) for text in texts):
        raise _time_error(name, "times of day", "the seconds since midnight")
    odd = [text for text in texts if not spells_number(text)]
    # Numbers that many rows have may be names, such as those of streets.
    if not is_text_file and len(texts) > max(MAX_INDICATORS, num_cells // 2) and 2 * len(odd) < len(texts):
        others = f"correct the others, such as {odd[0]!r}, or leave those cells empty, and " if odd else ""
        found, advice = "mostly numbers as text", f"{others}convert the column to numbers"
    elif len(texts) == num_cells > 1:
        found, advice = "a different text in every row", "leave it out if it only names the rows"
    else:
        return
    raise InvalidInputError(
        f"Column {name!r} holds {found}, such as {next(iter(texts))!r}, but text is encoded as categories that several "
        f"rows have; {advice}."
    )


def spells_number(text: str) -> bool:
    """Whether a text can be read as a plain number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
