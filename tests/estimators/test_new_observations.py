"""The distribution of new observations: density, quantiles and score fit together."""

import numpy as np
import pytest

from cvgp import metrics
from cvgp.data.target import IDENTITY, TargetTransform
from cvgp.estimators.new_observations import Predictive

TARGETS = [
    IDENTITY,
    TargetTransform("log"),
    TargetTransform("yeo-johnson", np.array([1.0]), np.array([2.0]), np.array([0.3])),
]


def predictive(target: TargetTransform) -> Predictive:
    return Predictive(target, np.array([[0.3]]), np.array([[0.2]]), np.array([[0.4]]))


@pytest.mark.parametrize("target", TARGETS)
def test_the_density_between_two_quantiles_is_their_probability(target: TargetTransform) -> None:
    found = predictive(target)
    low, high = found.quantiles(np.array([0.1, 0.8]))[0, 0]
    y = np.linspace(low, high, 20_001)[:, None]
    density = np.exp([found.log_density(value[None])[0, 0] for value in y])
    assert np.trapezoid(density, y[:, 0]) == pytest.approx(0.7, rel=1e-6)


@pytest.mark.parametrize("target", TARGETS)
def test_the_score_is_the_integral_of_squared_differences_of_distributions(target: TargetTransform) -> None:
    found, observed = predictive(target), 1.7
    levels = (np.arange(4000) + 0.5) / 4000
    y = found.quantiles(levels)[0, 0]
    expected = np.trapezoid((levels - (y >= observed)) ** 2, y)
    assert found.crps(np.array([[observed]]))[0, 0] == pytest.approx(expected, rel=5e-3)


def test_the_score_of_the_identity_is_that_of_a_gaussian() -> None:
    found = predictive(IDENTITY)
    expected = metrics.crps([1.7], [0.3], [np.sqrt(0.6)])
    assert found.crps(np.array([[1.7]]))[0, 0] == pytest.approx(expected, rel=1e-3)


def test_what_a_logarithm_cannot_be_has_no_density() -> None:
    assert predictive(TargetTransform("log")).log_density(np.array([[-1.0]]))[0, 0] == -np.inf
