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


def test_rational_quadratic_is_scikit_learns() -> None:
    X1, X2 = np.random.default_rng(0).normal(size=(2, 5, 2))
    theirs = 2.5 * kernels.RationalQuadratic(length_scale=1.0, alpha=0.6)(X1 / LENGTHSCALE, X2 / LENGTHSCALE)
    np.testing.assert_allclose(ref.rq(X1, X2, LENGTHSCALE, 2.5, alpha=0.6), theirs, rtol=1e-12)


def test_exact_gp_is_scikit_learns(problem: Problem) -> None:
    X_new = np.random.default_rng(1).normal(size=(3, 2))
    model = GaussianProcessRegressor(1.4 * kernels.RBF(LENGTHSCALE), alpha=NOISE, optimizer=None)
    model.fit(problem.X, problem.y)
    K_xs, K_ss = ref.rbf(problem.X, X_new, LENGTHSCALE, 1.4), ref.rbf(X_new, X_new, LENGTHSCALE, 1.4)
    mean, _ = ref.exact_gp_predict(problem.K_xx, K_xs, K_ss, problem.y, NOISE)
    np.testing.assert_allclose(mean, model.predict(X_new), rtol=1e-10)


def test_log_marginal_is_scipys_density(problem: Problem) -> None:
    S = problem.K_xx + NOISE * np.eye(12)
    density = stats.multivariate_normal(np.zeros(12), S).logpdf(problem.y.T)
    np.testing.assert_allclose(ref.log_marginal(problem.K_xx, problem.y, NOISE), np.sum(density), rtol=1e-10)


def test_gaussian_kl_is_its_integral() -> None:
    q, p = stats.norm(0.4, 0.8), stats.norm(-0.2, 1.5)
    integral, _ = quad(lambda f: q.pdf(f) * (q.logpdf(f) - p.logpdf(f)), -8, 8)
    m0, S0, m1, S1 = np.array([0.4]), np.array([[0.8**2]]), np.array([-0.2]), np.array([[1.5**2]])
    np.testing.assert_allclose(ref.gaussian_kl(m0, S0, m1, S1), integral, rtol=1e-9)


def test_gaussian_kl_does_not_change_under_a_linear_map() -> None:
    rng = np.random.default_rng(3)
    map_, root0, root1 = rng.normal(size=(3, 3, 3))
    m0, m1 = rng.normal(size=(2, 3))
    S0, S1 = root0 @ root0.T, root1 @ root1.T
    mapped = ref.gaussian_kl(map_ @ m0, map_ @ S0 @ map_.T, map_ @ m1, map_ @ S1 @ map_.T)
    np.testing.assert_allclose(ref.gaussian_kl(m0, S0, m1, S1), mapped, rtol=1e-9)


def test_expected_log_likelihood_is_its_quadrature(problem: Problem) -> None:
    nodes, weights = np.polynomial.hermite_e.hermegauss(10)
    weights = weights / weights.sum()
    mean, S = ref.posterior(problem.K_cc, problem.K_cx, problem.K_xx, problem.y_c, problem.beta, NOISE)
    sd = np.sqrt(np.diag(S)).reshape(-1, *[1] * (problem.y.ndim - 1))
    values = [stats.norm.logpdf(problem.y, mean + sd * node, np.sqrt(NOISE)).sum() for node in nodes]
    kl = ref.coreset_kl(problem.K_cc, problem.y_c, problem.beta, NOISE)
    np.testing.assert_allclose(cvgp_elbo(problem), weights @ values - kl, rtol=1e-10)


def test_coreset_posterior_through_f_c_is_the_direct_one(problem: Problem) -> None:
    p = problem
    m, S = ref.coreset_q(p.K_cc, p.y_c, p.beta, NOISE)
    through_f_c = ref.sparse_predict(m, S, p.K_cc, p.K_cx, p.K_xx)
    direct = ref.posterior(p.K_cc, p.K_cx, p.K_xx, p.y_c, p.beta, NOISE)
    np.testing.assert_allclose(through_f_c[0], direct[0], atol=1e-9)
    np.testing.assert_allclose(through_f_c[1], direct[1], atol=1e-9)


def test_zero_weight_is_the_limit_of_small_weights(problem: Problem) -> None:
    p = problem
    small, zero = p.beta.copy(), p.beta.copy()
    small[1], zero[1] = 1e-10, 0.0
    np.testing.assert_allclose(cvgp_elbo(p._replace(beta=zero)), cvgp_elbo(p._replace(beta=small)), rtol=1e-8)


