"""Where gradients that are written by hand meet torch's: analytic backward passes, and known gradients to hand on."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from cvgp.errors import InvalidInputError

__all__ = ["backward_from", "first_derivative_only"]

P = ParamSpec("P")
R = TypeVar("R")


def first_derivative_only(backward: Callable[P, R]) -> Callable[P, R]:
    """Make an analytic backward refuse to be differentiated itself; autograd would return a wrong Hessian silently."""

    @wraps(backward)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.is_grad_enabled():
            raise InvalidInputError(
                "Bounds and fused kernels have first derivatives only: call backward without create_graph=True, "
                "and take second derivatives by differences of gradients."
            )
        return backward(*args, **kwargs)

    return wrapped


class _WithGradients(torch.autograd.Function):
    """Zero, as a function of some tensors that has the gradients that it is given."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors[count:])
        return tensors[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor | None, ...]:
        return None, *ctx.saved_tensors, *(None for _ in ctx.saved_tensors)


def backward_from(tensors: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Add what tensors with known gradients hand on to the `grad` of the parameters that they depend on.

    As `torch.autograd.backward` does; but that loads SymPy to compare the shapes, which takes longer than a small fit.
    """
    value: Tensor = _WithGradients.apply(len(tensors), *tensors, *gradients)  # type: ignore[no-untyped-call]
    torch.autograd.backward(value)
