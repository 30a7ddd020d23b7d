"""What GPyTorch modules say of their parameters: constraints, and priors, whose density a fit adds to its bound (§6.3).

A prior is on the value that its module shows (a lengthscale, a variance), not on the raw parameter, as in GPyTorch.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from gpytorch.priors import NormalPrior, Prior
from torch import Tensor, nn

from cvgp.errors import DivergenceError

HELD = "held_lengthscale"
MARGIN = 0.01
"""A value at a bound itself has an infinite raw parameter; this share of the interval away it can still be learned."""


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


@torch.no_grad()
def multiply_inside(module: Any, name: str, factor: Tensor | float) -> None:
    """Multiply a constrained parameter, such as `lengthscale`, by a factor, as far as its constraint allows."""
    value, constraint = getattr(module, name) * factor, module.constraint_for_parameter_name(f"raw_{name}")
    if constraint is not None:
        value = inside(value, constraint.lower_bound, constraint.upper_bound)
    setattr(module, name, value)


def inside(value: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The nearest value at least a margin away from both bounds, for those that are beyond it."""
    lower, upper = lower.to(value), upper.to(value)
    width = upper - lower
    # With one bound alone, the margin is a share of that bound.
    margin = MARGIN * torch.where(torch.isfinite(width), width, torch.where(torch.isfinite(lower), lower, upper).abs())
    return torch.where(value <= lower, lower + margin, torch.where(value >= upper, upper - margin, value))


def hold_lengthscales(kernel: Kernel, log_centre: Tensor, spread: float) -> None:
    """Give the logarithm of each lengthscale of a kernel a normal prior, around `log_centre` [D]."""
    for part in kernel.modules():
        if isinstance(part, Kernel) and part.has_lengthscale:
            prior = NormalPrior(log_centre.to(part.lengthscale), torch.full_like(part.lengthscale[0], spread))
            part.register_prior(HELD, prior, _log_lengthscale)


def lengthscales_are_held(kernel: Kernel) -> bool:
    """Whether :func:`hold_lengthscales` has given a kernel its prior."""
    return any(HELD in part._priors for part in kernel.modules() if isinstance(part, Kernel))


def release_lengthscales(kernel: Kernel) -> None:
    """Take off the prior of :func:`hold_lengthscales`, if there is one: a fitted kernel is to be used as any other."""
    for part in kernel.modules():
        if isinstance(part, Kernel) and HELD in part._priors:
            del part._priors[HELD], part._modules[HELD]


def _log_lengthscale(kernel: Kernel) -> Tensor:
    return torch.log(kernel.lengthscale)
