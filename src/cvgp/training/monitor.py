"""Watching a fit: the clock, the history, callbacks and the requests to stop that come from them."""

import math
import reprlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cvgp.errors import CVGPWarning, FileFormatError
from cvgp.optim.stopping import Progress, Status
from cvgp.parallel.group import ALONE, Group

__all__ = ["Callback", "FitEvent"]


HISTORY_ROWS = 1000
"""A phase leaves about this many rows in the history, however long it is."""

ENOUGH_TIME = 10.0
"""Seconds of a time limit from which on a choice sees all the rows that it would see without one."""

LARGEST_COUNT = 2**53
MOST_CHARACTERS = 50_000_000
"""Limits of a history from a file."""


class FitEvent(NamedTuple):
    """What a callback is told after an iteration.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> events = []
    >>> model = CVGPRegressor(n_coreset=8, max_iter=5, random_state=0, callbacks=[events.append])
    >>> model = model.fit(X, np.sin(X[:, 0]))
    >>> events[-1].phase, events[-1].iteration
    ('lbfgs', 5)

    One that returns True ends the fit: ``callbacks=[lambda event: event.seconds > 60]``.
    """

    phase: str
    """What is being done: a search for a start (``start ...``), ``adam``, ``lbfgs``, ``neighbours``."""
    iteration: int
    """The number of the iteration in its phase."""
    max_iter: int
    """How many iterations the phase may take."""
    bound: float
    """The bound in nats per row, in the model's units; for minibatches a running mean."""
    seconds: float
    """Time since the fit began."""
    learning_rate: float
    """That of Adam; NaN for L-BFGS."""
    validation_rmse: float | None
    """The error on the rows that early stopping holds out, where there are any."""
    event: str
    """What went wrong and was mended, which kernel a start has chosen, or nothing."""


Callback = Callable[[FitEvent], Any]
"""Called after each iteration; returning True ends the fit there, with what was learned kept."""


