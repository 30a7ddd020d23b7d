from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cvgp.errors import InvalidInputError
from cvgp.gp import bounds
from tests.gp.bounds.problems import (
    FULL_DATA,
    MINIBATCH,
    Problem,
    collapsed,
    data_side,
    elbo,
    make_problem,
    reference_best_outputs,
    reference_collapsed,
    statistics,
    tensor,
)


def solve(p: Problem) -> bounds.CollapsedSolution:
    return bounds.solve_collapsed(tensor(p.K_cc), tensor(p.w), statistics(p))


@pytest.mark.parametrize("problem", FULL_DATA.values(), ids=FULL_DATA)
def test_value_is_the_reference(problem: Problem) -> None:
    np.testing.assert_allclose(collapsed(problem), reference_collapsed(problem), rtol=1e-9)


@pytest.mark.parametrize("problem", FULL_DATA.values(), ids=FULL_DATA)
def test_value_from_float32_data_is_near_the_reference(problem: Problem) -> None:
    np.testing.assert_allclose(collapsed(problem, torch.float32), reference_collapsed(problem), rtol=1e-5)


@pytest.mark.parametrize("problem", FULL_DATA.values(), ids=FULL_DATA)
def test_best_pseudo_outputs_are_the_reference(problem: Problem) -> None:
    y_c = solve(problem).factor.y_c.reshape(problem.y_c.shape)
    np.testing.assert_allclose(y_c, reference_best_outputs(problem), rtol=1e-8)


@pytest.mark.parametrize("problem", (FULL_DATA | MINIBATCH).values(), ids=FULL_DATA | MINIBATCH)
def test_elbo_at_the_best_pseudo_outputs_is_the_value(problem: Problem) -> None:
    solution = solve(problem)
    at_best = replace(problem, y_c=solution.factor.y_c.reshape(problem.y_c.shape).numpy())
    np.testing.assert_allclose(elbo(at_best), solution.value, rtol=1e-10)


@pytest.mark.parametrize("problem", FULL_DATA.values(), ids=FULL_DATA)
def test_value_from_statistics_is_the_bound(problem: Problem) -> None:
    np.testing.assert_allclose(solve(problem).value, collapsed(problem), rtol=1e-12)


@given(y_c=hnp.arrays(np.float64, (4, 2), elements=st.floats(-10, 10)), beta=st.floats(1e-6, 1e3))
def test_value_is_no_less_than_the_elbo_at_any_pseudo_outputs(y_c: np.ndarray, beta: float) -> None:
    p = replace(FULL_DATA["all of it"], y_c=y_c, beta=np.array([beta, 1.0, 1.0 / beta, 0.5]))
    assert collapsed(p) >= elbo(p) - 1e-9 * abs(elbo(p))


@given(step=hnp.arrays(np.float64, (4, 2), elements=st.floats(-1e-2, 1e-2)))
def test_no_small_step_away_from_the_best_pseudo_outputs_raises_the_elbo(step: np.ndarray) -> None:
    p = FULL_DATA["all of it"]
    best = solve(p)
    moved = replace(p, y_c=best.factor.y_c.numpy() + step)
    assert elbo(moved) <= best.value.item() + 1e-11 * abs(best.value.item())


def test_alpha_is_what_the_best_pseudo_outputs_give() -> None:
    solution = solve(make_problem())
    torch.testing.assert_close(solution.alpha, solution.factor.alpha, rtol=1e-9, atol=0.0)


def test_mean_of_the_solution_does_not_depend_on_the_weights() -> None:
    p = make_problem()
    other = replace(p, beta=np.array([0.01, 5.0, 100.0, 1.0]))
    torch.testing.assert_close(solve(p).alpha, solve(other).alpha, rtol=1e-12, atol=0.0)


def test_splitting_the_weight_of_a_pseudo_point_changes_nothing_beyond_the_jitter() -> None:
    p = make_problem()
    twice = np.array([0, 1, 2, 3, 3])
    shares = np.array([1.0, 1.0, 1.0, 0.3, 0.7])
    split = replace(
        p, K_cc=p.K_cc[np.ix_(twice, twice)] + 1e-9 * np.eye(5), K_cx=p.K_cx[twice], beta=p.beta[twice] * shares
    )
    np.testing.assert_allclose(collapsed(split), collapsed(p), rtol=1e-6)