def test_data_as_coreset_gives_the_exact_gp(problem: Problem) -> None:
    p = problem
    X_new = np.random.default_rng(1).normal(size=(3, 2))
    K_xs, K_ss = ref.rbf(p.X, X_new, LENGTHSCALE, 1.4), ref.rbf(X_new, X_new, LENGTHSCALE, 1.4)
    ours = ref.posterior(p.K_xx, K_xs, K_ss, p.y, np.ones(12), NOISE)
    exact = ref.exact_gp_predict(p.K_xx, K_xs, K_ss, p.y, NOISE)
    np.testing.assert_allclose(ours[0], exact[0], rtol=1e-10)
    np.testing.assert_allclose(ours[1], exact[1], rtol=1e-10)


def test_data_as_coreset_has_the_log_marginal_as_elbo(problem: Problem) -> None:
    p = problem
    bound = ref.elbo(p.K_xx, p.K_xx, p.K_xx, p.y, np.ones(12), NOISE, p.y)
    np.testing.assert_allclose(bound, ref.log_marginal(p.K_xx, p.y, NOISE), rtol=1e-8)


def test_data_as_coreset_with_per_point_noise_has_the_log_marginal_as_elbo(problem: Problem) -> None:
    p = problem
    noise = np.linspace(0.2, 0.9, 12)
    site = 0.5
    bound = ref.elbo(p.K_xx, p.K_xx, p.K_xx, p.y, site / noise, noise, p.y, noise_site=site)
    np.testing.assert_allclose(bound, ref.log_marginal(p.K_xx, p.y, noise), rtol=1e-8)


def test_integer_sample_weights_are_repeated_points(problem: Problem) -> None:
    p = problem
    counts = np.arange(12) % 3
    repeat = np.repeat(np.arange(12), counts)
    repeated = p._replace(y=p.y[repeat], K_cx=p.K_cx[:, repeat], K_xx=p.K_xx[np.ix_(repeat, repeat)])
    weighted = cvgp_elbo(p, sample_weight=counts.astype(float))
    np.testing.assert_allclose(weighted, cvgp_elbo(repeated), rtol=1e-10)


@pytest.mark.parametrize("bound", [cvgp_elbo, cvgp_tight], ids=["elbo", "tight"])
def test_mean_over_equal_minibatches_is_the_full_bound(problem: Problem, bound) -> None:
    p = problem
    rows = np.arange(12).reshape(3, 4)
    batches = [p._replace(y=p.y[i], K_cx=p.K_cx[:, i], K_xx=p.K_xx[np.ix_(i, i)]) for i in rows]
    values = [bound(batch, num_data=12) for batch in batches]
    np.testing.assert_allclose(np.mean(values), bound(p), rtol=1e-10)


def test_elbo_tight_and_log_marginal_are_in_order(problem: Problem) -> None:
    values = [cvgp_elbo(problem), cvgp_tight(problem), ref.log_marginal(problem.K_xx, problem.y, NOISE)]
    assert values[0] < values[1] < values[2]


def test_tight_bound_is_the_formula_with_the_logarithm(problem: Problem) -> None:
    p = problem
    C_ii = np.diag(p.K_xx - p.K_cx.T @ np.linalg.inv(p.K_cc) @ p.K_cx)
    outputs = p.y.size // len(p.y)
    gain = 0.5 * outputs * np.sum(C_ii / NOISE - np.log1p(C_ii / NOISE))
    np.testing.assert_allclose(cvgp_tight(p) - cvgp_elbo(p), gain, rtol=1e-9)


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


def test_tight_bound_with_weights_is_the_one_with_noise_divided_by_them(problem: Problem) -> None:
    p = problem
    weight = np.linspace(0.1, 3.0, 12)
    outputs = p.y.size // len(p.y)
    # weight * log N(y | f, noise) and log N(y | f, noise / weight) differ by a constant.
    constant = 0.5 * outputs * np.sum((1 - weight) * np.log(2 * np.pi * NOISE) - np.log(weight))
    weighted = cvgp_tight(p, sample_weight=weight)
    np.testing.assert_allclose(weighted, cvgp_tight(p, noise=NOISE / weight) + constant, rtol=1e-10)


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


def test_sgpr_with_the_data_as_inducing_points_is_the_exact_gp(problem: Problem) -> None:
    p = problem
    X_new = np.random.default_rng(1).normal(size=(3, 2))
    K_xs, K_ss = ref.rbf(p.X, X_new, LENGTHSCALE, 1.4), ref.rbf(X_new, X_new, LENGTHSCALE, 1.4)
    sgpr = ref.sgpr_predict(p.K_xx, p.K_xx, K_xs, K_ss, p.y, NOISE)
    exact = ref.exact_gp_predict(p.K_xx, K_xs, K_ss, p.y, NOISE)
    np.testing.assert_allclose(sgpr[0], exact[0], atol=1e-8)
    np.testing.assert_allclose(sgpr[1], exact[1], atol=1e-8)


