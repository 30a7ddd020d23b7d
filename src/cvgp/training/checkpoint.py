"""Checkpoints of a fit: a folder from which a killed run goes on to the same result.

Everything before the solver (scaling, start, initial coreset) is repeated, since it depends only on data and seed. Of
Adam the parameters, moments, step and history are stored; batches depend on seed and step alone. Of L-BFGS every
evaluation is appended to a journal, which a resumed run replays: the same points give the same values and gradients,
so the search takes the same course. What is damaged in a journal, and what comes after it, is computed again.
"""

import hashlib
import json
import math
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cvgp.data.source import DataSource
from cvgp.errors import FileAccessError, FileFormatError, InvalidInputError
from cvgp.files.tensors import read_tensors, write_tensors
from cvgp.files.untrusted import Arrays, Members
from cvgp.gp.model import CVGP
from cvgp.optim.adam import SNAPSHOT_EVERY, AdamState, Snapshot
from cvgp.optim.lbfgs import Memo
from cvgp.parallel.group import Group
from cvgp.training.monitor import Watch, check_history

__all__ = ["Checkpoint", "Extra", "fingerprint", "open_checkpoint"]

Vector = NDArray[np.float64]
Evaluation = tuple[float, Vector]
Extra = tuple[dict[str, Tensor], dict[str, float]]
"""Tensors and numbers that a solver stores beside the optimiser's."""
VECTORS = ("vector", "mean", "square")
STATE_FILE, JOURNAL_FILE = "state.safetensors", "journal.bin"
SECONDS_BETWEEN = 1.0


def fingerprint(tensors: Iterable[Tensor | None], *facts: object) -> str:
    """A short name for data, starting parameters and settings: equal exactly when a fit would be the same."""
    digest = hashlib.sha256(json.dumps(facts, default=str).encode())
    for tensor in tensors:
        if tensor is not None:
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes())
    return digest.hexdigest()[:32]


class Checkpoint:
    """One fit's folder.

    Parameters
    ----------
    folder
        Where to store; made if it is not there.
    identity
        The :func:`fingerprint` of the fit. A folder that belongs to another fit is refused.
    """

    def __init__(self, folder: str | os.PathLike[str], identity: str, watch: Watch) -> None:
        self.folder = Path(folder)
        self.identity = identity
        self.watch = watch
        self._last = time.perf_counter()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileAccessError(f"Could not make the checkpoint folder {self.folder}: {error}.") from error
        self._refuse_other_fit(self.folder)

    def load_adam(self, state: AdamState, like: Extra) -> Extra | None:
        """Bring parameters, optimiser and history to where a stored run was; None if there is none.

        What the solver stored beside them must be `like` what it would store now, in names and shapes.
        """
        path = self.folder / STATE_FILE
        if not path.exists():
            return None
        tensors, metadata = read_tensors(path)
        try:
            return self._restore(state, Arrays(tensors), Members(metadata, "checkpoint"), like)
        except FileFormatError as error:
            raise FileFormatError(f"{path} is damaged: {error} Remove it to start afresh.") from error

    def _restore(self, state: AdamState, arrays: Arrays, members: Members, like: Extra) -> Extra:
        shape, dtype = tuple(state.vector.shape), (str(state.vector.dtype).removeprefix("torch."),)
        vector, mean, square = (torch.from_numpy(arrays.take(name, shape, dtypes=dtype)) for name in VECTORS)
        more = {
            name: torch.from_numpy(arrays.take(f"extra.{name}", tuple(tensor.shape)))
            for name, tensor in like[0].items()
        }
        arrays.close()
        numbers = members.members("extra")
        extra = more, {name: numbers.number(name, finite=math.isfinite(now)) for name, now in like[1].items()}
        numbers.close()
        members.text("identity")
        updates, step, recoveries = (members.integer(name, 0) for name in ("updates", "step", "recoveries"))
        smoothed, learning_rate = members.number("smoothed", finite=False), members.number("learning_rate")
        history, seconds = check_history(members.items("history")), members.number("seconds")
        members.close()
        if updates > step:
            raise FileFormatError("There cannot have been more updates than steps.")
        state.restore(Snapshot(vector, mean, square, updates))
        state.step, state.recoveries, state.smoothed, state.learning_rate = step, recoveries, smoothed, learning_rate
        self.watch.resume(history, seconds)
        return extra

    def save_adam(self, state: AdamState, extra: Extra, *, now: bool = False) -> None:
        """Store the run, at most once a second unless it must be now.

        Only steps at which the optimiser itself takes a snapshot are stored: from there a resumed run decides
        everything that it decides now and then (precision, recovery) as the uninterrupted one does.
        """
        if not (now or state.step % SNAPSHOT_EVERY == 0):
            return
        if not now and time.perf_counter() - self._last < SECONDS_BETWEEN:
            return
        tensors: dict[str, Tensor] = {name: getattr(state, name) for name in VECTORS}
        more_tensors, more_metadata = extra
        tensors |= {f"extra.{k}": v for k, v in more_tensors.items()}
        metadata = {
            "identity": self.identity,
            "step": state.step,
            "updates": state.updates,
            "smoothed": state.smoothed,
            "learning_rate": float(state.learning_rate),
            "recoveries": state.recoveries,
            "seconds": self.watch.seconds,
            "history": self.watch.history,
            "extra": more_metadata,
        }
        write_tensors(self.folder / STATE_FILE, {k: v.cpu().numpy() for k, v in tensors.items()}, metadata)
        self._last = time.perf_counter()

    def journal(self, size: int) -> Memo:
        """A wrapper of evaluations of `size` parameters that records each, and replays what is recorded."""
        return _Journal(self.folder / JOURNAL_FILE, self.identity, size).evaluate

    def _refuse_other_fit(self, folder: Path) -> None:
        found = set()
        if (folder / STATE_FILE).exists():
            found.add(str(read_tensors(folder / STATE_FILE)[1].get("identity")))
        if (folder / JOURNAL_FILE).is_file():
            found.add(_journal_identity(folder / JOURNAL_FILE, len(self.identity)))
        if found - {self.identity, ""}:
            raise InvalidInputError(
                f"The checkpoint in {folder} belongs to another fit (other data, parameters or starting point). "
                "Choose another folder, or remove this one to start afresh."
            )


