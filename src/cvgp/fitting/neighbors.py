"""Predictions that use the nearest rows: the rows that are kept, the kernel that suits them, and whether they help.

Kernel and noise are fitted by the density of rows given their nearest others, on minibatches (docs: mathematics, §9).
Neighbors are used if rows late in a random order are clearly more likely given earlier ones than under the coreset
alone. The coreset then stays where it is: its places matter little beside the neighbors.

In a group of processes each holds all rows. They fit the kernel alike, and share the work of the statistics.
"""

import math
from copy import deepcopy
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ScaleKernel
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.data.source import DataSource, MemorySource, cut
from cvgp.errors import DivergenceError, InvalidInputError, InvalidTypeError
from cvgp.fitting.compare import Residuals, Scores, compare, variance_of_y, weight_of
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.kernel import with_scales_of
from cvgp.fitting.monitor import FitLog, Phase, Run, neighbor_seconds
from cvgp.fitting.noise_map import constant_noise_scores, relative_noise
from cvgp.fitting.sample import distinct_rows
from cvgp.fitting.size import adopt_first
from cvgp.gp.bounds import Statistics, whitener
from cvgp.gp.kernels import multiply_inside, name_of_kernel, prior_mean, stationary_form
from cvgp.gp.model import CVGP
from cvgp.gp.neighbors import RowIndex, random_order
from cvgp.gp.vecchia import (
    NeighborProcess,
    OrderedRows,
    RowMoments,
    WhitenedPoints,
    inducing_posterior,
    no_points,
    order_rows,
    sequential_moments,
    vecchia_blocks,
    vecchia_statistics,
)
from cvgp.objectives import PriorObjective, VecchiaObjective
from cvgp.optim import AdamState, Result, Status, minimize_adam
from cvgp.parallel.group import ALONE, Group, sum_of
from cvgp.runtime import threads_for

Neighbors = int | Literal["auto"]

PHASE = "neighbors"
TIES = 0.01  # rows with equal y may be copies, unless this share of all pairs has equal y


def check_neighbors(n_neighbors: Any) -> Neighbors:
    """Validate the parameter `n_neighbors`: a whole number of at least 0, or 'auto'."""
    if isinstance(n_neighbors, str) and n_neighbors == "auto":
        return "auto"
    expected = "n_neighbors must be a whole number of rows that a prediction may use, 0 for none, or 'auto'"
    if isinstance(n_neighbors, bool) or not isinstance(n_neighbors, int | np.integer):
        raise InvalidTypeError(f"{expected}; got {n_neighbors!r}.")
    if n_neighbors < 0:
        raise InvalidInputError(f"{expected}; got {n_neighbors}.")
    return int(n_neighbors)


def reason_against_neighbors(source: DataSource, h: Heuristics) -> str:
    """Why neighbors cannot be used at all; empty if they can."""
    if not isinstance(source, MemorySource):
        return "the table is read in parts, and neighbors need all rows in memory"
    if source.num_rows > h.most_neighbor_rows:
        return f"there are {source.num_rows} rows, and neighbors are for at most {h.most_neighbor_rows}"
    return ""


class NeighborRows(NamedTuple):
    """Rows that predictions use, in the model's units and in float64; each is conditioned on rows before it."""

    rows: Rows[Tensor]
    num_neighbors: int
    statistics: Statistics

    @torch.no_grad()
    def process(self, model: CVGP) -> NeighborProcess:
        """The posterior of f minus its prior mean, with the kernel and the points of a model."""
        posterior = inducing_posterior(self.statistics)
        return NeighborProcess(whitened(model), ordered(model, self.rows), posterior, self.num_neighbors)


def in_random_order(rows: Rows[Tensor], seed: int) -> Rows[Tensor]:
    """The rows in an order that depends on their number, clusters and the seed alone; a cluster stays together.

    Rows with a time are in the order of their stretches.
    """
    generator = torch.Generator().manual_seed(seed)
    order = random_order(len(rows.x), generator)
    if rows.cluster is not None:
        labels, place = rows.cluster.cpu().unique(return_inverse=True)
        turns = random_order(len(labels), generator) if rows.time is None else torch.arange(len(labels))
        order = order[turns[place[order]].argsort(stable=True)]
    return rows.take(order.to(rows.x.device))


