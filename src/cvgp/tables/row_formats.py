"""Rows of JSON lines, Excel sheets and SQLite tables, as Arrow batches.

Their cells are Python values, and all of them decide the types of the columns: each source is gone through once for
its names and types, and again whenever it is read.
"""

from __future__ import annotations

import datetime
import json
import os
import sqlite3
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import dropwhile
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs as pafs

from cvgp.errors import CVGPError, FileFormatError, InvalidInputError, optional_packages, printable
from cvgp.files.limits import CELL, check_columns, check_unpacked
from cvgp.tables.formats import check_names

Row = Mapping[str, Any]
_PIECE_ROWS, _PIECE_BYTES = 1 << 13, 1 << 24
"""The most that is held of the rows at a time, by their number and by what their cells take."""
_CELL_BYTES = 8
_READ_BYTES = 1 << 18
_NUMBERS = {int, float, Decimal}
_TIMES = {
    frozenset({datetime.datetime}): pa.timestamp("us"),
    frozenset({datetime.datetime, datetime.date}): pa.timestamp("us"),
    frozenset({datetime.date}): pa.date32(),
    frozenset({datetime.time}): pa.time64("us"),
    frozenset({datetime.timedelta}): pa.duration("us"),
}
_NESTED = pa.list_(pa.null())
"""The type of cells that are not single values: their column cannot be used, and is not copied."""
_EXCEL_ERRORS = {"#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#N/A", "#GETTING_DATA"}


