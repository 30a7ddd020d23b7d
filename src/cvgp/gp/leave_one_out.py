r"""What a posterior says of each row when that row is left out, without solving for it again (§10).

On whitened features a coreset is a linear model, :math:`f_i = \psi_i^T u + \epsilon_i`. Its weights have the posterior
:math:`N(C^{-1} b, C^{-1})`. To leave a row out is a change of rank one. With :math:`q_i = \psi_i^T C^{-1} \psi_i` and
the leverage :math:`h_i = \rho_i q_i` its residual becomes :math:`r_i / (1 - h_i)`, and :math:`q_i` becomes
:math:`q_i / (1 - h_i)`. Where every row is a pseudo-point these are the exact formulas of a Gaussian process.
"""

from typing import NamedTuple

from torch import Tensor

__all__ = ["LeftOut", "leave_one_out"]

LARGEST_LEVERAGE = 1.0 - 1e-9
"""A row that decides its own prediction is left out of nothing; what is left of it then is rounding."""


class LeftOut(NamedTuple):
    """Each row under the posterior of all others."""

    residual: Tensor  # [n, Q], y minus the mean of f
    variance: Tensor  # [n], of f, shared by all outputs


def leave_one_out(psi: Tensor, k_xx: Tensor, y: Tensor, precision: Tensor, C_inv: Tensor, C_inv_b: Tensor) -> LeftOut:
    """Rows with whitened features `psi` [M, n], prior variances [n], outputs [n, Q] and precisions rho [n] (§10)."""
    q = (psi * (C_inv @ psi)).sum(0)  # [n]
    left = 1.0 - (precision * q).clamp_max(LARGEST_LEVERAGE)  # [n], 1 - h
    unexplained = (k_xx - psi.square().sum(0)).clamp_min(0.0)
    return LeftOut((y - psi.mT @ C_inv_b) / left[:, None], unexplained + q / left)
