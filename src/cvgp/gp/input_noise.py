r"""Noise that depends on x: its logarithm is a smooth function of the inputs (§10).

.. math:: \log s(x) = g_0 + \phi(x)^T \gamma, \qquad \gamma \sim N(0, 1/\lambda)

with whitened features :math:`\phi = L^{-1} k(Z, x)` of a Matern kernel at a few centres Z. Far from all centres the
noise is :math:`e^{g_0}`. A prediction needs :math:`\alpha = L^{-T} \gamma` alone.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.gp.bounds import whitener
from cvgp.gp.linalg import add_jitter
from cvgp.gp.stationary import FAMILIES, StationaryKernel, cross_matrix, square_matrix
from cvgp.gp.tails import Tails

JITTER = 1e-6


class InputNoise(NamedTuple):
    """A noise variance for each x, in the model's units, and what else residuals say of predictions."""

    centres: Tensor  # [G, D]
    inverse_lengthscale: Tensor  # [D]
    alpha: Tensor  # [G]
    level: Tensor  # [], g_0
    lowest: Tensor  # [], limits of the logarithm: the range that the rows of the fit have
    highest: Tensor  # []
    doubt: Tensor  # [], of the variance of f
    f_scale: Tensor  # [], by which the variance of f is multiplied
    f_prior: Tensor  # [], the variance of f of which nothing is known
    multipliers: Tensor  # [K], of tails of variance one
    weights: Tensor  # [K]
    constant: Tensor  # [], the noise variance of a fit with one for all x
    base: Tensor  # [], that of a model whose rows are weighed by this noise; 0 where they are not

    @property
    def tails(self) -> Tails:
        """The shape of the residuals."""
        return Tails(self.multipliers, self.weights)

    def variance(self, x: Tensor) -> Tensor:
        """The noise variance at x `[..., n, D]`."""
        centres, inverse_lengthscale, alpha, level, lowest, highest = (t.to(x.dtype) for t in self[:6])
        K = cross_matrix(_kernel(inverse_lengthscale), centres, x)  # [..., G, n]
        log_noise = level + (alpha[:, None] * K).sum(-2)
        return log_noise.clamp(lowest, highest).exp()

    def beyond_base(self, x: Tensor) -> Tensor:
        """What rows of a weighed model have beyond its constant `[n]`."""
        return (self.variance(x) - self.base.to(x.dtype)).clamp_min(0.0)

    def f_factor(self, f_var: Tensor) -> Tensor:
        """What a variance of f is to be multiplied by `[n]` (§10).

        Residuals say nothing of places far from all rows. There the variance of f is near that of the prior, and a
        factor below one gives way to one.
        """
        doubt, scale, prior = (t.to(f_var.dtype) for t in (self.doubt, self.f_scale, self.f_prior))
        known = scale * believed_share(f_var, doubt)
        return known + (1.0 - scale).clamp_min(0.0) * (f_var / prior).square()


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


def believed_share(f_var: Tensor, doubt: Tensor) -> Tensor:
    """V / (v + doubt) of a variance v of f: about all of a large one, and little of a small one (§10).

    Between near rows a kernel that is too rough says that f may vary more than it does. Far from all rows nothing is
    known, and the variance of the prior stands.
    """
    return f_var / (f_var + doubt).clamp_min(torch.finfo(f_var.dtype).tiny)


class RowDensities(NamedTuple):
    """Log densities of rows, the means over outputs, with their derivatives."""

    value: Tensor  # [n]
    in_log_noise: Tensor  # [n]
    in_f_var: Tensor  # [n]


def log_density(log_noise: Tensor, square: Tensor, f_var: Tensor, known: Tensor, tails: Tails) -> RowDensities:
    """Log density of each row under the variance of f and the noise.

    Parameters
    ----------
    log_noise
        g `[n]`, or `[]`.
    square
        Squared residuals `[n, Q]`.
    f_var
        The variance of f `[n]`.
    known
        Known noise `[n]`.
    tails
        The shape of the residuals.
    """
    noise = log_noise.exp()
    total = f_var + known + noise
    value, slope = (part.mean(1) for part in tails.log_density(square, total[:, None]))
    return RowDensities(value, slope * noise / total, slope / total)


def _kernel(inverse_lengthscale: Tensor) -> StationaryKernel:
    one = torch.ones((), dtype=inverse_lengthscale.dtype, device=inverse_lengthscale.device)
    return StationaryKernel(FAMILIES["matern32"], inverse_lengthscale, one, one)
