"""Tables in folders of this machine: links to files and to folders are followed, and no folder is read twice.

A link that leads back to a folder above it would give the same rows again and again, and two of them more paths than
can be counted. So a folder that is reached a second time is refused, and so is a table that is no regular file.
"""

import glob
import os
from collections.abc import Iterator
from pathlib import Path

from cvgp.errors import FileAccessError, InvalidInputError, MissingFileError
from cvgp.files.regular import check_readable, checked_path

STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def find_local(pattern: str) -> list[str]:
    """What a path or a pattern names, in the order of names; it may not be there."""
    if pattern in STANDARD_INPUT:
        raise InvalidInputError(
            "A table is read more than once, as the standard input cannot be. Store it in a file, and name that."
        )
    path = checked_path(pattern)
    if os.path.lexists(path) or not glob.has_magic(pattern):
        return [_readable_name(pattern)]
    if "**" in pattern:
        before = next(i for i, part in enumerate(path.parts) if glob.has_magic(part))
        for _ in _walk(str(Path(*path.parts[:before]))):
            pass  # it refuses what the pattern would follow for ever
    found = sorted(glob.glob(pattern, recursive=True))
    if not found:
        raise MissingFileError(f"No file is named like {pattern}; check the pattern and its folder.")
    return [_readable_name(name) for name in found]


def files_of(path: str, endings: tuple[str, ...]) -> list[str]:
    """A file itself, or the files with these endings in a folder and its folders.

    In a folder, names that begin with a dot or `_` are not tables.
    """
    if not os.path.isdir(path):
        check_readable(Path(path))
        return [path]
    files = [
        f"{folder}/{name}"
        for folder, names in _walk(path.rstrip("/") or "/")
        for name in names
        if name.lower().endswith(endings)
    ]
    for file in files:
        _readable_name(file)
        try:
            check_readable(Path(file))
        except MissingFileError as error:
            raise MissingFileError(f"{file} is a link that leads nowhere. Remove it, or mend it.") from error
    return sorted(files)


def _walk(top: str) -> Iterator[tuple[str, list[str]]]:
    """Each folder under one, with the names of what is in it and is no folder."""
    seen: dict[tuple[int, int], str] = {}
    left = [top]
    while left:
        folder = left.pop()
        try:
            known = os.stat(folder)
            entries = sorted((entry.name, entry.is_dir()) for entry in os.scandir(folder))
        except OSError as error:
            raise FileAccessError(f"{folder} cannot be looked at ({error}); check who may read it.") from error
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
