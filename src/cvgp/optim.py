"""The optimizers, L-BFGS and Adam, and the rules by which they stop."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import Bounds, minimize
from torch import Tensor

from cvgp.errors import DivergenceError, FactorizationError
from cvgp.runtime import kept_warnings, single_threaded_blas, warn_or_keep


class Status(Enum):
    """Why an optimizer stopped."""

    CONVERGED = "the objective no longer improves by more than tol"
    ITERATION_LIMIT = "the iteration limit was reached first; raise max_iter for a better optimum"
    TIME_LIMIT = "the time limit was reached first; raise max_time for a better optimum"
    EARLY_STOPPED = "the validation score no longer improves"
    COMPLETED = "the learning rate has gone through its schedule, which is as long as the fit chose"
    ABNORMAL = "the line search found no better point, although the gradient has a slope; look for extreme values"
    INTERRUPTED = "interrupted"


class Result(NamedTuple):
    """How a minimization ended; the parameters themselves are left at the best point found."""

    status: Status
    value: float
    num_iter: int

    @property
    def converged(self) -> bool:
        """Whether the optimizer ended by its own rule, not by a limit."""
        return self.status in (Status.CONVERGED, Status.EARLY_STOPPED, Status.COMPLETED)

    def completed(self) -> "Result":
        """The same, where the limit on steps was a choice of the fit: its schedule was made for it."""
        return self._replace(status=Status.COMPLETED) if self.status is Status.ITERATION_LIMIT else self


class Progress(NamedTuple):
    """One row of an optimizer's history."""

    iteration: int
    value: float
    learning_rate: float
    event: str = ""


Monitor = Callable[[Progress], Status | None]  # called after each iteration; a status stops the optimizer


class Plateau:
    """True once the best value has fallen by less than `tol` over the last `window` iterations."""

    def __init__(self, tol: float, window: int) -> None:
        self.tol = tol
        self._best: deque[float] = deque(maxlen=window + 1)

    def update(self, value: float) -> bool:
        """Add one iteration's value (lower is better) and say whether progress has stopped."""
        self._best.append(min(value, self._best[-1]) if self._best else value)
        return len(self._best) == self._best.maxlen and self._best[0] - self._best[-1] < self.tol


class NoImprovement:
    """Patience on a validation score: remembers the best score and counts the checks since then."""

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.best = float("inf")
        self.checks_since_best = 0

    def update(self, score: float) -> bool:
        """Add a score (lower is better); True when it is the best so far."""
        if score < self.best:
            self.best, self.checks_since_best = score, 0
            return True
        self.checks_since_best += 1
        return False

    @property
    def exhausted(self) -> bool:
        """Whether the last `patience` checks brought no improvement."""
        return self.checks_since_best >= self.patience


Vector = NDArray[np.float64]
MEMORY = 30  # pairs of steps and gradients that estimate the curvature: more than usual, since a pair costs little here
MAX_RESTARTS = 3
PLATEAU_WINDOW = 10
FARTHEST = 20.0  # largest distance of a coordinate from its start: where f is flat, a line search could overflow


class _StopSearch(Exception):  # noqa: N818 - a signal, not an error
    """Ends SciPy's search from inside, with a status as its argument."""


def minimize_lbfgs(
    parameters: Sequence[Tensor],
    objective: Callable[[], float],
    *,
    max_evaluations: int,
    tol: float,
    monitor: Monitor = lambda progress: None,
) -> Result:
    """Minimize `objective`, which reads the parameters and leaves its gradient in their `grad`; SciPy's L-BFGS.

    The search ends after `max_evaluations`, after ten iterations that improve by less than `tol`, or when `monitor`
    returns a status. The parameters are left at the best point found, from which a failed search restarts, at most
    three times.
    """
    search = _Search(parameters, objective, max_evaluations, Plateau(tol, PLATEAU_WINDOW), monitor)
    event, most = "", max_evaluations
    for restart in range(MAX_RESTARTS + 1):
        try:
            if event:
                search.report(event)
            with single_threaded_blas():
                found = minimize(
                    search.evaluate,
                    search.best_point,
                    jac=True,
                    method="L-BFGS-B",
                    bounds=search.box,
                    callback=search.end_iteration,
                    options={"maxiter": most, "maxfun": 10 * most, "maxcor": MEMORY, "ftol": 0.0, "gtol": 1e-10},
                )
            # SciPy succeeds if the gradient vanishes, or if a step changes nothing in floating point. Otherwise its
            # line search found no better point: SciPy's own limits are wider than ours and never reached.
            status = Status.CONVERGED if found.success else Status.ABNORMAL
            break
        except _StopSearch as stop:
            (status,) = stop.args
            break
        except (FactorizationError, FloatingPointError) as failure:
            if restart == MAX_RESTARTS or not math.isfinite(search.best_value):
                raise
            event = f"restart after: {failure}"
    write_vector(parameters, search.best_point)
    # Jitter at a trial point does not matter unless the search ends there.
    for warning in search.best_warnings:
        warn_or_keep(warning)
    return Result(status, search.best_value, search.count)


