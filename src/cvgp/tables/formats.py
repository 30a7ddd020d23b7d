"""How text tables are written: encoding, separator and number formats, given or inferred.

Encoding: a byte order mark tells it. Otherwise the text is UTF-8 if it can be, and else Windows-1252, or Latin-1 if it
holds bytes that Windows-1252 does not have. Separator: the one of comma, semicolon, tab and bar with which every row
has as many cells as the first line, and most. Decimal sign: cells that can be read in one way only decide. `1,5` has a
decimal comma and `0.5` a decimal point. A column in which every cell can be read in both ways, such as `1,234`, follows
the other columns; if these do not tell either, the user is asked.

A `Reading` is plain data. It is stored with the model as JSON and checked when it is read.
"""

from __future__ import annotations

import codecs
import csv
import io
import reprlib  # what comes from a file may be too long for repr
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError, printable

DECIMALS = (".", ",")
THOUSANDS = ("", ",", ".", " ", "'", "_")
SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
NEARLY_ALL = 0.98
"""The share of a column's cells that must be numbers, for the others to be mistakes."""
ENOUGH_CELLS = 1000
"""After this many cells it is clear that a column of text holds no numbers."""
_SNIFFED_ROWS = 200
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}
_MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}  # the first of these begins a mark above
_SPACE = "[ \t\u00a0\u2009\u202f]"
_SIGN = {"": None, ",": ",", ".": r"\.", " ": _SPACE, "'": "['\u2019]", "_": "_"}
Form = tuple[str, str]
"""A decimal sign, and the sign between thousands."""
_FORMS: tuple[Form, ...] = tuple(
    (decimal, sign) for decimal in DECIMALS for sign in ("", ",", ".", " ", "'") if sign != decimal
)
"""The forms that are looked for, the plain ones first."""


CsvOptions: TypeAlias = dict[str, str]
"""What is known of a text table: sep, decimal, thousands and encoding, as `pandas.read_csv` names them."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How the numbers of a column are written."""

    decimal: str = "."
    thousands: str = ""
    percent: bool = False
    """Whether a percent sign may follow; `12 %` is the number 12."""

    def __post_init__(self) -> None:
        is_known = self.decimal in DECIMALS and self.thousands in THOUSANDS and isinstance(self.percent, bool)
        if not is_known or self.decimal == self.thousands:
            raise InvalidInputError(
                f"Numbers have a decimal sign of {DECIMALS} and another sign of {THOUSANDS} between thousands; got "
                f"{reprlib.repr((self.decimal, self.thousands, self.percent))}."
            )

    def describe(self) -> str:
        """In words; empty for plain numbers."""
        words = ["decimal comma"] if self.decimal == "," else []
        words += [f"thousands {self.thousands!r}"] if self.thousands else []
        return ", ".join([*words, *(["percent"] if self.percent else [])])


PLAIN = NumberFormat()


@dataclass(frozen=True, slots=True)
class Reading:
    """How a table was read; without separator and encoding for a format that has none."""

    sep: str | None = None
    encoding: str | None = None
    numbers: Mapping[str, NumberFormat] = field(default_factory=dict)
    """Columns of text that are read as numbers, and how these are written."""

    @property
    def is_plain(self) -> bool:
        """Whether this is UTF-8 with plain numbers between commas or tabs."""
        plain_numbers = all(how == PLAIN for how in self.numbers.values())
        return self.sep in (None, ",", "\t") and self.encoding in (None, "utf-8") and plain_numbers

    def describe(self) -> str:
        """In words, in one line."""
        words = []
        if self.sep is not None:
            words += [f"columns separated by {SEPARATOR_NAMES.get(self.sep, repr(self.sep))}"]
            words += [f"encoding {self.encoding}"]
        columns: dict[str, list[str]] = {}
        for name, how in self.numbers.items():
            if how != PLAIN:
                columns.setdefault(how.describe(), []).append(repr(name))
        words += [f"{how} in {named(names)}" for how, names in columns.items()]
        return ", ".join(words)

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON types."""
        numbers = {name: list(astuple(how)) for name, how in self.numbers.items()}
        return {"sep": self.sep, "encoding": self.encoding, "numbers": numbers}

    @classmethod
    def from_json(cls, data: object) -> Reading:
        """The reading of such a dictionary, which may come from an untrusted file."""
        if not isinstance(data, dict) or set(data) != {"sep", "encoding", "numbers"}:
            raise FileFormatError("How a table was read must have exactly a sep, an encoding and numbers.")
        texts, numbers = (data["sep"], data["encoding"]), data["numbers"]
        is_lists = isinstance(numbers, dict) and all(isinstance(how, list) for how in numbers.values())
        if not is_lists or not all(text is None or isinstance(text, str) for text in texts):
            raise FileFormatError("How a table was read holds a value of the wrong kind.")
        try:
            return cls(*texts, {str(name): NumberFormat(*how) for name, how in numbers.items()})
        except (InvalidInputError, TypeError) as error:
            raise FileFormatError(f"How a table was read cannot be: {error}") from error


def named(names: list[str], most: int = 6) -> str:
    """Some of the names, and how many more there are."""
    shown = ", ".join(map(printable, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more columns"


def check_csv(given: Mapping[str, object]) -> CsvOptions:
    """The options of a text table without those that are None; the word `tab` means a tab."""
    texts: CsvOptions = {}
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise InvalidTypeError(f"{name} is text; got {reprlib.repr(value)}.")
        texts |= {} if value is None else {name: value}
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


class Sniffed(NamedTuple):
    """How a text file is to be read."""

    encoding: str
    sep: str
    names: list[str]


def sniff(file: str, content: bytes, is_all: bool, options: CsvOptions, default_sep: str) -> Sniffed:
    """How to read a text file that begins with these bytes."""
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
    return Sniffed(encoding, sep, names)


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
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=sep):
            if row:
                rows.append(row)
            if len(rows) == _SNIFFED_ROWS:
                break
    except csv.Error:
        return []
    return rows


def _misfit(content: bytes, is_all: bool, encoding: str) -> str:
    """Why bytes are not text in an encoding; empty if they are."""
    try:
        codecs.getincrementaldecoder(encoding)().decode(content, is_all)
    except UnicodeError as error:
        return str(error)
    return ""


class Evidence(NamedTuple):
    """How many cells of a column are numbers in each form."""

    cells: int
    matches: dict[Form, int]
    has_percent: bool
    example: str

    @classmethod
    def of(cls, column: Any, forms: Iterable[Form]) -> Evidence:
        """Look at an Arrow column of text without its missing cells; at its beginning alone if no number is there."""
        import pyarrow.compute as pc

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
    """How the numbers of each column are written, where they are numbers.

    The default is the decimal sign if no cell tells; with None, a column that can be read in two ways is an error. A
    model has known formats, which decide what the cells do not tell unless other columns are written differently.
    """
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


@cache
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
    import pyarrow as pa
    import pyarrow.compute as pc

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
