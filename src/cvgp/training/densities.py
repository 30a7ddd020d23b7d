"""Densities of rows that a model has not seen: what starts and finished fits are judged by."""

import math

import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.gp.kernels import NOISE_FLOOR
from cvgp.gp.model import CVGP

__all__ = ["constant_density", "is_clearly_better", "mean_density", "row_densities", "variance_of_y", "weighted_mean"]

NO_VARIANCE = 1e-20


def mean_density(model: CVGP, rows: Rows[Tensor]) -> float:
    """Mean over rows and outputs of log p(y | x), in nats; rows count by their weights."""
    return weighted_mean(row_densities(model, rows), rows)


@torch.no_grad()
def row_densities(model: CVGP, rows: Rows[Tensor]) -> Tensor:
    """Log p(y | x) of each row, in nats, the mean over outputs `[n]`."""
    prediction = model.process()(rows.x)
    noise = model.total_noise(rows.noise_variance)
    variance = prediction.variance + noise  # [n], shared by all outputs
    error = (rows.y - prediction.mean).reshape(len(rows.y), -1)
    return _log_normal(error, variance[:, None]).mean(1)


def is_clearly_better(densities: Tensor, others: Tensor, rows: Rows[Tensor], *, errors: float) -> bool:
    """Whether a model's densities of rows are above another's by more than some standard errors of the difference."""
    difference = densities - others  # [n], of the same rows: what makes a row hard for both cancels
    gain = weighted_mean(difference, rows)
    weight = torch.ones_like(difference) if rows.sample_weight is None else rows.sample_weight
    error = (weight * (difference - gain)).square().sum().sqrt() / weight.sum()
    return gain > errors * error.item()


def constant_density(rows: Rows[Tensor]) -> float:
    """What :func:`mean_density` would be of the best constant with the best constant noise."""
    variance = variance_of_y(rows)
    # Of outputs that are constant no model is asked to learn less noise than there may be.
    return -0.5 * math.log(2.0 * math.pi * math.e * (variance if variance > NO_VARIANCE else NOISE_FLOOR))


def variance_of_y(rows: Rows[Tensor]) -> float:
    """The variance of all outputs together; rows count by their weights."""
    centre = weighted_mean(rows.y, rows)
    return weighted_mean((rows.y - centre).square(), rows)


def weighted_mean(values: Tensor, rows: Rows[Tensor]) -> float:
    """The mean over rows, by their weights, and over what each row has."""
    per_row = values.reshape(len(values), -1).mean(1)
    if rows.sample_weight is None:
        return per_row.mean().item()
    return ((rows.sample_weight * per_row).sum() / rows.sample_weight.sum()).item()


def _log_normal(error: Tensor, variance: Tensor) -> Tensor:
    return -0.5 * ((2.0 * math.pi * variance).log() + error.square() / variance)
