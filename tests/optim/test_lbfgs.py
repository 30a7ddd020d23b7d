from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from cvgp.errors import CVGPError, FactorizationError
from cvgp.optim import MAX_RESTARTS, Progress, Status, minimize_lbfgs


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
    "a failed factorization": FactorizationError("not positive definite"),
}


@pytest.mark.parametrize("start", [[-1.2, 1.0], [0.0] * 5], ids=["two variables", "five variables"])
def test_finds_the_minimum_of_rosenbrocks_function(start: list[float]) -> None:
    objective = Objective(rosenbrock, start)
    minimize_lbfgs(objective.parameters, objective, max_evaluations=500, tol=0.0)
    torch.testing.assert_close(objective.parameters[0].detach(), torch.ones(len(start), dtype=torch.float64))


def test_a_line_search_that_fails_is_no_convergence() -> None:
    objective = Objective(bowl, [0.0])

    def with_a_wrong_gradient() -> float:
        value = objective()
        objective.parameters[0].grad.neg_()  # type: ignore[union-attr]
        return value

    result = minimize_lbfgs(objective.parameters, with_a_wrong_gradient, max_evaluations=500, tol=0.0)
    assert result.status is Status.ABNORMAL
    assert not result.converged


def test_plateau_ends_the_search_as_converged() -> None:
    objective = Objective(rosenbrock, [-1.2, 1.0, 1.0])
    result = minimize_lbfgs(objective.parameters, objective, max_evaluations=500, tol=1e9)
    # The window of the plateau is ten iterations, of one evaluation and a few line searches.
    assert result.status is Status.CONVERGED
    assert 10 <= result.num_iter <= 20


def test_monitor_stops_the_search_with_its_status() -> None:
    objective = Objective(rosenbrock, [-1.2, 1.0])
    stop_at_5: Callable[[Progress], Status | None] = lambda p: Status.TIME_LIMIT if p.iteration == 5 else None  # noqa: E731
    result = minimize_lbfgs(objective.parameters, objective, max_evaluations=100, tol=0.0, monitor=stop_at_5)
    assert (result.status, result.num_iter) == (Status.TIME_LIMIT, 5)


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("calls", [(2,), (6,), (4, 9, 15)], ids=str)
def test_search_goes_on_after(failure: Exception | None, calls: tuple[int, ...]) -> None:
    objective = Objective(rosenbrock, [-1.2, 1.0])
    objective.go_wrong = fail_on(*calls, error=failure)
    minimize_lbfgs(objective.parameters, objective, max_evaluations=500, tol=0.0)
    torch.testing.assert_close(objective.parameters[0].detach(), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_raises_after_three_restarts(failure: Exception | None) -> None:
    objective = Objective(rosenbrock, [-1.2, 1.0])
    objective.go_wrong = fail_on(*range(2, 500), error=failure)
    with pytest.raises(CVGPError):
        minimize_lbfgs(objective.parameters, objective, max_evaluations=500, tol=0.0)
    # The first evaluation is good; after that each search fails at once.
    assert objective.calls == 1 + 1 + MAX_RESTARTS


def test_no_coordinate_leaves_the_range_of_exponentials() -> None:
    objective = Objective(lambda x: -x.sum(), [0.0])
    minimize_lbfgs(objective.parameters, objective, max_evaluations=100, tol=0.0)
    assert objective.parameters[0].item() == 20.0
