"""Calibrated intervals agree with those of crepes and MAPIE for the same model and the same calibration rows."""

import numpy as np
import pytest
from crepes import ConformalPredictiveSystem
from mapie.conformity_scores import ResidualNormalisedScore
from mapie.regression import SplitConformalRegressor
from sklearn.base import BaseEstimator, RegressorMixin

from cvgp import CVGPRegressor


def rows(num_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose noise is heavy-tailed, skewed and grows with x, so that a constant normal noise is wrong."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 3.0, size=(num_rows, 1))
    return X, np.sin(2.0 * X[:, 0]) + 0.1 * (1.0 + X[:, 0]) * (rng.gamma(1.0, size=num_rows) - 1.0)


@pytest.fixture(scope="module")
def model() -> CVGPRegressor:
    fitted = CVGPRegressor(20, noise="constant", n_neighbors=0, random_state=0).fit(*rows(400, seed=0))
    fitted.calibrate(*rows(999, seed=1))
    return fitted


class Deviation(RegressorMixin, BaseEstimator):
    """The standard deviations that a model predicts, as an estimator of residuals."""

    def __init__(self, model: CVGPRegressor) -> None:
        self.model = model

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Deviation":
        return self

    @property
    def n_features_in_(self) -> int:
        return self.model.n_features_in_

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict(X, return_std=True)[1])


def assert_close(own: np.ndarray, other: np.ndarray, sd: np.ndarray) -> None:
    """Ends of intervals may differ by a rank, and by the standard error by which one that would shrink is eased."""
    assert np.abs(own - other).max() < 0.1 * sd.max()


def test_intervals_are_those_of_a_conformal_predictive_system(model: CVGPRegressor) -> None:
    X, y = rows(999, seed=1)
    X_new, _ = rows(50, seed=2)
    mean, sd = model.predict(X, return_std=True)
    system = ConformalPredictiveSystem().fit(residuals=y - mean, sigmas=sd)
    mean_new, sd_new = model.predict(X_new, return_std=True)
    expected = system.predict_int(mean_new, sigmas=sd_new, confidence=0.9)
    assert_close(model.predict_interval(X_new, level=0.9), expected, sd_new)


def test_intervals_are_those_of_normalized_split_conformal_regression(model: CVGPRegressor) -> None:
    X, y = rows(999, seed=1)
    X_new, _ = rows(50, seed=2)
    score = ResidualNormalisedScore(residual_estimator=Deviation(model), prefit=True, sym=False)
    peer = SplitConformalRegressor(model, confidence_level=0.9, conformity_score=score, prefit=True)
    peer.conformalize(X, y)
    _, expected = peer.predict_interval(X_new)
    sd = model.predict(X_new, return_std=True)[1]
    assert_close(model.predict_interval(X_new, level=0.9), expected[:, :, 0], sd)
