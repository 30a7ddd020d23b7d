"""Writing a table to one file, part by part: the file takes its place when all parts are in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cvgp.data.tables.whole import TEXT_ENDINGS, append_text, compressed, ending_of
from cvgp.files.atomic import atomic_write

__all__ = ["table_writer"]

Write = Callable[[pa.Table], None]


@contextmanager
def table_writer(path: str | os.PathLike[str]) -> Iterator[Write]:
    """A function that appends rows, all with the same columns; see :func:`~cvgp.data.tables.whole.write_table`.

    If the block fails, an old file of that name stays as it was.

    Examples
    --------
    >>> with table_writer("all.parquet") as write:  # doctest: +SKIP
    ...     for part in parts:
    ...         write(part)
    """
    ending = ending_of(Path(path))
    with atomic_write(path) as temporary, ExitStack() as stack:
        yield (
            _text_writer(temporary, ending, stack)
            if ending in TEXT_ENDINGS
            else _arrow_writer(temporary, ending, stack)
        )


def _text_writer(temporary: Path, ending: str, stack: ExitStack) -> Write:
    stream = stack.enter_context(compressed(stack.enter_context(temporary.open("wb")), ending))
    is_first = True

    def write(table: pa.Table) -> None:
        nonlocal is_first
        append_text(table.to_pandas(), stream, ending, header=is_first)
        is_first = False

    return write


def _arrow_writer(temporary: Path, ending: str, stack: ExitStack) -> Write:
    writers: list[pq.ParquetWriter | pa.ipc.RecordBatchFileWriter] = []

    def write(table: pa.Table) -> None:
        if not writers:
            writers.append(stack.enter_context(_open(temporary, ending, table.schema)))
        writers[0].write_table(table)

    return write


def _open(temporary: Path, ending: str, schema: pa.Schema) -> pq.ParquetWriter | pa.ipc.RecordBatchFileWriter:
    if ending == ".parquet":
        return pq.ParquetWriter(temporary, schema)
    return pa.ipc.new_file(str(temporary), schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))
