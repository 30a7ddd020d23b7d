"""The reference against other libraries, against quadrature, and against the identities within it."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.linalg import sqrtm
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

from tests import reference as ref

LENGTHSCALE = np.array([0.7, 1.6])
NOISE = 0.3


class Problem(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    K_xx: np.ndarray
    K_cc: np.ndarray
    K_cx: np.ndarray
    y_c: np.ndarray
    beta: np.ndarray


@pytest.fixture(params=[None, 2], ids=["one output", "two outputs"])
def problem(request: pytest.FixtureRequest) -> Problem:
    rng = np.random.default_rng(7)
    outputs = () if request.param is None else (request.param,)
    X = rng.normal(size=(12, 2))
    X_c = rng.normal(size=(4, 2))
    return Problem(
        X=X,
        y=rng.normal(size=(12, *outputs)),
        K_xx=ref.rbf(X, X, LENGTHSCALE, 1.4),
        K_cc=ref.rbf(X_c, X_c, LENGTHSCALE, 1.4),
        K_cx=ref.rbf(X_c, X, LENGTHSCALE, 1.4),
        y_c=rng.normal(size=(4, *outputs)),
        beta=rng.uniform(0.5, 4.0, size=4),
    )


def cvgp_elbo(p: Problem, noise: ref.Noise = NOISE, **options: object) -> float:
    return ref.elbo(p.K_cc, p.K_cx, p.K_xx, p.y_c, p.beta, noise, p.y, **options)


def cvgp_tight(p: Problem, noise: ref.Noise = NOISE, noise_site: float = NOISE, **options: object) -> float:
    m, S = ref.coreset_q(p.K_cc, p.y_c, p.beta, noise_site)
    return ref.tight_bound(m, S, p.K_cc, p.K_cx, p.K_xx, p.y, noise, **options)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ref.rbf, kernels.RBF(LENGTHSCALE)),
        (ref.matern12, kernels.Matern(LENGTHSCALE, nu=0.5)),
        (ref.matern32, kernels.Matern(LENGTHSCALE, nu=1.5)),
        (ref.matern52, kernels.Matern(LENGTHSCALE, nu=2.5)),
    ],
    ids=["rbf", "matern12", "matern32", "matern52"],
)
def test_ard_kernel_is_scikit_learns(ours, theirs) -> None:
    X1, X2 = np.random.default_rng(0).normal(size=(2, 5, 2))
    np.testing.assert_allclose(ours(X1, X2, LENGTHSCALE, 2.5), 2.5 * theirs(X1, X2), rtol=1e-12)


def test_exact_gp_is_scikit_learns(problem: Problem) -> None:
    X_new = np.random.default_rng(1).normal(size=(3, 2))
    model = GaussianProcessRegressor(1.4 * kernels.RBF(LENGTHSCALE), alpha=NOISE, optimizer=None)
    model.fit(problem.X, problem.y)
    K_xs, K_ss = ref.rbf(problem.X, X_new, LENGTHSCALE, 1.4), ref.rbf(X_new, X_new, LENGTHSCALE, 1.4)
    mean, _ = ref.exact_gp_predict(problem.K_xx, K_xs, K_ss, problem.y, NOISE)
    np.testing.assert_allclose(mean, model.predict(X_new), rtol=1e-10)


def test_gaussian_kl_is_its_integral() -> None:
    q, p = stats.norm(0.4, 0.8), stats.norm(-0.2, 1.5)
    integral, _ = quad(lambda f: q.pdf(f) * (q.logpdf(f) - p.logpdf(f)), -8, 8)
    m0, S0, m1, S1 = np.array([0.4]), np.array([[0.8**2]]), np.array([-0.2]), np.array([[1.5**2]])
    np.testing.assert_allclose(ref.gaussian_kl(m0, S0, m1, S1), integral, rtol=1e-9)


def test_expected_log_likelihood_is_its_quadrature(problem: Problem) -> None:
    nodes, weights = np.polynomial.hermite_e.hermegauss(10)
    weights = weights / weights.sum()
    mean, S = ref.posterior(problem.K_cc, problem.K_cx, problem.K_xx, problem.y_c, problem.beta, NOISE)
    sd = np.sqrt(np.diag(S)).reshape(-1, *[1] * (problem.y.ndim - 1))
    values = [stats.norm.logpdf(problem.y, mean + sd * node, np.sqrt(NOISE)).sum() for node in nodes]
    kl = ref.coreset_kl(problem.K_cc, problem.y_c, problem.beta, NOISE)
    np.testing.assert_allclose(cvgp_elbo(problem), weights @ values - kl, rtol=1e-10)


def test_tight_bound_is_the_variational_bound_of_its_joint_posterior(problem: Problem) -> None:
    p = problem
    m, S = ref.coreset_q(p.K_cc, p.y_c, p.beta, NOISE)
    projection = p.K_cx.T @ np.linalg.inv(p.K_cc)
    C = p.K_xx - projection @ p.K_cx
    root = np.real(sqrtm(C))
    conditional = root @ np.diag(1.0 / (1.0 + np.diag(C) / NOISE)) @ root  # covariance of q(f | f_c)
    # q(f | f_c) and p(f | f_c) share their mean, so the KL is the same for every f_c.
    zero = np.zeros_like(p.y)
    kl = ref.gaussian_kl(zero, conditional, zero, C) + ref.gaussian_kl(m, S, np.zeros_like(m), p.K_cc)
    f_var = np.diag(conditional + projection @ S @ projection.T).reshape(-1, *[1] * (p.y.ndim - 1))
    log_lik = stats.norm.logpdf(p.y, projection @ m, np.sqrt(NOISE)) - f_var / (2 * NOISE)
    np.testing.assert_allclose(cvgp_tight(p), np.sum(log_lik) - kl, rtol=1e-7)


def test_svgp_elbo_at_the_coreset_posterior_is_the_elbo(problem: Problem) -> None:
    p = problem
    m, S = ref.coreset_q(p.K_cc, p.y_c, p.beta, NOISE)
    options = {"sample_weight": np.linspace(0.1, 3.0, 12), "num_data": 100}
    noise = np.linspace(0.2, 0.9, 12)
    svgp = ref.svgp_elbo(m, S, p.K_cc, p.K_cx, p.K_xx, p.y, noise, **options)
    np.testing.assert_allclose(svgp, cvgp_elbo(p, noise=noise, noise_site=NOISE, **options), rtol=1e-9)


@pytest.mark.parametrize("noise", [NOISE, np.linspace(0.2, 0.9, 12)], ids=["one noise", "per point"])
def test_titsias_bound_is_the_svgp_elbo_at_the_optimal_q(problem: Problem, noise: ref.Noise) -> None:
    p = problem
    m, S = ref.titsias_q(p.K_cc, p.K_cx, p.y, noise)
    svgp = ref.svgp_elbo(m, S, p.K_cc, p.K_cx, p.K_xx, p.y, noise)
    np.testing.assert_allclose(ref.titsias_bound(p.K_cc, p.K_cx, p.K_xx, p.y, noise), svgp, rtol=1e-9)


def test_collapsed_optimum_is_the_closed_form(problem: Problem) -> None:
    p = problem
    alpha = np.linalg.inv(NOISE * p.K_cc + p.K_cx @ p.K_cx.T) @ p.K_cx @ p.y
    closed_form = (p.K_cc + np.diag(NOISE / p.beta)) @ alpha
    y_c = ref.collapsed_optimum(p.K_cc, p.K_cx, p.beta, NOISE, p.y)
    np.testing.assert_allclose(y_c, closed_form, rtol=1e-8)


def features(X: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(X)), X, X**2, X[:, :1] * X[:, 1:]])  # [N, 6]


def weight_and_function_space(p: Problem):
    rng = np.random.default_rng(9)
    Phi_c, Phi_x = features(rng.normal(size=(4, 2))), features(p.X)
    beta = np.array([0.5, 0.0, 2.0, 3.0])
    in_weights = ref.weight_space_posterior(Phi_c, p.y_c, beta, NOISE)
    K_cc, K_cx, K_xx = Phi_c @ Phi_c.T, Phi_c @ Phi_x.T, Phi_x @ Phi_x.T
    in_functions = ref.posterior(K_cc, K_cx, K_xx, p.y_c, beta, NOISE)
    return Phi_x, in_weights, in_functions, ref.coreset_kl(K_cc, p.y_c, beta, NOISE)


def test_weight_space_covariance_is_the_function_space_covariance(problem: Problem) -> None:
    Phi_x, (_, covariance, _), (_, f_covariance), _ = weight_and_function_space(problem)
    np.testing.assert_allclose(Phi_x @ covariance @ Phi_x.T, f_covariance, atol=1e-9)


def test_chain_of_all_rows_before_is_the_covariance_of_outputs() -> None:
    X = np.random.default_rng(0).normal(size=(6, 2))
    K, noise = ref.rbf(X, X), np.linspace(0.2, 0.7, 6)
    chain = ref.neighbor_chain(K, noise, [list(range(i)) for i in range(6)])
    np.testing.assert_allclose(chain, K + np.diag(noise), rtol=1e-10)


def test_conditioning_a_joint_gaussian_is_exact_gp_prediction() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 2)), rng.normal(size=4)
    K = ref.rbf(X, X)
    joint = K + np.diag([0.3] * 4 + [0.0] * 2)
    expected = ref.exact_gp_predict(K[:4, :4], K[:4, 4:], K[4:, 4:], y, 0.3)
    for mine, other in zip(ref.gaussian_condition(joint, y, [0, 1, 2, 3], [4, 5]), expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-10)
