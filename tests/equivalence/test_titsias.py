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
    "fewer data than pseudo-inputs": make_problem(N=3),
}


def optimum(p: Problem) -> bounds.TitsiasSolution:
    return bounds.solve_titsias(statistics(p), bounds.whitener(tensor(p.K_cc)))


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_bound_is_titsias(problem: Problem) -> None:
    p = problem
    np.testing.assert_allclose(optimum(p).value, ref.titsias_bound(p.K_cc, p.K_cx, p.K_xx, p.y, p.noise), rtol=1e-10)


@pytest.mark.parametrize("noise", [0.3, POINT_NOISE], ids=["one noise", "noise by point"])
def test_predictions_are_sgprs(noise: ref.Noise) -> None:
    rng = np.random.default_rng(7)
    X, X_c, X_new = rng.normal(size=(12, 2)), rng.normal(size=(4, 2)), rng.normal(size=(3, 2))
    p = Problem(rbf(X_c, X_c), rbf(X_c, X), rbf(X, X), rng.normal(size=12), np.zeros(4), np.ones(4), noise)
    K_cs, K_ss, best = rbf(X_c, X_new), rbf(X_new, X_new), optimum(p)
    mean, covariance = ref.sgpr_predict(p.K_cc, p.K_cx, K_cs, K_ss, p.y, p.noise)
    np.testing.assert_allclose(K_cs.T @ best.alpha.numpy()[:, 0], mean, atol=1e-9)
    np.testing.assert_allclose(K_ss - K_cs.T @ best.A.numpy() @ K_cs, covariance, atol=1e-9)


def rbf(X_1: np.ndarray, X_2: np.ndarray) -> np.ndarray:
    return ref.rbf(X_1, X_2, LENGTHSCALE, 1.4)


def test_best_diagonal_is_the_noise_of_data_at_the_pseudo_inputs() -> None:
    p = make_problem(N=4)
    same = Problem(p.K_cc, p.K_cc, p.K_cc, p.y, p.y, np.ones(4), p.noise)
    diagonal = sites.best_coreset(tensor(same.K_cc), statistics(same), tensor(np.array([0.1, 1.0, 10.0, 1.0])))
    np.testing.assert_allclose(1.0 / diagonal.w, np.full(4, p.noise), rtol=1e-3)
