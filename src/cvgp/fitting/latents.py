"""Fits with any likelihood: each row acts as a normal observation of f, and the coreset is solved for (§16).

Row i has the precision g_i and the target m_i + a_i / g_i, where a_i and -g_i are the expected first and second
derivatives of log p(y_i | f_i). A step solves for the best coreset of these rows, as for normal noise. Between steps,
L-BFGS learns kernel and pseudo-inputs with fixed sites. Each class has its own latent value; all of them share one
kernel and one set of pseudo-inputs.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.rows import Array, Rows
from cvgp.data.source import MemorySource
from cvgp.fitting.checkpoint import LBFGS_FILE, Checkpoint
from cvgp.fitting.compare import Scores, compare, members, weight_of
from cvgp.fitting.monitor import Phase, Run, evaluation_seconds
from cvgp.fitting.privacy import apart
from cvgp.gp.bounds import Statistics, gather_whitened
from cvgp.gp.bounds.elbo import marginals
from cvgp.gp.kernels import (
    cross_matrix,
    diagonal,
    gaussian_likelihood,
    kernel_matrices,
    multiply_inside,
    release,
)
from cvgp.gp.likelihoods import Classes, Expected, Likelihood
from cvgp.gp.linalg import backward_from, inverse_from_factor, inverse_lower, plus_identity, safe_cholesky
from cvgp.gp.model import CVGP
from cvgp.gp.posterior import Factor, factorize, kl_divergence, leave_one_out, mean, variance
from cvgp.gp.sites import SMALLEST_WEIGHT, best_weights
from cvgp.objectives import CHUNK_ROWS, PriorObjective, searched_parameters, summed_backward
from cvgp.optim import Progress, Result, Status, minimize_lbfgs, read_vector, write_vector
from cvgp.parallel.group import Group, sum_of
from cvgp.runtime import threads_for

PHASE, LAST_PHASE = "sites", "sites of all rows"
NO_NOISE = 1e-10  # the model's own constant, since each row has a noise variance of its own
NOISE_FLOOR = 1e-12
SHORTEST_STEP = 1.0 / 64.0
FIRST_STEPS, NEXT_STEPS = 20, 2  # of the sites, at the start and after each round
FIRST_PARAMETERS = 2  # times that a likelihood's parameters and the sites are learned in turn at the start
LONGEST_STEP = 1.0  # of a constant
EVALUATIONS = 8  # of the bound, in a round
MOST_ROUNDS = 40
SCALE_FACTOR, SCALE_STEPS = 4.0, 6  # of the variance of f, and of the sites after each change of it
TOLERANCE = 1e-4  # nats per row: rounds end when they gain less
SITE_TOLERANCE = 1e-6
LEAST_PRECISION, SMALLEST_SHARE = 1e-6, 1e-3  # of a site at the start, in precision and as a share
MOST_KEPT = 20_000_000  # numbers of K_cx that are kept between passes


class Latents(NamedTuple):
    """One model for each latent value, with a common kernel and common pseudo-inputs; constants are added to them."""

    models: tuple[CVGP, ...]  # L
    constant: Tensor  # [L]
    likelihood: Likelihood

    @classmethod
    def begin(cls, model: CVGP, constant: Tensor, likelihood: Likelihood) -> "Latents":
        """Latent values with the kernel and the pseudo-inputs of a model."""
        points = model.X_c.detach()
        start = Coreset(points, torch.zeros(len(points), dtype=torch.float64), torch.ones(len(points)))
        models: list[CVGP] = []
        for _ in range(likelihood.num_latents):
            noiseless = gaussian_likelihood(NO_NOISE, NOISE_FLOOR)
            noiseless.raw_noise.requires_grad_(False)
            own = CVGP(start, model.kernel, mean=model.mean, likelihood=noiseless).to(points.device)
            if models:
                own.X_c = models[0].X_c
            models.append(own)
        return cls(tuple(models), constant, likelihood)

    @property
    def first(self) -> CVGP:
        """The model that holds what all of them share."""
        return self.models[0]

    def offset(self, rows: Rows[Tensor]) -> Tensor:
        """What is added to the latent values of rows [n, L]: the constants, and the logarithms of exposures."""
        return self.constant if rows.exposure is None else self.constant + rows.exposure.log()[:, None]

    @property
    def state(self) -> Array:
        """Kernel, pseudo-inputs, constants and the parameters of a likelihood that are learned, as one vector."""
        own = [getattr(self.likelihood, name) for name in self.likelihood.parameters]
        return np.concatenate([read_vector(searched_parameters(self.first)), self.constant.cpu().numpy(), own])

    def with_state(self, state: Array) -> "Latents":
        """Latent values with this state; kernel and pseudo-inputs are changed in place."""
        names, likelihood = self.likelihood.parameters, self.likelihood
        end = len(state) - len(names)
        point, constant, own = np.split(state, [end - len(self.models), end])
        with torch.no_grad():
            write_vector(searched_parameters(self.first), point)
        if names:
            likelihood = replace(likelihood, **dict(zip(names, own.tolist(), strict=True)))
        return self._replace(constant=self.constant.new_tensor(constant), likelihood=likelihood)

    def copied(self) -> "Latents":
        """A copy that can be trained by itself."""
        return self._replace(models=deepcopy(self.models))


class Stream(NamedTuple):
    """Rows of this process that are read in blocks, as often as they are asked for."""

    blocks: Callable[[], Iterable[Rows[Tensor]]]
    group: Group

    def chunks(self, size: int) -> Iterator[Rows[Tensor]]:
        """The rows, at most `size` at a time."""
        for rows in self.blocks():
            yield from MemorySource(*rows).chunks(size)


Source = MemorySource | Stream  # each process of a group has its own part


class SitesObjective:
    """E_q log p(y) minus the KL, plus the priors, as a function of kernel and pseudo-inputs with fixed sites."""

    def __init__(self, latents: Latents, rows: MemorySource) -> None:
        self.latents, self.group = latents, rows.group
        self.rows = Rows[Tensor].join(list(rows.chunks(CHUNK_ROWS)))
        self.parameters = searched_parameters(latents.first)
        self._prior = PriorObjective(latents.first)

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the sum; `scale` times its gradient is added to `grad` of the parameters."""
        with threads_for(float(len(self.latents.first.X_c)) ** 2 * len(self.rows.x)):
            return summed_backward(self.group, self.parameters, self._backward, scale)

    def _backward(self) -> Tensor:
        models, likelihood, rows = self.latents.models, self.latents.likelihood, self.rows
        matrices = kernel_matrices(models[0].kernel, models[0].X_c, rows.x)
        y_c = torch.stack([model.y_c.detach() for model in models])  # [L, M]
        log_w = torch.stack([model.site_precision.detach().log() for model in models])  # [L, M]
        f = marginals(*matrices, y_c, log_w)
        at = f.mean.detach().mT + self.latents.offset(rows), f.variance.detach().mT.clamp_min(0.0)
        expected, weight = likelihood.expected(rows.y, *at), weight_of(rows)
        is_first = float(self.group.rank == 0)  # what is not a sum over rows is counted by one process
        value = (weight * expected.value).sum() - is_first * f.kl.detach().sum()
        slopes = [(weight[:, None] * part).mT for part in (expected.slope, -0.5 * expected.curvature)]
        backward_from([f.mean, f.variance, f.kl], [*slopes, torch.full_like(f.kl, -is_first)])
        return value + is_first * self._prior.value_and_backward(is_first)


