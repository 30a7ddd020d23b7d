"""The noise, as a function of given features, under which the residuals of some rows are most likely."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from cvgp.gp.input_noise import believed_share, log_density
from cvgp.gp.tails import Tails, heavy, learn_tails, normal
from cvgp.optim.lbfgs import minimise_lbfgs
from cvgp.training.residuals import Residuals

EVALUATIONS, TOL = 40, 1e-4
WIDEST = 12.0
"""Nats that the logarithm of the noise may go from its level in a search."""


class Recipe(NamedTuple):
    """What is to be learned."""

    strength: float
    """Of the prior on the weights of the features."""
    tails: Literal["normal", "heavy", "learned"] = "normal"
    """The shape of the residuals: given, or to be learned."""
    most_doubt: float = 0.0
    """The largest variance of f of which half may be disbelieved; 0 believes all."""


class LikelyNoise(NamedTuple):
    """What was learned. The variance of an observation is that of the tails times noise and believed variance of f."""

    level: Tensor  # []
    gamma: Tensor  # [G]
    doubt: Tensor  # []
    tails: Tails

    def learned_tails(self, at: Tensor, rows: Residuals) -> Tails:
        """The tails that suit rows with features `at` [n, G] best."""
        s = (self.level + at @ self.gamma).exp() + self._f_var(rows) + rows.known
        return learn_tails(rows.square / s[:, None], rows.weight)

    def densities(self, at: Tensor, rows: Residuals) -> Tensor:
        """Log densities of rows with these features `[n]`."""
        return log_density(self.level + at @ self.gamma, rows.square, self._f_var(rows), rows.known, self.tails).value

    def _f_var(self, rows: Residuals) -> Tensor:
        return rows.f_var * believed_share(rows.f_var, self.doubt)


def likely_noise(at: Tensor, rows: Residuals, recipe: Recipe, tol: float = TOL) -> LikelyNoise:
    """Maximise the density of rows with features `at` [n, G] times that of the prior; tails in turn with the rest.

    A search ends once ten iterations gain less than `tol` nats per row.
    """
    theta = _start(at, rows, recipe)
    found = _maximise(theta, at, rows, recipe, (normal if recipe.tails == "normal" else heavy)(at), tol)
    if recipe.tails != "learned":
        return found
    found = _maximise(theta, at, rows, recipe, found.learned_tails(at, rows), tol)
    return found._replace(tails=found.learned_tails(at, rows))


def _start(at: Tensor, rows: Residuals, recipe: Recipe) -> Tensor:
    """Parameters [2 + G]: the level, the logit of the doubt's share of the most, and the weights of the features."""
    square = rows.square.mean(1)
    excess = (square - rows.f_var - rows.known).clamp_min(0.1 * square)
    mean = (excess * rows.weight).sum() / rows.weight.sum()
    level = mean.clamp_min(torch.finfo(torch.float64).tiny).log()
    share = (rows.f_var.median() / max(recipe.most_doubt, torch.finfo(torch.float64).tiny)).clamp(1e-9, 0.5)
    return torch.cat([level[None], share.logit()[None], at.new_zeros(at.shape[1])]).requires_grad_()


def _maximise(theta: Tensor, at: Tensor, rows: Residuals, recipe: Recipe, tails: Tails, tol: float) -> LikelyNoise:
    total, begin = rows.weight.sum(), theta[0].detach().clone()

    @torch.no_grad()
    def negative_density() -> float:
        level, gamma = theta[0], theta[2:]
        doubt = recipe.most_doubt * theta[1].sigmoid()
        share = believed_share(rows.f_var, doubt)
        log_noise = (level + at @ gamma).clamp(begin - WIDEST, begin + WIDEST)
        value, in_noise, in_f_var = log_density(log_noise, rows.square, rows.f_var * share, rows.known, tails)
        slope = rows.weight * in_noise
        # The believed variance v^2 / (v + doubt) has the derivative -share^2 in the doubt.
        in_doubt = -(rows.weight * in_f_var * share.square()).sum() * doubt * theta[1].neg().sigmoid()
        gradient = [slope.sum()[None], in_doubt[None], at.mT @ slope - recipe.strength * gamma]
        theta.grad = -torch.cat(gradient) / total
        return -(((rows.weight * value).sum() - 0.5 * recipe.strength * gamma.square().sum()) / total).item()

    minimise_lbfgs([theta], negative_density, max_evaluations=EVALUATIONS, tol=tol)
    found = theta.detach().clone()
    return LikelyNoise(found[0], found[2:], recipe.most_doubt * found[1].sigmoid(), tails)