@dataclass(frozen=True)
class RowSource:
    """Rows of Python values that can be gone through again and again."""

    file: str
    num_bytes: int
    rows: Callable[[], Iterable[Row]]
    types: Mapping[str, pa.DataType]
    mixed: frozenset[str]
    """Columns of text that hold other values too."""

    @classmethod
    def open(cls, file: str, num_bytes: int, rows: Callable[[], Iterable[Row]], names: Sequence[str] = ()) -> RowSource:
        """Find the types of the columns; names that no row has are columns too."""
        found: dict[str, set[type]] = {name: set() for name in names}
        for piece in _pieces(file, rows(), num_bytes):
            for row in piece:
                for name, cell in row.items():
                    kinds = found.setdefault(name, set())
                    if cell is not None:
                        kinds.add(type(cell))
                        if type(cell) is int and not -(2**63) <= cell < 2**63:
                            kinds.add(float)
            check_columns(file, len(found))
        types = {name: _arrow_type(kinds) for name, kinds in found.items()}
        mixed = {name for name, kinds in found.items() if pa.types.is_string(types[name]) and kinds - {str}}
        return cls(file, num_bytes, rows, types, frozenset(mixed))

    def read(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows with some of the columns."""
        for piece in _pieces(self.file, self.rows(), self.num_bytes):
            columns = [_array([row.get(name) for row in piece], self.types[name]) for name in names]
            yield pa.RecordBatch.from_arrays(columns, names=list(names))


def _pieces(file: str, rows: Iterable[Row], num_bytes: int) -> Iterator[list[Row]]:
    """Rows in lists; those of a file must be in proportion to its size."""
    piece: list[Row] = []
    size = total = 0
    for row in rows:
        piece.append(row)
        size += _CELL_BYTES * len(row) + sum(len(cell) for cell in row.values() if isinstance(cell, str | bytes))
        if len(piece) == _PIECE_ROWS or size > _PIECE_BYTES:
            total += size
            check_unpacked(file, num_bytes, total)
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _arrow_type(kinds: set[type]) -> pa.DataType:
    if not kinds:
        return pa.null()
    if kinds <= _NUMBERS:
        return pa.int64() if kinds == {int} else pa.float64()
    if kinds & {list, dict}:
        return _NESTED
    others = _TIMES | {frozenset({bool}): pa.bool_(), frozenset({bytes}): pa.binary()}
    return others.get(frozenset(kinds), pa.string())


def _array(column: Sequence[Any], to: pa.DataType) -> pa.Array:
    if to == _NESTED:
        return pa.nulls(len(column), to)
    if pa.types.is_string(to):
        return pa.array([None if cell is None else _text(cell) for cell in column], to)
    if pa.types.is_floating(to):
        return pa.array([None if cell is None else _number(cell) for cell in column], to)
    return pa.array(column, to)


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:  # of a whole number
        return float("inf") if cell > 0 else float("-inf")


def _text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell.encode("utf-8", "replace").decode()  # JSON can spell half of a surrogate pair, which is not text
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    if isinstance(cell, bool):
        return str(cell).lower()
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def open_json(filesystem: pafs.FileSystem, file: str) -> RowSource:
    """A file with one JSON object in each line; a key that an object lacks is a missing value."""
    size = filesystem.get_file_info(file).size or 0
    found = RowSource.open(file, size, lambda: _json_objects(filesystem, file))
    if not found.types:
        raise InvalidInputError(f"{file} holds no rows; it must have at least one object.")
    return found


def _json_objects(filesystem: pafs.FileSystem, file: str) -> Iterator[Row]:
    for number, line in enumerate(_lines(filesystem, file), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
            reason = f"it holds a {type(found).__name__}"
        except RecursionError:
            found, reason = None, "it is nested too deeply"
        except ValueError as error:
            found, reason = None, f"it is not JSON ({str(error)[:200]})"
        if not isinstance(found, dict):
            raise FileFormatError(
                f"{file} could not be read as JSON lines, line {number}: {reason}. "
                'Every line must be one object, such as {"a": 1, "b": "x"} (pandas: to_json(orient="records", '
                "lines=True))."
            )
        yield found


def _lines(filesystem: pafs.FileSystem, file: str) -> Iterator[bytes]:
    """Lines, none of which may be so long that it fills the memory."""
    rest, number, most = b"", 0, CELL.value
    packing = "gzip" if file.lower().endswith(".gz") else None
    with filesystem.open_input_stream(file, compression=packing) as stream:
        while content := stream.read_buffer(_READ_BYTES).to_pybytes():
            *whole, rest = (rest + content).split(b"\n")
            yield from whole
            number += len(whole)
            if len(rest) > most:
                raise FileFormatError(
                    f"Line {number + 1} of {file} is longer than {most} bytes; JSON lines have one object in each "
                    f"line. {CELL.advice}"
                )
    if rest:
        yield rest


def split_sheet(path: str) -> tuple[str, str | None]:
    """The file of `book.xlsx::sheet`, and the sheet if one is named."""
    at = path.lower().find(".xlsx::")
    return (path, None) if at < 0 else (path[: at + 5], path[at + 7 :])


def open_sheet(filesystem: pafs.FileSystem, file: str, sheet: str | None) -> RowSource:
    """A sheet of an Excel file, the first unless one is named; the names are in the first row that holds anything."""
    with _opened_sheet(filesystem, file, sheet) as cells:
        header = next(cells, [])
    names = [_column_name(cell) for cell in header]
    if not names:
        raise InvalidInputError(f"{file} has an empty sheet; its first row must hold the names of the columns.")
    check_columns(file, len(names))
    check_names(file, names)
    if names.count("") > 1:
        raise InvalidInputError(f"{file} has several columns without a name; name them.")

    def rows() -> Iterator[Row]:
        with _opened_sheet(filesystem, file, sheet) as cells:
            next(cells)
            for number, row in enumerate(cells, start=1):
                if len(row) > len(names):
                    raise FileFormatError(
                        f"Row {number} below the names in {file} has {len(row)} cells, and there are {len(names)} "
                        "names; name all columns, and keep notes out of the sheet."
                    )
                if row:  # rows that only have a format do not count
                    yield dict(zip(names, row, strict=False))

    return RowSource.open(file, filesystem.get_file_info(file).size or 0, rows, names)


@contextmanager
def _opened_sheet(filesystem: pafs.FileSystem, file: str, sheet: str | None) -> Iterator[Iterator[list[Any]]]:
    """The rows of a sheet, from the first that holds anything."""
    with optional_packages():
        import openpyxl
    try:
        with filesystem.open_input_file(file) as stream:
            with zipfile.ZipFile(stream) as packed:
                sizes = [(info.compress_size, info.file_size) for info in packed.infolist()]
            check_unpacked(file, *(sum(size) for size in zip(*sizes, strict=True)))
            stream.seek(0)
            # Values as Excel last computed them, one row at a time.
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True, keep_links=False)
            if not book.sheetnames or (sheet is not None and sheet not in book.sheetnames):
                known = ", ".join(map(printable, book.sheetnames)) or "none"
                raise InvalidInputError(f"{file} has no sheet {sheet!r}; it has {known}.")
            chosen = book[sheet or book.sheetnames[0]]
            chosen.reset_dimensions()  # what a file says of its size need not be true
            try:
                yield dropwhile(lambda row: not row, map(_cells, chosen.iter_rows(values_only=True)))
            finally:
                book.close()
    except (CVGPError, MemoryError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # a damaged sheet can fail anywhere in the parsers of XML and of the cells
        raise FileFormatError(
            f"{file} could not be read as a .xlsx table ({type(error).__name__}: {error}); it is damaged or of another "
            "kind: save it again, or as CSV."
        ) from error


def _cells(row: Sequence[Any]) -> list[Any]:
    """The cells up to the last that is not empty."""
    found = [None if isinstance(cell, str) and (cell in _EXCEL_ERRORS or not cell.strip()) else cell for cell in row]
    while found and found[-1] is None:
        found.pop()
    return found


def _column_name(cell: Any) -> str:
    return "" if cell is None else str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def open_sqlite(location: str, file: str, table: str) -> RowSource:
    """A table or view of a SQLite file."""
    with _sqlite(location, file) as database:
        known = database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
        check_table(location, table, [name for (name,) in known if not str(name).startswith("sqlite_")])
        query = f"SELECT * FROM {quoted(table)}"
        names = [column[0] for column in database.execute(f"{query} LIMIT 0").description]
    check_columns(location, len(names))

    def rows() -> Iterator[Row]:
        with _sqlite(location, file) as database:
            for row in database.execute(query):
                yield dict(zip(names, row, strict=True))

    return RowSource.open(location, os.path.getsize(file), rows, names)


@contextmanager
def _sqlite(location: str, file: str) -> Iterator[sqlite3.Connection]:
    try:
        # Nothing is written, and what a damaged or hostile file defines calls no function.
        with closing(sqlite3.connect(f"file:{quote(os.path.abspath(file))}?mode=ro", uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            most = database.getlimit(sqlite3.SQLITE_LIMIT_LENGTH)
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(CELL.value, most))
            yield database
    except sqlite3.DataError as error:
        raise InvalidInputError(
            f"{location} holds a text or a blob of more than {CELL.value} bytes ({error}); read a view without it. "
            f"{CELL.advice}"
        ) from error
    except (sqlite3.Error, UnicodeError) as error:
        raise FileFormatError(
            f"{location} could not be read ({error}); it is damaged, locked or not a SQLite file: check it with "
            "sqlite3."
        ) from error


def check_table(location: str, table: str, known: Sequence[str]) -> None:
    """Raise if a database has no such table."""
    if table not in known:
        tables = ", ".join(map(printable, known)) or "none"
        said = f"has no table {table!r}" if table else "names no table"
        raise InvalidInputError(
            f"{location} {said}; the tables of that file are {tables}. Write {location.partition('::')[0]}::"
            f"{known[0] if known else 'table'}."
        )


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'
