"""Moments of y against quadrature in two dimensions."""

import numpy as np
import pytest
from numpy.typing import NDArray

from cvgp.data.target import TargetTransform
from cvgp.errors import InvalidInputError
from cvgp.estimators import back_transformed
from cvgp.estimators.back_transformed import covariance_of_y, moments_of_y

Array = NDArray[np.float64]

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
    found = moments_of_y(target, MEAN, F_VAR, NOISE)
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
    cov = covariance_of_y(target, MEAN, F_COV, NOISE)[:, :, 0]
    z, weight = normal(np.zeros(1), np.ones(1))
    z, weight = z[::20], weight[::20] / weight[::20].sum()
    L = np.linalg.cholesky(F_COV[:, :, 0])
    first = expected_given(target, MEAN[0] + L[0, 0] * z, NOISE[0, 0])
    rows = np.array([weight @ expected_given(target, MEAN[1] + L[1, 0] * a + L[1, 1] * z, NOISE[1, 0]) for a in z])
    expected = weight @ (first * rows) - (weight @ first) * (weight @ rows)
    assert cov[0, 1] == pytest.approx(expected, rel=2e-3)
    assert cov[1, 0] == cov[0, 1]
    np.testing.assert_allclose(np.diagonal(cov), moments_of_y(target, MEAN, F_VAR, NOISE).f_variance[:, 0], rtol=1e-10)


def test_the_expansion_has_the_closed_form_of_the_logarithm() -> None:
    by_expansion = back_transformed._by_expansion(LOG, MEAN, F_VAR, NOISE)
    for own, closed in zip(by_expansion, moments_of_y(LOG, MEAN, F_VAR, NOISE), strict=True):
        np.testing.assert_allclose(own, closed, rtol=1e-9)


def test_a_straight_line_leaves_gaussian_moments() -> None:
    line = TargetTransform("yeo-johnson", np.array([2.0]), np.array([3.0]), np.array([1.0]))
    mean, f_variance, noise = moments_of_y(line, MEAN, F_VAR, NOISE)
    np.testing.assert_allclose(mean, 2.0 + 3.0 * MEAN)
    np.testing.assert_allclose(f_variance, 9.0 * F_VAR)
    np.testing.assert_allclose(noise, 9.0 * NOISE)


def test_moments_beyond_the_range_of_floats_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="beyond the range of floating-point numbers"):
        moments_of_y(LOG, np.array([[700.0]]), np.array([[100.0]]), np.array([[1.0]]))
