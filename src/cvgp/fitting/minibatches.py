"""Adam on minibatches: the bound maximized over all parameters, in float32 for as long as that is safe."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cvgp.data.source import DataSource
from cvgp.errors import DivergenceError, InvalidInputError
from cvgp.fitting.checkpoint import ADAM_FILE, Checkpoint, State
from cvgp.fitting.compare import weight_of
from cvgp.fitting.monitor import Phase, Run
from cvgp.fitting.options import TrainingOptions
from cvgp.gp.kernels import diagonal, stationary_form
from cvgp.gp.model import CVGP
from cvgp.objectives import CHUNK_ROWS, MinibatchObjective
from cvgp.optim import (
    SNAPSHOT_EVERY,
    AdamState,
    Ending,
    NoImprovement,
    Progress,
    Result,
    Snapshot,
    Status,
    constant,
    minimize_adam,
    one_cycle,
)
from cvgp.parallel.group import check_same, sum_of

if TYPE_CHECKING:
    from cvgp.fitting.solve import Plan

# Float32 is safe up to this max(w) k(x, x), distance in lengthscales, and size of the data (docs: numerics).
FLOAT32_LIMIT, FLOAT32_FARTHEST, FLOAT32_LARGEST = 1e4, 300.0, 1e15
CHECK_EVERY, SAME_CHECK_EVERY = 50, 1000  # steps between checks of the weights, and of a group's parameters
STEPS_BETWEEN_CHECKS = 50  # at least, before early stopping looks at the validation rows again


def fit_adam(
    model: CVGP,
    source: DataSource,
    plan: Plan,
    settings: TrainingOptions,
    run: Run,
    checkpoint: Checkpoint | None = None,
    validation: DataSource | None = None,
) -> Result:
    """Maximize the bound on minibatches over all parameters; with validation data, keep the best by their RMSE."""
    data = Precision(model, source, plan.dtype)
    state = AdamState([p for p in model.parameters() if p.requires_grad], plan.learning_rate)
    phase = Phase(run, "adam", plan.max_iter, group=source.group, warns=True)
    keeper = None if validation is None else BestByValidation(model, validation, settings, state)
    # Where validation rows or the paper's recipe end the run, a plateau of the bound does not.
    ending = None if keeper is not None or plan.schedule_is_constant else Ending(settings.tol)
    began = run.budget.seconds

    def dump() -> State:
        stored: State = adam_fields(state) | {"may_grow": data.may_grow, "began": began}
        return stored | (ending.dump() if ending else {}) | (keeper.dump() if keeper else {})

    stored = None if checkpoint is None else checkpoint.load(ADAM_FILE, dump())
    if stored is not None:
        restore_adam(state, stored)
        began = stored["began"]
        if data.may_grow and not stored["may_grow"]:
            data.grow()
        if ending is not None:
            ending.load(stored)
        if keeper is not None:
            keeper.load(stored)
    epoch = max(source.num_rows // plan.batch_size, 1)
    # A cycle is planned in steps: on small data, epochs would run out of patience while the rate still warms up.
    check_every = epoch if plan.schedule_is_constant else max(epoch, STEPS_BETWEEN_CHECKS)

    tight = plan.tight and not plan.polish
    objective = MinibatchObjective(model, source.total_weight, tight=tight, known_noise=source.has_known_noise)
    # Each process estimates the whole bound from its rows; the mean by their shares counts the KL once.
    scale = -source.share(plan.batch_size) / source.total_weight

    def gradient_and_loss(step: int) -> tuple[Tensor, Tensor]:
        rows = data.source(step)
        loss = 0.0
        if rows.share(plan.batch_size) > 0.0:
            try:
                objective.rows = rows.minibatch(step, plan.batch_size, run.seed)
                loss = objective.value_and_backward(scale)
            except InvalidInputError as error:
                # The data have been checked, so it is parameters beyond the range of numbers that are refused here.
                raise DivergenceError(f"the parameters left the range of numbers: {error}") from error
        return state.gradient, torch.tensor(loss, dtype=torch.float64)

    def loss_and_backward(step: int) -> float:
        if step % CHECK_EVERY == 0:
            state.rates = _rates(model, state)
        like = [state.gradient, torch.empty((), dtype=torch.float64)]
        gradient, loss = sum_of(source.group, lambda: gradient_and_loss(step), like)
        if source.group.world > 1:
            state.gradient.copy_(gradient)
        return loss.item()

    def store(*, now: bool = False) -> None:
        # Only where the optimizer itself takes a snapshot: from there a resumed run decides everything that it decides
        # from time to time (precision, recovery) as the uninterrupted one does.
        if checkpoint is not None and (now or state.step % SNAPSHOT_EVERY == 0):
            checkpoint.save(ADAM_FILE, dump(), now=now)

    def monitor(progress: Progress) -> Status | None:
        if progress.iteration % SAME_CHECK_EVERY == 0:
            check_same(source.group, state.vector, "The parameters")
        if keeper is not None and progress.iteration % check_every == 0:
            phase.validation_rmse = keeper.check()
        try:
            status = phase(progress)
        except KeyboardInterrupt:
            store(now=True)  # a callback ends the program here, between two steps, where the state is whole
            raise
        store()
        if status is None and keeper is not None and keeper.patience.exhausted:
            return Status.EARLY_STOPPED
        return status

    def time_used() -> float:
        """The fraction of Adam's time that is spent; if L-BFGS follows, Adam has only a share of the limit."""
        share = run.heuristics.adam_share
        return run.budget.used_since(began) / share if plan.polish else run.budget.used_since(0.0)

    if keeper is not None and keeper.patience.exhausted:
        result = Result(Status.EARLY_STOPPED, state.smoothed, state.step)  # the stored run had ended
    else:
        result = minimize_adam(
            state,
            loss_and_backward,
            max_steps=plan.max_iter,
            schedule=constant if plan.schedule_is_constant else one_cycle,
            time_used=time_used,
            ending=ending,
            monitor=monitor,
        )
    store(now=True)
    if keeper is not None:
        keeper.check()  # a run may end between two epochs, or before the first one does
        state.vector.copy_(keeper.best)
    return result


