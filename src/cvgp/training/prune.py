"""Dropping pseudo-points that the bound does not need, with no data in sight.

Small weights alone are no guide: dropping such points as they are can spoil the fit. Here the rest of the coreset is
solved anew after each drop, from the statistics of the data, and the bound decides.
"""

from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg.lapack import dpstrf
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.errors import InvalidInputError
from cvgp.gp import sites
from cvgp.gp.bounds import Statistics
from cvgp.gp.linalg import inverse_lower, safe_cholesky
from cvgp.gp.model import CVGP


class Pruned(NamedTuple):
    """A smaller model and what is known of its data."""

    model: CVGP
    statistics: Statistics
    dropped: int
    loss: float
    """By how many nats the bound fell."""


def restrict(K_cc: Tensor, statistics: Statistics, kept: Tensor) -> Statistics:
    """Whitened statistics of the same data for some of the pseudo-inputs.

    With K = L L^T and S the kept rows, Q = chol(K_SS)^-1 L_S has orthonormal rows, so Q Phi Q^T loses no digits.
    """
    L = safe_cholesky(K_cc, "K_cc")
    L_kept_inv = inverse_lower(safe_cholesky(K_cc[kept][:, kept], "K_cc"))
    Q = L_kept_inv @ L[kept]  # [m, M]
    return statistics._replace(Phi=Q @ statistics.Phi @ Q.mT, b=Q @ statistics.b)


@torch.no_grad()
def prune_model(model: CVGP, statistics: Statistics, tolerance: float) -> Pruned:
    """Drop as many points as the bound allows: it may fall by less than `tolerance` nats in all.

    How many is found by bisection, along the order of :func:`_least_needed_first`.
    """
    if not tolerance >= 0:
        raise InvalidInputError(f"tolerance must be a number of nats of at least 0; got {tolerance!r}.")
    K_cc = model.jittered_covariance()
    order = _least_needed_first(K_cc, model.site_precision)
    before = sites.best_coreset(K_cc, statistics, model.site_precision).value.item()

    def bound_without(count: int) -> float:
        kept = order[count:].sort().values
        part = restrict(K_cc, statistics, kept)
        return sites.best_coreset(K_cc[kept][:, kept], part, model.site_precision[kept]).value.item()

    most, too_many = 0, len(order)
    while too_many - most > 1:
        middle = (most + too_many) // 2
        if before - bound_without(middle) < tolerance:
            most = middle
        else:
            too_many = middle
    return _keep(model, statistics, order[most:], before)


@torch.no_grad()
def shrink_model(model: CVGP, statistics: Statistics, size: int) -> Pruned:
    """Drop the points that are needed least until `size` of them are left, whatever the bound loses."""
    K_cc = model.jittered_covariance()
    before = sites.best_coreset(K_cc, statistics, model.site_precision).value.item()
    return _keep(model, statistics, _least_needed_first(K_cc, model.site_precision)[-size:], before)


def _keep(model: CVGP, statistics: Statistics, points: Tensor, before: float) -> Pruned:
    """The model on some of its points, solved anew, and what it loses of the bound that was there before."""
    kept = points.sort().values
    part = restrict(model.jittered_covariance(), statistics, kept)
    smaller = model.with_coreset(Coreset(model.X_c[kept], model.y_c[kept], model.beta[kept]))
    after = smaller.adopt_optimum(part).item()
    return Pruned(smaller, part, len(model.X_c) - len(kept), before - after)


def _least_needed_first(K_cc: Tensor, w: Tensor) -> Tensor:
    """Indices of the pseudo-points.

    A pivoted Cholesky factorisation of R K R takes, each time, the point of the largest w times the variance that those
    before it leave. Points of little weight come late in it, and so do points that others stand beside.
    """
    root_w = w.sqrt()
    matrix = root_w[:, None] * K_cc * root_w
    _, pivots, _, _ = dpstrf(matrix.cpu().numpy(), lower=1)
    return torch.as_tensor(np.flip(pivots - 1).copy(), dtype=torch.long, device=w.device)
