"""Reading the rows of a table: row groups of Parquet, and whole files of other formats, batch by batch.

Every part knows its file, the row with which it begins, and the size and time of the file when it was listed. So a
damaged, missing or changed file is an error that says so, and a bad row has a file and a number.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from cvgp.data.reading import Numerals
from cvgp.data.tables.arrow_cells import is_text_type, kind_of_type
from cvgp.data.tables.forged_sizes import check_row_groups, is_text, plain_text
from cvgp.data.tables.notes import Notes, name_of, notes_of
from cvgp.data.tables.numerals import spelled_numbers
from cvgp.data.tables.text_files import misfit_error
from cvgp.errors import CVGPError, FileFormatError, InvalidInputError, InvalidTypeError, MissingFileError

BUFFER_BYTES = 1 << 18
"""Read at a time of each column of a Parquet file: a row group is not loaded whole, however large it is."""
BATCH_ROWS = 1 << 14
"""Rows that are decoded at a time: each open part holds so many."""

TEXT_TYPES = {"numeric": pa.string(), "categorical": pa.string(), "boolean": pa.bool_()}
"""How the cells of a text file are read, by the kind of their column. A cell that spells no number is no error here."""


@dataclass(frozen=True)
class Part:
    """A piece of a table that is read from its beginning."""

    file: str
    fragment: ds.Fragment
    row_group: int | None
    """Of a Parquet file."""
    first_row: int
    """Rows of the file that come before."""
    num_rows: int | None
    """As the file says; None where only reading can tell."""
    num_bytes: int
    """Uncompressed, where the file says it, and otherwise its size."""
    stamp: tuple[int | None, int | None] | None
    """Size and time of modification of the file when it was listed; None for a table in memory."""
    notes: Notes = field(default_factory=Notes)
    """How cells of text are read."""


def list_parts(dataset: ds.Dataset) -> list[Part]:
    """All pieces, in the order of the files and of the rows in them."""
    parts: list[Part] = []
    notes = notes_of(dataset)
    for fragment in dataset.get_fragments():
        file = name_of(fragment)
        with _blaming(file):
            stamp = _stamp(fragment)
            if isinstance(fragment, ds.ParquetFileFragment):
                if stamp is not None:
                    check_row_groups(file, fragment, stamp[0] or 0)
                first = 0
                for group in fragment.row_groups:
                    rows, size = group.num_rows, group.total_byte_size
                    parts.append(Part(file, fragment, group.id, first, rows, size, stamp))
                    first += rows
            else:
                size = 0 if stamp is None else stamp[0] or 0
                parts.append(Part(file, fragment, None, 0, None, size, stamp, notes))
    if not parts:
        raise InvalidInputError("The table holds no rows; it must have at least one.")
    return parts


def column_types(dataset: ds.Dataset, names: Sequence[str]) -> Iterator[tuple[str, str, pa.DataType]]:
    """File, column and type of each of these columns of each file; a file that has none of a name is refused.

    A column of text that holds numbers has the type of numbers.
    """
    numerals = notes_of(dataset).numerals
    for fragment in dataset.get_fragments():
        file = name_of(fragment)
        with _blaming(file):
            schema = fragment.physical_schema
            constants = ds.get_partition_keys(fragment.partition_expression)
        for name in names:
            if name in constants:
                yield file, name, dataset.schema.field(name).type
                continue
            positions = schema.get_all_field_indices(name)
            if len(positions) != 1:
                found = "twice" if positions else "not at all"
                raise InvalidInputError(
                    f"{file} has the column {name!r} {found}; every file of a table has each column once. It has "
                    f"{schema.names}."
                )
            found = schema.field(positions[0]).type
            if isinstance(getattr(fragment, "format", None), ds.CsvFileFormat) and pa.types.is_binary(found):
                raise misfit_error(fragment, name)
            yield file, name, pa.float64() if name in numerals and is_text_type(found) else found


def column_kinds(
    dataset: ds.Dataset, names: Sequence[str], problems: dict[str, CVGPError] | None = None
) -> dict[str, str]:
    """The kind of each column, the same in every file; `null` where no file says one.

    A column that has no kind is an error, or is noted among the problems and left out.
    """
    found: dict[str, tuple[str, pa.DataType, str]] = {}
    refused: dict[str, CVGPError] = {}
    for file, name, arrow_type in column_types(dataset, names):
        try:
            kind = kind_of_type(name, arrow_type)
            known = found.setdefault(name, (kind, arrow_type, file))
            if known[0] == "null":
                found[name] = (kind, arrow_type, file)
            elif kind not in ("null", known[0]):
                raise InvalidTypeError(
                    f"Column {name!r} changes its type: it is {known[1]} in {known[2]} and {arrow_type} in {file}. "
                    "Write one of the files again with the other's type, or leave it out."
                )
        except InvalidTypeError as error:
            if problems is None:
                raise
            refused.setdefault(name, error)
    if problems is not None:
        problems.update(refused)
    return {name: kind for name, (kind, _, _) in found.items() if name not in refused}


def cell_text(part: Part, name: str, row: int) -> str | None:
    """What stands in a cell of text that is read as a number; None where it is empty, or where it has another type."""
    is_text = isinstance(getattr(part.fragment, "format", None), ds.CsvFileFormat) or name in part.notes.numerals
    if not is_text:
        return None
    for batch in read_batches(part, [name], {name: "categorical"}):
        if row < len(batch):
            return None if (cell := batch.column(0)[row].as_py()) is None else str(cell)
        row -= len(batch)
    return None


def read_batches(part: Part, names: Sequence[str], kinds: dict[str, str]) -> Iterator[pa.RecordBatch]:
    """The rows of a part with the columns of these names, in order.

    The kinds say how the cells of text files are read: a cell of a numeric column that spells no number is infinite.
    A column without a kind has the type that its file seems to give it.

    Raises
    ------
    FileFormatError
        If the file is damaged, or is not what it was when it was listed.
    MissingFileError
        If it is not there any more.
    """
    with _blaming(part.file):
        _check_unchanged(part)
        count = 0
        batches = _read_plain(part, names, kinds) if part.row_group is None else _read_row_group(part, names)
        for batch in batches:
            batch.validate(full=True)  # a damaged file could otherwise crash the interpreter
            count += len(batch)
            yield batch
        _check_unchanged(part)
        if part.num_rows not in (None, count):
            raise _changed(part, f"a piece of it has {count} rows where {part.num_rows} were found before")


def read_parts(
    parts: Sequence[Part], names: Sequence[str], kinds: dict[str, str]
) -> Iterator[tuple[Part, int, pa.RecordBatch]]:
    """Batches with their parts, and the number of rows of the part that came before."""
    for part in parts:
        before = 0
        for batch in read_batches(part, names, kinds):
            yield part, before, batch
            before += len(batch)


def _read_row_group(part: Part, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    fragment = part.fragment
    constants = ds.get_partition_keys(fragment.partition_expression)
    stored = [name for name in names if name not in constants]
    with fragment.filesystem.open_input_file(part.file) as stream:
        file = pq.ParquetFile(
            stream,
            metadata=fragment.metadata,
            pre_buffer=False,
            buffer_size=BUFFER_BYTES,
            page_checksum_verification=True,  # where the writer stored checksums
            # One long text that all rows have would otherwise be repeated in memory.
            read_dictionary=[name for name in stored if is_text(fragment.physical_schema.field(name).type)],
        )
        for batch in file.iter_batches(BATCH_ROWS, row_groups=[part.row_group], columns=stored, use_threads=False):
            columns = [
                pa.repeat(pa.scalar(constants[name]), len(batch))
                if name in constants
                else plain_text(part.file, name, batch.column(name), fragment.physical_schema.field(name).type)
                for name in names
            ]
            yield pa.RecordBatch.from_arrays(columns, list(names))


def _read_plain(part: Part, names: Sequence[str], kinds: dict[str, str]) -> Iterator[pa.RecordBatch]:
    physical = part.fragment.physical_schema
    constants = ds.get_partition_keys(part.fragment.partition_expression)
    is_text = isinstance(getattr(part.fragment, "format", None), ds.CsvFileFormat)
    fields, spelled = [], {}
    for position, name in enumerate(names):
        if name in constants:
            fields.append(pa.field(name, pa.scalar(constants[name]).type))
            continue
        found = physical.field(name).type
        numerals = part.notes.numerals.get(name, Numerals())
        if is_text and kinds[name] in TEXT_TYPES:
            if kinds[name] == "numeric":
                # Integers are certain only where the types come from all rows.
                is_whole = part.notes.is_whole and pa.types.is_integer(found)
                spelled[position] = numerals, found if is_whole else pa.float64()
            found = TEXT_TYPES[kinds[name]]
        elif is_text and numerals != Numerals() and pa.types.is_floating(found):
            # Arrow took the sign between thousands for a decimal point.
            spelled[position], found = (numerals, pa.float64()), pa.string()
        elif kinds[name] == "numeric" and name in part.notes.numerals and is_text_type(found):
            spelled[position] = numerals, pa.float64()
        fields.append(pa.field(name, found))
    scanner = part.fragment.scanner(
        schema=pa.schema(fields), columns=list(names), batch_size=BATCH_ROWS, use_threads=False, batch_readahead=1
    )
    for batch in scanner.to_reader():
        for position, how in spelled.items():
            batch = batch.set_column(position, names[position], _numbers_in_text(batch.column(position), *how))
        yield batch


def _numbers_in_text(column: pa.Array, numerals: Numerals, number_type: pa.DataType) -> pa.Array:
    """Text as numbers; infinite where it spells none, so that its row is a bad one."""
    if numerals != Numerals():
        found = spelled_numbers(column, numerals)
        return pc.if_else(pc.and_(pc.is_null(found), pc.is_valid(column)), np.inf, found)
    try:
        return column.cast(number_type)
    except pa.ArrowInvalid:
        text = column.to_pandas()
        found = pd.to_numeric(text, errors="coerce").to_numpy(np.float64)
        return pa.array(np.where(np.isnan(found) & text.notna(), np.inf, found), from_pandas=True)


def _stamp(fragment: ds.Fragment) -> tuple[int | None, int | None] | None:
    if not isinstance(fragment, ds.FileFragment) or fragment.buffer is not None:
        return None
    info = fragment.filesystem.get_file_info(fragment.path)
    if info.type == pafs.FileType.NotFound:
        raise MissingFileError(f"{fragment.path} is not there (any more); restore it, or start again without it.")
    return info.size, info.mtime_ns


def _check_unchanged(part: Part) -> None:
    if part.stamp is not None and (now := _stamp(part.fragment)) != part.stamp:
        words = (
            f"it had {part.stamp[0]} bytes and has {now[0]} now" if now and now[0] != part.stamp[0] else "by its time"
        )
        raise _changed(part, words)


def _changed(part: Part, how: str) -> FileFormatError:
    return FileFormatError(
        f"{part.file} has changed while it was being read ({how}); start again, once nothing writes to it any more."
    )


@contextmanager
def _blaming(file: str) -> Iterator[None]:
    """Name the file in whatever Arrow has against it."""
    try:
        yield
    except CVGPError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError(f"{file} is not there (any more); restore it, or start again without it.") from error
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:  # Arrow's include a size beyond the memory
        reason = f"{type(error).__name__}: {str(error).strip()}"
        if "invalid UTF8" in reason or isinstance(error, UnicodeError):
            raise FileFormatError(
                f"{file} holds text that does not fit its encoding ({reason}), which its first bytes seemed to have; "
                "say which one it has: --encoding cp1252, csv={'encoding': 'cp1252'}."
            ) from error
        raise FileFormatError(
            f"{file} could not be read ({reason}); it is damaged, or not what its name says: write it again."
        ) from error
