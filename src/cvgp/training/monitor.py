"""Watching a fit: the clock, the history, callbacks and the requests to stop that come from them."""

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

LARGEST_COUNT = 2**53
MOST_CHARACTERS = 50_000_000
"""Limits of a history from a file."""

LEAST_PAUSE, SHARE_OF_PAUSE = 2.0, 0.1
"""Between two lines about a phase there are at least this many seconds, and this share of the time so far."""


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

    def begin(self, phase: str, max_iter: int) -> None:
        """Name what comes next."""
        self.phase, self.max_iter, self.validation_rmse = phase, max_iter, None
        self._stride = max(max_iter // HISTORY_ROWS, 1)

    def resume(self, history: list[dict[str, Any]], seconds: float) -> None:
        """Go on where an interrupted fit was: its history and the time that it had used."""
        self.history = history
        self._before = seconds
        self._start = self._clock()

    def advance_to(self, seconds: float) -> None:
        """Count the time that an interrupted run had used when it was here."""
        self._before += max(seconds - self._own_seconds(), 0.0)

    @property
    def seconds(self) -> float:
        """Time used, interrupted runs included; in a group, what the first process had used when they last met."""
        return self._own_seconds() if self.group.world == 1 else self._agreed

    @property
    def stopped(self) -> bool:
        """Whether a callback has asked for the end of the fit."""
        return self._stop

    def time_used(self) -> float:
        """Fraction of the time limit that is spent; 0 without one."""
        return self._share_of_limit(self.seconds)

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

    def meet(self, status: Status | None = None, *, interrupted: bool = False) -> Status | None:
        """Take the time, and whether and how to stop, from the first process."""
        if self.group.world == 1:
            return status
        codes: list[Status | None] = [None, *Status]
        mine = torch.tensor([self._own_seconds(), float(interrupted), codes.index(status)], dtype=torch.float64)
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
        seconds = self._own_seconds()
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
        return Status.TIME_LIMIT if self._share_of_limit(seconds) >= self._share else None

    def _own_seconds(self) -> float:
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


class EventLines:
    """A callback that shows the last event of each phase, and in between one every two seconds or, in a long fit, less.

    Parameters
    ----------
    show
        Called with each event that is worth a line. An event that went wrong and was mended always is.
    """

    def __init__(self, show: Callable[[FitEvent], None]) -> None:
        self._show = show
        self._shown_at = 0.0
        self._waiting: FitEvent | None = None

    def __call__(self, event: FitEvent) -> None:
        """Take the next event of the fit."""
        waiting = self._waiting
        if waiting is not None and (event.phase != waiting.phase or event.iteration < waiting.iteration):
            self.finish()
        self._waiting = event
        pause = max(LEAST_PAUSE, SHARE_OF_PAUSE * event.seconds)
        if event.event or event.iteration == event.max_iter or event.seconds - self._shown_at >= pause:
            self.finish()

    def finish(self) -> None:
        """Show the last event, unless it has been shown."""
        if self._waiting is not None:
            self._shown_at = self._waiting.seconds
            self._show(self._waiting)
        self._waiting = None


def print_line(event: FitEvent) -> None:
    """Print an event as a plain line."""
    validation = "" if event.validation_rmse is None else f"  validation RMSE {event.validation_rmse:.4f}"
    print(
        f"{event.phase:>20}  {event.iteration:6d}/{event.max_iter}  bound {event.bound:10.4f}  "
        f"{event.seconds:7.1f} s{validation}  {event.event}".rstrip(),
        flush=True,
    )
