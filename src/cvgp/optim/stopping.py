"""Rules that end an optimisation."""

from collections import deque

__all__ = ["NoImprovement", "Plateau"]


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
