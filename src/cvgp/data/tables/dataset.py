"""Finding tables that are spread over files: a path, a glob, a folder, a list of these, or an Arrow dataset."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.fs as pafs

from cvgp.data.tables.location import is_location
from cvgp.errors import FileAccessError, FileFormatError, InvalidInputError, InvalidTypeError, MissingFileError

__all__ = ["Location", "open_dataset"]

Location: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | ds.Dataset
"""Where a table is."""

_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
_FORMATS = {".parquet": "parquet", ".feather": "feather", ".arrow": "feather"}
_ENDINGS = (*_SEPARATORS, *_FORMATS)


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
    if not is_location(location):
        raise InvalidTypeError(
            f"A table in files is a path, a glob, a list of them or a pyarrow dataset; got {type(location).__name__}."
        )
    given = [location] if isinstance(location, (str, os.PathLike)) else list(location)
    filesystem, files = _find_all([os.fspath(item) for item in given])
    endings = {_ending(file) for file in files}
    if len(endings) > 1:
        raise InvalidInputError(
            f"The files have several formats ({', '.join(sorted(endings))}); give those of one ending only."
        )
    ending = endings.pop()
    try:
        return _without_index(ds.dataset(files, format=_format(ending), filesystem=filesystem, partitioning="hive"))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FileFormatError(f"{files[0]} could not be read as a {ending} table ({error}); write it again.") from error


def _without_index(dataset: ds.Dataset) -> ds.Dataset:
    """The dataset without the row labels that pandas stores beside the columns: they number rows, and tell nothing."""
    labels = (dataset.schema.pandas_metadata or {}).get("index_columns", [])
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
        if not any(name.startswith((".", "_")) for name in names) and file.lower().endswith(_ENDINGS)
    )
    if not files:
        raise FileAccessError(
            f"The folder {path} cannot be read as a table: it holds no files ending in {', '.join(_ENDINGS)}."
        )
    return files


def _ending(file: str) -> str:
    for ending in _ENDINGS:
        if file.lower().endswith(ending):
            return ending
    raise FileFormatError(f"{file} has no ending of a known kind of table; use one of {', '.join(_ENDINGS)}.")


def _format(ending: str) -> Any:
    if ending not in _SEPARATORS:
        return _FORMATS[ending]
    return ds.CsvFileFormat(
        parse_options=pa.csv.ParseOptions(delimiter=_SEPARATORS[ending], newlines_in_values=True),
        # As pandas reads it: a word such as NA is a missing value, in columns of text too.
        convert_options=pa.csv.ConvertOptions(strings_can_be_null=True),
    )
