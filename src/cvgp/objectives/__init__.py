"""Objectives of the optimizers: a bound on log p(y) plus the log density of the model's priors, with the gradient."""

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from cvgp.gp.hyperparameters import log_density, registered_priors
from cvgp.gp.model import CVGP

__all__ = ["Objective"]


class Objective(Protocol):
    """A bound on all data in nats, plus the log density of priors, as a function of some parameters."""

    @property
    def parameters(self) -> Sequence[Tensor]:
        """The parameters that receive the gradient."""

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the sum; `scale` times its gradient is added to `grad` of the parameters."""


class PriorObjective:
    """log p of kernel, mean and noise under the priors that are registered on them; zero without any.

    Parameters
    ----------
    model
        Its kernel, mean and noise receive the gradient.
    """

    def __init__(self, model: CVGP) -> None:
        self._like: Tensor = model.X_c
        self._priors = registered_priors(model.kernel, model.mean, model.likelihood)
        self.parameters = [p for p in model.parameters() if p.requires_grad]

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the log density; `scale` times its gradient is added to `grad` of the parameters."""
        if not self._priors:
            return 0.0
        value = scale * log_density(self._priors, self._like)
        if value.requires_grad:  # a prior may be on what is frozen
            value.backward()
        return value.item()
