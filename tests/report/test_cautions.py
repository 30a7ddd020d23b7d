from copy import deepcopy

import numpy as np
import pytest

from cvgp import CVGPRegressor
from cvgp.estimators.columns_seen import ColumnsSeen
from cvgp.gp.kernels import NOISE_FLOOR
from cvgp.report.cautions import distance

X = np.random.default_rng(0).uniform(-1, 1, (150, 2))
Y = X[:, 0] + 0.1 * np.random.default_rng(1).normal(size=150)


@pytest.fixture(scope="module")
def model() -> CVGPRegressor:
    return CVGPRegressor(12, max_iter=10, noise="constant", neighbors=0, random_state=0).fit(X[:100], Y[:100])


def warnings_of(model: CVGPRegressor, X: np.ndarray, y: np.ndarray, **options: object) -> str:
    return " ".join(model.report(X, y, **options).warnings)


def test_rows_like_those_of_the_fit_give_no_warning_of_rows(model: CVGPRegressor) -> None:
    found = warnings_of(model, X[100:], Y[100:])
    assert "outside the range" not in found
    assert "differ from those of the fit" not in found


def test_inputs_outside_the_range_are_counted_by_column(model: CVGPRegressor) -> None:
    far = X[100:].copy()
    far[:3, 1] += 5.0
    assert "outside the range of the fit: x1 (3 rows)" in warnings_of(model, far, Y[100:])


def test_drift_is_named_by_column(model: CVGPRegressor) -> None:
    drifted = np.column_stack([X[100:, 0], 0.5 + 0.5 * X[100:, 1]])
    found = warnings_of(model, drifted, Y[100:])
    assert "These rows differ from those of the fit: the distribution of x1" in found


def test_another_distribution_of_the_target_is_told(model: CVGPRegressor) -> None:
    assert "The target has another distribution" in warnings_of(model, X[100:], Y[100:] + 1.0)


def test_intervals_that_hold_too_few_observations_are_told(model: CVGPRegressor) -> None:
    assert "they are too narrow here" in warnings_of(model, X[100:], Y[100:] + 1.0)


def test_rows_of_the_fit_are_recognised(model: CVGPRegressor) -> None:
    assert "100% of these rows are rows of the fit" in warnings_of(model, X[:50], Y[:50], train=(X[:100], Y[:100]))


def test_noise_at_its_floor_is_told(model: CVGPRegressor) -> None:
    exact = deepcopy(model)
    exact.model_.likelihood.noise = 1.5 * NOISE_FLOOR
    exact.gp_ = exact.gp_.with_model(exact.model_)
    assert "The noise is at its floor" in warnings_of(exact, X[100:], Y[100:])


def test_points_without_weight_are_counted(model: CVGPRegressor) -> None:
    light = deepcopy(model)
    light.model_.raw_beta.data[:2] = -30.0
    light.gp_ = light.gp_.with_model(light.model_)
    assert "2 of 12 pseudo-points have next to no weight" in warnings_of(light, X[100:], Y[100:])


def test_a_line_that_is_better_is_told() -> None:
    y = 5.0 * X[:, 0]
    poor = CVGPRegressor(1, max_iter=1, noise="constant", neighbors=0, random_state=0).fit(X[:100], y[:100])
    assert "A line has a lower RMSE" in warnings_of(poor, X[100:], y[100:])


@pytest.mark.parametrize("seed", range(3))
def test_the_distance_of_distributions_is_that_of_all_values_at_the_quantiles(seed: int) -> None:
    rng = np.random.default_rng(seed)
    known, new = rng.normal(size=4000), rng.normal(0.5, 1.0, 3000)
    quantiles = ColumnsSeen.learn(known[:, None], known[:, None]).x[:, 0]
    every = np.sort(np.concatenate([known, new]))
    apart = [np.searchsorted(np.sort(own), every, side="right") / len(own) for own in (known, new)]
    assert distance(quantiles, new) == pytest.approx(np.abs(apart[0] - apart[1]).max(), abs=0.02)


def test_values_beyond_all_that_was_seen_are_at_distance_one() -> None:
    quantiles = ColumnsSeen.learn(np.zeros((5, 1)), np.zeros((5, 1))).x[:, 0]
    assert distance(quantiles, np.ones(4)) == 1.0
    assert distance(quantiles, np.zeros(4)) == 0.0


@pytest.mark.parametrize("num_points", [25, 100], ids=["few points", "all rows"])
def test_more_points_are_advised_only_where_they_can_be_had(num_points: int) -> None:
    wave = np.sin(4.0 * X[:, 0]) + np.sin(4.0 * X[:, 1])
    settings = {"kernel": "matern12", "noise": "constant", "neighbors": 0, "random_state": 0}
    model = CVGPRegressor(num_points, **settings).fit(X[:100], wave[:100])
    assert ("more pseudo-points" in warnings_of(model, X[100:], wave[100:])) == (num_points == 25)
