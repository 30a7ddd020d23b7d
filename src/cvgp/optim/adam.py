"""Adam on minibatches with one cycle of the learning rate, which goes back to a snapshot when a step fails."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.errors import DivergenceError, FactorizationError
from cvgp.optim.stopping import Monitor, Progress, Result, Status

Schedule = Callable[[float], float]
"""Maps the completed fraction of a run to a factor on the learning rate."""

SNAPSHOT_EVERY = 50
WINDOW = 500
"""Steps to average over, so that progress stands out from minibatch noise."""
MAX_RECOVERIES = 5
SMOOTHING = 0.98
"""Decay of the running mean of the stochastic objective."""
MEAN_DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.99, 1e-8
"""Adam's constants. A short memory of squares suits a short run: late steps are scaled by late gradients."""


def one_cycle(progress: float) -> float:
    """Warm up from a tenth over the first quarter, then fall along a cosine to a thousandth."""
    warm_up, start, end = 0.25, 0.1, 1e-3
    if progress < warm_up:
        return start + (1.0 - start) * 0.5 * (1.0 - math.cos(math.pi * progress / warm_up))
    fraction = min((progress - warm_up) / (1.0 - warm_up), 1.0)
    return end + (1.0 - end) * 0.5 * (1.0 + math.cos(math.pi * fraction))


def constant(progress: float) -> float:
    """No schedule."""
    return 1.0


