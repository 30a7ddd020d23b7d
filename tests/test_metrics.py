from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from sklearn.metrics import r2_score

from cvgp import metrics
from cvgp.errors import FactorisationError, InvalidInputError, InvalidTypeError
from cvgp.metrics import divergences

rng = np.random.default_rng(0)
Y = rng.normal(size=7)
MEAN = rng.normal(size=7)
SD = rng.uniform(0.2, 3.0, size=7)

means = st.floats(-50, 50)
sds = st.floats(1e-3, 1e3)


def covariance(n: int, seed: int) -> np.ndarray:
    A = np.random.default_rng(seed).normal(size=(n, n))
    return A @ A.T + 0.1 * np.eye(n)


S0, S1 = covariance(7, 1), covariance(7, 2)

# Point predictions.


def test_rmse_is_the_root_of_the_mean_square() -> None:
    assert metrics.rmse(Y, MEAN) == pytest.approx(np.sqrt(sum((Y - MEAN) ** 2) / 7), rel=1e-12)


def test_r2_is_that_of_scikit_learn() -> None:
    assert metrics.r2(Y, MEAN) == pytest.approx(r2_score(Y, MEAN), rel=1e-12)


@pytest.mark.parametrize("mean", [[2.0, 2.0], [2.0, 1.0]], ids=["exact", "wrong"])
def test_r2_of_a_constant_target_is_that_of_scikit_learn(mean: list[float]) -> None:
    assert metrics.r2([2.0, 2.0], mean) == r2_score([2.0, 2.0], mean)


# Log densities.


def test_mean_log_density_is_that_of_scipy() -> None:
    expected = stats.norm.logpdf(Y, MEAN, SD).mean()
    assert metrics.mean_log_density(Y, MEAN, SD) == pytest.approx(expected, rel=1e-12)


def test_joint_log_density_is_that_of_scipy() -> None:
    expected = stats.multivariate_normal(MEAN, S0).logpdf(Y)
    assert metrics.joint_log_density(Y, MEAN, S0) == pytest.approx(expected, rel=1e-11)


def test_joint_log_density_of_independent_points_is_the_sum_of_the_marginal_ones() -> None:
    joint = metrics.joint_log_density(Y, MEAN, np.diag(SD**2))
    assert joint == pytest.approx(7 * metrics.mean_log_density(Y, MEAN, SD), rel=1e-12)


# CRPS.


def crps_by_integration(y: float, mean: float, sd: float) -> float:
    below, _ = integrate.quad(lambda t: stats.norm.cdf(t, mean, sd) ** 2, mean - 12 * sd, y, epsabs=1e-12)
    above, _ = integrate.quad(lambda t: stats.norm.sf(t, mean, sd) ** 2, y, mean + 12 * sd, epsabs=1e-12)
    return below + above


@pytest.mark.parametrize(("y", "mean", "sd"), [(0.0, 0.0, 1.0), (1.3, 0.4, 2.0), (-4.0, 1.0, 0.7), (2.0, 3.0, 0.4)])
def test_crps_is_the_integral_of_its_definition(y: float, mean: float, sd: float) -> None:
    assert metrics.crps([y], [mean], [sd]) == pytest.approx(crps_by_integration(y, mean, sd), abs=1e-9)


def test_crps_is_the_mean_over_the_points() -> None:
    each = [metrics.crps(Y[i : i + 1], MEAN[i : i + 1], SD[i : i + 1]) for i in range(7)]
    assert metrics.crps(Y, MEAN, SD) == pytest.approx(np.mean(each), rel=1e-12)


def test_crps_of_a_sharp_prediction_is_the_absolute_error() -> None:
    assert metrics.crps(Y, MEAN, np.full(7, 1e-9)) == pytest.approx(np.mean(np.abs(Y - MEAN)), rel=1e-7)


