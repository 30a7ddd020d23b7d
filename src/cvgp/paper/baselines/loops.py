"""One training loop for the systems that see minibatches, one for those that see all data."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cvgp.optim.adam import AdamState, constant, minimise_adam, one_cycle
from cvgp.optim.lbfgs import minimise_lbfgs
from cvgp.optim.stopping import NoImprovement, Progress, Status
from cvgp.paper.baselines.method import OnStep
from cvgp.paper.baselines.recipe import Recipe

TOLERANCE = 1e-6
"""Nats per row over ten iterations, below which L-BFGS has converged."""

Score = Callable[[], float]


def train_minibatches(
    parameters: Sequence[Tensor],
    loss_and_backward: Callable[[int], float],
    recipe: Recipe,
    *,
    max_steps: int,
    check_every: int,
    validation_rmse: Score | None,
    on_step: OnStep,
) -> int:
    """Adam as the recipe says; returns the steps taken. With a validation score, the best parameters are kept."""
    schedule = one_cycle if recipe.schedule == "one_cycle" else constant
    keeper = None if validation_rmse is None else _Best(parameters, validation_rmse, recipe.patience or max_steps)

    def monitor(progress: Progress) -> Status | None:
        on_step(progress.iteration)
        if keeper is not None and progress.iteration % check_every == 0 and keeper.check():
            return Status.EARLY_STOPPED
        return None

    on_step(0)
    state = AdamState(parameters, recipe.learning_rate)
    result = minimise_adam(state, loss_and_backward, max_steps=max_steps, schedule=schedule, monitor=monitor)
    if keeper is not None:
        keeper.check()
        keeper.restore()
    return result.num_iter


def train_full(
    parameters: Sequence[Tensor],
    value_and_backward: Callable[[float], float],
    recipe: Recipe,
    *,
    num_rows: int,
    validation_rmse: Score | None,
    on_step: OnStep,
) -> int:
    """Maximise an objective, a function of the scale of its value and gradient; return the number of evaluations."""

    def loss_and_backward(step: int = 0) -> float:
        return value_and_backward(-1.0 / num_rows)

    if recipe.full_batch == "lbfgs":

        def monitor(progress: Progress) -> None:
            on_step(progress.iteration)

        on_step(0)
        return minimise_lbfgs(
            parameters, loss_and_backward, max_evaluations=recipe.evaluations, tol=TOLERANCE, monitor=monitor
        ).num_iter
    return train_minibatches(
        parameters,
        loss_and_backward,
        recipe,
        max_steps=recipe.num_full_steps(),
        check_every=1,
        validation_rmse=validation_rmse,
        on_step=on_step,
    )


class _Best:
    """The parameters with the lowest validation RMSE so far."""

    def __init__(self, parameters: Sequence[Tensor], score: Score, patience: int) -> None:
        self.parameters = parameters
        self.score = score
        self.patience = NoImprovement(patience)
        self.best = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def check(self) -> bool:
        """Score once more; whether patience has run out."""
        if self.patience.update(self.score()):
            self.best = [p.detach().clone() for p in self.parameters]
        return self.patience.exhausted

    @torch.no_grad()
    def restore(self) -> None:
        for p, value in zip(self.parameters, self.best, strict=True):
            p.copy_(value)
