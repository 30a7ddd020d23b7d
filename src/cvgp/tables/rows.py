"""Formats that are loaded whole: JSON lines, Excel sheets, and tables of SQLite and DuckDB.

All cells of a column decide its type; a column that mixes types is text. Write larger tables as Parquet.
"""

from __future__ import annotations

import io
import json
import os
import sqlite3
import zipfile
from collections.abc import Sequence
from contextlib import closing
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pandas as pd
import pyarrow as pa
import pyarrow.fs as pafs

from cvgp.errors import CVGPError, FileFormatError, InvalidInputError, optional_packages, printable
from cvgp.files import (
    MOST_CELL,
    TRUST,
    check_columns,
    check_readable,
    check_stored,
    check_unpacked,
    checked_path,
    files_are_trusted,
)
from cvgp.runtime import memory_left
from cvgp.tables.cells import label
from cvgp.tables.formats import check_names

DATABASES = ("sqlite:///", "duckdb:///")
"""After these comes a path as it is, so that `////` begins an absolute one, and then `::table`."""
_PIECE_ROWS = 1 << 13
_CELL_BYTES = 8
_LOADED = 5
"""Bytes of memory per byte of a file whose cells are Python values: about."""


def _check_loadable(file: object, size: int) -> None:
    if _LOADED * size > memory_left():
        raise InvalidInputError(
            f"{file} has {size / 1e9:.1f} GB, and its format is loaded whole: write it as Parquet, which is not."
        )


def arrow_of_cells(file: str, cells: pd.DataFrame | pa.Table) -> tuple[pa.Table, list[str]]:
    """Columns of Python values as a table, and the names of columns that mix text with other values."""
    if isinstance(cells, pa.Table):
        return cells, []
    names, columns, mixed = [str(name) for name in cells.columns], [], []
    check_columns(file, len(names))
    check_names(file, names)
    for position, name in enumerate(names):
        values = cells.iloc[:, position]
        try:
            columns.append(pa.array(values, from_pandas=True))
        except (pa.ArrowException, OverflowError, ValueError):
            present = values.dropna()
            is_number = present.map(lambda cell: isinstance(cell, int | float | Decimal) and not isinstance(cell, bool))
            change = _number if is_number.all() else _text
            columns.append(
                pa.array([None if gone else change(c) for c, gone in zip(values, values.isna(), strict=True)])
            )
            mixed += [name] if change is _text else []
    return pa.table(columns, names), mixed


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:  # of a whole number
        return float("inf") if cell > 0 else float("-inf")


def _text(cell: Any) -> str:
    text = str(cell).lower() if isinstance(cell, bool) else label(cell)
    return text.encode("utf-8", "replace").decode()  # JSON can spell half of a surrogate pair, which is not text


def load_json(filesystem: pafs.FileSystem, file: str) -> pd.DataFrame:
    """A file with one JSON object in each line; a key that an object lacks is a missing value."""
    size, total, rows = filesystem.get_file_info(file).size or 0, 0, []
    _check_loadable(file, size)
    names: dict[str, None] = {}
    packing = "gzip" if file.lower().endswith(".gz") else None
    with filesystem.open_input_stream(file, compression=packing) as stream:
        for number, line in enumerate(io.BufferedReader(stream), start=1):
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
            rows.append(found)
            names.update(dict.fromkeys(found))
            total += len(line)
            if number % _PIECE_ROWS == 0:
                check_unpacked(file, size, max(total, _CELL_BYTES * len(rows) * len(names)))
    if not rows:
        raise InvalidInputError(f"{file} holds no rows; it must have at least one object.")
    check_columns(file, len(names))
    return pd.DataFrame(rows, dtype=object)


def split_sheet(path: str) -> tuple[str, str | None]:
    """The file of `book.xlsx::sheet`, and the sheet if one is named."""
    at = path.lower().find(".xlsx::")
    return (path, None) if at < 0 else (path[: at + 5], path[at + 7 :])


