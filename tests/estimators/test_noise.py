"""Noise that depends on x, as a user meets it."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from cvgp import CVGPRegressor
from tests.flat_options import make_regressor

Array = NDArray[np.float64]


def sd_at(x: Array) -> Array:
    return np.asarray(2.0 * (0.05 + 0.3 * (1.0 + np.tanh(1.5 * x))))


def make_rows(count: int, seed: int = 0) -> tuple[Array, Array]:
    """A sine in units of 2 around 10, whose noise grows along the first of two columns."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, size=(count, 2))
    return x, 10.0 + 2.0 * np.sin(1.5 * x[:, 0]) + sd_at(x[:, 0]) * rng.normal(size=count)


def regressor(**parameters: Any) -> CVGPRegressor:
    return make_regressor(**{"n_coreset": 20, "max_iter": 40, "random_state": 0} | parameters)


@pytest.fixture(scope="module")
def fitted() -> CVGPRegressor:
    return regressor().fit(*make_rows(1500))


def test_intervals_hold_where_the_noise_is_small_and_where_it_is_large(fitted: CVGPRegressor) -> None:
    x, y = make_rows(3000, seed=1)
    mean, sd = fitted.predict(x, return_std=True)
    inside = np.abs(y - mean) < 1.645 * sd
    for low, high in ((-2.0, -0.7), (-0.7, 0.7), (0.7, 2.0)):
        third = (x[:, 0] > low) & (x[:, 0] < high)
        assert 0.84 < inside[third].mean() < 0.95
    constant = regressor(noise="constant").fit(*make_rows(1500))
    assert constant.noise_ == "constant"
    _, flat = constant.predict(x, return_std=True)
    assert (np.abs(y - mean) < 1.645 * flat)[x[:, 0] < -0.7].mean() > 0.99


def test_noise_is_returned_in_the_units_of_y(fitted: CVGPRegressor) -> None:
    x = np.column_stack([np.linspace(-1.5, 1.5, 7), np.zeros(7)])
    mean, noise = fitted.predict(x, return_noise=True)
    assert fitted.noise_ == "input-dependent"
    np.testing.assert_allclose(noise, sd_at(x[:, 0]), rtol=0.35)
    again, sd, same = fitted.predict(x, return_std=True, return_noise=True)
    _, f_sd = fitted.predict(x, return_std=True, include_noise=False)
    np.testing.assert_array_equal(mean, again)
    np.testing.assert_array_equal(noise, same)
    np.testing.assert_allclose(sd**2, f_sd**2 + noise**2)


def test_covariance_density_and_draws_have_the_noise_of_their_rows(fitted: CVGPRegressor) -> None:
    x, y = make_rows(40, seed=2)
    mean, sd = fitted.predict(x, return_std=True)
    _, cov = fitted.predict(x, return_cov=True)
    np.testing.assert_allclose(np.sqrt(cov.diagonal()), sd, rtol=1e-6)
    expected = -0.5 * (np.log(2 * np.pi * sd**2) + ((y - mean) / sd) ** 2)
    # Apart from the chance of a far larger error.
    np.testing.assert_allclose(fitted.log_predictive_density(x, y), expected, atol=0.03)
    draws = fitted.sample_y(x, 4000)
    low, high = np.quantile(draws, stats.norm.cdf([-1.0, 1.0]), axis=1)
    np.testing.assert_allclose(0.5 * (high - low), sd, rtol=0.1)


@pytest.mark.slow
def test_several_outputs_share_the_shape_of_the_noise() -> None:
    x, y = make_rows(1500)
    both = np.column_stack([y, 100.0 * y[::-1]])
    model = regressor().fit(x, np.column_stack([y, 100.0 * y]))
    _, noise = model.predict(x[:5], return_noise=True)
    assert noise.shape == (5, both.shape[1])
    np.testing.assert_allclose(noise[:, 1], 100.0 * noise[:, 0], rtol=1e-6)


def mixed_noise(count: int, rng: np.random.Generator) -> Array:
    """Half of the rows are five times as noisy as the others, and x does not say which."""
    return np.asarray(np.where(rng.uniform(size=count) < 0.5, 0.5, 0.1) * rng.normal(size=count))


