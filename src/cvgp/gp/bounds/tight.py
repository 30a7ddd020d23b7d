r"""A tighter lower bound for any q(f_c) (Titsias 2025, arXiv 2502.08730).

Where the paper's bound pays :math:`d_i / s_i` for the prior variance :math:`d_i = k_{ii} - k_i^T K^{-1} k_i` that the
pseudo-inputs leave unexplained, this one pays :math:`\log(1 + d_i / s_i)`. It is the paper's bound plus

.. math:: \tfrac12 \sum_i [\, d_i / s_i - \log(1 + d_i / s_i) \,] \ge 0,

which holds neither y_c nor beta: their optimum at a fixed kernel and fixed pseudo-inputs stays the same. A sample
weight divides :math:`s_i`, inside the logarithm; outside it, weights below one would lift the 'bound' over its target.
This is the only term that factorises K_cc, and it is a bound only when the same (jittered) K_cc is used in both parts.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from cvgp.gp.autograd import first_derivative_only
from cvgp.gp.bounds.collapsed import DataGradient, FullSolution, whitener
from cvgp.gp.bounds.weighting import weigh
from cvgp.gp.checks import check_matrices
from cvgp.gp.linalg import symmetric_product

__all__ = ["TightPart", "tight_data_gradient", "tightening"]


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
    """What the tighter bound adds to :func:`~cvgp.gp.bounds.elbo.elbo` or to the collapsed bound, in nats."""
    check_matrices(K_cc, K_cx, k_xx)
    weighting = weigh(noise, k_xx, sample_weight=sample_weight, num_data=num_data)
    explained: Tensor = _ExplainedVariance.apply(K_cc, K_cx)  # type: ignore[no-untyped-call]
    unexplained = (k_xx - explained).clamp_min(0.0) * (weighting.precision / weighting.scale)  # [B]
    gain = unexplained - unexplained.log1p()
    return 0.5 * num_outputs * weighting.scale * gain.sum(dtype=torch.float64)


class TightPart(NamedTuple):
    """One batch's part of the tighter bound at the best full site covariance."""

    gain: Tensor  # [], what it adds to the collapsed bound
    gradient: DataGradient
    """Of the collapsed bound and the gain together."""
    Psi: Tensor  # [M, M], sum of psi psi^T times the derivative in the explained variance; d_K_cc is -L^-T Psi L^-1


def tight_data_gradient(
    solution: FullSolution, L_inv: Tensor, psi: Tensor, k_xx: Tensor, y: Tensor, precision: Tensor
) -> TightPart:
    r"""The second pass over a batch with whitened features psi = L^-1 K_cx `[M, B]`, computed in float64.

    With :math:`q_i = |\psi_i|^2`, :math:`u_i = \rho_i (k_{ii} - q_i)` and
    :math:`A k_i = L^{-T} (\psi_i - C^{-1} \psi_i)` one product serves the derivatives of both parts of the bound.
    """
    num_outputs, dtype = y.shape[1], psi.dtype
    psi, k_xx, y, precision = (t.to(torch.float64) for t in (psi, k_xx, y, precision))
    C_inv_psi = solution.C_inv @ psi  # [M, B]
    explained = psi.square().sum(0)  # [B]
    residual = y - psi.mT @ solution.white_alpha  # [B, T]
    unexplained = (k_xx - explained).clamp_min(0.0)
    u = unexplained * precision
    gain = 0.5 * num_outputs * (u - u.log1p()).sum()
    share = 0.5 * num_outputs * u / (1.0 + u)  # [B], d gain / du
    d_explained = torch.where(k_xx > explained, -share * precision, 0.0)
    f_var = k_xx - explained + (psi * C_inv_psi).sum(0)
    pull = precision[:, None] * residual
    weight = num_outputs * precision
    Psi = symmetric_product(psi * d_explained, psi)
    white = (psi * torch.add(weight, d_explained, alpha=2.0)).sub_(C_inv_psi.mul_(weight))
    gradient = DataGradient(
        K_cx=L_inv.mT @ white.addmm_(solution.white_alpha, pull.mT),
        k_xx=-0.5 * weight - d_explained,
        y=-pull,
        precision=-0.5 * (residual.square().sum(1) + num_outputs * f_var) + share * unexplained,
    )
    return TightPart(gain, DataGradient(*(g.to(dtype) for g in gradient)), Psi)


class _ExplainedVariance(torch.autograd.Function):
    """q_i = k_i^T K_cc^-1 k_i for each column of K_cx, with its analytic gradient."""

    @staticmethod
    def forward(ctx: Any, K_cc: Tensor, K_cx: Tensor) -> Tensor:
        L_inv = whitener(K_cc)
        psi = L_inv.to(K_cx.dtype) @ K_cx  # [M, B]
        ctx.save_for_backward(L_inv, psi)
        ctx.dtype = K_cc.dtype
        return psi.square().sum(0)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, grad_q: Tensor) -> tuple[Tensor, Tensor]:
        L_inv, psi = ctx.saved_tensors
        K_inv_k = L_inv.mT.to(psi.dtype) @ psi  # [M, B]
        weighted = K_inv_k * grad_q
        d_K_cc = symmetric_product(weighted, K_inv_k).neg_()  # dq = -k^T K^-1 dK K^-1 k
        return d_K_cc.to(ctx.dtype), weighted.mul_(2.0)
