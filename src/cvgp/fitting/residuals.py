"""Residuals of rows that had no part in their own prediction, and the densities that models give to rows."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.fitting.compare import Scores
from cvgp.gp import bounds
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import NOISE_FLOOR, cross_matrix, diagonal, prior_mean, square_matrix
from cvgp.gp.model import CVGP
from cvgp.gp.posterior import factorize, leave_one_out, leave_one_out_exact, mean, variance

SMALLEST_VARIANCE = 1e-20
"""Outputs of a smaller variance are taken for constant."""


class Residuals(NamedTuple):
    """Rows with their residuals when other rows predict them."""

    x: Tensor  # [n, D]
    square: Tensor  # [n, Q], squared residuals
    f_var: Tensor  # [n]
    known: Tensor  # [n], known noise variance
    weight: Tensor  # [n]

    def take(self, index: Tensor) -> "Residuals":
        """Some of the rows."""
        return Residuals(*(part[index] for part in self))

    def mean(self, values: Tensor) -> float:
        """The weighted mean of values [n] of these rows."""
        return ((self.weight * values).sum() / self.weight.sum()).item()

    @staticmethod
    def of(rows: Rows[Tensor], square: Tensor, f_var: Tensor) -> "Residuals":
        """Residuals of rows, each left out with all its copies: a weight above one counts as one.

        If only one of several copies were left out, the others would predict it without an error. That says nothing
        about a new row, and new rows are what predictions are for.
        """
        known = torch.zeros_like(f_var) if rows.noise_variance is None else rows.noise_variance
        weight = torch.ones_like(f_var) if rows.sample_weight is None else rows.sample_weight.clamp_max(1.0)
        return Residuals(rows.x, square, f_var, known, weight)


@torch.no_grad()
def coreset_residuals(model: CVGP, statistics: Statistics, rows: Rows[Tensor], *, are_new: bool = False) -> Residuals:
    """Residuals of rows when the coreset of all other rows predicts them; of all rows, if these are new."""
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
def exact_residuals(model: CVGP, rows: Rows[Tensor]) -> Residuals:
    """Residuals of each row when the exact GP of all others predicts it."""
    K = square_matrix(model.kernel, rows.x)
    left_out = leave_one_out_exact(K, *_observations(model, rows))
    return Residuals.of(rows, left_out.residual.square(), left_out.variance)


@torch.no_grad()
def exact_residuals_of_new(model: CVGP, seen: Rows[Tensor], new: Rows[Tensor]) -> Residuals:
    """Residuals of new rows under the exact GP of those that were seen."""
    y, precision = _observations(model, seen)
    factor = factorize(square_matrix(model.kernel, seen.x), precision, y)
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


@torch.no_grad()
def model_scores(model: CVGP, rows: Rows[Tensor]) -> Scores:
    """Scores of rows under a model; rows count by their weights."""
    prediction = model.process()(rows.x)
    variance = prediction.variance + model.total_noise(rows.noise_variance)  # [n], shared by all outputs
    error = (rows.y - prediction.mean).reshape(len(rows.y), -1)
    weight = torch.ones_like(variance) if rows.sample_weight is None else rows.sample_weight
    return Scores(log_normal(error, variance[:, None]).mean(1), error.square().mean(1), weight)


@torch.no_grad()
def leave_one_out_scores(model: CVGP, rows: Rows[Tensor]) -> Scores:
    """Scores of each row under the exact GP of all others, in closed form."""
    found = exact_residuals(model, rows)
    variance = found.f_var + model.total_noise(rows.noise_variance)
    densities = -0.5 * ((2.0 * math.pi * variance).log()[:, None] + found.square / variance[:, None]).mean(1)
    return Scores(densities, found.square.mean(1), found.weight)


def constant_density(rows: Rows[Tensor]) -> float:
    """Mean log density of rows under the best constant with the best constant noise."""
    variance = variance_of_y(rows)
    # No model can learn less noise than the floor from constant outputs.
    return -0.5 * math.log(2.0 * math.pi * math.e * (variance if variance > SMALLEST_VARIANCE else NOISE_FLOOR))


def linear_density(rows: Rows[Tensor]) -> float:
    """Mean log density of each row under the least-squares line of the others; minus infinity if they are too few."""
    x = torch.cat([torch.ones_like(rows.x[:, :1]), rows.x], 1)
    if len(x) <= 2 * x.shape[1]:
        return -math.inf
    left, size, _ = torch.linalg.svd(x, full_matrices=False)
    left = left[:, size > 1e-10 * size.max()]  # [n, rank], an orthonormal basis of the columns
    leverage = left.square().sum(1).clamp_max(1.0 - 1e-9)  # [n]
    y = rows.y.reshape(len(x), -1)
    error = (y - left @ (left.mT @ y)) / (1.0 - leverage)[:, None]  # leave-one-out residuals
    return constant_density(rows._replace(y=torch.cat([error, -error]), sample_weight=None))


def variance_of_y(rows: Rows[Tensor]) -> float:
    """The weighted variance of all outputs together."""
    center = weighted_mean(rows.y, rows)
    return weighted_mean((rows.y - center).square(), rows)


def weighted_mean(values: Tensor, rows: Rows[Tensor]) -> float:
    """The weighted mean over rows, and over the outputs of each."""
    per_row = values.reshape(len(values), -1).mean(1)
    if rows.sample_weight is None:
        return per_row.mean().item()
    return ((rows.sample_weight * per_row).sum() / rows.sample_weight.sum()).item()


def log_normal(error: Tensor, variance: Tensor) -> Tensor:
    """Log densities of normal errors with some variances, elementwise."""
    return -0.5 * ((2.0 * math.pi * variance).log() + error.square() / variance)
