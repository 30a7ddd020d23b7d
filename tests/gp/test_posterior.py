from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp import posterior
from cvgp.gp.posterior import Factor, condition, factorize, kl_divergence, pathwise_weights
from cvgp.gp.stationary import FAMILIES, StationaryKernel, cross_matrix, square_matrix
from tests import reference as ref

KERNELS = {"rbf": ref.rbf, "matern12": ref.matern12, "matern32": ref.matern32, "matern52": ref.matern52, "rq": ref.rq}
LENGTHSCALE = np.array([0.6, 1.7])
OUTPUTSCALE = 1.3
NOISE = 0.2
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


class Problem(NamedTuple):
    """A coreset of 5 points (one of zero weight), 8 points x, and their kernel matrices, in NumPy."""

    K_cc: np.ndarray
    K_cx: np.ndarray
    K_xx: np.ndarray
    y_c: np.ndarray
    beta: np.ndarray

    @property
    def arguments(self) -> tuple[np.ndarray, ...]:
        return self.K_cc, self.K_cx, self.K_xx, self.y_c, self.beta

    def factor(self) -> Factor:
        return factorize(torch.tensor(self.K_cc), torch.tensor(self.beta / NOISE), torch.tensor(self.y_c))


def make_problem(kernel: str = "rbf", num_outputs: int | None = None, zero_weight: bool = True) -> Problem:
    rng = np.random.default_rng(5)
    X_c, x = rng.normal(size=(5, 2)), rng.normal(size=(8, 2))
    y_c = rng.normal(size=5 if num_outputs is None else (5, num_outputs))
    beta = rng.uniform(0.3, 20.0, size=5)
    if zero_weight:
        beta[2] = 0.0
    k = KERNELS[kernel]
    pairs = ((X_c, X_c), (X_c, x), (x, x))
    return Problem(*(k(a, b, LENGTHSCALE, OUTPUTSCALE) for a, b in pairs), y_c, beta)


@pytest.fixture(params=[None, 3], ids=["one output", "three outputs"])
def problem(request: pytest.FixtureRequest) -> Problem:
    return make_problem(num_outputs=request.param)


def assert_near(actual: Tensor, expected: np.ndarray | float, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=tolerance, atol=tolerance)


