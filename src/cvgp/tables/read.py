"""Opening tables: files of any format, databases and data frames, as parts that Arrow reads batch by batch.

pyarrow reads CSV, Parquet and Arrow files, from this machine or from an object store. In front of it stand our decoding
and number formats (:mod:`cvgp.tables.formats`), and limits on what a file may claim or unpack to
(:mod:`cvgp.files.limits`).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.interchange
import pyarrow.parquet as pq

from cvgp.errors import (
    CVGPError,
    FileAccessError,
    FileFormatError,
    InvalidInputError,
    InvalidTypeError,
    MissingFileError,
    optional_packages,
)
from cvgp.files import check_readable, checked_path
from cvgp.files.limits import check_columns, check_metadata, check_stored, check_unpacked
from cvgp.tables.cells import is_text_type, kind_of_type
from cvgp.tables.formats import (
    PLAIN,
    SEPARATOR_NAMES,
    CsvOptions,
    Evidence,
    Reading,
    Sniffed,
    allowed_forms,
    check_csv,
    check_names,
    choose_formats,
    parse_numbers,
    sniff,
)
from cvgp.tables.locate import ARROW_FORMATS, JSON_ENDINGS, SEPARATORS, find_files
from cvgp.tables.row_formats import RowSource, check_table, open_json, open_sheet, open_sqlite, quoted, split_sheet

Location: TypeAlias = Any
"""A path, a glob, a folder, a list of these, a pyarrow dataset or a data frame."""

BATCH_ROWS = 1 << 14
"""Rows that are decoded at a time."""
BUFFER_BYTES = 1 << 18
"""Read at a time of each column of a Parquet file: a row group is not loaded whole, however large it is."""
TYPED_BYTES = 32_000_000
"""Text files of at most this size together, unpacked: all rows decide the types of columns. Else their first rows."""
BLOCK_BYTES = 1 << 20
"""Parsed at a time of a text file; a line must not be longer."""
MANY_TEXTS = 50
"""A column of more different texts, most of which are numbers, is one of numbers with some bad cells."""
ENOUGH_CELLS = 1000
"""After this many cells it is clear that a column of text holds no numbers."""
CELL_BYTES = 8
"""A cell in memory, whatever it takes in the file."""
TEXT_OVERHEAD = 3
"""Bytes in memory per byte of a text file, for short cells."""
MOST_SHOWN = 3
"""Rows that an error names."""
_DATABASES = ("sqlite:///", "duckdb:///")
_TRUTHS = frozenset({"true", "True", "TRUE", "false", "False", "FALSE"})


@dataclass(frozen=True)
class Part:
    """A piece of a table that is read from its beginning: a row group of Parquet, a file, or a frame."""

    file: str
    types: Mapping[str, pa.DataType]
    """Those that its columns have in the file."""
    read: Callable[[Sequence[str]], Iterable[pa.RecordBatch]]
    """The rows with some of its columns."""
    num_bytes: int = 0
    """The size of the file; 0 for a table in memory."""
    first_row: int = 0
    """Rows of the file that come before."""
    num_rows: int | None = None
    """As the file says; None if only reading can tell."""


@dataclass(frozen=True)
class Opened:
    """A table that is ready to be read."""

    names: list[str]
    parts: list[Part]
    reading: Reading = field(default_factory=Reading)
    inferred: Mapping[str, pa.DataType] = field(default_factory=dict)
    """The types of columns that are text in the files, by what the text is."""
    certain: Mapping[str, pa.DataType] = field(default_factory=dict)
    """The types of columns of text files of which every cell is a plain number or a truth."""
    is_text_file: bool = False

    def batches(
        self, part: Part, names: Sequence[str], kinds: Mapping[str, str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a part with some columns, in order.

        `kinds` says what columns are taken for: a cell of a numeric one that is not a number is infinite. The cells of
        other columns stay as they are.
        """
        total = 0
        with blaming(part.file):
            for batch in part.read(names):
                batch.validate(full=True)  # a damaged file could otherwise crash the interpreter
                total += batch.nbytes // (TEXT_OVERHEAD if self.is_text_file else 1)
                if part.num_bytes:
                    check_unpacked(part.file, part.num_bytes, total)
                columns = [
                    self._typed(name, column, (kinds or {}).get(name))
                    for name, column in zip(names, batch.columns, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, names=list(names))

    def _typed(self, name: str, column: pa.Array, kind: str | None) -> pa.Array:
        wanted = (self.inferred if kind else self.certain).get(name)
        if not is_text_type(column.type) or kind in ("categorical", "date"):
            return column
        if self.is_text_file and kind == "boolean":
            wanted = pa.bool_()
        if self.is_text_file and kind == "numeric" and not pa.types.is_integer(wanted):
            wanted = pa.float64()
        if wanted is None or wanted == column.type or pa.types.is_null(wanted):
            return column
        if pa.types.is_boolean(wanted):
            return column.cast(wanted)
        numbers = parse_numbers(column, self.reading.numbers.get(name, PLAIN))
        is_whole = pa.types.is_integer(wanted) and not pc.any(pc.is_inf(numbers)).as_py()
        return numbers.cast(wanted, safe=False) if is_whole else numbers

    def type_of(self, part: Part, name: str) -> pa.DataType:
        """The type of a column in a part, which must have it."""
        if name not in part.types:
            raise InvalidInputError(
                f"{part.file} has no column {name!r}; every file of a table must have each column once. It has "
                f"{list(part.types)}."
            )
        return self.inferred.get(name, part.types[name])

    def kinds(self, names: Sequence[str], problems: dict[str, CVGPError] | None = None) -> dict[str, str]:
        """The kind of each column, the same in every part; `null` if no part says one.

        A column that has no kind is an error, or is noted among the problems and left out.
        """
        found: dict[str, tuple[str, pa.DataType, str]] = {}
        refused: dict[str, CVGPError] = {}
        for part in self.parts:
            for name in names:
                own = self.type_of(part, name)
                try:
                    kind = kind_of_type(name, own)
                    known = found.setdefault(name, (kind, own, part.file))
                    if known[0] == "null":
                        found[name] = (kind, own, part.file)
                    elif kind not in ("null", known[0]):
                        raise InvalidTypeError(
                            f"Column {name!r} changes its type: it is {known[1]} in {known[2]} and {own} in "
                            f"{part.file}. Write one of the files again with the other's type, or leave it out."
                        )
                except InvalidTypeError as error:
                    if problems is None:
                        raise
                    refused.setdefault(name, error)
        if problems is not None:
            problems.update(refused)
        return {name: kind for name, (kind, _, _) in found.items() if name not in refused}

    def cell_text(self, part: Part, name: str, row: int) -> str | None:
        """The text of a cell that is read as a number; None if it is empty, or its column is not text."""
        if is_text_type(part.types[name]):
            for batch in self.batches(part, [name], {name: "categorical"}):
                if row < len(batch):
                    return None if (cell := batch.column(0)[row].as_py()) is None else str(cell)
                row -= len(batch)
        return None


@contextmanager
def blaming(file: str) -> Iterator[None]:
    """Name the file in whatever Arrow has against it."""
    try:
        yield
    except CVGPError:
        raise
    except FileNotFoundError as error:
        raise MissingFileError(f"{file} is not there (any more); restore it, or start again without it.") from error
    except PermissionError as error:
        raise FileAccessError(f"{file} cannot be read ({error}); check who may read it.") from error
    except (pa.ArrowException, OSError, ValueError, KeyError, EOFError, RecursionError, OverflowError) as error:
        reason = f"{type(error).__name__}: {str(error).strip()}"
        if any(words in reason for words in ("duplicate field names", "multiple columns named", "Multiple matches")):
            raise InvalidInputError(f"Column names must be unique: {file}: {error}; rename the columns.") from error
        if "invalid UTF8" in reason or isinstance(error, UnicodeError):
            raise FileFormatError(
                f"{file} holds text that does not fit its encoding ({reason}), which its first bytes seemed to have; "
                "say which one it has: read_table(..., encoding='cp1252'), --encoding cp1252."
            ) from error
        raise FileFormatError(
            f"{file} could not be read ({reason}); it is damaged, or not what its name says: write it again. In a "
            "text file every row must be as long as the first line; or say how it is written (--sep, --encoding; "
            "read_table(..., sep=..., encoding=...))."
        ) from error


def open_table(location: Location, csv: Mapping[str, object] | None = None, known: Reading | None = None) -> Opened:
    """Open a table: files of one format in the order of their names, a database, a pyarrow dataset or a frame.

    Folders are searched to any depth; `key=value` in a path becomes a column (Hive's partitions). A URI such as
    `s3://bucket/folder` is read through Arrow's file systems. `known` is how a model has read its training table; it
    decides what a text does not tell.
    """
    options = check_csv(csv or {})
    paths = [location] if isinstance(location, str | os.PathLike) else location
    if isinstance(paths, list | tuple) and paths and all(isinstance(item, str | os.PathLike) for item in paths):
        found = _open_files([os.fspath(item) for item in paths], options, known)
        for part in found.parts[:1]:
            check_columns(part.file, len(found.names))
        return found
    if options:
        raise _options_error(options, f"a {type(location).__name__}")
    if isinstance(location, ds.Dataset):
        return _open_dataset(location)
    if hasattr(location, "__dataframe__") or hasattr(location, "__arrow_c_stream__"):
        return open_frame(location, known=known)
    raise InvalidTypeError(
        f"A table is a path, a glob, a list of them, a pyarrow dataset, or a DataFrame; got {type(location).__name__}."
    )


def _options_error(options: CsvOptions, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"{', '.join(options)} can be said of text tables ({', '.join(SEPARATORS)}), and this is {what}; leave it out."
    )


def _open_files(paths: list[str], options: CsvOptions, known: Reading | None) -> Opened:
    if any(path.lower().startswith(_DATABASES) for path in paths):
        if options:
            raise _options_error(options, "a database")
        if len(paths) > 1:
            raise InvalidInputError("Only one table of a database can be read at a time; join them in a view.")
        return _open_database(paths[0], known)
    sheet = None
    if len(paths) == 1:
        paths[0], sheet = split_sheet(paths[0])
    filesystem, files, ending = find_files(paths)
    # The folders of a file that is named itself are not part of the table.
    partitioning = None if len(files) == 1 and files == paths else "hive"
    with blaming(files[0]):
        if ending in SEPARATORS:
            return _open_text(filesystem, files, ending, partitioning, options, known)
        if options:
            raise _options_error(options, ending)
        if ending == ".xlsx":
            return _open_rows([open_sheet(filesystem, file, sheet) for file in files], known)
        if ending in JSON_ENDINGS:
            return _open_rows([open_json(filesystem, file) for file in files], known)
        if ending == ".parquet":
            for file in files:
                _check_footer(filesystem, file)
        dataset = ds.dataset(files, format=ARROW_FORMATS[ending], filesystem=filesystem, partitioning=partitioning)
        return _open_dataset(_without_index(dataset))


# Text files ---------------------------------------------------------------------------------------------------------


def _open_text(
    filesystem: pafs.FileSystem,
    files: Sequence[str],
    ending: str,
    partitioning: str | None,
    options: CsvOptions,
    known: Reading | None,
) -> Opened:
    found, names = _sniff_all(filesystem, files, options, SEPARATORS[ending])
    check_columns(files[0], len(found.names))
    form = ds.CsvFileFormat(
        parse_options=pa.csv.ParseOptions(delimiter=found.sep, newlines_in_values=True),
        # A word such as NA is a missing value, in columns of text too.
        convert_options=pa.csv.ConvertOptions(strings_can_be_null=True),
        read_options=pa.csv.ReadOptions(
            block_size=BLOCK_BYTES, encoding="utf8" if found.encoding == "utf-8" else found.encoding
        ),
    )
    dataset = ds.dataset(list(files), format=form, filesystem=filesystem, partitioning=partitioning)
    sizes = [info.size or 0 for info in filesystem.get_file_info(list(files))]
    parts = []
    for fragment, own, size in zip(dataset.get_fragments(), names, sizes, strict=True):
        constants = ds.get_partition_keys(fragment.partition_expression)
        types = dict.fromkeys(own, pa.string()) | {name: pa.scalar(value).type for name, value in constants.items()}
        parts.append(Part(fragment.path, types, _scan(fragment, types), size))
    every = list(dict.fromkeys(name for part in parts for name in part.types))
    opened = Opened(every, parts, Reading(found.sep, found.encoding), is_text_file=True)
    return _infer(opened, options, known)


def _scan(fragment: ds.Fragment, types: Mapping[str, pa.DataType]) -> Callable[[Sequence[str]], Any]:
    def read(names: Sequence[str]) -> Any:
        schema = pa.schema([(name, types[name]) for name in names])
        return fragment.scanner(
            schema=schema, columns=list(names), batch_size=BATCH_ROWS, use_threads=False, batch_readahead=1
        ).to_reader()

    return read


def _sniff_all(
    filesystem: pafs.FileSystem, files: Sequence[str], options: CsvOptions, default_sep: str
) -> tuple[Sniffed, list[list[str]]]:
    """What the files have in common, and the names in each; files that are written in different ways are refused."""
    each = []
    for file in files:
        is_packed = file.lower().endswith(".gz")
        if is_packed:
            _check_packed(filesystem, file)
        size = BLOCK_BYTES if file == files[0] else 1 << 16
        with filesystem.open_input_stream(file, compression="gzip" if is_packed else None) as stream:
            content = stream.read_buffer(size + 1).to_pybytes()  # unlike `read`, this frees its memory when it fails
        each.append(sniff(file, content[:size], len(content) <= size, options, default_sep))
    found, decisive = each[0], files[0]
    for file, other in zip(files, each, strict=True):
        if other.sep != found.sep and len(other.names) > 1:
            raise InvalidInputError(
                f"The columns of {files[0]} are separated by {SEPARATOR_NAMES.get(found.sep, found.sep)} and those of "
                f"{file} by {SEPARATOR_NAMES.get(other.sep, other.sep)}; write them in one way."
            )
        if other.encoding != found.encoding and not (other.is_ascii and other.encoding == "utf-8"):
            if not (found.is_ascii and found.encoding == "utf-8"):
                raise InvalidInputError(
                    f"{decisive} is {found.encoding} and {file} is {other.encoding}; write the files of a table in one "
                    "encoding."
                )
            found, decisive = found._replace(encoding=other.encoding, is_ascii=False), file
    return found, [own.names for own in each]


def _check_packed(filesystem: pafs.FileSystem, file: str) -> None:
    """Raise for a packed file whose beginning unpacks to far more than its size: one line of it may fill the memory."""
    total = 0
    with filesystem.open_input_file(file) as packed, pa.CompressedInputStream(packed, "gzip") as stream:
        while total < TYPED_BYTES and (piece := stream.read_buffer(BLOCK_BYTES)).size:
            total += piece.size
            check_unpacked(file, packed.tell(), total)


def _infer(opened: Opened, options: CsvOptions, known: Reading | None) -> Opened:
    """Text files with the types of their columns, and how numbers are written that are not plain ones."""
    names = [name for name in opened.names if any(is_text_type(part.types.get(name)) for part in opened.parts)]
    sample, is_whole = _sample(opened, names)
    types = {name: _plain_type(sample[name], is_whole) for name in names}
    text = [name for name, found in types.items() if pa.types.is_string(found)]
    real = [name for name, found in types.items() if pa.types.is_floating(found)]
    forms = allowed_forms(options)
    every = {name: _evidence(sample[name], forms) for name in text}
    found = {name: evidence for name, evidence in every.items() if evidence.decimal() is not None}
    earlier = None if known is None else known.numbers
    is_said = bool({"decimal", "thousands"} & set(options))
    has_commas = any(how.decimal == "," for how in (earlier or {}).values())
    has_commas |= "," in {evidence.decimal() for evidence in found.values()}
    # `1.234` has been taken for a plain number; it is another number if the point separates thousands.
    if is_said or has_commas or any(evidence.is_ambiguous for evidence in found.values()):
        for name in real:
            evidence = _evidence(sample[name], forms)
            # If nothing says that a point can be anything else, only what has one meaning counts.
            if evidence.decimal() is not None and (is_said or has_commas or evidence.decimal() == "."):
                found[name] = evidence
    default = options.get("decimal") or {";": ",", ",": "."}.get(opened.reading.sep or "")
    chosen = choose_formats(found, default, earlier)
    for name in text:
        is_mostly_numbers = every[name].matches.get((".", ""), 0) > 0.5 * every[name].cells
        if name not in chosen and is_mostly_numbers and len(pc.unique(sample[name])) > MANY_TEXTS:
            chosen[name] = PLAIN
    numbers = {name: how for name, how in chosen.items() if how != PLAIN}
    certain = {name: own for name, own in types.items() if is_whole and name not in chosen}
    inferred = types | dict.fromkeys(chosen, pa.float64())
    return replace(opened, reading=replace(opened.reading, numbers=numbers), inferred=inferred, certain=certain)


def _sample(opened: Opened, names: Sequence[str]) -> tuple[pa.Table, bool]:
    """The first rows of text files, as text, and whether they are all rows."""
    most = max(TYPED_BYTES // len(opened.parts), BLOCK_BYTES)
    is_whole = len(opened.parts) * BLOCK_BYTES <= TYPED_BYTES
    schema = pa.schema([(name, pa.string()) for name in names])
    batches = [pa.RecordBatch.from_pylist([], schema=schema)]
    for part in opened.parts[: TYPED_BYTES // BLOCK_BYTES]:
        own = [name for name in names if name in part.types]
        size = 0
        with blaming(part.file):
            for batch in part.read(own):
                columns = [batch.column(name) if name in own else pa.nulls(len(batch), pa.string()) for name in names]
                batches.append(pa.RecordBatch.from_arrays(columns, schema=schema))
                size += batch.nbytes
                if size > most:
                    is_whole = False
                    break
    return pa.Table.from_batches(batches).combine_chunks(), is_whole


def _plain_type(column: pa.ChunkedArray, is_whole: bool) -> pa.DataType:
    """The type that a column of text has without any look at number formats."""
    if column.null_count == len(column):
        return pa.null()
    for wanted in (pa.int64(), pa.float64()):
        try:
            column.cast(wanted)
        except pa.ArrowInvalid:
            continue
        return wanted if is_whole else pa.float64()  # integers are certain only if the types come from all rows
    first = column.slice(0, ENOUGH_CELLS).drop_null().unique()
    if len(first) <= len(_TRUTHS) and set(column.unique().drop_null().to_pylist()) <= _TRUTHS:
        return pa.bool_()
    return pa.string()


def _evidence(column: pa.ChunkedArray, forms: Sequence[tuple[str, str]]) -> Evidence:
    """What the cells of a column are; little of what is not a number is looked at."""
    found = Evidence()
    found.add(column.slice(0, ENOUGH_CELLS), forms)
    if any(found.matches.values()) or not found.cells:
        found.add(column.slice(ENOUGH_CELLS), forms)
    return found


# Formats with types of their own ------------------------------------------------------------------------------------


def _open_rows(sources: Sequence[RowSource], known: Reading | None) -> Opened:
    parts = [Part(source.file, source.types, source.read, source.num_bytes) for source in sources]
    every = list(dict.fromkeys(name for part in parts for name in part.types))
    mixed = {name for source in sources for name in source.mixed}
    return _with_numbers(Opened(every, parts), known, lambda name: name in mixed)


def _open_database(location: str, known: Reading | None) -> Opened:
    """One table; after three slashes comes a path as it is, so that `////` begins an absolute one."""
    scheme, path = location[: len(_DATABASES[0])].lower(), location[len(_DATABASES[0]) :]
    file, _, table = path.partition("::")
    check_readable(checked_path(file))
    info = os.stat(file)
    check_stored(file, info.st_size, getattr(info, "st_blocks", None))
    if scheme == "sqlite:///":
        return _open_rows([open_sqlite(location, file, table)], known)
    with _duckdb(location, file) as database:
        query = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() ORDER BY 1"
        check_table(location, table, [name for (name,) in database.execute(query).fetchall()])
        empty = database.sql(f"SELECT * FROM {quoted(table)} LIMIT 0").to_arrow_table()
    types = {column.name: column.type for column in empty.schema}

    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        columns = ", ".join(map(quoted, names)) or "1"
        with _duckdb(location, file) as database:
            yield from database.sql(f"SELECT {columns} FROM {quoted(table)}").to_arrow_reader(BATCH_ROWS)

    return _with_numbers(Opened(list(types), [Part(location, types, read, info.st_size)]), known)


@contextmanager
def _duckdb(location: str, file: str) -> Iterator[Any]:
    with optional_packages():
        import duckdb
    # A view in the file may name other files and addresses; it gets none of them.
    settings: Any = {"enable_external_access": "false", "autoload_known_extensions": "false", "threads": "1"}
    try:
        with duckdb.connect(file, read_only=True, config=settings) as database:
            yield database
    except duckdb.Error as error:
        raise FileFormatError(
            f"{location} could not be read ({str(error).strip()}); it is damaged, in use or not a DuckDB file."
        ) from error


def _open_dataset(dataset: ds.Dataset) -> Opened:
    """An Arrow dataset: only the columns of its schema are read."""
    try:
        fragments = list(dataset.get_fragments())
    except ValueError as error:
        raise InvalidInputError(
            "A filtered dataset cannot be read in parts; write the rows that you want to files of their own."
        ) from error
    names = list(dataset.schema.names)
    parts: list[Part] = []
    for fragment in fragments:
        file = getattr(fragment, "path", "") or "the table in memory"
        with blaming(file):
            constants = ds.get_partition_keys(fragment.partition_expression)
            physical = fragment.physical_schema
            check_names(file, physical.names)
            types = {own.name: own.type for own in physical if own.name in names}
            types |= {name: dataset.schema.field(name).type for name in constants if name in names}
            if isinstance(fragment, ds.ParquetFileFragment):
                parts += _row_groups(file, fragment, types, constants)
            else:
                size = _size(fragment)
                parts.append(Part(file, types, _scan(fragment, types), size))
    if not parts:
        raise InvalidInputError("The table holds no rows; it must have at least one.")
    return Opened(names, parts)


def _size(fragment: ds.Fragment) -> int:
    path = getattr(fragment, "path", "")
    return fragment.filesystem.get_file_info(path).size or 0 if path else 0


def _row_groups(
    file: str, fragment: ds.ParquetFileFragment, types: Mapping[str, pa.DataType], constants: Mapping[str, Any]
) -> list[Part]:
    """The parts of a Parquet file, after a look at the sizes that its footer claims."""
    metadata, size = fragment.metadata, _size(fragment)
    check_unpacked(file, size, CELL_BYTES * metadata.num_rows * metadata.num_columns)
    parts, first = [], 0
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        for position in range(group.num_columns):
            chunk = group.column(position)
            name = f"Column {chunk.path_in_schema!r} of {file}"
            check_unpacked(name, chunk.total_compressed_size, chunk.total_uncompressed_size)
        read = _row_group_reader(fragment, index, types, constants)
        parts.append(Part(file, types, read, size, first, group.num_rows))
        first += group.num_rows
    return parts


def _row_group_reader(
    fragment: ds.ParquetFileFragment, index: int, types: Mapping[str, pa.DataType], constants: Mapping[str, Any]
) -> Callable[[Sequence[str]], Iterator[pa.RecordBatch]]:
    def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        stored = [name for name in names if name not in constants]
        with fragment.filesystem.open_input_file(fragment.path) as stream:
            file = pq.ParquetFile(
                stream,
                metadata=fragment.metadata,
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
                page_checksum_verification=True,  # if the writer stored checksums
                # One long text that all rows have would otherwise be repeated in memory.
                read_dictionary=[name for name in stored if is_text_type(types[name])],
            )
            for batch in file.iter_batches(BATCH_ROWS, row_groups=[index], columns=stored, use_threads=False):
                columns = [
                    pa.repeat(pa.scalar(constants[name], types[name]), len(batch))
                    if name in constants
                    else batch.column(name)
                    for name in names
                ]
                yield pa.RecordBatch.from_arrays(columns, list(names))

    return read


def _check_footer(filesystem: pafs.FileSystem, file: str) -> None:
    """Raise for a Parquet footer that takes too much memory; its length is in the last 8 bytes."""
    with filesystem.open_input_file(file) as stream:
        size = stream.size()
        if size >= 8:
            stream.seek(size - 8)
            check_metadata(file, min(struct.unpack("<I", stream.read(8)[:4])[0], size), size)


def _without_index(dataset: ds.Dataset) -> ds.Dataset:
    """The dataset without the row labels that pandas stores beside the columns: they only number the rows."""
    notes = dataset.schema.pandas_metadata
    labels = notes.get("index_columns") if isinstance(notes, dict) else None
    if not isinstance(labels, list):  # a file may hold anything
        return dataset
    kept = [own for own in dataset.schema if own.name not in labels]
    return dataset if len(kept) == len(dataset.schema) else dataset.replace_schema(pa.schema(kept))


def _with_numbers(opened: Opened, known: Reading | None, counts_plain: Callable[[str], bool] | None = None) -> Opened:
    """The table with notes on which of its columns of text hold numbers.

    Such a column is text because of how its numbers are written: `1,234`, `1.234,5` or `12 %`. Text of digits alone may
    be a code, such as a postcode, and stays text unless the model has read numbers, or other cells are numbers.
    """
    text = [name for name in opened.names if any(is_text_type(part.types.get(name)) for part in opened.parts)]
    earlier = None if known is None else known.numbers
    found: dict[str, Evidence] = {}
    for name in text:
        evidence = Evidence()
        for part in opened.parts:
            for batch in opened.batches(part, [name], {name: "categorical"}) if name in part.types else ():
                if is_text_type(batch.column(0).type):
                    evidence.add(batch.column(0), allowed_forms({}))
                if evidence.decimal() is None and evidence.cells > ENOUGH_CELLS:
                    break
        if evidence.decimal() is not None:
            found[name] = evidence
    chosen = choose_formats(found, ".", earlier)
    numbers = {
        name: how
        for name, how in chosen.items()
        if how != PLAIN or known is not None or (counts_plain is not None and counts_plain(name))
    }
    inferred = dict(opened.inferred) | dict.fromkeys(numbers, pa.float64())
    return replace(opened, reading=replace(opened.reading, numbers=numbers), inferred=inferred)


# Frames -------------------------------------------------------------------------------------------------------------


def open_frame(frame: Any, beside: Mapping[str, Any] | None = None, *, known: Reading | None = None) -> Opened:
    """A data frame or Arrow table, with more columns beside it."""
    table = _arrow_table(frame)
    for name, values in (beside or {}).items():
        if len(values) != len(table):
            raise InvalidInputError(
                f"Found input variables with inconsistent numbers of samples: the table has {len(table)} rows, and "
                f"{name!r} has {len(values)}."
            )
        table = table.append_column(name, _arrow_column(name, values))
    fields = [own.with_type(pa.string()) if pa.types.is_string_view(own.type) else own for own in table.schema]
    # One piece, so that the categories of a column are the same in all batches.
    table = table.cast(pa.schema(fields)).combine_chunks()
    types = {own.name: own.type for own in table.schema}
    part = Part("the table in memory", types, lambda names: table.select(names).to_batches(BATCH_ROWS))
    return _with_numbers(Opened(list(types), [replace(part, num_rows=len(table))]), known)


def column_names(frame: Any) -> list[str]:
    """The names of a frame's columns, which must be text and different."""
    if not hasattr(frame, "columns"):
        frame = _arrow_table(frame)
    names = frame.schema.names if isinstance(frame, pa.Table | pa.RecordBatch) else list(frame.columns)
    if not all(isinstance(name, str) for name in names):
        raise InvalidTypeError(
            f"Column names must be text, got {names}; rename them, with pandas by frame.columns.astype(str)."
        )
    check_names("the frame", names)
    return names


def _arrow_table(frame: Any) -> pa.Table:
    if isinstance(frame, pa.Table):
        table = frame
    elif isinstance(frame, pd.DataFrame):
        names = column_names(frame)
        return pa.table([_arrow_column(name, frame.iloc[:, i]) for i, name in enumerate(names)], names=names)
    elif isinstance(frame, pa.RecordBatch):
        table = pa.Table.from_batches([frame])
    elif hasattr(frame, "__arrow_c_stream__"):
        table = pa.table(frame)
    else:
        table = pa.interchange.from_dataframe(frame)
    column_names(table)
    return table


def _arrow_column(name: str, values: Any) -> Any:
    """A column of pandas or NumPy as one of Arrow; if it mixes types, the error names the first odd rows."""
    if isinstance(values, pa.ChunkedArray | pa.Array):
        return values
    if not isinstance(values, pd.Series) and hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, ValueError) as error:
        cells = [(row, cell) for row, cell in enumerate(values) if not _is_missing(cell)]
        usual = type(cells[0][1]) if cells else object
        odd = islice(((row, cell) for row, cell in cells if type(cell) is not usual), MOST_SHOWN)
        shown = ", ".join(f"row {row + 1} holds {cell!r}" for row, cell in odd)
        reason = f"it begins with {usual.__name__}, but {shown}" if shown else str(error)
        raise InvalidTypeError(
            f"Column {name!r} mixes types: {reason}. Make all cells numbers, all text, all dates or all true and "
            "false, and leave out the others."
        ) from error


def _is_missing(cell: Any) -> bool:
    return cell is None or cell is pd.NA or cell is pd.NaT or (isinstance(cell, float) and np.isnan(cell))
