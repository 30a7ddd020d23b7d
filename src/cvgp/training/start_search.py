"""Where kernel and noise start: a few lengthscales tried on a subset, the best kept by the bound.

Local optima are real: the same model ends far apart by the lengthscale it starts from. A short collapsed fit of a
small coreset on a thousand rows costs a fraction of a second and tells the starts apart.
"""

from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean

from cvgp.data.arrays import MemorySource
from cvgp.data.source import DataSource
from cvgp.errors import FactorisationError
from cvgp.gp.kernels import gaussian_likelihood
from cvgp.gp.model import CVGP
from cvgp.objectives.full_batch import CollapsedObjective, collapsed_parameters, collapsed_value
from cvgp.optim.lbfgs import minimise_lbfgs
from cvgp.training.initialise import initial_coreset
from cvgp.training.monitor import Watch

__all__ = ["START_FACTORS", "Start", "raise_noise", "search_start", "site_noise_offset", "typical_lengthscale"]

START_FACTORS = (0.25, 1.0, 4.0)
"""Multiples of the typical lengthscale that are tried."""

START_NOISE = 0.1
LEAST_START_NOISE = 1e-6
"""A start at the noise floor itself could not learn a larger noise: its logarithm has no slope there."""
NOISE_LADDER = (1e-5, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0)
SUBSET_ROWS = 1000
SUBSET_CORESET = 64
EVALUATIONS = 25


def typical_lengthscale(num_dims: int) -> float:
    """The root mean square distance of two standardised inputs in one dimension, grown with the dimension."""
    return float(np.sqrt(num_dims))


class Start(NamedTuple):
    """Kernel, mean and noise to begin with."""

    kernel: Kernel
    mean: Mean
    noise: float


@torch.enable_grad()  # also for a caller that has switched gradients off
def search_start(kernel: Kernel, mean: Mean, source: DataSource, rng: np.random.Generator, watch: Watch) -> Start:
    """The kernel, mean and noise of the best of a few short fits on a subset; the arguments stay as they are."""
    rows = MemorySource(*source.sample(SUBSET_ROWS, rng))
    data = rows.data
    x, y = data.x.cpu().numpy(), data.y.cpu().numpy()
    weight = None if data.sample_weight is None else data.sample_weight.cpu().numpy()
    coreset = initial_coreset("kmeans", x, y, min(SUBSET_CORESET, max(len(x) // 2, 1)), rng, sample_weight=weight)
    best_value, best = np.inf, Start(deepcopy(kernel), deepcopy(mean), START_NOISE)
    for factor in START_FACTORS if _lengthscales(kernel) else (1.0,):
        trial = CVGP(coreset, deepcopy(kernel), mean=deepcopy(mean), likelihood=gaussian_likelihood(START_NOISE))
        trial.site_noise_offset.fill_(site_noise_offset(START_NOISE, rows))
        _multiply_lengthscales(trial.kernel, factor)
        value = _short_fit(trial, rows, watch, factor)
        if value < best_value:
            best_value, best = value, Start(trial.kernel, trial.mean, max(trial.noise.item(), LEAST_START_NOISE))
    return best


@torch.no_grad()
def raise_noise(model: CVGP, source: DataSource, rng: np.random.Generator) -> None:
    """Raise the model's noise to the rung of a ladder that suits its coreset best, by the bound on a subset.

    The noise that the search learned is what its own points, already trained, left unexplained. A smaller coreset, or
    one that has yet to move, leaves more; under a noise far below that, a solver's cheapest way up is to give up the
    function and predict a constant.
    """
    rows = MemorySource(*source.sample(SUBSET_ROWS, rng))

    def bound_at(noise: float) -> float:
        model.likelihood.noise = torch.tensor(noise, dtype=torch.float64)
        return collapsed_value(model, rows.chunks(SUBSET_ROWS))

    start = model.noise.item()
    best = max([start, *(noise for noise in NOISE_LADDER if noise > start)], key=bound_at)
    model.likelihood.noise = torch.tensor(best, dtype=torch.float64)


def site_noise_offset(noise: float, source: DataSource) -> float:
    """What to add to the learned noise so that a weight of one stands for the harmonic mean of the total noise."""
    return source.harmonic_noise(noise) - noise


def _short_fit(model: CVGP, rows: MemorySource, watch: Watch, factor: float) -> float:
    parameters = collapsed_parameters(model)
    objective = CollapsedObjective(model, lambda: rows.chunks(SUBSET_ROWS), rows.num_rows)

    def negative_bound_per_row() -> float:
        value = objective.value_and_backward()
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(-1.0 / rows.total_weight)
        return -value / rows.total_weight

    watch.begin(f"start x{factor:g}", EVALUATIONS)
    try:
        return minimise_lbfgs(
            parameters, negative_bound_per_row, max_evaluations=EVALUATIONS, tol=0.0, monitor=watch.observe
        ).value
    except (FactorisationError, FloatingPointError):
        # A start that cannot even be evaluated loses to the others.
        return np.inf


def _lengthscales(kernel: Kernel) -> list[Kernel]:
    """The kernels whose lengthscale is to be learned; one that is frozen is not to be tried at other values."""
    parts = [part for part in kernel.modules() if isinstance(part, Kernel) and part.has_lengthscale]
    return [part for part in parts if part.raw_lengthscale.requires_grad]


@torch.no_grad()
def _multiply_lengthscales(kernel: Kernel, factor: float) -> None:
    for part in _lengthscales(kernel):
        part.lengthscale = part.lengthscale * factor
