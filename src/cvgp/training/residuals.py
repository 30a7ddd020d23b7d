"""What is left of rows of a fit when others predict them: no row helps to make its own residual."""

from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.gp import bounds
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import cross_matrix, diagonal, prior_mean
from cvgp.gp.model import CVGP
from cvgp.gp.posterior import leave_one_out


class Residuals(NamedTuple):
    """Rows with what is left of them when they are predicted by others."""

    x: Tensor  # [n, D]
    square: Tensor  # [n, Q], squared residuals
    f_var: Tensor  # [n]
    known: Tensor  # [n], known noise variance
    weight: Tensor  # [n]

    def take(self, index: Tensor) -> "Residuals":
        """Some of the rows."""
        return Residuals(*(part[index] for part in self))

    @staticmethod
    def of(rows: Rows[Tensor], square: Tensor, f_var: Tensor) -> "Residuals":
        """Rows with what is known of them."""
        known = torch.zeros_like(f_var) if rows.noise_variance is None else rows.noise_variance
        weight = torch.ones_like(f_var) if rows.sample_weight is None else rows.sample_weight
        return Residuals(rows.x, square, f_var, known, weight)


@torch.no_grad()
def residuals_of(model: CVGP, statistics: Statistics, rows: Rows[Tensor]) -> Residuals:
    """What is left of rows of the fit, each predicted by all other rows."""
    L_inv = bounds.whitener(model.jittered_covariance())
    solution = bounds.solve_titsias(statistics, L_inv)
    psi = L_inv @ cross_matrix(model.kernel, model.X_c, rows.x)  # [M, n]
    k_xx = diagonal(model.kernel, rows.x)
    y = (rows.y - prior_mean(model.mean, rows.x, rows.y)).reshape(len(rows.x), -1)
    noise = model.total_noise(rows.noise_variance)
    precision = bounds.weigh(noise, k_xx, sample_weight=rows.sample_weight).precision
    left_out = leave_one_out(psi, k_xx, y, precision, solution.C_inv, solution.C_inv_b)
    return Residuals.of(rows, left_out.residual.square(), left_out.variance)