@given(means, means, sds, st.floats(1e-6, 1e6))
def test_crps_has_the_unit_of_the_target(y: float, mean: float, sd: float, unit: float) -> None:
    rescaled = metrics.crps([unit * y], [unit * mean], [unit * sd])
    assert rescaled == pytest.approx(unit * metrics.crps([y], [mean], [sd]), rel=1e-9)


# Intervals.


def test_interval_is_that_of_scipy() -> None:
    expected = stats.norm.interval(0.9, MEAN, SD)
    np.testing.assert_allclose(metrics.interval(MEAN, SD, 0.9), expected, rtol=1e-12)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_coverage_of_simulated_data_is_the_level(level: float) -> None:
    n = 40_000
    mean, sd = rng.normal(size=n), rng.uniform(0.1, 5.0, size=n)
    y = mean + sd * rng.normal(size=n)
    assert metrics.coverage(y, mean, sd, level) == pytest.approx(level, abs=4 * np.sqrt(0.25 / n))


def test_coverage_counts_the_share_inside() -> None:
    assert metrics.coverage([0.0, 1.9, 2.1, -9.0], np.zeros(4), np.ones(4), 0.95) == 0.5


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 95, np.nan])
def test_level_outside_zero_and_one_is_refused(level: float) -> None:
    with pytest.raises(InvalidInputError, match=r"level must lie between 0 and 1.*write 95 % as 0\.95"):
        metrics.interval(MEAN, SD, level)


# Divergences of joint Gaussians.


def test_kl_is_the_textbook_formula() -> None:
    inverse, gap = np.linalg.inv(S1), Y - MEAN
    log_ratio = np.linalg.slogdet(S1)[1] - np.linalg.slogdet(S0)[1]
    expected = 0.5 * (np.trace(inverse @ S0) + gap @ inverse @ gap - 7 + log_ratio)
    assert metrics.kl_gaussian(Y, S0, MEAN, S1) == pytest.approx(expected, rel=1e-10)


def test_kl_is_the_mean_log_ratio_of_samples() -> None:
    p, q = stats.multivariate_normal(Y, S0), stats.multivariate_normal(MEAN, 2 * S0)
    x = p.rvs(20_000, random_state=0)
    log_ratio = p.logpdf(x) - q.logpdf(x)
    error = log_ratio.std() / np.sqrt(len(x))
    assert metrics.kl_gaussian(Y, S0, MEAN, 2 * S0) == pytest.approx(log_ratio.mean(), abs=4 * error)


def test_kl_of_a_gaussian_with_itself_is_zero() -> None:
    assert metrics.kl_gaussian(Y, S0, Y, S0) == pytest.approx(0, abs=1e-14)


@given(st.integers(0, 1000), st.floats(0, 1e-6))
def test_kl_of_close_gaussians_is_not_negative(seed: int, change: float) -> None:
    S = covariance(3, seed)
    assert metrics.kl_gaussian(np.zeros(3), S, np.full(3, change), S + change * np.eye(3)) >= 0


def test_jeffreys_is_the_mean_of_both_directions() -> None:
    both = [metrics.kl_gaussian(Y, S0, MEAN, S1), metrics.kl_gaussian(MEAN, S1, Y, S0)]
    assert metrics.jeffreys(Y, S0, MEAN, S1) == pytest.approx(np.mean(both), rel=1e-12)


# Jensen-Shannon divergence of marginals.


def jensen_shannon(mean0: float, sd0: float, mean1: float, sd1: float) -> float:
    return float(metrics.jensen_shannon_marginals([mean0], [sd0], [mean1], [sd1])[0])


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


@given(means, sds, means, sds)
def test_jensen_shannon_lies_between_zero_and_log_2(mean0: float, sd0: float, mean1: float, sd1: float) -> None:
    assert 0 <= jensen_shannon(mean0, sd0, mean1, sd1) <= np.log(2)


