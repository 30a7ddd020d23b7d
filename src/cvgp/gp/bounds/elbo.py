"""The paper's lower bound (eq. loss_coreset_posterior_gp_analytical) with its analytic gradient (§3).

Sections (§) and letters are those of docs/mathematics.md. A name such as `RKR` is the product of its letters.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.bounds.statistics import check_matrices, site_precision, weigh
from cvgp.gp.linalg import (
    as_square,
    first_derivative_only,
    inverse_from_factor,
    inverse_lower,
    one_minus_inverse,
    plus_identity,
    safe_cholesky,
    symmetric_product,
)
from cvgp.gp.posterior import check_sites, factorize, kl_divergence, mean, variance

SHORTCUT_LIMIT = 1e3  # largest max(w k) at which float32 data may take the variance from A k; measured


def plain_elbo(K_cc: Tensor, K_cx: Tensor, k_xx: Tensor, y: Tensor, y_c: Tensor, w: Tensor, noise: Tensor) -> Tensor:
    """The bound as the paper writes it, for sites of precision w = beta / noise: :func:`elbo` is its fast version."""
    q = factorize(K_cc, w, y_c)
    squared_error = (y - mean(q, K_cx)).square() + variance(q, K_cx, k_xx)  # [B], E_q (y - f)^2
    expected_log_likelihood = -0.5 * ((2.0 * torch.pi * noise).log() + squared_error / noise).sum()
    return expected_log_likelihood - kl_divergence(q)


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
    """Lower bound on log p(y) in nats (§3), for a zero prior mean; differentiable in all but the sample weights."""
    check_matrices(K_cc, K_cx, k_xx, y)
    if y_c.ndim not in (1, 2) or y_c.shape[1:].numel() != y.shape[1:].numel():
        raise InvalidInputError(
            f"y_c must be [M] or [M, Q] with as many outputs as y; got {tuple(y_c.shape)} with y {tuple(y.shape)}."
        )
    weighting = weigh(noise, k_xx, sample_weight=sample_weight, num_data=num_data)
    w = site_precision(beta, noise, site_noise)
    y_columns = y.reshape(y.shape[0], -1)
    fit_minus_kl: Tensor = _FitMinusKL.apply(  # type: ignore[no-untyped-call]
        K_cc, K_cx, k_xx, y_columns, y_c.reshape(y_c.shape[0], -1), w, weighting.precision
    )
    return y_columns.shape[1] * weighting.log_normalizer + fit_minus_kl


class _Solution(NamedTuple):
    """Everything that the bound, the marginals and their gradients share."""

    RR: Tensor  # [..., M, M], so that R X R is X * RR
    E: Tensor  # [..., M, M], I - P with P = B^-1
    a: Tensor  # [..., M, Q], P R y_c
    U: Tensor  # [..., M, B], P R K_cx
    f_mean: Tensor  # [..., B, Q], K_cx^T A y_c
    f_var: Tensor  # [..., B], k_ii - |L^-1 R k_i|^2
    log_det_B: Tensor  # [...]
    squared_norm: Tensor  # [...], alpha^T K_cc alpha


def _solve(K_cc: Tensor, K_cx: Tensor, k_xx: Tensor, y_c: Tensor, R: Tensor) -> _Solution:
    """Factorize B = I + R K_cc R, with the diagonal of R as a column `[..., M, 1]`, and predict the data."""
    dtype = K_cx.dtype
    RR = R * R.mT  # [..., M, M]
    RKR = K_cc * RR  # [..., M, M]
    L = safe_cholesky(plus_identity(RKR), "B = I + R K_cc R")
    cancels = dtype != torch.float64 and RKR.diagonal(dim1=-2, dim2=-1).max().item() > SHORTCUT_LIMIT
    L_inv = inverse_lower(L) if cancels else None
    P = inverse_from_factor(L) if L_inv is None else L_inv.mT @ L_inv  # [..., M, M]
    Ry = R * y_c  # [..., M, Q]
    a = P @ Ry  # [..., M, Q]
    if L_inv is not None:
        LRK = (L_inv * R.mT).to(dtype) @ K_cx  # [..., M, B]
        U, f_var = L_inv.mT.to(dtype) @ LRK, k_xx - LRK.square().sum(-2)
    else:
        # One product less: 7 % of a step at M = 50, 14 % at M = 500. It cancels digits where w k is large:
        # in float32 it was wrong by .027 at a variance of 6e-5 and w = 4e4; the form above was by 2e-6.
        U = (P * R.mT).to(dtype) @ K_cx  # [..., M, B]
        f_var = k_xx - ((K_cx * U).mT @ R.to(dtype))[..., 0]
    f_mean = K_cx.mT @ (R * a).to(dtype)  # [..., B, Q]
    log_det_B = 2.0 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    squared_norm = (a * (Ry - a)).sum((-2, -1))  # a^T (B - I) a, since B a = R y_c
    return _Solution(RR, one_minus_inverse(P, RKR), a, U, f_mean, f_var, log_det_B, squared_norm)


class ElboGradient(NamedTuple):
    """Derivatives of :func:`elbo_with_gradient`, and the terms of the derivatives in the data."""

    K_cc: Tensor  # [M, M], symmetric
    K_cx: Tensor  # [M, B]
    y_c: Tensor  # [M, Q]
    log_w: Tensor  # [M]
    f_var: Tensor  # [B]
    misfit: Tensor  # [B], r^2 + v: minus twice the derivative in the precision
    rho_r: Tensor  # [B, Q], residuals times precisions: minus the derivative in y
    U: Tensor  # [M, B], B^-1 R K_cx
    squared_norm: float  # alpha^T K_cc alpha


def elbo_with_gradient(
    K_cc: Tensor, K_cx: Tensor, k_xx: Tensor, y: Tensor, y_c: Tensor, w: Tensor, precision: Tensor
) -> tuple[float, ElboGradient]:
    """The data fit -1/2 sum_i rho_i (r_i^2 + v_i) minus the KL, and its gradient (§3.1); the M x M side is float64."""
    num_outputs, dtype = y.shape[1], K_cx.dtype
    R = w.sqrt()[:, None]  # [M, 1]
    RR, E, a, U, f_mean, f_var, log_det_B, squared_norms = _solve(K_cc, K_cx, k_xx, y_c, R)
    r = y - f_mean  # [B, Q]
    misfit = torch.add(r.square().sum(1), f_var, alpha=num_outputs)  # [B]
    rho_r = precision[:, None] * r  # [B, Q]
    rho_U = precision * U  # [M, B]
    UU = symmetric_product(rho_U, U)  # [M, M], U diag(rho) U^T

    squared_norm = squared_norms.item()
    kl = 0.5 * (num_outputs * (log_det_B.item() - E.trace().item()) + squared_norm)
    value = -0.5 * (precision * misfit).sum(dtype=torch.float64).item() - kl

    UU_EE = UU - symmetric_product(E, E)  # [M, M], U diag(rho) U^T - E E
    t = (U @ rho_r).to(torch.float64)  # [M, Q]
    g = t - E @ a  # [M, Q], so that d/dy_c = R g
    z = torch.add(g, a, alpha=0.5)  # [M, Q]
    # -1/2 R [ Q (U diag(rho) U^T + E - E E) + a z^T + z a^T ] R, in the memory of one matrix.
    d_K_cc = (
        torch.add(UU_EE, E)
        .addmm_(torch.cat([a, z], 1), torch.cat([z, a], 1).mT, beta=-0.5 * num_outputs, alpha=-0.5)
        .mul_(RR)
    )
    # R (Q U diag(rho) + a rho_r^T), in the memory of U diag(rho), its last use: 3 % of a step at M = 200.
    d_K_cx = rho_U.addmm_(a.to(dtype), rho_r.mT, beta=num_outputs).mul_(R.to(dtype))
    d_log_w = (a * g).sum(1).add_(UU_EE.diagonal(), alpha=0.5 * num_outputs)
    return value, ElboGradient(d_K_cc, d_K_cx, R * g, d_log_w, f_var, misfit, rho_r, U, squared_norm)


def _weight_gradient(K_cc: Tensor, w: Tensor, y_c: Tensor, K_cx: Tensor, precision: Tensor, d: ElboGradient) -> Tensor:
    """d/dw as (d/dlog w) / w. At w = 0, where that is 0 / 0, it comes from rows of J = I - K_cc A (§3.2)."""
    gradient = d.log_w / w
    absent = w == 0
    if not absent.any():
        return gradient
    factor = factorize(K_cc, w, y_c)
    num_outputs = y_c.shape[1]
    K_m = K_cc[absent]  # [m, M]
    KA = (K_m @ factor.T.mT) @ factor.T  # [m, M]
    JK = K_m - KA @ K_cc  # [m, M]
    F = (K_cx[absent] - (K_m * w.sqrt()).to(K_cx.dtype) @ d.U).to(torch.float64)  # [m, B], J K_cx
    j = y_c[absent] - K_m @ factor.alpha  # [m, Q], J y_c
    fit = 0.5 * num_outputs * (F.square() @ precision.to(torch.float64)) + ((F @ d.rho_r.to(torch.float64)) * j).sum(1)
    # diag(J K) - diag(J K J^T) = rowsum(J K * K A), since J = I - K A.
    kl = 0.5 * num_outputs * (JK * KA).sum(1) + ((JK @ factor.alpha) * j).sum(1)
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
        ctx.save_for_backward(d.K_cc, d.K_cx, d_k_xx, -d.rho_r, d.y_c, d_w, -0.5 * d.misfit)
        ctx.dtypes = [argument.dtype for argument in arguments]
        return square.new_tensor(value)

    @staticmethod
    @first_derivative_only
    def backward(ctx: Any, grad_value: Tensor) -> tuple[Tensor, ...]:
        return tuple((grad_value * g).to(dtype) for g, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True))


class Marginals(NamedTuple):
    """The posterior at each point, for a zero prior mean, and its KL from the prior at the pseudo-inputs."""

    mean: Tensor  # [..., B]
    variance: Tensor  # [..., B]
    kl: Tensor  # [...], of the coresets alone: rows add no dimension to it


def marginals(K_cc: Tensor, K_cx: Tensor, k_xx: Tensor, y_c: Tensor, log_w: Tensor) -> Marginals:
    """Means, variances and the KL, differentiable in every argument (§3.3); batch dimensions broadcast."""
    return Marginals(*_Marginals.apply(K_cc, K_cx, k_xx, y_c, log_w))  # type: ignore[no-untyped-call]


class _Marginals(torch.autograd.Function):
    """:func:`marginals` as an autograd node, for objectives of any likelihood (§3.3)."""

    @staticmethod
    def forward(
        ctx: Any, K_cc: Tensor, K_cx: Tensor, k_xx: Tensor, y_c: Tensor, log_w: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        R = (0.5 * log_w.to(torch.float64)).exp()[..., None]  # [..., M, 1]
        y_columns = y_c.to(torch.float64)[..., None]  # [..., M, 1]
        RR, E, a, U, f_mean, f_var, log_det_B, squared_norm = _solve(K_cc.to(torch.float64), K_cx, k_xx, y_columns, R)
        kl = 0.5 * (log_det_B - E.diagonal(dim1=-2, dim2=-1).sum(-1) + squared_norm)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(R, RR, E, a, U)
        ctx.forms = [(argument.shape, argument.dtype) for argument in (K_cc, K_cx, k_xx, y_c, log_w)]
        return f_mean[..., 0], f_var, kl

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
