"""Kernel and noise once more, from all rows: each given its nearest others, without a coreset.

A kernel that was learned with a small coreset is too smooth for neighbours, and one of few rows is uncertain. The log
density of rows given their nearest others is a sum over rows, so minibatches of all rows give its gradient.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from typing import NamedTuple

import torch
from gpytorch.kernels import ScaleKernel
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.errors import DivergenceError, FactorisationError
from cvgp.gp.hyperparameters import multiply_inside
from cvgp.gp.kernels import stationary_form
from cvgp.gp.model import CVGP
from cvgp.gp.neighbours.search import RowIndex
from cvgp.objectives.given_neighbours import NeighbourObjective
from cvgp.objectives.prior import PriorObjective
from cvgp.optim.adam import AdamState, minimise_adam
from cvgp.optim.stopping import Monitor, Progress, Result, Status
from cvgp.training.densities import variance_of_y
from cvgp.training.monitor import Watch
from cvgp.training.small_data import distinct_rows

PHASE = "neighbours"
STEPS, BATCH = 200, 256
POOL = 5000
"""Different rows that are drawn, at most: their neighbours are searched for among all rows."""
FAR = 1.5
"""Neighbours are found again after half of the steps if a lengthscale has changed by more than this factor."""
MOST_NEIGHBOURS = 20
"""A step costs the cube of their number, and more of them hardly change what a kernel learns."""
LEARNING_RATE = 0.15
TRIAL_STEPS, TRIAL_BATCH, TRIAL_ROWS, TRIAL_JUDGED, JUDGED_ROWS = 40, 128, 1000, 500, 1000
"""Of each start: steps, rows of one, rows to learn from, and rows to judge by, of which there are more in the end. The
gradient at a start says little of its end."""
TRIAL_SHARE = 0.5
"""Of the time for all steps, what the trials of starts may take."""
MOST_RUNS, FAR_FROM_DONE = 2, 0.2
"""All steps are made again, so many times at most, where they gained more than this many nats per row: a function
without noise has a kernel that is far from any start."""
LARGEST_OUTPUTSCALE = 100.0
"""Over the variance of y. Neighbours hardly say how far f goes where there are none, and without a limit a search may
end at a standard deviation of hundreds of times that of y."""
ROUGH_FACTORS, ROUGH_NOISE = (0.3, 0.1, 0.03), 0.1
"""Lengthscales that are tried beside those of the fit, over the spread of the inputs, and the share of noise in y."""


class Refined(NamedTuple):
    """A model with another kernel, and how its search ended."""

    model: CVGP
    result: Result


@torch.enable_grad()
def refine_kernel(
    model: CVGP,
    rows: Rows[Tensor],
    count: int,
    watch: Watch,
    generator: torch.Generator,
    time_used: Callable[[], float],
    tol: float = 0.0,
) -> Refined | None:
    """A copy of the model with the kernel, mean and noise that suit neighbours; its coreset is not solved for yet.

    None where there is nothing to learn, or where no step could be made.

    Parameters
    ----------
    model
        Where to begin.
    rows
        All rows. Copies of a row count once: taken for separate measurements they would prove a noise of zero.
    count
        How many neighbours a prediction will have.
    watch, time_used
        Told of each step, and the share of the time for this that is spent.
    generator
        Draws minibatches.
    tol
        The search has converged if its last fifth gained less than this many nats per row and ten steps.
    """
    rows = distinct_rows(rows)
    N = len(rows.x)
    count = min(count, MOST_NEIGHBOURS, N - 1)
    if not NeighbourObjective(model, rows, torch.empty(0)).parameters:
        return None

    order = torch.randperm(N, generator=generator).to(rows.x.device)
    judged, pool = order[: min(JUDGED_ROWS, N // 2)], order[min(JUDGED_ROWS, N // 2) :][:POOL]

    def density(trial: CVGP, judged: Tensor = judged) -> float:
        near = torch.empty(N, count, dtype=torch.int64, device=rows.x.device)
        near[judged] = RowIndex(trial.kernel, rows.x).others(judged, count)
        objective = NeighbourObjective(trial, rows, near)
        objective.batch = judged
        return objective.value_and_backward(1.0) / N

    def learn(start: CVGP, batches: Tensor, phase: str, monitor: Monitor = watch.monitor, end: float = 1.0) -> Result:
        begin = time_used()

        def time_of_these() -> float:
            return (time_used() - begin) / (end - begin) if end > begin else 1.0

        return _learn(start, rows, batches, count, watch, time_of_these, phase, monitor)

    starts = [deepcopy(model), *_rougher(model, rows)]

    def try_start(start: CVGP, number: int) -> tuple[float, CVGP]:
        end = TRIAL_SHARE * number / len(starts)
        batches = _draw_batches(pool[:TRIAL_ROWS], TRIAL_STEPS, TRIAL_BATCH, generator)
        learn(start, batches, f"{PHASE} start {number}", end=end)
        return density(start, judged[:TRIAL_JUDGED]), start

    before = math.inf

    def monitor(progress: Progress) -> Status | None:
        nonlocal before
        if progress.iteration == STEPS - STEPS // 5:
            before = density(refined)
        return watch.monitor(progress)

    try:
        refined = _best_start(starts, try_start)
        reached = density(refined)
        for _ in range(MOST_RUNS):
            had, result = reached, learn(refined, _draw_batches(pool, STEPS, BATCH, generator), PHASE, monitor)
            if result.status is not Status.ITERATION_LIMIT:
                break
            reached = density(refined)
            if reached - before < tol * (STEPS // 5) / 10.0:
                result = result._replace(status=Status.CONVERGED)
            if reached - had < FAR_FROM_DONE:
                break
    except DivergenceError:
        return None  # the kernel of the fit stays
    return Refined(refined, result) if result.num_iter else None


def _learn(
    model: CVGP,
    rows: Rows[Tensor],
    batches: Tensor,
    count: int,
    watch: Watch,
    time_used: Callable[[], float],
    phase: str,
    monitor: Monitor,
) -> Result:
    """Steps of Adam on the density of batches of rows, each given its nearest others of all rows, in place."""
    near = torch.empty(len(rows.x), count, dtype=torch.int64, device=rows.x.device)
    objective, prior = NeighbourObjective(model, rows, near), PriorObjective(model)
    steps, drawn = len(batches), batches.unique()
    scales_of_search = _lengthscales(model, rows)
    total = float(len(rows.x)) if rows.sample_weight is None else rows.sample_weight.sum().item()

    largest = LARGEST_OUTPUTSCALE * variance_of_y(rows)

    def negative_density(step: int) -> float:
        _limit_outputscale(model, largest)
        if step == 0 or (step == steps // 2 and _have_moved(scales_of_search, _lengthscales(model, rows))):
            near[drawn] = RowIndex(model.kernel, rows.x).others(drawn, count)
        objective.batch = batches[step]
        return objective.value_and_backward(-1.0 / total) + prior.value_and_backward(-1.0 / total)

    watch.begin(phase, steps)
    state = AdamState(objective.parameters, LEARNING_RATE)
    return minimise_adam(state, negative_density, max_steps=steps, time_used=time_used, monitor=monitor)


def _best_start(starts: list[CVGP], try_start: Callable[[CVGP, int], tuple[float, CVGP]]) -> CVGP:
    """The start from which a few steps make rows that they have not seen most likely."""
    if len(starts) == 1:
        return starts[0]
    found: list[tuple[float, CVGP]] = []
    for number, start in enumerate(starts, 1):
        with suppress(FactorisationError, DivergenceError):
            found.append(try_start(start, number))
    if not found:
        raise DivergenceError("no kernel could be refined")
    return max(found, key=lambda pair: pair[0])[1]


@torch.no_grad()
def _rougher(model: CVGP, rows: Rows[Tensor]) -> list[CVGP]:
    """Copies whose kernel explains most of y, at several lengthscales.

    Where a coreset is too small for a rough function, its fit takes the function for noise, and the gradient there
    leads nowhere. Only a kernel ``s k(x, x')`` of which everything is learned is tried.
    """
    kernel, D = model.kernel, rows.x.shape[1]
    variance = variance_of_y(rows)
    is_learned = all(p.requires_grad for part in (kernel, model.likelihood) for p in part.parameters())
    is_scaled = isinstance(kernel, ScaleKernel) and stationary_form(kernel, D) is not None
    if not (is_learned and is_scaled and variance > 0.0):
        return []
    spread = rows.x.std(0) * math.sqrt(D)  # [D]
    spread = torch.where(spread > 0, spread, 1.0)  # of a constant column nothing depends
    starts = []
    for factor in ROUGH_FACTORS:
        rough = deepcopy(model)
        base = rough.kernel.base_kernel
        target = factor * (spread if base.lengthscale.numel() == D else spread.mean())
        multiply_inside(base, "lengthscale", target / base.lengthscale)
        multiply_inside(rough.kernel, "outputscale", variance / rough.kernel.outputscale)
        multiply_inside(rough.likelihood.noise_covar, "noise", ROUGH_NOISE * variance / rough.noise)
        starts.append(rough)
    return starts


@torch.no_grad()
def _limit_outputscale(model: CVGP, largest: float) -> None:
    """Back to the largest one that is allowed, if it is learned and beyond it."""
    kernel = model.kernel
    if isinstance(kernel, ScaleKernel) and kernel.raw_outputscale.requires_grad and kernel.outputscale > largest > 0.0:
        multiply_inside(kernel, "outputscale", largest / kernel.outputscale)


@torch.no_grad()
def _lengthscales(model: CVGP, rows: Rows[Tensor]) -> Tensor | None:
    """Inverse lengthscales [D]; None for a kernel that has no single set of them."""
    form = stationary_form(model.kernel, rows.x.shape[1])
    return None if form is None else form.inverse_lengthscale.clone()


def _have_moved(before: Tensor | None, after: Tensor | None) -> bool:
    """Whether other rows may be near now: some lengthscale has changed much, or nothing is known of them."""
    if before is None or after is None:
        return True
    return bool(((after / before).log().abs() > math.log(FAR)).any())


def _draw_batches(pool: Tensor, steps: int, size: int, generator: torch.Generator) -> Tensor:
    """Rows of each step [steps, B]: all of a pool are drawn once before a row is drawn again, in whole batches."""
    size = min(size, len(pool))
    per_epoch = len(pool) // size
    epochs = [
        pool[torch.randperm(len(pool), generator=generator)[: per_epoch * size].to(pool.device)].reshape(-1, size)
        for _ in range(-(-steps // per_epoch))
    ]
    return torch.cat(epochs)[:steps]
