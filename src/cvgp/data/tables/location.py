"""Where a table is: a path, a glob, a folder, a list of these, or an Arrow dataset."""

import fnmatch
import glob
import os
from collections.abc import Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from cvgp.errors import FileAccessError, FileFormatError, InvalidInputError, InvalidTypeError, MissingFileError

Location: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | ds.Dataset
"""Where a table is."""

SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
_FORMATS = {".parquet": "parquet", ".feather": "feather", ".arrow": "feather"}
ENDINGS = (*SEPARATORS, *_FORMATS)
"""The last part of a file's name, which tells its format."""

TYPED_BYTES = 32_000_000
"""Text files of at most so many bytes together: all rows decide the types of columns. Else a first block does."""
BLOCK_BYTES = 1 << 20


def open_dataset(location: Location) -> ds.Dataset:
    """An Arrow dataset over files of one format, in the order of their names.

    Folders are searched to any depth; `key=value` in a path becomes a column (Hive's partitions). A URI such as
    `s3://bucket/folder` is read through Arrow's file systems. A dataset stays as it is, so that any other format,
    partitioning, file system or choice of columns can be made there.
    """
    if isinstance(location, ds.Dataset):
        try:
            location.get_fragments()
        except ValueError as error:
            raise InvalidInputError(
                "A filtered dataset cannot be read in parts; write the rows that you want to files of their own."
            ) from error
        return location
    given = [location] if isinstance(location, (str, os.PathLike)) else location
    if not (isinstance(given, (list, tuple)) and given and all(isinstance(item, (str, os.PathLike)) for item in given)):
        raise InvalidTypeError(
            f"A table in files is a path, a glob, a list of them or a pyarrow dataset; got {type(location).__name__}."
        )
    paths = [os.fspath(item) for item in given]
    filesystem, files = _find_all(paths)
    endings = {ending_of(file) for file in files}
    if len(endings) > 1:
        raise InvalidInputError(
            f"The files have several formats ({', '.join(sorted(endings))}); give those of one ending only."
        )
    ending = endings.pop()
    try:
        form = _text_format(filesystem, files, ending) if ending in SEPARATORS else _FORMATS[ending]
        # The folders of a file that is named itself are no part of the table.
        partitioning = None if len(files) == 1 and files == paths else "hive"
        dataset = _without_index(ds.dataset(files, format=form, filesystem=filesystem, partitioning=partitioning))
        names = dataset.schema.names
    except PermissionError as error:
        raise FileAccessError(f"{files[0]} cannot be read ({error}); check who may read it.") from error
    except (pa.ArrowException, OSError, ValueError, RecursionError) as error:
        if any(words in str(error) for words in ("duplicate field names", "multiple columns named")):
            raise InvalidInputError(f"Column names must be unique: {files[0]}: {error}; rename the columns.") from error
        remedy = (
            "save it as UTF-8 text, every row as long as the first line" if ending in SEPARATORS else "write it again"
        )
        raise FileFormatError(
            f"{files[0]} could not be read as a {ending} table ({error}); it is damaged or of another kind: {remedy}."
        ) from error
    _check_names(files[0], ending, names)
    return dataset


def ending_of(file: str | os.PathLike[str]) -> str:
    """The ending that says in which format a file is."""
    for ending in ENDINGS:
        if os.fspath(file).lower().endswith(ending):
            return ending
    raise FileFormatError(f"{file} has no ending of a known kind of table; use one of {', '.join(ENDINGS)}.")


def _check_names(file: str, ending: str, names: list[str]) -> None:
    for position, name in enumerate(names, start=1):
        if not name.strip():
            raise InvalidInputError(
                f"Column {position} of {file} has no name in the first line; name it, or remove it if it only numbers "
                "the rows (pandas writes such a column unless told index=False)."
            )
    expected = SEPARATORS.get(ending)
    others = [character for character in ",;\t" if character in names[0] and character != expected] if names else []
    if expected and len(names) == 1 and others:
        raise FileFormatError(
            f"The columns of {file} seem to be separated by {others[0]!r}, but its ending {ending} stands for "
            f"{expected!r}; write it again with that separator."
        )


