"""Tables in files: CSV and TSV (also gzipped), Parquet, Feather and Arrow, told apart by their endings."""

from __future__ import annotations

import csv
import gzip
import io
import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from cvgp.data.tables.limits import LimitedStream, check_fits
from cvgp.errors import (
    CVGPError,
    FileAccessError,
    FileFormatError,
    InvalidInputError,
    InvalidTypeError,
    MissingFileError,
)
from cvgp.files.atomic import atomic_write

__all__ = ["TEXT_ENDINGS", "append_text", "compressed", "ending_of", "read_table", "write_table"]

_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
TEXT_ENDINGS = tuple(_SEPARATORS)
_ENDINGS = (*_SEPARATORS, ".parquet", ".feather", ".arrow")
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def read_table(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read a table whose columns have unique names and which has at least one row.

    Text files are UTF-8, with the names in the first line; empty cells and pandas' usual words for them (`NA`,
    `null`, ...) are missing values. A named index that pandas stored in a Parquet file becomes a column again.

    Parameters
    ----------
    path : str or path-like
        A file ending in .csv, .tsv, .csv.gz, .tsv.gz, .parquet, .feather or .arrow.
    columns : sequence of str, optional
        The columns to return, in this order; all by default.

    Raises
    ------
    MissingFileError, FileAccessError
        If there is no such file, or it may not be read.
    FileFormatError
        If the ending is unknown or the content is not a table of that kind.
    InvalidInputError
        If the table is empty, or lacks one of `columns`.
    """
    path = Path(path)
    _check_readable(path)
    ending = ending_of(path)
    try:
        frame = _read_text(path, ending) if ending in _SEPARATORS else _read_arrow(path, ending, columns)
    except CVGPError:
        raise
    except Exception as error:  # a damaged file can make a parser fail in any way
        reason = f"{type(error).__name__}: {str(error).strip()}"
        remedy = (
            "save it as UTF-8 text, every row as long as the first line" if ending in _SEPARATORS else "write it again"
        )
        raise FileFormatError(
            f"{path} could not be read as a {ending} table ({reason}); it is damaged or of another kind: {remedy}."
        ) from error
    if columns is not None:
        missing = [name for name in columns if name not in frame.columns]
        if missing:
            raise InvalidInputError(f"{path} has no columns {missing}; choose from {list(frame.columns)}.")
        frame = frame.loc[:, list(columns)]
    if frame.empty:
        raise InvalidInputError(f"{path} holds an empty table; it must have at least one column and one row.")
    return frame


def write_table(frame: pd.DataFrame, path: str | os.PathLike[str]) -> None:
    """Write a table, without its index, whole or not at all.

    In text files a spreadsheet would run text that begins with `=`, `+`, `-`, `@`, a tab or a carriage return as a
    formula. Such names and cells get a leading apostrophe, which shows them as text. Numbers are written as they
    are, with all their digits.

    Parameters
    ----------
    frame : pandas.DataFrame
        A table whose columns have unique names.
    path : str or path-like
        A file ending in .csv, .tsv, .csv.gz, .tsv.gz, .parquet, .feather or .arrow; an old one is replaced.

    Raises
    ------
    FileFormatError
        If the ending is unknown.
    FileAccessError
        If the file cannot be written: a missing folder, no permission, a full disk.
    """
    path = Path(path)
    ending = ending_of(path)
    if not all(isinstance(name, str) for name in frame.columns):
        raise InvalidTypeError(f"Column names must be text, got {list(frame.columns)}; use frame.rename(columns=str).")
    _check_unique(path, list(frame.columns))
    if ending in _SEPARATORS:
        _write_text(frame, path, ending)
    else:
        _write_arrow(frame, path, ending)


def ending_of(path: Path) -> str:
    """The ending that says in which format a file is."""
    for ending in _ENDINGS:
        if path.name.lower().endswith(ending):
            return ending
    raise FileFormatError(f"{path} has no ending of a known kind of table; use one of {', '.join(_ENDINGS)}.")


def _check_readable(path: Path) -> None:
    try:
        path.open("rb").close()
    except FileNotFoundError as error:
        raise MissingFileError(f"There is no file {path}; check its name and folder.") from error
    except OSError as error:
        raise FileAccessError(f"{path} cannot be read ({error.strerror}); check what it is and who may.") from error


def _check_unique(path: Path, names: Sequence[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InvalidInputError(
            f"Column names must be unique, but in {path} these appear more than once: {repeated}; rename the columns "
            "(a text file must hold the names in its first line)."
        )


def _read_text(path: Path, ending: str) -> pd.DataFrame:
    names = _read_header(path, ending)
    _check_unique(path, names)
    with warnings.catch_warnings(), _unpacked(path, ending) as content:
        # pandas would cut off cells beyond the last name with no more than this warning.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return pd.read_csv(
            content,
            sep=_SEPARATORS[ending],
            names=names,
            header=0,
            index_col=False,
            encoding="utf-8-sig",
            low_memory=False,  # one type for the whole of a column
        )


def _unpacked(path: Path, ending: str) -> AbstractContextManager[Any]:
    """What pandas is to read: a file, or what comes out of a packed one, for as long as there is memory."""
    return io.BufferedReader(LimitedStream(gzip.open(path), path)) if ending.endswith(".gz") else nullcontext(path)


def _read_header(path: Path, ending: str) -> list[str]:
    """The names as they are in the file: pandas would rename repeated and empty ones."""
    open_text: Callable[..., IO[str]] = gzip.open if ending.endswith(".gz") else open
    with open_text(path, "rt", encoding="utf-8-sig", newline="") as stream:
        rows = csv.reader(stream, delimiter=_SEPARATORS[ending])
        names = next((row for row in rows if len(row) > 1 or "".join(row).strip()), None)
    if names is None:
        raise InvalidInputError(f"{path} is empty; it must hold column names and at least one row.")
    for position, name in enumerate(names, start=1):
        if not name.strip():
            raise InvalidInputError(
                f"Column {position} of {path} has no name in the first line; name it, or remove it if it only numbers "
                "the rows (pandas writes such a column unless told index=False)."
            )
    expected = _SEPARATORS[ending]
    others = [character for character in ",;\t" if character in names[0] and character != expected]
    if len(names) == 1 and others:
        raise FileFormatError(
            f"The columns of {path} seem to be separated by {others[0]!r}, but its ending {ending} stands for "
            f"{expected!r}; write it again with that separator."
        )
    return names


def _read_arrow(path: Path, ending: str, columns: Sequence[str] | None) -> pd.DataFrame:
    with pa.OSFile(str(path)) as source:
        file = pa.parquet.ParquetFile(source) if ending == ".parquet" else pa.ipc.open_file(source)
        names = file.schema_arrow.names if ending == ".parquet" else file.schema.names
        _check_unique(path, names)
        # A name that is not there may be that of an index, which pandas restores from its own notes in the file.
        wanted = list(columns) if columns and set(columns) <= set(names) else names
        if ending == ".parquet":
            check_fits(path, 8 * len(wanted) * file.metadata.num_rows)  # a value that repeats takes no space in a file
        table = file.read(columns=wanted) if ending == ".parquet" else file.read_all().select(wanted)
    table.validate(full=True)  # a damaged file could otherwise crash the interpreter
    frame: pd.DataFrame = table.to_pandas()
    named = [name for name in frame.index.names if name is not None]
    return (frame.reset_index(level=named) if named else frame).reset_index(drop=True)


def _write_text(frame: pd.DataFrame, path: Path, ending: str) -> None:
    with atomic_write(path) as temporary, temporary.open("wb") as file, compressed(file, ending) as stream:
        append_text(frame, stream, ending, header=True)


def append_text(frame: pd.DataFrame, stream: Any, ending: str, *, header: bool) -> None:
    """Write rows to an open text file, in which no cell is a formula."""
    safe = frame.reset_index(drop=True).rename(columns=_defuse)
    text = list(safe.columns)
    for name in safe.columns:
        if safe[name].dtype.kind not in "biufcmM":  # neither numbers nor times
            cells = [_defuse(cell) for cell in safe[name].astype(object)]
            safe[name] = pd.Series(cells, dtype=object)
            text += [cell for cell in cells if isinstance(cell, str)]
    # Readers take a bare carriage return for the end of a line, and Python's csv module leaves it unquoted.
    has_breaks = any("\r" in cell for cell in text)
    safe.to_csv(
        stream,
        mode="wb",
        sep=_SEPARATORS[ending],
        header=header,
        index=False,
        lineterminator="\n",
        quoting=csv.QUOTE_NONNUMERIC if has_breaks else csv.QUOTE_MINIMAL,
    )


def compressed(file: IO[bytes], ending: str) -> AbstractContextManager[Any]:
    """The stream in which a text file is written, by its ending."""
    if not ending.endswith(".gz"):
        return nullcontext(file)
    # A name and a time in the header would make equal tables unequal files.
    return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)


def _defuse(cell: Any) -> Any:
    return "'" + cell if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS) else cell


def _write_arrow(frame: pd.DataFrame, path: Path, ending: str) -> None:
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"The table cannot be stored as {ending} ({error}); give each column values of one type, or write .csv."
        ) from error
    write = pa.parquet.write_table if ending == ".parquet" else pa.feather.write_feather
    with atomic_write(path) as temporary:
        write(table, temporary)