class Watch:
    """Shared by all phases of one fit.

    Parameters
    ----------
    max_time
        Seconds after which the fit winds down, or None.
    callbacks
        Called after each iteration.
    group
        The processes that work on the fit. The clock and the callbacks of the first decide for all when it ends.
    clock
        Seconds since some time in the past, by default `time.perf_counter`; `time.process_time` limits the time on the
        processor.
    """

    def __init__(
        self,
        max_time: float | None = None,
        callbacks: Sequence[Callback] = (),
        group: Group = ALONE,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.max_time = max_time
        self.callbacks = tuple(callbacks)
        self.group = group
        self.history: list[dict[str, Any]] = []
        self.phase = ""
        self.max_iter = 0
        self._stride = 1
        self.validation_rmse: float | None = None
        self._clock = clock or time.perf_counter
        self._start = self._clock()
        self._before = 0.0
        self._agreed = 0.0
        self._stop = False
        self._share = 1.0
        self._kept_back = 0.0
        self._step_began: float | None = None
        self._expected, self._measured = 0.0, 0.0

    def begin(self, phase: str, max_iter: int) -> None:
        """Name what comes next."""
        self.phase, self.max_iter, self.validation_rmse = phase, max_iter, None
        self._stride = max(max_iter // HISTORY_ROWS, 1)
        self._step_began = self.own_seconds()

    def resume(self, history: list[dict[str, Any]], seconds: float) -> None:
        """Go on where an interrupted fit was: its history and the time that it had used."""
        self.history = history
        self._before = seconds
        self._start = self._clock()

    def advance_to(self, seconds: float) -> None:
        """Count the time that an interrupted run had used when it was here."""
        self._before += max(seconds - self.own_seconds(), 0.0)

    @property
    def seconds(self) -> float:
        """Time used, interrupted runs included; in a group, what the first process had used when they last met."""
        return self.own_seconds() if self.group.world == 1 else self._agreed

    @property
    def stopped(self) -> bool:
        """Whether a callback has asked for the end of the fit."""
        return self._stop

    def time_used(self) -> float:
        """Fraction of the time limit that is spent; 0 without one."""
        return self._share_of_limit(self.seconds)

    @property
    def left(self) -> float:
        """Seconds until the time limit, without those that are kept back; infinite without a limit."""
        if self.max_time is None:
            return math.inf
        return max(self._share * (self.max_time - self._kept_back) - self.seconds, 0.0)

    @property
    def has_time(self) -> bool:
        """Whether there is time for something more."""
        return not self.stopped and self.time_used() < self._share

    def some_of(self, count: int) -> int:
        """How many rows a choice may see that sees `count` of them without a time limit.

        Its cost grows with their square at least, so a limit of a tenth of the time leaves a third of the rows.
        """
        short = 1.0 if self.max_time is None else min(max(self.max_time, 0.0) / ENOUGH_TIME, 1.0)
        return math.ceil(count * math.sqrt(short))

    @property
    def pace(self) -> float:
        """How many times as long work takes here as the cost model says; in a group, where processes differ, one."""
        return self._measured / self._expected if self._expected > 0.0 and self.group.world == 1 else 1.0

    def measure(self, expected: float, seconds: float) -> None:
        """Take note of what work took that should have taken some seconds."""
        self._expected += expected
        self._measured += seconds

    def keep_back(self, seconds: float) -> None:
        """Count so many seconds at the end of the limit as spent: what follows the optimisers will need them."""
        self._kept_back = seconds

    @contextmanager
    def until(self, share: float) -> Iterator[None]:
        """Let optimisers stop when this share of the time limit is spent."""
        before, self._share = self._share, share
        try:
            yield
        finally:
            self._share = before

    @contextmanager
    def stage(self, share: float) -> Iterator[None]:
        """Let optimisers stop when they have spent this share of the time limit, counted from now."""
        with self.until(min(self.time_used() + share, self._share)):
            yield

    @contextmanager
    def shortened(self, seconds: float) -> Iterator[None]:
        """Take so many seconds off the time limit for a while: what follows will need them."""
        limit = self.max_time
        self.max_time = None if limit is None else limit - seconds
        try:
            yield
        finally:
            self.max_time = limit

    def unseen(self, share: float) -> "Watch":
        """A watch for a search that nobody is told of, and that ends when this share of the time limit is spent."""
        left = None if self.max_time is None else max(share * self.max_time - self.seconds, 0.0)
        return Watch(left, clock=self._clock)

    def shares(self, share: float, count: int) -> "Iterator[Watch]":
        """Watches for `count` searches, one after the other, which together may spend this share of the time limit.

        Each has an equal part of what those before it have left.
        """
        end = min(self.time_used() + share, self._share)
        for others in range(count - 1, -1, -1):
            used = self.time_used()
            yield self.unseen(used + max(end - used, 0.0) / (others + 1))

    def meet(self, status: Status | None = None, *, interrupted: bool = False) -> Status | None:
        """Take the time, and whether and how to stop, from the first process."""
        if self.group.world == 1:
            return status
        codes: list[Status | None] = [None, *Status]
        mine = torch.tensor([self.own_seconds(), float(interrupted), codes.index(status)], dtype=torch.float64)
        (first,) = self.group.first([mine])
        self._agreed = first[0].item()
        if first[1] and not interrupted:
            raise KeyboardInterrupt
        return codes[int(first[2])]

    def monitor(self, progress: Progress) -> Status | None:
        """Record an iteration of an optimiser, and say to all processes alike whether it is to be the last."""
        try:
            status = self.observe(progress)
        except KeyboardInterrupt:
            self.meet(interrupted=True)
            raise
        return self.meet(status)

    def observe(self, progress: Progress) -> Status | None:
        """Record an iteration of an optimiser that minimises the negative bound per observation, in this process."""
        seconds = self.own_seconds()
        event = FitEvent(
            self.phase,
            progress.iteration,
            self.max_iter,
            -progress.value,
            seconds,
            progress.learning_rate,
            self.validation_rmse,
            progress.event,
        )
        if progress.event or progress.iteration % self._stride == 0 or progress.iteration == self.max_iter:
            self.history.append(event._asdict())
        # A start or a kernel for neighbours that goes wrong loses to the others, and is no concern of the user's.
        if progress.event and not self.phase.startswith(("start", "neighbours", "noise")):
            warnings.warn(f"{self.phase}, iteration {progress.iteration}: {progress.event}", CVGPWarning, stacklevel=2)
        answers = [callback(event) for callback in self.callbacks]
        # Remembered, so that what would follow the present phase ends at once too.
        self._stop = self._stop or any(answer is True for answer in answers)
        if self._stop:
            return Status.INTERRUPTED
        # A step that would end after the limit is not begun: it takes about as long as this one did.
        step = 0.0 if self._step_began is None else seconds - self._step_began
        self._step_began = self.own_seconds()
        return Status.TIME_LIMIT if self._share_of_limit(seconds + step) >= self._share else None

    def own_seconds(self) -> float:
        """Time used by the clock of this process."""
        return self._before + self._clock() - self._start

    def _share_of_limit(self, seconds: float) -> float:
        if self.max_time is None:
            return 0.0
        left = self.max_time - self._kept_back
        return seconds / left if left > 0.0 else 1.0


def check_history(rows: list[Any]) -> list[dict[str, Any]]:
    """The rows of a history that comes from a file, if that is what they are."""
    kinds = {"phase": str, "event": str, "iteration": int, "max_iter": int, "validation_rmse": float | None}
    for row in rows:
        if not isinstance(row, dict) or set(row) != set(FitEvent._fields):
            raise FileFormatError(f"A row of the history must have {', '.join(FitEvent._fields)}, and nothing else.")
        for name, value in row.items():
            if not isinstance(value, kinds.get(name, float)) or isinstance(value, bool):
                raise FileFormatError(f"{name} of a row of the history cannot be a {type(value).__name__}.")
            if isinstance(value, int) and not 0 <= value <= LARGEST_COUNT:
                raise FileFormatError(f"{name} of a row of the history cannot be {reprlib.repr(value)}.")
    # As an array, text takes as much memory in each row as in the longest.
    for name in ("phase", "event"):
        if len(rows) * max((len(row[name]) for row in rows), default=0) > MOST_CHARACTERS:
            raise FileFormatError(f"{name} of the history is too long.")
    return rows


def as_columns(history: Sequence[dict[str, Any]]) -> dict[str, NDArray[Any]]:
    """One array per field of :class:`FitEvent`, as in scikit-learn's `cv_results_`; a missing number is NaN."""
    kinds = {"phase": np.str_, "event": np.str_, "iteration": np.int64, "max_iter": np.int64}
    return {
        name: np.array([row[name] for row in history], dtype=kinds.get(name, np.float64)) for name in FitEvent._fields
    }
