r"""The log marginal likelihood itself: the bound when each observation is a pseudo-point of its own (§6.2).

With the precisions :math:`\rho_i` of the observations (an observation that counts c times has c times the precision),
:math:`R = diag(\sqrt\rho)`, :math:`B = I + R K R` and :math:`A = (K + R^{-2})^{-1} = R B^{-1} R`, for one output

.. math:: \log p(y) = -\tfrac12 [\, \textstyle\sum_i c_i \log 2\pi s_i + \log|B| + y^T A y \,].

Only B is factorized, so rows with equal inputs do no harm. Sections (§) are those of docs/mathematics.md.
"""

from typing import Any

import torch
from torch import Tensor

from cvgp.gp.bounds.statistics import check_matrices, weigh
from cvgp.gp.linalg import as_square, first_derivative_only, inverse_from_factor, plus_identity, safe_cholesky


def log_marginal(K_xx: Tensor, y: Tensor, noise: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
    """Log p(y) in nats (§6.2), differentiable in every argument but the sample weights.

    Parameters
    ----------
    K_xx
        Kernel among all inputs `[N, N]`.
    y
        Outputs `[N]` or `[N, Q]`, the prior mean subtracted.
    noise
        Noise variance, a scalar or one per point `[N]`.
    sample_weight
        How often each observation counts `[N]`.
    """
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
