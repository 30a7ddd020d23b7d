r"""The bound collapsed over the pseudo-outputs: the ELBO at the best y_c, for any weights (§5).

With the whitened statistics, :math:`C = I + \Phi` and :math:`L_K` the factor of `K_cc`,

.. math:: ELBO^* = \tfrac12 [\, -\textstyle\sum_i \log 2\pi s_i - \sum_i \rho_i y_i^2 + b^T C^{-1} b
          - \sum_i \rho_i k_{ii} + tr(T L_K C L_K^T T^T) - \log|B| \,].

Sections (§) are those of docs/mathematics.md.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.bounds.statistics import (
    Statistics,
    check_matrices,
    check_sizes,
    data_gradient,
    gather,
    site_precision,
    weigh,
    whitener,
)
from cvgp.gp.linalg import as_square, first_derivative_only, inverse_lower, plus_identity, safe_cholesky
from cvgp.gp.posterior import Factor, factorise


class CollapsedSolution(NamedTuple):
    """The bound, what attains it, and its derivatives on the M x M side."""

    value: Tensor  # []
    alpha: Tensor  # [M, Q], best weights of the mean: m(x) = k(x, X_c) alpha
    A: Tensor  # [M, M], the posterior variance is k_ii - k_i^T A k_i
    factor: Factor  # of K_cc and w, with the best pseudo-outputs
    d_K_cc: Tensor  # [M, M]
    d_w: Tensor  # [M]


def solve_collapsed(
    K_cc: Tensor, w: Tensor, statistics: Statistics, L_K_inv: Tensor | None = None
) -> CollapsedSolution:
    """Maximise over y_c in closed form: alpha* = L_K^-T C^-1 b and y_c* = (K + 1/w) alpha*, in O(M^3) (§5.2)."""
    check_sizes(statistics, K_cc, w)
    if len({K_cc.device, w.device, statistics.Phi.device}) > 1:
        raise InvalidInputError(
            f"K_cc, w and the statistics must be on one device; got {K_cc.device}, {w.device} and "
            f"{statistics.Phi.device}. Move them with .to(device)."
        )
    if bool((w == 0).any()):
        raise InvalidInputError(
            "The best pseudo-outputs (K + 1/w) alpha do not exist for a weight of zero; drop such points first."
        )
    K_cc = as_square(K_cc)
    L_K_inv = whitener(K_cc) if L_K_inv is None else L_K_inv
    num_outputs = statistics.b.shape[1]
    C = plus_identity(statistics.Phi)
    L_C_inv = inverse_lower(safe_cholesky(C, "C = I + Phi"))
    C_inv_b = L_C_inv.mT @ (L_C_inv @ statistics.b)  # [M, Q]
    alpha = L_K_inv.mT @ C_inv_b

    factor = factorise(K_cc, w, K_cc @ alpha + alpha / w[:, None])
    TL = (factor.T @ K_cc) @ L_K_inv.mT  # [M, M], T L_K from T K, so that only the inverse of L_K is needed
    TLC = TL @ C
    value = (
        num_outputs * statistics.log_normaliser
        - 0.5 * statistics.yy
        + 0.5 * (statistics.b * C_inv_b).sum()
        + 0.5 * num_outputs * ((TLC * TL).sum() - statistics.kk - factor.log_det_B)
    )
    TST = TLC @ TL.mT  # [M, M], T S T^T with S = L_K C L_K^T
    d_K_cc = -0.5 * (alpha @ alpha.mT + num_outputs * factor.T.mT @ TST @ factor.T)
    # d/dlog w = 1/2 [ diag(P R S R P) - (1 - diag P) ], and P R = L^-T T. Both terms are proportional to w.
    PRSRP = ((TST @ factor.L_B_inv) * factor.L_B_inv).sum(0)  # [M], its diagonal
    d_w = 0.5 * num_outputs * (PRSRP - one_minus_diagonal(factor)) / factor.w
    return CollapsedSolution(value, alpha, factor.T.mT @ factor.T, factor, d_K_cc, d_w)


def one_minus_diagonal(factor: Factor) -> Tensor:
    """1 - P_mm [M] from the diagonal of R K R P = I - P, without cancellation where weights are small (§3.1)."""
    P = factor.L_B_inv.mT @ factor.L_B_inv
    root_w = factor.w.sqrt()
    return (root_w[:, None] * factor.K_cc * root_w * P).sum(1)


def collapsed_bound(
    K_cc: Tensor,
    K_cx: Tensor,
    k_xx: Tensor,
    y: Tensor,
    beta: Tensor,
    noise: Tensor,
    *,
    site_noise: Tensor | None = None,
    sample_weight: Tensor | None = None,
) -> Tensor:
    """The ELBO at the best pseudo-outputs (§5.2); arguments as for :func:`cvgp.gp.bounds.elbo.elbo`, without y_c."""
    check_matrices(K_cc, K_cx, k_xx, y)
    weighting = weigh(noise, k_xx, sample_weight=sample_weight)
    w = site_precision(beta, noise, site_noise)
    y = y.reshape(y.shape[0], -1)
    value: Tensor = _CollapsedBound.apply(  # type: ignore[no-untyped-call]
        K_cc, K_cx, k_xx, y, w, weighting.precision, weighting.log_normaliser
    )
    return value


class _CollapsedBound(torch.autograd.Function):
    """Both passes over one in-memory batch as an autograd node; the gradient is formed with the value."""

    @staticmethod
    def forward(
        ctx: Any,
        K_cc: Tensor,
        K_cx: Tensor,
        k_xx: Tensor,
        y: Tensor,
        w: Tensor,
        precision: Tensor,
        log_normaliser: Tensor,
    ) -> Tensor:
        L_K_inv = whitener(K_cc)
        statistics = gather(L_K_inv, K_cx, k_xx, y, precision, log_normaliser)
        solution = solve_collapsed(K_cc, w, statistics, L_K_inv)
        data = data_gradient(solution.alpha, solution.A, K_cx, k_xx, y, precision)
        ctx.save_for_backward(solution.d_K_cc, data.K_cx, data.k_xx, data.y, solution.d_w, data.precision)
        ctx.dtypes = [t.dtype for t in (K_cc, K_cx, k_xx, y, w, precision)]
        ctx.num_outputs = y.shape[1]
        return solution.value

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor, ...]:
        gradients = ((grad_value * g).to(dtype) for g, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True))
        return (*gradients, grad_value * ctx.num_outputs)
