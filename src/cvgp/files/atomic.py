"""Files that are written completely or not at all."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from cvgp.errors import CVGPError, FileAccessError, MissingFileError
from cvgp.files.regular import checked_path, is_own_file


@contextmanager
def access_errors(task: str) -> Iterator[None]:
    """Turn an error of the system into a `FileAccessError`, which says what could not be done: the task."""
    try:
        yield
    except CVGPError:
        raise
    except OSError as error:
        raise FileAccessError(
            f"Could not {task} ({error.strerror or error}); "
            "check the free space and the permissions of its folder, or choose another place."
        ) from error


def make_folder(path: Path) -> None:
    """Make a folder, and those around it, unless it is there."""
    with access_errors(f"make the folder {path}"):
        checked_path(path).mkdir(parents=True, exist_ok=True)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary file beside `path`, which takes its place when the block ends without an error.

    A reader sees the old file until then and the new one afterwards, even if the machine crashes. If the block fails,
    the old file stays and the temporary one is removed. Only a killed process can leave it behind, as
    `.cvgp-RANDOM.tmp`. The permissions of an existing file are kept. A symbolic link in place of the file is refused.

    Parameters
    ----------
    path : str or path-like
        The file to write; its folder must exist.

    Raises
    ------
    MissingFileError
        If the folder does not exist.
    FileAccessError
        If the folder or the disk refuses the file; also for an `OSError` inside the block.

    Examples
    --------
    >>> with atomic_write("answer.txt") as temporary:  # doctest: +SKIP
    ...     temporary.write_text("42")
    """
    given = checked_path(path)
    with access_errors(f"write {given}"):
        # The folder may be a link; the file may not.
        target = Path(os.path.realpath(given.parent)) / given.name
        _check_target(target)
        temporary = target.with_name(f".cvgp-{token_hex(8)}.tmp")
        # Unlike tempfile's, this file has the permissions that the user's umask asks for.
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        try:
            yield temporary
            if is_own_file(target):
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            with temporary.open("rb+") as stream:
                os.fsync(stream.fileno())
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    _flush_folder(target.parent)


def _check_target(target: Path) -> None:
    if not target.parent.is_dir():
        raise MissingFileError(f"Cannot write {target}, since its folder does not exist; create the folder first.")
    is_own_file(target)


def _flush_folder(folder: Path) -> None:
    # The new name then survives a power cut. Some systems cannot do this for folders; the file itself is safe there.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