@given(means, sds, means, sds)
def test_jensen_shannon_is_symmetric(mean0: float, sd0: float, mean1: float, sd1: float) -> None:
    swapped = jensen_shannon(mean1, sd1, mean0, sd0)
    assert jensen_shannon(mean0, sd0, mean1, sd1) == pytest.approx(swapped, rel=1e-12)


@given(means, sds, means, sds)
def test_jensen_shannon_is_at_most_half_of_jeffreys(mean0: float, sd0: float, mean1: float, sd1: float) -> None:
    jeffreys = metrics.jeffreys([mean0], [[sd0**2]], [mean1], [[sd1**2]])
    assert jensen_shannon(mean0, sd0, mean1, sd1) <= 0.5 * jeffreys + 1e-12


def test_jensen_shannon_of_equal_gaussians_is_zero() -> None:
    assert jensen_shannon(1.0, 2.0, 1.0, 2.0) == 0


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
    together = metrics.jensen_shannon_marginals(mean0, sd0, mean1, sd1)
    last = [jensen_shannon(mean0[i], sd0[i], mean1[i], sd1[i]) for i in range(n - 20, n)]
    np.testing.assert_allclose(together[-20:], last, rtol=1e-12)


# Unusable arguments.


SCORES: list[Callable] = [
    lambda y, mean, sd: metrics.mean_log_density(y, mean, sd),
    lambda y, mean, sd: metrics.crps(y, mean, sd),
    lambda y, mean, sd: metrics.coverage(y, mean, sd, 0.9),
    lambda y, mean, sd: metrics.jensen_shannon_marginals(y, SD, mean, sd),
]
score = pytest.mark.parametrize("score", SCORES, ids=["density", "crps", "coverage", "jensen-shannon"])


@score
@pytest.mark.parametrize("sd", [0.0, -1.0])
def test_sd_that_is_not_positive_is_refused(score: Callable, sd: float) -> None:
    with pytest.raises(InvalidInputError, match="must be positive, but its smallest value"):
        score(Y, MEAN, np.r_[SD[:-1], sd])


@score
@pytest.mark.parametrize("shape", [(7, 1), (1, 7), ()], ids=str)
def test_shape_that_numpy_would_broadcast_is_refused(score: Callable, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInputError, match="Expected vectors of one length"):
        score(Y, np.zeros(shape), SD)


@score
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_value_that_is_not_finite_is_refused(score: Callable, bad: float) -> None:
    with pytest.raises(InvalidInputError, match="must be finite, but 1 of its 7"):
        score(np.r_[Y[:-1], bad], MEAN, SD)


@pytest.mark.parametrize("bad", [["a", "b"], [None, 1.0], [1j, 2.0]], ids=["text", "none", "complex"])
def test_values_that_are_not_real_numbers_are_refused(bad: list) -> None:
    with pytest.raises(InvalidTypeError, match="y must hold real numbers"):
        metrics.rmse(bad, [0.0, 0.0])


def test_ragged_values_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="y must be a rectangular array"):
        metrics.rmse([[1.0], [1.0, 2.0]], [0.0, 0.0])


def test_empty_vectors_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="at least 1"):
        metrics.rmse([], [])


@pytest.mark.parametrize("wrong", [S0[:6, :6], SD, S0[:, :6]], ids=["too small", "a vector", "not square"])
def test_covariance_of_another_shape_is_refused(wrong: np.ndarray) -> None:
    with pytest.raises(InvalidInputError, match=r"covariance must have shape \(7, 7\)"):
        metrics.joint_log_density(Y, MEAN, wrong)


def test_covariance_that_is_not_symmetric_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="S1 must be symmetric"):
        metrics.kl_gaussian(Y, S0, MEAN, np.triu(S1))


def test_covariance_that_is_not_positive_definite_is_refused() -> None:
    with pytest.raises(FactorisationError, match=r"covariance is not positive definite.*include the noise"):
        metrics.joint_log_density(Y, MEAN, np.ones((7, 7)))
