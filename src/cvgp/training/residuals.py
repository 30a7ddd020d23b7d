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
    def of(
        rows: Rows[Tensor], square: Tensor, f_var: Tensor, noise: Tensor, unexplained: Tensor | None = None
    ) -> "Residuals":
        """What is left of one copy of each row, given what other rows and the noise variance `[n]` say of it.

        A row of weight w is w copies. When one of them is left out, w - 1 others with the same y are still there. These
        are further observations of f, by which its residual and its variance become smaller by the same factor. Of a
        variance `unexplained` [n] that no row can make smaller, as a coreset has it, copies say nothing either.
        """
        known = torch.zeros_like(f_var) if rows.noise_variance is None else rows.noise_variance
        if rows.sample_weight is None:
            return Residuals(rows.x, square, f_var, known, torch.ones_like(f_var))
        copies = (rows.sample_weight - 1.0).clamp_min(0.0)
        stays = torch.zeros_like(f_var) if unexplained is None else torch.minimum(unexplained, f_var)
        shrinks = noise / (noise + copies * (f_var - stays))
        f_var = stays + (f_var - stays) * shrinks
        return Residuals(rows.x, square * shrinks.square()[:, None], f_var, known, rows.sample_weight)


@torch.no_grad()
def residuals_of(model: CVGP, statistics: Statistics, rows: Rows[Tensor], *, are_new: bool = False) -> Residuals:
    """What is left of rows when others predict them: all other rows of the fit, or all of its rows if these are new."""
    L_inv = bounds.whitener(model.jittered_covariance())
    solution = bounds.solve_titsias(statistics, L_inv)
    psi = L_inv @ cross_matrix(model.kernel, model.X_c, rows.x)  # [M, n]
    k_xx = diagonal(model.kernel, rows.x)
    y, noise, precision = _observations(model, rows)
    if are_new:
        precision = torch.zeros_like(precision)  # there is nothing to leave out
    left_out = leave_one_out(psi, k_xx, y, precision, solution.C_inv, solution.C_inv_b)
    unexplained = (k_xx - psi.square().sum(0)).clamp_min(0.0)
    return Residuals.of(rows, left_out.residual.square(), left_out.variance, noise, unexplained)


@torch.no_grad()
def residuals_left_out(model: CVGP, rows: Rows[Tensor]) -> Residuals:
    """What is left of each row when all others predict it, under the exact GP of these rows."""
    K = square_matrix(model.kernel, rows.x)
    y, noise, precision = _observations(model, rows)
    left_out = leave_one_out_exact(K, y, precision)
    return Residuals.of(rows, left_out.residual.square(), left_out.variance, noise)


@torch.no_grad()
def residuals_of_new(model: CVGP, seen: Rows[Tensor], new: Rows[Tensor]) -> Residuals:
    """What is left of new rows under the exact GP of those that were seen."""
    y, _, precision = _observations(model, seen)
    factor = factorise(square_matrix(model.kernel, seen.x), precision, y)
    K_cx = cross_matrix(model.kernel, seen.x, new.x)
    y_new, noise, _ = _observations(model, new)
    residual, f_var = y_new - mean(factor, K_cx), variance(factor, K_cx, diagonal(model.kernel, new.x))
    return Residuals.of(new, residual.square(), f_var, noise)


def _observations(model: CVGP, rows: Rows[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs without the prior mean [n, Q], the noise variance and the precisions [n] of rows."""
    y = rows.y - prior_mean(model.mean, rows.x, rows.y)
    y = y[:, None] if y.ndim == 1 else y  # there may be no rows
    noise = model.total_noise(rows.noise_variance)
    return y, noise, bounds.weigh(noise, rows.x[:, 0], sample_weight=rows.sample_weight).precision
