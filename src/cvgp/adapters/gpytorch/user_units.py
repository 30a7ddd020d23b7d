"""The kernel and the mean of a fitted model, for inputs and outputs in the user's units.

Lengthscales and outputscales are turned into the user's units where that is exact. Other kernels and means keep their
own units, and get standardised inputs: a single lengthscale of columns with different units, a linear kernel, whose
origin counts, warped columns, or a kernel with priors, which hold in its own units.
"""

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.means import ConstantMean, Mean, ZeroMean
from torch import Tensor

from cvgp.adapters.gpytorch.standardised_inputs import Standardise
from cvgp.data.scaling import Scaling, no_scaling
from cvgp.estimators.units import kernel_in_units
from cvgp.gp.hyperparameters import registered_priors
from cvgp.gp.kernels import evaluate

NUM_PROBES = 16
"""Rows at which a kernel in other units is compared with the one that was fitted."""
EXACT = 1e-10


class StandardisedKernel(Kernel):  # type: ignore[misc]
    """A kernel of standardised inputs, as one of inputs in the user's units."""

    def __init__(self, base_kernel: Kernel, standardise: Standardise) -> None:
        super().__init__()
        self.base_kernel = base_kernel
        self.standardise = standardise

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The base kernel of standardised inputs."""
        # By cvgp's own code, as GPyTorch adds a jitter where one of several terms is singular.
        return evaluate(self.base_kernel, self.standardise(x1), self.standardise(x2), diag=diag)


class StandardisedMean(Mean):  # type: ignore[misc]
    """A mean of standardised inputs and outputs, in the user's units."""

    y_mean: Tensor
    y_scale: Tensor

    def __init__(self, base_mean: Mean, standardise: Standardise, y_mean: Tensor, y_scale: Tensor) -> None:
        super().__init__()
        self.base_mean = base_mean
        self.standardise = standardise
        self.register_buffer("y_mean", y_mean)
        self.register_buffer("y_scale", y_scale)

    def forward(self, x: Tensor) -> Tensor:
        """The mean [..., N] at x [..., N, D]."""
        values: Tensor = self.base_mean(self.standardise(x))
        return self.y_mean + self.y_scale * values


def kernel_of(kernel: Kernel, scaling: Scaling) -> Kernel:
    """The prior covariance in the user's units, with one outputscale for each of several outputs."""
    D, Q = len(scaling.x_mean), len(scaling.y_scale)
    standardise = Standardise(scaling)
    as_fitted = StandardisedKernel(deepcopy(kernel).cpu(), standardise)
    y_scale = torch.tensor(scaling.y_scale)
    if Q == 1:
        converted = kernel_in_units(kernel, scaling, no_scaling(D, 1))
        if _agree(converted, as_fitted, y_scale.square(), scaling):
            return converted
    plain_y = scaling._replace(y_mean=np.zeros(1), y_scale=np.ones(1))
    of_inputs = kernel_in_units(kernel, plain_y, no_scaling(D, 1))
    base = of_inputs if _agree(of_inputs, as_fitted, torch.ones(1), scaling) else as_fitted
    scaled = ScaleKernel(base, batch_shape=torch.Size([] if Q == 1 else [Q])).double()
    scaled.outputscale = y_scale.square().reshape(scaled.outputscale.shape)
    return scaled


@torch.no_grad()
def _agree(converted: Kernel, as_fitted: StandardisedKernel, factor: Tensor, scaling: Scaling) -> bool:
    """Whether a kernel in the user's units is the fitted one times a factor, at rows that look like data."""
    if registered_priors(converted) or not scaling.varies.all():
        return False
    draws = np.random.default_rng(0).standard_normal((NUM_PROBES, len(scaling.x_mean)))
    probes = torch.tensor(scaling.unscale_x(draws))
    expected = factor * evaluate(as_fitted, probes, probes)
    tolerance = EXACT * expected.abs().max().item()
    return torch.allclose(evaluate(converted, probes, probes), expected, rtol=0.0, atol=tolerance)


@torch.no_grad()
def mean_of(mean: Mean, scaling: Scaling) -> Mean:
    """The prior mean in the user's units; that of several outputs is a batch."""
    batch = torch.Size([] if len(scaling.y_mean) == 1 else [len(scaling.y_mean)])
    y_mean, y_scale = torch.tensor(scaling.y_mean).reshape(batch), torch.tensor(scaling.y_scale).reshape(batch)
    if not isinstance(mean, (ZeroMean, ConstantMean)):
        return StandardisedMean(deepcopy(mean).cpu(), Standardise(scaling), y_mean[..., None], y_scale[..., None])
    level = 0.0 if isinstance(mean, ZeroMean) else mean.constant.cpu()
    found = ConstantMean(batch_shape=batch).double()
    found.constant = y_mean + y_scale * level
    return found