def load_sheet(filesystem: pafs.FileSystem, file: str, sheet: str | None) -> pd.DataFrame:
    """A sheet of an Excel file, the first unless one is named; the names are in the first row that holds anything."""
    with optional_packages():
        import openpyxl  # noqa: F401 - by which pandas reads it
    try:
        with filesystem.open_input_file(file) as stream:
            with zipfile.ZipFile(stream) as packed:
                sizes = [(info.compress_size, info.file_size) for info in packed.infolist()]
            check_unpacked(file, *(sum(size) for size in zip(*sizes, strict=True)))
            with pd.ExcelFile(stream, engine="openpyxl") as book:
                known = [str(name) for name in book.sheet_names]
                if not known or (sheet is not None and sheet not in known):
                    listed = ", ".join(map(printable, known)) or "none"
                    raise InvalidInputError(f"{file} has no sheet {sheet!r}; it has {listed}.")
                cells = pd.read_excel(book, sheet_name=sheet or known[0], header=None, dtype=object)
    except (CVGPError, MemoryError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # a damaged sheet can fail anywhere in the parsers of XML and of the cells
        raise FileFormatError(
            f"{file} could not be read as a .xlsx table ({type(error).__name__}: {error}); it is damaged or of another "
            "kind: save it again, or as CSV."
        ) from error
    cells = cells.mask(cells.map(lambda cell: isinstance(cell, str) and not cell.strip())).dropna(how="all")
    if cells.empty:
        raise InvalidInputError(f"{file} has an empty sheet; its first row must hold the names of the columns.")
    first, cells = cells.iloc[0], cells.iloc[1:]
    used = cells.notna().any() | first.notna()
    names = ["" if pd.isna(name) else label(name) for name in first[used]]
    if names.count("") > 1 or not names[-1]:
        raise FileFormatError(
            f"{file} has cells in a column that has no name in the first row; name all columns, and keep notes out of "
            "the sheet."
        )
    return cells.loc[:, used].set_axis(names, axis=1)


def load_database(location: str) -> pd.DataFrame | pa.Table:
    """A table or view of a SQLite or DuckDB file."""
    path, _, table = location[len(DATABASES[0]) :].partition("::")
    check_readable(file := checked_path(path))
    info = os.stat(file)
    check_stored(file, info.st_size, getattr(info, "st_blocks", None))
    _check_loadable(file, info.st_size)
    if location.lower().startswith(DATABASES[1]):
        return _load_duckdb(location, path, table)
    try:
        # Nothing is written, and what a damaged or hostile file defines calls no function.
        with closing(sqlite3.connect(f"file:{quote(os.path.abspath(file))}?mode=ro", uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            if not files_are_trusted():
                database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MOST_CELL)
            known = database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
            found = database.execute(_query(location, table, [name for (name,) in known if name[:7] != "sqlite_"]))
            rows: list[Any] = []
            while piece := found.fetchmany(_PIECE_ROWS):
                rows += piece
                check_unpacked(location, info.st_size, _CELL_BYTES * len(rows) * len(piece[0]))
            return pd.DataFrame(rows, columns=[column[0] for column in found.description], dtype=object)
    except sqlite3.DataError as error:
        raise InvalidInputError(
            f"{location} holds a text or a blob of more than {MOST_CELL} bytes ({error}); read a view without it. "
            f"{TRUST}"
        ) from error
    except (sqlite3.Error, UnicodeError) as error:
        raise FileFormatError(
            f"{location} could not be read ({error}); it is damaged, locked or not a SQLite file."
        ) from error


def _load_duckdb(location: str, file: str, table: str) -> pa.Table:
    with optional_packages():
        import duckdb
    # A view in the file may name other files and addresses; it gets none of them.
    settings: Any = {"enable_external_access": "false", "autoload_known_extensions": "false", "threads": "1"}
    tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() ORDER BY 1"
    try:
        with duckdb.connect(file, read_only=True, config=settings) as database:
            known = [name for (name,) in database.execute(tables).fetchall()]
            return database.sql(_query(location, table, known)).to_arrow_table()
    except duckdb.Error as error:
        raise FileFormatError(
            f"{location} could not be read ({str(error).strip()}); it is damaged, in use or not a DuckDB file."
        ) from error


def _query(location: str, table: str, known: Sequence[str]) -> str:
    """The statement that selects all columns of a table, which the database must have."""
    if table not in known:
        tables = ", ".join(map(printable, known)) or "none"
        said = f"has no table {table!r}" if table else "names no table"
        raise InvalidInputError(
            f"{location} {said}; the tables of that file are {tables}. Write {location.partition('::')[0]}::"
            f"{known[0] if known else 'table'}."
        )
    quoted = table.replace('"', '""')
    return f'SELECT * FROM "{quoted}"'
