"""Noise that depends on x, learned after a fit from residuals that a row did not help to make.

The mean and the variance of f stay as they are, so this takes a second where a fit takes ten. Lengthscales of the noise
and the strength of its prior are chosen by the density of rows that were left out of the choice. So is whether
the noise depends on x at all.
"""

from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.errors import InvalidInputError
from cvgp.gp import bounds
from cvgp.gp.bounds import Statistics
from cvgp.gp.input_noise import Features, InputNoise, log_density
from cvgp.gp.kernels import cross_matrix, diagonal, prior_mean, stationary_form
from cvgp.gp.model import CVGP
from cvgp.gp.posterior import leave_one_out
from cvgp.optim.lbfgs import minimise_lbfgs
from cvgp.training.initialise import initial_coreset
from cvgp.training.monitor import Watch

NoiseName = Literal["auto", "constant", "input-dependent"]

LEAST_ROWS = 100
"""With fewer rows a noise for each x is a guess."""
ROWS, ROWS_TO_CHOOSE_BY, FEWEST = 10_000, 3_000, 500
ENOUGH_TIME = 20.0
"""Seconds of a time limit from which on all these rows are used; with less time their number is in proportion."""
CENTRES, ROWS_PER_CENTRE = 200, 10
FOLDS = 3
OWN_FACTORS, COMMON_FACTORS = (1.0, 2.0, 4.0), (0.5, 1.0, 2.0)
"""Lengthscales that are tried: those of the kernel over these factors, and sqrt(D) for all columns over these."""
FIRST_STRENGTH, OTHER_STRENGTHS = 0.3, (0.03, 3.0, 30.0)
EVALUATIONS = 60
STANDARD_ERRORS = 2.0
"""A gain counts from so many standard errors on."""
WIDEST = 12.0
"""Nats that the logarithm of the noise may go from its level in a search."""


def check_noise_name(name: object) -> None:
    """Refuse a kind of noise that there is not."""
    if name not in get_args(NoiseName):
        raise InvalidInputError(f"noise must be one of {', '.join(get_args(NoiseName))}; got {name!r}.")


class Residuals(NamedTuple):
    """Rows with what is left of them when they are predicted by others."""

    x: Tensor  # [n, D]
    square: Tensor  # [n], mean over outputs of the squared residual
    variance: Tensor  # [n], of f, and known noise
    weight: Tensor  # [n]

    def take(self, index: Tensor) -> "Residuals":
        """Some of the rows."""
        return Residuals(*(part[index] for part in self))


@torch.no_grad()
def residuals_of(model: CVGP, statistics: Statistics, rows: Rows[Tensor]) -> Residuals:
    """What is left of rows of the fit, each predicted by all other rows."""
    L_inv = bounds.whitener(model.jittered_covariance())
    solution = bounds.solve_titsias(statistics, L_inv)
    psi = L_inv @ cross_matrix(model.kernel, model.X_c, rows.x)  # [M, n]
    k_xx = diagonal(model.kernel, rows.x)
    y = (rows.y - prior_mean(model.mean, rows.x, rows.y)).reshape(len(rows.x), -1)
    noise = model.total_noise(rows.noise_variance)
    precision = bounds.weigh(noise, k_xx, sample_weight=rows.sample_weight).precision
    left_out = leave_one_out(psi, k_xx, y, precision, solution.C_inv, solution.C_inv_b)
    known = 0.0 if rows.noise_variance is None else rows.noise_variance
    weight = torch.ones_like(k_xx) if rows.sample_weight is None else rows.sample_weight
    return Residuals(rows.x, left_out.residual.square().mean(1), left_out.variance + known, weight)