class _Matrices:
    """Covariances of rows and pseudo-inputs, by chunks; small ones are kept in memory between passes."""

    def __init__(self, model: CVGP, source: Source) -> None:
        self.model, self.source = model, source
        self.K_cc = model.jittered_covariance()
        self.L_K = safe_cholesky(self.K_cc, "K_cc")
        self.L_inv = inverse_lower(self.L_K)
        self.jitter = (self.K_cc.diagonal() - diagonal(model.kernel, model.X_c)).mean().clamp_min(0.0).item()
        is_small = isinstance(source, MemorySource) and source.local_rows * len(model.X_c) <= MOST_KEPT
        self._kept = list(self._made()) if is_small else None

    def _made(self) -> Iterator[tuple[Rows[Tensor], Tensor, Tensor]]:
        for rows in self.source.chunks(CHUNK_ROWS):
            yield rows, cross_matrix(self.model.kernel, self.model.X_c, rows.x), diagonal(self.model.kernel, rows.x)

    def chunks(self) -> Iterator[tuple[Rows[Tensor], Tensor, Tensor]]:
        """Rows, K_cx [M, n] and k_xx [n]."""
        return self._made() if self._kept is None else iter(self._kept)

    def of(self, old: "OldSites") -> tuple["OldSites", Tensor, Tensor]:
        """The same for old sites."""
        return old, cross_matrix(self.model.kernel, self.model.X_c, old.x), diagonal(self.model.kernel, old.x)

    def factors(self, points: "_Points") -> list[Factor]:
        """The posterior of each latent value."""
        return [factorize(self.K_cc, w, self.K_cc @ alpha + alpha / w) for alpha, w in zip(*points, strict=True)]


