"""Files of tables: how they are found, loaded where a format is loaded whole (JSON lines and Excel), and written."""

from __future__ import annotations

import csv
import fnmatch
import glob
import gzip
import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from itertools import takewhile
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from cvgp.errors import (
    CVGPError,
    FileAccessError,
    FileFormatError,
    InvalidInputError,
    MissingFileError,
    optional_packages,
    printable,
)
from cvgp.files import atomic_write, check_columns, check_readable, check_stored, check_unpacked, checked_path
from cvgp.runtime import memory_left
from cvgp.tables.cells import check_names, label

SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
JSON_ENDINGS = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json")
ARROW_FORMATS = {".parquet": "parquet", ".feather": "feather", ".arrow": "feather"}
ENDINGS = (*SEPARATORS, *ARROW_FORMATS, ".xlsx", *JSON_ENDINGS)
WRITTEN_ENDINGS = (*SEPARATORS, ".jsonl", ".jsonl.gz", *ARROW_FORMATS)
# Settings and notes end in .json too; such a file is a table only if it is named itself.
_IN_FOLDERS = tuple(ending for ending in ENDINGS if ending != ".json")
_HIDDEN = (".", "_")
_STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_DATABASES = ("sqlite:", "duckdb:")
_LOADED = 5  # approximate bytes of memory per byte of a JSON file, whose cells are Python values
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
Write = Callable[[pa.Table], None]


def ending_of(file: str | os.PathLike[str], endings: Sequence[str] = ENDINGS) -> str:
    """The ending that tells the format of a file."""
    for ending in endings:
        if os.fspath(file).lower().endswith(ending):
            return ending
    raise FileFormatError(f"{file} has no ending of a known kind of table; use one of {', '.join(endings)}.")


# Finding ------------------------------------------------------------------------------------------------------------


def find_files(paths: Sequence[str]) -> tuple[pafs.FileSystem, list[str], str]:
    """The file system, the files in the order of their names, and the ending that all of them have."""
    found = [_find_remote(path) if "://" in path else (pafs.LocalFileSystem(), _find_local(path)) for path in paths]
    filesystem = found[0][0]
    if any(other != filesystem for other, _ in found):
        raise InvalidInputError("All files of a table must be on one file system; copy them to one.")
    files = list(dict.fromkeys(file for _, own in found for file in own))
    if not files:
        raise MissingFileError(f"No file is named like {', '.join(paths)}; check the pattern and its folder.")
    endings = {ending_of(file) for file in files}
    if len(endings) > 1:
        raise InvalidInputError(
            f"The files have several formats ({', '.join(sorted(endings))}); give those of one ending only."
        )
    return filesystem, files, endings.pop()


def _find_local(pattern: str) -> list[str]:
    if pattern in _STANDARD_INPUT:
        raise InvalidInputError(
            "A table is read more than once, as the standard input cannot be. Store it in a file, and name that."
        )
    path, found = checked_path(pattern), [pattern]
    if glob.has_magic(pattern) and not os.path.lexists(path):
        if "**" in pattern:  # glob would follow a link to a folder above it again and again
            list(_walk(str(Path(*takewhile(lambda part: not glob.has_magic(part), path.parts)))))
        found = sorted(glob.glob(pattern, recursive=True))
    files: list[str] = []
    for name in found:
        files += _tables_in(name, list(_walk(name.rstrip("/") or "/"))) if os.path.isdir(name) else [name]
    for file in files:
        try:
            file.encode()  # Arrow cannot express other names
        except UnicodeEncodeError as error:
            raise FileAccessError(
                f"The name {file!r} is not UTF-8, which tables must be named in. Rename the file or its folder."
            ) from error
        check_readable(Path(file))
        info = os.stat(file)
        check_stored(file, info.st_size, getattr(info, "st_blocks", None))
    return files


def _walk(top: str) -> Iterator[str]:
    """The files in a folder and its folders; links are followed, unless they lead to a folder a second time."""

    def refuse(error: OSError) -> None:
        raise FileAccessError(f"{error.filename} cannot be listed ({error}); check who may read it.") from error

    seen: dict[str, str] = {}
    for folder, folders, names in os.walk(top, followlinks=True, onerror=refuse):
        first = seen.setdefault(os.path.realpath(folder), folder)
        if first != folder:
            raise InvalidInputError(
                f"{folder} is the same folder as {first}, by a link; its rows would count twice. Remove the link, or "
                "name the files."
            )
        folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
        yield from (f"{folder}/{name}" for name in names)


def _tables_in(folder: str, files: Sequence[str]) -> list[str]:
    """The tables among the files of a folder; names that begin with a dot or `_` are not tables."""
    parts = {file: file.removeprefix(folder).split("/") for file in files if file.lower().endswith(_IN_FOLDERS)}
    found = sorted(file for file, names in parts.items() if not any(name.startswith(_HIDDEN) for name in names))
    if not found:
        raise FileAccessError(
            f"The folder {folder} cannot be read as a table: it holds no files ending in {', '.join(_IN_FOLDERS)}."
        )
    return found


