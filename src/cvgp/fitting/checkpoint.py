"""Checkpoints of the long solvers: a folder from which an interrupted fit is resumed.

The decisions of the fit are stored, since time has a say in them. A run of Adam ends as if it had not been interrupted:
batches depend on seed and step alone. L-BFGS begins again at the best point, with no memory of curvature.
"""

import hashlib
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from cvgp.data.source import DataSource
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.files import Fields, access_errors, checked_path, is_own_file, make_folder, read_state, write_state
from cvgp.fitting.decisions import Decisions
from cvgp.fitting.monitor import Run, check_history

DECISIONS_FILE, ADAM_FILE, LBFGS_FILE = "decisions.safetensors", "adam.safetensors", "lbfgs.safetensors"
SECONDS_BETWEEN = 1.0

State = dict[str, Any]  # tensors, arrays, numbers and flags by name


def fingerprint(*facts: object) -> str:
    """A short name for data and settings: equal exactly when a fit would be the same."""
    return hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()[:32]


class Checkpoint:
    """The folder of one fit; one that belongs to a fit with another :func:`fingerprint` is refused."""

    def __init__(self, folder: str | os.PathLike[str], identity: str, run: Run) -> None:
        self.folder, self.identity, self.run = checked_path(folder), identity, run
        self._last = time.perf_counter()
        make_folder(self.folder)

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        return is_own_file(self.folder / name)

    def save(self, name: str, state: State, *, now: bool = False) -> None:
        """Store the state of a solver with history and time, at most once a second unless it must be now."""
        if now or time.perf_counter() - self._last >= SECONDS_BETWEEN:
            common = {"identity": self.identity, "seconds": self.run.budget.seconds, "history": self.run.log.history}
            write_state(self.folder / name, {**state, **common})
            self._last = time.perf_counter()

    def load(self, name: str, like: State) -> State | None:
        """The stored state of a solver, after the run has taken its history and time; None without a file."""
        if not self.has(name):
            return None
        with self._fields(name) as fields:
            history, seconds = check_history(fields.items("history")), fields.number("seconds", low=0.0)
            found = {key: _take_like(fields, key, value) for key, value in like.items()}
        self.run.log.history[:] = history
        self.run.budget.clock.advance_to(seconds)
        return found

    def save_decisions(self, decisions: Decisions) -> None:
        """Store decisions, unless some are stored."""
        if not self.has(DECISIONS_FILE):
            write_state(self.folder / DECISIONS_FILE, {"identity": self.identity, "decisions": decisions.to_json()})

    def load_decisions(self) -> Decisions | None:
        """The decisions of an interrupted fit; None without a file."""
        if not self.has(DECISIONS_FILE):
            return None
        with self._fields(DECISIONS_FILE) as fields:
            return Decisions.from_json(fields.take("decisions"))

    @contextmanager
    def _fields(self, name: str) -> Iterator[Fields]:
        path = self.folder / name
        stored = read_state(path)
        try:
            fields = Fields(stored, "checkpoint")
            if fields.text("identity") != self.identity:
                raise InvalidInputError(
                    f"The checkpoint in {self.folder} belongs to another fit (other data, parameters or starting "
                    "point). Choose another folder, or remove this one to start afresh."
                )
            yield fields
            fields.close()
        except FileFormatError as error:
            raise FileFormatError(f"{path} is damaged: {error} Remove it to start afresh.") from error


def _take_like(fields: Fields, name: str, like: Any) -> Any:
    if isinstance(like, Tensor | np.ndarray):
        dtype = str(like.dtype).removeprefix("torch.")
        found = fields.array(name, tuple(like.shape), dtypes=(dtype,))
        return like.new_tensor(found) if isinstance(like, Tensor) else found
    if isinstance(like, bool):
        return fields.flag(name)
    if isinstance(like, int):
        return fields.integer(name)
    return fields.number(name, finite=math.isfinite(like))


@contextmanager
def open_checkpoint(
    folder: str | os.PathLike[str], run: Run, source: DataSource, *facts: object
) -> Iterator[Checkpoint]:
    """The checkpoint of a fit of these rows with these options, whatever time it is given."""
    group, identity = source.group, fingerprint(source.identity(), *facts)
    if group.world == 1:
        yield Checkpoint(folder, identity, run)
        return
    with tempfile.TemporaryDirectory(prefix="cvgp-") as copy:
        for name in (DECISIONS_FILE, ADAM_FILE, LBFGS_FILE):
            path = Path(folder) / name
            with access_errors(f"read {path}"):
                stored = group.first_bytes(path.read_bytes() if group.rank == 0 and is_own_file(path) else b"")
            if stored and group.rank > 0:
                (Path(copy) / name).write_bytes(stored)
        yield Checkpoint(folder if group.rank == 0 else copy, identity, run)