def _marginals(factors: Sequence[Factor], K_cx: Tensor, k_xx: Tensor, num_latents: int) -> tuple[Tensor, Tensor]:
    """Means and variances [n, L] of the latent values of rows without their constants; of the prior without factors."""
    if not factors:
        return k_xx.new_zeros(len(k_xx), num_latents), k_xx[:, None].expand(-1, num_latents)
    means = [mean(factor, K_cx) for factor in factors]
    return torch.stack(means, 1), torch.stack([variance(factor, K_cx, k_xx) for factor in factors], 1)


class _Points(NamedTuple):
    """The sites of each latent value, for the jittered K_cc."""

    alpha: Tensor  # [L, M], (K + 1/w)^-1 y_c
    w: Tensor  # [L, M]

    def toward(self, other: "_Points", share: float) -> "_Points":
        """A part of the way to other sites."""
        return _Points(*(here + share * (there - here) for here, there in zip(self, other, strict=True)))


class Solved(NamedTuple):
    """The bound at some sites, and sums over the rows as normal observations of each latent value."""

    value: float
    weight: float  # of all rows
    precision: Tensor  # [L], the mean over rows
    sums: list[Statistics]  # of targets minus the constants
    ended: Status | None = None  # what has ended the passes over the rows too early


class OldSites(NamedTuple):
    """The sites of latent values that stand for rows seen before."""

    x: Tensor  # [M, D]
    y: Tensor  # [M, L], without the constants
    precision: Tensor  # [M, L]

    @classmethod
    def of(cls, latents: Latents) -> "OldSites":
        """The present sites."""
        y = torch.stack([model.y_c.detach() for model in latents.models], 1)
        precision = torch.stack([model.site_precision.detach() for model in latents.models], 1)
        return cls(latents.first.X_c.detach().clone(), y, precision)

    def expected(self, f_mean: Tensor, f_var: Tensor) -> Expected:
        """That of normal observations of each latent value, without their normalizers."""
        error = self.y - f_mean
        value = -0.5 * (self.precision * (error.square() + f_var)).sum(1)
        return Expected(value, self.precision * error, self.precision)


