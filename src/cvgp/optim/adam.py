"""Adam on minibatches, one learning-rate cycle long, with a way back when a step goes wrong."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from cvgp.errors import DivergenceError, FactorisationError
from cvgp.optim.result import Monitor, Progress, Result, Status

__all__ = ["SNAPSHOT_EVERY", "AdamState", "constant", "minimise_adam", "one_cycle"]

Schedule = Callable[[float], float]
"""Maps the fraction of the run that is done to a factor on the learning rate."""

SNAPSHOT_EVERY = 50
MAX_RECOVERIES = 5
SMOOTHING = 0.98
"""Decay of the running mean of the stochastic objective."""


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


class AdamState:
    """Where a run stands: parameters are outside, everything else that a resumed run needs is here."""

    def __init__(self, parameters: Sequence[Tensor], learning_rate: float) -> None:
        self.parameters = list(parameters)
        # A short second-moment memory suits a short run: late steps are scaled by late gradients.
        self.optimiser = torch.optim.Adam(self.parameters, lr=learning_rate, betas=(0.9, 0.99), fused=True)
        self.learning_rate = learning_rate
        self.step = 0
        self.smoothed = math.nan
        self.recoveries = 0

    def snapshot(self) -> dict[str, Any]:
        """A deep copy of parameters and optimiser, to return to."""
        moments = [{k: v.clone() for k, v in self.optimiser.state[p].items()} for p in self.parameters]
        return {"parameters": [p.detach().clone() for p in self.parameters], "moments": moments}

    def is_finite(self) -> bool:
        """Whether no parameter is NaN or infinite."""
        return all(bool(torch.isfinite(p).all()) for p in self.parameters)

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Return to a snapshot."""
        with torch.no_grad():
            for p, value in zip(self.parameters, snapshot["parameters"], strict=True):
                p.copy_(value)
        for p, moments in zip(self.parameters, snapshot["moments"], strict=True):
            self.optimiser.state[p] = {k: v.clone() for k, v in moments.items()}


def minimise_adam(
    state: AdamState,
    batch_loss: Callable[[int], Tensor],
    *,
    max_steps: int,
    schedule: Schedule = one_cycle,
    time_used: Callable[[], float] = lambda: 0.0,
    monitor: Monitor = lambda progress: None,
) -> Result:
    """Minimise a stochastic objective by `max_steps` Adam steps, continuing from `state.step`.

    A loss that is not finite, or a factorisation that fails, sends the run back to its last snapshot with half the
    learning rate.

    Parameters
    ----------
    state
        Parameters, moments and step; changed in place, so that a caller can store it at any time.
    batch_loss
        The loss of the batch with the given step number.
    max_steps, schedule
        Length of the run, and the factor on the learning rate at each fraction of it.
    time_used
        Fraction of the time limit that is spent; the schedule follows whichever limit is nearer, so that the
        learning rate has come down when either is reached.
    monitor
        Called after every step; may stop the run.
    """
    good = state.snapshot()
    while state.step < max_steps:
        spent = time_used()
        if spent >= 1.0:
            return _finish(state, good, Status.TIME_LIMIT)
        factor = schedule(max(state.step / max_steps, spent))
        for group in state.optimiser.param_groups:
            group["lr"] = state.learning_rate * factor
        event = ""
        try:
            value = _step(state, batch_loss)
        except (FactorisationError, FloatingPointError) as failure:
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
        state.step += 1
        # A gradient that is not finite shows in the parameters at once, and in the loss only at the next step.
        if state.step % SNAPSHOT_EVERY == 0 and state.is_finite():
            good = state.snapshot()
        status = monitor(Progress(state.step, state.smoothed, state.learning_rate * factor, event))
        if status is not None:
            return _finish(state, good, status)
    return _finish(state, good, Status.ITERATION_LIMIT)


def _finish(state: AdamState, good: dict[str, Any], status: Status) -> Result:
    if not state.is_finite():
        state.restore(good)
    return Result(status, state.smoothed, state.step)


def _step(state: AdamState, batch_loss: Callable[[int], Tensor]) -> float:
    state.optimiser.zero_grad(set_to_none=True)
    loss = batch_loss(state.step)
    value = loss.item()
    if not math.isfinite(value):
        raise DivergenceError("the loss is not finite")
    loss.backward()
    state.optimiser.step()
    return value
