"""Sheets of Excel files: the names in the first row that holds anything, then one row for each row."""

import struct
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import dropwhile
from typing import Any

import pyarrow.dataset as ds
import pyarrow.fs as pafs

from cvgp.data.tables.copies import Copy, Row, copied_dataset, copy_rows
from cvgp.errors import CVGPError, FileFormatError, InvalidInputError
from cvgp.extras import optional_packages
from cvgp.files.limits import check_columns, check_unpacked
from cvgp.printable import printable

_TAIL_BYTES, _CONTENTS_BYTES = 66_000, 1 << 20
"""Where the end of a ZIP file says how long its list of contents is, and how long that may be."""
_ERRORS = {"#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#N/A", "#GETTING_DATA"}
"""What stands in a cell whose formula has no value."""


def split_sheet(path: str) -> tuple[str, str | None]:
    """The file of `book.xlsx::sheet`, and the sheet if one is named."""
    at = path.lower().find(".xlsx::")
    return (path, None) if at < 0 else (path[: at + 5], path[at + 7 :])


def copy_sheets(filesystem: pafs.FileSystem, files: Sequence[str], sheet: str | None) -> ds.Dataset:
    """A dataset of one sheet of each file: the named one, or the first."""
    return copied_dataset([_copy(filesystem, file, sheet) for file in files])


def _copy(filesystem: pafs.FileSystem, file: str, sheet: str | None) -> Copy:
    with _opened(filesystem, file, sheet) as rows:
        header = next(rows, ())
    names = [_name(cell) for cell in _without_end(header)]
    if not names:
        raise InvalidInputError(f"{file} has an empty sheet; its first row must hold the names of the columns.")
    _check_names(file, names)

    def body() -> Iterator[Row]:
        with _opened(filesystem, file, sheet) as rows:
            next(rows)
            for number, row in enumerate(rows, start=1):
                cells = _without_end(row)
                if len(cells) > len(names):
                    raise FileFormatError(
                        f"Row {number} below the names in {file} has {len(cells)} cells, and there are {len(names)} "
                        "names; name all columns, and keep notes out of the sheet."
                    )
                if cells:  # rows that only have a format are none
                    yield [*cells, *[None] * (len(names) - len(cells))]

    return copy_rows(file, names, body, filesystem.get_file_info(file).size or 0)


@contextmanager
def _opened(filesystem: pafs.FileSystem, file: str, sheet: str | None) -> Iterator[Iterator[Row]]:
    """The rows of a sheet, from the first that holds anything."""
    with optional_packages():
        import openpyxl
    with _blaming(file), filesystem.open_input_file(file) as stream:
        _check_contents(file, stream)
        with zipfile.ZipFile(stream) as packed:
            size = sum(info.file_size for info in packed.infolist())
            check_unpacked(file, sum(info.compress_size for info in packed.infolist()), size)
        stream.seek(0)
        # Values as Excel last computed them, one row at a time.
        book = openpyxl.load_workbook(stream, read_only=True, data_only=True, keep_links=False)
        try:
            yield dropwhile(lambda row: not _without_end(row), _rows(book[_choose(file, book.sheetnames, sheet)]))
        finally:
            book.close()


def _rows(sheet: Any) -> Iterator[Row]:
    sheet.reset_dimensions()  # what a file says of its size need not be true
    for row in sheet.iter_rows(values_only=True):
        yield [None if isinstance(cell, str) and (cell in _ERRORS or not cell.strip()) else cell for cell in row]


def _choose(file: str, names: list[str], sheet: str | None) -> str:
    if not names or (sheet is not None and sheet not in names):
        raise InvalidInputError(f"{file} has no sheet {sheet!r}; it has {', '.join(map(printable, names)) or 'none'}.")
    return names[0] if sheet is None else sheet


def _name(cell: Any) -> str:
    return "" if cell is None else str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _check_names(file: str, names: list[str]) -> None:
    check_columns(file, len(names))
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise InvalidInputError(
            f"Column names must be unique: {file} has {repeated} more than once; rename the columns."
        )


def _without_end(row: Row) -> Row:
    """The cells up to the last that is not empty."""
    size = len(row)
    while size and row[size - 1] is None:
        size -= 1
    return row[:size]


def _check_contents(file: str, stream: Any) -> None:
    """Refuse a list of contents that would take long to read: a book has a few dozen parts."""
    size = stream.size()
    stream.seek(max(size - _TAIL_BYTES, 0))
    tail = stream.read(_TAIL_BYTES)
    stream.seek(0)
    at = tail.rfind(b"PK\5\6")
    if at >= 0 and len(tail) >= at + 20 and struct.unpack_from("<I", tail, at + 12)[0] > _CONTENTS_BYTES:
        raise FileFormatError(
            f"{file} has a list of contents of more than {_CONTENTS_BYTES} bytes: it is no Excel file."
        )


@contextmanager
def _blaming(file: str) -> Iterator[None]:
    try:
        yield
    except (CVGPError, MemoryError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # a damaged sheet can fail anywhere in the parsers of XML and of the cells
        raise FileFormatError(
            f"{file} could not be read as a .xlsx table ({type(error).__name__}: {error}); it is damaged or of another "
            "kind: save it again, or as CSV."
        ) from error