def begin_of_cluster(rows: Rows[Tensor], place: int) -> int:
    """The first row of the cluster of a row; the row itself where there are no clusters, or just one before it."""
    if rows.cluster is None:
        return place
    first = int((rows.cluster[: place + 1] != rows.cluster[place]).sum())  # clusters stay together
    return first or int((rows.cluster == rows.cluster[place]).sum())


def whitened(model: CVGP) -> WhitenedPoints:
    """The pseudo-inputs of a model as features."""
    return WhitenedPoints(model.kernel, model.X_c.detach(), whitener(model.jittered_covariance()))


def ordered(model: CVGP, rows: Rows[Tensor]) -> OrderedRows:
    """Rows without the prior mean of a model, and with its noise."""
    y = rows.y - prior_mean(model.mean, rows.x, rows.y)
    return order_rows(rows.x, y, model.total_noise(rows.noise_variance), sample_weight=rows.sample_weight)


@torch.no_grad()
def gather_rows(
    points: WhitenedPoints, data: OrderedRows, near: Tensor, group: Group, start: int = 0, stop: int | None = None
) -> Statistics:
    """Statistics of the rows from `start` to `stop`, summed over the group; `near` [n, k] is of the process's part."""
    stop = len(data.x) if stop is None else stop
    first, last = (start + place for place in cut(stop - start, group))
    nothing = Statistics.zeros(points.size, data.y.shape[1], data.x.device)
    until = OrderedRows(*(values[:last] for values in data))

    def own_part() -> Statistics:
        return vecchia_statistics(points, until, near, first) if first < last else nothing

    return Statistics(*sum_of(group, own_part, nothing))


class NearRows(NamedTuple):
    """The neighbors of early rows from `start` on and of late ones from `first` on, among the rows before each."""

    start: int
    first: int
    early: Tensor  # [n, k]
    late: Tensor  # [N - first, k]


class SequentialPredictions(NamedTuple):
    """The statistics of the rows from `near.start` on, and the moments of f at each late row given all before it."""

    near: NearRows
    statistics: Statistics
    moments: RowMoments


