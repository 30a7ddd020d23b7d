from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from cvgp.errors import CVGPError, FactorisationError
from cvgp.optim import lbfgs
from cvgp.optim.lbfgs import MAX_RESTARTS, minimise_lbfgs
from cvgp.optim.stopping import Progress, Status


class Objective:
    """A function of parameters that counts its calls, and goes wrong on some of them."""

    def __init__(self, function: Callable[..., Tensor], *start: list[float]) -> None:
        self.function = function
        self.parameters = [torch.tensor(s, dtype=torch.float64, requires_grad=True) for s in start]
        self.calls = 0
        self.go_wrong: Callable[[int], float] = lambda call: 0.0

    def __call__(self) -> float:
        self.calls += 1
        shift = self.go_wrong(self.calls)
        value = self.function(*self.parameters)
        value.backward()
        return value.item() + shift


def rosenbrock(x: Tensor) -> Tensor:
    return (100.0 * (x[1:] - x[:-1].square()).square() + (1.0 - x[:-1]).square()).sum()


def bowl(x: Tensor) -> Tensor:
    return (x - 3.0).square().sum()


def fail_on(*calls: int, error: Exception | None = None) -> Callable[[int], float]:
    """NaN on these calls, or an error."""

    def go_wrong(call: int) -> float:
        if call not in calls:
            return 0.0
        if error is not None:
            raise error
        return float("nan")

    return go_wrong


FAILURES = {
    "a value that is not finite": None,
    "a failed factorisation": FactorisationError("not positive definite"),
}


@pytest.mark.parametrize("start", [[-1.2, 1.0], [0.0] * 5], ids=["two variables", "five variables"])
def test_finds_the_minimum_of_rosenbrocks_function(start: list[float]) -> None:
    objective = Objective(rosenbrock, start)
    minimise_lbfgs(objective.parameters, objective, max_evaluations=500, tol=0.0)
    torch.testing.assert_close(objective.parameters[0].detach(), torch.ones(len(start), dtype=torch.float64))


def test_parameters_of_several_shapes_are_searched_together() -> None:
    objective = Objective(lambda x, y: (x - y).square().sum() + (y - 2.0).square(), [0.0, 0.0], 5.0)
    minimise_lbfgs(objective.parameters, objective, max_evaluations=100, tol=0.0)
    assert [p.detach().numpy().round(6).tolist() for p in objective.parameters] == [[2.0, 2.0], 2.0]


def test_converged_search_says_so() -> None:
    objective = Objective(bowl, [0.0])
    assert minimise_lbfgs(objective.parameters, objective, max_evaluations=100, tol=0.0).status is Status.CONVERGED


def test_a_line_search_that_fails_is_no_convergence() -> None:
    objective = Objective(bowl, [0.0])

    def with_a_wrong_gradient() -> float:
        value = objective()
        objective.parameters[0].grad.neg_()  # type: ignore[union-attr]
        return value

    result = minimise_lbfgs(objective.parameters, with_a_wrong_gradient, max_evaluations=500, tol=0.0)
    assert result.status is Status.ABNORMAL
    assert not result.converged


def test_the_search_remembers_thirty_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, object] = {}
    real = lbfgs.minimize
    monkeypatch.setattr(lbfgs, "minimize", lambda *args, **kwargs: told.update(kwargs) or real(*args, **kwargs))
    objective = Objective(bowl, [0.0])
    minimise_lbfgs(objective.parameters, objective, max_evaluations=10, tol=0.0)
    assert told["options"]["maxcor"] == 30  # type: ignore[index]


def test_plateau_ends_the_search_as_converged() -> None:
    objective = Objective(rosenbrock, [-1.2, 1.0, 1.0])
    result = minimise_lbfgs(objective.parameters, objective, max_evaluations=500, tol=1e9)
    # The window of the plateau is ten iterations, of one evaluation and a few line searches.
    assert result.status is Status.CONVERGED
    assert 10 <= result.num_iter <= 20


def test_evaluations_stop_at_their_limit() -> None:
    objective = Objective(rosenbrock, [-1.2, 1.0])
    result = minimise_lbfgs(objective.parameters, objective, max_evaluations=7, tol=0.0)
    assert (result.status, result.num_iter, objective.calls) == (Status.ITERATION_LIMIT, 7, 7)


def test_monitor_stops_the_search_with_its_status() -> None:
    objective = Objective(rosenbrock, [-1.2, 1.0])
    stop_at_5: Callable[[Progress], Status | None] = lambda p: Status.TIME_LIMIT if p.iteration == 5 else None  # noqa: E731
    result = minimise_lbfgs(objective.parameters, objective, max_evaluations=100, tol=0.0, monitor=stop_at_5)
    assert (result.status, result.num_iter) == (Status.TIME_LIMIT, 5)


