"""The coreset posterior (§2): q(f) = N(K_cx^T A y_c, K_xx - K_cx^T A K_cx) with A = T^T T and T = L_B^-1 R.

R = diag(sqrt w) and B = I + R K_cc R = L_B L_B^T. Functions take kernel matrices and assume a zero prior mean. Shapes
may have leading batch dimensions; pseudo-outputs are `[M]` or `[M, Q]`, and in a batch of coresets `[..., M, Q]`.
"""

from collections.abc import Sequence
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
    symmetrize,
    triangular_squares,
)

LARGEST_LEVERAGE = 1.0 - 1e-9  # at a leverage of one, the leave-one-out residual is rounding
SMALLEST_PRECISION = 1e-100  # precision of a row without weight, so that its leave-one-out prediction stays finite


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
    """Marginal posterior variance k_ii - |T k_i|^2 of f [..., B] (§2.1), more accurate than k_ii - k_i^T (A k_i)."""
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
    """Condition on n new observations in closed form, in O(M^2 n): they join as points with precision w_new (§2.3)."""
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
    """Matheron's rule (§2.3): weights v `[S, M]` that turn a prior draw f into a posterior one, f(x) + k(x, X_c) v."""
    if factor.y_c.ndim != 1:
        raise InvalidInputError(
            f"pathwise samples need one output, y_c of shape [M]; got {tuple(factor.y_c.shape)}. "
            "Factorize each output by itself."
        )
    f_c, site_noise = f_c.to(torch.float64), site_noise.to(torch.float64)
    residual = factor.w.sqrt() * (factor.y_c - f_c) - site_noise  # [S, M]
    return residual @ factor.L_B_inv.mT @ factor.T


def check_sites(K_cc: Tensor, w: Tensor, y_c: Tensor) -> None:
    """Raise unless `K_cc` [..., M, M], `w` [..., M] and `y_c` [M] or [..., M, Q] fit, with w finite and nonnegative."""
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
    psi: Tensor,
    k_xx: Tensor,
    y: Tensor,
    precision: Tensor,
    C_inv: Tensor,
    C_inv_b: Tensor,
    clusters: Sequence[Tensor] = (),
) -> LeaveOneOut:
    """Predict each row from all others by a coreset, by its leverage and without solving again (§10).

    With `clusters`, the rows [n_g] of each are left out together.
    """
    trend_var = (psi * (C_inv @ psi)).sum(0)  # [n], of psi^T u
    rest = 1.0 - (precision * trend_var).clamp_max(LARGEST_LEVERAGE)  # [n], 1 - h
    unexplained = (k_xx - psi.square().sum(0)).clamp_min(0.0)
    error = y - psi.mT @ C_inv_b
    residual, variance = error / rest[:, None], trend_var / rest
    root = safe_cholesky(C_inv, "C^-1") if clusters else C_inv
    for rows in clusters:
        R = precision[rows].clamp_min(SMALLEST_PRECISION).sqrt()[:, None]
        G = root.mT @ psi[:, rows] * R.mT  # [M, n_g], so that the leverages are H = G^T G
        if len(rows) <= len(psi):
            H = G.mT @ G
            residual[rows], variance[rows] = _without(plus_identity(-H), H, error[rows], R)
        else:  # (I - G^T G)^-1 = I + G^T (I - G G^T)^-1 G
            L = safe_cholesky(plus_identity(-(G @ G.mT)), "I - G G^T of a group")
            V = torch.linalg.solve_triangular(L, G, upper=False)
            residual[rows] = error[rows] + V.mT @ (V @ (R * error[rows])) / R
            variance[rows] = V.square().sum(0) / R[:, 0].square()
    return LeaveOneOut(residual, unexplained + variance)


def leave_one_out_exact(K: Tensor, y: Tensor, precision: Tensor, clusters: Sequence[Tensor] = ()) -> LeaveOneOut:
    """Predict each row from all others by an exact GP, by one inverse (§10); clusters are left out as a whole."""
    rho = precision.clamp_min(SMALLEST_PRECISION)
    R = rho.sqrt()[:, None]  # [n, 1], the diagonal of R as a column
    RKR = R * as_square(K) * R.mT
    P = inverse_from_factor(safe_cholesky(plus_identity(RKR), "B = I + R K R"))
    rest = P.diagonal().clamp_min(1.0 - LARGEST_LEVERAGE)  # [n], 1 - h
    variance = (RKR * P).sum(1).clamp_min(0.0) / rho / rest  # [n], 1 - P_ii without cancellation
    error = P @ (R * y)  # [n, Q]
    residual = error / (R * rest[:, None])
    for rows in clusters:
        P_gg, H = P[rows][:, rows], RKR[rows] @ P[:, rows]  # [n_g, n_g], H = I - P_gg
        residual[rows], variance[rows] = _without(P_gg, symmetrize(H), error[rows] / R[rows], R[rows])
    return LeaveOneOut(residual, variance)


def _without(rest: Tensor, H: Tensor, error: Tensor, R: Tensor) -> tuple[Tensor, Tensor]:
    """Residuals (I - H)^-1 e and variances (I - H)^-1 H of a cluster that is left out, in units of R^-1 each."""
    L = safe_cholesky(symmetrize(rest), "I - H of a group")
    residual = torch.cholesky_solve(R * error, L) / R
    return residual, torch.cholesky_solve(H, L).diagonal().clamp_min(0.0) / R[:, 0].square()
