"""Kernel and noise once more, from all rows: each given its nearest others, without a coreset.

A kernel that was learned with a small coreset is too smooth for neighbours, and one of few rows is uncertain. The log
density of rows given their nearest others is a sum over rows, so minibatches of all rows give its gradient.
"""

import math
from collections.abc import Callable
from copy import deepcopy

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
from cvgp.training.densities import variance_of_y
from cvgp.training.monitor import Watch
from cvgp.training.small_data import distinct_rows

PHASE = "neighbours"
STEPS, BATCH = 200, 256
POOL = STEPS * BATCH // 4
"""Different rows that are drawn, at most: their neighbours are searched for among all rows."""
FAR = 1.5
"""Neighbours are found again after half of the steps if a lengthscale has changed by more than this factor."""
MOST_NEIGHBOURS = 20
"""A step costs the cube of their number, and more of them hardly change what a kernel learns."""
LEARNING_RATE = 0.15
START_ROWS = 1000
ROUGH_FACTORS, ROUGH_NOISE = (0.3, 0.1, 0.03), 0.1
"""Lengthscales that are tried beside those of the fit, over the spread of the inputs, and the share of noise in y."""


@torch.enable_grad()
def refine_kernel(
    model: CVGP,
    rows: Rows[Tensor],
    count: int,
    watch: Watch,
    generator: torch.Generator,
    time_used: Callable[[], float],
) -> CVGP | None:
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
    """
    rows = distinct_rows(rows)
    N = len(rows.x)
    count = min(count, MOST_NEIGHBOURS, N - 1)
    refined = _best_start(model, rows, count, generator)
    near = torch.empty(N, count, dtype=torch.int64, device=rows.x.device)
    objective, prior = NeighbourObjective(refined, rows, near), PriorObjective(refined)
    if not objective.parameters:
        return None
    batches = _draw_batches(N, generator).to(rows.x.device)  # [STEPS, B]
    drawn = batches.unique()
    scales_of_search = _lengthscales(refined, rows)
    total = float(N) if rows.sample_weight is None else rows.sample_weight.sum().item()

    def negative_density(step: int) -> float:
        if step == 0 or (step == STEPS // 2 and _have_moved(scales_of_search, _lengthscales(refined, rows))):
            near[drawn] = RowIndex(refined.kernel, rows.x).others(drawn, count)
        objective.batch = batches[step]
        return objective.value_and_backward(-1.0 / total) + prior.value_and_backward(-1.0 / total)

    watch.begin(PHASE, STEPS)
    state = AdamState(objective.parameters, LEARNING_RATE)
    try:
        result = minimise_adam(state, negative_density, max_steps=STEPS, time_used=time_used, monitor=watch.monitor)
    except DivergenceError:
        return None  # the kernel of the fit stays
    return refined if result.num_iter else None


def _best_start(model: CVGP, rows: Rows[Tensor], count: int, generator: torch.Generator) -> CVGP:
    """A copy of the model, at the kernel under which some rows given their nearest others are most likely."""
    some = torch.randperm(len(rows.x), generator=generator)[:START_ROWS].to(rows.x.device)
    near = torch.empty(len(rows.x), count, dtype=torch.int64, device=rows.x.device)

    def density(trial: CVGP) -> float:
        near[some] = RowIndex(trial.kernel, rows.x).others(some, count)
        objective = NeighbourObjective(trial, rows, near)
        objective.batch = some
        try:
            return objective.value_and_backward(1.0)
        except FactorisationError:
            return -math.inf

    starts = [deepcopy(model), *_rougher(model, rows)]
    return starts[0] if len(starts) == 1 else max(starts, key=density)


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
def _lengthscales(model: CVGP, rows: Rows[Tensor]) -> Tensor | None:
    """Inverse lengthscales [D]; None for a kernel that has no single set of them."""
    form = stationary_form(model.kernel, rows.x.shape[1])
    return None if form is None else form.inverse_lengthscale.clone()


def _have_moved(before: Tensor | None, after: Tensor | None) -> bool:
    """Whether other rows may be near now: some lengthscale has changed much, or nothing is known of them."""
    if before is None or after is None:
        return True
    return bool(((after / before).log().abs() > math.log(FAR)).any())


def _draw_batches(num_rows: int, generator: torch.Generator) -> Tensor:
    """Rows of each step, of a random pool: all of it is drawn once before a row is drawn again, in whole batches."""
    pool = torch.randperm(num_rows, generator=generator)[:POOL]
    size = min(BATCH, len(pool))
    per_epoch = len(pool) // size
    epochs = [
        pool[torch.randperm(len(pool), generator=generator)[: per_epoch * size]].reshape(per_epoch, size)
        for _ in range(-(-STEPS // per_epoch))
    ]
    return torch.cat(epochs)[:STEPS]
