r"""A tighter lower bound for any q(f_c) (Titsias 2025, arXiv 2502.08730).

Where the paper's bound pays :math:`d_i / s_i` for the prior variance :math:`d_i = k_{ii} - k_i^T K^{-1} k_i` that the
pseudo-inputs leave unexplained, this one pays :math:`\log(1 + d_i / s_i)`. It is the paper's bound plus

.. math:: \tfrac12 \sum_i [\, d_i / s_i - \log(1 + d_i / s_i) \,] \ge 0,

which holds neither y_c nor beta: their optimum at a fixed kernel and fixed pseudo-inputs stays the same. A sample
weight divides :math:`s_i`, inside the logarithm; outside it, weights below one would lift the 'bound' over its target.
This is the only term that factorises K_cc, and it is a bound only when the same (jittered) K_cc is used in both parts.
"""

from typing import Any

import torch
from torch import Tensor

from cvgp.bounds.checks import check_batch
from cvgp.bounds.collapsed import whitener
from cvgp.bounds.weighting import weigh
from cvgp.linalg import first_derivative_only, symmetric_product

__all__ = ["tightening"]


def tightening(
    K_cc: Tensor,
    K_cx: Tensor,
    k_xx: Tensor,
    noise: Tensor,
    *,
    num_outputs: int = 1,
    sample_weight: Tensor | None = None,
    num_data: float | None = None,
    L_inv: Tensor | None = None,
) -> Tensor:
    """What the tighter bound adds to :func:`~cvgp.bounds.elbo.elbo` or to the collapsed bound, in nats.

    Where many batches share one K_cc, its :func:`~cvgp.bounds.collapsed.whitener` may be passed as `L_inv`.
    """
    check_batch(K_cc, K_cx, k_xx)
    weighting = weigh(noise, k_xx, sample_weight=sample_weight, num_data=num_data)
    explained: Tensor = _ExplainedVariance.apply(K_cc, K_cx, L_inv)  # type: ignore[no-untyped-call]
    unexplained = (k_xx - explained).clamp_min(0.0) * (weighting.precision / weighting.scale)  # [B]
    gain = unexplained - unexplained.log1p()
    return 0.5 * num_outputs * weighting.scale * gain.sum(dtype=torch.float64)


class _ExplainedVariance(torch.autograd.Function):
    """q_i = k_i^T K_cc^-1 k_i for each column of K_cx, with its analytic gradient."""

    @staticmethod
    def forward(ctx: Any, K_cc: Tensor, K_cx: Tensor, L_inv: Tensor | None) -> Tensor:
        L_inv = whitener(K_cc) if L_inv is None else L_inv
        psi = L_inv.to(K_cx.dtype) @ K_cx  # [M, B]
        ctx.save_for_backward(L_inv, psi)
        ctx.dtype = K_cc.dtype
        return psi.square().sum(0)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, grad_q: Tensor) -> tuple[Tensor, Tensor, None]:
        L_inv, psi = ctx.saved_tensors
        K_inv_k = L_inv.mT.to(psi.dtype) @ psi  # [M, B]
        weighted = K_inv_k * grad_q
        d_K_cc = symmetric_product(weighted, K_inv_k).neg_()  # dq = -k^T K^-1 dK K^-1 k
        return d_K_cc.to(ctx.dtype), weighted.mul_(2.0), None
