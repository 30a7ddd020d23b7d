"""A noise map: the noise, as a function of features of x, under which residuals of unseen rows are most likely.

A row did not help to make its residual. The weights of the features have a normal prior.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgp.fitting.compare import Residuals, Scores, compare, folds_of
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.monitor import Run
from cvgp.fitting.size import initial_coreset
from cvgp.gp.kernels import diagonal
from cvgp.gp.model import CVGP
from cvgp.gp.noise import Features, Tails, believed_share, heavy, learn_tails, log_density, normal
from cvgp.optim import minimize_lbfgs

TailsName = Literal["normal", "learned"]
EVALUATIONS, TOL, TOL_TO_COMPARE = 40, 1e-4, 1e-3  # noise maps that are only compared need fewer digits
FOLDS = 2
SMALLEST_NOISE = 0.1  # of the median: a row that counts far more would determine its own prediction
WIDEST = 12.0  # how far the logarithm of the noise may go from its level in a search


class NoiseRecipe(NamedTuple):
    """How the noise is learned: the tails, whether the variance of f is discounted, and rounds of re-weighting."""

    tails: TailsName = "normal"
    discounts_variance: bool = False
    rounds: int = 0


class NoiseMap(NamedTuple):
    """What was learned: an observation has the variance of the tails times that of the noise and f, discounted."""

    level: Tensor  # []
    gamma: Tensor  # [G]
    variance_discount: Tensor  # []
    tails: Tails

    def learned_tails(self, at: Tensor, rows: Residuals) -> Tails:
        """The tails that suit rows with features `at` [n, G] best."""
        s = (self.level + at @ self.gamma).exp() + self._f_var(rows) + rows.known
        return learn_tails(rows.square / s[:, None], rows.weight)

    def densities(self, at: Tensor, rows: Residuals) -> Tensor:
        """Log densities of rows with these features `[n]`."""
        return log_density(self.level + at @ self.gamma, rows.square, self._f_var(rows), rows.known, self.tails).value

    def _f_var(self, rows: Residuals) -> Tensor:
        return rows.f_var * believed_share(rows.f_var, self.variance_discount)


class NoisePrior(NamedTuple):
    """What is known before: the precision of the weights, and the variance of f, of which half may be discounted."""

    precision: float
    f_var: float


def fit_noise_map(at: Tensor, rows: Residuals, recipe: NoiseRecipe, prior: NoisePrior, tol: float = TOL) -> NoiseMap:
    """Maximize the density of rows with features `at` [n, G] times that of the weights; tails in turn with the rest."""
    largest, total = prior.f_var if recipe.discounts_variance else 0.0, rows.weight.sum()
    square, tiny = rows.square.mean(1), torch.finfo(torch.float64).tiny
    excess = (square - rows.f_var - rows.known).clamp_min(0.1 * square)
    level = ((excess * rows.weight).sum() / total).clamp_min(tiny).log()
    share = (rows.f_var.median() / max(largest, tiny)).clamp(1e-9, 0.5)
    # The level, the logit of the discount's share of the largest, and the weights of the features [2 + G].
    theta = torch.cat([level[None], share.logit()[None], at.new_zeros(at.shape[1])]).requires_grad_()

    def maximize(tails: Tails) -> NoiseMap:
        begin = theta[0].detach().clone()

        @torch.no_grad()
        def negative_density() -> float:
            level, gamma = theta[0], theta[2:]
            discount = largest * theta[1].sigmoid()
            share = believed_share(rows.f_var, discount)
            log_noise = (level + at @ gamma).clamp(begin - WIDEST, begin + WIDEST)
            value, in_noise, in_f_var = log_density(log_noise, rows.square, rows.f_var * share, rows.known, tails)
            slope = rows.weight * in_noise
            # The discounted variance v^2 / (v + discount) has the derivative -share^2 in the discount.
            in_discount = -(rows.weight * in_f_var * share.square()).sum() * discount * theta[1].neg().sigmoid()
            gradient = [slope.sum()[None], in_discount[None], at.mT @ slope - prior.precision * gamma]
            theta.grad = -torch.cat(gradient) / total
            return -(((rows.weight * value).sum() - 0.5 * prior.precision * gamma.square().sum()) / total).item()

        minimize_lbfgs([theta], negative_density, max_evaluations=EVALUATIONS, tol=tol)
        found = theta.detach().clone()
        return NoiseMap(found[0], found[2:], largest * found[1].sigmoid(), tails)

    found = maximize((normal if recipe.tails == "normal" else heavy)(at))
    if recipe.tails != "learned":
        return found
    found = maximize(found.learned_tails(at, rows))
    return found._replace(tails=found.learned_tails(at, rows))


def held_out_scores(at: Tensor, rows: Residuals, folds: Tensor, recipe: NoiseRecipe, prior: NoisePrior) -> Scores:
    """Scores of each row with features `at` [n, G] under the noise map that the rows of the other folds imply."""
    found = torch.empty_like(rows.f_var)
    for fold in range(FOLDS):
        inside, outside = torch.nonzero(folds == fold)[:, 0], torch.nonzero(folds != fold)[:, 0]
        noise = fit_noise_map(at[outside], rows.take(outside), recipe, prior, TOL_TO_COMPARE)
        found[inside] = noise.densities(at[inside], rows.take(inside))
    return Scores(found, rows.square.mean(1), rows.weight, rows.cluster)


def constant_noise_scores(model: CVGP, rows: Residuals) -> Scores:
    """Scores of each row under one noise level, tails and a variance discount that the rows of other folds imply."""
    recipe = NoiseRecipe("learned", discounts_variance=True)
    prior = NoisePrior(0.0, prior_variance(model, rows.x))  # without features there are no weights
    return held_out_scores(rows.x[:, :0], rows, folds_of(rows, FOLDS), recipe, prior)


def noise_scores(model: CVGP, rows: Residuals, run: Run) -> Scores:
    """Scores of each row under a noise map, tails and a variance discount that the rows of other folds imply."""
    at = noise_features(model, rows, run.heuristics, run.rng("judging")).at(rows.x)
    recipe = NoiseRecipe("learned", discounts_variance=True)
    prior = NoisePrior(run.heuristics.noise_precision, prior_variance(model, rows.x))
    return held_out_scores(at, rows, folds_of(rows, FOLDS), recipe, prior)


def noise_features(model: CVGP, rows: Residuals, h: Heuristics, rng: np.random.Generator) -> Features:
    """Features of a noise map, at centers that represent the rows."""
    count = max(min(h.noise_centers, len(rows.x) // h.rows_per_noise_center), 1)
    x, y = rows.x.cpu().numpy(), rows.square.mean(1).cpu().numpy()
    placed = initial_coreset("kmeans", x, y, count, rng, kernel=model.kernel)
    centers = torch.tensor(placed.X, device=rows.x.device)
    # The lengthscales of f itself, or others than sqrt(D), do no better.
    return Features(centers, torch.full_like(centers[0], centers.shape[1] ** -0.5))


@torch.no_grad()
def relative_noise(model: CVGP, rows: Residuals, x: Tensor, run: Run) -> Tensor:
    """The noise at inputs x [n, D] over its harmonic mean [n]; ones if a noise map gains too little."""
    h, rng = run.heuristics, run.rng("relative noise")
    features = noise_features(model, rows, h, rng)
    at, folds = features.at(rows.x), folds_of(rows, FOLDS, rng)
    prior = NoisePrior(h.noise_precision, prior_variance(model, rows.x))
    gain = compare(*(held_out_scores(some, rows, folds, NoiseRecipe(), prior) for some in (at, at[:, :0])))
    if not run.agreed(gain.is_clear and gain.gain > h.least_noise_gain):
        return torch.ones_like(x[:, 0])
    gamma = fit_noise_map(at, rows, NoiseRecipe(), prior, TOL_TO_COMPARE).gamma
    lowest, highest = (at @ gamma).median() + math.log(SMALLEST_NOISE), (at @ gamma).max()
    noise = (features.at(x) @ gamma).clamp(lowest, highest).exp()
    return noise * noise.reciprocal().mean()


@torch.no_grad()
def prior_variance(model: CVGP, x: Tensor) -> float:
    """The mean prior variance of f at inputs."""
    return diagonal(model.kernel, x).mean().item()
