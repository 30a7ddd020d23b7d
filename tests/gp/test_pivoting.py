import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel
from hypothesis import given, settings
from hypothesis import strategies as st

from cvgp.gp.kernels import make_kernel
from cvgp.gp.sites import randomly_pivoted
from tests import reference as ref

N, D = 60, 2
X = np.random.default_rng(0).normal(size=(N, D))
LENGTHSCALE = np.array([0.7, 1.6])


def matern() -> Kernel:
    kernel = make_kernel("matern32", D)
    kernel.base_kernel.lengthscale = torch.tensor(LENGTHSCALE)
    kernel.outputscale = torch.tensor(1.4, dtype=torch.float64)
    return kernel


def choose(size: int, x: np.ndarray = X, seed: int = 0, **options: object) -> list[int]:
    present = options.pop("present", None)
    given_points = None if present is None else torch.as_tensor(present)
    rng = np.random.default_rng(seed)
    kernel = options.pop("kernel", None) or matern()
    return randomly_pivoted(kernel, torch.as_tensor(x), size, rng, present=given_points, **options).tolist()


def variance_left(points: np.ndarray) -> np.ndarray:
    """The conditional variance of each row given the points, by a plain solve."""
    K_xx, K_xp = (ref.matern32(X, other, LENGTHSCALE, 1.4) for other in (X, points))
    K_pp = ref.matern32(points, points, LENGTHSCALE, 1.4)
    return np.diag(K_xx) - np.einsum("ij,ji->i", K_xp, np.linalg.solve(K_pp, K_xp.T))


@pytest.mark.parametrize("present", [np.zeros((0, D)), X[:3] + 0.1], ids=["nothing there", "three points there"])
def test_rows_are_drawn_by_the_naive_conditional_variance(present: np.ndarray) -> None:
    rng, expected = np.random.default_rng(5), list[int]()
    for _ in range(20):
        left = variance_left(np.concatenate([present, X[expected]])).clip(0.0)
        left[expected] = 0.0
        expected += rng.choice(N, 1, p=left / left.sum()).tolist()
        rng.uniform(size=1)  # a block of one row is always kept
    assert choose(20, seed=5, present=present if len(present) else None, block=1) == expected


def test_a_block_has_the_distribution_of_a_choice_one_by_one() -> None:
    x, trials, kernel = np.array([[0.0, 0.0], [0.1, 0.0], [0.9, 0.0], [4.0, 0.0]]), 500, matern()
    correlation = ref.matern32(x, x, LENGTHSCALE)
    left = 1.0 - correlation**2  # [4, 4], of each row after the first
    expected = 0.25 * left / left.sum(1, keepdims=True)
    pairs = np.array([choose(2, x, seed, block=6, kernel=kernel) for seed in range(trials)])
    shares = np.zeros((4, 4))
    np.add.at(shares, (pairs[:, 0], pairs[:, 1]), 1.0 / trials)
    # The standard error of such a share is at most sqrt(.12 * .88 / 500) = .015.
    np.testing.assert_allclose(shares, expected, atol=0.045)


@given(size=st.integers(1, N + 5), block=st.integers(1, 80), seed=st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_no_row_is_chosen_twice(size: int, block: int, seed: int) -> None:
    chosen = choose(size, seed=seed, block=block)
    assert len(set(chosen)) == len(chosen) == min(size, N)


def test_choice_ends_with_the_rank_of_the_kernel() -> None:
    assert len(choose(N, kernel=make_kernel("linear", D))) == D
