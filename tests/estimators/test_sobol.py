"""Sobol indices of functions that are known, without a model."""

import numpy as np
import pytest
from numpy.typing import NDArray

from cvgp.estimators.importance import SobolIndices, sobol_indices
from tests.estimators.sobol_problems import PROBLEMS, Problem

Array = NDArray[np.float64]


def no_doubt(x: Array) -> Array:
    return np.zeros((len(x), len(x), 1))


def indices(problem: Problem, pairs: int = 20_000) -> SobolIndices:
    x = problem.columns(np.random.default_rng(1), pairs)
    columns = [slice(d, d + 1) for d in range(x.shape[1])]
    return sobol_indices(x, columns, lambda at: problem.function(at)[:, None], no_doubt)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_total_indices_are_those_of_the_formula(problem: Problem) -> None:
    found = indices(problem)
    assert (np.abs(found.total - problem.total) <= 4.0 * found.total_error + 1e-9).all()


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_first_order_indices_are_those_of_the_formula(problem: Problem) -> None:
    found = indices(problem)
    assert (np.abs(found.first_order - problem.first_order) <= 4.0 * found.first_order_error + 1e-9).all()


def test_standard_errors_are_those_of_repeated_draws() -> None:
    problem = PROBLEMS[1]
    columns = [slice(d, d + 1) for d in range(3)]
    draws = [problem.columns(np.random.default_rng(seed), 400) for seed in range(300)]
    found = [sobol_indices(x, columns, lambda at: problem.function(at)[:, None], no_doubt) for x in draws]
    for value, error in (("total", "total_error"), ("first_order", "first_order_error")):
        spread = np.std([getattr(one, value) for one in found], axis=0)
        said = np.mean([getattr(one, error) for one in found], axis=0)
        assert (said > 0.85 * spread).all()
        assert (said < 1.5 * spread).all()


def test_the_posterior_deviation_is_that_of_functions_drawn_from_the_posterior() -> None:
    """For f = w_0 x_0 + w_1 x_1 with Gaussian weights of small variance."""
    rng = np.random.default_rng(0)
    x, weights, spread = rng.standard_normal((64, 2)), np.array([1.0, 2.0]), np.array([0.05, 0.02])
    columns = [slice(0, 1), slice(1, 2)]
    found = sobol_indices(
        x, columns, lambda at: (at @ weights)[:, None], lambda at: ((at * spread**2) @ at.T)[:, :, None]
    )
    drawn = [weights + spread * rng.standard_normal(2) for _ in range(400)]
    totals = [sobol_indices(x, columns, lambda at, w=w: (at @ w)[:, None], no_doubt).total for w in drawn]  # type: ignore[misc]
    np.testing.assert_allclose(found.total_sd, np.std(totals, axis=0), rtol=0.15)


def test_features_of_one_column_are_replaced_together() -> None:
    level = np.random.default_rng(0).integers(0, 3, 5000)
    x = np.column_stack([np.eye(3)[level], np.random.default_rng(1).standard_normal(5000)])
    effect = np.array([0.0, 1.0, 5.0])
    found = sobol_indices(x, [slice(0, 3), slice(3, 4)], lambda at: (at[:, :3] @ effect + at[:, 3])[:, None], no_doubt)
    variance = effect[level].var()
    np.testing.assert_allclose(found.total, np.array([variance, 1.0]) / (variance + 1.0), atol=0.03)


def test_of_correlated_columns_each_counts_by_what_replacing_it_changes() -> None:
    """For a linear function that is the variance of its term over that of the function."""
    x = np.random.default_rng(0).multivariate_normal([0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]], 20_000)
    found = sobol_indices(x, [slice(0, 1), slice(1, 2)], lambda at: at.sum(axis=1, keepdims=True), no_doubt)
    np.testing.assert_allclose(found.total, [1.0 / 3.6, 1.0 / 3.6], atol=0.01)


def test_several_outputs_count_alike_whatever_their_units() -> None:
    x = np.random.default_rng(0).standard_normal((4000, 2))
    found = sobol_indices(x, [slice(0, 1), slice(1, 2)], lambda at: at * [1e9, 1e-9], no_doubt)
    np.testing.assert_allclose(found.total, [0.5, 0.5], atol=0.02)
