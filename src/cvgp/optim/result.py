"""What an optimiser reports after each iteration and when it stops."""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

__all__ = ["Monitor", "Progress", "Result", "Status"]


class Status(Enum):
    """Why an optimiser stopped."""

    CONVERGED = "the objective no longer improves by more than tol"
    ITERATION_LIMIT = "the iteration limit was reached first; raise max_iter for a better optimum"
    TIME_LIMIT = "the time limit was reached first; raise max_time for a better optimum"
    EARLY_STOPPED = "the validation score no longer improves"
    INTERRUPTED = "interrupted"


class Result(NamedTuple):
    """How a minimisation ended; the parameters themselves are left at the best point found."""

    status: Status
    value: float
    num_iter: int

    @property
    def converged(self) -> bool:
        """Whether the optimiser stopped because there was nothing left to gain."""
        return self.status in (Status.CONVERGED, Status.EARLY_STOPPED)


class Progress(NamedTuple):
    """One row of an optimiser's history."""

    iteration: int
    value: float
    learning_rate: float
    event: str = ""


Monitor = Callable[[Progress], Status | None]
"""Called after each iteration; a status that it returns stops the optimiser."""
