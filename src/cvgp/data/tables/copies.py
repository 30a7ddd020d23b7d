"""Rows of other formats, copied once to a temporary Arrow file that any number of passes can read.

The file has no name any more once it is mapped: the system frees it when nothing holds the dataset. So memory is for
one piece of the rows, and no file is left behind.
"""

import datetime
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

from cvgp.data.reading import Reading
from cvgp.data.tables.notes import Notes, named_after, with_notes
from cvgp.data.tables.numerals import Evidence, choose_numerals
from cvgp.errors import FileAccessError
from cvgp.files.limits import check_unpacked

Row = Sequence[Any]
_PIECE_ROWS, _PIECE_BYTES = 1 << 13, 1 << 24
"""The most that is held of the rows at a time, by their number and by what their cells take."""
_CELL_BYTES = 8
_PLAIN = (".", "")
_NUMBERS = {int, float, Decimal}
_TIMES = {
    frozenset({datetime.datetime}): pa.timestamp("us"),
    frozenset({datetime.datetime, datetime.date}): pa.timestamp("us"),
    frozenset({datetime.date}): pa.date32(),
    frozenset({datetime.time}): pa.time64("us"),
    frozenset({datetime.timedelta}): pa.duration("us"),
}
NESTED = pa.list_(pa.null())
"""The type of cells that are no single values: their column cannot be used, and is not copied."""


class Copy(NamedTuple):
    """One file or table that was copied."""

    fragment: ds.Fragment
    mixed: list[str]
    """Columns of text in which other values stand too."""


def copy_rows(source: str, names: Sequence[str], rows: Callable[[], Iterable[Row]], packed: int) -> Copy:
    """Rows of Python values under some names; they are gone through twice, since all of them decide the types.

    A column that holds text and other values becomes text. The rows of a file of `packed` bytes may be in some
    proportion to it (:mod:`cvgp.files.limits`), and are refused as soon as they are not.
    """
    found: list[set[type]] = [set() for _ in names]
    for piece in _pieces(source, rows(), packed):
        for types, column in zip(found, zip(*piece, strict=True), strict=True):
            types |= set(map(type, column)) - {type(None)}
            if int in types and not _fits(column):
                types.add(float)
    arrow = [_arrow_type(types) for types in found]
    schema = pa.schema(list(zip(names, arrow, strict=True)))

    def batches() -> Iterator[pa.RecordBatch]:
        for piece in _pieces(source, rows(), packed):
            columns = [_array(column, to) for column, to in zip(zip(*piece, strict=True), arrow, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    mixed = [n for n, types, to in zip(names, found, arrow, strict=True) if pa.types.is_string(to) and types - {str}]
    return Copy(copy_batches(source, schema, batches(), packed), mixed)


def copy_batches(source: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch], packed: int) -> ds.Fragment:
    """Batches of one schema as a piece of a dataset, which is called by the name of their source."""
    handle, path = tempfile.mkstemp(prefix="cvgp-", suffix=".arrow")
    os.close(handle)
    try:
        named = named_after(schema, source)
        with _space(source), pa.OSFile(path, "wb") as stream, pa.ipc.new_file(stream, named) as writer:
            total = 0
            for batch in batches:
                total += batch.nbytes
                check_unpacked(source, packed, total)
                writer.write_batch(batch.replace_schema_metadata(named.metadata))
        with pa.memory_map(path) as mapped:
            return ds.IpcFileFormat().make_fragment(mapped.read_buffer())
    finally:
        os.unlink(path)


def copied_dataset(copies: Sequence[Copy]) -> ds.Dataset:
    """A dataset of copies; what cells of mixed columns are numbers is noted."""
    fragments = [copy.fragment for copy in copies]
    dataset = ds.FileSystemDataset(fragments, fragments[0].physical_schema, ds.IpcFileFormat())
    found: dict[str, Evidence] = {}
    for copy in copies:
        for name in copy.mixed:
            for batch in copy.fragment.to_batches(columns=[name]):
                found.setdefault(name, Evidence()).add(batch.column(0), [_PLAIN])
    return with_notes(dataset, Notes(Reading(None, None, choose_numerals(found, ".", None))))


def _pieces(source: str, rows: Iterable[Row], packed: int) -> Iterator[list[Row]]:
    piece: list[Row] = []
    size = total = 0
    for row in rows:
        piece.append(row)
        size += _CELL_BYTES * len(row) + sum(len(cell) for cell in row if isinstance(cell, str | bytes))
        if len(piece) == _PIECE_ROWS or size > _PIECE_BYTES:
            total += size
            check_unpacked(source, packed, total)
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _fits(column: Sequence[Any]) -> bool:
    """Whether whole numbers are within 64 bits."""
    whole = [value for value in column if type(value) is int]
    return not whole or (min(whole) >= -(2**63) and max(whole) < 2**63)


def _arrow_type(types: set[type]) -> pa.DataType:
    if not types:
        return pa.null()
    if types <= _NUMBERS:
        return pa.int64() if types == {int} else pa.float64()
    if types & {list, dict}:
        return NESTED
    if frozenset(types) in _TIMES:
        return _TIMES[frozenset(types)]
    return {frozenset({bool}): pa.bool_(), frozenset({bytes}): pa.binary()}.get(frozenset(types), pa.string())


def _array(column: Sequence[Any], to: pa.DataType) -> pa.Array:
    if to == NESTED:
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
        # A half of a pair of code units, which JSON can spell, is no text.
        return cell.encode("utf-8", "replace").decode()
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    if isinstance(cell, bool):
        return str(cell).lower()
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


@contextmanager
def _space(source: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileAccessError(
            f"{source} could not be copied to a temporary file ({error}); make room in {tempfile.gettempdir()}, or "
            "name another folder in the variable TMPDIR."
        ) from error