@dataclass
class _Search:
    """The state of one search: evaluations so far and the best point among them."""

    parameters: Sequence[Tensor]
    objective: Callable[[], float]
    max_evaluations: int
    plateau: Plateau
    monitor: Monitor
    count: int = 0
    best_value: float = math.inf
    best_warnings: list[Warning] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.best_point = read_vector(self.parameters)
        self.box = Bounds(self.best_point - FARTHEST, self.best_point + FARTHEST)

    def evaluate(self, point: Vector) -> tuple[float, Vector]:
        if self.count >= self.max_evaluations:
            raise _StopSearch(Status.ITERATION_LIMIT)
        write_vector(self.parameters, point)
        for p in self.parameters:
            p.grad = None
        with kept_warnings() as kept:
            value, gradient = self.objective(), read_gradient(self.parameters)
        self.count += 1
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            raise DivergenceError("the objective or its gradient is not finite")
        if value < self.best_value:
            self.best_value, self.best_point, self.best_warnings = value, point.copy(), kept
        self.report("")
        return value, gradient

    def end_iteration(self, xk: Vector) -> None:
        if self.plateau.update(self.best_value):
            raise _StopSearch(Status.CONVERGED)

    def report(self, event: str) -> None:
        status = self.monitor(Progress(self.count, self.best_value, math.nan, event))
        if status is not None:
            raise _StopSearch(status)


def read_vector(parameters: Sequence[Tensor]) -> NDArray[np.float64]:
    """Concatenate the parameters' values."""
    flat = torch.cat([p.detach().reshape(-1).to(torch.float64) for p in parameters])
    return flat.cpu().numpy()


def read_gradient(parameters: Sequence[Tensor]) -> NDArray[np.float64]:
    """Concatenate the parameters' gradients; a parameter without one counts as zero."""
    parts = [(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1).to(torch.float64) for p in parameters]
    return torch.cat(parts).cpu().numpy()


@torch.no_grad()
def write_vector(parameters: Sequence[Tensor], vector: NDArray[np.float64]) -> None:
    """Set the parameters from their concatenation."""
    start = 0
    for p in parameters:
        stop = start + p.numel()
        p.copy_(torch.from_numpy(vector[start:stop]).view_as(p))
        start = stop


Schedule = Callable[[float], float]  # maps the completed fraction of a run to a factor on the learning rate

SNAPSHOT_EVERY = 50
WINDOW = 500  # steps to average over, so that progress stands out from minibatch noise
MAX_RECOVERIES = 5
SMOOTHING = 0.98  # decay of the running mean of the stochastic objective
MEAN_DECAY, SQUARE_DECAY, EPSILON = 0.9, 0.99, 1e-8  # a short memory of squares suits a short run


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


@dataclass
class Ending:
    """Ends a run once a window of steps is hardly better than the window before it.

    At a high learning rate a bound stops rising long before the optimum. So after a plateau the rate first falls along
    the rest of its schedule, within half a window.
    """

    tol: float
    total: float = 0.0
    before: float = math.inf
    begin: float = -1.0
    fraction: float = 0.0

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
        return {name: value for name, value in asdict(self).items() if name != "tol"}

    def load(self, stored: dict[str, float]) -> None:
        """Continue a stored run."""
        vars(self).update({name: stored[name] for name in self.dump()})


class AdamState:
    """The state of a run, from which it can resume; parameters and gradients become views of one vector each."""

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

    The `schedule` of the learning rate follows the nearer limit, steps or `time_used` (a fraction of the time limit).
    `state` changes in place, so that a caller can store it at any time. A loss that is not finite, or a factorization
    that fails, sends the run back to its last snapshot with half the learning rate.
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
            state.gradient.zero_()
            value = loss_and_backward(state.step)
            if not math.isfinite(value):
                raise DivergenceError("the loss is not finite")
            state.update(state.learning_rate * factor)
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
