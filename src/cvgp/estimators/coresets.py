"""Grow, prune, condition and combine models in closed form, without training (§5 of the mathematics)."""

from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean
from scipy.linalg.lapack import dpstrf
from torch import Tensor
from torch.nn.functional import pad

from cvgp import objectives
from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.data.source import DataSource, MemorySource
from cvgp.errors import InvalidInputError
from cvgp.fitting.compare import weight_of
from cvgp.fitting.maximize import maximize_by_lbfgs
from cvgp.fitting.monitor import Run
from cvgp.fitting.neighbors import NeighborRows, adopt_neighbors, ordered, whitened
from cvgp.fitting.size import initial_coreset
from cvgp.gp import bounds
from cvgp.gp import sites as site_algebra
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import (
    NOISE_FLOOR,
    cross_matrix,
    diagonal,
    gaussian_likelihood,
    log_positive,
    square_matrix,
)
from cvgp.gp.linalg import JITTER, add_jitter, inverse_lower, safe_cholesky
from cvgp.gp.model import CVGP
from cvgp.gp.neighbors import RowIndex
from cvgp.gp.sites import randomly_pivoted
from cvgp.gp.vecchia import order_rows, vecchia_statistics
from cvgp.objectives import CHUNK_ROWS, TitsiasObjective, solve_coreset, statistics_and_gain, titsias_value
from cvgp.optim import Result
from cvgp.parallel.group import ALONE, Group

CANDIDATES = 12_000  # rows in the sample of which new points are chosen, unless there are more new points
FIRST_WEIGHT = 1e-6  # of a new point as a share of the mean weight, so that the search starts at the present model
EVALUATIONS = 300
TOLERANCE = 1e-5  # nats per site that ten iterations must gain
LEAST_NOISE = 1.001 * NOISE_FLOOR  # the noise of models at the floor, in larger units, would be below it
UNNEEDED = 1e-3  # nats per new row that may be lost by dropping points
FORGOTTEN = 1e-3  # the weight of a row that is dropped, as a share of the largest
SILENT = 1e-12  # learned noise of a model whose observations carry all their noise; a model cannot have none


class Updated(NamedTuple):
    """A model with other points or more rows than before."""

    model: CVGP
    statistics: Statistics
    bound: float  # on the log density of all rows, in nats and in the model's units
    kept: NeighborRows | None = None


@torch.no_grad()
def grow_model(model: CVGP, source: DataSource, size: int, rng: np.random.Generator) -> Updated:
    """The best coreset of all rows on the present points and new ones among the rows, `size` in all or fewer."""
    wanted = size - len(model.X_c)
    larger = with_points(model, _new_points(model, source, wanted, rng) if wanted else model.X_c[:0])
    found = objectives.statistics(larger, source.chunks(CHUNK_ROWS), source.group)
    bound = larger.adopt_optimum(found).item()
    larger.set_site_noise_offset(source.harmonic_noise(larger.noise.item()) - larger.noise.item())
    return Updated(larger, found, bound)


def with_points(model: CVGP, new: Tensor) -> CVGP:
    """The model with more points `[m, D]`, of hardly any weight."""
    y_new = model.y_c.new_zeros(len(new), *model.y_c.shape[1:])
    beta_new = (FIRST_WEIGHT * model.beta.mean()).repeat(len(new))
    X_c, y_c, beta = (torch.cat(pair) for pair in ((model.X_c, new), (model.y_c, y_new), (model.beta, beta_new)))
    return model.with_coreset(Coreset(X_c, y_c, beta))


def _new_points(model: CVGP, source: DataSource, count: int, rng: np.random.Generator) -> Tensor:
    candidates: Tensor = source.sample(max(CANDIDATES, count), rng).x.to(model.X_c.dtype).unique(dim=0)
    if count > len(candidates):
        raise InvalidInputError(
            f"{count} more points were asked for, and the data have only {len(candidates)} distinct rows to make "
            f"them of; ask for at most {len(model.X_c) + len(candidates)} points in all."
        )
    chosen = torch.full((count,), -1.0, dtype=torch.float64)
    rows = randomly_pivoted(model.kernel, candidates, count, rng, present=model.X_c)
    chosen[: len(rows)] = torch.as_tensor(rows)
    (chosen,) = source.group.first([chosen])
    return candidates[chosen[chosen >= 0].long().to(candidates.device)]


