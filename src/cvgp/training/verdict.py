"""Whether a fit is any good: its density of rows beside that of a constant and of a linear model."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.gp.model import CVGP
from cvgp.training.densities import constant_density, mean_density

__all__ = ["Verdict", "compare"]

ROWS = 2000
MARGIN = 0.05
"""Nats per row by which a fit may stay behind a simpler model."""


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


def compare(model: CVGP, source: DataSource) -> Verdict:
    """Judge a model by a sample of the rows that it was fitted to; one whose noise was given has no rival."""
    rows = source.sample(ROWS, np.random.default_rng(0))
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
