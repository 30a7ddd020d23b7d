"""Priors that GPyTorch modules carry: their log density, which a fit adds to its bound (§6.3).

A prior is on the value that its module shows (a lengthscale, a variance), not on the raw parameter, as in GPyTorch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from gpytorch.priors import Prior
from torch import Tensor, nn

from cvgp.errors import DivergenceError

__all__ = ["RegisteredPrior", "log_density", "registered_priors"]


class RegisteredPrior(NamedTuple):
    """A prior, and what it is a density of."""

    name: str
    module: nn.Module
    prior: Prior
    value_of: Callable[[Any], Tensor]


def registered_priors(*parts: Any) -> list[RegisteredPrior]:
    """All priors of some GPyTorch modules and of the modules inside them."""
    found = (prior for part in parts for prior in part.named_priors())
    return [RegisteredPrior(name, module, prior, value_of) for name, module, prior, value_of, _ in found]


def log_density(priors: list[RegisteredPrior], like: Tensor) -> Tensor:
    """The sum of the log densities of all priors at the present values, in nats; a float64 scalar beside `like`."""
    total = torch.zeros((), dtype=torch.float64, device=like.device)
    for name, module, prior, value_of in priors:
        try:
            total = total + prior.log_prob(value_of(module)).sum()
        except ValueError as error:
            raise DivergenceError(
                f"{name} has no density at the present value, which is outside its support; start from a value "
                "inside, and keep it there with a constraint such as gpytorch.constraints.Interval"
            ) from error
    return total
