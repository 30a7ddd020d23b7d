"""A posterior in the user's units, beside its model."""

import numpy as np
import pytest
import sklearn
import torch
from gpytorch.kernels import CosineKernel, Kernel, RBFKernel

from cvgp import CVGP, Coreset, CVGPRegressor, TrainingOptions
from cvgp.data.scaling import Scaling
from cvgp.estimators import fitted
from cvgp.estimators.fitted import FittedGP
from cvgp.gp.kernels import make_kernel

M, D = 6, 2
rng = np.random.default_rng(2)
X = rng.normal(size=(11, D)) * [10.0, 0.1] + [100.0, 5.0]
SCALING = Scaling(np.array([100.0, 5.0]), np.array([10.0, 0.1]), np.array([-3.0, 8.0]), np.array([50.0, 0.2]))


def make_gp(kernel: Kernel | None = None, dtype: torch.dtype = torch.float64) -> FittedGP:
    draws = np.random.default_rng(4)
    coreset = Coreset(draws.normal(size=(M, D)), draws.normal(size=(M, 2)), draws.uniform(1.0, 5.0, size=M))
    if kernel is None:
        kernel = make_kernel("rbf", D)
        kernel.base_kernel.lengthscale = torch.tensor([0.5, 2.0], dtype=torch.float64)
    return FittedGP(CVGP(coreset, kernel), SCALING, dtype)


def test_moments_are_those_of_the_model_in_the_users_units() -> None:
    gp = make_gp()
    with torch.no_grad():
        own = gp.model.posterior(torch.tensor((X - [100.0, 5.0]) / [10.0, 0.1]))
    mean, variance = gp.mean_and_variance(X)
    np.testing.assert_allclose(mean, own.mean.detach().numpy() * [50.0, 0.2] + [-3.0, 8.0], rtol=1e-9)
    np.testing.assert_allclose(variance, own.variance.detach().numpy()[:, None] * [2500.0, 0.04], rtol=1e-9)
    np.testing.assert_array_equal(gp.mean(X), mean)
    np.testing.assert_allclose(np.diagonal(gp.covariance(X)).T, variance, rtol=1e-9)
    np.testing.assert_allclose(gp.noise_variance, gp.model.noise.item() * np.array([2500.0, 0.04]))


@pytest.mark.parametrize("rows", [1, 4])
def test_predictions_do_not_depend_on_the_chunks(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make_gp().mean_and_variance(X)
    monkeypatch.setattr(fitted, "CHUNK_ROWS", rows)
    for found, expected in zip(make_gp().mean_and_variance(X), whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_coreset_and_lengthscales_are_in_the_users_units() -> None:
    gp = make_gp()
    own, users = gp.model.coreset, gp.coreset
    np.testing.assert_allclose(users.X, own.X * [10.0, 0.1] + [100.0, 5.0])
    np.testing.assert_allclose(users.y, own.y * [50.0, 0.2] + [-3.0, 8.0])
    np.testing.assert_array_equal(users.beta, own.beta)
    np.testing.assert_allclose(gp.lengthscales, [5.0, 0.2])
    np.testing.assert_allclose(make_gp(make_kernel("rbf", D, ard=False)).lengthscales, [10.0, 0.1])
    assert make_gp((RBFKernel() + CosineKernel()).double()).lengthscales is None


def test_a_notebook_shows_the_facts_of_a_fit_beside_the_diagram_of_scikit_learn() -> None:
    x = np.linspace(0, 6, 40)[:, None]
    model = CVGPRegressor(8, random_state=0, training=TrainingOptions(max_iter=5))
    assert "points for" not in model._repr_mimebundle_()["text/html"]
    model.fit(x, np.sin(x[:, 0]))
    shown = model._repr_mimebundle_()["text/html"]
    assert "sk-" in shown
    assert "8 points for 40 rows" in shown
    assert all(f">{name}</th>" in shown for name, _ in model.decisions_)
    with sklearn.config_context(display="text"):
        assert list(model._repr_mimebundle_()) == ["text/plain"]
