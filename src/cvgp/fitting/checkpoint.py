"""Checkpoints of the long solvers: a folder from which an interrupted fit is resumed.

The decisions of the fit are stored, since a time limit and the speed of the machine have a say in them; the scaling
depends on the data alone and is repeated. For Adam the parameters, moments, step and history are stored; batches depend
on seed and step alone, so a resumed run ends where an uninterrupted one does. For L-BFGS the best point is stored. A
resumed search begins there, with no memory of curvature.
"""

import hashlib
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cvgp.data.source import DataSource
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.files import (
    Fields,
    access_errors,
    checked_path,
    is_own_file,
    make_folder,
    read_state,
    write_state,
)
from cvgp.fitting.decisions import Decisions
from cvgp.fitting.monitor import Run, check_history
from cvgp.gp.model import CVGP
from cvgp.optim import SNAPSHOT_EVERY, AdamState, Snapshot, Vector, read_vector, write_vector
from cvgp.parallel.group import Group

Extra = tuple[dict[str, Tensor], dict[str, float]]
"""Tensors and numbers that a solver stores beside the optimizer's."""
VECTORS = ("vector", "mean", "square")
DECISIONS_FILE, ADAM_FILE, LBFGS_FILE = "decisions.safetensors", "adam.safetensors", "lbfgs.safetensors"
SECONDS_BETWEEN = 1.0


def fingerprint(*facts: object) -> str:
    """A short name for data and settings: equal exactly when a fit would be the same."""
    return hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()[:32]


class Checkpoint:
    """One fit's folder.

    Parameters
    ----------
    folder
        Where to store.
    identity
        The :func:`fingerprint` of the fit. A folder that belongs to another fit is refused.
    run
        Its history and clock are stored, and restored.
    """

    def __init__(self, folder: str | os.PathLike[str], identity: str, run: Run) -> None:
        self.folder = checked_path(folder)
        self.identity = identity
        self.run = run
        self._last = time.perf_counter()
        make_folder(self.folder)

    @property
    def has_lbfgs(self) -> bool:
        """Whether a run has reached L-BFGS."""
        return is_own_file(self.folder / LBFGS_FILE)

    def load_adam(self, state: AdamState, like: Extra) -> Extra | None:
        """Bring parameters, optimizer and history to where a stored run was; None if there is none.

        What the solver stored beside them must be `like` what it would store now, in names and shapes.
        """
        found: Extra | None = self._load(ADAM_FILE, self._restore_adam, state, like)
        return found

    def _restore_adam(self, fields: Fields, state: AdamState, like: Extra) -> Extra:
        shape, dtype = tuple(state.vector.shape), (str(state.vector.dtype).removeprefix("torch."),)
        vector, mean, square = (torch.from_numpy(fields.array(name, shape, dtypes=dtype)) for name in VECTORS)
        extra = fields.part("extra", _restore_extra, like)
        updates, step, recoveries = (fields.integer(name) for name in ("updates", "step", "recoveries"))
        smoothed, learning_rate = fields.number("smoothed", finite=False), fields.number("learning_rate")
        if updates > step:
            raise FileFormatError("There cannot have been more updates than steps.")
        state.restore(Snapshot(vector, mean, square, updates))
        state.step, state.recoveries, state.smoothed, state.learning_rate = step, recoveries, smoothed, learning_rate
        return extra

    def save_adam(self, state: AdamState, extra: Extra, *, now: bool = False) -> None:
        """Store the run, at most once a second unless it must be now.

        Only steps at which the optimizer itself takes a snapshot are stored: from there a resumed run decides
        everything that it decides from time to time (precision, recovery) as the uninterrupted one does.
        """
        if now or (state.step % SNAPSHOT_EVERY == 0 and self._is_due()):
            self._save(
                ADAM_FILE,
                {
                    **{name: getattr(state, name) for name in VECTORS},
                    "step": state.step,
                    "updates": state.updates,
                    "smoothed": state.smoothed,
                    "learning_rate": float(state.learning_rate),
                    "recoveries": state.recoveries,
                    "extra": {**extra[0], **extra[1]},
                },
            )

    def load_lbfgs(self, parameters: Sequence[Tensor]) -> tuple[int, bool]:
        """Bring parameters and history to the best point of a stored search; its evaluations, and whether it ended."""
        size = len(read_vector(parameters))
        found: tuple[Vector, int, bool] | None = self._load(LBFGS_FILE, self._restore_lbfgs, size)
        if found is None:
            return 0, False
        point, evaluations, ended = found
        write_vector(parameters, point)
        return evaluations, ended

    @staticmethod
    def _restore_lbfgs(fields: Fields, size: int) -> tuple[Vector, int, bool]:
        return fields.array("point", (size,)), fields.integer("evaluations"), fields.flag("ended")

    def save_lbfgs(self, point: Vector, evaluations: int, *, now: bool = False, ended: bool = False) -> None:
        """Store the best point of a search, at most once a second unless it must be now."""
        if now or self._is_due():
            self._save(LBFGS_FILE, {"point": point, "evaluations": evaluations, "ended": ended})

    def _is_due(self) -> bool:
        return time.perf_counter() - self._last >= SECONDS_BETWEEN

    def _save(self, name: str, values: dict[str, Any]) -> None:
        common = {"identity": self.identity, "seconds": self.run.budget.seconds, "history": self.run.log.history}
        write_state(self.folder / name, {**values, **common})
        self._last = time.perf_counter()

    def _load(self, name: str, restore: Callable[..., Any], *arguments: Any) -> Any:
        """What a file of the folder holds, after the run has taken its history and time; None without a file."""
        path = self.folder / name
        if not is_own_file(path):
            return None
        stored = read_state(path)
        try:
            fields = Fields(stored, "checkpoint")
            refuse_other_fit(self.folder, fields.text("identity") != self.identity)
            history, seconds = check_history(fields.items("history")), fields.number("seconds", low=0.0)
            found = restore(fields, *arguments)
            fields.close()
        except FileFormatError as error:
            raise FileFormatError(f"{path} is damaged: {error} Remove it to start afresh.") from error
        self.run.log.history[:] = history
        self.run.budget.clock.advance_to(seconds)
        return found


