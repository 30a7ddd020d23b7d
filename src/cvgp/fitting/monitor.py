"""A fit while it runs: its time limit, what its steps cost, its history, callbacks, and requests to stop."""

import math
import reprlib
import time
import warnings
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cvgp.errors import CVGPWarning, FileFormatError
from cvgp.fitting.heuristics import Heuristics
from cvgp.optim import Progress, Status
from cvgp.parallel.group import ALONE, Group
from cvgp.progress import tell

__all__ = ["Callback", "FitEvent"]

HISTORY_ROWS = 1000  # of a phase, about, however long it is
LARGEST_COUNT, MOST_CHARACTERS = 2**53, 50_000_000  # of a history from a file


class Clock:
    """Seconds since a fit began, and how fast this machine is compared with the cost model."""

    def __init__(self, read: Callable[[], float] = time.perf_counter, group: Group = ALONE) -> None:
        self.group, self.agreed = group, 0.0
        self._read, self._start = read, read()
        self._expected, self._measured = 0.0, 0.0

    def own_seconds(self) -> float:
        """Time used by the clock of this process, interrupted runs included."""
        return self._read() - self._start

    @property
    def seconds(self) -> float:
        """Time used; in a group, what the first process had used when they last met."""
        return self.own_seconds() if self.group.world == 1 else self.agreed

    def advance_to(self, seconds: float) -> None:
        """Count the time that an interrupted run had used when it was here."""
        self._start -= max(seconds - self.own_seconds(), 0.0)

    def measure(self, expected: float, seconds: float) -> None:
        """Record that work of some expected seconds took `seconds`."""
        self._expected += expected
        self._measured += seconds

    @property
    def pace(self) -> float:
        """Measured over expected seconds; one in a group, whose processes may differ."""
        return self._measured / self._expected if self._expected > 0.0 and self.group.world == 1 else 1.0


class Budget:
    """A time limit in seconds for a whole fit, or none; a part of a fit has to end before `end`."""

    def __init__(self, max_time: float | None = None, clock: Clock | None = None, end: float | None = None) -> None:
        self.max_time = max_time
        self.clock = Clock() if clock is None else clock
        self.end = (math.inf if max_time is None else max_time) if end is None else end

    @property
    def seconds(self) -> float:
        """Time used since the fit began."""
        return self.clock.seconds

    @property
    def left(self) -> float:
        """Seconds until this part has to end; infinite without a limit."""
        return max(self.end - self.seconds, 0.0)

    def affords(self, seconds: float) -> bool:
        """Whether work of some seconds by the cost model can be done in time."""
        return math.isinf(self.end) or self.clock.pace * seconds <= self.left

    def part(self, share: float) -> "Budget":
        """A budget for this share of the whole limit, counted from now."""
        if self.max_time is None:
            return self
        return Budget(self.max_time, self.clock, min(self.end, self.seconds + share * self.max_time))

    def reserving(self, seconds: float) -> "Budget":
        """A budget that ends earlier by some seconds, which a later step needs."""
        return Budget(self.max_time, self.clock, self.end - seconds)

    def used_since(self, begin: float) -> float:
        """The fraction that is spent of the time from `begin` to the end of this part; 0 without a limit."""
        if math.isinf(self.end):
            return 0.0
        return (self.seconds - begin) / (self.end - begin) if self.end > begin else 1.0


def step_seconds(size: int, batch: int, h: Heuristics) -> float:
    """One step of Adam."""
    constant, by_product, by_cube = h.step_cost
    return constant + by_product * size**2 * batch + by_cube * size**3


def evaluation_seconds(num_rows: int, size: int, num_dims: int, h: Heuristics) -> float:
    """One evaluation of the bound on all rows with its gradient."""
    by_entry, by_product, by_column = h.evaluation_cost
    return num_rows * size * (by_entry + by_product * size + by_column * num_dims)


def exact_seconds(num_rows: int, num_dims: int, h: Heuristics) -> float:
    """One evaluation of the exact marginal likelihood with its gradient."""
    constant, by_cube, by_column = h.exact_cost
    return constant + num_rows**2 * (by_cube * num_rows + by_column * num_dims)


def neighbor_seconds(num_rows: int, size: int, h: Heuristics) -> float:
    """Searching the neighbors of all rows and adding up their statistics."""
    per_row, per_point, per_pair = h.neighbor_cost
    return num_rows * (per_row + per_point * size + per_pair * num_rows)


class FitEvent(NamedTuple):
    """What a callback is told after an iteration.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, TrainingOptions
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> events = []
    >>> training = TrainingOptions(max_iter=5, callbacks=[events.append])
    >>> model = CVGPRegressor(n_coreset=8, training=training, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> events[-1].phase, events[-1].iteration
    ('lbfgs', 5)
    """

    phase: str
    """What is being done: a choice before the fit (``choose ...``), ``adam``, ``lbfgs`` or ``neighbors``."""
    iteration: int
    max_iter: int
    bound: float
    """The bound in nats per row, in the model's units; for minibatches a running mean."""
    seconds: float
    learning_rate: float
    """That of Adam; NaN for L-BFGS."""
    validation_rmse: float | None
    event: str
    """A decision, or a numerical problem and its remedy; empty for an ordinary iteration."""


Callback = Callable[[FitEvent], Any]


