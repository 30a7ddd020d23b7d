r"""The paper's lower bound (eq. loss_coreset_posterior_gp_analytical) with its analytic gradient.

.. math:: ELBO = \sum_i \left[-\tfrac12 \log 2\pi s_i - \frac{(y_i - m_i)^2 + v_i}{2 s_i}\right] - KL(q(f_c) \| p(f_c))

A minibatch of B of N points scales the sum by N/B and leaves the KL alone, so it is unbiased.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.autograd import first_derivative_only
from cvgp.gp.bounds.weighting import site_precision, weigh
from cvgp.gp.checks import check_matrices
from cvgp.gp.linalg import (
    as_square,
    inverse_from_factor,
    inverse_lower,
    plus_identity,
    safe_cholesky,
    symmetric_product,
)
from cvgp.gp.posterior import check_sites, factorise

__all__ = ["ElboGradient", "elbo", "elbo_with_gradient"]

SHORTCUT_LIMIT = 1e3
"""Largest max(w k) at which float32 data may take the variance from A k; measured, see the documentation."""


def elbo(
    K_cc: Tensor,
    K_cx: Tensor,
    k_xx: Tensor,
    y: Tensor,
    y_c: Tensor,
    beta: Tensor,
    noise: Tensor,
    *,
    site_noise: Tensor | None = None,
    sample_weight: Tensor | None = None,
    num_data: float | None = None,
) -> Tensor:
    """Lower bound on log p(y) in nats, differentiable in every tensor argument but the sample weights.

    Parameters
    ----------
    K_cc, K_cx, k_xx
        Kernel among the pseudo-inputs `[M, M]`, between them and the data `[M, B]`, and its diagonal at the data `[B]`.
    y, y_c, beta
        Outputs `[B]` or `[B, T]`, pseudo-outputs `[M]` or `[M, T]`, weights `[M]`; the prior mean subtracted.
    noise
        Noise variance, a scalar or one a point `[B]`.
    site_noise
        The variance that a weight of one stands for; `noise` itself unless that differs by point.
    sample_weight, num_data
        See :func:`cvgp.gp.bounds.weighting.weigh`.
    """
    check_matrices(K_cc, K_cx, k_xx, y)
    if y_c.ndim not in (1, 2) or y_c.shape[1:].numel() != y.shape[1:].numel():
        raise InvalidInputError(
            f"y_c must be [M] or [M, T] with as many outputs as y; got {tuple(y_c.shape)} with y {tuple(y.shape)}."
        )
    weighting = weigh(noise, k_xx, sample_weight=sample_weight, num_data=num_data)
    w = site_precision(beta, noise, site_noise)
    y_columns = y.reshape(y.shape[0], -1)
    fit_minus_kl: Tensor = _FitMinusKL.apply(  # type: ignore[no-untyped-call]
        K_cc, K_cx, k_xx, y_columns, y_c.reshape(y_c.shape[0], -1), w, weighting.precision
    )
    return y_columns.shape[1] * weighting.log_normaliser + fit_minus_kl


class ElboGradient(NamedTuple):
    """Derivatives of :func:`elbo_with_gradient`, and what those of the data side are read from."""

    K_cc: Tensor  # [M, M], symmetric
    K_cx: Tensor  # [M, B]
    y_c: Tensor  # [M, T]
    log_w: Tensor  # [M], not a number where w is zero
    f_var: Tensor  # [B]
    misfit: Tensor  # [B], squared residuals plus variances: minus twice the derivative in the precision
    pull: Tensor  # [B, T], weighted residuals: minus the derivative in y
    V: Tensor  # [M, B], A K_cx
    squared_norm: float  # alpha^T K_cc alpha, that of the posterior mean in the kernel's space


def elbo_with_gradient(
    K_cc: Tensor, K_cx: Tensor, k_xx: Tensor, y: Tensor, y_c: Tensor, w: Tensor, precision: Tensor
) -> tuple[float, ElboGradient]:
    r"""The data fit :math:`-\frac12 \sum_i \rho_i ((y_i - m_i)^2 + v_i)` minus the KL, and its gradient.

    `K_cc` is symmetric. The M x M side (`K_cc`, `y_c`, `w`) is float64, the M x B side keeps the precision of `K_cx`.
    Cost: two products of 2 M^2 B flops (V and V V^T; a third where float32 needs it), one factorisation, one inverse
    and P P.
    """
    num_outputs, dtype = y.shape[1], K_cx.dtype
    root_w = w.sqrt()
    column = root_w[:, None]
    RKR = (K_cc * root_w).mul_(column)  # [M, M]
    L_B = safe_cholesky(plus_identity(RKR), "B = I + R K_cc R")
    precise = dtype == torch.float64 or (w * K_cc.diagonal()).max().item() <= SHORTCUT_LIMIT
    L_B_inv = None if precise else inverse_lower(L_B)
    P = inverse_from_factor(L_B) if L_B_inv is None else L_B_inv.mT @ L_B_inv  # [M, M], B^-1
    RP = P * column
    A = RP * root_w  # [M, M], (K_cc + 1/w)^-1
    R_y = column * y_c
    a = P @ R_y  # [M, T]
    alpha = column * a  # A y_c

    V, f_var = _project(L_B_inv, A, root_w, K_cx, k_xx)  # [M, B], [B]
    residual = y - K_cx.mT @ alpha.to(dtype)  # [B, T]
    misfit = torch.add(residual.square().sum(1), f_var, alpha=num_outputs)  # [B]
    pull = precision[:, None] * residual  # [B, T]
    V_weighted = V * precision  # [M, B]
    V_V = symmetric_product(V_weighted, V)  # [M, M]

    one_minus_P = (RKR * P).sum(1)  # [M], 1 - diag(P) without cancellation
    half_log_det_B = L_B.diagonal().log().sum().item()
    squared_norm = (a * (R_y - a)).sum().item()  # a^T R K R a, since B a = R y_c
    kl = num_outputs * (half_log_det_B - 0.5 * one_minus_P.sum().item()) + 0.5 * squared_norm
    value = -0.5 * (precision * misfit).sum(dtype=torch.float64).item() - kl

    d_y_c = (V @ pull).to(torch.float64).add_(RP @ a).sub_(alpha)  # [M, T]
    # 1 - 2 P_mm + sum_n P_mn^2, written as the sum of squares that it is: exact digits for small weights.
    P.diagonal().copy_(one_minus_P)
    squares = P.square().sum(1)
    pulled = torch.add((alpha * d_y_c).sum(1), V_V.diagonal(), alpha=0.5 * num_outputs)  # [M]
    z = torch.add(d_y_c, alpha, alpha=0.5)
    inner = A.sub_(symmetric_product(RP, RP)).add_(V_V)
    sides = torch.cat([alpha, z], 1), torch.cat([z, alpha], 1)
    gradient = ElboGradient(
        K_cc=inner.addmm_(sides[0], sides[1].mT, beta=-0.5 * num_outputs, alpha=-0.5),
        K_cx=(V_weighted if num_outputs == 1 else V_weighted.mul_(num_outputs)).addmm_(alpha.to(dtype), pull.mT),
        y_c=d_y_c,
        log_w=(pulled / w).sub_(squares, alpha=0.5 * num_outputs),
        f_var=f_var,
        misfit=misfit,
        pull=pull,
        V=V,
        squared_norm=squared_norm,
    )
    return value, gradient


def _project(L_B_inv: Tensor | None, A: Tensor, root_w: Tensor, K_cx: Tensor, k_xx: Tensor) -> tuple[Tensor, Tensor]:
    """V = A K_cx [M, B] and the variance of f [B]; without L_B^-1 by one product.

    With A k at hand, k_ii - k_i^T (A k_i) costs no product of its own, but it cancels where w k is large: in float32
    it was wrong by .027 at a variance of 6e-5 and w of 4e4, where k_ii - |T k_i|^2 was right to 2e-6.
    """
    dtype = K_cx.dtype
    if L_B_inv is None:
        V = A.to(dtype) @ K_cx
        return V, k_xx - (K_cx * V).sum(0)
    T = L_B_inv * root_w  # [M, M]
    T_K = T.to(dtype) @ K_cx
    return T.mT.to(dtype) @ T_K, k_xx - T_K.square().sum(0)


def _weight_gradient(K_cc: Tensor, w: Tensor, y_c: Tensor, K_cx: Tensor, precision: Tensor, d: ElboGradient) -> Tensor:
    """d/dw as (d/dlog w) / w; at w = 0, where that is 0 / 0, from rows of Q = I - K_cc A."""
    gradient = d.log_w / w
    absent = w == 0
    if not absent.any():
        return gradient
    factor = factorise(K_cc, w, y_c)
    num_outputs = y_c.shape[1]
    K_m = K_cc[absent]  # [m, M]
    K_A = (K_m @ factor.T.mT) @ factor.T  # [m, M]
    F = (K_cx[absent] - K_m.to(K_cx.dtype) @ d.V).to(torch.float64)  # [m, B], Q K_cx
    q = y_c[absent] - K_m @ factor.alpha  # [m, T], Q y_c
    Q_K = K_m - K_A @ K_cc  # [m, M]
    fit = 0.5 * num_outputs * (F.square() @ precision.to(torch.float64)) + ((F @ d.pull.to(torch.float64)) * q).sum(1)
    # diag(Q K) - diag(Q K Q^T) = rowsum(Q K * K A), since Q = I - K A.
    kl = 0.5 * num_outputs * (Q_K * K_A).sum(1) + ((Q_K @ factor.alpha) * q).sum(1)
    gradient[absent] = fit - kl
    return gradient


class _FitMinusKL(torch.autograd.Function):
    """:func:`elbo_with_gradient` as an autograd node; the gradient is formed with the value."""

    @staticmethod
    def forward(ctx: Any, *arguments: Tensor) -> Tensor:
        K_cc, K_cx, k_xx, y, y_c, w, precision = arguments
        check_sites(K_cc, w, y_c)
        square, y_c, w = as_square(K_cc), y_c.to(torch.float64), w.to(torch.float64)
        value, d = elbo_with_gradient(square, K_cx, k_xx, y, y_c, w, precision)
        d_w = _weight_gradient(square, w, y_c, K_cx, precision, d)
        d_k_xx = -0.5 * y.shape[1] * precision
        ctx.save_for_backward(d.K_cc, d.K_cx, d_k_xx, -d.pull, d.y_c, d_w, -0.5 * d.misfit)
        ctx.dtypes = [argument.dtype for argument in arguments]
        return square.new_tensor(value)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor, ...]:
        return tuple((grad_value * g).to(dtype) for g, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True))
