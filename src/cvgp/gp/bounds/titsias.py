"""The bounds of Titsias: the best full site covariance (2009, §6), and a tighter bound for any q(f_c) (2025, §4).

Where each observation is a pseudo-point of its own, both are the log marginal likelihood, :func:`log_marginal`. The
tighter one is a bound only if both of its parts use the same (jittered) K_cc.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from cvgp.gp.bounds.statistics import DataGradient, Statistics, check_matrices, weigh, whitener
from cvgp.gp.linalg import (
    as_square,
    first_derivative_only,
    inverse_from_factor,
    inverse_lower,
    plus_identity,
    safe_cholesky,
    symmetric_product,
)


class TitsiasSolution(NamedTuple):
    """The bound at the best full site covariance, what attains it, and its derivative on the M x M side."""

    value: Tensor  # []
    alpha: Tensor  # [M, Q], L_K^-T C^-1 b
    A: Tensor  # [M, M], L_K^-T (I - C^-1) L_K^-1
    C_inv_b: Tensor  # [M, Q], the weights of the mean on whitened features
    C_inv: Tensor  # [M, M]
    d_K_cc: Tensor  # [M, M]


def solve_titsias(statistics: Statistics, L_K_inv: Tensor) -> TitsiasSolution:
    """Maximize over y_c and a full site covariance, in O(M^3) (§6.1)."""
    num_outputs = statistics.b.shape[1]
    C = plus_identity(statistics.Phi)
    L_C = safe_cholesky(C, "C = I + Phi")
    L_C_inv = inverse_lower(L_C)
    C_inv = L_C_inv.mT @ L_C_inv
    C_inv_b = C_inv @ statistics.b
    alpha = L_K_inv.mT @ C_inv_b
    value = (
        num_outputs * statistics.log_normalizer
        - 0.5 * statistics.yy
        + 0.5 * (statistics.b * C_inv_b).sum()
        - 0.5 * num_outputs * (statistics.kk - statistics.Phi.trace() + 2.0 * L_C.diagonal().log().sum())
    )
    I_minus_C_inv = plus_identity(-C_inv)
    # A S A with S = L_K C L_K^T, in whitened coordinates (I - C^-1) C (I - C^-1) = Phi - (I - C^-1).
    ASA = L_K_inv.mT @ (statistics.Phi - I_minus_C_inv) @ L_K_inv
    d_K_cc = -0.5 * (alpha @ alpha.mT + num_outputs * ASA)
    return TitsiasSolution(value, alpha, L_K_inv.mT @ I_minus_C_inv @ L_K_inv, C_inv_b, C_inv, d_K_cc)


def tightening(
    K_cc: Tensor,
    K_cx: Tensor,
    k_xx: Tensor,
    noise: Tensor,
    *,
    num_outputs: int = 1,
    sample_weight: Tensor | None = None,
    num_data: float | None = None,
) -> Tensor:
    """The gain of the tighter bound over :func:`~cvgp.gp.bounds.elbo.elbo`, in nats (§4)."""
    check_matrices(K_cc, K_cx, k_xx)
    weighting = weigh(noise, k_xx, sample_weight=sample_weight, num_data=num_data)
    explained: Tensor = _ExplainedVariance.apply(K_cc, K_cx)  # type: ignore[no-untyped-call]
    u = (k_xx - explained).clamp_min(0.0) * (weighting.precision / weighting.scale)  # [B]
    return 0.5 * num_outputs * weighting.scale * (u - u.log1p()).sum(dtype=torch.float64)


def tight_gain(psi: Tensor, k_xx: Tensor, precision: Tensor, num_outputs: int) -> Tensor:
    """:func:`tightening` from whitened features psi = L_K^-1 K_cx `[M, B]`, without a gradient (§4)."""
    u = (k_xx - psi.square().sum(0)).clamp_min(0.0) * precision  # [B]
    return 0.5 * num_outputs * (u - u.log1p()).sum(dtype=torch.float64)


class TightPart(NamedTuple):
    """One batch's part of the tighter bound at the best full site covariance."""

    gain: Tensor  # [], over the bound of 2009
    gradient: DataGradient  # of the bound of 2009 and the gain together
    Psi: Tensor  # [M, M], sum of psi psi^T times the derivative in q; d_K_cc is -L^-T Psi L^-1


