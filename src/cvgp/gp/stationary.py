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

from cvgp.gp.linalg import first_derivative_only, symmetrise

__all__ = [
    "FAMILIES",
    "Covariance",
    "CovarianceGradient",
    "Family",
    "Placed",
    "StationaryKernel",
    "covariance",
    "covariance_at",
    "cross_matrix",
    "place",
    "pull_back",
    "pull_back_both",
    "square_matrix",
]


class Family(NamedTuple):
    """A covariance as a function of the squared distance, with its derivatives.

    `evaluate` takes the squared distance times `stretch` squared, which it may overwrite and which rounding may have
    made negative, the logarithm of the outputscale and the shape. It returns K and its derivative in r2, the latter
    over `slope_factor`: constants are cheaper to apply to inputs and sums than to a matrix.
    """

    evaluate: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    slope_factor: float
    stretch: float = 1.0
    shape_slope: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None  # (r2, shape, K) -> dK / d shape


class StationaryKernel(NamedTuple):
    """A family with its parameters; the shape is the rational quadratic's alpha, and 1 for the others."""

    family: Family
    inverse_lengthscale: Tensor  # [D]
    outputscale: Tensor  # []
    shape: Tensor  # []


class Covariance(NamedTuple):
    """One kernel matrix, with what its derivatives are made of."""

    K: Tensor  # [M, B]
    slope: Tensor  # [M, B], dK / dr2 over the family's slope factor
    points: Tensor  # [M, D], centred pseudo-inputs
    data: Tensor | None  # [B, D], centred inputs; None for K_cc
    r2: Tensor | None  # [M, B], where the family has a shape to learn


class CovarianceGradient(NamedTuple):
    """Derivatives of a scalar with respect to what a kernel matrix depends on."""

    X_c: Tensor  # [M, D]
    inverse_lengthscale: Tensor  # [D]
    outputscale: Tensor  # []
    shape: Tensor | None  # []


class Placed(NamedTuple):
    """Pseudo-inputs as a kernel sees them, in one precision; can be asked for many x."""

    family: Family
    shift: Tensor  # [D], the centre: squared distances by products cancel digits far from it
    scale: Tensor  # [D]
    points: Tensor  # [M, D], centred
    scaled: Tensor  # [M, D]
    lifted: Tensor  # [M, D + 2], (-2 scaled, 1, squared norms): squared distances are products with (scaled, norms, 1)
    log_scale: Tensor  # []
    shape: Tensor  # []

    def to(self, dtype: torch.dtype) -> "Placed":
        """The same in another precision."""
        if self.points.dtype == dtype:
            return self
        family, *tensors = self
        return Placed(family, *(t.to(dtype) for t in tensors))


def place(kernel: StationaryKernel, X_c: Tensor, dtype: torch.dtype) -> Placed:
    """Centre and scale the pseudo-inputs."""
    X_c = X_c.to(torch.float64)
    shift = X_c.mean(0)
    scale = (kernel.family.stretch * kernel.inverse_lengthscale).to(dtype)
    points = (X_c - shift).to(dtype)
    scaled = points * scale
    lifted = torch.cat([-2.0 * scaled, scaled.new_ones(len(scaled), 1), scaled.square().sum(1, keepdim=True)], 1)
    log_scale, shape = kernel.outputscale.log(), kernel.shape.to(dtype)
    return Placed(kernel.family, shift.to(dtype), scale, points, scaled, lifted, log_scale, shape)


def covariance_at(placed: Placed, x: Tensor | None) -> Covariance:
    """K_cx [M, B], with x in the precision of the placed points; or without x K_cc [M, M]."""
    if x is None:
        data, norms = None, placed.lifted[:, -1:]
        r2 = (norms + norms.mT).addmm_(placed.scaled, placed.scaled.mT, alpha=-2.0)  # [M, M], symmetric to the bit
        r2.fill_diagonal_(0.0)
    else:
        data = x - placed.shift
        scaled = data * placed.scale
        r2 = placed.lifted @ torch.cat([scaled, scaled.square().sum(1, keepdim=True), x.new_ones(len(x), 1)], 1).mT
    kept = None if placed.family.shape_slope is None else r2.clamp_min(0.0)
    K, slope = placed.family.evaluate(r2, placed.log_scale, placed.shape)
    return Covariance(K, slope, placed.points, data, kept)


def covariance(kernel: StationaryKernel, X_c: Tensor, x: Tensor | None = None) -> Covariance:
    """K_cx [M, B] in the precision of x, or without x K_cc [M, M] in float64."""
    return covariance_at(place(kernel, X_c, torch.float64 if x is None else x.dtype), x)


class _Moments(NamedTuple):
    """Sums of H = G dK/dr2 over the data, of which the derivatives are made; from one product."""

    total: Tensor  # [M, 1], sum_b H_mb
    first: Tensor  # [M, D], sum_b H_mb data_bd
    second: Tensor  # [D], sum_mb H_mb data_bd^2


def _moments(of: Covariance, G: Tensor) -> _Moments:
    H = G * of.slope  # [M, B]
    if of.data is None:
        # No point moves away from itself; its terms would cancel below, but only to rounding times scale squared.
        H.fill_diagonal_(0.0)
        points, num_dims = of.points, of.points.shape[1]
        sums = H @ torch.cat([points, points.new_ones(len(points), 1)], 1)  # [M, D + 1]
        total = sums[:, num_dims:]
        return _Moments(total, sums[:, :num_dims], (total * points.square()).sum(0))
    num_dims = of.data.shape[1]
    columns = torch.cat([of.data, of.data.square(), of.data.new_ones(len(of.data), 1)], 1)
    sums = (H @ columns).to(torch.float64)  # [M, 2 D + 1]
    return _Moments(sums[:, 2 * num_dims :], sums[:, :num_dims], sums[:, num_dims : 2 * num_dims].sum(0))


