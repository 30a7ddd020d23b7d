"""Stationary kernels on many small sets of points at once: `[n, m, m]` from points `[n, m, D]` (§9.2).

The sets are rows with their neighbours. Squared distances come from products, in coordinates that begin at the last
point of each set: its neighbours are near, so the products cancel few digits however far the set is from the origin.
"""

from typing import Any

import torch
from torch import Tensor

from cvgp.gp.linalg import first_derivative_only, symmetrise
from cvgp.gp.stationary import Family, StationaryKernel


def local_matrices(kernel: StationaryKernel, x: Tensor) -> Tensor:
    """Kernel matrices `[n, m, m]` of the sets of points x `[n, m, D]`, differentiable in the kernel and in x."""
    K: Tensor = _LocalMatrices.apply(kernel.family, x, *kernel[1:])  # type: ignore[no-untyped-call]
    return K


class _LocalMatrices(torch.autograd.Function):
    """The matrices as one autograd node; the derivatives are those of §7.3, set by set."""

    @staticmethod
    def forward(
        ctx: Any, family: Family, x: Tensor, inverse_lengthscale: Tensor, outputscale: Tensor, shape: Tensor
    ) -> Tensor:
        X = x - x[:, -1:]  # [n, m, D]
        Z = X * (family.stretch * inverse_lengthscale).to(x.dtype)
        norms = Z.square().sum(-1, keepdim=True)  # [n, m, 1]
        u2 = torch.baddbmm(norms + norms.mT, Z, Z.mT, alpha=-2.0)  # [n, m, m]
        u2.diagonal(dim1=-2, dim2=-1).zero_()
        r2 = None if family.shape_slope is None else u2.clamp_min(0.0)  # evaluate may overwrite u2
        K, slope = family.evaluate(u2, outputscale.log().to(x.dtype), shape.to(x.dtype))
        ctx.family = family
        ctx.save_for_backward(X, inverse_lengthscale, outputscale, shape, K, slope, r2)
        return K

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:
        X, inverse_lengthscale, outputscale, shape, K, slope, r2 = ctx.saved_tensors
        G = symmetrise(G)
        H = G * slope  # [n, m, m], over the slope factor
        H.diagonal(dim1=-2, dim2=-1).zero_()  # no point moves away from itself
        HX = H.sum(-1, keepdim=True) * X - H @ X  # [n, m, D], sum_j H_ij (x_i - x_j)
        squares = 2.0 * (X * HX).sum((0, 1))  # [D], sum_ij H_ij (x_i - x_j)^2
        factor = 2.0 * ctx.family.slope_factor * inverse_lengthscale
        d_shape = None
        if ctx.family.shape_slope is not None:
            d_shape = (G * ctx.family.shape_slope(r2, shape.to(K.dtype), K)).sum().to(shape.dtype)
        return (
            None,
            2.0 * (factor * inverse_lengthscale).to(X.dtype) * HX,
            factor * squares.to(factor.dtype),
            (G * K).sum().to(outputscale.dtype) / outputscale,
            d_shape,
        )
