"""The checkpoint folder of a fit that several processes work on."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cvgp.errors import FileAccessError
from cvgp.parallel.group import Group
from cvgp.training.checkpoint import JOURNAL_FILE, STATE_FILE

__all__ = ["mirrored"]


@contextmanager
def mirrored(folder: str | os.PathLike[str] | None, group: Group) -> Iterator[str | os.PathLike[str] | None]:
    """The folder itself for the first process; for each of the others a passing copy of what was stored there.

    So every process goes on from the same state, and the folder need not be on a disk that all of them reach.
    """
    if folder is None or group.world == 1:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="cvgp-") as copy:
        for name in (STATE_FILE, JOURNAL_FILE):
            stored = group.first_bytes(_content(Path(folder) / name) if group.rank == 0 else b"")
            if stored and group.rank > 0:
                (Path(copy) / name).write_bytes(stored)
        yield folder if group.rank == 0 else copy


def _content(path: Path) -> bytes:
    """What is in a file; nothing if it is not there."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise FileAccessError(f"Could not read {path} ({error.strerror or error}).") from error
