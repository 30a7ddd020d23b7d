"""The files of a table: a path, a glob, a folder or an address, on this machine or on a file system of Arrow."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from cvgp.errors import FileAccessError, FileFormatError, InvalidInputError, MissingFileError
from cvgp.files import check_readable, check_stored, checked_path

SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
"""Text files, and the separator of their columns if the text does not tell."""
JSON_ENDINGS = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json")
ARROW_FORMATS = {".parquet": "parquet", ".feather": "feather", ".arrow": "feather"}
ENDINGS = (*SEPARATORS, *ARROW_FORMATS, ".xlsx", *JSON_ENDINGS)
WRITTEN_ENDINGS = (*SEPARATORS, ".jsonl", ".jsonl.gz", *ARROW_FORMATS)
"""The endings of the formats that tables are written in."""
_IN_FOLDERS = tuple(ending for ending in ENDINGS if ending != ".json")
"""Settings and notes end in .json too; such a file is a table only if it is named itself."""
_HIDDEN = (".", "_")
_STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def ending_of(file: str | os.PathLike[str], endings: Sequence[str] = ENDINGS) -> str:
    """The ending that tells the format of a file."""
    for ending in endings:
        if os.fspath(file).lower().endswith(ending):
            return ending
    raise FileFormatError(f"{file} has no ending of a known kind of table; use one of {', '.join(endings)}.")


def find_files(paths: Sequence[str]) -> tuple[pafs.FileSystem, list[str], str]:
    """The file system, the files in the order of their names, and the ending that all of them have."""
    found = [_find_remote(path) if "://" in path else (pafs.LocalFileSystem(), _find_local(path)) for path in paths]
    filesystem = found[0][0]
    if any(other != filesystem for other, _ in found):
        raise InvalidInputError("All files of a table must be on one file system; copy them to one.")
    files = list(dict.fromkeys(file for _, own in found for file in own))
    if not files:
        raise MissingFileError(f"No file is named like {', '.join(paths)}; check the pattern and its folder.")
    endings = {ending_of(file) for file in files}
    if len(endings) > 1:
        raise InvalidInputError(
            f"The files have several formats ({', '.join(sorted(endings))}); give those of one ending only."
        )
    return filesystem, files, endings.pop()


def _find_local(pattern: str) -> list[str]:
    if pattern in _STANDARD_INPUT:
        raise InvalidInputError(
            "A table is read more than once, as the standard input cannot be. Store it in a file, and name that."
        )
    path, found = checked_path(pattern), [pattern]
    if glob.has_magic(pattern) and not os.path.lexists(path):
        if "**" in pattern:  # glob would follow a link to a folder above it again and again
            list(_walk(str(Path(*takewhile(lambda part: not glob.has_magic(part), path.parts)))))
        found = sorted(glob.glob(pattern, recursive=True))
    files: list[str] = []
    for name in found:
        files += _tables_in(name, list(_walk(name.rstrip("/") or "/"))) if os.path.isdir(name) else [name]
    for file in files:
        try:
            file.encode()  # Arrow cannot express other names
        except UnicodeEncodeError as error:
            raise FileAccessError(
                f"The name {file!r} is not UTF-8, which tables must be named in. Rename the file or its folder."
            ) from error
        check_readable(Path(file))
        info = os.stat(file)
        check_stored(file, info.st_size, getattr(info, "st_blocks", None))
    return files


def _walk(top: str) -> Iterator[str]:
    """The files in a folder and its folders; links are followed, unless they lead to a folder a second time."""

    def refuse(error: OSError) -> None:
        raise FileAccessError(f"{error.filename} cannot be listed ({error}); check who may read it.") from error

    seen: dict[str, str] = {}
    for folder, folders, names in os.walk(top, followlinks=True, onerror=refuse):
        first = seen.setdefault(os.path.realpath(folder), folder)
        if first != folder:
            raise InvalidInputError(
                f"{folder} is the same folder as {first}, by a link; its rows would count twice. Remove the link, or "
                "name the files."
            )
        folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
        yield from (f"{folder}/{name}" for name in names)


def _tables_in(folder: str, files: Sequence[str]) -> list[str]:
    """The tables among the files of a folder; names that begin with a dot or `_` are not tables."""
    parts = {file: file.removeprefix(folder).split("/") for file in files if file.lower().endswith(_IN_FOLDERS)}
    found = sorted(file for file, names in parts.items() if not any(name.startswith(_HIDDEN) for name in names))
    if not found:
        raise FileAccessError(
            f"The folder {folder} cannot be read as a table: it holds no files ending in {', '.join(_IN_FOLDERS)}."
        )
    return found


def _find_remote(uri: str) -> tuple[pafs.FileSystem, list[str]]:
    folder = uri
    while glob.has_magic(folder):
        folder = folder.rpartition("/")[0]
    try:
        filesystem, path = pafs.FileSystem.from_uri(folder)
        kind = filesystem.get_file_info(path).type
        inside = pafs.FileSelector(path, recursive=True) if kind == pafs.FileType.Directory else [path]
        files = [info.path for info in filesystem.get_file_info(inside) if info.type != pafs.FileType.Directory]
    except (pa.ArrowException, OSError) as error:
        raise MissingFileError(f"{uri} could not be reached ({error}); check the address and your access.") from error
    if kind == pafs.FileType.NotFound:
        raise MissingFileError(f"There is no file {path}; check its name and folder.")
    if kind == pafs.FileType.Directory:
        files = _tables_in(path, files)
    return filesystem, fnmatch.filter(files, path + uri.removeprefix(folder)) if folder != uri else files
