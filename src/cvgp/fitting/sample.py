"""The exact GP of a sample of rows, by which outliers, transforms of y and x, and the kernel are chosen."""

import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import deepcopy
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean, ZeroMean
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import Scaling, bulk_of, learn_scaling
from cvgp.errors import FactorizationError
from cvgp.fitting.compare import Scores, compare, leave_one_out_scores, model_scores
from cvgp.fitting.maximize import maximize_by_lbfgs
from cvgp.fitting.monitor import FitLog, Run, exact_seconds
from cvgp.gp import bounds
from cvgp.gp.kernels import NOISE_FLOOR, gaussian_likelihood, make_kernel, prior_mean
from cvgp.gp.model import CVGP
from cvgp.objectives import ExactObjective
from cvgp.runtime import kept_warnings

CHUNK_ROWS = 4096
DEFAULT_KERNEL = "matern32"


class Start(NamedTuple):
    """Kernel, mean and noise to begin with, and how well they predict rows that they have not seen."""

    kernel: Kernel
    mean: Mean
    noise: float
    scores: Scores | None = None
    evidence: float = -math.inf  # log marginal likelihood of the rows that the start has learned from, in nats
    noise_floor: float = NOISE_FLOOR
    noise_is_known: bool = False
    name: str = ""

    @property
    def density(self) -> float:
        """Mean log density of unseen rows, in nats per row."""
        return -math.inf if self.scores is None else self.scores.density

    def model(self, coreset: Coreset, beta_transform: Literal["log", "softplus"] = "log") -> CVGP:
        """A model that begins here, with copies of kernel and mean; weights are parametrized by `beta_transform`."""
        kernel, mean = deepcopy(self.kernel), deepcopy(self.mean)
        likelihood = gaussian_likelihood(self.noise, self.noise_floor)
        likelihood.raw_noise.requires_grad_(not self.noise_is_known)
        return CVGP(coreset, kernel, mean=mean, likelihood=likelihood, beta_transform=beta_transform)


def learn_exact(
    start: Start, rows: Rows[Tensor], judging: Rows[Tensor] | None, run: Run, phase: str, evaluations: int
) -> Start:
    """What the exact likelihood of some rows learns, and its scores of others; without others, each row left out."""
    h, trial = run.heuristics, start.model(Coreset(rows.x, rows.y, np.ones(len(rows.x))))
    clock = run.budget.clock
    begin, learning = clock.own_seconds(), distinct_rows(rows)
    found = maximize_by_lbfgs(
        ExactObjective(trial, learning), len(rows.x), run, max_evaluations=evaluations, tol=h.start_tol, phase=phase
    )
    expected = max(found.num_iter, 1) * exact_seconds(len(rows.x), rows.x.shape[1], h)
    clock.measure(expected, clock.own_seconds() - begin)
    take_observations(trial, rows)
    evidence = -found.value * len(rows.x) - trial.log_prior().item()
    scores = leave_one_out_scores(trial, rows) if judging is None else model_scores(trial, judging)
    noise = start.noise if start.noise_is_known else max(trial.noise.item(), h.least_start_noise * start.noise_floor)
    return start._replace(kernel=trial.kernel, mean=trial.mean, noise=noise, scores=scores, evidence=evidence)


def best_start(learn: Callable[[Start], Start], starts: Iterable[Start], run: Run) -> Start | None:
    """The start with the best density of unseen rows; after the first, none is tried without time for it."""
    found: list[Start] = []
    for start in starts:
        if found and not run.has_time:
            break
        # A start that cannot be evaluated loses to the others, and its warnings are not the user's concern.
        with kept_warnings(), suppress(FactorizationError, FloatingPointError):
            found.append(learn(start))
    return max(found, key=lambda start: start.density, default=None)


def distinct_rows(rows: Rows[Tensor]) -> Rows[Tensor]:
    """Rows in which copies count once: as separate measurements they would prove that there is no noise."""
    return rows if rows.sample_weight is None else rows._replace(sample_weight=rows.sample_weight.clamp_max(1.0))


@torch.no_grad()
def take_observations(model: CVGP, data: Rows[Tensor]) -> None:
    """Make each observation a site with its own precision: the posterior is then the exact GP's."""
    noise, like = model.total_noise(data.noise_variance), data.y.new_empty(len(data.x))
    precision = bounds.weigh(noise, like, sample_weight=data.sample_weight).precision
    model.set_sites(data.y - prior_mean(model.mean, data.x, data.y), precision)


def two_parts(
    rows: Rows[Any], first: int, second: int, rng: np.random.Generator, *, first_is_later: bool = False
) -> tuple[Rows[Any], Rows[Any]]:
    """Two random parts of some rows, of at most these sizes; they do not share clusters.

    Of rows with a time, those of the second part are all later, or those of the first one.
    """
    order = rng.permutation(len(rows.x))
    is_second = np.arange(len(order)) >= first
    labels, place = np.unique(np.zeros(0) if rows.cluster is None else np.asarray(rows.cluster), return_inverse=True)
    if len(labels) > 1:
        turns = np.arange(len(labels))[:: -1 if first_is_later else 1]
        rank = (rng.permutation(len(labels)) if rows.time is None else turns)[place]  # [n]
        until = np.bincount(rank).cumsum()  # rows of the clusters up to each rank
        cut = int(np.searchsorted(until, first / (first + second) * len(order)))
        is_second = rank[order] > min(cut, len(labels) - 2)
    return rows.take(order[~is_second][:first]), rows.take(order[is_second][:second])