@pytest.mark.parametrize("problem", FULL_DATA.values(), ids=FULL_DATA)
@pytest.mark.parametrize("field", bounds.Statistics._fields)
def test_merged_statistics_are_those_of_the_union(problem: Problem, field: str) -> None:
    halves = problem.rows(np.arange(5)), problem.rows(np.arange(5, 12))
    merged = statistics(halves[0]).merge(statistics(halves[1]))
    torch.testing.assert_close(getattr(merged, field), getattr(statistics(problem), field), rtol=1e-12, atol=1e-12)


def test_bound_of_merged_statistics_is_that_of_the_union() -> None:
    p = FULL_DATA["all of it"]
    merged = statistics(p.rows(np.arange(5))).merge(statistics(p.rows(np.arange(5, 12))))
    value = bounds.solve_collapsed(tensor(p.K_cc), tensor(p.w), merged).value
    np.testing.assert_allclose(value, collapsed(p), rtol=1e-12)


@pytest.mark.parametrize("changes", [{"M": 3}, {"outputs": 2}], ids=["other pseudo-inputs", "other outputs"])
def test_statistics_of_other_shapes_do_not_merge(changes: dict[str, int]) -> None:
    with pytest.raises(InvalidInputError, match="Statistics merge only when"):
        statistics(make_problem()).merge(statistics(make_problem(**changes)))


def test_statistics_of_float32_data_are_float64() -> None:
    assert {field.dtype for field in statistics(make_problem(), torch.float32)} == {torch.float64}


def test_gather_refuses_outputs_without_columns() -> None:
    p = make_problem()
    K_cx, k_xx, y = data_side(p)
    with pytest.raises(InvalidInputError, match=r"y must be \[B, Q\]"):
        bounds.gather(bounds.whitener(tensor(p.K_cc)), K_cx, k_xx, y, k_xx, tensor(0.0))


def test_weight_of_zero_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="do not exist for a weight of zero; drop such points first"):
        collapsed(make_problem(beta=np.array([1.0, 0.0, 1.0, 1.0])))


BAD_INPUT = {
    "beta negative": ({"beta": np.array([1.0, -1.0, 1.0, 1.0])}, "finite and not negative"),
    "beta NaN": ({"beta": np.array([1.0, np.nan, 1.0, 1.0])}, "finite and not negative"),
    "beta of another length": ({"beta": np.ones(3)}, r"w \[4\]"),
    "K_cc of another size": ({"K_cc": np.eye(5)}, r"must be \[M, M\]"),
    "y of one point": ({"y": np.zeros(1)}, "y must be"),
    "noise of another length": ({"noise": np.ones(3), "site_noise": 0.5}, "noise must be a scalar or one variance"),
    "sample weights of another length": ({"sample_weight": np.ones(3)}, "sample_weight must be"),
}


@pytest.mark.parametrize(("changes", "message"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_is_refused(changes: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        collapsed(make_problem(**changes))


@pytest.mark.parametrize("position", range(5), ids=["K_cc", "K_cx", "k_xx", "y", "beta"])
def test_mixed_devices_are_refused(position: int) -> None:
    p = make_problem()
    arguments = [tensor(p.K_cc), *data_side(p), tensor(p.beta)]
    arguments[position] = arguments[position].to("meta")
    with pytest.raises(InvalidInputError, match="one device"):
        bounds.collapsed_bound(*arguments, tensor(p.noise))


@pytest.mark.parametrize(("M", "num_weights"), [(3, 3), (4, 3)], ids=["K_cc", "w"])
def test_solve_refuses_what_does_not_fit_the_statistics(M: int, num_weights: int) -> None:
    with pytest.raises(InvalidInputError, match="With statistics of 4 pseudo-inputs"):
        bounds.solve_collapsed(torch.eye(M, dtype=torch.float64), torch.ones(num_weights), statistics(make_problem()))
