import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel

from cvgp.gp.kernels import make_kernel
from cvgp.training.plan import LBFGS_SECONDS, exact_seconds, lbfgs_evaluations
from cvgp.training.size import (
    LARGEST_BY_DEFAULT,
    SMALLEST,
    UNEXPLAINED_SHARE,
    affordable,
    coreset_seconds,
    enough_points,
    exact_is_worth_it,
    largest_untrained,
)
from tests import reference as ref

X = np.random.default_rng(0).uniform(-2.0, 2.0, size=(300, 1))


def rbf(lengthscale: float) -> Kernel:
    kernel = make_kernel("rbf", 1)
    kernel.base_kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return kernel


def choose(lengthscale: float, noise: float = 0.01, x: np.ndarray = X, max_time: float | None = None) -> int:
    return enough_points(rbf(lengthscale), noise, x, max_time)


def test_shorter_lengthscales_need_more_points() -> None:
    sizes = [choose(lengthscale) for lengthscale in (0.3, 0.1, 0.05)]
    assert sizes == sorted(set(sizes))


def test_less_noise_needs_more_points() -> None:
    sizes = [choose(0.1, noise) for noise in (1.0, 1e-2, 1e-4)]
    assert sizes == sorted(set(sizes))


def test_points_explain_the_prior_but_for_a_share_of_the_noise() -> None:
    size, K = choose(0.1), ref.rbf(X, X, 0.1, 1.0)
    left = K.diagonal().copy()
    chosen: list[int] = []
    remaining = []
    for _ in range(size):
        chosen.append(int(left.argmax()))
        left = K.diagonal() - np.einsum("ij,ji->i", K[:, chosen], np.linalg.solve(K[np.ix_(chosen, chosen)], K[chosen]))
        remaining.append(left.mean())
    assert remaining[-1] <= UNEXPLAINED_SHARE * 0.01 < remaining[-2]


def test_smooth_function_still_gets_the_smallest_size() -> None:
    assert choose(0.5, noise=10.0) == SMALLEST


def test_size_is_no_larger_than_the_data() -> None:
    assert choose(1e-3, x=X[:9]) == 9


def test_size_is_no_larger_than_the_rank_of_the_kernel() -> None:
    assert enough_points(make_kernel("linear", 1), 0.01, X, None) == 1


def test_default_budget_caps_the_size() -> None:
    x = np.arange(1000.0)[:, None]
    assert choose(1e-3, x=x) == LARGEST_BY_DEFAULT


def test_time_limit_caps_the_size() -> None:
    x = np.arange(1000.0)[:, None]
    assert choose(1e-3, x=x, max_time=0.1) == affordable(0.1) < LARGEST_BY_DEFAULT


def test_more_time_affords_no_fewer_points() -> None:
    sizes = [affordable(seconds) for seconds in (0.1, 10.0, 60.0, 600.0, 1e6)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_affordable_size_is_a_multiple_of_fifty() -> None:
    assert {affordable(seconds) % 50 for seconds in (0.1, 20.0, 300.0)} == {0}


def most_exact_rows(num_dims: int, size: int, max_time: float | None = None) -> int:
    """Up to how many rows the exact GP is worth it, where so many points would do."""
    return max(n for n in range(50, 4000, 50) if exact_is_worth_it(n, num_dims, size, max_time))


def test_exact_gp_is_worth_it_for_more_rows_where_more_points_are_needed() -> None:
    rows = [most_exact_rows(8, size) for size in (16, 100, 400)]
    assert rows == sorted(set(rows))


def test_exact_gp_is_worth_it_for_more_rows_where_more_columns_lengthen_the_search_for_points() -> None:
    rows = [most_exact_rows(dims, 16) for dims in (1, 3, 6)]
    assert rows == sorted(set(rows))


def test_exact_gp_is_worth_it_up_to_a_number_of_rows_and_never_beyond() -> None:
    worth = [exact_is_worth_it(n, 1, 20, None) for n in range(50, 4000, 50)]
    assert worth == sorted(worth, reverse=True)
    assert worth[0]
    assert not worth[-1]


def test_exact_gp_is_worth_it_for_fewer_rows_where_many_columns_make_its_matrices_dear() -> None:
    assert most_exact_rows(500, 400) < most_exact_rows(8, 400)


@pytest.mark.parametrize("num_dims", [1, 30, 500])
def test_exact_gp_takes_no_longer_than_lbfgs_may_by_itself(num_dims: int) -> None:
    rows = most_exact_rows(num_dims, 400)
    assert lbfgs_evaluations(rows, rows, num_dims) * exact_seconds(rows, num_dims) <= LBFGS_SECONDS


def test_time_limit_that_is_too_short_for_the_exact_gp_rules_it_out() -> None:
    assert most_exact_rows(8, 400, max_time=1.0) < most_exact_rows(8, 400)


def test_more_points_cost_more() -> None:
    seconds = [coreset_seconds(1000, 3, size) for size in (16, 50, 200, 400)]
    assert seconds == sorted(set(seconds))


def test_exact_gp_is_worth_it_for_fewer_rows_where_neighbours_can_be_consulted() -> None:
    def most(*, has_neighbours: bool) -> int:
        worth = (exact_is_worth_it(n, 5, 400, None, has_neighbours=has_neighbours) for n in range(50, 4000, 50))
        return sum(worth)

    assert most(has_neighbours=True) < most(has_neighbours=False)


def test_points_that_are_not_trained_are_fewer_where_rows_are_more() -> None:
    sizes = [largest_untrained(rows, None) for rows in (5000, 20_000, 100_000)]
    assert sizes == sorted(set(sizes), reverse=True)


def test_points_that_are_not_trained_leave_some_rows_to_learn_the_noise_from() -> None:
    assert largest_untrained(1000, None) <= 800


def test_points_that_are_not_trained_are_fewer_in_a_shorter_time() -> None:
    assert largest_untrained(5000, 4.0) < largest_untrained(5000, 40.0)
