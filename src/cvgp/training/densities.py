"""Densities of rows: what starts are judged by, and what a finished fit is compared with a constant and a line by."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.gp.kernels import NOISE_FLOOR
from cvgp.gp.model import CVGP

NO_VARIANCE = 1e-20
ROWS_COMPARED = 2000
MARGIN = 0.05
"""Nats per row by which a fit may stay behind a simpler model."""


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
    return log_normal(error, variance[:, None]).mean(1)


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
    # Of constant outputs no model can learn less noise than the floor.
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


class Verdict(NamedTuple):
    """Mean log densities of the same rows, in nats per row and output."""

    fit: float
    constant: float
    line: float
    """Of a linear model, each row left out in turn."""

    @property
    def is_good(self) -> bool:
        """Whether neither simpler model is clearly better."""
        return self.fit >= max(self.constant, self.line) - MARGIN

    def __str__(self) -> str:
        return (
            f"The fit gives its own rows a mean log density of {self.fit:.2f} nats. A constant has {self.constant:.2f} "
            f"and a linear model {self.line:.2f} (in standardised units)"
        )


def compare(model: CVGP, source: DataSource, count: int = ROWS_COMPARED) -> Verdict:
    """Judge a model by a sample of the rows that it was fitted to; one whose noise was given has no rival."""
    rows = source.sample(count, np.random.default_rng(0))
    if not model.likelihood.raw_noise.requires_grad:
        return Verdict(mean_density(model, rows), -math.inf, -math.inf)
    return Verdict(mean_density(model, rows), constant_density(rows), line_density(rows))


def line_density(rows: Rows[Tensor]) -> float:
    """The density of each row under the least-squares line of the others; minus infinity where they are too few."""
    x = torch.cat([torch.ones_like(rows.x[:, :1]), rows.x], 1)
    if len(x) <= 2 * x.shape[1]:
        return -math.inf
    left, size, _ = torch.linalg.svd(x, full_matrices=False)
    left = left[:, size > 1e-10 * size.max()]  # [n, rank], an orthonormal basis of the columns
    leverage = left.square().sum(1).clamp_max(1.0 - 1e-9)  # [n]
    y = rows.y.reshape(len(x), -1)
    error = (y - left @ (left.mT @ y)) / (1.0 - leverage)[:, None]  # of each row when it is left out
    return constant_density(rows._replace(y=torch.cat([error, -error]), sample_weight=None))


def log_normal(error: Tensor, variance: Tensor) -> Tensor:
    """Log densities of errors that are normal with some variances, elementwise."""
    return -0.5 * ((2.0 * math.pi * variance).log() + error.square() / variance)
