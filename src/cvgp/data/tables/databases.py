"""Tables and views of SQLite and DuckDB files: `sqlite:///file::table` and `duckdb:///file::table`."""

import os
import sqlite3
from contextlib import closing
from typing import Any
from urllib.parse import quote

import pyarrow.dataset as ds

from cvgp.data.tables.copies import Copy, copied_dataset, copy_batches, copy_rows
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.extras import optional_packages
from cvgp.files.limits import CELL, check_columns, check_stored
from cvgp.files.regular import check_readable, checked_path
from cvgp.printable import printable

_SCHEMES = ("sqlite:///", "duckdb:///")
_ROWS = 1 << 14
_LENGTH = sqlite3.SQLITE_LIMIT_LENGTH


def is_database(location: str) -> bool:
    """Whether a table is in a database."""
    return location.lower().startswith(_SCHEMES)


def copy_database(location: str) -> ds.Dataset:
    """A dataset of one table; after three slashes comes a path as it is, so that `////` begins an absolute one."""
    scheme, path = location[: len(_SCHEMES[0])].lower(), location[len(_SCHEMES[0]) :]
    file, _, table = path.partition("::")
    check_readable(checked_path(file))
    found = os.stat(file)
    check_stored(file, found.st_size, getattr(found, "st_blocks", None))
    return copied_dataset([(_copy_sqlite if scheme == "sqlite:///" else _copy_duckdb)(location, file, table)])


def _copy_sqlite(location: str, file: str, table: str) -> Copy:
    try:
        # Nothing is written, and what a damaged or hostile file defines calls no function.
        with closing(sqlite3.connect(f"file:{quote(os.path.abspath(file))}?mode=ro", uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            database.setlimit(_LENGTH, min(CELL.value, database.getlimit(_LENGTH)))
            known = database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name")
            _check_table(location, table, [name for (name,) in known if not str(name).startswith("sqlite_")])
            query = f"SELECT * FROM {_quoted(table)}"
            names = [column[0] for column in database.execute(f"{query} LIMIT 0").description]
            check_columns(location, len(names))
            return copy_rows(location, names, lambda: iter(database.execute(query)), os.path.getsize(file))
    except sqlite3.DataError as error:
        raise InvalidInputError(
            f"{location} holds a text or a blob of more than {CELL.value} bytes ({error}); read a view without it. "
            f"{CELL.advice}"
        ) from error
    except (sqlite3.Error, UnicodeError) as error:
        raise FileFormatError(
            f"{location} could not be read ({error}); it is damaged, locked or no SQLite file: check it with sqlite3."
        ) from error


def _copy_duckdb(location: str, file: str, table: str) -> Copy:
    with optional_packages():
        import duckdb
    try:
        # A view in the file may name other files and addresses; it gets none of them.
        settings: dict[str, Any] = {
            "enable_external_access": "false",
            "autoload_known_extensions": "false",
            "threads": "1",
        }
        with duckdb.connect(file, read_only=True, config=settings) as database:
            query = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() ORDER BY 1"
            _check_table(location, table, [name for (name,) in database.execute(query).fetchall()])
            reader = _batches(database.sql(f"SELECT * FROM {_quoted(table)}"))
            check_columns(location, len(reader.schema))
            return Copy(copy_batches(location, reader.schema, reader, os.path.getsize(file)), [])
    except duckdb.Error as error:
        raise FileFormatError(
            f"{location} could not be read ({str(error).strip()}); it is damaged, in use or no DuckDB file."
        ) from error


def _batches(found: Any) -> Any:
    """A reader of Arrow batches, under the name that the version of DuckDB has for it."""
    make = getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader
    return make(_ROWS)


def _check_table(location: str, table: str, known: list[str]) -> None:
    if table not in known:
        tables = ", ".join(map(printable, known)) or "none"
        said = f"has no table {table!r}" if table else "names no table"
        raise InvalidInputError(
            f"{location} {said}; the tables of that file are {tables}. Write {location.partition('::')[0]}::"
            f"{known[0] if known else 'table'}."
        )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
