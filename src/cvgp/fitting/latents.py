"""Fits with any likelihood: each row acts as a normal observation of f, and the coreset is solved for (§16).

Row i has the precision g_i and the target m_i + a_i / g_i, where a_i and -g_i are the expected first and second
derivatives of log p(y_i | f_i). A step solves for the best coreset of these rows, as for normal noise. Between steps,
L-BFGS learns kernel and pseudo-inputs with fixed sites. Each class has its own latent value; all of them share one
kernel and one set of pseudo-inputs.
"""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.fitting.compare import Scores, weight_of
from cvgp.fitting.monitor import Phase, Run
from cvgp.gp.bounds import Statistics, gather_whitened, whitener
from cvgp.gp.bounds.elbo import marginals
from cvgp.gp.kernels import (
    cross_matrix,
    diagonal,
    gaussian_likelihood,
    kernel_matrices,
    multiply_inside,
    release,
)
from cvgp.gp.likelihoods import Expected, Likelihood, WithQuantiles
from cvgp.gp.linalg import inverse_from_factor, plus_identity, safe_cholesky
from cvgp.gp.model import CVGP
from cvgp.gp.posterior import factorize, kl_divergence, leave_one_out, mean, variance
from cvgp.gp.sites import best_coreset
from cvgp.objectives import CHUNK_ROWS, PriorObjective, searched_parameters
from cvgp.optim import Progress, Result, Status, minimize_lbfgs
from cvgp.runtime import threads_for

PHASE = "sites"
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
SMALLEST_WEIGHT, SMALLEST_SHARE = 1e-6, 1e-3  # of a site at the start, in precision and as a share
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

    def copied(self) -> "Latents":
        """A copy that can be trained by itself."""
        return self._replace(models=deepcopy(self.models))


class SitesObjective:
    """E_q log p(y) minus the KL, plus the priors, as a function of kernel and pseudo-inputs with fixed sites."""

    def __init__(self, latents: Latents, rows: Rows[Tensor]) -> None:
        self.latents, self.rows = latents, rows
        self.parameters = searched_parameters(latents.first)
        self._prior = PriorObjective(latents.first)

    def value_and_backward(self, scale: float = 1.0) -> float:
        """`scale` times the sum; `scale` times its gradient is added to `grad` of the parameters."""
        models, likelihood, rows = self.latents.models, self.latents.likelihood, self.rows
        with threads_for(float(len(models[0].X_c)) ** 2 * len(rows.x)):
            matrices = kernel_matrices(models[0].kernel, models[0].X_c, rows.x)
            y_c = torch.stack([model.y_c.detach() for model in models])  # [L, M]
            log_w = torch.stack([model.site_precision.detach().log() for model in models])  # [L, M]
            f = marginals(*matrices, y_c, log_w)
            at = f.mean.detach().mT + self.latents.offset(rows), f.variance.detach().mT.clamp_min(0.0)
            expected = likelihood.expected(rows.y, *at)
            weight = weight_of(rows)
            value = (weight * expected.value).sum().item() - f.kl.detach().sum().item()
            slopes = ((weight[:, None] * part).mT for part in (expected.slope, -0.5 * expected.curvature))
            d_kl = torch.full_like(f.kl, -scale)
            torch.autograd.backward([f.mean, f.variance, f.kl], [*(scale * slope for slope in slopes), d_kl])
        return scale * value + self._prior.value_and_backward(scale)


