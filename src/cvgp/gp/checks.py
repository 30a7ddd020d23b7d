"""What tensors must be, checked before torch would broadcast a mistake into an answer."""

import math

import torch
from torch import Tensor

from cvgp.errors import InvalidInputError, InvalidTypeError

__all__ = ["check_finite", "check_inputs", "check_matrices", "check_rows"]


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


def check_rows(x: Tensor, y: Tensor, X_c: Tensor, y_c: Tensor) -> None:
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


def check_matrices(square: Tensor, K_cx: Tensor, k_xx: Tensor, y: Tensor | None = None) -> None:
    """Raise unless `square` [M, M], `K_cx` [M, B], `k_xx` [B] and `y` [B] or [B, T] fit together."""
    M, B = square.shape[-1] if square.ndim else 0, k_xx.numel()
    if square.shape != (M, M) or K_cx.shape != (M, B) or k_xx.shape != (B,) or M == 0 or B == 0:
        raise InvalidInputError(
            "The matrix among the pseudo-inputs must be [M, M], K_cx [M, B] and k_xx [B], with M and B at least 1; "
            f"got {tuple(square.shape)}, {tuple(K_cx.shape)} and {tuple(k_xx.shape)}."
        )
    if y is not None and (y.ndim not in (1, 2) or y.shape[0] != B):
        raise InvalidInputError(f"With {B} columns in K_cx, y must be [{B}] or [{B}, T]; got {tuple(y.shape)}.")
    data_side = [K_cx, k_xx] if y is None else [K_cx, k_xx, y]
    if any(tensor.device != square.device for tensor in data_side):
        raise InvalidInputError(
            f"All matrices must be on one device, {square.device}; "
            f"got the data side on {', '.join(str(tensor.device) for tensor in data_side)}. Move it with .to(device)."
        )
    if any(tensor.dtype != K_cx.dtype for tensor in data_side) or not K_cx.is_floating_point():
        raise InvalidInputError(
            "K_cx, k_xx and y must share one floating-point type; "
            f"got {', '.join(str(tensor.dtype) for tensor in data_side)}. Convert them with .to(dtype)."
        )
