r"""The paper's lower bound (eq. loss_coreset_posterior_gp_analytical) with its analytic gradient.

.. math:: ELBO = \sum_i \left[-\tfrac12 \log 2\pi s_i - \frac{(y_i - m_i)^2 + v_i}{2 s_i}\right] - KL(q(f_c) \| p(f_c))

A minibatch of B of N points scales the sum by N/B and leaves the KL alone, so it is unbiased.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from cvgp.bounds.checks import check_batch
from cvgp.bounds.weighting import site_precision, weigh
from cvgp.errors import InvalidInputError
from cvgp.linalg import first_derivative_only
from cvgp.posterior import Factor, factorise

__all__ = ["ElboGradient", "elbo", "elbo_with_gradient"]


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
    num_data: int | None = None,
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
        See :func:`cvgp.bounds.weighting.weigh`.
    """
    check_batch(K_cc, K_cx, k_xx, y)
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
    """Derivatives with respect to the arguments of :func:`elbo_with_gradient`, in their order."""

    K_cc: Tensor  # [M, M], symmetric
    K_cx: Tensor  # [M, B]
    k_xx: Tensor  # [B]
    y: Tensor  # [B, T]
    y_c: Tensor  # [M, T]
    w: Tensor  # [M]
    precision: Tensor  # [B]


def elbo_with_gradient(
    K_cc: Tensor, K_cx: Tensor, k_xx: Tensor, y: Tensor, y_c: Tensor, w: Tensor, precision: Tensor
) -> tuple[Tensor, ElboGradient]:
    r"""The data fit :math:`-\frac12 \sum_i \rho_i ((y_i - m_i)^2 + v_i)` minus the KL, and its gradient.

    The M x M side is float64, the M x B side keeps the precision of `K_cx`. Cost: three products of 2 M^2 B flops
    (V, U and U U^T), one factorisation, one inverse and P P. No weight is divided by unless it is positive.
    """
    num_outputs = y.shape[1]
    factor = factorise(K_cc, w, y_c)
    root_w = factor.w.sqrt()
    RKR = root_w[:, None] * factor.K_cc * root_w  # [M, M]
    P = factor.L_B_inv.mT @ factor.L_B_inv  # [M, M], B^-1
    a = factor.L_B_inv.mT @ (factor.T @ factor.y_c)  # [M, T], P R y_c, so that alpha = R a
    P_a = P @ a

    dtype = K_cx.dtype
    V = factor.T.to(dtype) @ K_cx  # [M, B]
    U = factor.L_B_inv.mT.to(dtype) @ V  # [M, B], P R K_cx
    residual = y - K_cx.mT @ factor.alpha.to(dtype)  # [B, T]
    misfit = residual.square().sum(1) + num_outputs * (k_xx - V.square().sum(0))  # [B]
    U_weighted = U * precision  # [M, B]
    U_U = (U_weighted @ U.mT).to(torch.float64)  # [M, M]
    t = (U_weighted @ residual).to(torch.float64)  # [M, T]

    one_minus_P = (RKR * P).sum(1)  # [M], 1 - diag(P) without cancellation
    kl = 0.5 * (num_outputs * (factor.log_det_B - one_minus_P.sum()) + (a * (RKR @ a)).sum())
    value = -0.5 * (precision * misfit).sum(dtype=torch.float64) - kl

    z = t + P_a - 0.5 * a
    inner = num_outputs * (U_U + P - P @ P) + a @ z.mT + z @ a.mT
    # 1 - 2 P_mm + sum_n P_mn^2, written as the sum of squares that it is: exact digits for small weights.
    squares = one_minus_P.square() + (P - P.diagonal().diag()).square().sum(1)
    d_log_w = 0.5 * num_outputs * (U_U.diagonal() - squares) + (a * (t - a + P_a)).sum(1)
    gradient = ElboGradient(
        K_cc=-0.5 * root_w[:, None] * inner * root_w,
        K_cx=num_outputs * root_w.to(dtype)[:, None] * U_weighted
        + factor.alpha.to(dtype) @ (precision[:, None] * residual).mT,
        k_xx=-0.5 * num_outputs * precision,
        y=-precision[:, None] * residual,
        y_c=root_w[:, None] * (t - a + P_a),
        w=_weight_gradient(factor, d_log_w, K_cx, U, residual, precision),
        precision=-0.5 * misfit,
    )
    return value, gradient


def _weight_gradient(
    factor: Factor, d_log_w: Tensor, K_cx: Tensor, U: Tensor, residual: Tensor, precision: Tensor
) -> Tensor:
    """d/dw as (d/dlog w) / w; at w = 0, where that is 0 / 0, from rows of Q = I - K_cc A."""
    absent = factor.w == 0
    gradient = d_log_w / torch.where(absent, 1.0, factor.w)
    if not absent.any():
        return gradient
    num_outputs = residual.shape[1]
    K_m = factor.K_cc[absent]  # [m, M]
    K_A = (K_m @ factor.T.mT) @ factor.T  # [m, M]
    A_K_cx = factor.w.sqrt().to(U.dtype)[:, None] * U  # [M, B]
    F = (K_cx[absent] - K_m.to(U.dtype) @ A_K_cx).to(torch.float64)  # [m, B], Q K_cx
    q = factor.y_c[absent] - K_m @ factor.alpha  # [m, T], Q y_c
    Q_K = K_m - K_A @ factor.K_cc  # [m, M]
    rho = precision.to(torch.float64)
    fit = 0.5 * num_outputs * (F.square() @ rho) + ((F @ (rho[:, None] * residual)) * q).sum(1)
    # diag(Q K) - diag(Q K Q^T) = rowsum(Q K * K A), since Q = I - K A.
    kl = 0.5 * num_outputs * (Q_K * K_A).sum(1) + ((Q_K @ factor.alpha) * q).sum(1)
    gradient[absent] = fit - kl
    return gradient


class _FitMinusKL(torch.autograd.Function):
    """:func:`elbo_with_gradient` as an autograd node; the gradient is formed with the value."""

    @staticmethod
    def forward(ctx: Any, *arguments: Tensor) -> Tensor:
        value, gradient = elbo_with_gradient(*arguments)
        ctx.save_for_backward(*gradient)
        ctx.dtypes = [argument.dtype for argument in arguments]
        return value

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor, ...]:
        return tuple((grad_value * g).to(dtype) for g, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True))
