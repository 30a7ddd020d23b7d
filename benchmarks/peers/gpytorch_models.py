"""GPyTorch's sparse models, with the starting point that they are given; imports nothing of cvgp."""

from collections.abc import Mapping

import numpy as np
import torch
from gpytorch.constraints import Positive
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import InducingPointKernel, Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.models import ApproximateGP, ExactGP
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["LEAST_START_NOISE", "SGPR", "SVGP", "start_kernel", "start_likelihood"]

LEAST_START_NOISE = 2e-4
"""Twice GPyTorch's noise floor, since nothing can be learned from the floor itself."""


class SVGP(ApproximateGP):  # type: ignore[misc]
    """The whitened strategy with a full Cholesky factor."""

    def __init__(self, inducing: Tensor, kernel: Kernel) -> None:
        distribution = CholeskyVariationalDistribution(len(inducing))
        super().__init__(VariationalStrategy(self, inducing, distribution, learn_inducing_locations=True))
        self.mean = ZeroMean()
        self.kernel = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior."""
        return MultivariateNormal(self.mean(x), self.kernel(x))


class SGPR(ExactGP):  # type: ignore[misc]
    """Titsias' bound on all rows."""

    def __init__(self, x: Tensor, y: Tensor, likelihood: GaussianLikelihood, inducing: Tensor, kernel: Kernel) -> None:
        super().__init__(x, y, likelihood)
        self.mean = ZeroMean()
        self.kernel = InducingPointKernel(kernel, inducing_points=inducing, likelihood=likelihood)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior."""
        return MultivariateNormal(self.mean(x), self.kernel(x))


def start_kernel(name: str, start: Mapping[str, NDArray[np.float64]]) -> Kernel:
    """An ARD kernel with logarithmic parameters, as ours has, at the given values."""
    shared = {"ard_num_dims": len(start["lengthscales"]), "lengthscale_constraint": _log_positive()}
    base = RBFKernel(**shared) if name == "rbf" else MaternKernel(nu={"matern32": 1.5, "matern52": 2.5}[name], **shared)
    kernel = ScaleKernel(base, outputscale_constraint=_log_positive()).double()
    base.lengthscale = torch.as_tensor(start["lengthscales"])
    kernel.outputscale = float(start["outputscale"])
    return kernel


def start_likelihood(start: Mapping[str, NDArray[np.float64]]) -> GaussianLikelihood:
    """The noise at its given value, where GPyTorch's floor allows."""
    likelihood = GaussianLikelihood().double()
    likelihood.noise = max(float(start["noise"]), LEAST_START_NOISE)
    return likelihood


def _log_positive() -> Positive:
    return Positive(transform=torch.exp, inv_transform=torch.log)
