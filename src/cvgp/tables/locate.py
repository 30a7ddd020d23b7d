"""The files of a table: a path, a glob, a folder or an address, on this machine or on a file system of Arrow.

Links to files and folders are followed. A link that leads back to a folder above it would give the same rows again and
again, so a folder that is reached twice is refused, and so is a table that is not a regular file.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from cvgp.errors import FileAccessError, FileFormatError, InvalidInputError, MissingFileError
from cvgp.files import check_readable, checked_path
from cvgp.files.limits import check_stored

SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
"""Text files, and the separator of their columns if the text does not tell."""
JSON_ENDINGS = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz", ".json")
ARROW_FORMATS = {".parquet": "parquet", ".feather": "feather", ".arrow": "feather"}
ENDINGS = (*SEPARATORS, *ARROW_FORMATS, ".xlsx", *JSON_ENDINGS)
"""The last part of a file's name, which tells its format."""
WRITTEN_ENDINGS = (*SEPARATORS, ".jsonl", ".jsonl.gz", *ARROW_FORMATS)
"""The endings of the formats that tables are written in."""
_IN_FOLDERS = tuple(ending for ending in ENDINGS if ending != ".json")
"""Settings and notes end in .json too; such a file is a table only if it is named itself."""
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
    endings = {ending_of(file) for file in files}
    if len(endings) > 1:
        raise InvalidInputError(
            f"The files have several formats ({', '.join(sorted(endings))}); give those of one ending only."
        )
    if isinstance(filesystem, pafs.LocalFileSystem):
        for file in files:
            info = os.stat(file)
            check_stored(file, info.st_size, getattr(info, "st_blocks", None))
    return filesystem, files, endings.pop()


def _find_local(pattern: str) -> list[str]:
    if pattern in _STANDARD_INPUT:
        raise InvalidInputError(
            "A table is read more than once, as the standard input cannot be. Store it in a file, and name that."
        )
    path = checked_path(pattern)
    found = [pattern]
    if glob.has_magic(pattern) and not os.path.lexists(path):
        if "**" in pattern:
            before = next(i for i, part in enumerate(path.parts) if glob.has_magic(part))
            for _ in _walk(str(Path(*path.parts[:before]))):
                pass  # it raises for links that the pattern would follow forever
        found = sorted(glob.glob(pattern, recursive=True))
        if not found:
            raise MissingFileError(f"No file is named like {pattern}; check the pattern and its folder.")
    return [file for name in found for file in _local_files(_readable_name(name))]


def _local_files(path: str) -> list[str]:
    """A file itself, or the tables in a folder and its folders."""
    if not os.path.isdir(path):
        check_readable(Path(path))
        return [path]
    inside = [f"{folder}/{name}" for folder, names in _walk(path.rstrip("/") or "/") for name in names]
    files = [file for file in inside if file.lower().endswith(_IN_FOLDERS)]
    for file in files:
        try:
            check_readable(Path(_readable_name(file)))
        except MissingFileError as error:
            raise MissingFileError(f"{file} is a link that leads nowhere. Remove it, or mend it.") from error
    return _not_empty(path, sorted(files))


def _walk(top: str) -> Iterator[tuple[str, list[str]]]:
    """Each folder under one, with the names of its files; names that begin with a dot or `_` are not tables."""
    seen: dict[tuple[int, int], str] = {}
    left = [top]
    while left:
        folder = left.pop()
        try:
            known = os.stat(folder)
            entries = sorted((entry.name, entry.is_dir()) for entry in os.scandir(folder))
        except OSError as error:
            raise FileAccessError(f"{folder} cannot be listed ({error}); check who may read it.") from error
        first = seen.setdefault((known.st_dev, known.st_ino), folder)
        if first != folder:
            raise InvalidInputError(
                f"{folder} is the same folder as {first}, by a link; its rows would count twice. Remove the link, or "
                "name the files."
            )
        shown = [(name, is_folder) for name, is_folder in entries if not name.startswith((".", "_"))]
        left += [f"{folder}/{name}" for name, is_folder in reversed(shown) if is_folder]
        yield folder, [name for name, is_folder in shown if not is_folder]


def _readable_name(name: str) -> str:
    """The name, unless Arrow cannot express it."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise FileAccessError(
            f"The name {name!r} is not UTF-8, which tables must be named in. Rename the file or its folder."
        ) from error
    return name


def _find_remote(uri: str) -> tuple[pafs.FileSystem, list[str]]:
    folder = uri
    while glob.has_magic(folder):
        folder = folder.rpartition("/")[0]
    try:
        filesystem, path = pafs.FileSystem.from_uri(folder)
        files = _remote_files(filesystem, path)
    except FileAccessError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise MissingFileError(f"{uri} could not be reached ({error}); check the address and your access.") from error
    if folder != uri:
        pattern = path + uri.removeprefix(folder)
        files = [file for file in files if fnmatch.fnmatchcase(file, pattern)]
        if not files:
            raise MissingFileError(f"No file is named like {uri}; check the pattern and its folder.")
    return filesystem, files


def _remote_files(filesystem: pafs.FileSystem, path: str) -> list[str]:
    kind = filesystem.get_file_info(path).type
    if kind == pafs.FileType.NotFound:
        raise MissingFileError(f"There is no file {path}; check its name and folder.")
    if kind != pafs.FileType.Directory:
        return [path]
    infos = filesystem.get_file_info(pafs.FileSelector(path, recursive=True))
    inside = {info.path: info.path.removeprefix(path).strip("/").split("/") for info in infos if info.is_file}
    shown = [file for file, names in inside.items() if not any(name.startswith((".", "_")) for name in names)]
    return _not_empty(path, sorted(file for file in shown if file.lower().endswith(_IN_FOLDERS)))


def _not_empty(path: str, files: list[str]) -> list[str]:
    if not files:
        raise FileAccessError(
            f"The folder {path} cannot be read as a table: it holds no files ending in {', '.join(_IN_FOLDERS)}."
        )
    return files