class Ending:
    """Ends a run once a window of steps is hardly better than the window before it.

    At a high learning rate a bound stops rising long before the optimum. So a plateau does not end the run at once:
    the rate first falls along the rest of its schedule, within half a window.

    Parameters
    ----------
    tol
        The least fall of the objective over ten steps that counts as progress.
    """

    def __init__(self, tol: float) -> None:
        self.tol = tol
        self.total = 0.0
        self.before = math.inf
        self.begin = -1.0
        self.fraction = 0.0

    def update(self, step: int, value: float, fraction: float) -> None:
        """Add the objective at a step, with the completed fraction of the schedule."""
        self.total += value
        if step % WINDOW or self.begin >= 0.0:
            return
        mean, self.total = self.total / WINDOW, 0.0
        if self.before - mean < self.tol * WINDOW / 10.0:
            self.begin, self.fraction = float(step), fraction
        self.before = mean

    def progress(self, step: int, fraction: float) -> float:
        """The completed fraction of the schedule, given the fraction without a plateau."""
        if self.begin < 0.0:
            return fraction
        passed = (step - self.begin) / (WINDOW // 2)
        return max(fraction, self.fraction + (1.0 - self.fraction) * passed)

    def dump(self) -> dict[str, float]:
        """The state that a resumed run needs."""
        return {"total": self.total, "before": self.before, "begin": self.begin, "fraction": self.fraction}

    def load(self, stored: dict[str, float]) -> None:
        """Continue a stored run."""
        self.total, self.before, self.begin, self.fraction = (stored[name] for name in self.dump())


class AdamState:
    """The state of a run: the parameters, their moments, and everything else that a resumed run needs.

    The parameters become views of one vector, and their gradients views of another, so an update is a few operations
    however many parameters there are.
    """

    def __init__(self, parameters: Sequence[Tensor], learning_rate: float) -> None:
        self.parameters = list(parameters)
        self.vector = torch.cat([p.detach().reshape(-1) for p in self.parameters])  # [n]
        self.gradient = torch.zeros_like(self.vector)
        self.mean = torch.zeros_like(self.vector)
        self.square = torch.zeros_like(self.vector)
        self.updates = 0
        start = 0
        for p in self.parameters:
            part = slice(start, start + p.numel())
            p.data, p.grad = self.vector[part].view_as(p), self.gradient[part].view_as(p)
            start = part.stop
        self.learning_rate = learning_rate
        self.rates: Tensor | None = None
        self.step = 0
        self.smoothed = math.nan
        self.recoveries = 0

    def update(self, learning_rate: float) -> None:
        """Take one step of Adam (Kingma and Ba, 2015) against the gradient; `rates` are factors on its coordinates."""
        self.updates += 1
        self.mean.lerp_(self.gradient, 1.0 - MEAN_DECAY)
        self.square.mul_(SQUARE_DECAY).addcmul_(self.gradient, self.gradient, value=1.0 - SQUARE_DECAY)
        root = self.square.sqrt().div_(math.sqrt(1.0 - SQUARE_DECAY**self.updates)).add_(EPSILON)
        direction = self.mean if self.rates is None else self.mean * self.rates
        self.vector.addcdiv_(direction, root, value=-learning_rate / (1.0 - MEAN_DECAY**self.updates))

    def snapshot(self) -> "Snapshot":
        """A copy of parameters and moments, to return to."""
        return Snapshot(self.vector.clone(), self.mean.clone(), self.square.clone(), self.updates)

    def is_finite(self) -> bool:
        """Whether no parameter is NaN or infinite."""
        return bool(torch.isfinite(self.vector).all())

    def restore(self, snapshot: "Snapshot") -> None:
        """Return to a snapshot."""
        self.vector.copy_(snapshot.vector)
        self.mean.copy_(snapshot.mean)
        self.square.copy_(snapshot.square)
        self.updates = snapshot.updates


class Snapshot(NamedTuple):
    """Parameters and moments at one step."""

    vector: Tensor
    mean: Tensor
    square: Tensor
    updates: int


def minimize_adam(
    state: AdamState,
    loss_and_backward: Callable[[int], float],
    *,
    max_steps: int,
    schedule: Schedule = one_cycle,
    time_used: Callable[[], float] = lambda: 0.0,
    ending: Ending | None = None,
    monitor: Monitor = lambda progress: None,
) -> Result:
    """Minimize a stochastic objective by `max_steps` Adam steps, continuing from `state.step`.

    A loss that is not finite, or a factorization that fails, sends the run back to its last snapshot with half the
    learning rate.

    Parameters
    ----------
    state
        Parameters, moments and step; changed in place, so that a caller can store it at any time.
    loss_and_backward
        The loss of the batch with the given step number; adds its gradient to the parameters' `grad`.
    max_steps, schedule
        Length of the run, and the factor on the learning rate at each fraction of it.
    time_used
        Fraction of the time limit that has passed. The schedule follows the nearer limit, steps or time, so that the
        learning rate is low when either is reached.
    ending
        Ends the run early after a plateau.
    monitor
        Called after every step; may stop the run.
    """
    good = state.snapshot()
    while state.step < max_steps:
        spent = time_used()
        if spent >= 1.0:
            return _finish(state, good, Status.TIME_LIMIT)
        done = max(state.step / max_steps, spent)
        if ending is not None:
            done = ending.progress(state.step, done)
            if done >= 1.0:
                return _finish(state, good, Status.CONVERGED)
        factor = schedule(done)
        event = ""
        try:
            value = _step(state, loss_and_backward, state.learning_rate * factor)
        except (FactorizationError, FloatingPointError) as failure:
            if state.recoveries == MAX_RECOVERIES:
                raise DivergenceError(
                    f"Adam failed {MAX_RECOVERIES + 1} times, although the learning rate was halved after each "
                    f"({failure}). Start with a smaller learning_rate, and look for extreme values in the data."
                ) from failure
            state.restore(good)
            state.recoveries += 1
            state.learning_rate *= 0.5
            event = f"back to the last good state, learning rate halved: {failure}"
        else:
            state.smoothed = (
                value if math.isnan(state.smoothed) else SMOOTHING * state.smoothed + (1.0 - SMOOTHING) * value
            )
            if ending is not None:
                ending.update(state.step + 1, value, done)
        state.step += 1
        # A gradient that is not finite shows in the parameters at once, and in the loss only at the next step.
        if state.step % SNAPSHOT_EVERY == 0 and state.is_finite():
            good = state.snapshot()
        status = monitor(Progress(state.step, state.smoothed, state.learning_rate * factor, event))
        if status is not None:
            return _finish(state, good, status)
    return _finish(state, good, Status.ITERATION_LIMIT)


def _finish(state: AdamState, good: Snapshot, status: Status) -> Result:
    if not state.is_finite():
        state.restore(good)
    return Result(status, state.smoothed, state.step)


def _step(state: AdamState, loss_and_backward: Callable[[int], float], learning_rate: float) -> float:
    state.gradient.zero_()
    value = loss_and_backward(state.step)
    if not math.isfinite(value):
        raise DivergenceError("the loss is not finite")
    state.update(learning_rate)
    return value
