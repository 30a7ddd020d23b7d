"""Constraints and priors of GPyTorch modules; a fit adds the log density of the priors to its bound (§6.3).

As in GPyTorch, a prior is on the value of a parameter (a lengthscale, a variance), not on its raw form.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.priors import NormalPrior, Prior
from torch import Tensor, nn
from torch.distributions import Distribution

from cvgp.errors import DivergenceError

HELD_AROUND, HELD_ABOVE = "held_around", "held_above"
"""Names of the priors that a fit adds and removes."""
MARGIN = 0.01
"""Distance from a bound, as a share of the interval: at the bound itself the raw parameter is infinite."""


class RegisteredPrior(NamedTuple):
    """A prior, and the value that it is a density of."""

    name: str
    module: nn.Module
    prior: Prior
    value_of: Callable[[Any], Tensor]


def registered_priors(*parts: Any) -> list[RegisteredPrior]:
    """All priors of some GPyTorch modules and of the modules inside them."""
    found = (prior for part in parts for prior in part.named_priors())
    return [RegisteredPrior(name, module, prior, value_of) for name, module, prior, value_of, _ in found]


def log_density(priors: list[RegisteredPrior], like: Tensor) -> Tensor:
    """The sum of the log densities of all priors at the present values, in nats; float64, where `like` is."""
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


class InverseHalfCauchy(Prior):  # type: ignore[misc]
    """Prior of a positive value whose inverse is half-Cauchy: log p = -log(1 + (typical / value)^2) + constant.

    It is flat far above the typical value. Below it, each factor of e costs two nats.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, typical: Tensor) -> None:
        nn.Module.__init__(self)
        Distribution.__init__(self, validate_args=False)
        self.register_buffer("typical", typical)

    def log_prob(self, value: Tensor) -> Tensor:
        """The log density of each value, in nats."""
        return -torch.log1p((self.typical / value).square())


def add_log_normal_prior(kernel: Kernel, typical: Tensor, spread: float) -> None:
    """Add a normal prior on the logarithm of each lengthscale, around that of the typical one `[D]`."""
    for part in _with_lengthscales(kernel):
        like = part.lengthscale[0]
        prior = NormalPrior(typical.log().to(like), torch.full_like(like, spread))
        part.register_prior(HELD_AROUND, prior, _log_lengthscale)


def add_lower_prior(kernel: Kernel, typical: Tensor, f_sd: Tensor) -> None:
    """Add priors against lengthscales far below the typical ones, and against a variance of f far above `f_sd`^2.

    Parameters
    ----------
    kernel
        Its parts with lengthscales get one prior each, and so do its learned outputscales.
    typical
        Lengthscales `[D]`.
    f_sd
        The standard deviation of f `[]`.
    """
    for part in _with_lengthscales(kernel):
        part.register_prior(HELD_ABOVE, InverseHalfCauchy(typical.to(part.lengthscale)), _lengthscale)
    for part in kernel.modules():
        if isinstance(part, ScaleKernel) and part.raw_outputscale.requires_grad:
            part.register_prior(HELD_ABOVE, InverseHalfCauchy(1.0 / f_sd.to(part.outputscale)), _inverse_f_sd)


def is_held(module: nn.Module, *names: str) -> bool:
    """Whether any part of a module has a prior of a fit, of one of these names if some are given."""
    return any(name in _priors(part) for part in module.modules() for name in names or (HELD_AROUND, HELD_ABOVE))


def release(*modules: nn.Module) -> None:
    """Remove the priors of a fit, if there are any."""
    for part in (part for module in modules for part in module.modules()):
        for name in {HELD_AROUND, HELD_ABOVE} & set(_priors(part)):
            del _priors(part)[name], part._modules[name]


def _with_lengthscales(kernel: Kernel) -> list[Kernel]:
    return [part for part in kernel.modules() if isinstance(part, Kernel) and part.has_lengthscale]


def _priors(part: nn.Module) -> Any:
    return getattr(part, "_priors", {})


def _lengthscale(kernel: Any) -> Tensor:
    found: Tensor = kernel.lengthscale
    return found


def _log_lengthscale(kernel: Any) -> Tensor:
    return torch.log(kernel.lengthscale)


def _inverse_f_sd(kernel: Any) -> Tensor:
    found: Tensor = kernel.outputscale.rsqrt()
    return found