class _Matrices:
    """Covariances of rows and pseudo-inputs, by chunks; small ones are kept in memory between passes."""

    def __init__(self, model: CVGP, rows: Rows[Tensor]) -> None:
        self.model, self.rows = model, rows
        self.K_cc = model.jittered_covariance()
        self.L_inv = whitener(self.K_cc)
        self.jitter = (self.K_cc.diagonal() - diagonal(model.kernel, model.X_c)).mean().clamp_min(0.0).item()
        self._kept = list(self._made()) if len(rows.x) * len(model.X_c) <= MOST_KEPT else None

    def _made(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        for start in range(0, len(self.rows.x), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            x = self.rows.x[part]
            yield part, cross_matrix(self.model.kernel, self.model.X_c, x), diagonal(self.model.kernel, x)

    def chunks(self) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Which rows, K_cx [M, n] and k_xx [n]."""
        return iter(self._kept) if self._kept is not None else self._made()

    def marginals(self, points: "_Points") -> tuple[Tensor, Tensor, float]:
        """Means and variances [n, L] of the latent values without their constants, and the KL of all."""
        factors = [factorize(self.K_cc, w, self.K_cc @ alpha + alpha / w) for alpha, w in zip(*points, strict=True)]
        means, variances = [], []
        for _, K_cx, k_xx in self.chunks():
            means.append(torch.stack([mean(factor, K_cx) for factor in factors], 1))
            variances.append(torch.stack([variance(factor, K_cx, k_xx) for factor in factors], 1))
        return torch.cat(means), torch.cat(variances), sum(kl_divergence(factor).item() for factor in factors)

    def prior(self, num_latents: int) -> tuple[Tensor, Tensor, float]:
        """The same for the prior."""
        k_xx = torch.cat([diagonal for *_, diagonal in self.chunks()])
        variances = k_xx[:, None].expand(-1, num_latents)
        return torch.zeros_like(variances), variances, 0.0

    def statistics(self, found: "Solved", place: int) -> Statistics:
        """Sums over rows as normal observations of one latent value."""
        total = Statistics.zeros(len(self.K_cc), 1, self.rows.x.device)
        precision, target = found.normal_rows(place)
        precision = weight_of(self.rows) * precision
        nothing = torch.zeros((), dtype=torch.float64, device=self.rows.x.device)
        for part, K_cx, k_xx in self.chunks():
            psi = self.L_inv @ K_cx
            total = total.merge(gather_whitened(psi, k_xx, target[part, None], precision[part], nothing))
        return total


class _Points(NamedTuple):
    """The sites of each latent value, for the jittered K_cc."""

    alpha: Tensor  # [L, M], (K + 1/w)^-1 y_c
    w: Tensor  # [L, M]

    def toward(self, other: "_Points", share: float) -> "_Points":
        """A part of the way to other sites."""
        return _Points(*(here + share * (there - here) for here, there in zip(self, other, strict=True)))


class Solved(NamedTuple):
    """The bound at some sites, and the rows there."""

    value: float
    expected: Expected
    mean: Tensor  # [n, L], of f minus the constants
    f_var: Tensor  # [n, L]

    def normal_rows(self, place: int) -> tuple[Tensor, Tensor]:
        """Precisions [n] and targets [n], minus the constant, of the normal observations that rows act as."""
        g = self.expected.curvature[:, place]
        return g, self.mean[:, place] + self.expected.slope[:, place] / g


@torch.no_grad()
def solve_sites(
    latents: Latents, rows: Rows[Tensor], *, steps: int, tol: float = SITE_TOLERANCE, fresh: bool = False
) -> Solved:
    """Find the sites at the present kernel and pseudo-inputs, in place, by steps that never lower the bound.

    A fresh search starts from the prior; others start from the present sites.
    """
    models, likelihood = latents.models, latents.likelihood
    weight, offset = weight_of(rows), latents.offset(rows)
    with threads_for(float(len(models[0].X_c)) ** 2 * len(rows.x)):
        matrices = _Matrices(models[0], rows)

        def evaluate(points: _Points | None) -> Solved:
            at = matrices.prior(len(models)) if points is None else matrices.marginals(points)
            expected = likelihood.expected(rows.y, at[0] + offset, at[1])
            return Solved((weight * expected.value).sum().item() - at[2], expected, *at[:2])

        def full_step(here: Solved, points: _Points | None) -> _Points:
            found = []
            for place in range(len(models)):
                sums = matrices.statistics(here, place)
                usual = max(sums.Phi.trace().item() / len(sums.b), SMALLEST_WEIGHT)
                start = torch.full_like(sums.b[:, 0], usual) if points is None else points.w[place]
                best = best_coreset(matrices.K_cc, sums, start)
                found.append((_alpha(matrices.K_cc, best.y_c[:, 0], best.w), best.w))
            return _Points(*(torch.stack(values) for values in zip(*found, strict=True)))

        points = None if fresh else _present(models, matrices)
        here = evaluate(points)
        for _ in range(steps):
            there, share = full_step(here, points), 1.0
            start = points or _Points(torch.zeros_like(there.alpha), SMALLEST_SHARE * there.w)
            new = evaluate(there)
            while new.value < here.value and share > SHORTEST_STEP:
                share *= 0.5
                new = evaluate(start.toward(there, share))
            gain = new.value - here.value
            if gain <= 0.0 and points is not None:
                break  # no step gains anything
            here, points = new, start.toward(there, share)
            if gain < tol * weight.sum().item():
                break
        assert points is not None, "at least one step was made"
        for model, alpha, w in zip(models, *points, strict=True):
            model.set_sites(matrices.K_cc @ alpha + alpha / w, w, jitter=matrices.jitter)
    return here


def _present(models: Sequence[CVGP], matrices: _Matrices) -> _Points:
    """The sites of models, which have absorbed the jitter."""
    found = []
    for model in models:
        w = model.site_precision / (1.0 - matrices.jitter * model.site_precision).clamp_min(SMALLEST_SHARE)
        found.append((_alpha(matrices.K_cc, model.y_c.detach(), w), w))
    return _Points(*(torch.stack(values) for values in zip(*found, strict=True)))


def _alpha(K_cc: Tensor, y_c: Tensor, w: Tensor) -> Tensor:
    """(K + 1/w)^-1 y_c."""
    return factorize(K_cc, w, y_c).alpha


def multiply_variance(model: CVGP, factor: float) -> None:
    """Multiply the prior variance of f, as far as it is learned, and of each term of a sum alike."""
    for part in model.kernel.modules():
        for name in ("outputscale", "variance"):
            raw = getattr(part, f"raw_{name}", None)
            if raw is not None and raw.requires_grad:
                multiply_inside(part, name, factor)


@torch.no_grad()
def _with_best_scale(latents: Latents, rows: Rows[Tensor], found: Solved, run: Run) -> tuple[Latents, Solved]:
    """Multiply the variance of f while that raises the bound: with several classes, rounds end before it is found."""
    for factor in (SCALE_FACTOR, 1.0 / SCALE_FACTOR):
        before = latents
        while run.has_time:
            other = latents.copied()
            multiply_variance(other.first, factor)
            new = solve_sites(other, rows, steps=SCALE_STEPS)
            if new.value - found.value < SITE_TOLERANCE * weight_of(rows).sum().item():
                break
            latents, found = other, new
        if latents is not before:
            break
    return latents, found


class LatentFit(NamedTuple):
    """Trained latent values, the bound in nats, how the search ended, and each row's density without itself."""

    latents: Latents
    bound: float
    result: Result
    left_out: Scores


@torch.enable_grad()
def fit_latents(latents: Latents, rows: Rows[Tensor], run: Run, *, most_rows: int, tol: float = TOLERANCE) -> LatentFit:
    """Learn kernel and pseudo-inputs in turn with the sites, from up to `most_rows` rows; then solve for all."""
    some = rows
    if len(rows.x) > most_rows:
        chosen = torch.as_tensor(run.rng("latents").permutation(len(rows.x))[:most_rows])
        some = rows.take(chosen)
    total = weight_of(some).sum().item()
    found = solve_sites(latents, some, steps=FIRST_STEPS, fresh=True, tol=1e-3)
    for _ in range(FIRST_PARAMETERS if isinstance(latents.likelihood, WithQuantiles) else 0):
        # Before the kernel, which would otherwise take what is signal for the noise of a likelihood that is too wide.
        latents = with_learned_parameters(latents, some, found)
        found = solve_sites(latents, some, steps=NEXT_STEPS)
    latents, found = _with_best_scale(latents, some, found, run)
    monitor, value, status, evaluations = Phase(run, PHASE, MOST_ROUNDS), found.value, Status.ITERATION_LIMIT, 0
    for number in range(MOST_ROUNDS):
        objective = SitesObjective(latents, some)
        learned = minimize_lbfgs(
            objective.parameters,
            lambda objective=objective: objective.value_and_backward(-1.0 / total),  # type: ignore[misc]
            max_evaluations=EVALUATIONS,
            tol=0.0,
        )
        evaluations += learned.num_iter
        latents = with_learned_parameters(latents, some, found)
        found = solve_sites(latents, some, steps=NEXT_STEPS)
        ended = monitor(Progress(number + 1, -found.value / total, math.nan))
        gain, value = found.value - value, found.value
        if ended is not None:
            status = ended
            break
        if gain < tol * total:
            status = Status.CONVERGED
            break
    release(latents.first.kernel, latents.first.likelihood)
    found = solve_sites(latents, rows, steps=FIRST_STEPS, fresh=some is not rows)
    for place, model in enumerate(latents.models):
        g, _ = found.normal_rows(place)
        # A weight of one stands for a row.
        model.set_site_noise_offset((1.0 / g.mean()).item() - NO_NOISE)
    result = Result(status, -found.value / weight_of(rows).sum().item(), evaluations)
    return LatentFit(latents, found.value, result, left_out_scores(latents, rows, found))


def with_learned_parameters(latents: Latents, rows: Rows[Tensor], found: Solved) -> Latents:
    """The same latent values with a likelier likelihood and, of numbers, a likelier constant, by a Newton step.

    The constants of classes stay those of their frequencies, to which predictions far from the data return.
    """
    f_mean, weight, constant = found.mean + latents.offset(rows), weight_of(rows), latents.constant
    learned = latents.likelihood.learned(rows.y, f_mean, found.f_var, weight)
    if isinstance(learned, WithQuantiles):
        step = (weight @ found.expected.slope) / (weight @ found.expected.curvature)  # [L]
        constant = constant + step.clamp(-LONGEST_STEP, LONGEST_STEP)
    return latents._replace(likelihood=learned, constant=constant)


@torch.no_grad()
def left_out_scores(latents: Latents, rows: Rows[Tensor], found: Solved) -> Scores:
    """The density of each row under the posterior of all others, if their sites stay as they are (§16)."""
    matrices, means, variances = _Matrices(latents.first, rows), [], []
    once = weight_of(rows).clamp_max(1.0)  # of the copies of a row, one is left out
    for place in range(len(latents.models)):
        sums = matrices.statistics(found, place)
        C_inv = inverse_from_factor(safe_cholesky(plus_identity(sums.Phi), "C = I + Phi"))
        C_inv_b, (precision, target) = C_inv @ sums.b, found.normal_rows(place)
        parts = [
            leave_one_out(matrices.L_inv @ K_cx, k_xx, target[part, None], (once * precision)[part], C_inv, C_inv_b)
            for part, K_cx, k_xx in matrices.chunks()
        ]
        residual, spread = (torch.cat(values) for values in zip(*parts, strict=True))
        means.append(target - residual[:, 0])
        variances.append(spread)
    f_mean = torch.stack(means, 1) + latents.offset(rows)
    density = latents.likelihood.log_predictive(rows.y, f_mean, torch.stack(variances, 1))
    return Scores(density, -density, weight_of(rows), rows.cluster)
