"""The two ways to maximise a bound over a data source: collapsed L-BFGS on all rows, Adam on minibatches."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.errors import DivergenceError, InvalidInputError
from cvgp.gp.model import CVGP
from cvgp.objectives.full_batch import CHUNK_ROWS, CollapsedObjective, collapsed_parameters
from cvgp.objectives.minibatch import direct_elbo
from cvgp.optim.adam import AdamState, constant, minimise_adam, one_cycle
from cvgp.optim.lbfgs import minimise_lbfgs
from cvgp.optim.result import Progress, Result, Status
from cvgp.parallel.group import Group, check_same, sum_of
from cvgp.training.checkpoint import Checkpoint, Extra, Journal
from cvgp.training.monitor import Watch
from cvgp.training.precision import Precision
from cvgp.training.settings import Settings
from cvgp.training.validation import BestByValidation

__all__ = ["Plan", "fit_adam", "fit_lbfgs", "maximise_by_lbfgs"]

SAME_CHECK_EVERY = 1000
"""Steps of Adam after which the processes of a group make sure that they hold the same parameters."""


STEPS_BETWEEN_CHECKS = 50
"""Early stopping looks at the validation rows after each epoch of at least this many steps."""


LEAST_POLISH = 8
"""With time for fewer evaluations than this, L-BFGS gains less than Adam does in their time."""
STEPS_TO_TIME = 20
EPOCHS_OF_AN_EVALUATION = 2.0
"""What an evaluation on all rows, in float64 and with the tighter bound, takes: as long as two epochs of Adam."""


class Plan(NamedTuple):
    """A solver with everything decided."""

    solver: str
    tight: bool
    max_iter: int
    batch_size: int
    learning_rate: float
    schedule_is_constant: bool
    dtype: str
    solve_at_end: bool
    polish: int = 0
    """Evaluations of L-BFGS on all rows that follow Adam."""
    polish_tight: bool = False


def fit_lbfgs(
    model: CVGP,
    source: DataSource,
    watch: Watch,
    checkpoint: Checkpoint,
    *,
    max_evaluations: int,
    tight: bool,
    tol: float,
) -> Result:
    """Maximise the collapsed bound over kernel, mean, noise and pseudo-inputs."""
    parameters = collapsed_parameters(model)
    objective = CollapsedObjective(
        model, lambda: source.chunks(CHUNK_ROWS), source.local_rows, tight=tight, group=source.group
    )
    return maximise_by_lbfgs(
        parameters,
        objective.value_and_backward,
        source.total_weight,
        source.group,
        watch,
        checkpoint.journal(sum(p.numel() for p in parameters)),
        max_evaluations=max_evaluations,
        tol=tol,
    )


def maximise_by_lbfgs(
    parameters: Sequence[Tensor],
    value_and_backward: Callable[[], float],
    total_weight: float,
    group: Group,
    watch: Watch,
    journal: Journal,
    *,
    max_evaluations: int,
    tol: float,
) -> Result:
    """Maximise a bound on all rows, which leaves its gradient in the parameters; `tol` is in nats a row."""
    scale = -1.0 / total_weight

    def negative_bound_per_row() -> float:
        check_same(group, torch.cat([p.detach().reshape(-1) for p in parameters]), "The points that L-BFGS tries")
        value = value_and_backward()
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(scale)
        return scale * value

    watch.begin("lbfgs", max_evaluations)
    return minimise_lbfgs(
        parameters,
        negative_bound_per_row,
        max_evaluations=max_evaluations,
        tol=tol,
        monitor=watch.monitor,
        memo=journal,
    )


def fit_adam(
    model: CVGP,
    source: DataSource,
    plan: Plan,
    settings: Settings,
    watch: Watch,
    checkpoint: Checkpoint,
    validation: DataSource | None = None,
) -> Result:
    """Maximise the bound on minibatches over all parameters; with validation data, keep the best by their RMSE."""
    num_rows = source.num_rows
    data = Precision(model, source, plan.dtype)
    state = AdamState([p for p in model.parameters() if p.requires_grad], plan.learning_rate)
    watch.begin("adam", plan.max_iter)
    keeper = None if validation is None else BestByValidation(model, validation, settings, state)

    def extra() -> Extra:
        tensors, numbers = ({}, {}) if keeper is None else keeper.dump()
        return tensors, numbers | data.dump()

    stored = checkpoint.load_adam(state, extra())
    if stored is not None:
        data.load(stored)
        if keeper is not None:
            keeper.load(stored)
    epoch = max(num_rows // plan.batch_size, 1)
    # A cycle is planned in steps: on small data, epochs would run out of patience while the rate still warms up.
    check_every = epoch if plan.schedule_is_constant else max(epoch, STEPS_BETWEEN_CHECKS)

    negative_bound = _negative_bound(model, plan, source)

    def gradient_and_loss(step: int) -> tuple[Tensor, Tensor]:
        rows = data.source(step)
        loss = 0.0
        if rows.share(plan.batch_size) > 0.0:
            try:
                loss = negative_bound(rows.minibatch(step, plan.batch_size, settings.seed))
            except InvalidInputError as error:
                # The data have been checked, so it is parameters beyond the range of numbers that are refused here.
                raise DivergenceError(f"the parameters left the range of numbers: {error}") from error
        return state.gradient, torch.tensor(loss, dtype=torch.float64)

    def loss_and_backward(step: int) -> float:
        gradient, loss = sum_of(source.group, lambda: gradient_and_loss(step), [state.gradient, torch.empty(())])
        if source.group.world > 1:
            state.gradient.copy_(gradient)
        return loss.item()

    def monitor(progress: Progress) -> Status | None:
        if progress.iteration % SAME_CHECK_EVERY == 0:
            check_same(source.group, state.vector, "The parameters")
        if keeper is not None and progress.iteration % check_every == 0:
            watch.validation_rmse = keeper.check()
        try:
            status = watch.monitor(progress)
        except KeyboardInterrupt:
            # A callback ends the program here, between two steps, where the state is whole.
            checkpoint.save_adam(state, extra(), now=True)
            raise
        checkpoint.save_adam(state, extra())
        if status is None and keeper is not None and keeper.patience.exhausted:
            return Status.EARLY_STOPPED
        return status

    if keeper is not None and keeper.patience.exhausted:
        result = Result(Status.EARLY_STOPPED, state.smoothed, state.step)  # the stored run had ended
    else:
        result = minimise_adam(
            state,
            loss_and_backward,
            max_steps=plan.max_iter,
            schedule=constant if plan.schedule_is_constant else one_cycle,
            time_used=_time_of_adam(plan, source, state, watch),
            monitor=monitor,
        )
    checkpoint.save_adam(state, extra(), now=True)
    if keeper is not None:
        keeper.check()  # a run may end between two epochs, or before the first one does
        keeper.restore()
    return result._replace(status=_converged(result, watch, settings.tol))


def _time_of_adam(plan: Plan, source: DataSource, state: AdamState, watch: Watch) -> Callable[[], float]:
    """The fraction of Adam's time that is spent: of half the time limit, if L-BFGS can do enough with the other half.

    That depends on the machine, so the first steps are timed.
    """
    if not plan.polish or watch.max_time is None:
        return watch.time_used
    max_time, first_step, begin = watch.max_time, state.step, watch.seconds

    def time_used() -> float:
        steps = state.step - first_step
        if steps < STEPS_TO_TIME:
            return watch.time_used()
        evaluation = EPOCHS_OF_AN_EVALUATION * (source.num_rows / plan.batch_size) * (watch.seconds - begin) / steps
        is_shared = (max_time - begin) / 2.0 >= LEAST_POLISH * evaluation
        return (watch.seconds - begin) / (max_time - begin) * (2.0 if is_shared else 1.0)

    return time_used


def _negative_bound(model: CVGP, plan: Plan, source: DataSource) -> Callable[[Rows[Tensor]], float]:
    """The loss of a minibatch, per row of the source; adds its gradient to that of the parameters."""
    num_data = source.total_weight
    # Each process estimates the whole bound from its rows; the mean by their shares counts the KL once.
    factor = -source.share(plan.batch_size) / num_data
    direct = None if plan.tight or source.has_known_noise else direct_elbo(model)
    if direct is not None:
        return lambda batch: direct.value_and_backward(batch, num_data, factor)
    bound = model.tight_elbo if plan.tight else model.elbo

    def by_autograd(batch: Rows[Tensor]) -> float:
        loss = bound(batch.x, batch.y, num_data, noise_variance=batch.noise_variance) * factor
        loss.backward()
        return loss.item()

    return by_autograd


def _converged(result: Result, watch: Watch, tol: float) -> Status:
    """A finished cycle has converged if its last tenth gained less than `tol` nats a row per ten steps."""
    if result.status is not Status.ITERATION_LIMIT:
        return result.status
    values = [row["bound"] for row in watch.history if row["phase"] == "adam"]
    window = max(len(values) // 10, 1)
    gain = values[-1] - values[-window - 1] if len(values) > window else math.inf
    return Status.CONVERGED if gain < tol * window / 10.0 else Status.ITERATION_LIMIT
