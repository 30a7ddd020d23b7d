from collections.abc import Callable

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, PolynomialKernel, RBFKernel, RFFKernel, ScaleKernel
from torch import Tensor

from cvgp.errors import InvalidTypeError
from cvgp.gp.features import FeatureMap, WeightPosterior, feature_map, random_features, weight_posterior
from cvgp.gp.kernels import cross_matrix, evaluate, make_kernel, stationary_form
from cvgp.gp.stationary import FAMILIES
from tests import reference as ref

D, NOISE = 3, 0.1
KERNELS: dict[str, Callable[[], Kernel]] = {
    "linear": LinearKernel,
    "linear ard": lambda: LinearKernel(ard_num_dims=D),
    "quadratic": lambda: PolynomialKernel(power=2),
    "cubic": lambda: PolynomialKernel(power=3),
    "random features": lambda: RFFKernel(num_samples=4, num_dims=D),
    "random features ard": lambda: RFFKernel(num_samples=4, num_dims=D, ard_num_dims=D),
    "scaled": lambda: ScaleKernel(PolynomialKernel(power=2)),
    "sum": lambda: ScaleKernel(LinearKernel()) + RFFKernel(num_samples=3, num_dims=D) + PolynomialKernel(power=2),
    "scaled sum": lambda: ScaleKernel(LinearKernel() + PolynomialKernel(power=2)),
    "one column": lambda: LinearKernel(active_dims=[1]),
    "scaled columns": lambda: ScaleKernel(PolynomialKernel(power=2, active_dims=[2, 0])),
    "sum of columns": lambda: LinearKernel(active_dims=[0]) + RFFKernel(num_samples=3, num_dims=2, active_dims=[1, 2]),
}


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """A kernel in float64, its parameters away from their start."""
    torch.manual_seed(0)
    made = KERNELS[request.param]().double()
    with torch.no_grad():
        for i, parameter in enumerate(made.parameters()):
            parameter.add_(0.3 * torch.arange(parameter.numel()).reshape(parameter.shape) - 0.2 * i)
    return made


class Sites:
    """Five weighted pseudo-points, one of zero weight, and four test points."""

    rng = np.random.default_rng(6)
    X_c = torch.tensor(rng.normal(size=(5, D)))
    x = torch.tensor(rng.normal(size=(4, D)))
    y_c = torch.tensor(rng.normal(size=5))
    beta = torch.tensor([0.5, 2.0, 0.0, 7.0, 1.0], dtype=torch.float64)
    w = beta / NOISE


def both_spaces(kernel: Kernel) -> tuple[FeatureMap, WeightPosterior]:
    features = feature_map(kernel, D)
    return features, weight_posterior(features(Sites.X_c), Sites.w, Sites.y_c)


# Features.


def test_the_inner_product_of_features_is_the_kernel(kernel: Kernel) -> None:
    features = feature_map(kernel, D)
    torch.testing.assert_close(features(Sites.X_c) @ features(Sites.x).mT, evaluate(kernel, Sites.X_c, Sites.x))


@pytest.mark.parametrize("kernel", [RBFKernel(), ScaleKernel(RBFKernel()), LinearKernel() + RBFKernel()])
def test_a_kernel_without_finite_features_is_refused(kernel: Kernel) -> None:
    with pytest.raises(InvalidTypeError, match=r"RBFKernel has no finite feature map.*use random_features"):
        feature_map(kernel, 2)


# The posterior.


@pytest.mark.parametrize("quantity", ["mean", "covariance", "kl"])
def test_the_posterior_is_bayesian_linear_regression(kernel: Kernel, quantity: str) -> None:
    features, weights = both_spaces(kernel)
    arrays = (features(Sites.X_c).detach().numpy(), Sites.y_c.numpy(), Sites.beta.numpy())
    expected = dict(zip(("mean", "covariance", "kl"), ref.weight_space_posterior(*arrays, NOISE), strict=True))
    np.testing.assert_allclose(getattr(weights, quantity).detach().numpy(), expected[quantity], rtol=1e-8, atol=1e-9)


# The table.


# Random features of stationary kernels.


def kernel_error(name: str, num_features: int) -> Tensor:
    """How far the inner products of random features are from the kernel, at pairs of points of many distances."""
    kernel = make_kernel(name, D)
    kernel.outputscale = 1.8
    kernel.base_kernel.lengthscale = torch.tensor([[0.5, 1.0, 3.0]])
    if name == "rq":
        kernel.base_kernel.alpha = 0.7
    form = stationary_form(kernel, D)
    phi = random_features(form, num_features, torch.Generator().manual_seed(1))
    x = torch.linspace(0.0, 1.0, 21, dtype=torch.float64)[:, None] * torch.tensor([1.0, -2.0, 4.0])
    return (phi(x) @ phi(x).mT - cross_matrix(kernel, x, x)).detach().abs().max()


@pytest.mark.parametrize("name", FAMILIES)
def test_random_features_approximate_the_kernel(name: str) -> None:
    # The standard error of one entry is at most 1.8 / sqrt(2 * 20000) = 0.009.
    assert kernel_error(name, 20_000).item() < 0.045