def test_monitor_sees_the_best_value_so_far() -> None:
    objective = Objective(rosenbrock, [-1.2, 1.0])
    seen: list[float] = []
    minimise_lbfgs(objective.parameters, objective, max_evaluations=30, tol=0.0, monitor=lambda p: seen.append(p.value))
    assert seen == sorted(seen, reverse=True)


def test_parameters_are_left_at_the_best_point() -> None:
    objective = Objective(rosenbrock, [-1.2, 1.0])
    result = minimise_lbfgs(objective.parameters, objective, max_evaluations=8, tol=0.0)
    assert rosenbrock(*objective.parameters).item() == result.value


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("calls", [(2,), (6,), (4, 9, 15)], ids=str)
def test_search_goes_on_after(failure: Exception | None, calls: tuple[int, ...]) -> None:
    objective = Objective(rosenbrock, [-1.2, 1.0])
    objective.go_wrong = fail_on(*calls, error=failure)
    minimise_lbfgs(objective.parameters, objective, max_evaluations=500, tol=0.0)
    torch.testing.assert_close(objective.parameters[0].detach(), torch.ones(2, dtype=torch.float64))


def test_restart_is_reported_with_its_cause() -> None:
    objective = Objective(rosenbrock, [-1.2, 1.0])
    objective.go_wrong = fail_on(5, error=FactorisationError("K_cc is indefinite"))
    events: list[str] = []
    minimise_lbfgs(
        objective.parameters, objective, max_evaluations=50, tol=0.0, monitor=lambda p: events.append(p.event)
    )
    assert [event for event in events if event] == ["restart after: K_cc is indefinite"]


def test_monitor_may_stop_the_search_at_the_report_of_a_restart() -> None:
    objective = Objective(rosenbrock, [-1.2, 1.0])
    objective.go_wrong = fail_on(5)
    stop_at_event: Callable[[Progress], Status | None] = lambda p: Status.INTERRUPTED if p.event else None  # noqa: E731
    result = minimise_lbfgs(objective.parameters, objective, max_evaluations=50, tol=0.0, monitor=stop_at_event)
    assert result.status is Status.INTERRUPTED


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_raises_after_three_restarts(failure: Exception | None) -> None:
    objective = Objective(rosenbrock, [-1.2, 1.0])
    objective.go_wrong = fail_on(*range(2, 500), error=failure)
    with pytest.raises(CVGPError):
        minimise_lbfgs(objective.parameters, objective, max_evaluations=500, tol=0.0)
    # The first evaluation is good; after that each search fails at once.
    assert objective.calls == 1 + 1 + MAX_RESTARTS


def test_raises_when_the_first_evaluation_fails() -> None:
    objective = Objective(bowl, [0.0])
    objective.go_wrong = fail_on(1)
    with pytest.raises(CVGPError, match="not finite"):
        minimise_lbfgs(objective.parameters, objective, max_evaluations=10, tol=0.0)


def test_a_gradient_that_is_not_finite_counts_as_failure() -> None:
    objective = Objective(lambda x: (x + 1.0).abs().sqrt().sum(), [-1.0])
    with pytest.raises(CVGPError, match="gradient is not finite"):
        minimise_lbfgs(objective.parameters, objective, max_evaluations=10, tol=0.0)


def test_memo_replays_a_search_without_evaluations() -> None:
    journal: list[tuple[np.ndarray, tuple[float, np.ndarray]]] = []

    def record(point: np.ndarray, evaluate: Callable[[], tuple[float, np.ndarray]]) -> tuple[float, np.ndarray]:
        journal.append((point.copy(), evaluate()))
        return journal[-1][1]

    def replay(point: np.ndarray, evaluate: Callable[[], tuple[float, np.ndarray]]) -> tuple[float, np.ndarray]:
        recorded_point, evaluation = journal.pop(0)
        np.testing.assert_array_equal(point, recorded_point)
        return evaluation

    first, second = (Objective(rosenbrock, [-1.2, 1.0]) for _ in range(2))
    limits = {"max_evaluations": 200, "tol": 1e-6}
    expected = minimise_lbfgs(first.parameters, first, memo=record, **limits)
    assert minimise_lbfgs(second.parameters, second, memo=replay, **limits) == expected
    assert second.calls == 0
    assert torch.equal(first.parameters[0], second.parameters[0])


def test_no_coordinate_leaves_the_range_of_exponentials() -> None:
    objective = Objective(lambda x: -x.sum(), [0.0])
    minimise_lbfgs(objective.parameters, objective, max_evaluations=100, tol=0.0)
    assert objective.parameters[0].item() == 20.0
