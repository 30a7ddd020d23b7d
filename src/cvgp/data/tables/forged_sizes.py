"""Sizes that a file of a table claims, looked at before Arrow believes them.

Arrow reads the whole header of a file, and unpacks a whole batch or page, before anything can be refused. So the few
numbers that matter are read here from the bytes themselves: how many columns, how many rows, how large when unpacked.
What is too damaged to be understood here is left to Arrow, which says what is wrong.
"""

import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from cvgp.data.tables.parquet_pages import pages_of
from cvgp.errors import InvalidInputError
from cvgp.files.limits import check_columns, check_metadata, check_stored, check_unpacked, most_unpacked

CELL_BYTES = 8
"""A cell in memory, whatever it takes in the file."""
LARGEST_PAGE = 1 << 31
"""Bytes that a page of Parquet can claim."""
MOST_PAGES = 100_000
"""Pages of a file that are looked at. They are looked at in small files only, which have far fewer."""


def check_sizes(filesystem: pafs.FileSystem, files: Sequence[str], ending: str) -> None:
    """Refuse files that consist of holes, and headers that claim more than their file can hold."""
    for file in files:
        if isinstance(filesystem, pafs.LocalFileSystem):
            found = os.stat(file)
            check_stored(file, found.st_size, getattr(found, "st_blocks", None))
        check = {".parquet": _check_parquet, ".feather": _check_arrow, ".arrow": _check_arrow}.get(ending)
        if check is not None:
            with filesystem.open_input_file(file) as stream:
                try:
                    check(file, stream)
                except (struct.error, IndexError, OverflowError):
                    continue  # damaged: Arrow will say what is wrong


def check_row_groups(file: str, fragment: ds.ParquetFileFragment, size: int) -> None:
    """Refuse a Parquet file whose rows take far more memory than the file, and parts that unpack to far more."""
    metadata = fragment.metadata
    check_unpacked(file, size, CELL_BYTES * metadata.num_rows * metadata.num_columns)
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        for position in range(group.num_columns):
            column = group.column(position)
            name = f"Column {column.path_in_schema!r} of {file}"
            check_unpacked(name, column.total_compressed_size, column.total_uncompressed_size)
    # A large file may unpack to as much as any page can claim, and headers of pages far away take a while to fetch.
    if isinstance(fragment.filesystem, pafs.LocalFileSystem) and most_unpacked(size) < LARGEST_PAGE:
        with fragment.filesystem.open_input_file(fragment.path) as stream:
            _check_pages(file, stream, metadata)


def _check_pages(file: str, stream: pa.NativeFile, metadata: pq.FileMetaData) -> None:
    """Refuse pages that claim far more memory than their column takes in the file."""
    count = 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        for position in range(group.num_columns):
            column = group.column(position)
            unpacked = 0
            try:
                for page in pages_of(stream, column):
                    count, unpacked = count + 1, unpacked + page.unpacked
                    name = f"Column {column.path_in_schema!r} of {file}"
                    check_unpacked(name, column.total_compressed_size, unpacked)
                    if count > MOST_PAGES + metadata.num_row_groups * metadata.num_columns:
                        raise InvalidInputError(
                            f"{file} has more than {MOST_PAGES} pages, which no honest file of its size has; write it "
                            "again with larger pages."
                        )
            except IndexError:
                continue  # damaged: Arrow will say what is wrong


def is_text(found: pa.DataType) -> bool:
    """Whether a column of Parquet holds text, which is read as numbers into a list of its different texts."""
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found))


