r"""Fused kernel matrices for stationary kernels with one lengthscale a dimension.

A stationary kernel is :math:`k(x, x') = s\,\kappa(r^2)` with :math:`r^2 = \sum_d (x_d - x'_d)^2 / \ell_d^2`. Its
matrices and their gradient need only products of 2 M B D flops: with :math:`H = G \cdot s\,\kappa'(r^2)` for an
upstream gradient G, the pseudo-inputs get :math:`2 \ell^{-2} (\mathrm{rowsum}(H) X_c - H X)`, and the lengthscales
follow from the same product. No tensor of size M x B x D is ever made.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cvgp.linalg import first_derivative_only

__all__ = ["FAMILIES", "Family", "StationaryKernel", "cross_matrix", "square_matrix"]


class Family(NamedTuple):
    """A correlation function of the squared distance with its derivatives."""

    with_slope: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # (r2, shape) -> kappa, d kappa / d r2
    shape_slope: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None  # (r2, shape, kappa) -> d kappa / d shape


class StationaryKernel(NamedTuple):
    """A family with its parameters; the shape is the rational quadratic's alpha, and 1 for the others."""

    family: Family
    inverse_lengthscale: Tensor  # [D]
    outputscale: Tensor  # []
    shape: Tensor  # []


def square_matrix(kernel: StationaryKernel, X_c: Tensor) -> Tensor:
    """K_cc [M, M], always in float64."""
    K_cc: Tensor = _Matrix.apply(  # type: ignore[no-untyped-call]
        kernel.family, X_c, None, kernel.inverse_lengthscale, kernel.outputscale, kernel.shape
    )
    return K_cc


def cross_matrix(kernel: StationaryKernel, X_c: Tensor, x: Tensor) -> Tensor:
    """K_cx [..., M, B] in the precision of x, whose leading dimensions are batch dimensions."""
    K_cx: Tensor = _Matrix.apply(  # type: ignore[no-untyped-call]
        kernel.family,
        X_c,
        x.reshape(-1, x.shape[-1]),
        kernel.inverse_lengthscale,
        kernel.outputscale,
        kernel.shape,
    )
    return K_cx if x.ndim == 2 else K_cx.reshape(len(X_c), *x.shape[:-1]).movedim(0, -2)


def _squared_distance(Z_1: Tensor, Z_2: Tensor) -> Tensor:
    """|z_1 - z_2|^2 [M, B] by one product; both sides should be centred, since it cancels digits."""
    norms = Z_1.square().sum(1, keepdim=True) + Z_2.square().sum(1)
    return norms.addmm_(Z_1, Z_2.mT, alpha=-2.0).clamp_min_(0.0)


def _root(r2: Tensor) -> Tensor:
    # A positive floor keeps the derivative of the square root finite at zero distance.
    return r2.clamp_min(torch.finfo(r2.dtype).tiny * 1e8).sqrt()


def _rbf(r2: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    kappa = torch.exp(-0.5 * r2)
    return kappa, -0.5 * kappa


def _matern12(r2: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    # exp(-r) has a kink at zero: there the derivative is taken as zero, as for any coincident points.
    kappa = torch.exp(-_root(r2))
    coincident = r2 <= torch.finfo(r2.dtype).eps
    return kappa, torch.where(coincident, 0.0, -0.5 * kappa / torch.where(coincident, 1.0, r2).sqrt())


def _matern32(r2: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    r = _root(r2).mul_(math.sqrt(3.0))
    decay = torch.exp(-r)
    return r.add_(1.0).mul_(decay), decay.mul_(-1.5)


def _matern52(r2: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    r = _root(r2).mul_(math.sqrt(5.0))
    slope = torch.exp(-r).mul_(r.add_(1.0))  # (1 + r) exp(-r), with r now one larger
    decay = slope / r
    return torch.addcmul(slope, r2, decay, value=5.0 / 3.0), slope.mul_(-5.0 / 6.0)


def _rq(r2: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    u = 0.5 * r2 / shape
    kappa = torch.exp(-shape * u.log1p())
    return kappa, -0.5 * kappa / (1.0 + u)


def _rq_shape_slope(r2: Tensor, shape: Tensor, kappa: Tensor) -> Tensor:
    u = 0.5 * r2 / shape
    return kappa * (u / (1.0 + u) - u.log1p())


FAMILIES: dict[str, Family] = {
    "rbf": Family(_rbf),
    "matern12": Family(_matern12),
    "matern32": Family(_matern32),
    "matern52": Family(_matern52),
    "rq": Family(_rq, _rq_shape_slope),
}


class _Matrix(torch.autograd.Function):
    """One kernel matrix with the backward of the module's docstring; without x it is K_cc, in float64."""

    @staticmethod
    def forward(
        ctx: Any,
        family: Family,
        X_c: Tensor,
        x: Tensor | None,
        inverse_lengthscale: Tensor,
        outputscale: Tensor,
        shape: Tensor,
    ) -> Tensor:
        dtype = torch.float64 if x is None else x.dtype
        scale = inverse_lengthscale.to(torch.float64)
        shift = X_c.to(torch.float64).mean(0)
        points = (X_c.to(torch.float64) - shift).to(dtype)
        data = points if x is None else x - shift.to(dtype)
        r2 = _squared_distance(points * scale.to(dtype), data * scale.to(dtype))  # [M, B]
        if x is None:
            r2.fill_diagonal_(0.0)
        correlation, slope = family.with_slope(r2, shape.to(dtype))
        ctx.family, ctx.is_square = family, x is None
        ctx.dtypes = (X_c.dtype, inverse_lengthscale.dtype, outputscale.dtype, shape.dtype)
        ctx.save_for_backward(points, data, scale, outputscale, shape, r2, correlation, slope)
        return outputscale.to(dtype) * correlation

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:
        points, data, scale, outputscale, shape, r2, correlation, slope = ctx.saved_tensors
        to_X_c, to_scale, to_outputscale, to_shape = ctx.dtypes
        dtype, amplitude = r2.dtype, outputscale.to(r2.dtype)
        H = G * slope  # [M, B], d bound / d r2 over the outputscale
        if ctx.is_square:
            # No point moves away from itself; its terms would cancel below, but only to rounding times scale squared.
            H.fill_diagonal_(0.0)
        rows, columns = H.sum(1), H.sum(0)
        H_data = H @ data  # [M, D]
        # sum_mb H_mb (points_md - data_bd)^2, which is what the inverse lengthscales see.
        spread = rows @ points.square() + columns @ data.square() - 2.0 * (points * H_data).sum(0)
        pull = 2.0 * amplitude * scale.square().to(dtype)
        d_X_c = pull * (rows[:, None] * points - H_data)
        d_x = None
        if ctx.is_square or ctx.needs_input_grad[2]:
            d_x = pull * (columns[:, None] * data - H.mT @ points)
        if ctx.is_square:
            d_X_c, d_x = d_X_c + d_x, None
        d_shape = None
        if ctx.family.shape_slope is not None:
            bend = G * ctx.family.shape_slope(r2, shape.to(dtype), correlation)
            d_shape = (amplitude * bend.sum(dtype=torch.float64)).to(to_shape)
        return (
            None,
            d_X_c.to(to_X_c),
            d_x,
            (2.0 * amplitude * scale * spread).to(to_scale),
            (G * correlation).sum(dtype=torch.float64).to(to_outputscale),
            d_shape,
        )