def _find_remote(uri: str) -> tuple[pafs.FileSystem, list[str]]:
    if uri.lower().startswith(_DATABASES):
        raise InvalidInputError(
            f"{uri} is a table of a database; load it into a DataFrame first, as with pandas.read_sql, and fit that."
        )
    folder = uri
    while glob.has_magic(folder):
        folder = folder.rpartition("/")[0]
    try:
        filesystem, path = pafs.FileSystem.from_uri(folder)
        kind = filesystem.get_file_info(path).type
        inside = pafs.FileSelector(path, recursive=True) if kind == pafs.FileType.Directory else [path]
        files = [info.path for info in filesystem.get_file_info(inside) if info.type != pafs.FileType.Directory]
    except (pa.ArrowException, OSError) as error:
        raise MissingFileError(f"{uri} could not be reached ({error}); check the address and your access.") from error
    if kind == pafs.FileType.NotFound:
        raise MissingFileError(f"There is no file {path}; check its name and folder.")
    if kind == pafs.FileType.Directory:
        files = _tables_in(path, files)
    return filesystem, fnmatch.filter(files, path + uri.removeprefix(folder)) if folder != uri else files


# Loading ------------------------------------------------------------------------------------------------------------


def arrow_of_cells(file: str, cells: pd.DataFrame) -> tuple[pa.Table, list[str]]:
    """Columns of Python values as a table, and the names of columns that mix types, which are text."""
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
    size, rows, names = filesystem.get_file_info(file).size or 0, list[dict[str, Any]](), dict[str, None]()
    if _LOADED * size > memory_left():
        raise InvalidInputError(
            f"{file} has {size / 1e9:.1f} GB, and its format is loaded whole: write it as Parquet, which is not."
        )
    total, packing = 0, "gzip" if file.lower().endswith(".gz") else None
    with filesystem.open_input_stream(file, compression=packing) as stream:
        for number, line in enumerate(io.BufferedReader(stream), start=1):
            if not line.strip():
                continue
            try:
                found = json.loads(line.decode("utf-8-sig" if number == 1 else "utf-8"))
                rows.append(dict(found.items()))
            except (ValueError, AttributeError, RecursionError) as error:
                raise FileFormatError(
                    f"{file} could not be read as JSON lines, line {number}: {str(error)[:200]}. Every line must be "
                    'one object, such as {"a": 1, "b": "x"} (pandas: to_json(orient="records", lines=True)).'
                ) from error
            names.update(dict.fromkeys(found))
            total += len(line)
            check_unpacked(file, size, max(total, 8 * len(rows) * len(names)))
    if not rows:
        raise InvalidInputError(f"{file} holds no rows; it must have at least one object.")
    check_columns(file, len(names))
    return pd.DataFrame(rows, dtype=object)


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


# Writing ------------------------------------------------------------------------------------------------------------


def write_table(table: pa.Table, path: str | os.PathLike[str]) -> None:
    """Write a whole table; see :func:`table_writer`."""
    with table_writer(path) as write:
        write(table)


@contextmanager
def table_writer(path: str | os.PathLike[str]) -> Iterator[Write]:
    """A function that appends rows to a file, which appears when all are in it; formulas in text get an apostrophe."""
    ending = ending_of(path, WRITTEN_ENDINGS)
    with atomic_write(path) as temporary, ExitStack() as stack:
        opened: list[Write] = []

        def write(table: pa.Table) -> None:
            if not opened:  # the columns of a file are those of its first rows
                opened.append(_open(temporary, ending, table.schema, stack))
            opened[0](table)

        yield write


def _open(temporary: Path, ending: str, schema: pa.Schema, stack: ExitStack) -> Write:
    # Opened here, since Arrow takes no name that is not UTF-8.
    stream: Any = stack.enter_context(temporary.open("wb"))
    if ending in ARROW_FORMATS:
        lz4 = pa.ipc.IpcWriteOptions(compression="lz4")
        is_parquet = ending == ".parquet"
        writer = pq.ParquetWriter(stream, schema) if is_parquet else pa.ipc.new_file(stream, schema, options=lz4)
        append: Write = stack.enter_context(writer).write_table
        return append
    if ending.endswith(".gz"):
        # A name and a time in the header would make equal tables unequal files.
        stream = stack.enter_context(gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0))
    if ending in JSON_ENDINGS:
        return lambda table: _append_json(table, stream)
    headers = iter([True])  # over the first rows alone
    return lambda table: _append_text(table, stream, SEPARATORS[ending], header=next(headers, False))


def _append_json(table: pa.Table, stream: Any) -> None:
    for row in table.to_pylist():
        cells = {name: None if cell != cell else cell for name, cell in row.items()}  # NaN, which JSON has no word for
        stream.write(json.dumps(cells, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n")


def _append_text(table: pa.Table, stream: Any, sep: str, *, header: bool) -> None:
    safe = table.to_pandas(ignore_metadata=True).rename(columns=_defuse)
    text = list(safe.columns)
    for name in safe.columns:
        if safe[name].dtype.kind not in "biufcmM":  # neither numbers nor times
            cells = [_defuse(cell) for cell in safe[name].astype(object)]
            safe[name] = pd.Series(cells, dtype=object)
            text += [cell for cell in cells if isinstance(cell, str)]
    # Readers take a bare carriage return for the end of a line, and Python's csv module leaves it unquoted.
    quoting = csv.QUOTE_NONNUMERIC if any("\r" in cell for cell in text) else csv.QUOTE_MINIMAL
    safe.to_csv(stream, mode="wb", sep=sep, header=header, index=False, lineterminator="\n", quoting=quoting)


def _defuse(cell: Any) -> Any:
    return "'" + cell if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS) else cell
