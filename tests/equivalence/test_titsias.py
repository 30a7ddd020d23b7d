"""The optimum over sites with a full covariance matrix is the sparse GP of Titsias (2009)."""

import numpy as np
import pytest

from cvgp.gp import bounds, sites
from tests import reference as ref
from tests.gp.bounds.problems import LENGTHSCALE, POINT_NOISE, Problem, make_problem, statistics, tensor

PROBLEMS = {
    "one output": make_problem(),
    "two outputs": make_problem(outputs=2),
    "noise by point": make_problem(noise=POINT_NOISE, site_noise=0.5),
}


def optimum(p: Problem) -> bounds.TitsiasOptimum:
    return bounds.titsias_optimum(tensor(p.K_cc), statistics(p))


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_bound_is_titsias(problem: Problem) -> None:
    p = problem
    np.testing.assert_allclose(optimum(p).value, ref.titsias_bound(p.K_cc, p.K_cx, p.K_xx, p.y, p.noise), rtol=1e-10)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_posterior_covariance_at_the_pseudo_inputs_is_titsias(problem: Problem) -> None:
    p = problem
    _, S = ref.titsias_q(p.K_cc, p.K_cx, p.y, p.noise)
    np.testing.assert_allclose(optimum(p).f_covariance, S, rtol=1e-9)


@pytest.mark.parametrize("outputs", [None, 2], ids=["one output", "two outputs"])
@pytest.mark.parametrize("field", ["y_c", "Sigma"])
def test_sites_are_the_reference(outputs: int | None, field: str) -> None:
    p = make_problem(outputs=outputs)
    expected = getattr(ref.titsias_optimum(p.K_cc, p.K_cx, p.K_xx, p.y, p.noise), field)
    np.testing.assert_allclose(getattr(optimum(p), field).reshape(expected.shape), expected, rtol=1e-8)


def predictions(noise: ref.Noise) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """The posterior at new inputs of a GP that saw y_c with noise covariance Sigma, and the sparse GP's."""
    rng = np.random.default_rng(7)
    X, X_c, X_new = rng.normal(size=(12, 2)), rng.normal(size=(4, 2)), rng.normal(size=(3, 2))
    p = Problem(rbf(X_c, X_c), rbf(X_c, X), rbf(X, X), rng.normal(size=12), np.zeros(4), np.ones(4), noise)
    K_cs, K_ss = rbf(X_c, X_new), rbf(X_new, X_new)
    best = optimum(p)
    A = np.linalg.inv(p.K_cc + best.Sigma.numpy())
    ours = K_cs.T @ A @ best.y_c.numpy()[:, 0], K_ss - K_cs.T @ A @ K_cs
    return ours, ref.sgpr_predict(p.K_cc, p.K_cx, K_cs, K_ss, p.y, p.noise)


def rbf(X_1: np.ndarray, X_2: np.ndarray) -> np.ndarray:
    return ref.rbf(X_1, X_2, LENGTHSCALE, 1.4)


@pytest.mark.parametrize("noise", [0.3, POINT_NOISE], ids=["one noise", "noise by point"])
@pytest.mark.parametrize("moment", [0, 1], ids=["mean", "covariance"])
def test_predictions_are_sgprs(noise: ref.Noise, moment: int) -> None:
    ours, sgprs = predictions(noise)
    np.testing.assert_allclose(ours[moment], sgprs[moment], atol=1e-9)


def test_bound_with_fewer_data_than_pseudo_inputs_is_titsias() -> None:
    p = make_problem(N=3)
    np.testing.assert_allclose(optimum(p).value, ref.titsias_bound(p.K_cc, p.K_cx, p.K_xx, p.y, p.noise), rtol=1e-10)


def test_best_diagonal_is_the_full_matrix_where_that_is_diagonal() -> None:
    # Data at the pseudo-inputs, one noise for each: Sigma* is the diagonal of the noise.
    p = make_problem(N=4)
    same = Problem(p.K_cc, p.K_cc, p.K_cc, p.y, p.y, np.ones(4), p.noise)
    diagonal = sites.best_coreset(tensor(same.K_cc), statistics(same), tensor(np.array([0.1, 1.0, 10.0, 1.0])))
    np.testing.assert_allclose(1.0 / diagonal.w, np.diag(optimum(same).Sigma), rtol=1e-3)
