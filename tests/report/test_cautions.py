from copy import deepcopy

import numpy as np
import pytest

from cvgp import CVGPRegressor, TrainingOptions
from cvgp.gp.kernels import NOISE_FLOOR

X = np.random.default_rng(0).uniform(-1, 1, (150, 2))
Y = X[:, 0] + 0.1 * np.random.default_rng(1).normal(size=150)
SHIFTED = np.where(np.arange(50) < 3, 5.0, 0.0)


@pytest.fixture(scope="module")
def model() -> CVGPRegressor:
    return CVGPRegressor(
        12, noise="constant", n_neighbors=0, random_state=0, training=TrainingOptions(max_iter=10)
    ).fit(X[:100], Y[:100])


def warnings_of(model: CVGPRegressor, X: np.ndarray, y: np.ndarray, **options: object) -> str:
    return " ".join(model.report(X, y, **options).cautions)


def test_rows_like_the_training_rows_give_no_warning_about_rows(model: CVGPRegressor) -> None:
    found = warnings_of(model, X[100:], Y[100:])
    assert "outside the range" not in found
    assert "differ from" not in found


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        (X[100:] + np.outer(SHIFTED, [0.0, 1.0]), Y[100:], "“x1” (3 rows)"),
        (np.column_stack([X[100:, 0], 0.5 + 0.5 * X[100:, 1]]), Y[100:], "in the distribution of “x1”"),
        (X[100:], Y[100:] + 1.0, "The target is distributed differently"),
        (X[100:], Y[100:] + 1.0, "they are too narrow here"),
    ],
    ids=["range", "drift", "target", "intervals"],
)
def test_rows_unlike_the_training_rows_are_reported(
    model: CVGPRegressor, x: np.ndarray, y: np.ndarray, words: str
) -> None:
    assert words in warnings_of(model, x, y)


def test_training_rows_are_recognized(model: CVGPRegressor) -> None:
    assert "100% of these rows are training rows" in warnings_of(model, X[:50], Y[:50], train=(X[:100], Y[:100]))


def test_noise_at_its_floor_and_unused_points_are_reported(model: CVGPRegressor) -> None:
    changed = deepcopy(model)
    changed.model_.likelihood.noise = 1.5 * NOISE_FLOOR
    changed.model_.raw_beta.data[:2] = -30.0
    changed._gp = changed._gp.with_model(changed.model_)
    found = warnings_of(changed, X[100:], Y[100:])
    assert "The noise is at its floor" in found
    assert "2 of 12 pseudo-points have next to no weight" in found


def test_a_line_that_is_better_is_reported() -> None:
    y = 5.0 * X[:, 0]
    poor = CVGPRegressor(1, noise="constant", n_neighbors=0, random_state=0, training=TrainingOptions(max_iter=1)).fit(
        X[:100], y[:100]
    )
    assert "A linear model has a lower RMSE" in warnings_of(poor, X[100:], y[100:])
