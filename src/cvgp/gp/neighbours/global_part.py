r"""The posterior of u, the global part of f, in coordinates of unit prior covariance (§9.3).

Under the model :math:`p(u | y) = N(C^{-1} b, C^{-1})` with :math:`C = I + \Phi`. A coreset has the same mean, and a
covariance that M weights can express: :math:`I - L_K^T A L_K`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.gp.bounds.statistics import Statistics
from cvgp.gp.linalg import inverse_lower, plus_identity, safe_cholesky
from cvgp.gp.neighbours.decorrelated import Decorrelated
from cvgp.gp.neighbours.whitened_points import WhitenedPoints
from cvgp.gp.posterior import Factor


class GlobalPart(NamedTuple):
    """q(u) = N(mean, root root^T); all float64."""

    mean: Tensor  # [M, Q]
    root: Tensor  # [M, M]


def global_part(statistics: Statistics) -> GlobalPart:
    """The posterior of u under the model, from the statistics of decorrelated rows."""
    root = inverse_lower(safe_cholesky(plus_identity(statistics.Phi), "C = I + Phi")).mT
    return GlobalPart(root @ (root.mT @ statistics.b), root)


def prior_part(points: WhitenedPoints, num_outputs: int) -> GlobalPart:
    """The prior N(0, I) of u; nothing at all where there are no points."""
    M = points.size
    return GlobalPart(points.L_K_inv.new_zeros(M, num_outputs), plus_identity(points.L_K_inv.new_zeros(M, M)))


def global_part_of_coreset(points: WhitenedPoints, factor: Factor) -> GlobalPart:
    """What a coreset posterior says of u.

    The sites of `factor` were solved from the statistics of decorrelated rows. Sites of plain rows know the neighbours'
    outputs already, and predictions would count these twice.
    """
    alpha = factor.alpha.reshape(len(factor.w), -1)
    mean = torch.linalg.solve_triangular(points.L_K_inv.mT, alpha, upper=True)  # L_K^T alpha
    TL = torch.linalg.solve_triangular(points.L_K_inv, factor.T, upper=False, left=False)  # T L_K
    return GlobalPart(mean, safe_cholesky(plus_identity(-TL.mT @ TL), "covariance of u"))


def moments(part: Decorrelated, u: GlobalPart) -> tuple[Tensor, Tensor]:
    """Mean phi^T m + b^T y_N `[n, Q]` and variance v + phi^T S phi `[n]` of f, with u integrated out (§9.3)."""
    return part.b_y + part.phi @ u.mean, part.v + (part.phi @ u.root).square().sum(1)
