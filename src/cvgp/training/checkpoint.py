"""Checkpoints of a fit: a folder from which a killed run goes on to the same result.

The start is stored (:mod:`cvgp.training.stored_start`). The scaling before it is repeated, since it depends on the data
alone. Of Adam the parameters, moments, step and history are stored; batches depend on seed and step alone. Of L-BFGS
every evaluation is appended to a journal, which a resumed run replays: the same points give the same values and
gradients, so the search takes the same course.
"""

import hashlib
import json
import math
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cvgp.data.source import DataSource
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.files.atomic import access_errors, make_folder
from cvgp.files.regular import checked_path, is_own_file, open_own_file
from cvgp.files.tensors import read_tensors, write_tensors
from cvgp.files.untrusted import Arrays, Members
from cvgp.gp.model import CVGP
from cvgp.optim.adam import SNAPSHOT_EVERY, AdamState, Snapshot
from cvgp.parallel.group import Group
from cvgp.training.journal import Journal, journal_identity
from cvgp.training.monitor import Watch, check_history
from cvgp.training.plan import Settings

Extra = tuple[dict[str, Tensor], dict[str, float]]
"""Tensors and numbers that a solver stores beside the optimiser's."""
VECTORS = ("vector", "mean", "square")
START_FILE, STATE_FILE, JOURNAL_FILE = "start.safetensors", "state.safetensors", "journal.bin"
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
        self.folder = checked_path(folder)
        self.identity = identity
        self.watch = watch
        self._last = time.perf_counter()
        make_folder(self.folder)
        self._refuse_other_fit(self.folder)

    def load_adam(self, state: AdamState, like: Extra) -> Extra | None:
        """Bring parameters, optimiser and history to where a stored run was; None if there is none.

        What the solver stored beside them must be `like` what it would store now, in names and shapes.
        """
        path = self.folder / STATE_FILE
        if not is_own_file(path):
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

    def journal(self, start: NDArray[np.float64]) -> Journal:
        """The journal of a search from this point."""
        return Journal(self.folder / JOURNAL_FILE, self.identity, start, self.watch)

    @property
    def has_journal(self) -> bool:
        """Whether a run has come to L-BFGS."""
        return is_own_file(self.folder / JOURNAL_FILE)

    def _refuse_other_fit(self, folder: Path) -> None:
        found = set()
        if is_own_file(folder / STATE_FILE):
            found.add(str(read_tensors(folder / STATE_FILE)[1].get("identity")))
        if is_own_file(folder / JOURNAL_FILE):
            found.add(journal_identity(folder / JOURNAL_FILE, len(self.identity)))
        refuse_other_fit(folder, bool(found - {self.identity, ""}))


def refuse_other_fit(folder: Path, is_other: bool) -> None:
    """Raise the error of a folder that belongs to another fit, if it does."""
    if is_other:
        raise InvalidInputError(
            f"The checkpoint in {folder} belongs to another fit (other data, parameters or starting point). "
            "Choose another folder, or remove this one to start afresh."
        )


@contextmanager
def open_checkpoint(
    folder: str | None, model: CVGP, source: DataSource, settings: Settings, watch: Watch
) -> Iterator[Checkpoint | None]:
    """The checkpoint of a fit that begins with this model, or None where no folder was asked for.

    Whatever time a fit is given, it is the same fit: one that ran out of it goes on with more.
    """
    if folder is None:
        yield None
        return
    tensors = [*model.parameters(), *model.buffers()]
    identity = fingerprint(tensors, source.identity(), replace(settings, max_time=None))
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
        for name in (START_FILE, STATE_FILE, JOURNAL_FILE):
            path = Path(folder) / name
            with access_errors(f"read {path}"):
                stored = group.first_bytes(_content(path) if group.rank == 0 else b"")
            if stored and group.rank > 0:
                (Path(copy) / name).write_bytes(stored)
        yield folder if group.rank == 0 else copy


def _content(path: Path) -> bytes:
    """The bytes of one of the folder's files; none where it is not there."""
    if not is_own_file(path):
        return b""
    with open_own_file(path, "rb") as file:
        content: bytes = file.read()
    return content
