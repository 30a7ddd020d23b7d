import numpy as np
import pytest
import torch

from cvgp import CVGPRegressor
from cvgp.report.evaluated import Evaluated
from cvgp.report.tightness import tightness
from tests import reference

RNG = np.random.default_rng(0)
X = RNG.uniform(0, 6, (80, 1))
Y = 10.0 * (np.sin(X[:, 0]) + 0.3 * RNG.normal(size=80))


def rows(model: CVGPRegressor) -> Evaluated:
    return Evaluated.of(model, X[60:], Y[60:], (X[:60], Y[:60]), 0)


@pytest.fixture(scope="module")
def model() -> CVGPRegressor:
    return CVGPRegressor(8, max_iter=20, noise="constant", neighbors=0, random_state=0).fit(X[:60], Y[:60])


def test_the_exact_value_is_the_density_of_the_rows_under_the_prior(model: CVGPRegressor) -> None:
    found = tightness(rows(model))
    assert found is not None
    with torch.no_grad():
        K = model.kernel_(torch.as_tensor(X[:60])).to_dense().numpy()
    expected = reference.log_marginal(K, Y[:60] - model.gp_.scaling.y_mean[0], model.noise_variance_)
    assert found.exact == pytest.approx(expected / 60, rel=1e-6)


def test_the_bound_is_that_of_the_fit_and_below_the_exact_value(model: CVGPRegressor) -> None:
    found = tightness(rows(model))
    assert found is not None
    assert 0.0 <= found.gap < 0.5
    assert found.bound == pytest.approx(model.elbo_ / 60, abs=0.05)


def test_rows_that_a_logarithm_cannot_describe_are_left_out() -> None:
    model = CVGPRegressor(5, max_iter=3, target="log", noise="constant", random_state=0).fit(
        X[:60], np.exp(0.1 * Y[:60])
    )
    assert tightness(Evaluated.of(model, X[60:], -np.ones(20), None, 0)) is None
