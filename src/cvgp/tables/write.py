"""Writing a table to one file, at once or part by part: the file takes its place when all rows are in it."""

import csv
import gzip
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from cvgp.files import atomic_write
from cvgp.tables.locate import JSON_ENDINGS, SEPARATORS, WRITTEN_ENDINGS, ending_of

Write = Callable[[pa.Table], None]

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def write_table(table: pa.Table, path: str | os.PathLike[str]) -> None:
    """Write a whole table; see :func:`table_writer`."""
    with table_writer(path) as write:
        write(table)


@contextmanager
def table_writer(path: str | os.PathLike[str]) -> Iterator[Write]:
    """A function that appends rows, all with the same columns.

    In text files a spreadsheet would run text that begins with `=`, `+`, `-`, `@`, a tab or a carriage return as a
    formula. Such names and cells get a leading apostrophe, which shows them as text. Numbers are written as they
    are, with all their digits. If the block fails, an old file of that name stays as it was.
    """
    ending = ending_of(path, WRITTEN_ENDINGS)
    with atomic_write(path) as temporary, ExitStack() as stack:
        opened: list[Write] = []

        def write(table: pa.Table) -> None:
            if not opened:  # the columns of a file are those of its first rows
                opened.append(_open(temporary, ending, table.schema, stack))
            opened[0](table)

        yield write


def _open(temporary: Path, ending: str, schema: pa.Schema, stack: ExitStack) -> Write:
    is_text = ending in SEPARATORS or ending in JSON_ENDINGS
    # Opened here, since Arrow takes no name that is not UTF-8.
    stream: Any = stack.enter_context(temporary.open("wb"))
    if not is_text:
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
    return lambda table: _append_text(table, stream, ending, header=next(headers, False))


def _append_json(table: pa.Table, stream: Any) -> None:
    for row in table.to_pylist():
        cells = {name: None if cell != cell else cell for name, cell in row.items()}  # NaN, which JSON has no word for
        stream.write(json.dumps(cells, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n")


def _append_text(table: pa.Table, stream: Any, ending: str, *, header: bool) -> None:
    safe = table.to_pandas(ignore_metadata=True).rename(columns=_defuse)
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
        sep=SEPARATORS[ending],
        header=header,
        index=False,
        lineterminator="\n",
        quoting=csv.QUOTE_NONNUMERIC if has_breaks else csv.QUOTE_MINIMAL,
    )


def _defuse(cell: Any) -> Any:
    return "'" + cell if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS) else cell
