"""What the bounds ask of the matrices of one batch, before torch would broadcast a mistake into an answer."""

from torch import Tensor

from cvgp.errors import InvalidInputError

__all__ = ["check_batch"]


def check_batch(square: Tensor, K_cx: Tensor, k_xx: Tensor, y: Tensor | None = None) -> None:
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