def plain_text(file: str, name: str, column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Text as its file stores it, unless the repetitions of long texts would fill the memory."""
    if not is_text(wanted) or not pa.types.is_dictionary(column.type):
        return column
    lengths = pc.binary_length(column.dictionary).take(column.indices)
    check_unpacked(f"A piece of column {name!r} of {file}", column.nbytes, pc.sum(lengths).as_py() or 0)
    return column.cast(wanted)


def _check_parquet(file: str, stream: pa.NativeFile) -> None:
    """The end of a Parquet file has the length of its header, which begins with a version and the columns."""
    size = stream.size()
    tail = _bytes_at(stream, size - 8, 8)
    length = struct.unpack("<I", tail[:4])[0]
    if tail[4:] != b"PAR1" or length > size:
        return
    check_metadata(file, length, size)
    begin = _bytes_at(stream, size - 8 - length, 32)
    # Thrift: field 1 is the version, a variable integer; field 2 is a list of the columns and of one root.
    position = 1
    while begin[position] & 0x80:
        position += 1
    if begin[0] != 0x15 or begin[position + 1] != 0x19:
        return
    count = begin[position + 2] >> 4
    if count == 15:
        count, shift, position = 0, 0, position + 3
        while True:
            count |= (begin[position] & 0x7F) << shift
            shift, position = shift + 7, position + 1
            if not begin[position - 1] & 0x80:
                break
    check_columns(file, count - 1)


class _Batch(NamedTuple):
    """What a batch of an Arrow file claims."""

    num_rows: int
    packed: int
    unpacked: int


def _check_arrow(file: str, stream: pa.NativeFile) -> None:
    size = stream.size()
    tail = _bytes_at(stream, size - 10, 10)
    length = struct.unpack("<i", tail[:4])[0]
    if tail[4:] != b"ARROW1" or not 0 < length < size:
        return
    check_metadata(file, length, size)
    footer = _Table.root(_bytes_at(stream, size - 10 - length, length))
    schema = footer.table(1)
    num_columns = 0 if schema is None else len(list(schema.vector(1, 4)))
    check_columns(file, num_columns)
    rows = 0
    for slot in (2, 3):  # dictionaries, then batches
        for offset, header, _, _ in footer.vector(slot, 24, "<qiiq"):
            check_metadata(file, header, size)
            batch = _read_batch(stream, offset, header, slot == 2)
            check_unpacked(f"A batch of {file}", batch.packed, batch.unpacked)
            rows += batch.num_rows if slot == 3 else 0
            check_unpacked(file, size, CELL_BYTES * rows * num_columns)


def _read_batch(stream: pa.NativeFile, offset: int, header: int, is_dictionary: bool) -> _Batch:
    """The number of rows, and the sizes of the buffers; a packed buffer begins with its size when unpacked."""
    content = _bytes_at(stream, offset, header)
    # Old files have no marker before the length.
    message = _Table.root(content[8:] if content[:4] == b"\xff" * 4 else content[4:])
    batch = message.table(2)
    if is_dictionary and batch is not None:
        batch = batch.table(1)
    if batch is None:
        return _Batch(0, 0, 0)
    buffers = list(batch.vector(2, 16, "<qq"))
    packed = sum(size for _, size in buffers)
    if batch.table(3) is None:
        return _Batch(batch.number(0), packed, packed)
    unpacked = 0
    for where, size in buffers:
        if size >= 8:
            (claimed,) = struct.unpack("<q", _bytes_at(stream, offset + header + where, 8))
            unpacked += size if claimed < 0 else claimed  # -1 marks a buffer that is not packed
    return _Batch(batch.number(0), packed, unpacked)


class _Table:
    """A table of a flat buffer: its fields are found through a list of offsets, and may be absent."""

    def __init__(self, content: bytes, position: int) -> None:
        self._content = content
        self._position = position
        self._slots = position - self._get("<i", position)

    @classmethod
    def root(cls, content: bytes) -> "_Table":
        """The table that a buffer begins with."""
        return cls(content, struct.unpack_from("<I", content)[0])

    def number(self, slot: int) -> int:
        """A whole number of 64 bits; 0 where it is absent."""
        place = self._place(slot)
        return 0 if place is None else self._get("<q", place)

    def table(self, slot: int) -> "_Table | None":
        """A table within this one."""
        place = self._place(slot)
        return None if place is None else _Table(self._content, place + self._get("<I", place))

    def vector(self, slot: int, width: int, form: str = "<I") -> Iterator[tuple[Any, ...]]:
        """The items of a list, each of `width` bytes."""
        place = self._place(slot)
        if place is None:
            return
        begin = place + self._get("<I", place)
        count = self._get("<I", begin)
        for index in range(count):
            yield struct.unpack_from(form, self._content, begin + 4 + width * index)

    def _place(self, slot: int) -> int | None:
        entry = 4 + 2 * slot
        if entry + 2 > self._get("<H", self._slots):
            return None
        offset = self._get("<H", self._slots + entry)
        return self._position + offset if offset else None

    def _get(self, form: str, position: int) -> int:
        if position < 0:
            raise struct.error("a place before the beginning")
        found: int = struct.unpack_from(form, self._content, position)[0]
        return found


def _bytes_at(stream: pa.NativeFile, position: int, length: int) -> bytes:
    if position < 0 or length < 0:
        raise struct.error("a place before the beginning")
    stream.seek(position)
    content: bytes = stream.read(length)
    return content
