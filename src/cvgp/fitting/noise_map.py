"""The noise, as a function of given features, under which the residuals of some rows are most likely.

The mean of f stays as it is, so this takes a second where a fit takes ten. It is a maximum a posteriori fit: the
weights of the features have a normal prior.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from cvgp.fitting.compare import Scores
from cvgp.fitting.residuals import Residuals
from cvgp.gp.kernels import diagonal
from cvgp.gp.model import CVGP
from cvgp.gp.noise import Tails, believed_share, heavy, learn_tails, log_density, normal
from cvgp.optim import minimize_lbfgs

EVALUATIONS, TOL = 40, 1e-4
TOL_TO_COMPARE = 1e-3
"""Nats per row for noise maps that are only compared: differences that count are ten times as large."""
FOLDS = 2
WIDEST = 12.0
"""How far the logarithm of the noise may go from its level in a search."""


class Recipe(NamedTuple):
    """What is to be learned."""

    strength: float
    """Precision of the prior on the weights of the features."""
    tails: Literal["normal", "heavy", "learned"] = "normal"
    """The shape of the residuals: given, or to be learned."""
    largest_discount: float = 0.0
    """The largest variance of f of which half may be discounted; 0 takes all variances as they are."""


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


def fit_noise_map(at: Tensor, rows: Residuals, recipe: Recipe, tol: float = TOL) -> NoiseMap:
    """Maximize the density of rows with features `at` [n, G] times that of the prior; tails in turn with the rest.

    A search ends once ten iterations gain less than `tol` nats per row.
    """
    theta = _start(at, rows, recipe)
    found = _maximize(theta, at, rows, recipe, (normal if recipe.tails == "normal" else heavy)(at), tol)
    if recipe.tails != "learned":
        return found
    found = _maximize(theta, at, rows, recipe, found.learned_tails(at, rows), tol)
    return found._replace(tails=found.learned_tails(at, rows))


def held_out_scores(at: Tensor, rows: Residuals, folds: Tensor, recipe: Recipe) -> Scores:
    """Scores of each row with features `at` [n, G] under the noise map that the rows of the other folds imply."""
    found = torch.empty_like(rows.f_var)
    for fold in range(FOLDS):
        inside, outside = torch.nonzero(folds == fold)[:, 0], torch.nonzero(folds != fold)[:, 0]
        noise = fit_noise_map(at[outside], rows.take(outside), recipe, TOL_TO_COMPARE)
        found[inside] = noise.densities(at[inside], rows.take(inside))
    return Scores(found, rows.square.mean(1), rows.weight)


def constant_noise_scores(model: CVGP, rows: Residuals, strength: float) -> Scores:
    """Scores of each row under one noise level, tails and a variance discount that the rows of other folds imply."""
    folds = torch.arange(len(rows.x), device=rows.x.device) % FOLDS
    with torch.no_grad():
        prior = diagonal(model.kernel, rows.x).mean().item()
    return held_out_scores(rows.x[:, :0], rows, folds, Recipe(strength, "learned", prior))


def _start(at: Tensor, rows: Residuals, recipe: Recipe) -> Tensor:
    """Parameters [2 + G]: the level, the logit of the discount's share of the largest, and weights of the features."""
    square = rows.square.mean(1)
    excess = (square - rows.f_var - rows.known).clamp_min(0.1 * square)
    mean = (excess * rows.weight).sum() / rows.weight.sum()
    level = mean.clamp_min(torch.finfo(torch.float64).tiny).log()
    share = (rows.f_var.median() / max(recipe.largest_discount, torch.finfo(torch.float64).tiny)).clamp(1e-9, 0.5)
    return torch.cat([level[None], share.logit()[None], at.new_zeros(at.shape[1])]).requires_grad_()


def _maximize(theta: Tensor, at: Tensor, rows: Residuals, recipe: Recipe, tails: Tails, tol: float) -> NoiseMap:
    total, begin = rows.weight.sum(), theta[0].detach().clone()

    @torch.no_grad()
    def negative_density() -> float:
        level, gamma = theta[0], theta[2:]
        discount = recipe.largest_discount * theta[1].sigmoid()
        share = believed_share(rows.f_var, discount)
        log_noise = (level + at @ gamma).clamp(begin - WIDEST, begin + WIDEST)
        value, in_noise, in_f_var = log_density(log_noise, rows.square, rows.f_var * share, rows.known, tails)
        slope = rows.weight * in_noise
        # The discounted variance v^2 / (v + discount) has the derivative -share^2 in the discount.
        in_discount = -(rows.weight * in_f_var * share.square()).sum() * discount * theta[1].neg().sigmoid()
        gradient = [slope.sum()[None], in_discount[None], at.mT @ slope - recipe.strength * gamma]
        theta.grad = -torch.cat(gradient) / total
        return -(((rows.weight * value).sum() - 0.5 * recipe.strength * gamma.square().sum()) / total).item()

    minimize_lbfgs([theta], negative_density, max_evaluations=EVALUATIONS, tol=tol)
    found = theta.detach().clone()
    return NoiseMap(found[0], found[2:], recipe.largest_discount * found[1].sigmoid(), tails)
