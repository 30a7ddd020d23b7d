"""Checks of the tensors that a model is asked about."""

import math

import torch
from torch import Tensor

from cvgp.errors import InvalidInputError, InvalidTypeError

__all__ = ["check_batch", "check_finite", "check_inputs"]


def check_inputs(x: Tensor, X_c: Tensor) -> None:
    """Raise unless x is a tensor [..., B, D] that fits the pseudo-inputs [M, D]."""
    if not isinstance(x, Tensor):
        raise InvalidTypeError(f"x must be a torch.Tensor; got {type(x).__name__}. Convert it with torch.as_tensor.")
    D = X_c.shape[1]
    if x.ndim < 2 or x.shape[-1] != D:
        raise InvalidInputError(f"x must be [..., B, {D}], as the pseudo-inputs are; got {tuple(x.shape)}.")
    if x.device != X_c.device or not x.is_floating_point():
        raise InvalidInputError(
            f"x must be a floating-point tensor on {X_c.device}, where the pseudo-inputs are; "
            f"got {x.dtype} on {x.device}. Convert it with x.to(...)."
        )


def check_finite(name: str, values: Tensor) -> None:
    """Raise if any of the values is NaN or infinite."""
    if math.isfinite(values.sum().item()):
        return  # one that is not would show in the sum
    bad = int((~torch.isfinite(values)).sum())
    if bad:
        raise InvalidInputError(f"{name} holds {bad} NaN or infinite values; drop or impute those rows first.")


def check_batch(x: Tensor, y: Tensor, X_c: Tensor, y_c: Tensor) -> None:
    """Raise unless x `[B, D]` and y `[B]` or `[B, T]` fit each other and the coreset."""
    check_inputs(x, X_c)
    if not isinstance(y, Tensor):
        raise InvalidTypeError(f"y must be a torch.Tensor; got {type(y).__name__}. Convert it with torch.as_tensor.")
    expected = (len(x), *y_c.shape[1:])
    if x.ndim != 2 or len(x) == 0 or tuple(y.shape) != expected:
        raise InvalidInputError(
            f"x must be [B, D] with B >= 1 and y {list(expected)}; got {tuple(x.shape)} and {tuple(y.shape)}."
        )
    if y.dtype != x.dtype or y.device != x.device:
        raise InvalidInputError(
            f"x and y must share dtype and device; got {x.dtype} on {x.device} and {y.dtype} on {y.device}. "
            "Convert one of them with .to(...)."
        )
