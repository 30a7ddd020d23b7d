"""What one call of a strategy leaves for the next ones: the factorised sites, and their KL.

GPyTorch's `initialize` and many users write into `.data`, which no version counter notices. So the values themselves
are compared.
"""

from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cvgp.gp.posterior import Factor


class LastCall(NamedTuple):
    """Results, and the values that they were computed from."""

    values: list[Tensor]
    jitter: float
    training: bool
    with_gradient: bool
    prior_mean: Tensor  # [..., M]
    factor: Factor | None
    kl: Tensor | None  # [...]

    @classmethod
    def of(cls, strategy: Any, prior_mean: Tensor, factor: Factor | None, kl: Tensor | None) -> "LastCall":
        """Results of a strategy as it is now."""
        values = [value.detach().clone() for value in _values(strategy.model)]
        with_gradient = torch.is_grad_enabled()
        return cls(values, strategy.jitter_val, strategy.training, with_gradient, prior_mean, factor, kl)

    def holds_for(self, strategy: Any) -> bool:
        """Whether the same computation would give the same results, with a graph where one is needed."""
        model = strategy.model
        if (self.jitter, self.training) != (strategy.jitter_val, strategy.training):
            return False
        if not self.with_gradient and gradients_flow(model):
            return False
        now = _values(model)
        return len(now) == len(self.values) and all(map(_equal, now, self.values))


def gradients_flow(model: nn.Module) -> bool:
    """Whether results now carry gradients of the model's parameters."""
    return torch.is_grad_enabled() and any(parameter.requires_grad for parameter in model.parameters())


def _values(module: nn.Module) -> list[Tensor]:
    """All parameters and buffers; `parameters()` and `buffers()` take three times as long, at every training step."""
    own = chain(module._parameters.values(), module._buffers.values())
    found = [value for value in own if value is not None]
    for child in module._modules.values():
        if child is not None:
            found += _values(child)
    return found


def _equal(now: Tensor, then: Tensor) -> bool:
    return now.dtype == then.dtype and now.device == then.device and torch.equal(now, then)
