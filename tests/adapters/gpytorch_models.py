"""GPyTorch models with the coreset strategy, for the tests."""

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor

import cvgp
from cvgp.adapters.gpytorch import CoresetVariationalDistribution, CoresetVariationalStrategy


class Model(gpytorch.models.ApproximateGP):
    """As in GPyTorch's examples, with the strategy line changed."""

    def __init__(self, points: Tensor, kernel=None, mean=None, batch_shape=(), **strategy) -> None:
        sites = CoresetVariationalDistribution(points.size(-2), batch_shape=torch.Size(batch_shape))
        super().__init__(CoresetVariationalStrategy(self, points, sites, **strategy))
        self.mean_module = gpytorch.means.ConstantMean() if mean is None else mean
        plain = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=points.size(-1)))
        self.covar_module = plain if kernel is None else kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class DeepKernel(Model):
    """Its kernel sees features of the inputs; it counts how often it was asked."""

    def __init__(self, points: Tensor, layers: torch.nn.Module, **options) -> None:
        kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
        super().__init__(points, kernel, **options)
        self.layers = layers
        self.calls: list[torch.Size] = []

    def forward(self, x: Tensor) -> MultivariateNormal:
        self.calls.append(x.shape)
        return super().forward(self.layers(x))


def rows(n: int = 30, dims: int = 2, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Inputs and targets."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, dims, generator=generator, dtype=dtype)
    return x, 2.0 + torch.sin(x.sum(-1)) + 0.1 * torch.randn(n, generator=generator, dtype=dtype)


def pair(kernel: str = "matern32", M: int = 7, **strategy) -> tuple[cvgp.CVGP, Model]:
    """The same coreset posterior twice: as cvgp's own module, and as a model of GPyTorch; both in float64."""
    X, y = rows(M, seed=1)
    beta = torch.linspace(0.5, 9.0, M)
    mean = gpytorch.means.ConstantMean().double()
    mean.constant = 1.5
    own = cvgp.CVGP(cvgp.Coreset(X, y, beta), kernel, mean=mean)
    model = Model(X, own.kernel, mean, **strategy).double()
    model.likelihood = own.likelihood
    with torch.no_grad():
        model.variational_strategy.set_sites(own.y_c, own.site_precision)
    return own, model
