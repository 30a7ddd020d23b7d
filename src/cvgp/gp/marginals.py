r"""Posterior marginals and the KL, with their gradient: for objectives of any likelihood (§3.3).

An objective of the marginals of f is a function of the means :math:`\mu_i`, the variances :math:`v_i` and
the KL. So are the bounds of all likelihoods, but for the kernel. With the derivatives :math:`\bar\mu`, :math:`\bar v`
and :math:`\bar\kappa` of the objective in these three, and with

.. math:: P = B^{-1}, \quad E = I - P, \quad a = P R y_c, \quad U = P R K_{cx}, \quad t = U \bar\mu, \quad
          g = t + \bar\kappa E a, \quad z = g - \tfrac12 \bar\kappa a,

its derivatives in the arguments of the posterior are

.. math:: d/dK_{cc} = R \left[U \mathrm{diag}(\bar v) U^T + \tfrac12 \bar\kappa (E - E E)
          - \tfrac12 (a z^T + z a^T)\right] R, \qquad d/dK_{cx} = R (a \bar\mu^T - 2 U \mathrm{diag}(\bar v)),

.. math:: d/dy_c = R g, \qquad
          d/d\log w = a \circ g - \mathrm{diag}(U \mathrm{diag}(\bar v) U^T) + \tfrac12 \bar\kappa\, \mathrm{diag}(E E).

The Gaussian bound of :mod:`cvgp.gp.bounds.elbo` is the case :math:`\bar\mu = \rho r`, :math:`\bar v = -\rho / 2`,
:math:`\bar\kappa = -1`. Sections (§) are those of docs/mathematics.md. All tensors may have leading batch dimensions
that broadcast: a batch of coresets shares rows, and a batch of rows shares a coreset.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from cvgp.gp.bounds.elbo import SHORTCUT_LIMIT
from cvgp.gp.linalg import (
    first_derivative_only,
    inverse_from_factor,
    inverse_lower,
    one_minus_inverse,
    plus_identity,
    safe_cholesky,
    symmetric_product,
)


class Marginals(NamedTuple):
    """The posterior at each point, for a zero prior mean, and its KL from the prior at the pseudo-inputs."""

    mean: Tensor  # [..., B]
    variance: Tensor  # [..., B]
    kl: Tensor  # [...], of the coresets alone: rows add no dimension to it


def marginals(K_cc: Tensor, K_cx: Tensor, k_xx: Tensor, y_c: Tensor, log_w: Tensor) -> Marginals:
    """Means, variances and the KL, differentiable in every argument by the formulas of this module.

    Parameters
    ----------
    K_cc, K_cx, k_xx
        Kernel among the pseudo-inputs `[..., M, M]`, which is symmetric, between them and the rows `[..., M, B]`, and
        its diagonal at the rows `[..., B]`. Means and variances have the precision of `K_cx`, and the rest is float64.
    y_c, log_w
        Pseudo-outputs minus the prior mean, and logarithms of the site precisions: both `[..., M]`.
    """
    return Marginals(*_Marginals.apply(K_cc, K_cx, k_xx, y_c, log_w))  # type: ignore[no-untyped-call]


class _Marginals(torch.autograd.Function):
    """:func:`marginals` as an autograd node."""

    @staticmethod
    def forward(
        ctx: Any, K_cc: Tensor, K_cx: Tensor, k_xx: Tensor, y_c: Tensor, log_w: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype = K_cx.dtype
        R = (0.5 * log_w.to(torch.float64)).exp()[..., None]  # [..., M, 1], the diagonal of R as a column
        RR = R * R.mT  # [..., M, M], R X R is X * RR
        RKR = K_cc.to(torch.float64) * RR  # [..., M, M]
        L = safe_cholesky(plus_identity(RKR), "B = I + R K_cc R")
        cancels = dtype != torch.float64 and RKR.diagonal(dim1=-2, dim2=-1).max().item() > SHORTCUT_LIMIT
        L_inv = inverse_lower(L) if cancels else None
        P = inverse_from_factor(L) if L_inv is None else L_inv.mT @ L_inv  # [..., M, M]
        E = one_minus_inverse(P, RKR)  # [..., M, M]
        Ry = R * y_c.to(torch.float64)[..., None]  # [..., M, 1]
        a = P @ Ry  # [..., M, 1]
        mean = (K_cx.mT @ (R * a).to(dtype))[..., 0]  # [..., B]
        if L_inv is not None:  # where k_ii - k_i^T (A k_i) would cancel; see cvgp.gp.bounds.elbo
            LRK = (L_inv * R.mT).to(dtype) @ K_cx  # [..., M, B]
            U, variance = L_inv.mT.to(dtype) @ LRK, k_xx - LRK.square().sum(-2)
        else:
            U = (P * R.mT).to(dtype) @ K_cx  # [..., M, B]
            variance = k_xx - (R.mT.to(dtype) @ (K_cx * U))[..., 0, :]
        log_det_B = 2.0 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        squared_norm = (a * (Ry - a)).sum((-2, -1))  # a^T (B - I) a, since B a = R y_c
        kl = 0.5 * (log_det_B - E.diagonal(dim1=-2, dim2=-1).sum(-1) + squared_norm)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(R, RR, E, a, U)
        ctx.forms = [(argument.shape, argument.dtype) for argument in (K_cc, K_cx, k_xx, y_c, log_w)]
        return mean, variance, kl

    @staticmethod
    @first_derivative_only
    def backward(
        ctx: Any, d_mean: Tensor | None, d_variance: Tensor | None, d_kl: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        R, RR, E, a, U = ctx.saved_tensors
        sites = a.shape[:-2]
        d_K_cx, UvU, t = None, None, torch.zeros_like(a)
        if d_mean is not None:
            t = (U @ d_mean[..., None]).to(torch.float64).sum_to_size(a.shape)  # [..., M, 1]
            d_K_cx = a.to(U.dtype) * d_mean[..., None, :]  # [..., M, B]
        if d_variance is not None:
            Uv = U * d_variance[..., None, :]  # [..., M, B]
            UvU = symmetric_product(Uv, U) if U.ndim == 2 else Uv @ U.mT
            UvU = UvU.to(torch.float64).sum_to_size(*sites, *E.shape[-2:])  # [..., M, M]
            d_K_cx = Uv.mul_(-2.0) if d_K_cx is None else d_K_cx.sub_(Uv, alpha=2.0)
        k = None if d_kl is None else d_kl.to(torch.float64)[..., None, None]
        g = t if k is None else t + k * (E @ a)  # [..., M, 1]
        z = g if k is None else g - 0.5 * k * a  # [..., M, 1]
        d_K_cc = -0.5 * (torch.cat([a, z], -1) @ torch.cat([z, a], -1).mT)  # [..., M, M]
        d_log_w = (a * g)[..., 0]  # [..., M]
        if UvU is not None:
            d_K_cc += UvU
            d_log_w = d_log_w - UvU.diagonal(dim1=-2, dim2=-1)
        if k is not None:
            EE = symmetric_product(E, E) if E.ndim == 2 else E @ E
            d_K_cc += 0.5 * k * (E - EE)
            d_log_w = d_log_w + 0.5 * k[..., 0] * EE.diagonal(dim1=-2, dim2=-1)
        d_K_cc *= RR
        d_K_cx = None if d_K_cx is None else d_K_cx.mul_(R.to(d_K_cx.dtype))
        gradients = (d_K_cc, d_K_cx, d_variance, (R * g)[..., 0], d_log_w)
        return tuple(
            None if gradient is None else gradient.sum_to_size(shape).to(dtype)
            for gradient, (shape, dtype) in zip(gradients, ctx.forms, strict=True)
        )