@torch.no_grad()
def prune_model(
    model: CVGP, statistics: Statistics, *, tolerance: float = 0.0, size: int | None = None
) -> tuple[Updated, float]:
    """Drop the least needed points, for at most `tolerance` nats or to `size`; also returns how far the bound fell."""
    K_cc = model.jittered_covariance()
    order = _least_needed_first(K_cc, model.site_precision)
    before = site_algebra.best_coreset(K_cc, statistics, model.site_precision).value.item()

    def bound_without(count: int) -> float:
        kept = order[count:].sort().values
        part = restrict(K_cc, statistics, kept)
        return site_algebra.best_coreset(K_cc[kept][:, kept], part, model.site_precision[kept]).value.item()

    most, too_many = (0, len(order)) if size is None else (len(order) - size, 0)
    while too_many - most > 1:
        middle = (most + too_many) // 2
        if before - bound_without(middle) < tolerance:
            most = middle
        else:
            too_many = middle
    kept = order[most:].sort().values
    part = restrict(K_cc, statistics, kept)
    smaller = with_some_points(model, kept)
    bound = smaller.adopt_optimum(part).item()
    return Updated(smaller, part, bound), before - bound


def with_some_points(model: CVGP, kept: Tensor) -> CVGP:
    """The model without its other points."""
    return model.with_coreset(Coreset(model.X_c[kept], model.y_c[kept], model.beta[kept]))


def most_needed(K_cc: Tensor, w: Tensor, size: int) -> Tensor:
    """Which points to keep, in order, where only some can be kept."""
    return _least_needed_first(K_cc, w)[len(w) - size :].sort().values


def restrict(K_cc: Tensor, statistics: Statistics, kept: Tensor) -> Statistics:
    """Whitened statistics of the same data for some of the pseudo-inputs."""
    L = safe_cholesky(K_cc, "K_cc")
    L_kept = safe_cholesky(K_cc[kept][:, kept], "K_cc")
    Q = inverse_lower(L_kept) @ L[kept]  # [m, M], with orthonormal rows, so that no digits are lost
    return statistics._replace(Phi=Q @ statistics.Phi @ Q.mT, b=Q @ statistics.b)


def _least_needed_first(K_cc: Tensor, w: Tensor) -> Tensor:
    """The reverse order of a pivoted Cholesky factorization: by weight times the variance that the others leave."""
    root_w = w.sqrt()
    matrix = root_w[:, None] * K_cc * root_w
    _, pivots, _, _ = dpstrf(matrix.cpu().numpy(), lower=1)
    return torch.as_tensor(np.flip(pivots - 1).copy(), dtype=torch.long, device=w.device)


def with_neighbors(model: CVGP, rows: Rows[Tensor], count: int, group: Group = ALONE) -> Updated:
    """The model with the coreset that goes with `count` neighbors among these rows."""
    kept, bound = adopt_neighbors(model, rows, count, group=group)
    return Updated(model, kept.statistics, bound, kept)


@torch.no_grad()
def condition_neighbors(model: CVGP, kept: NeighborRows, new: Rows[Tensor]) -> Updated:
    """Use new rows too: their statistics, given the rows before each, are added to those of the old ones."""
    model, rows, start = deepcopy(model), append_rows(kept.rows, new), len(kept.rows.x)
    near = RowIndex(model.kernel, rows.x).earlier(kept.num_neighbors, start)
    found = vecchia_statistics(whitened(model), ordered(model, rows), near, start)
    larger, bound = adopt_neighbors(model, rows, kept.num_neighbors, kept.statistics.merge(found))
    return Updated(model, larger.statistics, bound, larger)


