"""Opening tables: files of any format, datasets and data frames, as parts that Arrow reads batch by batch."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, islice
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
from numpy.typing import NDArray

from cvgp.errors import (
    CVGPError,
    FileAccessError,
    FileFormatError,
    InvalidInputError,
    InvalidTypeError,
    MissingFileError,
)
from cvgp.files import check_columns, check_metadata, check_unpacked
from cvgp.tables.cells import (
    ENOUGH_CELLS,
    CsvOptions,
    Evidence,
    allowed_forms,
    check_csv,
    check_names,
    choose_formats,
    is_text_type,
    kind_of_type,
    parse_numbers,
    sniff,
)
from cvgp.tables.columns import PLAIN, Reading
from cvgp.tables.encode import MOST_SHOWN
from cvgp.tables.files import (
    ARROW_FORMATS,
    JSON_ENDINGS,
    SEPARATORS,
    arrow_of_cells,
    find_files,
    load_json,
    load_sheet,
)

Location: TypeAlias = Any  # a path, a glob, a folder, a list of these, a pyarrow dataset or a data frame

BATCH_ROWS = 1 << 14  # rows that are decoded at a time
BUFFER_BYTES = 1 << 18  # read at a time of each column of a Parquet file, since a row group may be large
TYPED_BYTES = 32_000_000  # unpacked text up to this size: all rows decide the types of columns, else the first
BLOCK_BYTES = 1 << 20  # parsed at a time of a text file; a line must not be longer
MANY_TEXTS = 50  # a column of more different texts, most of which are numbers, is one of numbers with some bad cells
TEXT_OVERHEAD = 3  # bytes in memory per byte of a text file, for short cells
IN_MEMORY = "the table in memory"
_TRUTHS = frozenset({"true", "True", "TRUE", "false", "False", "FALSE"})


@dataclass(frozen=True)
class Part:
    """A piece of a table that is read from its beginning: a row group of Parquet, a file, or a frame."""

    file: str
    types: Mapping[str, pa.DataType]
    read: Callable[[Sequence[str]], Iterable[pa.RecordBatch]]  # the rows with some of its columns
    num_bytes: int = 0  # of the file; 0 for a table in memory
    first_row: int = 0
    num_rows: int | None = None  # if the file says how many

    def count(self) -> int:
        """The number of rows, which are read if the file does not say it."""
        if self.num_rows is not None:
            return self.num_rows
        with blaming(self.file):
            return sum(len(batch) for batch in self.read(list(self.types)[:1]))


@dataclass(frozen=True)
class Opened:
    """A table that is ready to be read."""

    names: list[str]
    parts: list[Part]
    reading: Reading = field(default_factory=Reading)
    inferred: Mapping[str, pa.DataType] = field(default_factory=dict)  # of columns that are text in the files
    certain: Mapping[str, pa.DataType] = field(default_factory=dict)  # where every cell is a plain number or a truth
    is_text_file: bool = False
    chosen: Mapping[tuple[str, int], NDArray[np.bool_]] = field(default_factory=dict)  # rows that count, by parts

    def choose(self, rows: NDArray[np.bool_]) -> Opened:
        """The table of which only some rows [n] count."""
        ends = np.cumsum([part.count() for part in self.parts])
        places = [(part.file, part.first_row) for part in self.parts]
        return replace(self, chosen=dict(zip(places, np.split(rows, ends[:-1]), strict=True)))

    def values(self, name: str, read: Callable[[pa.Array], NDArray[Any]]) -> NDArray[Any]:
        """A column [n] of all rows, read batch by batch."""
        kinds = {name: self.kind(name)}
        found = [read(batch.column(0)) for part in self.parts for batch in self.batches(part, [name], kinds)]
        return np.concatenate(found) if found else np.empty(0)

    def batches(
        self, part: Part, names: Sequence[str], kinds: Mapping[str, str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a part with some columns; text in a column whose kind is numeric is infinite."""
        total = 0
        with blaming(part.file):
            for batch in part.read(names):
                batch.validate(full=True)  # a damaged file could otherwise crash the interpreter
                total += batch.nbytes // (TEXT_OVERHEAD if self.is_text_file else 1)
                if part.num_bytes:
                    check_unpacked(part.file, part.num_bytes, total)
                columns = [
                    self.typed(name, column, (kinds or {}).get(name))
                    for name, column in zip(names, batch.columns, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, names=list(names))

    def typed(self, name: str, column: pa.Array, kind: str | None) -> pa.Array:
        """A column as it was read, with the numbers, or true and false, that its text spells."""
        wanted = (self.inferred if kind else self.certain).get(name)
        if wanted is not None and pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
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

    def kind(self, name: str) -> str:
        """The kind of a column, the same in every part; `null` if no part says one."""
        found, first = "null", ""
        for part in self.parts:
            own = self.type_of(part, name)
            kind = kind_of_type(name, own)
            if found == "null":
                found, first = kind, f"{own} in {part.file}"
            elif kind not in ("null", found):
                raise InvalidTypeError(
                    f"Column {name!r} changes its type: it is {first} and {own} in {part.file}. Write one of the files "
                    "again with the other's type, or leave it out."
                )
        return found

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
    """Name the file in the errors of Arrow and of the system."""
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
    """Open files of one format, a pyarrow dataset or a frame; `known` is how a model has read its training table."""
    options = check_csv(csv or {})
    paths = [location] if isinstance(location, str | os.PathLike) else location
    if isinstance(paths, list | tuple) and paths and all(isinstance(item, str | os.PathLike) for item in paths):
        found = _open_files([os.fspath(item) for item in paths], options, known)
        check_columns(found.parts[0].file, len(found.names))
        return found
    _refuse_options(options, f"a {type(location).__name__}")
    if isinstance(location, ds.Dataset):
        return _open_dataset(location, known)
    if hasattr(location, "__dataframe__") or hasattr(location, "__arrow_c_stream__"):
        return open_frame(location, known=known)
    raise InvalidTypeError(
        f"A table is a path, a glob, a list of them, a pyarrow dataset, or a DataFrame; got {type(location).__name__}."
    )


def _refuse_options(options: CsvOptions, what: str) -> None:
    if options:
        allowed = ", ".join(SEPARATORS)
        raise InvalidInputError(
            f"{', '.join(options)} can be said of text tables ({allowed}), and this is {what}; leave it out."
        )


def _open_files(paths: list[str], options: CsvOptions, known: Reading | None) -> Opened:
    sheet = None
    at = paths[0].lower().find(".xlsx::")
    if len(paths) == 1 and at >= 0:
        paths, sheet = [paths[0][: at + 5]], paths[0][at + 7 :]
    filesystem, files, ending = find_files(paths)
    # The folders of a file that is named itself are not part of the table.
    partitioning = None if len(files) == 1 and files == paths else "hive"
    with blaming(files[0]):
        if empty := [file for file in files if filesystem.get_file_info(file).size == 0]:
            raise FileFormatError(f"{empty[0]} is empty: it has 0 bytes. Write the table again.")
        for file in files if ending.endswith(".gz") else ():
            _check_packed(filesystem, file)
        if ending in SEPARATORS:
            return _open_text(filesystem, files, ending, partitioning, options, known)
        _refuse_options(options, ending)
        if ending == ".xlsx":
            return _open_cells({file: load_sheet(filesystem, file, sheet) for file in files}, known)
        if ending in JSON_ENDINGS:
            return _open_cells({file: load_json(filesystem, file) for file in files}, known)
        for file in files if ending == ".parquet" else ():
            _check_footer(filesystem, file)
        dataset = ds.dataset(files, format=ARROW_FORMATS[ending], filesystem=filesystem, partitioning=partitioning)
        return _open_dataset(_without_index(dataset), known)


def _open_cells(frames: Mapping[str, Any], known: Reading | None) -> Opened:
    """Tables of Python values, by their files."""
    parts, mixed = [], set[str]()
    for file, frame in frames.items():
        table, own = arrow_of_cells(file, frame)
        parts.append(_loaded(file, table))
        mixed |= set(own)
    return _inferred(Opened(_all_names(parts), parts), known, mixed)


def _loaded(file: str, table: pa.Table) -> Part:
    types = {own.name: own.type for own in table.schema}
    return Part(file, types, lambda names: table.select(names).to_batches(BATCH_ROWS), num_rows=len(table))


# Text files ---------------------------------------------------------------------------------------------------------


def _open_text(
    filesystem: pafs.FileSystem,
    files: Sequence[str],
    ending: str,
    partitioning: str | None,
    options: CsvOptions,
    known: Reading | None,
) -> Opened:
    parts, reading = [], None
    for file in files:
        packing = "gzip" if ending.endswith(".gz") else None
        with filesystem.open_input_stream(file, compression=packing) as stream:
            content = stream.read_buffer(BLOCK_BYTES + 1).to_pybytes()  # unlike `read`, this frees memory when it fails
        is_all = len(content) <= BLOCK_BYTES
        encoding, sep, names = sniff(file, content[:BLOCK_BYTES], is_all, options, SEPARATORS[ending])
        check_columns(file, len(names))
        reading = reading or Reading(sep, encoding)
        form = ds.CsvFileFormat(
            parse_options=pa.csv.ParseOptions(delimiter=sep, newlines_in_values=True),
            # A word such as NA is a missing value, in columns of text too.
            convert_options=pa.csv.ConvertOptions(strings_can_be_null=True),
            read_options=pa.csv.ReadOptions(
                block_size=BLOCK_BYTES, encoding="utf8" if encoding == "utf-8" else encoding
            ),
        )
        dataset = ds.dataset([file], format=form, filesystem=filesystem, partitioning=partitioning)
        (fragment,) = dataset.get_fragments()
        constants = ds.get_partition_keys(fragment.partition_expression)
        types = dict.fromkeys(names, pa.string()) | {key: pa.scalar(own).type for key, own in constants.items()}
        parts.append(Part(file, types, _scan(fragment, types), _size(fragment)))
    return _inferred(Opened(_all_names(parts), parts, reading or Reading(), is_text_file=True), known, options=options)


def _all_names(parts: Sequence[Part]) -> list[str]:
    return list(dict.fromkeys(name for part in parts for name in part.types))


def _scan(fragment: ds.Fragment, types: Mapping[str, pa.DataType]) -> Callable[[Sequence[str]], Any]:
    def read(names: Sequence[str]) -> Any:
        schema = pa.schema([(name, types[name]) for name in names])
        return fragment.scanner(
            schema=schema, columns=list(names), batch_size=BATCH_ROWS, use_threads=False, batch_readahead=1
        ).to_reader()

    return read


def _check_packed(filesystem: pafs.FileSystem, file: str) -> None:
    """Raise for a packed file whose beginning unpacks to far more than its size: one line of it may fill the memory."""
    total = 0
    with filesystem.open_input_file(file) as packed, pa.CompressedInputStream(packed, "gzip") as stream:
        while total < TYPED_BYTES and (piece := stream.read_buffer(BLOCK_BYTES)).size:
            total += piece.size
            check_unpacked(file, packed.tell(), total)


# What text is -------------------------------------------------------------------------------------------------------


def _inferred(
    opened: Opened, known: Reading | None, mixed: Iterable[str] = (), options: CsvOptions | None = None
) -> Opened:
    """The table with the types of its columns of text, and how numbers are written that are not plain ones.

    Outside of text files, digits may be codes and stay text, unless the model knows numbers or other cells are numbers.
    """
    names = [name for name in opened.names if any(is_text_type(part.types.get(name)) for part in opened.parts)]
    sample, is_whole = _sample(opened, names)
    is_file, options = opened.is_text_file, options or {}
    types = {name: _plain_type(sample[name], is_whole) for name in names} if is_file else {}
    forms, earlier = allowed_forms(options), None if known is None else known.numbers
    text = [name for name in names if is_text_type(types.get(name, pa.string()))]
    every = {name: Evidence.of(sample[name], forms) for name in text}
    found = {name: evidence for name, evidence in every.items() if evidence.decimal() is not None}
    is_said = bool({"decimal", "thousands"} & set(options))
    has_commas = any(how.decimal == "," for how in (earlier or {}).values())
    has_commas |= any(evidence.decimal() == "," for evidence in found.values())
    # `1.234` has been taken for a plain number; it is another number if the point separates thousands.
    if is_said or has_commas or any(evidence.is_ambiguous for evidence in found.values()):
        for name in (name for name, own in types.items() if pa.types.is_floating(own)):
            evidence = Evidence.of(sample[name], forms)
            # If nothing says that a point can be anything else, only what has one meaning counts.
            if evidence.decimal() is not None and (is_said or has_commas or evidence.decimal() == "."):
                found[name] = evidence
    default = {";": ",", ",": "."}.get(opened.reading.sep or "") if is_file else "."
    chosen = choose_formats(found, options.get("decimal") or default, earlier)
    if not is_file:
        numbers = {name: how for name, how in chosen.items() if how != PLAIN or known is not None or name in mixed}
        return replace(opened, reading=Reading(numbers=numbers), inferred=types | dict.fromkeys(numbers, pa.float64()))
    for name in text:
        is_mostly_numbers = every[name].matches.get((".", ""), 0) > 0.5 * every[name].cells
        if name not in chosen and is_mostly_numbers and len(pc.unique(sample[name])) > MANY_TEXTS:
            chosen[name] = PLAIN
    return replace(
        opened,
        reading=replace(opened.reading, numbers={name: how for name, how in chosen.items() if how != PLAIN}),
        inferred=types | dict.fromkeys(chosen, pa.float64()),
        certain={name: own for name, own in types.items() if is_whole and name not in chosen},
    )


def _sample(opened: Opened, names: Sequence[str]) -> tuple[pa.Table, bool]:
    """The first rows of some columns as text, and whether they are all rows."""
    most = max(TYPED_BYTES // max(len(opened.parts), 1), BLOCK_BYTES)
    is_whole = len(opened.parts) * BLOCK_BYTES <= TYPED_BYTES
    schema = pa.schema([(name, pa.string()) for name in names])
    batches = [pa.RecordBatch.from_pylist([], schema=schema)]
    for part in opened.parts[: TYPED_BYTES // BLOCK_BYTES]:
        own = [name for name in names if is_text_type(part.types.get(name))]
        size = 0
        with blaming(part.file):
            for batch in part.read(own) if own else ():
                columns = [
                    batch.column(name).cast(pa.string()) if name in own else pa.nulls(len(batch), pa.string())
                    for name in names
                ]
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


# Files with types of their own --------------------------------------------------------------------------------------


def _open_dataset(dataset: ds.Dataset, known: Reading | None) -> Opened:
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
        file = getattr(fragment, "path", "") or IN_MEMORY
        with blaming(file):
            constants = ds.get_partition_keys(fragment.partition_expression)
            physical = fragment.physical_schema
            check_names(file, physical.names)
            types = {own.name: own.type for own in physical if own.name in names}
            types |= {name: dataset.schema.field(name).type for name in constants if name in names}
            if isinstance(fragment, ds.ParquetFileFragment):
                parts += _row_groups(file, fragment, types, constants)
            else:
                parts.append(Part(file, types, _scan(fragment, types), _size(fragment)))
    if not parts:
        raise InvalidInputError("The table holds no rows; it must have at least one.")
    return _inferred(Opened(names, parts), known)


def _size(fragment: ds.Fragment) -> int:
    path = getattr(fragment, "path", "")
    return fragment.filesystem.get_file_info(path).size or 0 if path else 0


def _row_groups(
    file: str, fragment: ds.ParquetFileFragment, types: Mapping[str, pa.DataType], constants: Mapping[str, Any]
) -> list[Part]:
    """The parts of a Parquet file, if its size and that of the table which its footer claims agree."""
    metadata, size = fragment.metadata, _size(fragment)
    check_unpacked(file, size, 8 * metadata.num_rows * metadata.num_columns)

    def read(index: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        stored = [name for name in names if name not in constants]
        with fragment.open() as stream:
            opened = pq.ParquetFile(
                stream,
                metadata=metadata,
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
                page_checksum_verification=True,  # if the writer stored checksums
                # One long text that all rows have would otherwise be repeated in memory.
                read_dictionary=[name for name in stored if is_text_type(types[name])],
            )
            for batch in opened.iter_batches(BATCH_ROWS, row_groups=[index], columns=stored, use_threads=False):
                added = {name: pa.repeat(pa.scalar(own, types[name]), len(batch)) for name, own in constants.items()}
                yield pa.RecordBatch.from_arrays(
                    [added[name] if name in added else batch[name] for name in names], list(names)
                )

    counts = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    firsts = [0, *accumulate(counts)]
    return [Part(file, types, partial(read, i), size, firsts[i], count) for i, count in enumerate(counts)]


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
    return _inferred(Opened(table.schema.names, [_loaded(IN_MEMORY, table)]), known)


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
    if isinstance(frame, pd.DataFrame):
        names = column_names(frame)
        return pa.table([_arrow_column(name, frame.iloc[:, i]) for i, name in enumerate(names)], names=names)
    has_stream = hasattr(frame, "__arrow_c_stream__") or isinstance(frame, pa.RecordBatch)
    table = pa.table(frame) if has_stream else pa.interchange.from_dataframe(frame)
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
        is_missing = pd.isna(pd.Series(values, dtype=object))
        cells = [(row, cell) for row, (cell, gone) in enumerate(zip(values, is_missing, strict=True), 1) if not gone]
        usual = type(cells[0][1]) if cells else object
        odd = islice(((row, cell) for row, cell in cells if type(cell) is not usual), MOST_SHOWN)
        shown = ", ".join(f"row {row} holds {cell!r}" for row, cell in odd)
        reason = f"it begins with {usual.__name__}, but {shown}" if shown else str(error)
        raise InvalidTypeError(
            f"Column {name!r} mixes types: {reason}. Make all cells numbers, all text, all dates or all true and "
            "false, and leave out the others."
        ) from error
