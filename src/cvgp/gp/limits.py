"""Values that a GPyTorch constraint allows: what a search would set is moved inside its bounds first."""

from typing import Any

import torch
from torch import Tensor

__all__ = ["multiply_inside"]

MARGIN = 0.01
"""A value at a bound itself has an infinite raw parameter; this share of the interval away it can still be learned."""


@torch.no_grad()
def multiply_inside(module: Any, name: str, factor: Tensor | float) -> None:
    """Multiply a constrained parameter, such as `lengthscale`, by a factor, as far as its constraint allows."""
    value, constraint = getattr(module, name) * factor, module.constraint_for_parameter_name(f"raw_{name}")
    if constraint is not None:
        value = _inside(value, constraint.lower_bound, constraint.upper_bound)
    setattr(module, name, value)


def _inside(value: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The nearest value at least a margin away from both bounds, for those that are beyond it."""
    lower, upper = lower.to(value), upper.to(value)
    width = upper - lower
    # With one bound alone, the margin is a share of that bound.
    margin = MARGIN * torch.where(torch.isfinite(width), width, torch.where(torch.isfinite(lower), lower, upper).abs())
    return torch.where(value <= lower, lower + margin, torch.where(value >= upper, upper - margin, value))
