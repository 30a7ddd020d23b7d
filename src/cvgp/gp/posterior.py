r"""The coreset posterior: an exact GP that saw M weighted pseudo-observations (§2).

With site precisions :math:`w = \beta / s`, :math:`R = \mathrm{diag}(\sqrt w)` and

.. math:: B = I + R K_{cc} R = L_B L_B^T, \qquad T = L_B^{-1} R, \qquad A = T^T T = (K_{cc} + W^{-1})^{-1},

the paper's posterior (eq. coreset_gp_posterior_f_analytical) is

.. math:: q(f) = N(K_{cx}^T A y_c,\; K_{xx} - K_{cx}^T A K_{cx}).

The eigenvalues of B are at least one and nothing is divided by a weight, so a weight of zero is exact: the point
leaves the posterior. Functions take kernel matrices, never kernels, and assume a zero prior mean; pseudo-outputs
are `[M]` or, for outputs that share one covariance, `[M, Q]`. `K_cx` may carry leading batch dimensions. A batch of
coresets has them too, and then its pseudo-outputs are `[..., M, Q]`.
Sections (§) are those of docs/mathematics.md.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.linalg import (
    as_square,
    inverse_from_factor,
    inverse_lower,
    plus_identity,
    safe_cholesky,
    triangular_squares,
)

LARGEST_LEVERAGE = 1.0 - 1e-9
"""If a row determines its own prediction, its leave-one-out residual is dominated by rounding."""

SMALLEST_PRECISION = 1e-100
"""Precision of a row without weight, so that its leave-one-out prediction stays finite."""


class Factor(NamedTuple):
    """The factorization that all quantities of a coreset posterior share (or of a batch of them); float64."""

    K_cc: Tensor  # [M, M]
    w: Tensor  # [M]
    y_c: Tensor  # [M] or [M, Q]
    L_B_inv: Tensor  # [M, M]
    T: Tensor  # [M, M]
    alpha: Tensor  # [M] or [M, Q], A y_c
    log_det_B: Tensor  # []


def factorize(K_cc: Tensor, w: Tensor, y_c: Tensor) -> Factor:
    """Factorize B = I + R K_cc R once, in O(M^3) (§2.1)."""
    check_sites(K_cc, w, y_c)
    K_cc, w, y_c = as_square(K_cc), w.to(torch.float64), y_c.to(torch.float64)
    root_w = w.sqrt()
    L_B = safe_cholesky(plus_identity(root_w[..., :, None] * K_cc * root_w[..., None, :]), "B = I + R K_cc R")
    L_B_inv = inverse_lower(L_B)
    T = L_B_inv * root_w[..., None, :]
    alpha = T.mT @ (T @ y_c)
    return Factor(K_cc, w, y_c, L_B_inv, T, alpha, 2.0 * L_B.diagonal(dim1=-2, dim2=-1).log().sum(-1))


def mean(factor: Factor, K_cx: Tensor) -> Tensor:
    """Posterior mean K_cx^T alpha (§2.1): [..., B] or [..., B, Q]."""
    return K_cx.mT @ factor.alpha.to(K_cx.dtype)


def variance(factor: Factor, K_cx: Tensor, k_xx: Tensor) -> Tensor:
    """Marginal posterior variance k_ii - |T k_i|^2 of f (§2.1): [..., B].

    The difference of k_ii and one sum of squares keeps its digits where the variance is small;
    k_ii - k_i^T (A k_i) does not.
    """
    return (k_xx - triangular_squares(factor.T.to(K_cx.dtype), K_cx)).clamp_min(0.0)


def covariance(factor: Factor, K_cx: Tensor, K_xx: Tensor) -> Tensor:
    """Joint posterior covariance K_xx - (T K_cx)^T (T K_cx) of f (§2.1): [..., B, B]."""
    TK = factor.T.to(K_cx.dtype) @ K_cx  # [..., M, B]
    return K_xx - TK.mT @ TK


def kl_divergence(factor: Factor) -> Tensor:
    """KL(q(f_c) || p(f_c)) = 1/2 [log|B| - tr(I - B^-1) + alpha^T K alpha], summed over outputs (§2.2)."""
    num_outputs = 1 if factor.y_c.ndim == 1 else factor.y_c.shape[-1]
    # tr(I - B^-1) = tr(A K_cc): a sum of small numbers where weights are small, not M minus almost M.
    trace = (factor.T @ factor.K_cc * factor.T).sum((-2, -1))
    products = factor.alpha * (factor.K_cc @ factor.alpha)
    quadratic = products.sum() if factor.y_c.ndim == 1 else products.sum((-2, -1))
    return 0.5 * (num_outputs * (factor.log_det_B - trace) + quadratic)


def condition(factor: Factor, K_cn: Tensor, K_nn: Tensor, y_new: Tensor, w_new: Tensor) -> Factor:
    """Condition on new observations in closed form: they join the coreset as points with precision w_new (§2.3).

    The new rows see this posterior as their prior, so that nothing is factorized again: n rows cost O(M^2 n). `K_cn` is
    [M, n], `K_nn` [n, n], `y_new` [n] or [n, Q] and `w_new` (one over the noise variance) [n]. Batches broadcast.
    """
    M, n, rows = factor.w.shape[-1], w_new.shape[-1], -1 if factor.y_c.ndim == 1 else -2
    expected_y = [n, *factor.y_c.shape[rows:][1:]]
    if K_cn.shape[-2:] != (M, n) or K_nn.shape[-2:] != (n, n) or list(y_new.shape[rows:]) != expected_y:
        raise InvalidInputError(
            f"With {M} pseudo-points and {n} precisions, K_cn must be [{M}, {n}], K_nn [{n}, {n}] and y_new "
            f"{expected_y}; got {tuple(K_cn.shape)}, {tuple(K_nn.shape)} and {tuple(y_new.shape)}."
        )
    K_cn, K_nn, y_new = K_cn.to(torch.float64), as_square(K_nn), y_new.to(torch.float64)
    TK = factor.T @ K_cn  # [..., M, n]
    new = factorize(K_nn - TK.mT @ TK, w_new, y_new - K_cn.mT @ factor.alpha)
    below = -new.T @ TK.mT  # [..., n, M]
    nothing = torch.zeros_like(K_cn)
    T = _blocks(factor.T, nothing, below @ factor.T, new.T)
    L_B_inv = _blocks(factor.L_B_inv, nothing, below @ factor.L_B_inv, new.L_B_inv)
    K_cc = _blocks(factor.K_cc, K_cn, K_cn.mT, K_nn)
    w, y = joined(factor.w, new.w, -1), joined(factor.y_c, y_new, rows)
    return Factor(K_cc, w, y, L_B_inv, T, T.mT @ (T @ y), factor.log_det_B + new.log_det_B)


def _blocks(top_left: Tensor, top_right: Tensor, bottom_left: Tensor, bottom_right: Tensor) -> Tensor:
    return joined(joined(top_left, top_right, -1), joined(bottom_left, bottom_right, -1), -2)


def joined(first: Tensor, second: Tensor, dim: int) -> Tensor:
    """One after the other along `dim`, which counts from the end; the dimensions before it broadcast."""
    batch = torch.broadcast_shapes(first.shape[:dim], second.shape[:dim])
    return torch.cat([part.expand(*batch, *part.shape[dim:]) for part in (first, second)], dim)


def pathwise_weights(factor: Factor, f_c: Tensor, site_noise: Tensor) -> Tensor:
    """Matheron's rule (§2.3): weights v `[S, M]` that turn a prior function f into a posterior one, f(x) + k(x, X_c) v.

    The textbook rule v = A (y_c - f_c - e), e ~ N(0, 1/w), divides by the weights. With xi = R e it reads v = T^T
    L_B^-1 (R (y_c - f_c) - xi), where xi (`site_noise` [S, M]) is standard normal whatever the weights are.
    """
    if factor.y_c.ndim != 1:
        raise InvalidInputError(
            f"pathwise samples need one output, y_c of shape [M]; got {tuple(factor.y_c.shape)}. "
            "Factorize each output by itself."
        )
    f_c, site_noise = f_c.to(torch.float64), site_noise.to(torch.float64)
    residual = factor.w.sqrt() * (factor.y_c - f_c) - site_noise  # [S, M]
    return residual @ factor.L_B_inv.mT @ factor.T


def check_sites(K_cc: Tensor, w: Tensor, y_c: Tensor) -> None:
    """Raise unless `K_cc` [M, M], `w` [M] and `y_c` [M] or [M, Q] fit together, with w finite and not negative.

    Or a batch of these: `K_cc` [..., M, M], `w` [..., M] and `y_c` [..., M, Q], of shapes that broadcast.
    """
    M = K_cc.shape[-1] if K_cc.ndim else 0
    if K_cc.ndim < 2 or (K_cc.ndim > 2 and y_c.ndim < 2) or K_cc.shape[-2] != M or M == 0:
        raise InvalidInputError(f"K_cc must be a square matrix [M, M] with M >= 1; got {tuple(K_cc.shape)}.")
    if max(K_cc.ndim - 1, w.ndim, y_c.ndim - 1) > 1:  # a batch
        fits = w.shape[-1:] == (M,) and y_c.shape[-2:-1] == (M,)
    else:
        fits = w.shape == (M,) and y_c.shape[:1] == (M,)
    if not fits:
        raise InvalidInputError(
            f"With K_cc of {M} x {M}, w must be [{M}] and y_c [{M}] or [{M}, Q]; "
            f"got {tuple(w.shape)} and {tuple(y_c.shape)}."
        )
    if not bool(((w >= 0) & torch.isfinite(w)).all()):
        raise InvalidInputError("Site precisions w = beta / noise must be finite and not negative.")


class LeaveOneOut(NamedTuple):
    """Each row under the posterior of all others."""

    residual: Tensor  # [n, Q], y minus the mean of f
    variance: Tensor  # [n], of f, shared by all outputs


def leave_one_out(
    psi: Tensor, k_xx: Tensor, y: Tensor, precision: Tensor, C_inv: Tensor, C_inv_b: Tensor
) -> LeaveOneOut:
    r"""Predict each row from all others by a coreset, without solving again (§10).

    On whitened features psi `[M, n]` a coreset is a linear model, :math:`f_i = \psi_i^T u + \epsilon_i`, whose weights
    have the posterior :math:`N(C^{-1} b, C^{-1})`. To leave a row out is a change of rank one. With the leverage
    :math:`h_i = \rho_i \psi_i^T C^{-1} \psi_i`, both its residual and the variance of :math:`\psi_i^T u` are divided by
    :math:`1 - h_i`. Where every row is a pseudo-point these are the exact formulas of a Gaussian process.
    """
    trend_var = (psi * (C_inv @ psi)).sum(0)  # [n], of psi^T u
    rest = 1.0 - (precision * trend_var).clamp_max(LARGEST_LEVERAGE)  # [n], 1 - h
    unexplained = (k_xx - psi.square().sum(0)).clamp_min(0.0)
    return LeaveOneOut((y - psi.mT @ C_inv_b) / rest[:, None], unexplained + trend_var / rest)


def leave_one_out_exact(K: Tensor, y: Tensor, precision: Tensor) -> LeaveOneOut:
    r"""Predict each row from all others by an exact GP, by one inverse (§10).

    With :math:`R = diag(\sqrt\rho)` and :math:`P = (I + R K R)^{-1}`, the posterior variance of f at a row is :math:`(1
    - P_{ii}) / \rho_i`, the residual is :math:`(R P R y)_i / \rho_i`, and :math:`P_{ii}` is one minus the leverage, by
    which both are divided.
    """
    rho = precision.clamp_min(SMALLEST_PRECISION)
    R = rho.sqrt()[:, None]  # [n, 1], the diagonal of R as a column
    RKR = R * as_square(K) * R.mT
    P = inverse_from_factor(safe_cholesky(plus_identity(RKR), "B = I + R K R"))
    rest = P.diagonal().clamp_min(1.0 - LARGEST_LEVERAGE)  # [n], 1 - h
    variance = (RKR * P).sum(1).clamp_min(0.0) / rho  # [n], 1 - P_ii without cancellation
    return LeaveOneOut((P @ (R * y)) / (R * rest[:, None]), variance / rest)
