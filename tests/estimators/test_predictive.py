"""The predictive distribution: density, quantiles, moments and scores agree with each other and with fine sums."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from cvgp.data.transforms import IDENTITY, TargetTransform
from cvgp.errors import InvalidInputError
from cvgp.estimators import predictive as module
from cvgp.estimators.predictive import Predictive, scores_of_model
from cvgp.gp.noise import Contamination, Tails, heavy

Array = NDArray[np.float64]

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


def test_what_a_logarithm_cannot_be_has_no_density() -> None:
    assert predictive(TargetTransform("log")).log_density(np.array([[-1.0]]))[0, 0] == -np.inf


LOG = TargetTransform("log")
POWERS = [TargetTransform("yeo-johnson", np.array([2.0]), np.array([3.0]), np.array([p])) for p in (0.0, 0.4, 1.6)]
MEAN, NOISE = np.array([[0.4], [-0.7]]), np.array([[0.3], [0.2]])
F_COV = np.array([[0.5, 0.35], [0.35, 0.6]])[:, :, None]
F_VAR = np.diagonal(F_COV)[0][:, None]


def normal(mean: Array, variance: Array) -> tuple[Array, Array]:
    """A fine grid with the weights of a normal variable."""
    z = np.linspace(-9.0, 9.0, 4001)
    density = np.exp(-0.5 * z**2)
    return mean + np.sqrt(variance) * z, density / density.sum()


def expected_given(target: TargetTransform, f: Array, noise: float) -> Array:
    """E[y | f] by sums over the noise."""
    e, weight = normal(np.zeros(1), np.array([noise]))
    return np.array([weight @ target.invert((value + e)[:, None])[:, 0] for value in f])


@pytest.mark.parametrize("target", [LOG, *POWERS])
def test_mean_and_variances_are_those_of_fine_sums(target: TargetTransform) -> None:
    found = Predictive(target, MEAN, F_VAR, NOISE).moments
    for i in range(2):
        t, weight = normal(MEAN[i], F_VAR[i] + NOISE[i])
        y = target.invert(t[:, None])[:, 0]
        assert found.mean[i, 0] == pytest.approx(weight @ y, rel=1e-4)
        assert found.variance[i, 0] == pytest.approx(weight @ (y - weight @ y) ** 2, rel=1e-3)
        f, share = normal(MEAN[i], F_VAR[i])
        function = expected_given(target, f[::10], NOISE[i, 0])
        share = share[::10] / share[::10].sum()
        assert found.f_variance[i, 0] == pytest.approx(share @ (function - share @ function) ** 2, rel=1e-3)


@pytest.mark.parametrize("target", [LOG, *POWERS])
def test_the_covariance_of_two_rows_is_that_of_sums_over_both(target: TargetTransform) -> None:
    cov = Predictive(target, MEAN, F_VAR, NOISE).function_covariance(F_COV)[:, :, 0]
    z, weight = normal(np.zeros(1), np.ones(1))
    z, weight = z[::20], weight[::20] / weight[::20].sum()
    L = np.linalg.cholesky(F_COV[:, :, 0])
    first = expected_given(target, MEAN[0] + L[0, 0] * z, NOISE[0, 0])
    rows = np.array([weight @ expected_given(target, MEAN[1] + L[1, 0] * a + L[1, 1] * z, NOISE[1, 0]) for a in z])
    expected = weight @ (first * rows) - (weight @ first) * (weight @ rows)
    assert cov[0, 1] == pytest.approx(expected, rel=2e-3)
    assert cov[1, 0] == cov[0, 1]
    np.testing.assert_allclose(
        np.diagonal(cov), Predictive(target, MEAN, F_VAR, NOISE).moments.f_variance[:, 0], rtol=1e-10
    )


def test_the_expansion_has_the_closed_form_of_the_logarithm() -> None:
    by_expansion = module._by_expansion(LOG, MEAN, F_VAR, NOISE)
    for own, closed in zip(by_expansion, Predictive(LOG, MEAN, F_VAR, NOISE).moments, strict=True):
        np.testing.assert_allclose(own, closed, rtol=1e-9)


def test_moments_beyond_the_range_of_floats_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="beyond the range of floating-point numbers"):
        Predictive(LOG, np.array([[700.0]]), np.array([[100.0]]), np.array([[1.0]])).moments  # noqa: B018 - it raises


@pytest.mark.parametrize("target", [LOG, *POWERS])
def test_heavy_tails_count_in_the_moments_of_a_transformed_target(target: TargetTransform) -> None:
    tails = heavy(torch.zeros(1))
    found = Predictive(target, MEAN, F_VAR, NOISE, tails=tails)
    levels = np.linspace(module.BEYOND, 1.0 - module.BEYOND, 200_001)
    y = found.quantiles(levels[:-1] + 0.5 * np.diff(levels))[:, 0]  # [n, L]
    np.testing.assert_allclose(found.moments.mean[:, 0], y.mean(axis=1), rtol=1e-3)
    np.testing.assert_allclose(found.moments.variance[:, 0], y.var(axis=1), rtol=1e-2)
    normal = Predictive(target, MEAN, F_VAR, NOISE)
    np.testing.assert_allclose(
        found.moments.f_variance / found.moments.variance, normal.moments.f_variance / normal.moments.variance
    )
    cov = found.function_covariance(F_COV)
    np.testing.assert_allclose(np.diagonal(cov).T, found.moments.f_variance, rtol=1e-9)
    narrow = Tails(torch.ones(2).double(), torch.tensor([0.5, 0.5]).double())  # both parts are the normal distribution
    np.testing.assert_allclose(
        Predictive(target, MEAN, F_VAR, NOISE, tails=narrow).moments.mean, normal.moments.mean, rtol=1e-2
    )


def test_the_crps_of_a_model_counts_its_tails() -> None:
    found = Predictive(IDENTITY, MEAN, F_VAR, NOISE, tails=heavy(torch.zeros(1)))
    y = MEAN + 2.0
    assert scores_of_model(found, y)["crps"] == pytest.approx(float(found.crps(y).mean()))
    assert scores_of_model(found, y)["crps"] != pytest.approx(
        scores_of_model(Predictive(IDENTITY, MEAN, F_VAR, NOISE), y)["crps"], rel=1e-2
    )


def test_draws_of_outliers_have_their_share_and_their_spread() -> None:
    found = Predictive(IDENTITY, MEAN, F_VAR, NOISE, Contamination(0.2, np.array([9.0])))
    errors = found.outlier_errors(50_000, np.random.RandomState(0))
    assert errors.shape == (2, 1, 50_000)
    assert np.mean(errors != 0.0) == pytest.approx(0.2, abs=0.01)
    assert errors.var() == pytest.approx(0.2 * 9.0, rel=0.05)
