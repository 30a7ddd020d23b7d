from collections.abc import Callable

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, RBFKernel, RFFKernel, ScaleKernel

from cvgp.gp import posterior
from cvgp.gp.kernels import evaluate
from experiments.paper.weight_space import feature_map, weight_posterior
from tests import reference as ref

D, NOISE = 3, 0.1
KERNELS: dict[str, Callable[[], Kernel]] = {
    "linear": LinearKernel,
    "linear ard": lambda: LinearKernel(ard_num_dims=D),
    "scaled linear": lambda: ScaleKernel(LinearKernel()),
    "random features": lambda: RFFKernel(num_samples=4, num_dims=D),
    "scaled random features ard": lambda: ScaleKernel(RFFKernel(num_samples=4, num_dims=D, ard_num_dims=D)),
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


def test_the_inner_product_of_features_is_the_kernel(kernel: Kernel) -> None:
    features = feature_map(kernel, D)
    torch.testing.assert_close(features(Sites.X_c) @ features(Sites.x).mT, evaluate(kernel, Sites.X_c, Sites.x))


def test_a_kernel_without_finite_features_is_refused() -> None:
    with pytest.raises(TypeError, match=r"RBFKernel has no finite feature map"):
        feature_map(ScaleKernel(RBFKernel()), 2)


def test_the_posterior_is_bayesian_linear_regression(kernel: Kernel) -> None:
    Phi_c = feature_map(kernel, D)(Sites.X_c)
    found = weight_posterior(Phi_c, Sites.beta / NOISE, Sites.y_c)
    expected = ref.weight_space_posterior(Phi_c.detach().numpy(), Sites.y_c.numpy(), Sites.beta.numpy(), NOISE)
    for part, reference in zip(found, expected, strict=True):
        np.testing.assert_allclose(part.detach().numpy(), reference, rtol=1e-8, atol=1e-9)


def test_predictions_and_divergence_are_those_of_function_space(kernel: Kernel) -> None:
    features = feature_map(kernel, D)
    Phi_c, Phi_x = features(Sites.X_c), features(Sites.x)
    found = weight_posterior(Phi_c, Sites.beta / NOISE, Sites.y_c)
    factor = posterior.factorize(evaluate(kernel, Sites.X_c, Sites.X_c), Sites.beta / NOISE, Sites.y_c)
    K_cx, K_xx = evaluate(kernel, Sites.X_c, Sites.x), evaluate(kernel, Sites.x, Sites.x)
    torch.testing.assert_close(Phi_x @ found.mean, posterior.mean(factor, K_cx))
    torch.testing.assert_close(Phi_x @ found.covariance @ Phi_x.mT, posterior.covariance(factor, K_cx, K_xx))
    torch.testing.assert_close(found.kl, posterior.kl_divergence(factor))
