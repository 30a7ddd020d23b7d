"""The full-matrix optimum has the bound of GPyTorch's SGPR.

Only the bound: GPyTorch's SGPR predictions carry a correction that Titsias' do not (see test_titsias.py for ours).
"""

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import (
    InducingPointKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor

from cvgp.gp import bounds
from cvgp.gp.kernels import kernel_matrices

KERNELS = {
    "ARD RBF": lambda: ScaleKernel(RBFKernel(ard_num_dims=2)),
    "Matern 3/2": lambda: ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2)),
    "sum": lambda: ScaleKernel(RBFKernel()) + LinearKernel(),
    "product": lambda: ScaleKernel(RBFKernel()) * PeriodicKernel(),
}


class SGPR(gpytorch.models.ExactGP):
    def __init__(self, x: Tensor, y: Tensor, X_c: Tensor, kernel: Kernel) -> None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = 0.2
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ZeroMean()
        self.kernel = InducingPointKernel(kernel, X_c, likelihood)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


@pytest.mark.parametrize("make_kernel", KERNELS.values(), ids=KERNELS)
def test_bound_is_gpytorchs(make_kernel) -> None:
    generator = torch.Generator().manual_seed(0)
    x, X_c = (torch.randn(n, 2, generator=generator, dtype=torch.float64) for n in (15, 4))
    y = torch.randn(15, generator=generator, dtype=torch.float64)
    kernel = make_kernel().double()
    model = SGPR(x, y, X_c, kernel).train()
    with torch.no_grad():
        theirs = 15 * gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(x), y)
        K_cc, K_cx, k_xx = kernel_matrices(kernel, X_c, x)
        weighting = bounds.weigh(model.likelihood.noise, k_xx)
        L_K_inv = bounds.whitener(K_cc)
        sums = bounds.gather(L_K_inv, K_cx, k_xx, y[:, None], weighting.precision, weighting.log_normalizer)
        ours = bounds.solve_titsias(sums, L_K_inv).value
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
