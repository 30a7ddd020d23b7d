"""The journal of L-BFGS: evaluations in a file, from which a search that was interrupted is taken through its course.

The file begins with the identity of the fit. A record holds the value, the gradient, a digest of the point and the time
at which it was made. A search that goes on computes its points itself, so the digest is enough to know them by. Records
are read one at a time, when the search comes to them. What is damaged, and what comes after it, is computed again.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cvgp.errors import FileAccessError, FileFormatError
from cvgp.training.monitor import Watch

__all__ = ["Journal", "journal_identity"]

Vector = NDArray[np.float64]
Evaluation = tuple[float, Vector]


class Journal:
    """Evaluations of one search, appended to a file and replayed from it.

    Parameters
    ----------
    path, identity
        The file, and the name of the fit that it begins with.
    size
        How many parameters are searched over.
    watch
        Its clock goes on from where a replayed evaluation was made.
    """

    def __init__(self, path: Path, identity: str, size: int, watch: Watch) -> None:
        self._path = path
        self._watch = watch
        self._record = np.dtype(
            [("value", "f8"), ("seconds", "f8"), ("point", "u8"), ("gradient", "f8", (size,)), ("sum", "u4")]
        )
        header = identity.encode()
        if not path.is_file() or path.stat().st_size < len(header):
            with self._open("wb") as file:
                file.write(header)
        self._position, self._end = len(header), path.stat().st_size

    @property
    def is_replaying(self) -> bool:
        """Whether there are evaluations that the search has not come to yet."""
        return self._position + self._record.itemsize <= self._end

    def evaluate(self, point: Vector, evaluate: Callable[[], Evaluation]) -> Evaluation:
        """The recorded evaluation of the point, or a new one, which is recorded."""
        digest = _digest(point)
        if self.is_replaying:
            content = self._read()
            record = np.frombuffer(content, self._record)[0]
            if record["sum"] == _checksum(content) and record["point"] == digest:
                self._position += len(content)
                self._watch.advance_to(float(record["seconds"]))
                return float(record["value"]), record["gradient"].copy()
        # An evaluation that failed left no record. It fails again here, and the record is that of the next point.
        value, gradient = evaluate()
        self._append(value, digest, gradient)
        return value, gradient

    def _append(self, value: float, digest: int, gradient: Vector) -> None:
        """Record an evaluation in place of all that is not replayed: of a cut, of damage, or of another course."""
        record = np.zeros((), self._record)
        record["value"], record["seconds"], record["point"] = value, self._watch.seconds, digest
        record["gradient"] = gradient
        record["sum"] = _checksum(record.tobytes())
        with self._open("r+b") as file:
            file.truncate(self._position)
            file.seek(self._position)
            file.write(record.tobytes())
        self._position += self._record.itemsize
        self._end = self._position

    def _read(self) -> bytes:
        with self._open("rb") as file:
            file.seek(self._position)
            content: bytes = file.read(self._record.itemsize)
        return content.ljust(self._record.itemsize, b"\0")

    @contextmanager
    def _open(self, mode: str) -> Iterator[Any]:
        try:
            with self._path.open(mode) as file:
                yield file
        except OSError as error:
            raise FileAccessError(
                f"Could not read or write {self._path} ({error.strerror or error}); check the free space and the "
                "permissions of its folder, or choose another checkpoint_dir."
            ) from error


def journal_identity(path: Path, length: int) -> str:
    """The identity that a journal begins with, empty where a kill cut it short."""
    try:
        with path.open("rb") as file:
            found = file.read(length).decode()
    except OSError as error:
        raise FileAccessError(f"Could not read {path} ({error.strerror or error}).") from error
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is damaged; remove it to start afresh.") from error
    return found if len(found) == length else ""


def _digest(point: Vector) -> int:
    return int.from_bytes(hashlib.blake2b(point.tobytes(), digest_size=8).digest(), "little")


def _checksum(record: bytes) -> int:
    return zlib.crc32(record[:-4])