@contextmanager
def open_checkpoint(
    folder: str | None, model: CVGP, source: DataSource, plan: object, settings: object, watch: Watch
) -> Iterator[Checkpoint | None]:
    """The checkpoint of a fit that begins with this model, or None where no folder was asked for."""
    if folder is None:
        yield None
        return
    identity = fingerprint([*model.parameters(), *model.buffers()], source.identity(), plan, settings)
    with mirrored(folder, source.group) as own:
        yield Checkpoint(own, identity, watch)


@contextmanager
def mirrored(folder: str | os.PathLike[str], group: Group) -> Iterator[str | os.PathLike[str]]:
    """The folder itself for the first process; for each of the others a passing copy of what was stored there.

    So every process goes on from the same state, and the folder need not be on a disk that all of them reach.
    """
    if group.world == 1:
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


class _Journal:
    """Evaluations of one search, appended to a file: identity, then records of value, point and gradient."""

    def __init__(self, path: Path, identity: str, size: int) -> None:
        self._path = path
        self._record = np.dtype([("value", "f8"), ("point", "f8", (size,)), ("gradient", "f8", (size,)), ("sum", "u4")])
        self._next = 0
        header = identity.encode()
        if not path.is_file() or path.stat().st_size < len(header):
            with self._open("wb") as file:
                file.write(header)
        with self._open("r+b") as file:
            file.seek(len(header))
            whole = b"".join(iter(lambda: self._read_record(file), b""))
            # What a kill cut short, or a disk damaged, makes way for the evaluations that it stood for.
            file.truncate(len(header) + len(whole))
        self._records: NDArray[Any] = np.frombuffer(whole, self._record)

    def evaluate(self, point: Vector, evaluate: Callable[[], Evaluation]) -> Evaluation:
        if self._next < len(self._records):
            recorded = self._records[self._next]
            # An evaluation that failed left no record; it fails again, and the next point is the recorded one.
            if np.array_equal(recorded["point"], point):
                self._next += 1
                return float(recorded["value"]), recorded["gradient"].copy()
        value, gradient = evaluate()
        record = np.zeros((), self._record)
        record["value"], record["point"], record["gradient"] = value, point, gradient
        record["sum"] = _checksum(record.tobytes())
        with self._open("ab") as file:
            file.write(record.tobytes())
        return value, gradient

    def _read_record(self, file: Any) -> bytes:
        """The next record, or nothing where there is none that is whole."""
        content: bytes = file.read(self._record.itemsize)
        if len(content) < self._record.itemsize:
            return b""
        return content if np.frombuffer(content, self._record)["sum"] == _checksum(content) else b""

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


def _checksum(record: bytes) -> int:
    return zlib.crc32(record[:-4])


def _journal_identity(path: Path, length: int) -> str:
    """The identity that a journal begins with, empty where a kill cut it short."""
    try:
        with path.open("rb") as file:
            found = file.read(length).decode()
    except OSError as error:
        raise FileAccessError(f"Could not read {path} ({error.strerror or error}).") from error
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is damaged; remove it to start afresh.") from error
    return found if len(found) == length else ""