def learn_input_noise(
    model: CVGP,
    residuals: Callable[[int], Residuals],
    rng: np.random.Generator,
    watch: Watch,
    *,
    always: bool = False,
) -> InputNoise | None:
    """The noise as a function of x; None where a constant is as good, unless it is wanted `always`.

    Parameters
    ----------
    model
        The fitted model.
    residuals
        Gives about so many rows of the fit, each with what is left of it when others predict it.
    rng
        Draws rows and centres.
    watch
        A short time limit allows fewer rows.
    always
        Whether to learn it even where it does not help.
    """
    share = 1.0 if watch.max_time is None else min(watch.max_time / ENOUGH_TIME, 1.0)
    all_rows = residuals(max(int(share * ROWS), FEWEST))
    if len(all_rows.x) < LEAST_ROWS and not always:
        return None
    all_rows = all_rows.take(all_rows.weight > 0)
    to_choose_by = max(int(share * ROWS_TO_CHOOSE_BY), FEWEST)
    some = all_rows.take(torch.as_tensor(rng.permutation(len(all_rows.x))[:to_choose_by]))
    centres = _centres(model, all_rows, rng)
    folds = torch.as_tensor(rng.permutation(len(some.x)) % FOLDS)

    def judge(choice: tuple[Tensor, float]) -> Tensor:
        return _held_out(Features(centres, choice[0]).at(some.x), some, folds, choice[1])

    first = [(lengthscale, FIRST_STRENGTH) for lengthscale in _inverse_lengthscales(model)]
    best, density = _best(first, judge)
    others, other_density = _best([(best[0], strength) for strength in OTHER_STRENGTHS], judge)
    if _mean(other_density, some) > _mean(density, some):
        best, density = others, other_density
    gain = density - _held_out(some.x[:, :0], some, folds, FIRST_STRENGTH)
    if not always and _mean(gain, some) <= STANDARD_ERRORS * _standard_error(gain, some):
        return None
    features = Features(centres, best[0])
    at = features.at(all_rows.x)
    level, gamma = _fit(at, all_rows, best[1])
    log_noise = level + at @ gamma
    return features.noise(level, gamma, log_noise.min(), log_noise.max())


def _centres(model: CVGP, rows: Residuals, rng: np.random.Generator) -> Tensor:
    count = max(min(CENTRES, len(rows.x) // ROWS_PER_CENTRE), 1)
    x, y = rows.x.cpu().numpy(), rows.square.cpu().numpy()
    placed = initial_coreset("kmeans", x, y, count, rng, kernel=model.kernel)
    return torch.tensor(placed.X, device=rows.x.device)


@torch.no_grad()
def _inverse_lengthscales(model: CVGP) -> list[Tensor]:
    num_dims = model.X_c.shape[1]
    common = torch.full((num_dims,), num_dims**-0.5, dtype=torch.float64, device=model.X_c.device)
    form = stationary_form(model.kernel, num_dims)
    own = [] if form is None else [factor * form.inverse_lengthscale for factor in OWN_FACTORS]
    return own + [factor * common for factor in COMMON_FACTORS]


def _best(
    choices: Iterable[tuple[Tensor, float]], judge: Callable[[tuple[Tensor, float]], Tensor]
) -> tuple[tuple[Tensor, float], Tensor]:
    """The choice with the highest density in all, and its density of each row."""
    judged = [(choice, judge(choice)) for choice in choices]
    return max(judged, key=lambda pair: pair[1].sum().item())


def _held_out(features: Tensor, rows: Residuals, folds: Tensor, strength: float) -> Tensor:
    """Log density [n] of each row under the noise that the rows of the other folds imply."""
    found = torch.empty_like(rows.square)
    for fold in range(FOLDS):
        inside, outside = torch.nonzero(folds == fold)[:, 0], torch.nonzero(folds != fold)[:, 0]
        level, gamma = _fit(features[outside], rows.take(outside), strength)
        held = rows.take(inside)
        found[inside] = log_density(level + features[inside] @ gamma, held.square, held.variance)[0]
    return found


def _fit(features: Tensor, rows: Residuals, strength: float) -> tuple[Tensor, Tensor]:
    """The level and the weights [G] of the features that maximise the density of the rows times that of the prior."""
    total = rows.weight.sum()
    start = ((rows.square - rows.variance).clamp_min(0.1 * rows.square) * rows.weight).sum() / total
    begin = start.clamp_min(torch.finfo(torch.float64).tiny).log()
    theta = torch.cat([begin[None], features.new_zeros(features.shape[1])]).requires_grad_()

    @torch.no_grad()
    def negative_density() -> float:
        level, gamma = theta[0], theta[1:]
        log_noise = (level + features @ gamma).clamp(begin - WIDEST, begin + WIDEST)
        value, slope = log_density(log_noise, rows.square, rows.variance)
        slope = rows.weight * slope
        theta.grad = -torch.cat([slope.sum()[None], features.mT @ slope - strength * gamma]) / total
        return -(((rows.weight * value).sum() - 0.5 * strength * gamma.square().sum()) / total).item()

    minimise_lbfgs([theta], negative_density, max_evaluations=EVALUATIONS, tol=1e-4)
    found = theta.detach()
    return found[0], found[1:]


def _mean(values: Tensor, rows: Residuals) -> float:
    return ((rows.weight * values).sum() / rows.weight.sum()).item()


def _standard_error(values: Tensor, rows: Residuals) -> float:
    spread = (values - _mean(values, rows)).square()
    return float(np.sqrt(_mean(spread, rows) / len(values)))