@torch.no_grad()
def solve_sites(
    latents: Latents,
    rows: Source,
    *,
    steps: int,
    tol: float = SITE_TOLERANCE,
    fresh: bool = False,
    begin: Solved | None = None,
    old: OldSites | None = None,
    watch: Phase | None = None,
) -> Solved:
    """Find the sites at the present kernel and pseudo-inputs, in place, by steps that never lower the bound.

    A fresh search starts from the prior; others start from the present sites, or from the sums of fewer rows. Old sites
    stand for rows beside the given ones. A `watch` may end the passes after the first one.
    """
    models, likelihood = latents.models, latents.likelihood
    with threads_for(float(len(models[0].X_c)) ** 2 * CHUNK_ROWS):
        matrices = _Matrices(models[0], rows)
        zero = matrices.K_cc.new_zeros(())
        no_sums = [Statistics.zeros(len(matrices.K_cc), 1, zero.device)] * len(models)

        def evaluate(points: _Points | None) -> Solved:
            """The bound, and the sums that the next step needs, from one pass."""
            factors = [] if points is None else matrices.factors(points)

            def local() -> list[Tensor]:
                value, weight, precision, sums = zero, zero, zero.expand(len(models)), no_sums
                every: Iterator[tuple[Rows[Tensor] | OldSites, Tensor, Tensor]]
                every = chain(matrices.chunks(), [] if old is None else [matrices.of(old)])
                for part, K_cx, k_xx in every:
                    f_mean, f_var = _marginals(factors, K_cx, k_xx, len(models))
                    if isinstance(part, OldSites):
                        expected, own = part.expected(f_mean, f_var), torch.ones_like(k_xx)
                    else:
                        expected = likelihood.expected(part.y, f_mean + latents.offset(part), f_var)
                        own = weight_of(part)
                        weight = weight + own.sum()
                    g, target = normal_rows(expected, f_mean)
                    rho, psi = own[:, None] * g, matrices.L_inv @ K_cx
                    value, precision = value + own @ expected.value, precision + rho.sum(0)
                    columns = zip(target.mT, rho.mT, strict=True)
                    gathered = [gather_whitened(psi, k_xx, t[:, None], r, zero) for t, r in columns]
                    sums = [before.merge(more) for before, more in zip(sums, gathered, strict=True)]
                return [value, weight, precision, *chain(*sums)]

            like = [zero, zero, zero.expand(len(models)), *chain(*no_sums)]
            value, weight, precision, *found = sum_of(rows.group, local, like)
            size = len(Statistics._fields)
            sums = [Statistics(*found[place * size : (place + 1) * size]) for place in range(len(models))]
            kl = sum(kl_divergence(factor).item() for factor in factors)
            return Solved(value.item() - kl, weight.item(), precision / weight, sums)

        def full_step(here: Solved, points: _Points | None) -> _Points:
            found = []
            for place in range(len(models)):
                sums = here.sums[place]
                usual = max(sums.Phi.trace().item() / len(sums.b), LEAST_PRECISION)
                start = torch.full_like(sums.b[:, 0], usual) if points is None else points.w[place]
                # Rows change with the sites, so one step of the weights is enough.
                w = best_weights(matrices.L_K, sums.Phi, start, SMALLEST_WEIGHT * start.max(), most_steps=1).w
                C_inv_b = torch.cholesky_solve(sums.b, safe_cholesky(plus_identity(sums.Phi), "C = I + Phi"))
                found.append((matrices.L_inv.mT @ C_inv_b[:, 0], w))
            return _Points(*(torch.stack(values) for values in zip(*found, strict=True)))

        points = None if fresh else _present(models, matrices) if begin is None else full_step(begin, None)
        here = evaluate(points)
        for number in range(steps):
            there, share = full_step(here, points), 1.0
            if watch is not None and points is not None:
                ended = watch(Progress(number + 1, -here.value / here.weight, math.nan))
                if ended is not None:
                    here = here._replace(ended=ended)
                    if number == 0 and begin is not None:
                        points = there  # the sums of all rows are worth more than a bound that has been checked
                    break
            start = points or _Points(torch.zeros_like(there.alpha), SMALLEST_SHARE * there.w)
            new = evaluate(there)
            while new.value < here.value and share > SHORTEST_STEP:
                share *= 0.5
                new = evaluate(start.toward(there, share))
            gain = new.value - here.value
            if gain <= 0.0 and points is not None:
                break  # no step gains anything
            here, points = new, start.toward(there, share)
            if gain < tol * here.weight:
                break
        assert points is not None, "at least one step was made"
        for model, alpha, w in zip(models, *points, strict=True):
            model.set_sites(matrices.K_cc @ alpha + alpha / w, w, jitter=matrices.jitter)
    return here


def normal_rows(expected: Expected, f_mean: Tensor) -> tuple[Tensor, Tensor]:
    """Precisions and targets [n, L], minus the constants, of the normal observations that rows act as."""
    return expected.curvature, f_mean + expected.slope / expected.curvature


def _present(models: Sequence[CVGP], matrices: _Matrices) -> _Points:
    """The sites of models, which have absorbed the jitter."""
    found = []
    for model in models:
        w = model.site_precision / (1.0 - matrices.jitter * model.site_precision).clamp_min(SMALLEST_SHARE)
        found.append((factorize(matrices.K_cc, w, model.y_c.detach()).alpha, w))
    return _Points(*(torch.stack(values) for values in zip(*found, strict=True)))


def multiply_variance(model: CVGP, factor: float) -> None:
    """Multiply the prior variance of f, as far as it is learned, and of each term of a sum alike."""
    for part in model.kernel.modules():
        for name in ("outputscale", "variance"):
            raw = getattr(part, f"raw_{name}", None)
            if raw is not None and raw.requires_grad:
                multiply_inside(part, name, factor)


@torch.no_grad()
def _with_best_scale(latents: Latents, rows: Source, found: Solved, run: Run) -> tuple[Latents, Solved]:
    """Multiply the variance of f while that raises the bound: with several classes, rounds end before it is found."""
    for factor in (SCALE_FACTOR, 1.0 / SCALE_FACTOR):
        before = latents
        while run.has_time:
            other, new = widened(latents, rows, factor)
            if new.value - found.value < SITE_TOLERANCE * found.weight:
                break
            latents, found = other, new
        if latents is not before:
            break
    return latents, found


def widened(latents: Latents, rows: Source, factor: float, watch: Phase | None = None) -> tuple[Latents, Solved]:
    """A copy whose f has a larger prior variance, and the bound there."""
    other = latents.copied()
    multiply_variance(other.first, factor)
    return other, solve_sites(other, rows, steps=SCALE_STEPS, watch=watch)