def test_titsias_optimum_has_titsias_bound(problem: Problem) -> None:
    p = problem
    best = ref.titsias_optimum(p.K_cc, p.K_cx, p.K_xx, p.y, NOISE)
    np.testing.assert_allclose(best.bound, ref.titsias_bound(p.K_cc, p.K_cx, p.K_xx, p.y, NOISE), rtol=1e-9)


def test_titsias_optimum_predicts_as_sgpr(problem: Problem) -> None:
    p = problem
    best = ref.titsias_optimum(p.K_cc, p.K_cx, p.K_xx, p.y, NOISE)
    mean = p.K_cx.T @ np.linalg.inv(p.K_cc + best.Sigma) @ best.y_c
    sgpr_mean, _ = ref.sgpr_predict(p.K_cc, p.K_cx, p.K_cx, p.K_xx, p.y, NOISE)
    np.testing.assert_allclose(mean, sgpr_mean, atol=1e-9)


def test_collapsed_bound_is_below_titsias_bound(problem: Problem) -> None:
    p = problem
    collapsed = ref.collapsed_bound(p.K_cc, p.K_cx, p.K_xx, p.beta, NOISE, p.y)
    assert collapsed < ref.titsias_bound(p.K_cc, p.K_cx, p.K_xx, p.y, NOISE)


def test_collapsed_optimum_is_the_closed_form(problem: Problem) -> None:
    p = problem
    alpha = np.linalg.inv(NOISE * p.K_cc + p.K_cx @ p.K_cx.T) @ p.K_cx @ p.y
    closed_form = (p.K_cc + np.diag(NOISE / p.beta)) @ alpha
    y_c = ref.collapsed_optimum(p.K_cc, p.K_cx, p.beta, NOISE, p.y)
    np.testing.assert_allclose(y_c, closed_form, rtol=1e-8)


def test_no_step_away_from_the_collapsed_optimum_raises_the_elbo(problem: Problem) -> None:
    p = problem
    options = {"noise_site": 0.5, "sample_weight": np.linspace(0.1, 3.0, 12)}
    noise = np.linspace(0.2, 0.9, 12)
    y_c = ref.collapsed_optimum(p.K_cc, p.K_cx, p.beta, noise, p.y, **options)
    best = ref.collapsed_bound(p.K_cc, p.K_cx, p.K_xx, p.beta, noise, p.y, **options)
    steps = 1e-3 * np.random.default_rng(5).normal(size=(20, *y_c.shape))
    assert all(cvgp_elbo(p._replace(y_c=y_c + step), noise, **options) < best for step in steps)


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


def test_weight_space_mean_is_the_function_space_mean(problem: Problem) -> None:
    Phi_x, (mean, _, _), (f_mean, _), _ = weight_and_function_space(problem)
    np.testing.assert_allclose(Phi_x @ mean, f_mean, atol=1e-9)


def test_weight_space_covariance_is_the_function_space_covariance(problem: Problem) -> None:
    Phi_x, (_, covariance, _), (_, f_covariance), _ = weight_and_function_space(problem)
    np.testing.assert_allclose(Phi_x @ covariance @ Phi_x.T, f_covariance, atol=1e-9)


def test_weight_space_kl_is_the_function_space_kl(problem: Problem) -> None:
    _, (_, _, kl), _, f_kl = weight_and_function_space(problem)
    np.testing.assert_allclose(kl, f_kl, rtol=1e-9)


def test_chain_of_all_rows_before_is_the_covariance_of_outputs() -> None:
    X = np.random.default_rng(0).normal(size=(6, 2))
    K, noise = ref.rbf(X, X), np.linspace(0.2, 0.7, 6)
    chain = ref.neighbour_chain(K, noise, [list(range(i)) for i in range(6)])
    np.testing.assert_allclose(chain, K + np.diag(noise), rtol=1e-10)


def test_conditioning_a_joint_gaussian_is_exact_gp_prediction() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 2)), rng.normal(size=4)
    K = ref.rbf(X, X)
    joint = K + np.diag([0.3] * 4 + [0.0] * 2)
    expected = ref.exact_gp_predict(K[:4, :4], K[:4, 4:], K[4:, 4:], y, 0.3)
    for mine, other in zip(ref.gaussian_condition(joint, y, [0, 1, 2, 3], [4, 5]), expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-10)