@pytest.fixture(scope="module")
def with_tails() -> CVGPRegressor:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, size=(1000, 1))
    model = regressor().fit(x, np.sin(1.5 * x[:, 0]) + mixed_noise(1000, rng))
    assert model._gp.tails is not None
    return model


def test_tails_are_in_quantiles_and_so_in_intervals(with_tails: CVGPRegressor) -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(-2.0, 2.0, size=(3000, 1))
    y = np.sin(1.5 * x[:, 0]) + mixed_noise(3000, rng)
    for share in (0.5, 0.9):
        low, high = with_tails.predict_quantiles(x, [0.5 - share / 2, 0.5 + share / 2]).T
        assert ((low < y) & (y < high)).mean() == pytest.approx(
            share, abs=0.08
        )  # a normal distribution would have .68 for .5


def test_density_is_the_slope_of_the_probabilities_of_quantiles(with_tails: CVGPRegressor) -> None:
    levels = np.array([0.7, 0.7001])
    low, high = with_tails.predict_quantiles([[0.3]], levels, interval="model")[0]
    density = np.exp(with_tails.log_predictive_density([[0.3]], [0.5 * (low + high)])[0])
    assert density == pytest.approx(1e-4 / (high - low), rel=0.02)


def test_draws_have_the_quantiles_of_predictions(with_tails: CVGPRegressor) -> None:
    x, levels = [[0.3], [1.0]], [0.25, 0.75, 0.95]
    draws = with_tails.sample_y(x, 20_000)
    expected = with_tails.predict_quantiles(x, levels, interval="model")
    spread = expected[:, 2] - expected[:, 0]
    np.testing.assert_allclose(np.quantile(draws, levels, axis=1).T, expected, atol=0.03 * spread.max())


@pytest.fixture(scope="module")
def with_constant_noise() -> CVGPRegressor:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, size=(300, 1))
    model = CVGPRegressor(random_state=0).fit(x, np.sin(1.5 * x[:, 0]) + 0.1 * rng.normal(size=300))
    assert model.noise_ == "constant"
    return model


def test_a_row_far_from_its_prediction_costs_few_nats(with_constant_noise: CVGPRegressor) -> None:
    mean, sd = with_constant_noise.predict([[0.3]], return_std=True)
    for errors, most in ((14.0, 20.0), (100.0, 50.0)):
        found = with_constant_noise.log_predictive_density([[0.3]], mean + errors * sd)
        assert found > stats.norm.logpdf(0.0, scale=sd) - most


def test_the_chance_of_such_a_row_costs_next_to_nothing(with_constant_noise: CVGPRegressor) -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(-2.0, 2.0, size=(5000, 1))
    y = np.sin(1.5 * x[:, 0]) + 0.1 * rng.normal(size=5000)
    mean, sd = with_constant_noise.predict(x, return_std=True)
    lost = stats.norm.logpdf(y, mean, sd) - with_constant_noise.log_predictive_density(x, y)
    assert lost.mean() < 0.003


def test_density_quantiles_and_draws_agree_about_such_rows(with_constant_noise: CVGPRegressor) -> None:
    levels = np.array([0.9998, 0.99981])
    low, high = with_constant_noise.predict_quantiles([[0.3]], levels, interval="model")[0]
    density = np.exp(with_constant_noise.log_predictive_density([[0.3]], [0.5 * (low + high)])[0])
    assert density == pytest.approx(1e-5 / (high - low), rel=0.02)
    draws = with_constant_noise.sample_y([[0.3]], 200_000)
    assert (draws > low).mean() == pytest.approx(2e-4, rel=0.5)


def test_a_noise_that_was_asked_to_be_constant_is_normal() -> None:
    x = np.linspace(-2.0, 2.0, 120)[:, None]
    y = np.sin(1.5 * x[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=120)
    model = CVGPRegressor(noise="constant", random_state=0).fit(x, y)
    mean, sd = model.predict(x, return_std=True)
    np.testing.assert_allclose(model.log_predictive_density(x, y), stats.norm.logpdf(y, mean, sd), rtol=1e-10)