@torch.no_grad()
def add_rows(model: CVGP, statistics: Statistics, bound: float, source: DataSource, *, tight: bool) -> Updated:
    """The best coreset of more rows on the same points: their sums are added to those of the rows so far."""
    model = deepcopy(model)
    new, gain = statistics_and_gain(model, source.chunks(CHUNK_ROWS), source.group)
    before, found = _best_value(model, statistics), statistics.merge(new)
    model.adopt_optimum(found)  # so that the next search for weights starts, and ends, at the same ones in any order
    after = model.adopt_optimum(found).item() + (gain if tight else 0.0)
    return Updated(model, found, bound + after - before)


@torch.no_grad()
def adapt_model(
    model: CVGP, statistics: Statistics, bound: float, source: DataSource, points: Tensor, most: int, *, tight: bool
) -> Updated:
    """The best coreset of more rows with new points `[m, D]`, and at most `most` in all: the least needed are dropped.

    Old rows are known through the old points alone, so their features at the new ones are zero.
    """
    extra = len(points)
    Phi, b = pad(statistics.Phi, (0, extra, 0, extra)), pad(statistics.b, (0, 0, 0, extra))
    found = add_rows(with_points(model, points), statistics._replace(Phi=Phi, b=b), bound, source, tight=tight)
    if len(found.model.X_c) > most:
        smaller, loss = prune_model(found.model, found.statistics, size=most)
    else:
        smaller, loss = prune_model(found.model, found.statistics, tolerance=UNNEEDED * source.total_weight)
    return smaller._replace(bound=found.bound - loss)


@torch.no_grad()
def points_for(
    model: CVGP, x: Tensor, precision: Tensor, weight: float, gap: float, most: int, rng: np.random.Generator
) -> Tensor:
    """New points among rows x `[n, D]`: up to `most`, until the rows are explained.

    They are if the prior variance that the points leave, times the precision `[n]` of each row, is at most `gap` per
    row; `weight` is the number of rows.
    """
    candidates = x.unique(dim=0)
    candidates = candidates[torch.as_tensor(rng.permutation(len(candidates))[: max(CANDIDATES, most)], device=x.device)]
    new: Tensor = candidates[randomly_pivoted(model.kernel, candidates, most, rng, present=model.X_c)]
    every = torch.cat([model.X_c, new])
    K_cc = add_jitter(square_matrix(model.kernel, every), JITTER)
    gaps = torch.zeros(len(new) + 1, dtype=torch.float64, device=x.device)  # of the first 0, 1, ... new points
    for own, rho in zip(x.split(CHUNK_ROWS), precision.split(CHUNK_ROWS), strict=True):
        psi = bounds.whitener(K_cc) @ cross_matrix(model.kernel, every, own)  # [M + m, n]
        explained = psi.square().cumsum(0)[len(model.X_c) - 1 :]  # [m + 1, n]
        gaps += (diagonal(model.kernel, own) - explained).clamp_min(0.0) @ rho
    return new[: int((gaps > gap * weight).sum())]


@torch.no_grad()
def discount(model: CVGP, statistics: Statistics, bound: float, factor: float) -> Updated:
    """The best coreset if each row so far counts `factor` times."""
    before, found, model = _best_value(model, statistics), statistics.times(factor), deepcopy(model)
    after = model.adopt_optimum(found).item()
    return Updated(model, found, after + factor * (bound - before))


@torch.no_grad()
def discount_neighbors(model: CVGP, kept: NeighborRows, factor: float) -> Updated:
    """The same for rows that predictions use; those that hardly count are dropped."""
    weight = factor * weight_of(kept.rows)
    rows = kept.rows._replace(sample_weight=weight).take(weight >= FORGOTTEN * weight.max())
    return with_neighbors(deepcopy(model), rows, kept.num_neighbors)


def _best_value(model: CVGP, statistics: Statistics) -> float:
    """The bound that the best coreset of some statistics has on the points of a model."""
    return site_algebra.best_coreset(model.jittered_covariance(), statistics, model.site_precision).value.item()


