"""The best pseudo-outputs and weights at a fixed kernel and fixed pseudo-inputs, from statistics alone (§5).

The mean part of the bound does not depend on the weights, and the covariance part does not depend on y_c. So the two
are solved one after the other, from the same :class:`~cvgp.gp.bounds.statistics.Statistics`.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import Bounds, minimize
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.bounds.collapsed import one_minus_diagonal, solve_collapsed
from cvgp.gp.bounds.statistics import Statistics, whitener
from cvgp.gp.linalg import as_square
from cvgp.gp.posterior import Factor
from cvgp.host import single_threaded_blas

__all__ = ["BestCoreset", "best_coreset"]

SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-8, 1e12
"""What a weight may become, in units of the largest starting weight."""


class BestCoreset(NamedTuple):
    """The pseudo-outputs and site precisions that maximise the bound."""

    y_c: Tensor  # [M, Q]
    w: Tensor  # [M]
    value: Tensor  # []


def best_coreset(K_cc: Tensor, statistics: Statistics, w_start: Tensor, *, max_iter: int = 200) -> BestCoreset:
    """Closed-form y_c*, and the best diagonal w* by L-BFGS on the M x M problem (§5.3).

    The search runs over log(1 + w c), where c is the variance of f_c given all other sites at the start. A single
    weight enters the bound only through w c. Over log w the bound is flat at small weights, and L-BFGS would stay there
    although a larger weight is worth nats.

    As w falls to zero its y_c* = (K + 1/w) alpha grows without limit, while the bound no longer changes. So a weight
    has a floor: at 1e-12 of the largest, a y_c of 1e12 cost the bound its fourth digit when it was evaluated again.
    """
    K_cc, w_start = as_square(K_cc.detach()), w_start.detach().to(torch.float64)
    if not bool(((w_start >= 0) & torch.isfinite(w_start)).all()) or not bool((w_start > 0).any()):
        raise InvalidInputError("Starting weights must be finite and not negative, and at least one must be positive.")
    L_K_inv = whitener(K_cc)
    lowest, highest = w_start.max() * SMALLEST_WEIGHT, w_start.max() * LARGEST_WEIGHT
    w_start = w_start.clamp_min(lowest)
    c = _variance_given_other_sites(solve_collapsed(K_cc, w_start, statistics, L_K_inv).factor)  # [M]

    def weights(t: NDArray[np.float64]) -> Tensor:
        return torch.as_tensor(t, device=c.device).expm1() / c

    def negative_bound(t: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        w = weights(t)
        solution = solve_collapsed(K_cc, w, statistics, L_K_inv)
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
    solution = solve_collapsed(K_cc, w, statistics, L_K_inv)
    return BestCoreset(solution.factor.y_c, w, solution.value)


def _variance_given_other_sites(factor: Factor) -> Tensor:
    """(1 - P_mm) / (w_m P_mm) [M], P = B^-1: the variance of f_c,m when its own site is taken away (§5.3)."""
    diagonal = factor.L_B_inv.square().sum(0)  # P_mm
    return one_minus_diagonal(factor) / (factor.w * diagonal)
