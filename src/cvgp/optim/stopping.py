"""How an optimizer ends: its status and result, its progress reports, and the rules that stop it."""

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple


class Status(Enum):
    """Why an optimizer stopped."""

    CONVERGED = "the objective no longer improves by more than tol"
    ITERATION_LIMIT = "the iteration limit was reached first; raise max_iter for a better optimum"
    TIME_LIMIT = "the time limit was reached first; raise max_time for a better optimum"
    EARLY_STOPPED = "the validation score no longer improves"
    ABNORMAL = "the line search found no better point, although the gradient has a slope; look for extreme values"
    INTERRUPTED = "interrupted"


class Result(NamedTuple):
    """How a minimization ended; the parameters themselves are left at the best point found."""

    status: Status
    value: float
    num_iter: int

    @property
    def converged(self) -> bool:
        """Whether the optimizer stopped because there was nothing left to gain."""
        return self.status in (Status.CONVERGED, Status.EARLY_STOPPED)


class Progress(NamedTuple):
    """One row of an optimizer's history."""

    iteration: int
    value: float
    learning_rate: float
    event: str = ""


Monitor = Callable[[Progress], Status | None]
"""Called after each iteration; a status that it returns stops the optimizer."""


class Plateau:
    """True once the best value has fallen by less than `tol` over the last `window` iterations."""

    def __init__(self, tol: float, window: int) -> None:
        self.tol = tol
        self._best: deque[float] = deque(maxlen=window + 1)

    def update(self, value: float) -> bool:
        """Add one iteration's value (lower is better) and say whether progress has stopped."""
        self._best.append(min(value, self._best[-1]) if self._best else value)
        return len(self._best) == self._best.maxlen and self._best[0] - self._best[-1] < self.tol


class NoImprovement:
    """Patience on a validation score: remembers the best score and counts the checks since then."""

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.best = float("inf")
        self.checks_since_best = 0

    def update(self, score: float) -> bool:
        """Add a score (lower is better); True when it is the best so far."""
        if score < self.best:
            self.best, self.checks_since_best = score, 0
            return True
        self.checks_since_best += 1
        return False

    @property
    def exhausted(self) -> bool:
        """Whether the last `patience` checks brought no improvement."""
        return self.checks_since_best >= self.patience
