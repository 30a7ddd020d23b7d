"""Stationary kernels with one lengthscale per dimension: matrices and gradients by products alone (§7).

Each family is one function: its docstring has the plain formulas of k and of its derivative, its code their fast form.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cvgp.gp.linalg import first_derivative_only, symmetrize


class Family(NamedTuple):
    """A covariance as a function of the squared distance, with its derivative (§7.1).

    `evaluate(u2, log_s, shape)` may overwrite u2 = (stretch delta)^2; it returns k and (dk / d delta^2) / slope_factor.
    """

    evaluate: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    slope_factor: float
    stretch: float = 1.0
    shape_slope: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None  # (delta2, shape, K) -> dK / d shape


def _rbf(u2: Tensor, log_s: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    """RBF: k = s exp(-delta^2 / 2), k' = -1/2 k."""
    K = torch.sub(log_s, u2.clamp_min_(0.0), alpha=0.5, out=u2).exp_()
    return K, K


def _matern12(u2: Tensor, log_s: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    """Matern 1/2: k = s exp(-delta), k' = -1/2 k / delta; at the kink delta = 0 the derivative is taken as zero."""
    coincident = u2 <= torch.finfo(u2.dtype).eps
    u = _root(u2)
    K = (log_s - u).exp_()
    return K, torch.div(K, u, out=u).masked_fill_(coincident, 0.0)


def _matern32(u2: Tensor, log_s: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    """Matern 3/2: k = s (1 + u) exp(-u), k' = -3/2 s exp(-u), with u = sqrt(3) delta."""
    u = _root(u2)
    decay = (log_s - u).exp_()  # s exp(-u)
    return torch.addcmul(decay, u, decay, out=u2), decay


def _matern52(u2: Tensor, log_s: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    """Matern 5/2: k = s (1 + u + u^2 / 3) exp(-u), k' = -5/6 s (1 + u) exp(-u), with u = sqrt(5) delta."""
    u = _root(u2)
    decay = (log_s - u).exp_()  # s exp(-u)
    slope = torch.addcmul(decay, u, decay)
    return torch.addcmul(slope, torch.square(u, out=u2), decay, value=1.0 / 3.0), slope


def _rq(u2: Tensor, log_s: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    """Rational quadratic: k = s (1 + v)^-alpha, k' = -1/2 k / (1 + v), with v = delta^2 / (2 alpha)."""
    v = u2.clamp_min_(0.0).mul_(0.5).div_(shape)
    K = (log_s - shape * v.log1p()).exp_()
    return K, K / (1.0 + v)


def _rq_shape_slope(delta2: Tensor, shape: Tensor, K: Tensor) -> Tensor:
    """Derivative in alpha: k [ v / (1 + v) - log(1 + v) ], with v = delta^2 / (2 alpha)."""
    v = 0.5 * delta2 / shape
    return K * (v / (1.0 + v) - v.log1p())


def _root(u2: Tensor) -> Tensor:
    """The root u of u^2, in its memory; a positive floor keeps the derivative of the square root finite at u = 0."""
    return u2.clamp_min_(torch.finfo(u2.dtype).tiny * 1e8).sqrt_()


FAMILIES: dict[str, Family] = {
    "rbf": Family(_rbf, -0.5),
    "matern12": Family(_matern12, -0.5),
    "matern32": Family(_matern32, -1.5, math.sqrt(3.0)),
    "matern52": Family(_matern52, -5.0 / 6.0, math.sqrt(5.0)),
    "rq": Family(_rq, -0.5, shape_slope=_rq_shape_slope),
}


class StationaryKernel(NamedTuple):
    """A family with its parameters; the shape is the rational quadratic's alpha, and 1 for the others."""

    family: Family
    inverse_lengthscale: Tensor  # [D]
    outputscale: Tensor  # []
    shape: Tensor  # []


class Covariance(NamedTuple):
    """One kernel matrix, with the parts of its derivatives."""

    K: Tensor  # [M, B]
    slope: Tensor  # [M, B], k' over the family's slope factor
    X_c: Tensor  # [M, D], pseudo-inputs minus the center
    X: Tensor | None  # [B, D], inputs minus the center; None for K_cc
    delta2: Tensor | None  # [M, B], where the family has a shape to learn


class CovarianceGradient(NamedTuple):
    """Derivatives of a scalar with respect to what a kernel matrix depends on."""

    X_c: Tensor  # [M, D]
    inverse_lengthscale: Tensor  # [D]
    outputscale: Tensor  # []
    shape: Tensor | None  # []


class Placed(NamedTuple):
    """Pseudo-inputs as a kernel sees them, in one precision, for products with many x (§7.2)."""

    family: Family
    center: Tensor  # [D]: squared distances by products cancel digits far from it
    scale: Tensor  # [D], stretch over lengthscale
    X_c: Tensor  # [M, D], pseudo-inputs minus the center
    Z_c: Tensor  # [M, D], X_c times the scale
    lifted: Tensor  # [M, D + 2], (-2 z_c, 1, |z_c|^2): its products with (z, |z|^2, 1) are squared distances
    log_s: Tensor  # []
    shape: Tensor  # []

    def to(self, dtype: torch.dtype) -> "Placed":
        """The same in another precision."""
        if self.X_c.dtype == dtype:
            return self
        family, *tensors = self
        return Placed(family, *(t.to(dtype) for t in tensors))


def place(kernel: StationaryKernel, X_c: Tensor, dtype: torch.dtype) -> Placed:
    """Center and scale the pseudo-inputs (§7.2)."""
    X_c = X_c.to(torch.float64)
    center = X_c.mean(0)
    scale = (kernel.family.stretch * kernel.inverse_lengthscale).to(dtype)
    centered = (X_c - center).to(dtype)
    Z_c = centered * scale
    lifted = torch.cat([-2.0 * Z_c, Z_c.new_ones(len(Z_c), 1), Z_c.square().sum(1, keepdim=True)], 1)
    log_s, shape = kernel.outputscale.log(), kernel.shape.to(dtype)
    return Placed(kernel.family, center.to(dtype), scale, centered, Z_c, lifted, log_s, shape)


def covariance_at(placed: Placed, x: Tensor | None) -> Covariance:
    """K_cx [M, B], with x in the precision of the placed points; or without x K_cc [M, M] (§7.2)."""
    if x is None:
        X, norms = None, placed.lifted[:, -1:]
        u2 = (norms + norms.mT).addmm_(placed.Z_c, placed.Z_c.mT, alpha=-2.0)  # [M, M], symmetric to the bit
        u2.fill_diagonal_(0.0)
    else:
        X = x - placed.center
        Z = X * placed.scale
        # |z_c|^2 + |z|^2 - 2 z_c^T z in one product: 42 instead of 51 us at 50 x 512, 284 instead of 424 at 500 x 1024.
        u2 = placed.lifted @ torch.cat([Z, Z.square().sum(1, keepdim=True), x.new_ones(len(x), 1)], 1).mT
    # Only a family without a stretch has a shape, so its u2 is delta2; evaluate may overwrite it.
    delta2 = None if placed.family.shape_slope is None else u2.clamp_min(0.0)
    K, slope = placed.family.evaluate(u2, placed.log_s, placed.shape)
    return Covariance(K, slope, placed.X_c, X, delta2)


class _Moments(NamedTuple):
    """Sums of H = G * k' (over the slope factor) over the data, all from one product (§7.3)."""

    h: Tensor  # [M, 1], H 1
    HX: Tensor  # [M, D]
    HXX: Tensor  # [D], 1^T H (X * X)


def _moments(of: Covariance, G: Tensor) -> _Moments:
    H = G * of.slope  # [M, B]
    if of.X is None:
        # No point moves away from itself; its terms would cancel below, but only to rounding times scale squared.
        H.fill_diagonal_(0.0)
        X, D = of.X_c, of.X_c.shape[1]
        sums = H @ torch.cat([X, X.new_ones(len(X), 1)], 1)  # [M, D + 1]
        h = sums[:, D:]
        return _Moments(h, sums[:, :D], (h * X.square()).sum(0))  # H is symmetric, so 1^T H = h^T
    D = of.X.shape[1]
    sums = (H @ torch.cat([of.X, of.X.square(), of.X.new_ones(len(of.X), 1)], 1)).to(torch.float64)  # [M, 2 D + 1]
    return _Moments(sums[:, 2 * D :], sums[:, :D], sums[:, D : 2 * D].sum(0))


def pull_back(kernel: StationaryKernel, of: Covariance, G: Tensor) -> CovarianceGradient:
    """Turn the derivative G [M, B] in a matrix, symmetric for K_cc, into that of its parameters (§7.3)."""
    X_c, (h, HX, HXX) = of.X_c.to(torch.float64), _moments(of, G)
    hX_c = h * X_c  # [M, D]
    squares = (X_c * torch.sub(hX_c, HX, alpha=2.0)).sum(0) + HXX  # [D], sum_mi H_mi (X_c,md - X_id)^2
    factor = 2.0 * kernel.family.slope_factor * kernel.inverse_lengthscale.to(torch.float64)
    sides = 2.0 if of.X is None else 1.0  # a pseudo-input is a row and a column of K_cc
    d_shape = None
    if kernel.family.shape_slope is not None and of.delta2 is not None:
        d_shape = (G * kernel.family.shape_slope(of.delta2, kernel.shape.to(of.K.dtype), of.K)).sum(dtype=torch.float64)
    return CovarianceGradient(
        X_c=sides * factor * kernel.inverse_lengthscale * (hX_c - HX),
        inverse_lengthscale=factor * squares,
        outputscale=torch.dot(G.reshape(-1), of.K.reshape(-1)) / kernel.outputscale,
        shape=d_shape,
    )


def pull_back_both(
    kernel: StationaryKernel, among: Covariance, G_cc: Tensor, across: Covariance, G_cx: Tensor
) -> tuple[Tensor, Tensor]:
    """The sum of :func:`pull_back` of K_cc and of K_cx, for X_c [M, D] and the log lengthscales [D] alone."""
    X_c, cc, cx = among.X_c, _moments(among, G_cc), _moments(across, G_cx)
    hX_c = torch.add(cx.h, cc.h, alpha=2.0) * X_c  # [M, D]
    inner = torch.sub(hX_c, cx.HX).sub_(cc.HX, alpha=2.0)  # [M, D]
    # The squares of K_cc are X_c * (2 h X_c - 2 H X_c) summed over its points, as H is symmetric there.
    squares = (X_c * (inner - cx.HX)).sum(0) + cx.HXX  # [D]
    factor = 2.0 * kernel.family.slope_factor * kernel.inverse_lengthscale.square()
    return factor * inner, factor * -squares


def _data_gradient(kernel: StationaryKernel, of: Covariance, G: Tensor) -> Tensor | None:
    """The derivative in x [B, D] (§7.3); None where the matrix is K_cc."""
    if of.X is None:
        return None
    H = G * of.slope
    factor = 2.0 * kernel.family.slope_factor * kernel.inverse_lengthscale.to(H.dtype).square()
    return factor * (H.sum(0)[:, None] * of.X - H.mT @ of.X_c)


def square_matrix(kernel: StationaryKernel, X_c: Tensor) -> Tensor:
    """K_cc [M, M], always in float64 (§7.2)."""
    K_cc: Tensor = _Matrix.apply(kernel.family, X_c, None, *kernel[1:])  # type: ignore[no-untyped-call]
    return K_cc


def cross_matrix(kernel: StationaryKernel, X_c: Tensor, x: Tensor) -> Tensor:
    """K_cx [..., M, B] in the precision of x, whose leading dimensions are batch dimensions (§7.2)."""
    rows = x.reshape(-1, x.shape[-1])
    K_cx: Tensor = _Matrix.apply(kernel.family, X_c, rows, *kernel[1:])  # type: ignore[no-untyped-call]
    return K_cx if x.ndim == 2 else K_cx.reshape(len(X_c), *x.shape[:-1]).movedim(0, -2)


class _Matrix(torch.autograd.Function):
    """One kernel matrix as an autograd node; without x it is K_cc."""

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
        kernel = StationaryKernel(family, inverse_lengthscale, outputscale, shape)
        result = covariance_at(place(kernel, X_c, torch.float64 if x is None else x.dtype), x)
        ctx.family, ctx.dtype = family, X_c.dtype
        ctx.save_for_backward(inverse_lengthscale, outputscale, shape, *result)
        return result.K

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:
        inverse_lengthscale, outputscale, shape, *saved = ctx.saved_tensors
        kernel, of = StationaryKernel(ctx.family, inverse_lengthscale, outputscale, shape), Covariance(*saved)
        G = symmetrize(G) if of.X is None else G
        gradient = pull_back(kernel, of, G)
        d_x = _data_gradient(kernel, of, G) if ctx.needs_input_grad[2] else None
        return (
            None,
            gradient.X_c.to(ctx.dtype),
            d_x,
            gradient.inverse_lengthscale.to(inverse_lengthscale.dtype),
            gradient.outputscale.to(outputscale.dtype),
            None if gradient.shape is None else gradient.shape.to(shape.dtype),
        )


def local_matrices(kernel: StationaryKernel, x: Tensor) -> Tensor:
    """Kernel matrices `[n, m, m]` of the sets of points x `[n, m, D]`, differentiable in the kernel and in x."""
    K: Tensor = _LocalMatrices.apply(kernel.family, x, *kernel[1:])  # type: ignore[no-untyped-call]
    return K


class LocalCovariance(NamedTuple):
    """Kernel matrices of sets of points, with the parts of their derivatives."""

    K: Tensor  # [n, m, m]
    slope: Tensor  # [n, m, m]
    X: Tensor  # [n, m, D], minus the last point of each set
    delta2: Tensor | None  # [n, m, m], where the family has a shape to learn


def local_covariance(family: Family, scale: Tensor, log_s: Tensor, shape: Tensor, x: Tensor) -> LocalCovariance:
    """The matrices of the sets of points x `[n, m, D]`; scale, log_s and shape are those of :class:`Placed`."""
    X = x - x[:, -1:]
    Z = X * scale
    norms = Z.square().sum(-1, keepdim=True)  # [n, m, 1]
    u2 = torch.baddbmm(norms + norms.mT, Z, Z.mT, alpha=-2.0)  # [n, m, m]
    u2.diagonal(dim1=-2, dim2=-1).zero_()
    delta2 = None if family.shape_slope is None else u2.clamp_min(0.0)  # evaluate may overwrite u2
    K, slope = family.evaluate(u2, log_s, shape)
    return LocalCovariance(K, slope, X, delta2)


class _LocalMatrices(torch.autograd.Function):
    """The matrices as one autograd node; the derivatives are those of §7.3, set by set."""

    @staticmethod
    def forward(
        ctx: Any, family: Family, x: Tensor, inverse_lengthscale: Tensor, outputscale: Tensor, shape: Tensor
    ) -> Tensor:
        scale, log_s, alpha = (t.to(x.dtype) for t in (family.stretch * inverse_lengthscale, outputscale.log(), shape))
        of = local_covariance(family, scale, log_s, alpha, x)
        ctx.family = family
        ctx.save_for_backward(inverse_lengthscale, outputscale, shape, *of)
        return of.K

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:
        inverse_lengthscale, outputscale, shape, K, slope, X, delta2 = ctx.saved_tensors
        G = symmetrize(G)
        H = G * slope  # [n, m, m], over the slope factor
        H.diagonal(dim1=-2, dim2=-1).zero_()  # no point moves away from itself
        HX = H.sum(-1, keepdim=True) * X - H @ X  # [n, m, D], sum_j H_ij (x_i - x_j)
        squares = 2.0 * (X * HX).sum((0, 1))  # [D], sum_ij H_ij (x_i - x_j)^2
        factor = 2.0 * ctx.family.slope_factor * inverse_lengthscale
        d_shape = None
        if ctx.family.shape_slope is not None:
            d_shape = (G * ctx.family.shape_slope(delta2, shape.to(K.dtype), K)).sum().to(shape.dtype)
        return (
            None,
            2.0 * (factor * inverse_lengthscale).to(X.dtype) * HX,
            factor * squares.to(factor.dtype),
            (G * K).sum().to(outputscale.dtype) / outputscale,
            d_shape,
        )