def _restore_extra(fields: Fields, like: Extra) -> Extra:
    tensors = {
        name: torch.from_numpy(fields.array(name, tuple(tensor.shape), finite=False))
        for name, tensor in like[0].items()
    }
    numbers = {name: fields.number(name, finite=math.isfinite(now)) for name, now in like[1].items()}
    return tensors, numbers


def refuse_other_fit(folder: Path, is_other: bool) -> None:
    """Raise if a folder belongs to another fit."""
    if is_other:
        raise InvalidInputError(
            f"The checkpoint in {folder} belongs to another fit (other data, parameters or starting point). "
            "Choose another folder, or remove this one to start afresh."
        )


@contextmanager
def stored_decisions(
    folder: str | None, pinned: Decisions, source: DataSource, *facts: object
) -> Iterator[tuple[Decisions, Callable[[Decisions], None]]]:
    """The decisions of an interrupted fit of the same data and options, or the pinned ones; and a way to store them."""
    if folder is None:
        yield pinned, lambda decisions: None
        return
    identity = fingerprint(source.identity(), *facts)
    found: Decisions | None = None
    with mirrored(folder, source.group) as own:
        path = checked_path(own) / DECISIONS_FILE
        if is_own_file(path):
            fields = Fields(read_state(path), "decisions")
            refuse_other_fit(path.parent, fields.text("identity") != identity)
            found = Decisions.from_json(fields.take("decisions"))

    def store(decisions: Decisions) -> None:
        if found is None and source.group.rank == 0:
            make_folder(checked_path(folder))
            stored = {"identity": identity, "decisions": decisions.to_json()}
            write_state(checked_path(folder) / DECISIONS_FILE, stored)

    yield (pinned if found is None else found), store


@contextmanager
def open_checkpoint(
    folder: str | None, model: CVGP, source: DataSource, settings: object, run: Run
) -> Iterator[Checkpoint | None]:
    """The checkpoint of a fit that begins with this model, or None if no folder was asked for.

    Whatever time a fit is given, it is the same fit: one that ran out of time can be resumed with more.
    """
    if folder is None:
        yield None
        return
    # Not of the values: a time limit has a say in where points start, and what is stored takes their place.
    shapes = [tuple(p.shape) for p in model.parameters()]
    identity = fingerprint(source.identity(), settings, shapes)
    with mirrored(folder, source.group) as own:
        yield Checkpoint(own, identity, run)


@contextmanager
def mirrored(folder: str | os.PathLike[str], group: Group) -> Iterator[str | os.PathLike[str]]:
    """The folder itself for the first process; for each of the others a temporary copy of what was stored there.

    So every process resumes from the same state, and the folder need not be on a disk that all of them reach.
    """
    if group.world == 1:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="cvgp-") as copy:
        for name in (DECISIONS_FILE, ADAM_FILE, LBFGS_FILE):
            path = Path(folder) / name
            with access_errors(f"read {path}"):
                stored = group.first_bytes(_content(path) if group.rank == 0 else b"")
            if stored and group.rank > 0:
                (Path(copy) / name).write_bytes(stored)
        yield folder if group.rank == 0 else copy


def _content(path: Path) -> bytes:
    """The bytes of one of the folder's files; none if it is not there."""
    return path.read_bytes() if is_own_file(path) else b""
