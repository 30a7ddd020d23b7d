r"""One posterior from the pseudo-data of several, without their data.

A coreset posterior is :math:`q_k(f) \propto p(f) \prod_m N(y_m | f(x_m), 1/w_m)`, so its sites are observations with
known noise. The posterior that has seen all shards is the prior, once, times the sites of all: an exact GP on the
union of the coresets. The bound of a smaller coreset on this union is :math:`\log Z - KL(q' || q)`, with Z the evidence
of the union: to maximise it is to come as close to the union's posterior as the smaller size allows.
"""

import math
from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import NOISE_FLOOR, gaussian_likelihood, log_positive
from cvgp.gp.model import CVGP
from cvgp.objectives.full_batch import CHUNK_ROWS, TitsiasObjective, solve_coreset, statistics, titsias_value
from cvgp.optim.stopping import Progress, Result
from cvgp.training.initialise import initial_coreset
from cvgp.training.maximise import maximise_by_lbfgs
from cvgp.training.monitor import Watch

EVALUATIONS = 300
TOLERANCE = 1e-5
"""Nats per site that ten iterations must gain."""
KERNEL_POINTS = 400
"""A kernel is learned from a union through at most this many points: the evidence itself costs the cube."""
KERNEL_EVALUATIONS = 100
BELIEVABLE = 4.0
"""How many of its own standard deviations a pseudo-output may lie from the function and still tell of the kernel."""

LEAST_NOISE = 1.001 * NOISE_FLOOR
"""The noise of models at the floor, in larger units, would be below it."""
SILENT = 1e-12
"""Learned noise of a model whose observations carry all their noise with them; a model cannot have none."""


class Noise(NamedTuple):
    """What a combined model says of the noise of an observation."""

    learned: float
    """Variance that predictions of y add."""
    site_offset: float
    """What a weight of one stands for beyond it."""


class Combined(NamedTuple):
    """A model of all sites."""

    model: CVGP
    statistics: Statistics
    """Of the sites, at the model's kernel and pseudo-inputs."""
    bound: float
    """On the log evidence of the sites, in nats; equal to it where no point was left out."""
    result: Result | None
    """Of the search for pseudo-inputs; None where all sites are kept."""


@torch.no_grad()
def sites_of(model: CVGP) -> Rows[Tensor]:
    """The pseudo-observations of a model, each with its noise variance."""
    return Rows(model.X_c.detach(), model.y_c.detach(), None, model.site_precision.reciprocal())


def log_evidence(sites: Rows[Tensor], kernel: Kernel, mean: Mean) -> float:
    """The log density of the pseudo-outputs under a prior, in nats."""
    return titsias_value(_silent_model(_coreset(sites), kernel, mean), _as_data(sites).chunks(CHUNK_ROWS))


def combine(
    sites: Rows[Tensor],
    kernel: Kernel,
    mean: Mean,
    noise: Noise,
    rng: np.random.Generator,
    watch: Watch,
    *,
    size: int | None,
) -> Combined:
    """The posterior of all sites under one prior.

    Parameters
    ----------
    sites
        Pseudo-observations of all models, in one unit, with their noise variances.
    kernel, mean
        The prior.
    noise
        Of an observation; sites say nothing of it.
    size
        How many pseudo-points the result may have; all of them by default.
    """
    source, whole = _as_data(sites), _coreset(sites)
    result = None
    if size is None or size >= len(whole):
        model = _silent_model(whole, kernel, mean)
        bound = titsias_value(model, source.chunks(CHUNK_ROWS))
        watch.begin("merge", 0)
        watch.monitor(Progress(0, -bound / len(whole), math.nan))
    else:
        model = _silent_model(initial_coreset("greedy", whole.X, whole.y, size, rng, kernel=kernel), kernel, mean)
        result = _maximise(model, [model.X_c], source, watch, EVALUATIONS)
        bound = solve_coreset(model, source.chunks(CHUNK_ROWS))
    return Combined(_with_noise(model, noise), statistics(model, source.chunks(CHUNK_ROWS)), bound, result)


def refit_prior(
    sites: Rows[Tensor], kernel: Kernel, mean: Mean, rng: np.random.Generator, watch: Watch
) -> tuple[Kernel, Mean, Result]:
    """Kernel and mean with the largest evidence of the sites, from a start that stays as it is.

    Pseudo-outputs are solved for under the kernel of their model, and where pseudo-inputs are close to each other some
    lie thousands of their standard deviations off, to pull the function by its slope. As observations these would
    say that the function is enormous, so they are left out here.
    """
    whole = _coreset(sites)
    kernel, mean = deepcopy(kernel), deepcopy(mean)
    believable = _standardised_residual(_silent_model(whole, kernel, mean)) < BELIEVABLE
    source = _as_data(sites).take(believable.nonzero()[:, 0])
    x, y = source.data.x.numpy(), source.data.y.numpy()
    model = _silent_model(initial_coreset("greedy", x, y, KERNEL_POINTS, rng, kernel=kernel), kernel, mean)
    learned = [p for p in (*kernel.parameters(), *mean.parameters()) if p.requires_grad]
    return kernel, mean, _maximise(model, [*learned, model.X_c], source, watch, KERNEL_EVALUATIONS)


@torch.no_grad()
def _standardised_residual(model: CVGP) -> Tensor:
    """|y_m - f(x_m)| sqrt(w_m) at the posterior mean, the largest over outputs [M]: alpha = w (y - f)."""
    alpha = model.process().factor.alpha
    return alpha.reshape(len(alpha), -1).abs().amax(1) / model.site_precision.sqrt()


@torch.enable_grad()  # also for a caller that has switched gradients off
def _maximise(model: CVGP, parameters: list[Tensor], source: MemorySource, watch: Watch, evaluations: int) -> Result:
    """Maximise the bound on the sites over some parameters of the model."""
    objective = TitsiasObjective(model, lambda: source.chunks(CHUNK_ROWS), source.num_rows, parameters=parameters)
    result = maximise_by_lbfgs(
        objective, source.num_rows, watch, max_evaluations=evaluations, tol=TOLERANCE, phase="merge"
    )
    model.zero_grad()
    return result


def _as_data(sites: Rows[Tensor]) -> MemorySource:
    assert sites.noise_variance is not None, "sites carry their noise"
    return MemorySource(sites.x, sites.y, None, (sites.noise_variance - SILENT).clamp_min(0.0))


def _coreset(sites: Rows[Tensor]) -> Coreset:
    assert sites.noise_variance is not None, "sites carry their noise"
    return Coreset(sites.x, sites.y, sites.noise_variance.reciprocal())


def _silent_model(coreset: Coreset, kernel: Kernel, mean: Mean) -> CVGP:
    """A model without noise of its own, in which a weight is the precision of a site."""
    likelihood = GaussianLikelihood(noise_constraint=log_positive()).double()
    likelihood.noise = torch.tensor(SILENT, dtype=torch.float64)
    model = CVGP(coreset, kernel, mean=mean, likelihood=likelihood)
    model.site_noise_offset.fill_(1.0 - SILENT)
    return model


@torch.no_grad()
def _with_noise(model: CVGP, noise: Noise) -> CVGP:
    """The same posterior over functions, with a noise for observations."""
    learned = max(noise.learned, LEAST_NOISE)
    coreset = Coreset(model.X_c, model.y_c, model.site_precision * (learned + noise.site_offset))
    final = CVGP(coreset, model.kernel, mean=model.mean, likelihood=gaussian_likelihood(learned))
    final.site_noise_offset.fill_(noise.site_offset)
    return final
