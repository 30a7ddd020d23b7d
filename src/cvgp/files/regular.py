"""Files that are files: pipes, devices and sockets are refused, and none of them is waited for.

A user's own symbolic link is read through, since folders of data are often made of links. Nothing is written through
one: a link that a stranger has put into a folder could lead to any file. In the folder of a checkpoint, whose files are
cvgp's own, there are no links at all.
"""

import os
import stat
from pathlib import Path
from typing import IO, Any

from cvgp.errors import FileAccessError, InvalidInputError, InvalidTypeError, MissingFileError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}
# Some systems have neither; there what is no regular file is found out by the look before.
_NO_LINKS, _NO_WAITING = getattr(os, "O_NOFOLLOW", 0), getattr(os, "O_NONBLOCK", 0)


def checked_path(path: object) -> Path:
    """A path that a file system can have."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise InvalidTypeError(f"A path must be text or a pathlib.Path; got {type(path).__name__}.")
    try:
        if b"\0" not in os.fsencode(path):
            return Path(path)
    except UnicodeEncodeError:
        pass
    raise InvalidInputError(f"{os.fspath(path)!r} is no path: it holds a character that no name can have. Correct it.")


def check_readable(path: Path) -> None:
    """Refuse what is not there, or is no regular file; a link is followed."""
    mode = _mode(path, follow=True)
    if mode is None:
        raise MissingFileError(f"There is no file {path}. Check the path.")
    if not stat.S_ISREG(mode):
        raise FileAccessError(f"{path} is {_kind(mode)}, and not a regular file. Give the file itself.")


def is_own_file(path: Path) -> bool:
    """Whether there is a file that cvgp may write or has written; anything else of that name is refused."""
    mode = _mode(path, follow=False)
    if mode is not None and stat.S_ISLNK(mode):
        raise FileAccessError(
            f"{path} is a symbolic link, and cvgp does not write through links. Name the file that it leads to, or "
            "remove the link."
        )
    if mode is not None and not stat.S_ISREG(mode):
        raise FileAccessError(f"{path} is {_kind(mode)}, and not a regular file. Choose another name, or remove it.")
    return mode is not None


def open_own_file(path: Path, mode: str) -> IO[Any]:
    """Open such a file, also where something else takes its place after the look at it."""
    return open(path, mode, opener=_open_regular)


def _open_regular(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | _NO_LINKS | _NO_WAITING, 0o666)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise FileAccessError(f"{path} is {_kind(mode)}, and not a regular file. Choose another name, or remove it.")


def _mode(path: Path, *, follow: bool) -> int | None:
    """What is at a path; None where nothing is."""
    try:
        return path.stat(follow_symlinks=follow).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FileAccessError(
            f"{path} cannot be looked at ({error.strerror or error}); check its name and its folder's permissions."
        ) from error


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something else")
