r"""The shape of what is left of observations: normal, or a scale mixture of normals with the same variance (§10).

.. math:: p(r \mid s) = \sum_k w_k \, N(r \mid 0, m_k s), \qquad \sum_k w_k = 1

The multipliers m form a grid over many orders of magnitude, and the weights w are learned. A Student-t is of this kind,
and so is a mixture of many good rows and a few bad ones. Scaled to :math:`\sum_k w_k m_k = 1`, it changes no means,
variances and covariances. Only densities, quantiles and draws then know of the shape.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtri
from torch import Tensor

Array = NDArray[np.float64]

GRID = tuple(4.0**power for power in range(-8, 5))
"""Multipliers of which the weights are learned. Neighbours differ by a factor of two in standard deviation."""
STEPS = 100
PRIOR_ROWS = 20.0
"""The normal distribution counts as so many rows."""
FIRST_DEGREES = 4.0
"""The shape that learning begins with is about that of a Student-t with so many degrees of freedom."""
SMALLEST, LARGEST, POINTS = 1e-8, 1e4, 8000
"""Residuals for which probabilities are tabulated."""


class Tails(NamedTuple):
    """The distribution of a residual over the square root of s; all float64."""

    multipliers: Tensor  # [K]
    weights: Tensor  # [K]

    @property
    def variance(self) -> Tensor:
        """That of this distribution `[]`."""
        return (self.weights * self.multipliers).sum()

    def cpu(self) -> "Tails":
        """On the CPU."""
        return Tails(self.multipliers.cpu(), self.weights.cpu())

    def of_variance_one(self) -> "Tails":
        """The same shape, scaled."""
        return self._replace(multipliers=self.multipliers / self.variance)

    @property
    def is_normal(self) -> bool:
        """Whether it is the standard normal distribution."""
        return len(self.weights) == 1

    def log_density(self, square: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Log density of residuals with these squares, and its derivative in the logarithm of the variance."""
        if self.is_normal:
            share = square / variance
            return -0.5 * ((2.0 * math.pi * variance).log() + share), 0.5 * (share - 1.0)
        parts = self.weights.log() + _log_normals(square / variance, self.multipliers)  # [..., K]
        most = parts.amax(-1)
        terms = (parts - most[..., None]).exp()
        total = terms.sum(-1)
        inverse = (terms @ self.multipliers.reciprocal()) / total  # of the multiplier that a residual has, expected
        return most + total.log() - 0.5 * variance.log(), 0.5 * (inverse * square / variance - 1.0)

    def from_normal(self, z: ArrayLike) -> Array:
        """What has the same rank in this distribution as z has in the standard normal one."""
        z = np.asarray(z, dtype=np.float64)
        if self.is_normal:
            return z
        sd, log_weights = self.multipliers.sqrt().cpu().numpy(), self.weights.log().cpu().numpy()
        at = np.geomspace(SMALLEST, LARGEST, POINTS)
        upper = np.logaddexp.reduce(log_weights + log_ndtr(-at[:, None] / sd), axis=1)  # log P(residual > at)
        # By the smaller of the two tails, where probabilities keep their digits.
        return np.asarray(np.sign(z) * np.interp(-log_ndtr(-np.abs(z)), -upper, at))

    def quantiles(self, levels: ArrayLike) -> Array:
        """Quantiles for probabilities between 0 and 1."""
        return self.from_normal(ndtri(np.asarray(levels, dtype=np.float64)))


def normal(like: Tensor) -> Tails:
    """The standard normal distribution."""
    one = torch.ones(1, dtype=torch.float64, device=like.device)
    return Tails(one, one)


def heavy(like: Tensor) -> Tails:
    """Tails as heavy as data may well have: where learning begins."""
    grid = torch.tensor(GRID, dtype=torch.float64, device=like.device)
    # The multipliers of a Student-t have an inverse gamma distribution; here is its density in their logarithm.
    weights = torch.softmax(-0.5 * FIRST_DEGREES * (grid.log() + 1.0 / grid), 0)
    return Tails(grid, weights).of_variance_one()


def learn_tails(square: Tensor, weight: Tensor) -> Tails:
    """The weights that make residuals of variance about one most likely, by expectation maximisation.

    Parameters
    ----------
    square
        Squared residuals over their variances, `[n, Q]`.
    weight
        How often each row counts `[n]`.
    """
    grid = torch.tensor(GRID, dtype=torch.float64, device=square.device)
    log_normals = _log_normals(square, grid).reshape(-1, len(grid))  # [n Q, K]
    count = (weight[:, None] / square.shape[1]).expand(square.shape).reshape(-1, 1)
    prior = PRIOR_ROWS * (grid == 1.0)
    # A factor of each row cancels in what its residual says of the weights; this one keeps the largest density at one.
    density = (log_normals - log_normals.amax(1, keepdim=True)).exp()
    w = torch.full_like(grid, 1.0 / len(grid))
    for _ in range(STEPS):
        share = count / (density @ w[:, None]).clamp_min(torch.finfo(w.dtype).tiny)  # [n Q, 1]
        w = w * (density.mT @ share)[:, 0] + prior
        w = w / w.sum()
    return Tails(grid, w.clamp_min(torch.finfo(w.dtype).tiny))


def _log_normals(square: Tensor, multipliers: Tensor) -> Tensor:
    """Log N(r | 0, m_k) [..., K] for squared residuals [...]."""
    return -0.5 * ((2.0 * math.pi * multipliers).log() + square[..., None] / multipliers)