def pull_back(kernel: StationaryKernel, of: Covariance, G: Tensor) -> CovarianceGradient:
    """Turn the derivative G [M, B] with respect to a matrix, symmetric for K_cc, into that of its origins."""
    points, moments = of.points.to(torch.float64), _moments(of, G)
    rows_points = moments.total * points  # [M, D]
    # sum_mb H_mb (points_md - data_bd)^2, which is what the inverse lengthscales see.
    spread = (points * torch.sub(rows_points, moments.first, alpha=2.0)).sum(0) + moments.second
    scale = 2.0 * kernel.family.slope_factor * kernel.inverse_lengthscale.to(torch.float64)
    pull = (2.0 if of.data is None else 1.0) * scale * kernel.inverse_lengthscale
    d_shape = None
    if kernel.family.shape_slope is not None and of.r2 is not None:
        d_shape = (G * kernel.family.shape_slope(of.r2, kernel.shape.to(of.K.dtype), of.K)).sum(dtype=torch.float64)
    return CovarianceGradient(
        X_c=pull * (rows_points - moments.first),
        inverse_lengthscale=scale * spread,
        outputscale=torch.dot(G.reshape(-1), of.K.reshape(-1)) / kernel.outputscale,
        shape=d_shape,
    )


def pull_back_both(
    kernel: StationaryKernel, among: Covariance, G_cc: Tensor, across: Covariance, G_cx: Tensor
) -> tuple[Tensor, Tensor]:
    """What :func:`pull_back` of K_cc and of K_cx add up to, for X_c [M, D] and the log lengthscales [D] alone.

    The two share their points, so half of the small operations is saved.
    """
    points, near, far = among.points, _moments(among, G_cc), _moments(across, G_cx)
    rows_points = torch.add(far.total, near.total, alpha=2.0) * points  # [M, D]
    inner = torch.sub(rows_points, far.first).sub_(near.first, alpha=2.0)
    spread = (points * (inner - far.first)).sum(0) + far.second
    pull = 2.0 * kernel.family.slope_factor * kernel.inverse_lengthscale.square()
    return pull * inner, pull * -spread


def _data_gradient(kernel: StationaryKernel, of: Covariance, G: Tensor) -> Tensor | None:
    """What x [B, D] gets; none where the matrix is K_cc."""
    if of.data is None:
        return None
    H = G * of.slope
    pull = 2.0 * kernel.family.slope_factor * kernel.inverse_lengthscale.to(H.dtype).square()
    return pull * (H.sum(0)[:, None] * of.data - H.mT @ of.points)


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


def _root(r2: Tensor) -> Tensor:
    # A positive floor keeps the derivative of the square root finite at zero distance.
    return r2.clamp_min_(torch.finfo(r2.dtype).tiny * 1e8).sqrt_()


def _rbf(r2: Tensor, log_scale: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    K = torch.sub(log_scale, r2.clamp_min_(0.0), alpha=0.5, out=r2).exp_()
    return K, K


def _matern12(r2: Tensor, log_scale: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    # exp(-r) has a kink at zero: there the derivative is taken as zero, as for any coincident points.
    coincident = r2 <= torch.finfo(r2.dtype).eps
    r = _root(r2)
    K = (log_scale - r).exp_()
    return K, torch.where(coincident, 0.0, K / torch.where(coincident, 1.0, r))


def _matern32(r2: Tensor, log_scale: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    r = _root(r2)
    decay = (log_scale - r).exp_()
    return torch.addcmul(decay, r, decay, out=r), decay  # (1 + r) s exp(-r)


def _matern52(r2: Tensor, log_scale: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    r = _root(r2)
    decay = (log_scale - r).exp_()
    slope = torch.addcmul(decay, r, decay)  # (1 + r) s exp(-r)
    return torch.addcmul(slope, r.square_(), decay, value=1.0 / 3.0), slope


def _rq(r2: Tensor, log_scale: Tensor, shape: Tensor) -> tuple[Tensor, Tensor]:
    u = r2.clamp_min_(0.0).mul_(0.5).div_(shape)
    K = (log_scale - shape * u.log1p()).exp_()
    return K, K / (1.0 + u)


def _rq_shape_slope(r2: Tensor, shape: Tensor, K: Tensor) -> Tensor:
    u = 0.5 * r2 / shape
    return K * (u / (1.0 + u) - u.log1p())


FAMILIES: dict[str, Family] = {
    "rbf": Family(_rbf, -0.5),
    "matern12": Family(_matern12, -0.5),
    "matern32": Family(_matern32, -1.5, math.sqrt(3.0)),
    "matern52": Family(_matern52, -5.0 / 6.0, math.sqrt(5.0)),
    "rq": Family(_rq, -0.5, shape_slope=_rq_shape_slope),
}


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
        result = covariance(StationaryKernel(family, inverse_lengthscale, outputscale, shape), X_c, x)
        ctx.family, ctx.dtype = family, X_c.dtype
        ctx.save_for_backward(inverse_lengthscale, outputscale, shape, *result)
        return result.K

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:
        inverse_lengthscale, outputscale, shape, *saved = ctx.saved_tensors
        kernel, of = StationaryKernel(ctx.family, inverse_lengthscale, outputscale, shape), Covariance(*saved)
        G = symmetrise(G) if of.data is None else G
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
