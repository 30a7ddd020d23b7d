"""Joint predictions with neighbours: they come from training rows, in whatever order the new rows are."""

import pickle

import numpy as np
import pytest

from cvgp import CVGPRegressor, TrainingOptions

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (300, 2))
Y = np.sin(3.0 * X[:, 0]) + 0.1 * RNG.normal(size=300)
GRID = np.column_stack([np.linspace(-2.0, 2.0, 80), np.zeros(80)])


@pytest.fixture(scope="module")
def model() -> CVGPRegressor:
    training = TrainingOptions(max_iter=5)
    return CVGPRegressor(20, n_neighbors=10, noise="constant", random_state=0, training=training).fit(X, Y)


def test_the_covariance_does_not_depend_on_the_order_of_the_rows(model: CVGPRegressor) -> None:
    order = RNG.permutation(80)
    sorted_covariance, shuffled = (model.predict(rows, return_cov=True)[1] for rows in (GRID, GRID[order]))
    np.testing.assert_allclose(shuffled, sorted_covariance[np.ix_(order, order)], rtol=1e-9, atol=1e-12)


def test_the_variances_are_those_of_each_row_by_itself(model: CVGPRegressor) -> None:
    covariance, sd = model.predict(GRID, return_cov=True)[1], model.predict(GRID, return_std=True)[1]
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), sd, rtol=1e-9)


def test_draws_of_a_sorted_grid_have_the_covariance(model: CVGPRegressor) -> None:
    expected = model.predict(GRID, return_cov=True)[1]
    draws = model.sample_y(GRID, 5000, random_state=1)
    assert np.abs(np.cov(draws) - expected).max() < 0.1 * expected.max()


def test_a_model_can_be_pickled_after_a_prediction(model: CVGPRegressor) -> None:
    expected = model.predict(GRID)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(GRID), expected)
