r"""The best coreset on the first m of some points, for every m at once.

Let the points have an order, and let :math:`K_{cc} = L L^T`. The first m features :math:`\psi = L^{-1} k_c(x)` are then
those of the first m points alone, since L is lower triangular. The same holds for the Cholesky factor of
:math:`C = I + \Phi`, and for what it solves. So one factorisation has the posterior of every m in its partial sums:
with :math:`a = L_C^{-1} \psi(x)` and :math:`c = L_C^{-1} b`,

.. math:: \mu_m(x) = \sum_{j \le m} a_j c_j, \qquad
    \sigma^2_m(x) = k(x, x) - \sum_{j \le m} \psi_j^2 + \sum_{j \le m} a_j^2.

It is Titsias' posterior, whose sites have a full covariance. A coreset has a diagonal one, which costs little (§5.3).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.gp.bounds import Statistics
from cvgp.gp.linalg import plus_identity, safe_cholesky


class NestedPrediction(NamedTuple):
    """Moments of f at some rows with the first m points, for every size m that was asked for."""

    f_mean: Tensor  # [S, n, Q]
    f_var: Tensor  # [S, n]
    f_prior_left: Tensor  # [S, n], the prior variance that the points leave unexplained


def nested_prediction(statistics: Statistics, psi: Tensor, k_xx: Tensor, sizes: Tensor) -> NestedPrediction:
    """Predict rows by the best coreset on the first m points, for each m in `sizes`.

    Parameters
    ----------
    statistics
        Of the rows that are known, whitened by all M points in their order.
    psi
        Whitened features of the rows to predict `[M, n]`.
    k_xx
        Their prior variances `[n]`.
    sizes
        Numbers of points, each between 1 and M `[S]`.
    """
    L_C = safe_cholesky(plus_identity(statistics.Phi), "C = I + Phi")
    a = torch.linalg.solve_triangular(L_C, psi, upper=False)  # [M, n]
    c = torch.linalg.solve_triangular(L_C, statistics.b, upper=False)  # [M, Q]
    last = sizes - 1
    left = (k_xx - psi.square().cumsum(0)[last]).clamp_min(0.0)  # [S, n]
    f_mean = torch.stack([(a * c[:, q, None]).cumsum(0)[last] for q in range(c.shape[1])], -1)  # [S, n, Q]
    return NestedPrediction(f_mean, left + a.square().cumsum(0)[last], left)