def draw_halves(rows: Rows[Any], size: int, rng: np.random.Generator) -> tuple[Rows[Any], Rows[Any]]:
    """Two parts of a sample, each of at most `size` rows; of rows with a time, the second has the latest quarter."""
    if rows.time is not None:
        early, late = two_parts(rows, 3 * len(rows.x), len(rows.x), rng)
        return early.take(slice(size)), late.take(slice(size))
    half = min(size, (len(rows.x) + 1) // 2)
    return two_parts(rows, half, half, rng)


class SampleGP(NamedTuple):
    """The exact GP that one part of a sample has learned (scaled), and its scores of the other part."""

    start: Start
    scaling: Scaling
    scores: Scores
    learning: Rows[Tensor]

    @torch.no_grad()
    def residuals(self, rows: Rows[Array]) -> tuple[Array, Array]:
        """Errors [n, Q] and variances of f [n, Q] of other rows, in standard deviations of y."""
        model = self.start.model(Coreset(self.learning.x, self.learning.y, np.ones(len(self.learning.x))))
        take_observations(model, self.learning)
        process, means, variances = model.process(), [], []
        for begin in range(0, len(rows.x), CHUNK_ROWS):
            prediction = process(torch.as_tensor(self.scaling.scale_x(rows.x[begin : begin + CHUNK_ROWS])))
            means.append(prediction.mean.reshape(len(prediction.mean), -1).numpy())
            variances.append(prediction.variance.numpy())
        error = self.scaling.scale_y(rows.y) - np.concatenate(means)
        return error, np.broadcast_to(np.concatenate(variances)[:, None], error.shape)


@torch.enable_grad()  # also for a caller that has switched gradients off
def learn_sample(learning: Rows[Array], judging: Rows[Array] | None, run: Run) -> SampleGP | None:
    """Learn an exact GP from one part of a sample, and score the other; None where it cannot be learned."""
    h, bulk = run.heuristics, bulk_of(learning.x, learning.sample_weight)
    scaling = learn_scaling(learning.x, learning.y, learning.sample_weight, bulk)
    kernel = make_kernel(DEFAULT_KERNEL, learning.x.shape[1])
    kernel.base_kernel.lengthscale = torch.full_like(kernel.base_kernel.lengthscale, math.sqrt(learning.x.shape[1]))
    start = Start(kernel, ZeroMean(), h.start_noise)
    try:
        with kept_warnings():
            tensors = scaling.tensors(learning)
            unseen = None if judging is None else scaling.tensors(judging)
            found = learn_exact(start, tensors, unseen, run._replace(log=FitLog()), "sample", h.sample_evaluations)
    except (FactorizationError, FloatingPointError):
        return None
    assert found.scores is not None, "it was judged"
    log_scale = float(np.log(scaling.y_scale).mean())
    scores = found.scores._replace(densities=found.scores.densities - log_scale)
    return SampleGP(found, scaling, scores, tensors)


def weigh_clusters(rows: Rows[Array], correlation: float) -> Rows[Array]:
    """Rows that count by one over the design effect 1 + (n - 1) rho of a cluster of n rows (Kish, 1965)."""
    if correlation == 0.0:
        return rows
    _, place, sizes = np.unique(np.asarray(rows.cluster), return_inverse=True, return_counts=True)
    share = np.asarray(1.0 / (1.0 + (sizes - 1.0) * correlation), dtype=np.float64)[place]
    return rows._replace(sample_weight=share if rows.sample_weight is None else share * rows.sample_weight)


def learn_correlation(rows: Rows[Array], run: Run) -> float:
    """The correlation rho within clusters of what rows of other clusters do not explain, if it helps; otherwise 0.

    Where the inputs tell clusters apart, kernel and noise would otherwise be learned as if each of them were known.
    Where they do not, or f is what rows of a cluster have in common, all rows count once, under which new clusters are
    then more likely.
    """
    halves = draw_halves(rows, run.rows(run.heuristics.sample_rows), run.rng("clusters"))
    swapped = halves[::-1]
    plain = [learn_sample(learning, judging, run) for learning, judging in zip(halves, swapped, strict=True)]
    errors = [gp.residuals(judging)[0] for gp, judging in zip(plain, swapped, strict=True) if gp is not None]
    if len(errors) < len(halves):
        return 0.0
    rho = _correlation_within(np.concatenate(errors)[:, 0], np.concatenate([half.cluster for half in swapped]))
    fewer = [learn_sample(weigh_clusters(a, rho), b, run) for a, b in zip(halves, swapped, strict=True)]
    gains = [compare(a.scores, b.scores).gain for a, b in zip(fewer, plain, strict=True) if a and b]
    is_better = len(gains) == len(halves) and sum(gains) > 0.0
    run.note("groups", f"correlation of {rho:.2f} within groups, which {'counts' if is_better else 'does not count'}")
    return run.agreed(rho if is_better else 0.0)


def _correlation_within(error: Array, cluster: Array) -> float:
    """The correlation of errors [n] of rows of the same cluster."""
    _, place = np.unique(cluster, return_inverse=True)
    sums, squares, sizes = (np.bincount(place, weights=part) for part in (error, error**2, np.ones_like(error)))
    pairs = (sizes * (sizes - 1.0)).sum()
    return float(np.clip((sums**2 - squares).sum() / pairs / (error**2).mean(), 0.0, 1.0)) if pairs else 0.0