class LatentFit(NamedTuple):
    """Trained latent values, the bound in nats, and how the search ended."""

    latents: Latents
    bound: float
    result: Result
    total_weight: float
    rows: Rows[Tensor]  # from which kernel and pseudo-inputs were learned
    left_out: Scores  # of each of them without itself, or without its cluster
    is_partial: bool  # whether there was no time to solve for the sites with all rows, of which these are some


def _leaving_time_for(final: Source, latents: Latents, run: Run) -> Run:
    """The fit while it learns from some rows: with a time limit, it ends early enough to solve for the sites of all."""
    budget, h, seconds = run.budget, run.heuristics, math.inf
    if budget.max_time is None:
        return run
    if isinstance(final, MemorySource):  # others are too large to be loaded
        size, dims = latents.first.X_c.shape
        one = evaluation_seconds(final.num_rows, size, dims, h)
        seconds = budget.clock.pace * len(latents.models) * one
    return run._replace(budget=budget.reserving(min(seconds, h.largest_closing_share * budget.left)))


@torch.enable_grad()
def fit_latents(
    latents: Latents,
    rows: Rows[Tensor],
    run: Run,
    *,
    most_rows: int,
    tol: float = TOLERANCE,
    widen: float | None = None,
    every: Source | None = None,
    checkpoint: Checkpoint | None = None,
    keep_apart: Tensor | None = None,  # the standard deviations [D] of columns, if no point may be a row
) -> LatentFit:
    """Learn kernel and pseudo-inputs in turn with the sites, from up to `most_rows` rows; then solve for all.

    At the end, the prior variance of f is multiplied by `widen`, or by as much as makes rows of classes that are left
    out clearly likelier: the bound, which is loosest for clear classes, prefers too small a variance.

    All rows are `every`, if there are more. Each process of a group is given the same rows, and works on its part.
    A time limit also ends the passes over all rows, after the first one.
    """
    whole = MemorySource(*rows, group=run.group)
    learning = whole.whole_clusters(most_rows, run.rng("latents"))
    some = MemorySource(*learning, group=run.group)
    resumed: dict[str, Any] = {"state": latents.state, "rounds": 0, "evaluations": 0, "ended": False}
    stored = None if checkpoint is None else checkpoint.load(LBFGS_FILE, resumed)
    if stored is not None:
        resumed, latents = stored, latents.with_state(stored["state"])
    found = solve_sites(latents, some, steps=FIRST_STEPS, fresh=True, tol=1e-3)
    if stored is None:
        for _ in range(FIRST_PARAMETERS if latents.likelihood.parameters else 0):
            # Before the kernel, which would else take what is signal for the noise of a likelihood that is too wide.
            latents = with_learned_parameters(latents, learning, run.group)
            found = solve_sites(latents, some, steps=NEXT_STEPS)
        latents, found = _with_best_scale(latents, some, found, run)
    final = some if every is None and len(learning.x) == len(rows.x) else every or whole
    monitor = Phase(_leaving_time_for(final, latents, run), PHASE, MOST_ROUNDS, group=run.group)
    value, total = found.value, found.weight
    status, evaluations = Status.CONVERGED if resumed["ended"] else Status.ITERATION_LIMIT, resumed["evaluations"]
    for number in range(MOST_ROUNDS if resumed["ended"] else resumed["rounds"], MOST_ROUNDS):
        objective = SitesObjective(latents, some)
        learned = minimize_lbfgs(
            objective.parameters,
            lambda objective=objective: objective.value_and_backward(-1.0 / total),  # type: ignore[misc]
            max_evaluations=EVALUATIONS,
            tol=0.0,
        )
        evaluations += learned.num_iter
        latents = with_learned_parameters(latents, learning, run.group)
        found = solve_sites(latents, some, steps=NEXT_STEPS)
        ended = monitor(Progress(number + 1, -found.value / total, math.nan))
        gain, value = found.value - value, found.value
        if ended is None and gain < tol * total:
            ended = Status.CONVERGED
        if checkpoint is not None:
            done = {"rounds": number + 1, "evaluations": evaluations, "ended": ended is Status.CONVERGED}
            checkpoint.save(LBFGS_FILE, {"state": latents.state, **done}, now=ended is not None)
        if ended is not None:
            status = ended
            break
    release(latents.first.kernel, latents.first.likelihood)
    if keep_apart is not None:
        with torch.no_grad():
            points = latents.first.X_c
            points.copy_(apart(points, keep_apart, lambda: (part.x for part in final.chunks(CHUNK_ROWS)), run))
        found = solve_sites(latents, some, steps=NEXT_STEPS)

    def watch() -> Phase | None:
        return None if run.budget.max_time is None else Phase(run, LAST_PHASE, FIRST_STEPS, group=run.group)

    begin = None if final is some else found
    found = solve_sites(latents, final, steps=FIRST_STEPS, begin=begin, watch=watch())
    if widen not in (None, 1.0):
        latents, found = widened(latents, final, widen, watch())
    left_out = left_out_scores(latents, learning, found)
    while widen is None and found.ended is None and run.has_time and isinstance(latents.likelihood, Classes):
        other, new = widened(latents, final, SCALE_FACTOR, watch())
        scores = left_out_scores(other, learning, new)
        if not run.agreed(compare(scores, left_out).is_clear):
            break
        latents, found, left_out = other, new, scores
    for place, model in enumerate(latents.models):
        # A weight of one stands for a row.
        model.set_site_noise_offset(1.0 / found.precision[place].item() - NO_NOISE)
    result = Result(found.ended or status, -found.value / found.weight, evaluations)
    is_partial = found.ended is not None and final is not some
    return LatentFit(latents, found.value, result, found.weight, learning, left_out, is_partial)


