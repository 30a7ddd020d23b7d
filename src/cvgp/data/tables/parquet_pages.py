"""What the pages of a Parquet file claim to unpack to.

The header of a file says how large each column is when unpacked, but Arrow believes the page: it asks for the memory
that the page names. So the short header in front of each page is read here, in Thrift's compact form.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

FIRST_BYTES, MOST_BYTES = 256, 1 << 24
"""Of a header: what is read at first, and what Arrow reads at most."""
UNPACKED_FIELD, PACKED_FIELD = 2, 3
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
MOST_BITS = 63
NUMBERS = (4, 5, 6)
"""Whole numbers of 16, 32 and 64 bits, which are all of variable length."""


class Page(NamedTuple):
    """A page, in bytes."""

    header: int
    packed: int
    unpacked: int


def pages_of(stream: pa.NativeFile, column: pq.ColumnChunkMetaData) -> Iterator[Page]:
    """The pages of a column of a row group, in the order in which Arrow reads them.

    Raises
    ------
    IndexError
        If a header is cut short or holds what is not Thrift; Arrow refuses it too.
    """
    begin = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < begin:
        begin = column.dictionary_page_offset
    end = begin + column.total_compressed_size
    while begin < end:
        page = _page_at(stream, begin)
        yield page
        begin += page.header + page.packed


def _page_at(stream: pa.NativeFile, position: int) -> Page:
    length = FIRST_BYTES
    while True:
        stream.seek(position)
        content = stream.read(length)
        try:
            return _page(content)
        except RecursionError as error:
            raise IndexError("structures within structures") from error
        except IndexError:
            if length >= MOST_BYTES or len(content) < length:
                raise
            length *= 16


def _page(content: bytes) -> Page:
    reader = _Thrift(content)
    sizes = {UNPACKED_FIELD: 0, PACKED_FIELD: 0}
    for field, kind in reader.fields():
        if field in sizes and kind in NUMBERS:
            sizes[field] = reader.number()  # of equal fields Thrift takes the last
        else:
            reader.skip(kind)
    if sizes[PACKED_FIELD] < 0:
        raise IndexError("a page of a negative size")
    return Page(reader.position, sizes[PACKED_FIELD], sizes[UNPACKED_FIELD])


class _Thrift:
    """The compact form: a byte for each field, with its type and the step to its number."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field; the caller reads or skips its value before the next."""
        field = 0
        while head := self._byte():
            kind, step = head & 0x0F, head >> 4
            field = field + step if step else self.number()
            yield field, kind

    def number(self) -> int:
        """A whole number, whose sign is in its last bit."""
        found = self._length()
        return (found >> 1) ^ -(found & 1)

    def skip(self, kind: int, *, is_item: bool = False) -> None:
        """Go past a value; a truth value takes a byte only in a list, else it is in the type of its field."""
        if kind in (TRUE, FALSE):
            self._advance(1 if is_item else 0)
        elif kind == BYTE:
            self._advance(1)
        elif kind in NUMBERS:
            self._length()
        elif kind == DOUBLE:
            self._advance(8)
        elif kind == BINARY:
            self._advance(self._length())
        elif kind in (LIST, SET):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._length()
            self._skip_items(count, head & 0x0F)
        elif kind == MAP:
            count = self._length()
            kinds = self._byte() if count else 0
            for _ in range(count):
                self.skip(kinds >> 4, is_item=True)
                self.skip(kinds & 0x0F, is_item=True)
        elif kind == STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        else:
            raise IndexError(f"no type {kind}")

    def _skip_items(self, count: int, kind: int) -> None:
        for _ in range(count):
            self.skip(kind, is_item=True)

    def _length(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return found
            shift += 7
            if shift > MOST_BITS:
                raise IndexError("a number without an end")

    def _byte(self) -> int:
        found = self._content[self.position]
        self.position += 1
        return found

    def _advance(self, count: int) -> None:
        self.position += count
        if self.position > len(self._content):
            raise IndexError("the end of the header")
