"""The journal of L-BFGS: evaluations in a file, from which a search that was interrupted is taken through its course.

The file begins with the identity of the fit and a digest of the point where the search starts. A record holds the
value, the gradient, a digest of the point and the time at which it was made. A search that goes on computes its points
itself, so the digest is enough to know them by. Records are read one at a time, when the search comes to them. What is
damaged, and what comes after it, is computed again.

Of a search in stretches (:mod:`cvgp.training.maximise`) it holds the beginning of the last stretch and its evaluations,
and no more.
"""

import hashlib
import math
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cvgp.errors import FileFormatError
from cvgp.files.atomic import access_errors, atomic_write
from cvgp.files.regular import is_own_file, open_own_file
from cvgp.optim.lbfgs import Evaluation, Vector
from cvgp.training.monitor import Watch

BEGINNING = 2**64 - 1
"""In place of a digest: the record holds the point where a stretch begins, and how many evaluations came before."""


class Beginning(NamedTuple):
    """Where the stored stretch of a search begins."""

    point: Vector
    num_before: int
    """Evaluations of the stretches before."""


class Journal:
    """Evaluations of one search, appended to a file and replayed from it.

    Parameters
    ----------
    path, identity
        The file, and the name of the fit that it begins with.
    start
        The parameters where the search starts. The journal of a search from elsewhere makes way.
    watch
        Its clock goes on from where a replayed evaluation was made.
    """

    def __init__(self, path: Path, identity: str, start: Vector, watch: Watch) -> None:
        self._path = path
        self._watch = watch
        self._record = np.dtype(
            [("value", "f8"), ("seconds", "f8"), ("point", "u8"), ("gradient", "f8", start.shape), ("sum", "u4")]
        )
        header = self._header = f"{identity}{_digest(start):016x}".encode()
        if not is_own_file(path) or self._read(0, len(header)) != header:
            with self._open("wb") as file:
                file.write(header)
        self._position, self._end = len(header), path.stat().st_size
        self.beginning: Beginning | None = None
        """Where the search goes on; None where it has not come to the end of its first stretch."""
        if self.is_replaying and (record := self._next(BEGINNING)) is not None:
            self.beginning = Beginning(record["gradient"].copy(), int(record["value"]))

    @property
    def is_replaying(self) -> bool:
        """Whether there are evaluations that the search has not come to yet."""
        return self._position + self._record.itemsize <= self._end

    def evaluate(self, point: Vector, evaluate: Callable[[], Evaluation]) -> Evaluation:
        """The recorded evaluation of the point, or a new one, which is recorded."""
        digest = _digest(point)
        if self.is_replaying and (record := self._next(digest)) is not None:
            return float(record["value"]), record["gradient"].copy()
        # An evaluation that failed, or was not finite, left no record. It fails again here, and the record is that of
        # the next point.
        value, gradient = evaluate()
        if math.isfinite(value) and np.isfinite(gradient).all():
            self._append(value, digest, gradient)
        return value, gradient

    def begin_again(self, beginning: Beginning) -> None:
        """Put the beginning of a new stretch in place of the one before."""
        content = self._packed(float(beginning.num_before), BEGINNING, beginning.point)
        with atomic_write(self._path) as temporary:
            temporary.write_bytes(self._header + content)
        self._position = self._end = len(self._header) + len(content)

    def _next(self, digest: int) -> Any:
        """The next record, if it is whole and of the point with this digest."""
        content = self._read(self._position, self._record.itemsize)
        record = np.frombuffer(content.ljust(self._record.itemsize, b"\0"), self._record)[0]
        if record["sum"] != _checksum(content) or record["point"] != digest:
            return None
        self._check(record)
        self._position += len(content)
        self._watch.advance_to(float(record["seconds"]))
        return record

    def _check(self, record: Any) -> None:
        """Refuse numbers that no search has recorded: the file is forged, since its checksums fit."""
        limits = {"value": -np.inf if record["point"] != BEGINNING else 0.0, "seconds": 0.0, "gradient": -np.inf}
        for name, least in limits.items():
            if not (np.isfinite(record[name]).all() and (record[name] >= least).all()):
                raise FileFormatError(
                    f"{self._path} is damaged: the {name} of a record cannot be {record[name]}. Remove the file to "
                    "start afresh."
                )

    def _read(self, position: int, length: int) -> bytes:
        with self._open("rb") as file:
            file.seek(position)
            content: bytes = file.read(length)
        return content

    def _append(self, value: float, digest: int, gradient: Vector) -> None:
        """Record an evaluation in place of all that is not replayed: of a cut, of damage, or of another course."""
        content = self._packed(value, digest, gradient)
        with self._open("r+b") as file:
            file.truncate(self._position)
            file.seek(self._position)
            file.write(content)
        self._position = self._end = self._position + len(content)

    def _packed(self, value: float, digest: int, vector: Vector) -> bytes:
        record = np.zeros((), self._record)
        record["value"], record["seconds"], record["point"] = value, self._watch.seconds, digest
        record["gradient"] = vector
        record["sum"] = _checksum(record.tobytes())
        return record.tobytes()

    @contextmanager
    def _open(self, mode: str) -> Iterator[Any]:
        with access_errors(f"read or write {self._path}"), open_own_file(self._path, mode) as file:
            yield file


def journal_identity(path: Path, length: int) -> str:
    """The identity that a journal begins with, empty where a kill cut it short."""
    try:
        with access_errors(f"read {path}"), open_own_file(path, "rb") as file:
            found = file.read(length).decode()
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is damaged; remove it to start afresh.") from error
    return found if len(found) == length else ""


def _digest(point: Vector) -> int:
    return int.from_bytes(hashlib.blake2b(point.tobytes(), digest_size=8).digest(), "little")


def _checksum(record: bytes) -> int:
    return zlib.crc32(record[:-4])