@torch.no_grad()
def _present_marginals(latents: Latents, matrices: _Matrices) -> tuple[Tensor, Tensor]:
    """Means and variances [n, L] at the present sites."""
    factors = matrices.factors(_present(latents.models, matrices))
    parts = [_marginals(factors, K_cx, k_xx, len(factors)) for _, K_cx, k_xx in matrices.chunks()]
    f_mean, f_var = (torch.cat(values) for values in zip(*parts, strict=True))
    return f_mean, f_var


@torch.no_grad()
def with_learned_parameters(latents: Latents, rows: Rows[Tensor], group: Group) -> Latents:
    """The same latent values with a likelier likelihood and, of numbers, a likelier constant, by a Newton step.

    The constants of classes stay those of their frequencies, to which predictions far from the data return. All
    processes go on as the first one does.
    """
    likelihood, constant, weight = latents.likelihood, latents.constant, weight_of(rows)
    if not isinstance(likelihood, Classes):
        f_mean, f_var = _present_marginals(latents, _Matrices(latents.first, MemorySource(*rows)))
        f_mean = f_mean + latents.offset(rows)
        expected = likelihood.expected(rows.y, f_mean, f_var)
        step = (weight @ expected.slope) / (weight @ expected.curvature)  # [L]
        constant = constant + step.clamp(-LONGEST_STEP, LONGEST_STEP)
        likelihood = likelihood.learned(rows.y, f_mean, f_var, weight)
    learned = latents._replace(likelihood=likelihood, constant=constant)
    (state,) = group.first([torch.as_tensor(learned.state)])
    return learned.with_state(state.numpy())


@torch.no_grad()
def left_out_scores(latents: Latents, rows: Rows[Tensor], found: Solved) -> Scores:
    """The density of each row under the posterior of all others, if their sites stay as they are (§16).

    The sums may be those of more rows. Clusters are left out as a whole, and count equally.
    """
    matrices, means, variances = _Matrices(latents.first, MemorySource(*rows)), [], []
    once = weight_of(rows).clamp_max(1.0)  # of the copies of a row, one is left out
    offset, clusters = latents.offset(rows), members(rows)
    f_mean, f_var = _present_marginals(latents, matrices)
    g, target = normal_rows(latents.likelihood.expected(rows.y, f_mean + offset, f_var), f_mean)
    psi = torch.cat([matrices.L_inv @ K_cx for _, K_cx, _ in matrices.chunks()], 1)  # [M, n]
    k_xx = torch.cat([part for *_, part in matrices.chunks()])
    for place, sums in enumerate(found.sums):
        C_inv = inverse_from_factor(safe_cholesky(plus_identity(sums.Phi), "C = I + Phi"))
        one = target[:, [place]], once * g[:, place]
        left_out = leave_one_out(psi, k_xx, *one, C_inv, C_inv @ sums.b, clusters)
        means.append(target[:, place] - left_out.residual[:, 0])
        variances.append(left_out.variance)
    f_mean, f_var = torch.stack(means, 1) + offset, torch.stack(variances, 1)
    density = latents.likelihood.log_predictive(rows.y, f_mean, f_var)
    return Scores.of(rows, density)