def adam_fields(state: AdamState) -> State:
    """What a checkpoint stores of a run."""
    scalars = ("step", "smoothed", "learning_rate", "recoveries")
    return state.snapshot()._asdict() | {name: getattr(state, name) for name in scalars}


def restore_adam(state: AdamState, stored: State) -> None:
    """Bring a run to where a stored one was."""
    state.restore(Snapshot(*(stored[name] for name in Snapshot._fields)))
    state.step, state.recoveries = stored["step"], stored["recoveries"]
    state.smoothed, state.learning_rate = stored["smoothed"], stored["learning_rate"]


class Precision:
    """The data in float32 while that is safe, in float64 once the weights have grown too large for it."""

    def __init__(self, model: CVGP, source: DataSource, dtype: str) -> None:
        self.model, self.full = model, source
        if dtype != "float64" and source.largest_value > FLOAT32_LARGEST:
            if dtype == "float32":
                raise InvalidInputError(
                    f"The data hold values of the size of {source.largest_value:.0e}, whose squares are beyond the "
                    "range of float32; standardize them (standardize=True), or use dtype 'auto' or 'float64'."
                )
            dtype = "float64"
        self.may_grow = dtype == "auto"
        self.current = source if dtype == "float64" else source.to(torch.float32)

    def source(self, step: int) -> DataSource:
        """The data for a step."""
        if self.may_grow and step % CHECK_EVERY == 0 and self._too_large():
            self.grow()
        return self.current

    def grow(self) -> None:
        """Use float64 from now on."""
        self.current, self.may_grow = self.full, False

    @torch.no_grad()
    def _too_large(self) -> bool:
        scale = diagonal(self.model.kernel, self.model.X_c).max()
        lengthscale = _lengthscale(self.model)
        farthest = 0.0 if lengthscale is None else (self.model.X_c / lengthscale).abs().max()
        return bool(self.model.site_precision.max() * scale > FLOAT32_LIMIT or farthest > FLOAT32_FARTHEST)


def _rates(model: CVGP, state: AdamState) -> Tensor | None:
    """Factors on the learning rate that keep steps of pseudo-inputs small against the lengthscales."""
    lengthscale = _lengthscale(model)
    if lengthscale is None or bool((lengthscale >= 1.0).all()):
        return None
    by_column = lengthscale.clamp_max(1.0).expand_as(model.X_c)
    parts = [by_column if p is model.X_c else torch.ones_like(p) for p in state.parameters]
    return torch.cat([part.reshape(-1) for part in parts])


@torch.no_grad()
def _lengthscale(model: CVGP) -> Tensor | None:
    form = stationary_form(model.kernel, model.X_c.shape[1])
    return None if form is None else form.inverse_lengthscale.reciprocal()


class BestByValidation:
    """The parameters with the lowest RMSE on held-out rows, which count by their weights."""

    def __init__(self, model: CVGP, validation: DataSource, settings: TrainingOptions, state: AdamState) -> None:
        self.model, self.validation, self.state = model, validation, state
        self.patience, self.best = NoImprovement(settings.n_iter_no_change), state.vector.clone()

    @torch.no_grad()
    def check(self) -> float:
        """The RMSE on the held-out rows now; the parameters are kept if it is the best so far."""
        process = self.model.process()
        total = torch.zeros(2, dtype=torch.float64)
        for batch in self.validation.chunks(CHUNK_ROWS):
            squares = (process(batch.x).mean - batch.y).square().reshape(len(batch.y), -1).sum(1)  # [B]
            weight = weight_of(batch)
            total += torch.stack([weight @ squares, weight.sum() * batch.y[0].numel()]).to("cpu", torch.float64)
        squares, count = self.validation.group.sum([total])[0].tolist()
        score = math.sqrt(squares / count)
        if self.patience.update(score):
            self.best = self.state.vector.clone()
        return score

    def dump(self) -> State:
        """What a checkpoint stores."""
        found, since = self.patience.best, self.patience.checks_since_best
        return {"best": self.best, "best_rmse": found, "checks_since_best": since}

    def load(self, stored: State) -> None:
        """Continue a stored run."""
        self.best, self.patience.best = stored["best"], stored["best_rmse"]
        self.patience.checks_since_best = stored["checks_since_best"]
