r"""Noise that depends on x: its logarithm is a smooth function of the inputs (§10).

.. math:: \log s(x) = g_0 + \phi(x)^T \gamma, \qquad \gamma \sim N(0, 1/\lambda)

with whitened features :math:`\phi = L^{-1} k(Z, x)` of a Matern kernel at a few centres Z. Far from all centres the
noise is :math:`e^{g_0}`. A prediction needs :math:`\alpha = L^{-T} \gamma` alone.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.gp.bounds import whitener
from cvgp.gp.linalg import add_jitter
from cvgp.gp.stationary import FAMILIES, StationaryKernel, cross_matrix, square_matrix

JITTER = 1e-6


class InputNoise(NamedTuple):
    """A noise variance for each x, in the model's units."""

    centres: Tensor  # [G, D]
    inverse_lengthscale: Tensor  # [D]
    alpha: Tensor  # [G]
    level: Tensor  # [], g_0
    lowest: Tensor  # [], limits of the logarithm: the range that the rows of the fit have
    highest: Tensor  # []

    def variance(self, x: Tensor) -> Tensor:
        """The noise variance at x `[..., n, D]`."""
        centres, inverse_lengthscale, alpha, level, lowest, highest = (t.to(x.dtype) for t in self)
        K = cross_matrix(_kernel(inverse_lengthscale), centres, x)  # [..., G, n]
        log_noise = level + (alpha[:, None] * K).sum(-2)
        return log_noise.clamp(lowest, highest).exp()


class Features:
    """Whitened features at given centres and lengthscales.

    Parameters
    ----------
    centres
        `[G, D]`.
    inverse_lengthscale
        `[D]`.
    """

    def __init__(self, centres: Tensor, inverse_lengthscale: Tensor) -> None:
        self.centres, self.inverse_lengthscale = centres, inverse_lengthscale
        self.kernel = _kernel(inverse_lengthscale)
        self.L_inv = whitener(add_jitter(square_matrix(self.kernel, centres), JITTER))

    def at(self, x: Tensor) -> Tensor:
        """The features of rows x, `[n, G]`."""
        return (self.L_inv @ cross_matrix(self.kernel, self.centres, x)).mT

    def noise(self, level: Tensor, gamma: Tensor, lowest: Tensor, highest: Tensor) -> InputNoise:
        """The noise of these weights of the features."""
        return InputNoise(self.centres, self.inverse_lengthscale, self.L_inv.mT @ gamma, level, lowest, highest)


def log_density(log_noise: Tensor, square: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Log density of each residual under f's variance and the noise, and its derivative in the logarithm of the noise.

    Parameters
    ----------
    log_noise
        g `[n]`.
    square
        Squared residuals `[n]`, or their means over outputs.
    variance
        What is certain to be there beside the noise: the variance of f, and known noise, `[n]`.
    """
    noise = log_noise.exp()
    total = variance + noise
    share = square / total
    return -0.5 * ((2.0 * math.pi * total).log() + share), -0.5 * (1.0 - share) * noise / total


def _kernel(inverse_lengthscale: Tensor) -> StationaryKernel:
    one = torch.ones((), dtype=inverse_lengthscale.dtype, device=inverse_lengthscale.device)
    return StationaryKernel(FAMILIES["matern32"], inverse_lengthscale, one, one)
