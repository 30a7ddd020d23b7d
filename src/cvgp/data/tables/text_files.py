"""Text files as an Arrow dataset: sniffed, typed by as many rows as is cheap, and their numbers recognised."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from cvgp.data.reading import SEPARATOR_NAMES, CsvOptions, Numerals, Reading
from cvgp.data.tables.notes import Notes, with_notes
from cvgp.data.tables.numerals import Evidence, allowed_forms, choose_numerals
from cvgp.data.tables.sniffing import Sniffed, compression_of, first_bytes, read_piece, sniff
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.files.limits import check_columns, check_unpacked

SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
"""What separates columns if a file does not tell."""

TEXT_REMEDY = (
    "save it as text, every row as long as the first line, or say how it is written (--sep, --encoding; "
    "csv={'sep': ..., 'encoding': ...})"
)

TYPED_BYTES = 32_000_000
"""Text files of at most so many bytes together, unpacked: all rows decide the types of columns. Else a first block."""
BLOCK_BYTES = 1 << 20
_OTHER_BYTES = 1 << 16
"""Looked at of each file but the first."""
_FILES_LOOKED_AT = 8
"""Of a large table, to recognise how numbers are written."""


def open_text(
    filesystem: pafs.FileSystem,
    files: Sequence[str],
    ending: str,
    partitioning: str | None,
    options: CsvOptions,
    known: Reading | None = None,
) -> ds.Dataset:
    """A dataset over text files that are all written in one way, with notes on how.

    Parameters
    ----------
    options
        What the user says of the files.
    known
        How a model has read its training table; it decides what these files do not tell.
    """
    found = _sniff_all(filesystem, files, options, SEPARATORS[ending])
    check_columns(files[0], found.num_columns)
    block, is_whole = _block_size(filesystem, files)
    form = ds.CsvFileFormat(
        parse_options=pa.csv.ParseOptions(delimiter=found.sep, newlines_in_values=True),
        # A word such as NA is a missing value, in columns of text too.
        convert_options=pa.csv.ConvertOptions(strings_can_be_null=True),
        read_options=pa.csv.ReadOptions(
            block_size=block, encoding="utf8" if found.encoding == "utf-8" else found.encoding
        ),
    )
    dataset = ds.dataset(list(files), format=form, filesystem=filesystem, partitioning=partitioning)
    numerals = _find_numerals(dataset, found.sep, options, known, is_whole=is_whole)
    return with_notes(dataset, Notes(Reading(found.sep, found.encoding, numerals), is_whole))


def _sniff_all(filesystem: pafs.FileSystem, files: Sequence[str], options: CsvOptions, default_sep: str) -> Sniffed:
    """What the files have in common; files that are written in different ways are refused."""
    found = sniff(files[0], *first_bytes(filesystem, files[0]), options, default_sep)
    decisive = files[0]
    for file in files[1:]:
        content, is_all = first_bytes(filesystem, file, _OTHER_BYTES)
        other = sniff(file, content, is_all, options, default_sep)
        if other.sep != found.sep and other.num_columns > 1:
            raise InvalidInputError(
                f"The columns of {files[0]} are separated by {_word(found.sep)} and those of {file} by "
                f"{_word(other.sep)}; write them in one way."
            )
        if other.encoding != found.encoding and not (other.is_ascii and other.encoding == "utf-8"):
            if not (found.is_ascii and found.encoding == "utf-8"):
                raise InvalidInputError(
                    f"{decisive} is {found.encoding} and {file} is {other.encoding}; write the files of a table in one "
                    "encoding."
                )
            found, decisive = found._replace(encoding=other.encoding, is_ascii=False), file
    return found


def _word(sep: str) -> str:
    return SEPARATOR_NAMES.get(sep, repr(sep))


def _block_size(filesystem: pafs.FileSystem, files: Sequence[str]) -> tuple[int, bool]:
    """How many bytes are parsed at a time, and whether these are whole files."""
    sizes = [_unpacked_size(filesystem, info) for info in filesystem.get_file_info(list(files))]
    largest = max(sizes)
    block = max(largest, BLOCK_BYTES) if largest * len(files) <= TYPED_BYTES else BLOCK_BYTES
    return block, largest <= block


def _unpacked_size(filesystem: pafs.FileSystem, info: pafs.FileInfo) -> int:
    """Of a file; for a packed one it is counted up to what matters, and must be in proportion to what was unpacked."""
    limit = max(TYPED_BYTES, BLOCK_BYTES)
    packing = compression_of(info.path)
    if packing is None:
        return info.size or 0
    total = 0
    with (
        filesystem.open_input_file(info.path) as packed,
        pa.CompressedInputStream(packed, packing) as stream,
    ):
        while total <= limit and (piece := read_piece(stream, BLOCK_BYTES)):
            total += len(piece)
            check_unpacked(info.path, packed.tell(), total)
    return total if total <= limit else max(total, info.size or 0)


def _find_numerals(
    dataset: ds.Dataset, sep: str, options: CsvOptions, known: Reading | None, *, is_whole: bool
) -> dict[str, Numerals]:
    """How numbers are written in the columns that hold other than plain ones."""
    types = _types(dataset)
    text = [name for name, found in types.items() if any(pa.types.is_string(t) for t in found)]
    real = [name for name, found in types.items() if name not in text and any(map(pa.types.is_floating, found))]
    forms = allowed_forms(options)
    found = _look(dataset, text, forms, is_whole=is_whole)
    default = options.get("decimal") or ("," if sep == ";" else ".")
    earlier = None if known is None else known.numerals
    is_said = bool({"decimal", "thousands"} & set(options))
    has_commas = any(n.decimal == "," for n in (earlier or {}).values()) or "," in {e.decimal() for e in found.values()}
    # Arrow has read `1.234` as a number; it is another one where the point stands between thousands.
    if is_said or has_commas or any(evidence.decimal() == "" for evidence in found.values()):
        found |= {
            name: evidence
            for name, evidence in _look(dataset, real, forms, is_whole=is_whole).items()
            # Where nothing says that a point can be anything else, only what has one meaning counts.
            if is_said or has_commas or evidence.decimal() == "."
        }
    chosen = choose_numerals(found, default, earlier)
    return {name: numerals for name, numerals in chosen.items() if name in text or numerals != Numerals()}


def _types(dataset: ds.Dataset) -> dict[str, list[pa.DataType]]:
    """Those that each column has in the files."""
    types: dict[str, list[pa.DataType]] = {}
    for fragment in dataset.get_fragments():
        for column in fragment.physical_schema:
            types.setdefault(column.name, []).append(column.type)
    return types


def _look(
    dataset: ds.Dataset, names: Sequence[str], forms: Sequence[tuple[str, str]], *, is_whole: bool
) -> dict[str, Evidence]:
    """What the cells of some columns are, of those columns in which some cell could be a number."""
    found = {name: Evidence() for name in names}
    for batch in _as_text(dataset, names, is_whole=is_whole):
        for name in list(found):
            column = batch.column(name)
            if column.null_count < len(column):
                found[name].add(column, forms)
                if found[name].decimal() is None and found[name].cells > 1000:
                    del found[name]
    return {name: evidence for name, evidence in found.items() if evidence.decimal() is not None}


def _as_text(dataset: ds.Dataset, names: Sequence[str], *, is_whole: bool) -> Iterator[pa.RecordBatch]:
    """Rows of some columns as they stand in the files: all of them, or those of the first block of a few files."""
    fragments = list(dataset.get_fragments()) if names else []
    for fragment in fragments if is_whole else fragments[:_FILES_LOOKED_AT]:
        own = [name for name in names if name in fragment.physical_schema.names]
        schema = pa.schema([(name, pa.string()) for name in own])
        reader = fragment.scanner(schema=schema, columns=own, use_threads=False, batch_readahead=1).to_reader()
        for batch in reader:
            missing = [name for name in names if name not in own]
            columns = [*batch.columns, *(pa.nulls(len(batch), pa.string()) for _ in missing)]
            yield pa.RecordBatch.from_arrays(columns, [*own, *missing])
            if not is_whole:
                break


def misfit_error(fragment: ds.Fragment, name: str) -> FileFormatError:
    """What to say of a column of a text file that is not all text, although its first bytes were."""
    row = 0
    for batch in fragment.scanner(
        schema=pa.schema([(name, pa.binary())]), columns=[name], use_threads=False
    ).to_reader():
        for cell in batch.column(0).to_pylist():
            row += 1
            if cell is not None and cell.decode("utf-8", "replace").encode() != cell:
                return FileFormatError(
                    f"{fragment.path}, data row {row}: column {name!r} holds {cell[:40]!r}, which does not fit "
                    "the encoding utf-8 that the first bytes seemed to have; say which one it is: --encoding cp1252, "
                    "csv={'encoding': 'cp1252'}."
                )
    return FileFormatError(
        f"{fragment.path} holds text that does not fit its encoding; say which one it is (--encoding)."
    )
