"""How the text of a table was read: what separates its columns, how its numbers are written, in which encoding.

A reading is plain data. It is stored with the model as JSON and checked when it is read, so a file can make it fail but
not act.
"""

from __future__ import annotations

import codecs
import reprlib  # what comes from a file may be too long for repr
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError
from cvgp.printable import printable

DECIMALS = (".", ",")
THOUSANDS = ("", ",", ".", " ", "'", "_")
SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


class CsvOptions(TypedDict, total=False):
    """What is known of a text table, under the names of `pandas.read_csv`; what is not given is found out.

    Examples
    --------
    >>> options: CsvOptions = {"sep": ";", "decimal": ",", "thousands": ".", "encoding": "cp1252"}
    >>> check_csv(options)["sep"]
    ';'
    """

    sep: str
    decimal: str
    thousands: str
    encoding: str


@dataclass(frozen=True, slots=True)
class Numerals:
    """How the numbers of a column are written.

    Examples
    --------
    >>> Numerals(decimal=",", thousands=".").describe()
    "decimal comma, thousands '.'"
    """

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


@dataclass(frozen=True, slots=True)
class Reading:
    """How a table was read; without separator and encoding for a format that has none.

    Examples
    --------
    >>> Reading(";", "cp1252", {"price": Numerals(",", ".")}).describe()
    "columns separated by semicolons, encoding cp1252, decimal comma, thousands '.' in 'price'"
    """

    sep: str | None = None
    encoding: str | None = None
    numerals: Mapping[str, Numerals] = field(default_factory=dict)
    """Of the columns whose numbers are not plain ones, or have cells beside them that are no numbers."""

    @property
    def is_plain(self) -> bool:
        """Whether this is UTF-8 with plain numbers between commas or tabs."""
        spelled = any(numerals != Numerals() for numerals in self.numerals.values())
        return self.sep in (None, ",", "\t") and self.encoding in (None, "utf-8") and not spelled

    def describe(self) -> str:
        """In words, in one line."""
        words = []
        if self.sep is not None:
            words += [f"columns separated by {SEPARATOR_NAMES.get(self.sep, repr(self.sep))}"]
            words += [f"encoding {self.encoding}"]
        columns: dict[str, list[str]] = {}
        for name, numerals in self.numerals.items():
            if numerals != Numerals():
                columns.setdefault(numerals.describe(), []).append(repr(name))
        words += [f"{how} in {named(names)}" for how, names in columns.items()]
        return ", ".join(words)

    def to_json(self) -> dict[str, Any]:
        """A dictionary of JSON types."""
        numerals = {name: [n.decimal, n.thousands, n.percent] for name, n in self.numerals.items()}
        return {"sep": self.sep, "encoding": self.encoding, "numerals": numerals}

    @classmethod
    def from_json(cls, data: object) -> Reading:
        """The reading of such a dictionary, which may come from an untrusted file."""
        if not isinstance(data, dict) or set(data) != {"sep", "encoding", "numerals"}:
            raise FileFormatError("How a table was read must have exactly a sep, an encoding and numerals.")
        texts, numerals = (data["sep"], data["encoding"]), data["numerals"]
        if not all(text is None or isinstance(text, str) for text in texts) or not isinstance(numerals, dict):
            raise FileFormatError("How a table was read holds a value of the wrong kind.")
        if not all(isinstance(how, list) and len(how) == 3 for how in numerals.values()):
            raise FileFormatError("How numbers are written must be a list of three values for each column.")
        try:
            return cls(*texts, {str(name): Numerals(*how) for name, how in numerals.items()})
        except (InvalidInputError, TypeError) as error:
            raise FileFormatError(f"How a table was read cannot be: {error}") from error


def named(names: list[str], most: int = 6) -> str:
    """Some of the names, and how many more there are."""
    shown = ", ".join(map(printable, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more columns"


def check_csv(given: object) -> CsvOptions:
    """Refuse what cannot be known of a text table; a backslash with a t, or `tab`, stands for a tab."""
    if given is None:
        return {}
    known = CsvOptions.__annotations__
    if not isinstance(given, Mapping) or not set(given) <= set(known):
        raise InvalidTypeError(
            f"csv is a dictionary with some of {', '.join(known)}, such as {{'sep': ';', 'decimal': ','}}; got "
            f"{reprlib.repr(given)}."
        )
    options = {name: value for name, value in given.items() if value is not None}
    for name, value in options.items():
        if not isinstance(value, str):
            raise InvalidTypeError(f"{name} is text; got {reprlib.repr(value)}.")
    if options.get("sep") in ("\\t", "tab"):
        options["sep"] = "\t"
    if "sep" in options and (len(options["sep"]) != 1 or options["sep"] in '"\r\n' or options["sep"].isalnum()):
        raise InvalidInputError(f"sep is one character that is no letter, digit or quote; got {options['sep']!r}.")
    decimal, thousands = options.get("decimal"), options.get("thousands")
    if decimal is not None and decimal not in DECIMALS:
        raise InvalidInputError(f"decimal is '.' or ','; got {decimal!r}.")
    if thousands is not None and (thousands not in THOUSANDS or thousands == decimal):
        allowed = ", ".join(repr(sign) for sign in THOUSANDS if sign != decimal)
        raise InvalidInputError(f"thousands is one of {allowed} beside decimal={decimal!r}; got {thousands!r}.")
    if "encoding" in options:
        options["encoding"] = _known_encoding(options["encoding"])
    return CsvOptions(**options)  # type: ignore[typeddict-item]


def _known_encoding(name: str) -> str:
    try:
        found = codecs.lookup(name)
        codecs.getincrementaldecoder(name)
        "".encode(name)  # refuses codecs that are not of text
    except (LookupError, ValueError) as error:
        raise InvalidInputError(
            f"encoding must name an encoding of text, such as utf-8, utf-16, cp1252 or latin-1; got {name!r}."
        ) from error
    return found.name
