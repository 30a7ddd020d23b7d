"""The ELBO is that of GPyTorch's SVGP whose q(u) is the coreset's posterior at the pseudo-inputs."""

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.variational import CholeskyVariationalDistribution, UnwhitenedVariationalStrategy, VariationalStrategy
from torch import Tensor

from cvgp import CVGP, Coreset
from cvgp.gp import posterior
from cvgp.gp.kernels import square_matrix


class SVGP(gpytorch.models.ApproximateGP):
    """GPyTorch's SVGP with the kernel and likelihood of a CVGP model, no jitter, and a given q(u) = N(m, S)."""

    def __init__(self, cvgp: CVGP, strategy: type, m: Tensor, S: Tensor) -> None:
        q = CholeskyVariationalDistribution(len(m)).double()
        q.variational_mean.data = m
        q.chol_variational_covar.data = torch.linalg.cholesky(S)
        super().__init__(strategy(self, cvgp.X_c.detach(), q, jitter_val=0.0))
        # Otherwise the first call would replace q(u) by the prior.
        self.variational_strategy.variational_params_initialized.fill_(1)
        self.mean, self.kernel = cvgp.mean, cvgp.kernel

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


def svgp_elbo(model: CVGP, strategy: type, x: Tensor, y: Tensor, num_data: int) -> Tensor:
    K_cc = square_matrix(model.kernel, model.X_c)
    factor = model.process().factor
    m, S = posterior.mean(factor, K_cc), posterior.covariance(factor, K_cc, K_cc)
    if strategy is VariationalStrategy:  # its u is whitened
        L = torch.linalg.cholesky(K_cc)
        m = torch.linalg.solve(L, m)
        S = torch.linalg.solve(L, torch.linalg.solve(L, S).mT)
    elif not isinstance(model.mean, gpytorch.means.ZeroMean):
        m = m + model.mean(model.X_c)
    svgp = SVGP(model, strategy, m, S).train()
    return num_data * gpytorch.mlls.VariationalELBO(model.likelihood, svgp, num_data)(svgp(x), y)


@pytest.mark.parametrize(
    "strategy", [VariationalStrategy, UnwhitenedVariationalStrategy], ids=["whitened", "unwhitened"]
)
@pytest.mark.parametrize("kernel", ["rbf", "matern32"])
@pytest.mark.parametrize("num_data", [15, 200], ids=["full data", "minibatch"])
@pytest.mark.parametrize("constant", [None, 0.7], ids=["zero mean", "constant mean"])
def test_elbo_is_gpytorchs(strategy: type, kernel: str, num_data: int, constant: float | None) -> None:
    rng = np.random.default_rng(2)
    coreset = Coreset(rng.normal(size=(4, 2)), rng.normal(size=4), rng.uniform(0.5, 4.0, size=4))
    mean = None
    if constant is not None:
        mean = gpytorch.means.ConstantMean().double()
        mean.constant = constant
    model = CVGP(coreset, kernel, mean=mean)
    x, y = torch.as_tensor(rng.normal(size=(15, 2))), torch.as_tensor(rng.normal(size=15))
    with torch.no_grad():
        ours, theirs = model.elbo(x, y, num_data), svgp_elbo(model, strategy, x, y, num_data)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
