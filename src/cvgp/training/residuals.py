"""What is left of rows of a fit when others predict them: no row helps to make its own residual."""

from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.gp import bounds
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import cross_matrix, diagonal, prior_mean, square_matrix
from cvgp.gp.model import CVGP
from cvgp.gp.posterior import factorise, leave_one_out, leave_one_out_exact, mean, variance


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
        """What is left of rows of which each was left out with all its copies: a weight beyond one counts as one.

        Were only one of several copies left out, the others would predict it without an error. That says nothing of a
        row that is new, and rows that are new are what predictions are for.
        """
        known = torch.zeros_like(f_var) if rows.noise_variance is None else rows.noise_variance
        weight = torch.ones_like(f_var) if rows.sample_weight is None else rows.sample_weight.clamp_max(1.0)
        return Residuals(rows.x, square, f_var, known, weight)


@torch.no_grad()
def residuals_of(model: CVGP, statistics: Statistics, rows: Rows[Tensor], *, are_new: bool = False) -> Residuals:
    """What is left of rows when others predict them: all other rows of the fit, or all of its rows if these are new."""
    L_inv = bounds.whitener(model.jittered_covariance())
    solution = bounds.solve_titsias(statistics, L_inv)
    psi = L_inv @ cross_matrix(model.kernel, model.X_c, rows.x)  # [M, n]
    k_xx = diagonal(model.kernel, rows.x)
    y, precision = _observations(model, rows)
    if are_new:
        precision = torch.zeros_like(precision)  # there is nothing to leave out
    left_out = leave_one_out(psi, k_xx, y, precision, solution.C_inv, solution.C_inv_b)
    return Residuals.of(rows, left_out.residual.square(), left_out.variance)


@torch.no_grad()
def residuals_left_out(model: CVGP, rows: Rows[Tensor]) -> Residuals:
    """What is left of each row when all others predict it, under the exact GP of these rows."""
    K = square_matrix(model.kernel, rows.x)
    left_out = leave_one_out_exact(K, *_observations(model, rows))
    return Residuals.of(rows, left_out.residual.square(), left_out.variance)


@torch.no_grad()
def residuals_of_new(model: CVGP, seen: Rows[Tensor], new: Rows[Tensor]) -> Residuals:
    """What is left of new rows under the exact GP of those that were seen."""
    y, precision = _observations(model, seen)
    factor = factorise(square_matrix(model.kernel, seen.x), precision, y)
    K_cx = cross_matrix(model.kernel, seen.x, new.x)
    y_new, _ = _observations(model, new)
    residual, f_var = y_new - mean(factor, K_cx), variance(factor, K_cx, diagonal(model.kernel, new.x))
    return Residuals.of(new, residual.square(), f_var)


def _observations(model: CVGP, rows: Rows[Tensor]) -> tuple[Tensor, Tensor]:
    """Outputs without the prior mean [n, Q], and the precisions [n] of rows."""
    y = rows.y - prior_mean(model.mean, rows.x, rows.y)
    y = y[:, None] if y.ndim == 1 else y  # there may be no rows
    noise = model.total_noise(rows.noise_variance)
    return y, bounds.weigh(noise, rows.x[:, 0], sample_weight=rows.sample_weight).precision
