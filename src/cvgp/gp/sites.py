r"""The best pseudo-outputs and weights at a fixed kernel and fixed pseudo-inputs, with no data in sight.

The mean part of the bound does not depend on the weights, and the covariance part not on y_c, so the two are solved
one after the other from the same :class:`~cvgp.gp.bounds.collapsed.Statistics`.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import Bounds, minimize
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.bounds.collapsed import Statistics, solve, solve_full, whitener
from cvgp.gp.linalg import as_square, inverse_lower, safe_cholesky
from cvgp.gp.posterior import Factor
from cvgp.host import single_threaded_blas

__all__ = ["BestCoreset", "FullOptimum", "best_coreset", "full_matrix_optimum"]

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-8, 1e12
"""What a weight may become, in units of the largest starting weight."""


class BestCoreset(NamedTuple):
    """The pseudo-outputs and site precisions that maximise the bound."""

    y_c: Tensor  # [M, T]
    w: Tensor  # [M]
    value: Tensor  # []


def best_coreset(K_cc: Tensor, statistics: Statistics, w_start: Tensor, *, max_iter: int = 200) -> BestCoreset:
    """Closed-form y_c* and the best diagonal w*, by L-BFGS on the M x M problem.

    The search runs over log(1 + w c), where c is the variance of f_c given all other sites at the start. Over log w the
    bound is flat at small weights, where L-BFGS stays although a larger weight would be worth nats; over this it is
    not, and a single weight enters the bound only through w c.

    As w falls to zero its y_c* = (K + 1/w) alpha grows without limit, while the bound no longer changes. So a weight
    has a floor: at 1e-12 of the largest, a y_c of 1e12 cost the bound its fourth digit when it was evaluated again.
    """
    K_cc, w_start = as_square(K_cc.detach()), w_start.detach().to(torch.float64)
    if not bool(((w_start >= 0) & torch.isfinite(w_start)).all()) or not bool((w_start > 0).any()):
        raise InvalidInputError("Starting weights must be finite and not negative, and one at least positive.")
    L_inv = whitener(K_cc)
    lowest, highest = w_start.max() * SMALLEST_WEIGHT, w_start.max() * LARGEST_WEIGHT
    w_start = w_start.clamp_min(lowest)
    c = _variance_given_other_sites(solve(K_cc, w_start, statistics, L_inv).factor)  # [M]

    def weights(t: NDArray[np.float64]) -> Tensor:
        return torch.as_tensor(t, device=c.device).expm1() / c

    def negative_bound(t: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        w = weights(t)
        solution = solve(K_cc, w, statistics, L_inv)
        return -float(solution.value), -(solution.d_w * (w + 1.0 / c)).cpu().numpy()

    start, lower, upper = ((w * c).log1p().cpu().numpy() for w in (w_start, lowest, highest))
    with single_threaded_blas():
        result = minimize(
            negative_bound,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(lower, upper),
            options={"maxiter": max_iter, "maxcor": 20},
        )
    w = weights(result.x)
    solution = solve(K_cc, w, statistics, L_inv)
    return BestCoreset(solution.factor.y_c, w, solution.value)


def _variance_given_other_sites(factor: Factor) -> Tensor:
    """(1 - P_mm) / (w_m P_mm) with P = B^-1: the variance of f_c,m when its own site is taken away [M]."""
    P = factor.L_B_inv.mT @ factor.L_B_inv
    root_w = factor.w.sqrt()
    one_minus_P = (root_w[:, None] * factor.K_cc * root_w * P).sum(1)  # without cancellation
    return one_minus_P / (factor.w * P.diagonal())


class FullOptimum(NamedTuple):
    """The optimum when the sites' noise may be any matrix: Titsias' posterior and bound."""

    y_c: Tensor  # [M, T]
    Sigma: Tensor  # [M, M], site covariance
    f_mean: Tensor  # [M, T], mean of q(f_c)
    f_covariance: Tensor  # [M, M], covariance of q(f_c)
    value: Tensor  # []


def full_matrix_optimum(K_cc: Tensor, statistics: Statistics) -> FullOptimum:
    r"""Sigma* = K Phi_raw^-1 K and y_c* = K Phi_raw^-1 b_raw, whose bound is the SparseGP's (Titsias 2009).

    With whitened statistics, :math:`K = L L^T`, these are :math:`L \Phi^{-1} L^T` and :math:`L \Phi^{-1} b`; the
    posterior :math:`q(f_c) = N(L C^{-1} b, L C^{-1} L^T)` exists even where Phi has no inverse.
    """
    L = safe_cholesky(as_square(K_cc), "K_cc")
    identity = torch.eye(len(L), dtype=torch.float64, device=L.device)
    L_C_inv = inverse_lower(safe_cholesky(statistics.Phi + identity, "C = I + Phi"))
    C_inv_b = L_C_inv.mT @ (L_C_inv @ statistics.b)
    # Phi may be singular (fewer data than pseudo-inputs); its inverse is formed only for the sites themselves.
    Phi_inv = torch.linalg.pinv(statistics.Phi, hermitian=True)
    root = L @ L_C_inv.mT
    return FullOptimum(
        y_c=L @ Phi_inv @ statistics.b,
        Sigma=L @ Phi_inv @ L.mT,
        f_mean=L @ C_inv_b,
        f_covariance=root @ root.mT,
        value=solve_full(statistics, inverse_lower(L)).value,
    )
