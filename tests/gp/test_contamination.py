"""Noise with outliers: density, quantiles and probabilities against sums over its two parts."""

import numpy as np
import pytest
from scipy import stats

from cvgp.gp.contamination import Contamination

NOISE = Contamination(0.1, np.array([9.0]))
VARIANCE = np.array([[0.5]])


def test_the_density_is_that_of_a_mixture() -> None:
    for error in (0.0, 1.5, -8.0):
        expected = 0.9 * stats.norm.pdf(error, scale=0.5**0.5) + 0.1 * stats.norm.pdf(error, scale=9.5**0.5)
        found = NOISE.log_density(np.array([[error]]), VARIANCE)
        assert found[0, 0] == pytest.approx(np.log(expected), rel=1e-12)


@pytest.mark.parametrize("level", [1e-4, 0.05, 0.3, 0.5, 0.99])
def test_a_quantile_has_its_probability_below_it(level: float) -> None:
    t = NOISE.quantile(level, VARIANCE)[0, 0]
    below = 0.9 * stats.norm.cdf(t, scale=0.5**0.5) + 0.1 * stats.norm.cdf(t, scale=9.5**0.5)
    assert below == pytest.approx(level, rel=1e-9)


def test_the_probability_of_an_outlier_is_that_of_bayes() -> None:
    error = np.array([[0.3], [4.0]])
    regular, wild = stats.norm.pdf(error, scale=0.5**0.5), stats.norm.pdf(error, scale=9.5**0.5)
    expected = (0.1 * wild / (0.9 * regular + 0.1 * wild))[:, 0]
    np.testing.assert_allclose(NOISE.probability(error, np.full((2, 1), 0.5)), expected, rtol=1e-10)


def test_outputs_of_a_row_are_outliers_together() -> None:
    two = Contamination(0.1, np.array([9.0, 9.0]))
    one_far = two.probability(np.array([[6.0, 0.0]]), np.full((1, 2), 0.5))
    both_far = two.probability(np.array([[6.0, 6.0]]), np.full((1, 2), 0.5))
    assert 0.9 < one_far[0] < both_far[0]


def test_an_error_beyond_all_measure_is_an_outlier_without_overflow() -> None:
    assert NOISE.probability(np.array([[1e9]]), VARIANCE)[0] == 1.0