@torch.no_grad()
def find_near(model: CVGP, rows: Rows[Tensor], count: int, h: Heuristics, group: Group = ALONE) -> NearRows:
    """`count` neighbors of each late row, and of enough early rows to determine the coreset's part."""
    x, N = rows.x, len(rows.x)
    index = RowIndex(model.kernel, x)
    first = begin_of_cluster(rows, max(N - h.late_rows, N // 2))
    start = max(first - max(h.early_rows, h.early_rows_per_point * len(model.X_c)), 0)
    own = (start + place for place in cut(first - start, group))
    others = index if rows.cluster is None else RowIndex(model.kernel, x, rows.cluster)
    late = without_copies(rows, others.earlier(count, first), torch.arange(first, N, device=x.device))
    return NearRows(start, first, index.earlier(count, *own), late)


@torch.no_grad()
def without_copies(rows: Rows[Tensor], near: Tensor, queries: Tensor) -> Tensor:
    """Neighbors `[n, k]` of some rows `[n]`, with -1 in place of copies of the rows, which would teach a noise of zero.

    A copy shares y and at least half of the columns to the last bit: what differs may be a column that does not matter,
    such as a row number. If y has few values, equal ones say nothing about copies.
    """
    y = rows.y.reshape(len(rows.y), -1)[:, 0]
    counts = y.unique(return_counts=True)[1].to(torch.float64)
    if (counts / len(y)).square().sum().item() - 1.0 / len(y) > TIES:
        return near
    shares_y = (near >= 0) & (y[near.clamp_min(0)] == y[queries][:, None])  # [n, k]
    query, place = shares_y.nonzero(as_tuple=True)
    equal = (rows.x[near[query, place]] == rows.x[queries[query]]).to(torch.float64).mean(1)
    near = near.clone()
    near[query[equal >= 0.5], place[equal >= 0.5]] = -1
    return near


@torch.no_grad()
def predict_sequentially(
    model: CVGP, rows: Rows[Tensor], near: NearRows, group: Group = ALONE
) -> SequentialPredictions:
    """Go through rows in their order."""
    points, data = whitened(model), ordered(model, rows)
    # Added up, not subtracted from the statistics of all rows: with next to no noise, only rounding would remain.
    with threads_for(len(near.late) * near.late.shape[1] ** 2 * points.size):
        early = gather_rows(points, data, near.early, group, near.start, near.first)
        moments, found = sequential_moments(points, data, near.late, early, _sizes(rows, near.first))
    return SequentialPredictions(near, found, moments)


def _sizes(rows: Rows[Tensor], first: int) -> list[int] | None:
    """How many of the rows from `first` on each cluster has, in their order."""
    if rows.cluster is None:
        return None
    sizes: list[int] = rows.cluster[first:].unique_consecutive(return_counts=True)[1].tolist()
    return sizes


@torch.no_grad()
def all_statistics(model: CVGP, rows: Rows[Tensor], found: SequentialPredictions, group: Group = ALONE) -> Statistics:
    """The statistics of all rows, those before the early ones included."""
    start = found.near.start
    if start == 0:
        return found.statistics
    before, count = rows.take(slice(start)), found.near.late.shape[1]
    near = RowIndex(model.kernel, before.x).earlier(count, *cut(start, group))
    return gather_rows(whitened(model), ordered(model, before), near, group).merge(found.statistics)


@torch.no_grad()
def late_residuals(model: CVGP, rows: Rows[Tensor], found: SequentialPredictions, count: int) -> Residuals:
    """Residuals of the last `count` rows, each predicted by all rows before it; at most of all late ones."""
    count = min(count, len(found.moments.f_var))
    f_mean, f_var = (values[len(values) - count :] for values in found.moments)
    late = rows.take(slice(len(rows.x) - count, None))
    y = late.y - prior_mean(model.mean, late.x, late.y)
    return Residuals.of(late, y.reshape(len(y), -1) - f_mean, f_var)


@torch.no_grad()
def adopt_neighbors(
    model: CVGP, rows: Rows[Tensor], count: int, statistics: Statistics | None = None, group: Group = ALONE
) -> tuple[NeighborRows, float]:
    """Solve for the coreset that goes with neighbors, in place, and bound the density of the rows."""
    if statistics is None:
        near = RowIndex(model.kernel, rows.x).earlier(count, *cut(len(rows.x), group))
        statistics = gather_rows(whitened(model), ordered(model, rows), near, group)
    bound = model.adopt_optimum(statistics).item()
    # A weight of one stands for the harmonic mean of the total noise of the rows.
    total = model.total_noise(rows.noise_variance)
    model.set_site_noise_offset((1.0 / total.reciprocal().mean() - model.noise).item())
    return NeighborRows(rows, count, statistics), bound


class Candidates(NamedTuple):
    """What a fit with neighbors chooses from, beside the model's own kernel."""

    counts: tuple[int, ...]  # fewest first
    smoother: tuple[Kernel, ...] = ()  # one after the other, as long as each is better than the one before it
    rougher: tuple[Kernel, ...] = ()
    is_known: bool = False  # what is best: every kernel that is given


class NeighborFit(NamedTuple):
    """A model with the kernel that suits neighbors, how its search ended, and predictions of late rows."""

    model: CVGP
    result: Result
    rows: Rows[Tensor]
    predictions: SequentialPredictions
    num_neighbors: int
    tried: dict[str, Scores]

    def judged(self, h: Heuristics) -> tuple[Rows[Tensor], Residuals]:
        """The rows that neighbors are judged by, and their residuals given all rows before each."""
        total = len(self.rows.x)
        count = min(h.judged_neighbor_rows, math.ceil(h.judged_neighbor_share * total))
        count = total - max(begin_of_cluster(self.rows, total - count), self.predictions.near.first)
        residuals = late_residuals(self.model, self.rows, self.predictions, count)
        return self.rows.take(slice(total - count, None)), residuals


def adoption_seconds(num_rows: int, size: int, run: Run) -> float:
    """Seconds that judging or adopting neighbors takes on this machine."""
    return 2.0 * run.budget.clock.pace * neighbor_seconds(num_rows, size, run.heuristics)


def neighbors_are_affordable(num_rows: int, size: int, run: Run) -> bool:
    """Whether a time limit leaves time to judge neighbors, and to adopt them."""
    seconds, limit = adoption_seconds(num_rows, size, run), run.budget.max_time
    is_small = limit is None or seconds <= run.heuristics.largest_neighbor_share * limit
    return is_small and 2.0 * seconds <= run.budget.left


def fit_neighbors(
    model: CVGP, source: MemorySource, candidates: Candidates, run: Run, *, learn_kernel: bool = True
) -> NeighborFit | None:
    """Fit kernel and noise to neighbors, or keep the model's own; None where no step can be made."""
    rows, h = in_random_order(source.data, run.seed), run.heuristics
    later = adoption_seconds(len(rows.x), len(model.X_c), run)
    part = run._replace(budget=run.budget.reserving(later)).part(h.largest_neighbor_share)
    first = deepcopy(model), Result(Status.CONVERGED, math.nan, 0)
    if learn_kernel:
        learned = vecchia_fit(model, rows, h.default_neighbors, part)
        if learned is None:
            return None
        first = learned

    def finish(found: tuple[CVGP, Result], count: int) -> NeighborFit:
        adopt_first(source, found[0])
        near = find_near(found[0], rows, count, h, source.group)
        return NeighborFit(*found, rows, predict_sequentially(found[0], rows, near, source.group), count, tried)

    tried, fewest = dict[str, Scores](), candidates.counts[0]
    best, count = _challenger(first, rows, candidates, tried, later, part, learn_kernel=learn_kernel)
    fit = finish(best, count)
    if candidates.is_known or (best is first and count == fewest):
        return fit
    # What is better given neighbors alone need not be so given the coreset too.
    usual = finish(first, fewest)
    scores = [constant_noise_scores(one.model, one.judged(h)[1]) for one in (fit, usual)]
    gain = compare(*scores)
    return fit if run.agreed(gain.is_clear and gain.gain > h.least_neighbor_gain) else usual


def _challenger(
    first: tuple[CVGP, Result],
    rows: Rows[Tensor],
    candidates: Candidates,
    tried: dict[str, Scores],
    seconds: float,
    run: Run,
    *,
    learn_kernel: bool,
) -> tuple[tuple[CVGP, Result], int]:
    """The number of neighbors, then the kernel, given which left-out rows are clearly most likely."""
    h, found, count = run.heuristics, first, candidates.counts[0]
    quiet = run._replace(log=FitLog())  # what is tried is not the course of the fit

    def judge(model: CVGP, count: int) -> Scores:
        name = f"{count} neighbors, {name_of_kernel(model.kernel)}"
        if name not in tried:
            tried[name] = near_scores(model, rows, count, h)
        return tried[name]

    for more in candidates.counts[1:]:
        # The cost of neighbors grows with their number.
        if more >= len(rows.x) or more / h.default_neighbors * seconds > run.budget.left:
            break
        if not compare(judge(first[0], more), judge(first[0], count)).is_clear:
            break
        count = more
    for kernels in (candidates.smoother, candidates.rougher) if learn_kernel else ():
        for kernel in kernels if found is first else ():
            start = deepcopy(found[0])
            start.kernel = with_scales_of(kernel, found[0].kernel)
            other = vecchia_fit(start, rows, h.default_neighbors, quiet, h.alternative_steps) if run.has_time else None
            if other is None:
                break
            if not (candidates.is_known or compare(judge(other[0], count), judge(found[0], count)).is_clear):
                break
            found = other
    return found, count


@torch.no_grad()
def near_scores(model: CVGP, rows: Rows[Tensor], count: int, h: Heuristics) -> Scores:
    """Scores of the last rows given their nearest rows before them alone: no coreset is needed to judge by."""
    N = len(rows.x)
    first = begin_of_cluster(rows, N - min(h.judging_rows, math.ceil(h.judged_neighbor_share * N)))
    late = torch.arange(first, N, device=rows.x.device)
    near = without_copies(rows, RowIndex(model.kernel, rows.x, rows.cluster).earlier(count, first), late)
    return constant_noise_scores(model, residuals_given(near, model, rows, late))


@torch.no_grad()
def residuals_given(near: Tensor, model: CVGP, rows: Rows[Tensor], queries: Tensor) -> Residuals:
    """Residuals of some rows `[n]` given their neighbors `[n, k]` alone."""
    points, data = no_points(model.kernel, rows.x), ordered(model, rows)
    found = [(part.eta_y, part.v) for _, part in vecchia_blocks(points, data, queries, near)]
    f_mean, f_var = (torch.cat(values) for values in zip(*found, strict=True))
    return Residuals.of(rows.take(queries), data.y[queries] - f_mean, f_var)


@torch.enable_grad()
def vecchia_fit(
    model: CVGP, rows: Rows[Tensor], count: int, run: Run, steps: int | None = None
) -> tuple[CVGP, Result] | None:
    """A copy of the model with the kernel, mean and noise that suit neighbors; its coreset is not solved for yet."""
    h, rows, N = run.heuristics, distinct_rows(rows), len(rows.x)
    count = min(count, h.default_neighbors, N - 1)
    found = deepcopy(model)
    near = torch.empty(N, max(count, 0), dtype=torch.int64, device=rows.x.device)
    objective, prior = VecchiaObjective(found, rows, near), PriorObjective(found)
    if count < 1 or not objective.parameters:
        return None
    generator = torch.Generator().manual_seed(run.seed)
    pool = torch.randperm(N, generator=generator).to(rows.x.device)[: h.vecchia_pool]
    batches = _draw_batches(pool, steps or h.vecchia_steps, h.vecchia_batch, generator)  # [steps, B]
    steps, drawn, begin = len(batches), batches.unique(), run.budget.seconds
    total, largest = weight_of(rows).sum().item(), h.largest_outputscale * variance_of_y(rows)
    apart = rows.cluster if rows.time is None else None  # rows of a stretch may have each other as neighbors
    at_search = _inverse_lengthscales(found, rows)

    def have_moved() -> bool:
        change = (_inverse_lengthscales(found, rows) / at_search).log().abs()
        return not bool((change <= math.log(h.far_lengthscale)).all())

    def negative_density(step: int) -> float:
        """Of a batch of rows, each given its nearest others of all rows."""
        limit_outputscale(found, largest)
        if step == 0 or (step == steps // 2 and have_moved()):
            others = RowIndex(found.kernel, rows.x, apart).others(drawn, count)
            near[drawn] = without_copies(rows, others, drawn)
        if step == steps // 2 and rows.noise_variance is None:
            # With a constant noise, the few noisiest rows would dominate the kernel.
            some = drawn[torch.randperm(len(drawn), generator=generator)[: h.noise_rows_to_choose]]
            noise = relative_noise(found, residuals_given(near[some], found, rows, some), rows.x, run)
            objective.rows = rows._replace(sample_weight=weight_of(rows) / noise)
        objective.batch = batches[step]
        return objective.value_and_backward(-1.0 / total) + prior.value_and_backward(-1.0 / total)

    state, observe = AdamState(objective.parameters, h.vecchia_learning_rate), Phase(run, PHASE, steps, group=run.group)
    try:
        result = minimize_adam(
            state,
            negative_density,
            max_steps=steps,
            time_used=lambda: run.budget.used_since(begin),
            monitor=observe,
        )
    except DivergenceError:
        return None
    constant = (weight_of(rows) / weight_of(objective.rows)).mean()  # mean noise over its harmonic mean
    multiply_inside(found.likelihood.noise_covar, "noise", constant)
    return (found, result.completed()) if result.num_iter else None


@torch.no_grad()
def limit_outputscale(model: CVGP, largest: float) -> None:
    """Bring the learned outputscales back to a largest prior variance, about which neighbors hardly say anything."""
    kernel = model.kernel
    terms = list(kernel.kernels) if isinstance(kernel, AdditiveKernel) else [kernel]
    learned = [term for term in terms if isinstance(term, ScaleKernel) and term.raw_outputscale.requires_grad]
    total = sum(term.outputscale.item() for term in learned)
    if total > largest > 0.0:
        for term in learned:
            multiply_inside(term, "outputscale", largest / total)


@torch.no_grad()
def _inverse_lengthscales(model: CVGP, rows: Rows[Tensor]) -> Tensor:
    form = stationary_form(model.kernel, rows.x.shape[1])
    return torch.full_like(rows.x[0], torch.nan) if form is None else form.inverse_lengthscale.clone()


def _draw_batches(pool: Tensor, steps: int, size: int, generator: torch.Generator) -> Tensor:
    """Rows of each step [steps, B]: all of a pool are drawn once before a row is drawn again, in whole batches."""
    size = min(size, len(pool))
    per_epoch = len(pool) // size
    epochs = [
        pool[torch.randperm(len(pool), generator=generator)[: per_epoch * size].to(pool.device)].reshape(-1, size)
        for _ in range(-(-steps // per_epoch))
    ]
    return torch.cat(epochs)[:steps]
