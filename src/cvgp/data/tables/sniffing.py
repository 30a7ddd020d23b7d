"""What the first bytes of a text table tell: its encoding and what separates its columns.

Encoding: a byte order mark says it. Else the text is UTF-8 if it can be. Else it is Windows-1252, or Latin-1 where it
holds bytes that Windows-1252 does not have.

Separator: the one of comma, semicolon, tab and bar with which every row has as many cells as the first line, and most.
"""

import codecs
import csv
import io
from collections import Counter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs

from cvgp.data.reading import CsvOptions
from cvgp.errors import FileFormatError, InvalidInputError

SAMPLE_BYTES = 1 << 20
"""Unpacked, of the first file; a line must not be longer."""
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}
_MARKS |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}  # the first of these begins a mark above
_CANDIDATES = ",;\t|"
_MOST_ROWS = 200


class Sniffed(NamedTuple):
    """How a text file is to be read."""

    encoding: str
    sep: str
    is_ascii: bool
    """Whether the first bytes would be the same text in almost any encoding."""
    num_columns: int


def first_bytes(filesystem: pafs.FileSystem, file: str, size: int = SAMPLE_BYTES) -> tuple[bytes, bool]:
    """The beginning of a file, unpacked, and whether it is all of it."""
    with filesystem.open_input_stream(file, compression=compression_of(file)) as stream:
        content = read_piece(stream, size + 1)
    return content[:size], len(content) <= size


def read_piece(stream: pa.NativeFile, size: int) -> bytes:
    """The next bytes of a file. Where this fails its memory is freed, which that of Arrow's own `read` is not."""
    content: bytes = stream.read_buffer(size).to_pybytes()
    return content


def compression_of(file: str) -> str | None:
    """As Arrow names it."""
    return "gzip" if file.lower().endswith(".gz") else None


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
    _check_repeated(file, names)
    return Sniffed(encoding, sep, content.isascii() and b"\0" not in content, len(names))


def find_encoding(file: str, content: bytes, is_all: bool, given: str | None) -> str:
    """The encoding of a text that begins with these bytes; a given one is tried."""
    if given is not None:
        _check_fits(file, content, is_all, given)
        return given
    for mark, encoding in _MARKS.items():
        if content.startswith(mark):
            _check_fits(file, content, is_all, encoding)
            return encoding
    if b"\0" in content:
        raise ValueError("it holds zero bytes, as text does not, unless it is utf-16-le or utf-16-be without a mark")
    for encoding in ("utf-8", "cp1252"):
        if _misfit(content, is_all, encoding) is None:
            return encoding
    return "latin-1"


def find_separator(text: str, default: str) -> str:
    """What separates the columns; the default where several would do as well, or none."""
    candidates: list[str] = list(dict.fromkeys([default, *_CANDIDATES]))
    widths: Counter[str] = Counter()
    for sep in candidates:
        rows = _rows(text, sep)
        if rows and all(len(row) == len(rows[0]) for row in rows):
            widths[sep] = len(rows[0])
    best = max(candidates, key=lambda sep: widths[sep])  # the first of equals
    if widths[best] > 1:
        return best
    # No separator gives rows of one length: the names alone are asked, and the reader will say what is wrong.
    names = {sep: len(next(iter(_rows(text, sep)), [])) for sep in candidates}
    return max(candidates, key=lambda sep: names[sep])


def _rows(text: str, sep: str) -> list[list[str]]:
    """The first rows that are not blank; none if a cell is too long for one."""
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=sep):
            if row:
                rows.append(row)
            if len(rows) == _MOST_ROWS:
                break
    except csv.Error:
        return []
    return rows


def _check_repeated(file: str, names: list[str]) -> None:
    repeated = {name: n for name, n in Counter(names).items() if n > 1 and name.strip()}
    if repeated:
        places = [str(position) for position, name in enumerate(names, start=1) if name in repeated]
        found = ", ".join(repr(name) for name in repeated)
        raise InvalidInputError(
            f"Column names must be unique: {file} has {found} more than once (columns {', '.join(places)}); rename "
            "the columns in its first line."
        )


def _check_fits(file: str, content: bytes, is_all: bool, encoding: str) -> None:
    misfit = _misfit(content, is_all, encoding)
    if misfit is None:
        return
    line = content[:misfit].count(b"\n") + 1
    likely = next((name for name in ("utf-8", "cp1252") if _misfit(content, is_all, name) is None), "latin-1")
    raise FileFormatError(
        f"{file} is no text in the encoding {encoding}: line {line} holds the byte 0x{content[misfit]:02x}, which does "
        f"not fit. It may be {likely}: say --encoding {likely} (csv={{'encoding': '{likely}'}})."
    )


def _misfit(content: bytes, is_all: bool, encoding: str) -> int | None:
    """Where the first byte is that does not fit."""
    try:
        codecs.getincrementaldecoder(encoding)().decode(content, is_all)
    except UnicodeDecodeError as error:
        return min(error.start, len(content) - 1)
    except UnicodeError:  # a missing mark
        return 0
    return None
