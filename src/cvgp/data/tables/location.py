"""Where a table is: a path, a glob, a folder, a list of these, or an Arrow dataset."""

import fnmatch
import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from cvgp.data.reading import CsvOptions, Reading, check_csv
from cvgp.data.tables.databases import copy_database, is_database
from cvgp.data.tables.excel import copy_sheets, split_sheet
from cvgp.data.tables.forged_sizes import check_sizes
from cvgp.data.tables.json_lines import JSON_ENDINGS, copy_json
from cvgp.data.tables.local_files import files_of, find_local
from cvgp.data.tables.spelled import with_numerals
from cvgp.data.tables.text_files import SEPARATORS, TEXT_REMEDY, open_text
from cvgp.errors import (
    CVGPError,
    FileAccessError,
    FileFormatError,
    InvalidInputError,
    InvalidTypeError,
    MissingFileError,
)

Location: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | ds.Dataset
"""Where a table is."""

_FORMATS = {".parquet": "parquet", ".feather": "feather", ".arrow": "feather"}
_COPIED = (".xlsx", *JSON_ENDINGS)
WRITTEN_ENDINGS = (*SEPARATORS, ".jsonl", ".jsonl.gz", *_FORMATS)
"""The endings of the formats that tables are written in."""
ENDINGS = (*SEPARATORS, *_FORMATS, *_COPIED)
"""The last part of a file's name, which tells its format."""
_IN_FOLDERS = tuple(ending for ending in ENDINGS if ending != ".json")
"""Settings and notes end in .json too; such a file is a table if it is named itself."""


def open_dataset(location: Location, csv: CsvOptions | None = None, known: Reading | None = None) -> ds.Dataset:
    """An Arrow dataset over files of one format, in the order of their names.

    Folders are searched to any depth; `key=value` in a path becomes a column (Hive's partitions). A URI such as
    `s3://bucket/folder` is read through Arrow's file systems. A dataset stays as it is, so that any other format,
    partitioning, file system or choice of columns can be made there. JSON lines, Excel's sheets (`book.xlsx::sheet`)
    and tables of databases (`sqlite:///file::table`, `duckdb:///file::table`) are copied once to a temporary Arrow
    file.

    Parameters
    ----------
    location
        Where the table is.
    csv
        What is known of text files; what is not given is found out from each of them.
    known
        How a model has read its training table; it decides what a text file does not tell.
    """
    options = check_csv(csv)
    if isinstance(location, ds.Dataset):
        _refuse_options(options, "a pyarrow dataset")
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
    if any(is_database(path) for path in paths):
        _refuse_options(options, "a database")
        if len(paths) > 1:
            raise InvalidInputError("Only one table of a database can be read at a time; join them in a view.")
        return with_numerals(copy_database(paths[0]), known)
    sheet = None
    if len(paths) == 1:
        paths[0], sheet = split_sheet(paths[0])
    filesystem, files = _find_all(paths)
    endings = {ending_of(file) for file in files}
    if len(endings) > 1:
        raise InvalidInputError(
            f"The files have several formats ({', '.join(sorted(endings))}); give those of one ending only."
        )
    ending = endings.pop()
    # The folders of a file that is named itself are no part of the table.
    partitioning = None if len(files) == 1 and files == paths else "hive"
    with _blaming(files[0], ending):
        check_sizes(filesystem, files, ending)
        if ending in SEPARATORS:
            dataset = open_text(filesystem, files, ending, partitioning, options, known)
        else:
            _refuse_options(options, ending)
            dataset = _open_typed(filesystem, files, ending, partitioning, sheet, known)
        return dataset


def _open_typed(
    filesystem: pafs.FileSystem,
    files: list[str],
    ending: str,
    partitioning: str | None,
    sheet: str | None,
    known: Reading | None,
) -> ds.Dataset:
    """Files of a format that says what columns hold."""
    if ending == ".xlsx":
        return with_numerals(copy_sheets(filesystem, files, sheet), known)
    if ending in JSON_ENDINGS:
        return with_numerals(copy_json(filesystem, files), known)
    return _without_index(ds.dataset(files, format=_FORMATS[ending], filesystem=filesystem, partitioning=partitioning))


def _refuse_options(options: CsvOptions, what: str) -> None:
    if options:
        raise InvalidInputError(
            f"{', '.join(options)} can be said of text tables ({', '.join(SEPARATORS)}), and this is {what}; leave it "
            "out."
        )


@contextmanager
def _blaming(file: str, ending: str) -> Iterator[None]:
    """Name the file in whatever Arrow has against it."""
    try:
        yield
    except CVGPError:
        raise
    except PermissionError as error:
        raise FileAccessError(f"{file} cannot be read ({error}); check who may read it.") from error
    except (pa.ArrowException, OSError, ValueError, EOFError, RecursionError) as error:
        if any(words in str(error) for words in ("duplicate field names", "multiple columns named")):
            raise InvalidInputError(f"Column names must be unique: {file}: {error}; rename the columns.") from error
        remedy = TEXT_REMEDY if ending in SEPARATORS else "write it again"
        raise FileFormatError(
            f"{file} could not be read as a {ending} table ({error}); it is damaged or of another kind: {remedy}."
        ) from error


def ending_of(file: str | os.PathLike[str], endings: Sequence[str] = ENDINGS) -> str:
    """The ending that says in which format a file is."""
    for ending in endings:
        if os.fspath(file).lower().endswith(ending):
            return ending
    raise FileFormatError(f"{file} has no ending of a known kind of table; use one of {', '.join(endings)}.")


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
    return filesystem, [file for path in find_local(item) for file in _files_under(filesystem, path)]


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
    is_local = isinstance(filesystem, pafs.LocalFileSystem)
    files = files_of(path, _IN_FOLDERS) if is_local else _remote_files(filesystem, path)
    if not files:
        raise FileAccessError(
            f"The folder {path} cannot be read as a table: it holds no files ending in {', '.join(_IN_FOLDERS)}."
        )
    return files


def _remote_files(filesystem: pafs.FileSystem, path: str) -> list[str]:
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
    return sorted(
        file
        for file, names in inside.items()
        if not any(name.startswith((".", "_")) for name in names) and file.lower().endswith(_IN_FOLDERS)
    )