def tight_data_gradient(
    solution: TitsiasSolution, L_K_inv: Tensor, psi: Tensor, k_xx: Tensor, y: Tensor, precision: Tensor
) -> TightPart:
    """The second pass over a batch with whitened features psi = L_K^-1 K_cx `[M, B]`, computed in float64 (§4.1)."""
    num_outputs, dtype = y.shape[1], psi.dtype
    psi, k_xx, y, rho = (t.to(torch.float64) for t in (psi, k_xx, y, precision))
    C_inv_psi = solution.C_inv @ psi  # [M, B]
    unexplained = k_xx - psi.square().sum(0)  # [B], d
    f_var = unexplained + (psi * C_inv_psi).sum(0)  # [B]
    unexplained = unexplained.clamp_min(0.0)
    r = y - psi.mT @ solution.C_inv_b  # [B, Q]
    u = unexplained * rho
    gain = 0.5 * num_outputs * (u - u.log1p()).sum()
    d_u = 0.5 * num_outputs * u / (1.0 + u)  # [B], d gain / du, which is zero where nothing is unexplained
    d_q = -d_u * rho  # [B], d gain / dq of the explained variances q = |psi|^2
    rho_r, Q_rho = rho[:, None] * r, num_outputs * rho
    # d/dpsi = (Q rho + 2 d_q) psi - Q rho C^-1 psi + C^-1 b (rho r)^T, in one matrix: A k_i = L_K^-T (I - C^-1) psi_i.
    d_psi = (psi * torch.add(Q_rho, d_q, alpha=2.0)).sub_(C_inv_psi * Q_rho).addmm_(solution.C_inv_b, rho_r.mT)
    d_precision = -0.5 * (r.square().sum(1) + num_outputs * f_var) + d_u * unexplained
    gradient = DataGradient(*(g.to(dtype) for g in (L_K_inv.mT @ d_psi, -0.5 * Q_rho - d_q, -rho_r, d_precision)))
    return TightPart(gain, gradient, symmetric_product(psi * d_q, psi))


class _ExplainedVariance(torch.autograd.Function):
    """q_i = k_i^T K_cc^-1 k_i for each column of K_cx, with its analytic gradient (§4.1)."""

    @staticmethod
    def forward(ctx: Any, K_cc: Tensor, K_cx: Tensor) -> Tensor:
        L_K_inv = whitener(K_cc)
        psi = L_K_inv.to(K_cx.dtype) @ K_cx  # [M, B]
        ctx.save_for_backward(L_K_inv, psi)
        ctx.dtype = K_cc.dtype
        return psi.square().sum(0)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, grad_q: Tensor) -> tuple[Tensor, Tensor]:
        L_K_inv, psi = ctx.saved_tensors
        K_inv_k = L_K_inv.mT.to(psi.dtype) @ psi  # [M, B]
        weighted = K_inv_k * grad_q
        d_K_cc = symmetric_product(weighted, K_inv_k).neg_()  # dq = -k^T K^-1 dK K^-1 k
        return d_K_cc.to(ctx.dtype), weighted.mul_(2.0)


def log_marginal(K_xx: Tensor, y: Tensor, noise: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
    """Log p(y) in nats (§6.2) for K_xx `[N, N]`, y `[N]` or `[N, Q]` minus the prior mean, and noise `[]` or `[N]`."""
    diagonal = K_xx.diagonal()
    check_matrices(K_xx, K_xx, diagonal, y)
    weighting = weigh(noise, diagonal, sample_weight=sample_weight)
    columns = y.reshape(len(y), -1)
    fit: Tensor = _LogMarginal.apply(K_xx, columns, weighting.precision)  # type: ignore[no-untyped-call]
    return columns.shape[1] * weighting.log_normalizer + fit


class _LogMarginal(torch.autograd.Function):
    """-1/2 (log|B| + y^T A y) as an autograd node; one factorization and one inverse, float64."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, y: Tensor, precision: Tensor) -> Tensor:
        ctx.dtypes = [argument.dtype for argument in (K, y, precision)]
        K, y, precision = as_square(K), y.to(torch.float64), precision.to(torch.float64)
        num_outputs = y.shape[1]
        R = precision.sqrt()[:, None]  # [N, 1], the diagonal of R as a column
        RR = R * R.mT
        RKR = K * RR
        L = safe_cholesky(plus_identity(RKR), "B = I + R K R")
        P = inverse_from_factor(L)  # [N, N], B^-1
        a = P @ (R * y)  # [N, Q]
        alpha = R * a  # A y
        one_minus_P = (RKR * P).sum(1)  # 1 - diag(P) without cancellation
        d_precision = (a.square().sum(1) + num_outputs * one_minus_P) / (-2.0 * precision)
        d_K = (P * RR).addmm_(alpha, alpha.mT, beta=-0.5 * num_outputs, alpha=0.5)
        ctx.save_for_backward(d_K, -alpha, d_precision)
        return -0.5 * ((y * alpha).sum() + 2.0 * num_outputs * L.diagonal().log().sum())

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor, ...]:
        return tuple((grad_value * g).to(dtype) for g, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True))
