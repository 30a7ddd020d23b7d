"""Gross outliers in y, as a user meets them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import cvgp
from cvgp import CVGPRegressor
from cvgp.data.rows import Rows
from cvgp.errors import CVGPWarning
from cvgp.fitting.monitor import Run
from cvgp.fitting.outliers import find_outliers
from tests.flat_options import make_regressor

Array = NDArray[np.float64]


def make_rows(share: float, count: int = 500, seed: int = 0) -> tuple[Array, Array, Array]:
    """Inputs, observations and the function: noise of .6 in units of 2 around 10, and outliers off by about 40."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, size=(count, 2))
    f = 10.0 + 4.0 * np.sin(2.0 * x[:, 0]) + 2.0 * x[:, 1]
    wild = np.where(rng.uniform(size=count) < share, 40.0 * rng.normal(size=count), 0.0)
    return x, f + 0.6 * rng.normal(size=count) + wild, f


def regressor(**parameters: Any) -> CVGPRegressor:
    return make_regressor(**{"n_coreset": 25, "max_iter": 40, "random_state": 0} | parameters)


@pytest.fixture(scope="module")
def clean() -> CVGPRegressor:
    return regressor().fit(*make_rows(0.0)[:2])


@pytest.fixture(scope="module", params=[0.02, 0.1])
def robust(request: pytest.FixtureRequest) -> tuple[CVGPRegressor, float]:
    return regressor().fit(*make_rows(request.param)[:2]), request.param


def gaussian_fit(share: float) -> CVGPRegressor:
    return regressor(noise="constant").fit(*make_rows(share)[:2])


def rmse_of(model: CVGPRegressor) -> float:
    x, _, f = make_rows(0.0, 1000, seed=1)
    return float(np.sqrt(np.mean((model.predict(x) - f) ** 2)))


def test_the_error_is_close_to_that_of_clean_rows(clean: CVGPRegressor, robust: tuple[CVGPRegressor, float]) -> None:
    model, share = robust
    assert model.outlier_share_ == pytest.approx(share, abs=0.02, rel=0.6)
    assert rmse_of(model) < 1.3 * rmse_of(clean)
    assert rmse_of(gaussian_fit(share)) > 2.0 * rmse_of(clean)


def test_intervals_cover_observations_with_and_without_outliers(robust: tuple[CVGPRegressor, float]) -> None:
    model, share = robust
    x, y, _ = make_rows(share, 3000, seed=2)
    for level in (0.5, 0.9):
        low, high = model.predict_quantiles(x, [0.5 - 0.5 * level, 0.5 + 0.5 * level]).T
        assert np.mean((low < y) & (y < high)) == pytest.approx(level, abs=0.05)


def test_draws_have_the_quantiles_that_are_predicted(robust: tuple[CVGPRegressor, float]) -> None:
    model, _ = robust
    x = make_rows(0.0, 5, seed=4)[0]
    levels = [0.002, 0.01, 0.5, 0.99, 0.998]
    draws = np.sort(model.sample_y(x, n_samples=20_000, random_state=0), axis=1)
    expected = model.predict_quantiles(x, levels)
    shares = np.array(
        [[np.searchsorted(own, q) / 20_000 for q in row] for own, row in zip(draws, expected, strict=True)]
    )
    np.testing.assert_allclose(shares, np.broadcast_to(levels, shares.shape), atol=0.015, rtol=0.5)


def test_unseen_rows_with_outliers_are_more_likely_than_under_a_gaussian(robust: tuple[CVGPRegressor, float]) -> None:
    model, share = robust
    x, y, _ = make_rows(share, 1000, seed=2)
    gaussian = gaussian_fit(share)
    gain = model.log_predictive_density(x, y).mean() - gaussian.log_predictive_density(x, y).mean()
    assert gain > 0.5


def test_clean_rows_are_fitted_as_if_nobody_had_looked(clean: CVGPRegressor) -> None:
    assert clean.outlier_share_ == 0.0
    constant = regressor(noise="constant").fit(*make_rows(0.0)[:2])
    np.testing.assert_allclose(clean.predict(make_rows(0.0)[0]), constant.predict(make_rows(0.0)[0]), atol=0.1)


def test_growing_leaves_outliers_out_again(robust: tuple[CVGPRegressor, float], tmp_path: Path) -> None:
    model, share = robust
    model.save(tmp_path / "model.cvgp")
    grown = cvgp.load(tmp_path / "model.cvgp")
    grown.grow(40, *make_rows(share)[:2])
    assert rmse_of(grown) < 1.1 * rmse_of(model)


def test_a_merged_model_says_that_it_knows_of_no_outliers() -> None:
    x, y, _ = make_rows(0.1, 800)
    shards = [regressor(max_iter=10).fit(x[i::2], y[i::2]) for i in range(2)]
    with pytest.warns(CVGPWarning, match="no outliers"):
        merged = cvgp.merge(shards)
    assert merged.outlier_share_ == 0.0
    assert rmse_of(merged) < 0.6


def test_rare_rows_that_others_predict_are_not_outliers() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2300, 8))
    is_rare = (x[:, 0] > 1.0) & (x[:, 1] > 1.1)  # one row in fifty
    y = x[:, 0] + 0.5 * x[:, 1] + 0.1 * rng.normal(size=len(x))
    assert find_outliers(Rows(x, (y + 12.0 * is_rare)[:, None]), Run.alone()) is None
    wrong = np.where(is_rare, 12.0 * rng.normal(size=len(x)), 0.0)[rng.permutation(len(x))]
    found = find_outliers(Rows(x, (y + wrong)[:, None]), Run.alone())
    assert found is not None
    assert np.mean(found.probability[np.abs(wrong) > 3.0] > 0.5) > 0.9
