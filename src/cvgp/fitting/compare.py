"""How well models predict rows that they have not seen, and the one rule by which a model is better than another."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.gp import bounds
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import NOISE_FLOOR, cross_matrix, diagonal, prior_mean, square_matrix
from cvgp.gp.model import CVGP
from cvgp.gp.posterior import factorize, leave_one_out, leave_one_out_exact, mean, variance

LARGEST_GAIN = 3.0  # nats that one row may count for, so that no single outlier decides
STANDARD_ERRORS = 2.0  # from which on a difference is clear
SMALLEST_VARIANCE = 1e-20  # outputs of a smaller variance are taken for constant


class Scores(NamedTuple):
    """How well a model predicts rows that it has not seen."""

    densities: Tensor  # [n], log p(y | x) in nats, the mean over outputs
    squares: Tensor  # [n], squared errors, the mean over outputs
    weight: Tensor  # [n]
    cluster: Tensor | None = None  # [n], within which rows are alike

    @classmethod
    def of(cls, rows: Rows[Tensor], densities: Tensor, squares: Tensor | None = None) -> "Scores":
        """Scores of rows, which count by their weights, and clusters equally; of classes there are no squares."""
        squares = -densities if squares is None else squares
        return cls(densities, squares, weight_of(rows) * cluster_weight(rows), rows.cluster)

    @property
    def density(self) -> float:
        """Mean log density, in nats per row."""
        return _mean(self.densities, self.weight)

    @staticmethod
    def join(parts: Sequence["Scores"]) -> "Scores":
        """Scores of the rows of all parts."""
        columns = zip(*parts, strict=True)
        return Scores(*(None if values[0] is None else torch.cat(values) for values in columns))  # type: ignore[arg-type]

    @property
    def error(self) -> float:
        """Standard error of the mean log density."""
        return _standard_error(self.densities, self.weight, self.cluster)


class Comparison(NamedTuple):
    """By how much A is ahead of B, in nats and in squared error per row, each with its standard error."""

    gain: float
    gain_error: float
    square_gain: float
    square_error: float
    raw_gain: float  # with no limit on what one row counts for

    @property
    def is_clear(self) -> bool:
        """Whether A is clearly more likely, and neither less likely by its worst rows nor clearly less accurate."""
        is_likelier = self.is_likelier(STANDARD_ERRORS) and self.raw_gain > 0.0
        return is_likelier and -self.square_gain <= STANDARD_ERRORS * self.square_error

    def is_likelier(self, errors: float = 1.0, margin: float = 0.0) -> bool:
        """Whether A is more likely by more than a number of standard errors, and by more than a margin in nats."""
        return self.gain > max(errors * self.gain_error, margin)


def compare(a: Scores, b: Scores) -> Comparison:
    """Compare two models by their scores of the same rows."""
    if not len(a.densities):
        return Comparison(0.0, math.inf, 0.0, math.inf, 0.0)
    difference = torch.nan_to_num(a.densities - b.densities, nan=0.0)
    gain = difference.clamp(-LARGEST_GAIN, LARGEST_GAIN)
    square = b.squares - a.squares
    return Comparison(
        _mean(gain, a.weight),
        _standard_error(gain, a.weight, a.cluster),
        _mean(square, a.weight),
        _standard_error(square, a.weight, a.cluster),
        _mean(difference, a.weight),
    )


def _mean(values: Tensor, weight: Tensor) -> float:
    return ((weight * values).sum() / weight.sum()).item()


def _standard_error(values: Tensor, weight: Tensor, cluster: Tensor | None = None) -> float:
    center = (weight * values).sum() / weight.sum()
    deviations = weight * (values - center)
    if cluster is not None:  # only clusters are independent
        labels, place = cluster.unique(return_inverse=True)
        deviations = deviations.new_zeros(len(labels)).index_add(0, place, deviations)
    return (deviations.square().sum().sqrt() / weight.sum()).item()


class Residuals(NamedTuple):
    """Rows with their residuals when other rows predict them."""

    x: Tensor  # [n, D]
    error: Tensor  # [n, Q]
    f_var: Tensor  # [n]
    known: Tensor  # [n], known noise variance
    weight: Tensor  # [n]
    cluster: Tensor | None = None  # [n]

    @property
    def square(self) -> Tensor:
        """Squared residuals [n, Q]."""
        return self.error.square()

    def take(self, index: Tensor) -> "Residuals":
        """Some of the rows."""
        return Residuals(*(None if part is None else part[index] for part in self))  # type: ignore[arg-type]

    @staticmethod
    def of(rows: Rows[Tensor], error: Tensor, f_var: Tensor) -> "Residuals":
        """Residuals of rows, each left out with all its copies, which would predict it without an error.

        Clusters count equally, whatever their sizes.
        """
        known = torch.zeros_like(f_var) if rows.noise_variance is None else rows.noise_variance
        weight = torch.ones_like(f_var) if rows.sample_weight is None else rows.sample_weight.clamp_max(1.0)
        return Residuals(rows.x, error, f_var, known, weight * cluster_weight(rows), rows.cluster)


def folds_of(rows: Rows[Tensor] | Residuals, count: int, rng: np.random.Generator | None = None) -> Tensor:
    """Numbers of folds [n], which do not share clusters; by turns, or random."""
    labels = place = torch.arange(len(rows.x), device=rows.x.device)
    if rows.cluster is not None:
        labels, place = rows.cluster.unique(return_inverse=True)
    order = np.arange(len(labels)) if rng is None else rng.permutation(len(labels))
    return torch.as_tensor(order % count, device=rows.x.device)[place]


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
    clusters = () if are_new else members(rows)
    left_out = leave_one_out(psi, k_xx, y, precision, solution.C_inv, solution.C_inv_b, clusters)
    return Residuals.of(rows, left_out.residual, left_out.variance)


@torch.no_grad()
def exact_residuals(model: CVGP, rows: Rows[Tensor]) -> Residuals:
    """Residuals of each row when the exact GP of all others predicts it."""
    K = square_matrix(model.kernel, rows.x)
    left_out = leave_one_out_exact(K, *_observations(model, rows), members(rows))
    return Residuals.of(rows, left_out.residual, left_out.variance)


@torch.no_grad()
def exact_residuals_of_new(model: CVGP, seen: Rows[Tensor], new: Rows[Tensor]) -> Residuals:
    """Residuals of new rows under the exact GP of those that were seen."""
    y, precision = _observations(model, seen)
    factor = factorize(square_matrix(model.kernel, seen.x), precision, y)
    K_cx = cross_matrix(model.kernel, seen.x, new.x)
    y_new, _ = _observations(model, new)
    residual, f_var = y_new - mean(factor, K_cx), variance(factor, K_cx, diagonal(model.kernel, new.x))
    return Residuals.of(new, residual, f_var)


def _observations(model: CVGP, rows: Rows[Tensor]) -> tuple[Tensor, Tensor]:
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
    return Scores.of(rows, log_normal(error, variance[:, None]).mean(1), error.square().mean(1))


@torch.no_grad()
def leave_one_out_scores(model: CVGP, rows: Rows[Tensor]) -> Scores:
    """Scores of each row under the exact GP of all others, in closed form."""
    found = exact_residuals(model, rows)
    variance = found.f_var + model.total_noise(rows.noise_variance)
    densities = log_normal(found.error, variance[:, None]).mean(1)
    return Scores(densities, found.square.mean(1), found.weight, found.cluster)


def simple_densities(rows: Rows[Tensor]) -> tuple[float, float]:
    """Mean log density of rows under the best constant, and of each under the least-squares line of the others."""
    x, constant, line = torch.cat([torch.ones_like(rows.x[:, :1]), rows.x], 1), constant_density(rows), -math.inf
    if len(x) > 2 * x.shape[1]:
        left, size, _ = torch.linalg.svd(x, full_matrices=False)
        left = left[:, size > 1e-10 * size.max()]  # [n, rank], an orthonormal basis of the columns
        leverage = left.square().sum(1).clamp_max(1.0 - 1e-9)  # [n]
        y = rows.y.reshape(len(x), -1)
        error = (y - left @ (left.mT @ y)) / (1.0 - leverage)[:, None]  # leave-one-out residuals
        line = constant_density(rows._replace(y=torch.cat([error, -error]), sample_weight=None))
    return constant, line


def constant_density(rows: Rows[Tensor]) -> float:
    """Mean log density of rows under the best constant with the best constant noise."""
    variance = variance_of_y(rows)
    # No model can learn less noise than the floor from constant outputs.
    return -0.5 * math.log(2.0 * math.pi * math.e * (variance if variance > SMALLEST_VARIANCE else NOISE_FLOOR))


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


def weight_of(rows: Rows[Tensor]) -> Tensor:
    """The weights of rows [n]; one by default."""
    return torch.ones_like(rows.x[:, 0]) if rows.sample_weight is None else rows.sample_weight


def members(rows: Rows[Tensor]) -> list[Tensor]:
    """The row numbers [n_g] of each cluster; none if rows have no clusters."""
    if rows.cluster is None:
        return []
    labels, place = rows.cluster.unique(return_inverse=True)
    return list(place.argsort(stable=True).split(place.bincount(minlength=len(labels)).tolist()))


def cluster_weight(rows: Rows[Tensor]) -> Tensor | float:
    """Weights [n] under which all clusters of these rows count the same; their mean is one."""
    if rows.cluster is None:
        return 1.0
    _, place, sizes = rows.cluster.unique(return_inverse=True, return_counts=True)
    weight: Tensor = len(place) / (len(sizes) * sizes.to(torch.float64))
    return weight[place]


def log_normal(error: Tensor, variance: Tensor) -> Tensor:
    """Log densities of normal errors with some variances, elementwise."""
    return -0.5 * ((2.0 * math.pi * variance).log() + error.square() / variance)