class FitLog:
    """The history and the callbacks of one fit, and whether a callback has asked for its end."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self.callbacks = tuple(callbacks)
        self.history: list[dict[str, Any]] = []
        self.stopped = False

    def record(self, event: FitEvent, *, keep: bool = True) -> None:
        """Tell the callbacks, and keep the event in the history."""
        if keep:
            self.history.append(event._asdict())
        tell(event.phase, event.iteration, event.max_iter)
        answers = [callback(event) for callback in self.callbacks]
        self.stopped = self.stopped or any(answer is True for answer in answers)


class Phase:
    """One optimization within a fit, as the optimizer's monitor: it records iterations and says when to stop."""

    def __init__(self, run: "Run", name: str, max_iter: int, *, group: Group = ALONE, warns: bool = False) -> None:
        self.run, self.name, self.max_iter, self.group, self.warns = run, name, max_iter, group, warns
        self.validation_rmse: float | None = None
        self._stride = max(max_iter // HISTORY_ROWS, 1)
        self._step_began = run.budget.clock.own_seconds()

    def __call__(self, progress: Progress) -> Status | None:
        try:
            status = self._observe(progress)
        except KeyboardInterrupt:
            self._agree(interrupted=True)
            raise
        return self._agree(status)

    def _agree(self, status: Status | None = None, *, interrupted: bool = False) -> Status | None:
        """Take the time, and whether and how to stop, from the first process."""
        if self.group.world == 1:
            return status
        clock = self.run.budget.clock
        codes: list[Status | None] = [None, *Status]
        mine = torch.tensor([clock.own_seconds(), float(interrupted), codes.index(status)], dtype=torch.float64)
        (first,) = self.group.first([mine])
        clock.agreed = first[0].item()
        if first[1] and not interrupted:
            raise KeyboardInterrupt
        return codes[int(first[2])]

    def _observe(self, progress: Progress) -> Status | None:
        budget, log = self.run.budget, self.run.log
        seconds = budget.clock.own_seconds()
        place = self.name, progress.iteration, self.max_iter
        event = FitEvent(*place, -progress.value, seconds, progress.learning_rate, self.validation_rmse, progress.event)
        is_last = progress.iteration == self.max_iter
        log.record(event, keep=bool(progress.event) or is_last or progress.iteration % self._stride == 0)
        if progress.event and self.warns:
            warnings.warn(f"{self.name}, iteration {progress.iteration}: {progress.event}", CVGPWarning, stacklevel=2)
        if log.stopped:
            return Status.INTERRUPTED
        # A step that would end after the limit is not begun: it takes about as long as this one did.
        step, self._step_began = seconds - self._step_began, budget.clock.own_seconds()
        return Status.TIME_LIMIT if seconds + step >= budget.end else None


class Run(NamedTuple):
    """What all steps of one fit share."""

    budget: Budget
    log: FitLog
    heuristics: Heuristics
    seed: int = 0

    @classmethod
    def alone(cls, max_time: float | None = None, seed: int = 0) -> "Run":
        """A fit by itself, with default heuristics and no callbacks."""
        return cls(Budget(max_time), FitLog(), Heuristics(), seed)

    @property
    def group(self) -> Group:
        """The processes that work on the fit."""
        return self.budget.clock.group

    @property
    def has_time(self) -> bool:
        """Whether anything more may be tried."""
        return self.budget.left > 0.0 and not self.log.stopped

    def rng(self, stage: str) -> np.random.Generator:
        """Random numbers for one stage, which do not depend on what other stages draw."""
        return np.random.default_rng([self.seed, zlib.crc32(stage.encode())])

    def part(self, share: float) -> "Run":
        """The same fit, with this share of its time limit from now on."""
        return self._replace(budget=self.budget.part(share))

    def rows(self, count: int) -> int:
        """How many of `count` rows a choice may use: its cost grows at least with their square."""
        limit = math.inf if self.budget.max_time is None else max(self.budget.max_time, 0.0)
        return math.ceil(count * math.sqrt(min(limit / self.heuristics.enough_seconds, 1.0)))

    def choosing(self, folder: object) -> "Run":
        """The same fit as choices see it: without a time limit if it may be resumed from a folder, or is shared."""
        if folder is None and self.group.world == 1:
            return self
        return self._replace(budget=Budget(None, self.budget.clock))

    def note(self, phase: str, event: str, bound: float = math.nan) -> None:
        """Put a decision into the history, where callbacks see it."""
        self.log.record(FitEvent(phase, 1, 1, bound, self.budget.clock.own_seconds(), math.nan, None, event))

    def agreed(self, number: float) -> float:
        """A number of the first process, for all: processes whose last digits differ must not decide differently."""
        (first,) = self.group.first([torch.tensor(float(number), dtype=torch.float64)])
        return first.item()


def check_history(rows: list[Any]) -> list[dict[str, Any]]:
    """Validate the rows of a history from a file."""
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


class ProgressLines:
    """A callback that prints decisions, the last iteration of each phase, and others every few seconds."""

    def __init__(self) -> None:
        self._shown_at = 0.0

    def __call__(self, event: FitEvent) -> None:
        pause = max(2.0, 0.1 * event.seconds)
        if event.event or event.iteration == event.max_iter or event.seconds - self._shown_at >= pause:
            self._shown_at = event.seconds
            validation = "" if event.validation_rmse is None else f"  validation RMSE {event.validation_rmse:.4f}"
            place = f"{event.phase:>20}  {event.iteration:6d}/{event.max_iter}"
            bound = " " * 16 if math.isnan(event.bound) else f"bound {event.bound:10.4f}"  # a decision has none
            numbers = f"{bound}  {event.seconds:7.1f} s{validation}"
            print(f"{place}  {numbers}  {event.event}".rstrip(), flush=True)