def _without_index(dataset: ds.Dataset) -> ds.Dataset:
    """The dataset without the row labels that pandas stores beside the columns: they number rows, and tell nothing."""
    notes = dataset.schema.pandas_metadata
    labels = notes.get("index_columns") if isinstance(notes, dict) else None
    if not isinstance(labels, list):  # anything may stand in a file
        return dataset
    kept = [field for field in dataset.schema if field.name not in labels]
    return dataset if len(kept) == len(dataset.schema) else dataset.replace_schema(pa.schema(kept))


def _find_all(given: list[str]) -> tuple[pafs.FileSystem, list[str]]:
    found = [_find(item) for item in given]
    filesystem = found[0][0]
    if any(other != filesystem for other, _ in found):
        raise InvalidInputError("All files of a table must be on one file system; copy them to one.")
    return filesystem, list(dict.fromkeys(file for _, files in found for file in files))


def _find(item: str) -> tuple[pafs.FileSystem, list[str]]:
    if "://" in item:
        return _find_remote(item)
    filesystem = pafs.LocalFileSystem()
    if os.path.exists(item) or not glob.has_magic(item):
        paths = [item]
    else:
        paths = sorted(glob.glob(item, recursive=True))
        if not paths:
            raise MissingFileError(f"No file is named like {item}; check the pattern and its folder.")
    return filesystem, [file for path in paths for file in _files_under(filesystem, path)]


def _find_remote(uri: str) -> tuple[pafs.FileSystem, list[str]]:
    folder = uri
    while glob.has_magic(folder):
        folder = folder.rpartition("/")[0]
    try:
        filesystem, path = pafs.FileSystem.from_uri(folder)
        if folder == uri:
            return filesystem, _files_under(filesystem, path)
        pattern = path + uri.removeprefix(folder)
        files = [file for file in _files_under(filesystem, path) if fnmatch.fnmatchcase(file, pattern)]
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, FileAccessError):
            raise
        raise MissingFileError(f"{uri} could not be reached ({error}); check the address and your access.") from error
    if not files:
        raise MissingFileError(f"No file is named like {uri}; check the pattern and its folder.")
    return filesystem, files


def _files_under(filesystem: pafs.FileSystem, path: str) -> list[str]:
    """A file itself, or the tables in a folder and its folders; names that begin with a dot or `_` are not tables."""
    try:
        kind = filesystem.get_file_info(path).type
    except OSError as error:
        raise MissingFileError(f"{path} cannot be looked at ({error}); check its name and who may read it.") from error
    if kind == pafs.FileType.NotFound:
        raise MissingFileError(f"There is no file {path}; check its name and folder.")
    if kind != pafs.FileType.Directory:
        return [path]
    infos = filesystem.get_file_info(pafs.FileSelector(path, recursive=True))
    inside = {info.path: info.path.removeprefix(path).strip("/").split("/") for info in infos if info.is_file}
    files = sorted(
        file
        for file, names in inside.items()
        if not any(name.startswith((".", "_")) for name in names) and file.lower().endswith(ENDINGS)
    )
    if not files:
        raise FileAccessError(
            f"The folder {path} cannot be read as a table: it holds no files ending in {', '.join(ENDINGS)}."
        )
    return files


def _text_format(filesystem: pafs.FileSystem, files: list[str], ending: str) -> ds.CsvFileFormat:
    largest = max(info.size or 0 for info in filesystem.get_file_info(files))
    if ending.endswith(".gz"):
        largest *= 8  # about as much as text shrinks
    block = max(largest, BLOCK_BYTES) if largest * len(files) <= TYPED_BYTES else BLOCK_BYTES
    return ds.CsvFileFormat(
        parse_options=pa.csv.ParseOptions(delimiter=SEPARATORS[ending], newlines_in_values=True),
        # A word such as NA is a missing value, in columns of text too.
        convert_options=pa.csv.ConvertOptions(strings_can_be_null=True),
        read_options=pa.csv.ReadOptions(block_size=block),
    )
