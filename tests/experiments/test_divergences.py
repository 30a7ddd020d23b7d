"""Divergences of Gaussians and the joint density, against SciPy, samples and sums."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cvgp.errors import FactorizationError, InvalidInputError
from experiments import divergences

rng = np.random.default_rng(0)
Y = rng.normal(size=7)
MEAN = rng.normal(size=7)
SD = rng.uniform(0.2, 3.0, size=7)


def covariance(n: int, seed: int) -> np.ndarray:
    A = np.random.default_rng(seed).normal(size=(n, n))
    return A @ A.T + 0.1 * np.eye(n)


S0, S1 = covariance(7, 1), covariance(7, 2)


def test_joint_log_density_is_that_of_scipy() -> None:
    expected = stats.multivariate_normal(MEAN, S0).logpdf(Y)
    assert divergences.joint_log_density(Y, MEAN, S0) == pytest.approx(expected, rel=1e-11)


def test_kl_is_the_textbook_formula() -> None:
    inverse, gap = np.linalg.inv(S1), Y - MEAN
    log_ratio = np.linalg.slogdet(S1)[1] - np.linalg.slogdet(S0)[1]
    expected = 0.5 * (np.trace(inverse @ S0) + gap @ inverse @ gap - 7 + log_ratio)
    assert divergences.kl_gaussian(Y, S0, MEAN, S1) == pytest.approx(expected, rel=1e-10)


def test_kl_is_the_mean_log_ratio_of_samples() -> None:
    p, q = stats.multivariate_normal(Y, S0), stats.multivariate_normal(MEAN, 2 * S0)
    x = p.rvs(20_000, random_state=0)
    log_ratio = p.logpdf(x) - q.logpdf(x)
    error = log_ratio.std() / np.sqrt(len(x))
    assert divergences.kl_gaussian(Y, S0, MEAN, 2 * S0) == pytest.approx(log_ratio.mean(), abs=4 * error)


@given(st.integers(0, 1000), st.floats(0, 1e-6))
def test_kl_of_close_gaussians_is_not_negative(seed: int, change: float) -> None:
    S = covariance(3, seed)
    assert divergences.kl_gaussian(np.zeros(3), S, np.full(3, change), S + change * np.eye(3)) >= 0


def test_jeffreys_is_the_mean_of_both_directions() -> None:
    both = [divergences.kl_gaussian(Y, S0, MEAN, S1), divergences.kl_gaussian(MEAN, S1, Y, S0)]
    assert divergences.jeffreys(Y, S0, MEAN, S1) == pytest.approx(np.mean(both), rel=1e-12)


def jensen_shannon(mean0: float, sd0: float, mean1: float, sd1: float) -> float:
    return float(divergences.jensen_shannon_marginals([mean0], [sd0], [mean1], [sd1])[0])


def jensen_shannon_by_sum(mean0: float, sd0: float, mean1: float, sd1: float) -> float:
    """The definition, summed over a grid that is fine for the narrower and wide for the wider Gaussian."""
    ends = [mean + sign * 10 * sd for mean, sd in ((mean0, sd0), (mean1, sd1)) for sign in (-1, 1)]
    x, step = np.linspace(min(ends), max(ends), 1_000_001, retstep=True)
    p, q = stats.norm.pdf(x, mean0, sd0), stats.norm.pdf(x, mean1, sd1)
    mixture = 0.5 * (p + q)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log(p / mixture), 0.0) + np.where(q > 0, q * np.log(q / mixture), 0.0)
    return float(0.5 * np.sum(terms) * step)


@pytest.mark.parametrize(
    "pair",
    [
        (0.0, 1.0, 0.3, 1.1),
        (0.0, 1.0, 1.0, 1.0),
        (0.0, 1.0, 3.0, 1.0),
        (0.0, 1.0, 6.0, 1.0),
        (0.0, 1.0, 0.0, 30.0),
        (5.0, 20.0, 1.0, 0.05),
        (0.0, 1.0, 8.0, 3.0),
        (0.0, 0.3, -4.0, 1.0),
        (1000.0, 0.01, 1000.0, 1.0),
    ],
)
def test_jensen_shannon_is_the_sum_of_its_definition(pair: tuple[float, float, float, float]) -> None:
    assert jensen_shannon(*pair) == pytest.approx(jensen_shannon_by_sum(*pair), abs=1e-10)


def test_jensen_shannon_of_close_gaussians_keeps_its_digits() -> None:
    # To second order the divergence is an eighth of the Fisher information times the squared step.
    assert jensen_shannon(0.0, 1.0, 1e-6, 1.0) == pytest.approx(1e-12 / 8, rel=1e-6)


@pytest.mark.parametrize(
    "pair", [(0.0, 1.0, 1e100, 1.0), (0.0, 1e-150, 0.0, 1e150), (1e12, 1e-12, -1e12, 1e-12), (0.0, 1.0, 1e30, 1e20)]
)
def test_jensen_shannon_of_gaussians_that_do_not_overlap_is_log_2(pair: tuple[float, float, float, float]) -> None:
    assert jensen_shannon(*pair) == pytest.approx(np.log(2), abs=1e-10)


def test_jensen_shannon_of_many_pairs_is_that_of_each() -> None:
    n = divergences.PAIRS_AT_ONCE + 10
    mean0, mean1 = rng.normal(size=(2, n))
    sd0, sd1 = rng.uniform(0.1, 3.0, size=(2, n))
    together = divergences.jensen_shannon_marginals(mean0, sd0, mean1, sd1)
    last = [jensen_shannon(mean0[i], sd0[i], mean1[i], sd1[i]) for i in range(n - 20, n)]
    np.testing.assert_allclose(together[-20:], last, rtol=1e-12)


def test_covariance_that_is_not_symmetric_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="S1 must be symmetric"):
        divergences.kl_gaussian(Y, S0, MEAN, np.triu(S1))


def test_covariance_that_is_not_positive_definite_is_refused() -> None:
    with pytest.raises(FactorizationError, match=r"covariance is not positive definite.*include the noise"):
        divergences.joint_log_density(Y, MEAN, np.ones((7, 7)))