def assert_same_posterior(one: Factor, two: Factor, K_one: np.ndarray, K_two: np.ndarray, K_xx: np.ndarray) -> None:
    """Means and covariances at the same points, from two coresets with their own K_cx."""
    one_x, two_x, prior = torch.tensor(K_one), torch.tensor(K_two), torch.tensor(K_xx)
    torch.testing.assert_close(posterior.mean(one, one_x), posterior.mean(two, two_x), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(
        posterior.covariance(one, one_x, prior), posterior.covariance(two, two_x, prior), rtol=1e-9, atol=1e-11
    )


# Against the dense reference.


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("num_outputs", [None, 3])
@pytest.mark.parametrize("kernel", KERNELS)
def test_moments_and_kl_are_the_reference(kernel: str, num_outputs: int | None, dtype: torch.dtype) -> None:
    p = make_problem(kernel, num_outputs)
    K_cx, K_xx = torch.tensor(p.K_cx, dtype=dtype), torch.tensor(p.K_xx, dtype=dtype)
    expected_mean, expected = ref.posterior(*p.arguments, NOISE)
    assert_near(posterior.mean(p.factor(), K_cx), expected_mean, TOLERANCE[dtype])
    assert_near(posterior.covariance(p.factor(), K_cx, K_xx), expected, TOLERANCE[dtype])
    assert_near(posterior.variance(p.factor(), K_cx, K_xx.diagonal()), np.diag(expected), TOLERANCE[dtype])
    assert_near(kl_divergence(p.factor()), ref.coreset_kl(p.K_cc, p.y_c, p.beta, NOISE))


@pytest.mark.parametrize("function", [posterior.variance, posterior.covariance])
def test_batches_of_points_give_batches_of_variances(function) -> None:
    p = make_problem()
    K_cx, K_xx = torch.tensor(p.K_cx), torch.tensor(p.K_xx)
    prior = K_xx.diagonal() if function is posterior.variance else K_xx
    batched = function(p.factor(), torch.stack([K_cx, 0.5 * K_cx])[:, None], prior)
    torch.testing.assert_close(batched[1, 0], function(p.factor(), 0.5 * K_cx, prior))


def test_rounding_never_makes_a_variance_negative() -> None:
    p = make_problem(zero_weight=False)
    factor = factorize(torch.tensor(p.K_cc), torch.full((5,), 1e12, dtype=torch.float64), torch.tensor(p.y_c))
    at_coreset = posterior.variance(factor, torch.tensor(p.K_cc).float(), torch.tensor(np.diag(p.K_cc)).float())
    assert (at_coreset >= 0).all()


def test_the_posterior_can_be_differentiated_by_autograd() -> None:
    p = make_problem(zero_weight=False)
    tensors = [torch.tensor(a, requires_grad=True) for a in (p.K_cc, p.beta / NOISE, p.y_c, p.K_cx)]
    k_xx = torch.tensor(np.diag(p.K_xx))

    def outputs(K_cc: Tensor, w: Tensor, y_c: Tensor, K_cx: Tensor) -> tuple[Tensor, ...]:
        factor = factorize(K_cc, w, y_c)
        return posterior.mean(factor, K_cx), posterior.variance(factor, K_cx, k_xx), kl_divergence(factor)

    assert torch.autograd.gradcheck(outputs, tensors)


# A coreset is a weighted data set.


def test_a_point_of_zero_weight_leaves_the_posterior(problem: Problem) -> None:
    seen = problem.beta > 0
    K_cc, w, y_c = problem.K_cc[np.ix_(seen, seen)], problem.beta[seen] / NOISE, problem.y_c[seen]
    without = factorize(torch.tensor(K_cc), torch.tensor(w), torch.tensor(y_c))
    assert_same_posterior(problem.factor(), without, problem.K_cx, problem.K_cx[seen], problem.K_xx)


# The exact GP.


class Conditioned(NamedTuple):
    factor: Factor
    K_ux: np.ndarray  # the union of coreset and data against the test points
    K_xx: np.ndarray
    expected: tuple[np.ndarray, np.ndarray]  # of the exact GP on the union


def condition_on_data(num_outputs: int | None) -> Conditioned:
    """Three pseudo-points, four new data of their own noise each, two test points."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(9, 2))
    K = ref.rbf(X, X, LENGTHSCALE, OUTPUTSCALE)
    y = rng.normal(size=7 if num_outputs is None else (7, num_outputs))
    site_noise = NOISE / np.array([0.5, 3.0, 8.0])
    data_noise = np.array([0.1, 0.5, 1.0, 0.05])
    old = factorize(torch.tensor(K[:3, :3]), torch.tensor(1.0 / site_noise), torch.tensor(y[:3]))
    new = condition(
        old, torch.tensor(K[:3, 3:7]), torch.tensor(K[3:7, 3:7]), torch.tensor(y[3:]), torch.tensor(1.0 / data_noise)
    )
    noise = np.concatenate([site_noise, data_noise])
    expected = ref.exact_gp_predict(K[:7, :7], K[:7, 7:], K[7:, 7:], y, noise)
    return Conditioned(new, K[:7, 7:], K[7:, 7:], expected)


@pytest.mark.parametrize("num_outputs", [None, 2])
def test_conditioning_gives_the_exact_gp_on_the_union(num_outputs: int | None) -> None:
    case = condition_on_data(num_outputs)
    K_ux, K_xx = torch.tensor(case.K_ux), torch.tensor(case.K_xx)
    assert_near(posterior.mean(case.factor, K_ux), case.expected[0])
    assert_near(posterior.covariance(case.factor, K_ux, K_xx), case.expected[1])


# Limits of the noise.


# Scales: B = I + R K R is factorized without jitter, which would be a warning and so an error here.


@st.composite
def scaled_sites(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """K_cc, K_cx, k_xx and w of any scale; some pseudo-inputs may be repeated, some weights zero."""

    def log_uniform(low: float, high: float) -> float:
        return 10.0 ** draw(st.floats(low, high))

    M, D = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X_c = rng.normal(size=(M, D))
    X_c = X_c[rng.integers(0, M, size=M)] if draw(st.booleans()) else X_c
    beta = [draw(st.just(0.0) | st.floats(-6, 6).map(lambda e: 10.0**e)) for _ in range(M)]
    one = torch.ones((), dtype=torch.float64)
    scale = torch.full((D,), 1.0 / log_uniform(-3, 3), dtype=torch.float64)
    kernel = StationaryKernel(FAMILIES[draw(st.sampled_from(list(FAMILIES)))], scale, one, one)
    x = torch.tensor(np.concatenate([X_c, rng.normal(size=(4, D))]))
    w = torch.tensor(beta, dtype=torch.float64) / log_uniform(-6, 2)
    points = torch.tensor(X_c)
    return square_matrix(kernel, points), cross_matrix(kernel, points, x), one.expand(len(x)), w


@given(sites=scaled_sites())
def test_at_no_scale_does_the_variance_leave_its_range(sites: tuple[Tensor, ...]) -> None:
    K_cc, K_cx, k_xx, w = sites
    variance = posterior.variance(factorize(K_cc, w, torch.ones_like(w)), K_cx, k_xx)
    assert ((variance >= 0) & (variance <= 1)).all()


@given(sites=scaled_sites())
def test_at_no_scale_is_the_kl_negative(sites: tuple[Tensor, ...]) -> None:
    K_cc, _, _, w = sites
    assert kl_divergence(factorize(K_cc, w, torch.ones_like(w))).item() >= -1e-12


# Pathwise samples.


@pytest.fixture(params=[False, True], ids=["all weights positive", "one weight zero"])
def pathwise(request: pytest.FixtureRequest) -> tuple[Problem, Tensor, Tensor, Tensor]:
    """A problem and the affine map v = v_0 + F f_c + E xi of its pathwise weights, read off from unit vectors."""
    p = make_problem(zero_weight=request.param)
    zero, identity = torch.zeros(5, 5, dtype=torch.float64), torch.eye(5, dtype=torch.float64)
    v_0 = pathwise_weights(p.factor(), zero[:1], zero[:1])
    F = (pathwise_weights(p.factor(), identity, zero) - v_0).mT
    E = (pathwise_weights(p.factor(), zero, identity) - v_0).mT
    return p, v_0[0], F, E


def test_pathwise_samples_have_the_mean_of_the_posterior(pathwise: tuple[Problem, Tensor, Tensor, Tensor]) -> None:
    p, v_0, _, _ = pathwise
    expected, _ = ref.posterior(*p.arguments, NOISE)
    assert_near(torch.tensor(p.K_cx).mT @ v_0, expected)


def test_pathwise_samples_have_the_covariance_of_the_posterior(
    pathwise: tuple[Problem, Tensor, Tensor, Tensor],
) -> None:
    # f(x) + k(x, X_c) (F f_c + E xi), with f and f_c from the prior and xi standard normal.
    p, _, F, E = pathwise
    K_cc, K_cx, K_xx = (torch.tensor(K) for K in (p.K_cc, p.K_cx, p.K_xx))
    cross = K_cx.mT @ F @ K_cx
    actual = K_xx + cross + cross.mT + K_cx.mT @ (F @ K_cc @ F.mT + E @ E.mT) @ K_cx
    _, expected = ref.posterior(*p.arguments, NOISE)
    assert_near(actual, expected)


# Bad input.


@pytest.mark.parametrize(
    ("K_cc", "w", "y_c", "message"),
    [
        (torch.ones(2, 3), torch.ones(3), torch.ones(3), r"square matrix \[M, M\] with M >= 1; got \(2, 3\)"),
        (
            torch.eye(2),
            torch.ones(3),
            torch.ones(2),
            r"w must be \[2\] and y_c \[2\] or \[2, Q\]; got \(3,\) and \(2,\)",
        ),
        (torch.eye(2), torch.tensor([1.0, torch.nan]), torch.ones(2), "finite and not negative"),
    ],
)
def test_sites_that_do_not_fit_are_refused(K_cc: Tensor, w: Tensor, y_c: Tensor, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        factorize(K_cc, w, y_c)


@pytest.mark.parametrize(
    ("K_cn", "K_nn", "y_new"),
    [
        (torch.ones(5, 2), torch.eye(3), torch.ones(2)),
        (torch.ones(5, 2), torch.eye(2), torch.ones(3)),
    ],
    ids=["K_nn", "y_new"],
)
def test_new_observations_that_do_not_fit_are_refused(K_cn: Tensor, K_nn: Tensor, y_new: Tensor) -> None:
    message = r"With 5 pseudo-points and 2 precisions, K_cn must be \[5, 2\], K_nn \[2, 2\] and y_new \[2\]; got"
    with pytest.raises(InvalidInputError, match=message):
        condition(make_problem().factor(), K_cn, K_nn, y_new, torch.ones(2))
