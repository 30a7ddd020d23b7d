"""The Gaussian likelihood as cvgp uses it."""

import math

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import GaussianLikelihood

from cvgp.errors import InvalidInputError

__all__ = ["NOISE_FLOOR", "gaussian_likelihood"]

NOISE_FLOOR = 1e-8
"""Smallest learned noise variance; GPyTorch's own floor of 1e-4 is above what near-noiseless data need."""


def gaussian_likelihood(noise: float = 0.1) -> GaussianLikelihood:
    """GPyTorch's Gaussian likelihood in float64, with the logarithm of the noise variance as its parameter."""
    if not NOISE_FLOOR < noise < math.inf:
        raise InvalidInputError(f"noise is a variance, finite and above the floor of {NOISE_FLOOR}; got {noise}.")
    constraint = GreaterThan(NOISE_FLOOR, transform=torch.exp, inv_transform=torch.log)
    likelihood = GaussianLikelihood(noise_constraint=constraint).double()
    likelihood.noise = torch.tensor(noise, dtype=torch.float64)  # GPyTorch would round a float to float32
    return likelihood
