import math
from typing import Any

import pytest
import torch
from torch import Tensor

from cvgp.errors import DivergenceError, FactorizationError
from cvgp.optim import (
    MAX_RECOVERIES,
    SNAPSHOT_EVERY,
    WINDOW,
    AdamState,
    Ending,
    Progress,
    Result,
    Status,
    constant,
    minimize_adam,
    one_cycle,
)

TARGET = torch.tensor([3.0, -2.0, 0.5], dtype=torch.float64)


class NoisyQuadratic:
    """(x - target)^2 with noise that depends on the step alone, and steps at which it goes wrong."""

    def __init__(self, learning_rate: float = 0.1, noise: float = 0.3) -> None:
        self.x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
        self.state = AdamState([self.x], learning_rate)
        self.noise = noise
        self.wrong: dict[int, Exception | float] = {}

    def loss(self, step: int) -> Tensor:
        wrong = self.wrong.get(step)
        if isinstance(wrong, Exception):
            raise wrong
        noise = torch.randn(3, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        value = (self.x - TARGET + self.noise * noise).square().sum()
        return value if wrong is None else value * wrong

    def loss_and_backward(self, step: int) -> float:
        value = self.loss(step)
        value.backward()
        return value.item()

    def run(self, max_steps: int, **options: Any) -> Result:
        return minimize_adam(self.state, self.loss_and_backward, max_steps=max_steps, **options)


def watch(run: NoisyQuadratic, steps: int, **options: Any) -> list[Progress]:
    seen: list[Progress] = []
    run.run(steps, monitor=seen.append, **options)
    return seen


BAD_STEPS = {
    "a loss that is not finite": math.nan,
    "an infinite loss": math.inf,
    "a failed factorization": FactorizationError("not positive definite"),
}


@pytest.mark.parametrize("bad", BAD_STEPS.values(), ids=BAD_STEPS)
def test_bad_step_returns_to_the_last_snapshot(bad: Exception | float) -> None:
    run, untouched = NoisyQuadratic(), NoisyQuadratic()
    schedule: dict[str, Any] = {"schedule": constant}
    untouched.run(SNAPSHOT_EVERY, **schedule)
    run.wrong = {SNAPSHOT_EVERY + 10: bad}
    run.run(SNAPSHOT_EVERY + 11, **schedule)
    assert torch.equal(run.x, untouched.x)


def test_raises_after_the_last_recovery() -> None:
    run = NoisyQuadratic()
    run.wrong = dict.fromkeys(range(3, 100), math.nan)
    with pytest.raises(DivergenceError, match="smaller learning_rate"):
        run.run(100)
    assert run.state.recoveries == MAX_RECOVERIES


class BadGradient(NoisyQuadratic):
    """A finite loss whose gradient is NaN at one step."""

    def __init__(self, bad_step: int) -> None:
        super().__init__()
        self.bad_step = bad_step

    def loss(self, step: int) -> Tensor:
        value = super().loss(step)
        if step == self.bad_step:
            value.register_hook(lambda gradient: gradient * math.nan)
        return value


@pytest.mark.parametrize("bad_step", [10, SNAPSHOT_EVERY - 1], ids=["between snapshots", "where a snapshot is due"])
def test_run_recovers_from_a_gradient_that_is_not_finite(bad_step: int) -> None:
    run = BadGradient(bad_step)
    run.run(600)
    torch.testing.assert_close(run.x.detach(), TARGET, rtol=0.0, atol=0.05)


def test_schedule_follows_the_time_when_that_is_nearer_its_end() -> None:
    spent = iter([0.0, 0.3, 0.6, 0.9, 1.0])
    rates = [p.learning_rate for p in watch(NoisyQuadratic(learning_rate=0.1), 1000, time_used=lambda: next(spent))]
    assert rates == pytest.approx([0.1 * one_cycle(fraction) for fraction in (0.0, 0.3, 0.6, 0.9)])


@pytest.mark.parametrize("steps", [1, 37, 2 * SNAPSHOT_EVERY])
def test_resumed_run_equals_an_uninterrupted_one_to_the_bit(steps: int) -> None:
    whole = NoisyQuadratic()
    whole.run(150)
    first, second = NoisyQuadratic(), NoisyQuadratic()
    first.run(150, monitor=lambda p: Status.INTERRUPTED if p.iteration == steps else None)
    second.state.restore(first.state.snapshot())
    second.state.step, second.state.smoothed = first.state.step, first.state.smoothed
    second.run(150)
    assert torch.equal(second.x, whole.x)
    assert second.state.smoothed == whole.state.smoothed


def test_steps_are_those_of_torchs_adam() -> None:
    ours, theirs = NoisyQuadratic(), NoisyQuadratic()
    optimizer = torch.optim.Adam([theirs.x], lr=0.1, betas=(0.9, 0.99))
    ours.run(40, schedule=constant)
    for step in range(40):
        optimizer.zero_grad()
        theirs.loss(step).backward()
        optimizer.step()
    torch.testing.assert_close(ours.x, theirs.x, rtol=1e-12, atol=0.0)


def test_a_plateau_ends_the_run_after_the_rate_has_fallen() -> None:
    run = NoisyQuadratic(noise=0.05)
    rates: list[float] = []
    result = run.run(20 * WINDOW, ending=Ending(tol=1e-3), monitor=lambda row: rates.append(row.learning_rate))
    assert result.status is Status.CONVERGED
    assert result.num_iter < 5 * WINDOW
    assert rates[-1] < 0.01 * max(rates)
    torch.testing.assert_close(run.x.detach(), TARGET, rtol=0.0, atol=0.02)


def test_a_stored_ending_goes_on_as_it_was() -> None:
    whole, first, second = Ending(1e-3), Ending(1e-3), Ending(1e-3)
    losses = [1.0 / (1 + step) for step in range(2 * WINDOW + 20)]
    for step, loss in enumerate(losses):
        whole.update(step + 1, loss, 0.5)
        (first if step < 700 else second).update(step + 1, loss, 0.5)
        if step == 699:
            second.load(first.dump())
    assert second.dump() == whole.dump()
    assert whole.progress(2 * WINDOW + 20, 0.5) > 0.5
