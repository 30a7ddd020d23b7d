"""ELBO <= tighter bound <= log p(y), and ELBO <= best diagonal <= full matrix (SGPR) <= log p(y)."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvgp.gp import bounds, sites
from tests import reference as ref
from tests.gp.bounds.problems import Problem, elbo, statistics, tensor, tight

KERNELS = [ref.rbf, ref.matern12, ref.matern32, ref.matern52, ref.rq]


def powers_of_ten(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Any kernel, scales over many orders of magnitude, one or two outputs, weights that may be zero."""
    kernel, lengthscale, outputscale = (
        draw(st.sampled_from(KERNELS)),
        draw(powers_of_ten(-3, 3)),
        draw(powers_of_ten(-2, 2)),
    )
    N, M = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    columns = draw(st.sampled_from([(), (2,)]))
    weights = st.one_of(st.just(0.0), powers_of_ten(-8, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    X, X_c = rng.normal(size=(N, 2)), rng.normal(size=(M, 2))
    noise = draw(powers_of_ten(-4, 2))
    per_point = draw(st.booleans())
    return Problem(
        # The jitter is part of K_cc: the pseudo-points then observe f with that noise, and every bound still holds.
        K_cc=kernel(X_c, X_c, lengthscale, outputscale) + 1e-8 * outputscale * np.eye(M),
        K_cx=kernel(X_c, X, lengthscale, outputscale),
        K_xx=kernel(X, X, lengthscale, outputscale),
        y=draw(powers_of_ten(-2, 2)) * rng.normal(size=(N, *columns)),
        y_c=draw(powers_of_ten(-2, 2)) * rng.normal(size=(M, *columns)),
        beta=np.array(draw(st.lists(weights, min_size=M, max_size=M))),
        noise=noise * rng.uniform(0.5, 2.0, size=N) if per_point else noise,
        site_noise=noise,
    )


def log_marginal(p: Problem) -> float:
    return ref.log_marginal(p.K_xx, p.y, p.noise)


def positive(p: Problem) -> Problem:
    """Best pseudo-outputs need weights above zero."""
    return replace(p, beta=np.maximum(p.beta, 1e-8))


def best_diagonal(p: Problem) -> float:
    return sites.best_coreset(tensor(p.K_cc), statistics(p), tensor(p.w)).value.item()


def full_matrix(p: Problem) -> float:
    return bounds.solve_titsias(statistics(p), bounds.whitener(tensor(p.K_cc))).value.item()


def assert_ordered(lower: float, upper: float) -> None:
    # Rounding, of sums that can be much larger than their total: lower is the longer way from zero.
    assert lower <= upper + 1e-8 * (1.0 + abs(lower))


@given(problems())
def test_elbo_is_no_more_than_the_tight_bound(p: Problem) -> None:
    assert_ordered(elbo(p), tight(p))


@given(problems())
def test_tight_bound_is_no_more_than_the_log_marginal(p: Problem) -> None:
    assert_ordered(tight(p), log_marginal(p))


@given(problems().map(positive))
def test_elbo_is_no_more_than_the_best_diagonal(p: Problem) -> None:
    assert_ordered(elbo(p), best_diagonal(p))


@given(problems().map(positive))
def test_best_diagonal_is_no_more_than_sgpr(p: Problem) -> None:
    assert_ordered(best_diagonal(p), full_matrix(p))


@given(problems())
def test_sgpr_is_no_more_than_the_log_marginal(p: Problem) -> None:
    assert_ordered(full_matrix(p), log_marginal(p))


@pytest.mark.parametrize("jitter", [1e-8, 1e-4])
def test_tight_bound_with_much_jitter_is_still_a_bound(jitter: float) -> None:
    # The jitter must be in K_cc of both parts: in the tightening alone it lifts the value over log p(y).
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(12, 1))
    K = ref.rbf(X, X, 3.0)
    p = Problem(K + jitter * np.eye(12), K, K, rng.normal(size=12), rng.normal(size=12), np.ones(12), 1e-2)
    assert_ordered(tight(p), log_marginal(p))