@torch.no_grad()
def condition_coreset(model: CVGP, new: Rows[Tensor], bound: float) -> Updated:
    """Condition the coreset's posterior on new rows, which become points, and add their log density to `bound`."""
    device = model.X_c.device
    prior = deepcopy(model).cpu()
    new = new.map(lambda values: values.to("cpu", torch.float64))
    noise = prior.total_noise(new.noise_variance).expand(len(new.x))
    rows = order_rows(new.x, new.y, noise, sample_weight=new.sample_weight)
    old = sites_of(prior)
    fresh = Rows(new.x, new.y.reshape(-1, *old.y.shape[1:]), None, rows.precision.reciprocal())
    every = Rows[Tensor].join([old, fresh])
    noises = (prior.noise.item(), prior.site_noise_offset.item())
    combined, _ = combine(every, prior.kernel, prior.mean, noises, Run.alone(), None, 0)
    # A row of weight c is one site of c times the precision, except for its normalizer.
    as_sites = 0.5 * (rows.precision / (2.0 * torch.pi)).log()
    extra = rows.y.shape[1] * (rows.log_normalizer - as_sites).sum().item()
    gain = combined.bound - log_evidence(old, prior.kernel, prior.mean) + extra
    found = Statistics(*(sums.to(device) for sums in combined.statistics))
    return Updated(combined.model.to(device), found, bound + gain)


def append_rows(first: Rows[Tensor], then: Rows[Tensor]) -> Rows[Tensor]:
    """All rows; if some have weights or noise variances, the others count once and have none."""
    weighted = first.sample_weight is not None or then.sample_weight is not None
    noisy = first.noise_variance is not None or then.noise_variance is not None

    def completed(rows: Rows[Tensor]) -> Rows[Tensor]:
        weight, noise = rows.sample_weight, rows.noise_variance
        weight = torch.ones_like(rows.x[:, 0]) if weighted and weight is None else weight
        return Rows(rows.x, rows.y, weight, torch.zeros_like(rows.x[:, 0]) if noisy and noise is None else noise)

    return Rows[Tensor].join([completed(first), completed(then)])


@torch.no_grad()
def sites_of(model: CVGP) -> Rows[Tensor]:
    """The pseudo-observations of a model, each with its noise variance."""
    return Rows(model.X_c.detach(), model.y_c.detach(), None, model.site_precision.reciprocal())


def log_evidence(sites: Rows[Tensor], kernel: Kernel, mean: Mean) -> float:
    """The log density of the pseudo-outputs under a prior, in nats."""
    return titsias_value(_silent_model(_coreset(sites), kernel, mean), _as_data(sites).chunks(CHUNK_ROWS))


@torch.enable_grad()  # also for a caller that has switched gradients off
def combine(
    sites: Rows[Tensor], kernel: Kernel, mean: Mean, noises: tuple[float, float], run: Run, size: int | None, seed: int
) -> tuple[Updated, Result | None]:
    """The posterior of all sites under one prior, on at most `size` points, and how the search for these ended."""
    source, whole = _as_data(sites), _coreset(sites)
    result = None
    if size is None or size >= len(whole):
        model = _silent_model(whole, kernel, mean)
        bound = titsias_value(model, source.chunks(CHUNK_ROWS))
        run.note("merge", "", bound / len(whole))
    else:
        start = initial_coreset("greedy", whole.X, whole.y, size, np.random.default_rng(seed), kernel=kernel)
        model = _silent_model(start, kernel, mean)
        objective = TitsiasObjective(model, lambda: source.chunks(CHUNK_ROWS), len(whole), parameters=[model.X_c])
        result = maximize_by_lbfgs(
            objective, len(whole), run, max_evaluations=EVALUATIONS, tol=TOLERANCE, phase="merge"
        )
        model.zero_grad()
        bound = solve_coreset(model, source.chunks(CHUNK_ROWS))
    found = objectives.statistics(model, source.chunks(CHUNK_ROWS))
    return Updated(_with_noise(model, *noises), found, bound), result


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
def _with_noise(model: CVGP, noise: float, site_offset: float) -> CVGP:
    noise = max(noise, LEAST_NOISE)
    coreset = Coreset(model.X_c, model.y_c, model.site_precision * (noise + site_offset))
    final = CVGP(coreset, model.kernel, mean=model.mean, likelihood=gaussian_likelihood(noise))
    final.site_noise_offset.fill_(site_offset)
    return final
