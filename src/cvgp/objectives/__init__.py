"""What an optimiser evaluates: a bound on log p(y) plus the model's priors, with the gradient of the sum."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

__all__ = ["Objective"]


class Objective(Protocol):
    """A bound on all data in nats, plus the log density of priors, as a function of some parameters."""

    @property
    def parameters(self) -> Sequence[Tensor]:
        """What receives the gradient."""

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the sum; `scale` times its gradient is added to `grad` of the parameters."""
