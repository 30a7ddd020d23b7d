"""What text and cells mean: encoding, separator and number formats of text tables, and one number per cell.

Cells with one possible reading decide the decimal sign of all; if there are none, such as `1,234`, the user is asked.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import reprlib  # a cell may be very long
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cvgp.data.rows import Array
from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError
from cvgp.tables.columns import DECIMALS, MAX_INDICATORS, PLAIN, SEPARATOR_NAMES, THOUSANDS, Column, NumberFormat
from cvgp.tables.encode import MOST_SHOWN, UNKNOWN

NEARLY_ALL = 0.98  # the share of a column's cells that must be numbers, for the others to be mistakes
ENOUGH_CELLS = 1000  # after this many cells it is clear that a column of text holds no numbers
SECONDS_PER_DAY = 86400.0
_SNIFFED_ROWS = 200
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}
_MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}  # the first of these begins a mark above
_SPACE = "[ \t\u00a0\u2009\u202f]"
_SIGN = {"": None, ",": ",", ".": r"\.", " ": _SPACE, "'": "['\u2019]", "_": "_"}
_DAY = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_TIME = r"\d{2}:\d{2}(:\d{2}([.,]\d+)?)?"
_ISO_DATE = re.compile(rf"\s*{_DAY}([T ]{_TIME}\s*(Z|[+-]\d{{2}}(:?\d{{2}})?)?)?\s*")
_CLOCK = re.compile(rf"\s*{_TIME}\s*")

Form: TypeAlias = tuple[str, str]  # a decimal sign, and the sign between thousands
_FORMS = [(decimal, sign) for decimal in DECIMALS for sign in ("", ",", ".", " ", "'") if sign != decimal]
CsvOptions: TypeAlias = dict[str, str]  # sep, decimal, thousands and encoding, as `pandas.read_csv` names them


# Text files ---------------------------------------------------------------------------------------------------------


def check_csv(given: Mapping[str, object]) -> CsvOptions:
    """The options of a text table without those that are None; the word `tab` means a tab."""
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise InvalidTypeError(f"{name} is text; got {reprlib.repr(value)}.")
    texts = {name: str(value) for name, value in given.items() if value is not None}
    sep, decimal, thousands = (texts.get(name) for name in ("sep", "decimal", "thousands"))
    if sep in ("\\t", "tab"):
        texts["sep"] = sep = "\t"
    if sep is not None and (len(sep) != 1 or sep in '"\r\n' or sep.isalnum()):
        raise InvalidInputError(f"sep is one character that is not a letter, digit or quote; got {sep!r}.")
    if decimal is not None and decimal not in DECIMALS:
        raise InvalidInputError(f"decimal is '.' or ','; got {decimal!r}.")
    if thousands is not None and (thousands not in THOUSANDS or thousands == decimal):
        allowed = ", ".join(repr(sign) for sign in THOUSANDS if sign != decimal)
        raise InvalidInputError(f"thousands is one of {allowed} beside decimal={decimal!r}; got {thousands!r}.")
    if "encoding" in texts:
        try:
            "".encode(texts["encoding"])  # raises for codecs that are not of text
            codecs.getincrementaldecoder(texts["encoding"])
            texts["encoding"] = codecs.lookup(texts["encoding"]).name
        except (LookupError, ValueError) as error:
            raise InvalidInputError(
                "encoding must name an encoding of text, such as utf-8, utf-16, cp1252 or latin-1; got "
                f"{texts['encoding']!r}."
            ) from error
    return texts


def sniff(file: str, content: bytes, is_all: bool, options: CsvOptions, default_sep: str) -> tuple[str, str, list[str]]:
    """The encoding, the separator and the column names of a text file that begins with these bytes."""
    encoding = find_encoding(file, content, is_all, options.get("encoding"))
    text = codecs.getincrementaldecoder(encoding)().decode(content, is_all).removeprefix("\ufeff")
    if not is_all:
        end = max(text.rfind("\n"), text.rfind("\r"))
        if end < 0:
            raise FileFormatError(
                f"The first line of {file} is longer than {len(content)} bytes; a table has its names there: is it a "
                "text file with one line for each row?"
            )
        text = text[: end + 1]
    sep = options.get("sep") or find_separator(text, default_sep)
    names = next(iter(_rows(text, sep)), [])
    check_names(file, names)
    return encoding, sep, names


def check_names(file: str, names: Sequence[str]) -> None:
    """Raise if a name is there more than once; several columns may have none."""
    repeated = {name for name, count in Counter(names).items() if count > 1 and name.strip()}
    if repeated:
        places = [str(position) for position, name in enumerate(names, start=1) if name in repeated]
        raise InvalidInputError(
            f"Column names must be unique: {file} has {', '.join(map(repr, sorted(repeated)))} more than once (columns "
            f"{', '.join(places)}); rename the columns."
        )


def find_encoding(file: str, content: bytes, is_all: bool, given: str | None = None) -> str:
    """The encoding of a text that begins with these bytes; a given one is tried."""
    told = given or next((encoding for mark, encoding in _MARKS.items() if content.startswith(mark)), None)
    likely = next(name for name in ("utf-8", "cp1252", "latin-1") if not _misfit(content, is_all, name))
    if told is None and b"\0" in content:
        raise FileFormatError(
            f"{file} holds zero bytes, as text does not, unless it is utf-16-le or utf-16-be without a mark; say "
            "which encoding it has, or save it as text."
        )
    if told is not None and (misfit := _misfit(content, is_all, told)):
        raise FileFormatError(
            f"{file} is not text in the encoding {told} ({misfit}). It may be {likely}: "
            f"read_table(..., encoding='{likely}'), --encoding {likely}."
        )
    return told or likely


def find_separator(text: str, default: str) -> str:
    """The separator of the columns; the default if several fit equally well, or none."""
    candidates = list(dict.fromkeys([default, *SEPARATOR_NAMES]))
    rows = {sep: _rows(text, sep) for sep in candidates}
    widths = {sep: len(own[0]) if own and len(set(map(len, own))) == 1 else 0 for sep, own in rows.items()}
    if max(widths.values()) < 2:
        # No separator gives rows of one length: the names alone decide, and the reader will say what is wrong.
        widths = {sep: len(own[0]) if own else 0 for sep, own in rows.items()}
    return max(candidates, key=lambda sep: widths[sep])  # the first of equals


def _rows(text: str, sep: str) -> list[list[str]]:
    """The first rows that are not blank; none if a cell is too long for one."""
    try:
        return list(islice(filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=sep)), _SNIFFED_ROWS))
    except csv.Error:
        return []


def _misfit(content: bytes, is_all: bool, encoding: str) -> str:
    """Why bytes are not text in an encoding; empty if they are."""
    try:
        codecs.getincrementaldecoder(encoding)().decode(content, is_all)
    except UnicodeError as error:
        return str(error)
    return ""


# Numbers in text ----------------------------------------------------------------------------------------------------


class Evidence(NamedTuple):
    """How many cells of a column are numbers in each form."""

    cells: int
    matches: dict[Form, int]
    has_percent: bool
    example: str

    @classmethod
    def of(cls, column: Any, forms: Iterable[Form]) -> Evidence:
        """Look at an Arrow column of text without its missing cells; at its beginning alone if no number is there."""
        present = column.drop_null()
        for part in (present.slice(0, ENOUGH_CELLS), present):
            found = {form: pc.match_substring_regex(part, pattern(NumberFormat(*form, True))) for form in forms}
            matches = {form: pc.sum(own).as_py() or 0 for form, own in found.items()}
            if not any(matches.values()):
                break
        has_percent = bool(pc.any(pc.match_substring(present, "%")).as_py())
        return cls(len(present), matches, has_percent, present[0].as_py() if len(present) else "")

    def best(self, decimal: str) -> Form | None:
        """The form with this decimal sign that most cells have, if nearly all have it; the plainer of equals."""
        own = [form for form in self.matches if form[0] == decimal and self.matches[form] > 0]
        best = max(own, key=lambda form: self.matches[form], default=None)  # the first of equals
        return best if best is not None and self.matches[best] >= NEARLY_ALL * self.cells else None

    def decimal(self) -> str | None:
        """The decimal sign, if the cells tell; empty if both fit, and None if neither does."""
        counts = [self.matches[form] if (form := self.best(decimal)) else 0 for decimal in DECIMALS]
        if not any(counts):
            return None
        return "" if counts[0] == counts[1] else DECIMALS[counts[1] > counts[0]]

    @property
    def is_ambiguous(self) -> bool:
        """Whether the two readings of the cells are different numbers, as of `1,234`."""
        forms = self.best("."), self.best(",")
        return not self.decimal() and None not in forms and forms != ((".", ""), (",", ""))


def allowed_forms(options: CsvOptions) -> list[Form]:
    """The forms of numbers that are looked for, given what is known."""
    decimals = [options["decimal"]] if "decimal" in options else DECIMALS
    if "thousands" not in options:
        return [form for form in _FORMS if form[0] in decimals]
    sign = options["thousands"]
    return [(decimal, extra) for decimal in decimals if decimal != sign for extra in dict.fromkeys(["", sign])]


def choose_formats(
    found: Mapping[str, Evidence], default: str | None, known: Mapping[str, NumberFormat] | None
) -> dict[str, NumberFormat]:
    """How the numbers of each column are written; `default` and `known` decide what the cells do not tell."""
    told = {name: sign for name, evidence in found.items() if (sign := evidence.decimal())}
    is_as_known = known is not None and all(known.get(name, PLAIN).decimal == told[name] for name in told)
    decimal = default or "."
    if told:
        decimal = "," if set(told.values()) == {","} else "."
    chosen: dict[str, NumberFormat] = {}
    for name, evidence in found.items():
        own = evidence.decimal()
        if own is None:
            continue
        form = evidence.best(own or decimal) or evidence.best("." if decimal == "," else ",")
        before = None if known is None or not is_as_known or own else known.get(name, PLAIN)
        if before is not None and evidence.matches.get((before.decimal, before.thousands)) == evidence.cells:
            form = before.decimal, before.thousands
        elif evidence.is_ambiguous and default is None and not told:
            raise InvalidInputError(
                f"Column {name!r} holds {evidence.example!r}, which is one number with a decimal comma and another "
                "with a decimal point, and no other cell tells which sign is meant. Say it: "
                "read_table(..., decimal=',') or decimal='.' (--decimal)."
            )
        assert form is not None
        chosen[name] = NumberFormat(*form, evidence.has_percent)
    return chosen


def pattern(how: NumberFormat) -> str:
    """A regular expression (RE2) of one cell."""
    point, sign = _SIGN[how.decimal], _SIGN[how.thousands]
    digits = rf"\d+({point}\d*)?|{point}\d+"
    if sign:
        digits = rf"[1-9]\d{{0,2}}({sign}\d{{3}})+({point}\d*)?|{digits}"
    percent = f"({_SPACE}*%)?" if how.percent else ""
    return rf"^{_SPACE}*[+\-\x{{2212}}]?({digits})([eE][+\-]?\d+)?{percent}{_SPACE}*$"


def parse_numbers(column: Any, how: NumberFormat) -> Any:
    """Text, an Arrow array, as numbers; infinite for text that is not a number, so that its row is a bad one."""
    if how == PLAIN:
        try:
            return column.cast(pa.float64())
        except pa.ArrowInvalid:
            pass  # spaces, or cells that are not numbers
    texts = pc.if_else(pc.match_substring_regex(column, pattern(how)), column, pa.scalar(None, column.type))
    if sign := _SIGN[how.thousands]:
        texts = pc.replace_substring_regex(texts, sign, "")
    texts = pc.replace_substring_regex(texts, f"{_SPACE}|%|\\+", "")
    texts = pc.replace_substring_regex(texts, r"\x{2212}", "-")
    if how.decimal != ".":
        texts = pc.replace_substring(texts, how.decimal, ".")
    found = texts.cast(pa.float64())
    return pc.if_else(pc.and_(pc.is_null(found), pc.is_valid(column)), float("inf"), found)


# Columns ------------------------------------------------------------------------------------------------------------


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


def times(name: str, column: pa.Array) -> Array:
    """Dates as days, or numbers such as years [n], by which rows are put in order; NaN or infinity for what is none."""
    found = (numbers if is_number_type(column.type) else days)(name, column)
    if not np.isfinite(found).any() and len(found) > column.null_count:
        raise InvalidTypeError(
            f"Column {name!r} holds text such as {reprlib.repr(column.drop_null()[0].as_py())}, but a time must be a "
            "date or a number in each row. Write dates as 2024-05-31."
        )
    return found


def _degrees(what: str, low: float, high: float, name: str, column: pa.Array) -> Array:
    values = numbers(name, column)
    outside = np.isfinite(values) & ((values < low) | (values > high))
    if outside.any():
        raise InvalidInputError(
            f"Column {name!r} must hold {what} in degrees, from {low:g} to {high:g}, but it holds "
            f"{values[outside][0]:g}. Correct it; geo names the latitude first, then the longitude."
        )
    return values


READERS: dict[str, Callable[[str, pa.Array], Array]] = {"numeric": numbers, "boolean": truths, "date": days}
READERS["cyclic"] = numbers
READERS["latitude"] = partial(_degrees, "latitudes", -90.0, 90.0)
READERS["longitude"] = partial(_degrees, "longitudes", -180.0, 360.0)


def _wrong_type(name: str, column: pa.Array, wanted: str) -> InvalidTypeError:
    """An error with the first cells that are not what they should be; the column is the beginning of a table."""
    cells = [(row, cell) for row, cell in enumerate(column.to_pylist(), 1) if cell is not None]
    odd = [(row, cell) for row, cell in cells if not spells_number(str(cell))]
    shown = [f"row {row} holds {reprlib.repr(cell)}" for row, cell in (odd or cells)[:MOST_SHOWN]]
    found = ": ".join([str(column.type), *([", ".join(shown)] if shown else [])])
    return InvalidTypeError(f"Column {name!r} must hold {wanted}, but it is stored as {found}; store it as {wanted}.")


def labels(name: str, column: pa.Array) -> tuple[NDArray[np.int64], list[str]]:
    """Codes [n] into a list of category names, -1 where missing; `1`, 1 and 1.0 have the same name."""
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
