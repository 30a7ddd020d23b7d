"""Noise that depends on x, learned after a fit from residuals that a row did not help to make.

The mean of f stays as it is, so this takes a second where a fit takes ten. Lengthscales of the noise and the strength
of its prior are chosen by the density of rows that were left out of the choice. So is whether the noise depends on x at
all, whether residuals have other tails than the normal distribution, and whether the variance of f is believed.
"""

import math
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.input_noise import Features, InputNoise
from cvgp.gp.kernels import NOISE_FLOOR, diagonal, stationary_form
from cvgp.gp.model import CVGP
from cvgp.training.initialise import initial_coreset
from cvgp.training.likely_noise import Recipe, likely_noise
from cvgp.training.monitor import Watch
from cvgp.training.residuals import Residuals

NoiseName = Literal["auto", "constant", "input-dependent"]

LEAST_ROWS = 100
"""With fewer rows a noise for each x is a guess."""
ROWS, ROWS_TO_CHOOSE_BY, FEWEST = 10_000, 2_000, 500
ENOUGH_TIME = 20.0
"""Seconds of a time limit from which on all these rows are used; with less time their number is in proportion."""
CENTRES, ROWS_PER_CENTRE = 200, 10
FOLDS = 2
OWN_FACTORS, COMMON_FACTORS = (1.0, 2.0, 4.0), (1.0, 0.5, 2.0)
"""Lengthscales that are tried: those of the kernel over these factors, and sqrt(D) for all columns over these."""
FIRST_STRENGTH, STRENGTHS = 0.3, (0.03, 3.0, 30.0)
"""Of the prior: one to compare lengthscales at, and others that are tried with the best of these."""
TRIALS_TO_COME = 4
"""As long as so many trials take what follows one: the noise of all rows, and what it is compared with."""
CHOICE_TOL = 1e-3
"""Nats per row to which noises are learned that are compared: differences that count are ten times as large."""
STANDARD_ERRORS = 2.0
"""A gain counts from so many standard errors on."""
LARGEST_GAIN = 3.0
"""Nats that one row may count for."""


def check_noise_name(name: object) -> None:
    """Refuse a kind of noise that there is not."""
    if name not in get_args(NoiseName):
        raise InvalidInputError(f"noise must be one of {', '.join(get_args(NoiseName))}; got {name!r}.")


class NoiseChoice(NamedTuple):
    """How the noise depends on x, as far as rows that were left out decided it."""

    features: Features
    recipe: Recipe
    prior: float
    """The variance of f where nothing is known of it."""
    constant: float
    """The noise variance of the fit."""

    def learn(self, rows: Residuals) -> InputNoise:
        """The noise that all rows imply; the variance of the tails is a part of it."""
        at = self.features.at(rows.x)
        level, gamma, doubt, tails = likely_noise(at, rows, self.recipe)
        shift = tails.variance.log()
        # No noise is larger than the largest residual.
        most = rows.square.mean(1).max().clamp_min(2.0 * NOISE_FLOOR)
        log_noise = (level + shift + at @ gamma).clamp(math.log(NOISE_FLOOR), most.log().item())
        return InputNoise(
            centres=self.features.centres,
            inverse_lengthscale=self.features.inverse_lengthscale,
            alpha=self.features.L_inv.mT @ gamma,
            level=level + shift,
            lowest=log_noise.min(),
            highest=log_noise.max(),
            doubt=doubt,
            f_scale=tails.variance,
            f_prior=level.new_tensor(self.prior),
            **tails.of_variance_one()._asdict(),
            constant=level.new_tensor(self.constant),
            base=torch.zeros_like(level),
        )


def number_of_rows(watch: Watch) -> int:
    """How many rows to learn the noise from: fewer where a time limit is short."""
    return max(int(_share(watch) * ROWS), FEWEST)


def choose_noise(
    model: CVGP,
    rows: Residuals,
    rng: np.random.Generator,
    watch: Watch,
    *,
    always: bool = False,
    is_normal: bool = False,
) -> NoiseChoice | None:
    """How the noise depends on x; None where a constant with normal residuals is as good, unless it is wanted `always`.

    Parameters
    ----------
    model
        The fitted model.
    rows
        Rows of the fit, each with what is left of it when others predict it.
    rng
        Draws rows and centres.
    watch
        A short time limit allows fewer rows.
    always
        Whether to choose one even where it does not help.
    is_normal
        Whether residuals are known to be normal.
    """
    if len(rows.x) < LEAST_ROWS and not always:
        return None
    judged = torch.as_tensor(rng.permutation(len(rows.x))[: max(int(_share(watch) * ROWS_TO_CHOOSE_BY), FEWEST)])
    folds = torch.as_tensor(rng.permutation(len(judged)) % FOLDS)
    judged, folds = judged.to(rows.x.device), folds.to(rows.x.device)
    some, centres = rows.take(judged), _centres(model, rows, rng)
    # Heavy tails, so that no single row decides.
    first = Recipe(FIRST_STRENGTH, "heavy")

    with torch.no_grad():
        prior = diagonal(model.kernel, rows.x).mean().item()
    slowest = 0.0

    def try_out(at: Tensor, recipe: Recipe) -> Tensor:
        nonlocal slowest
        begin = watch.seconds
        found = _held_out(at, some, folds, recipe)
        slowest = max(slowest, watch.seconds - begin)
        return found

    def is_in_time() -> bool:
        return (1 + TRIALS_TO_COME) * slowest <= watch.left

    features, found = list[Features](), list[float]()
    for scale in _inverse_lengthscales(model):
        if not features or is_in_time():
            features.append(Features(centres, scale))
            found.append(mean_over(try_out(features[-1].at(some.x), first), some))
    leader = int(np.argmax(found))
    at, by_strength = features[leader].at(some.x), {FIRST_STRENGTH: found[leader]}
    for strength in STRENGTHS:
        if is_in_time():
            by_strength[strength] = mean_over(try_out(at, first._replace(strength=strength)), some)
    strength = max(by_strength, key=lambda strength: by_strength[strength])
    from_simple = [
        Recipe(strength),
        Recipe(strength, "learned"),
        Recipe(strength, most_doubt=prior),
        Recipe(strength, "learned", prior),
    ]
    recipes = [recipe for recipe in from_simple if recipe.tails == "normal" or not is_normal]
    densities = [try_out(at, recipe) for recipe in recipes if recipe is recipes[0] or is_in_time()]
    # The first, and so the simplest, that is as good as the best. Whether the difference is clear is not asked: few
    # rows make nothing clear, and tails that are too light cost more than tails that are too heavy.
    means = [mean_over(density, some) for density in densities]
    chosen = next(i for i, mean in enumerate(means) if mean >= max(means) - CHOICE_TOL)
    constant = _held_out(some.x[:, :0], some, folds, Recipe(FIRST_STRENGTH))
    if always or clear_gain(densities[chosen], constant, some):
        return NoiseChoice(features[leader], recipes[chosen], prior, model.noise.item())
    return None


def densities_by_level(model: CVGP, rows: Residuals) -> Tensor:
    """Log density [n] of each row under one noise level, tails and doubt of f that the rows of other folds imply."""
    folds = torch.arange(len(rows.x), device=rows.x.device) % FOLDS
    with torch.no_grad():
        prior = diagonal(model.kernel, rows.x).mean().item()
    return _held_out(rows.x[:, :0], rows, folds, Recipe(FIRST_STRENGTH, "learned", prior))


def clear_gain(densities: Tensor, others: Tensor, rows: Residuals) -> bool:
    """Whether the mean density of rows is above another by more than some standard errors of the difference.

    No row counts for more than a few nats. Otherwise the very rows that only heavy tails describe would make the
    difference look uncertain.
    """
    if not len(densities):  # of a few rows none may be left to judge by
        return False
    gain = (densities - others).clamp(-LARGEST_GAIN, LARGEST_GAIN)
    spread = (gain - mean_over(gain, rows)).square()
    return mean_over(gain, rows) > STANDARD_ERRORS * math.sqrt(mean_over(spread, rows) / len(gain))


def _share(watch: Watch) -> float:
    return 1.0 if watch.max_time is None else min(watch.max_time / ENOUGH_TIME, 1.0)


def _centres(model: CVGP, rows: Residuals, rng: np.random.Generator) -> Tensor:
    count = max(min(CENTRES, len(rows.x) // ROWS_PER_CENTRE), 1)
    x, y = rows.x.cpu().numpy(), rows.square.mean(1).cpu().numpy()
    placed = initial_coreset("kmeans", x, y, count, rng, kernel=model.kernel)
    return torch.tensor(placed.X, device=rows.x.device)


@torch.no_grad()
def _inverse_lengthscales(model: CVGP) -> list[Tensor]:
    num_dims = model.X_c.shape[1]
    common = torch.full((num_dims,), num_dims**-0.5, dtype=torch.float64, device=model.X_c.device)
    form = stationary_form(model.kernel, num_dims)
    own = [] if form is None else [factor * form.inverse_lengthscale for factor in OWN_FACTORS]
    others = [factor * common for factor in COMMON_FACTORS]
    return [*own[:1], *others[:1], *own[1:], *others[1:]]  # time may be up after the first ones


def _held_out(at: Tensor, rows: Residuals, folds: Tensor, recipe: Recipe) -> Tensor:
    """Log density [n] of each row with features `at` [n, G] under the noise that the rows of the other folds imply."""
    found = torch.empty_like(rows.f_var)
    for fold in range(FOLDS):
        inside, outside = torch.nonzero(folds == fold)[:, 0], torch.nonzero(folds != fold)[:, 0]
        noise = likely_noise(at[outside], rows.take(outside), recipe, CHOICE_TOL)
        found[inside] = noise.densities(at[inside], rows.take(inside))
    return found


def mean_over(values: Tensor, rows: Residuals) -> float:
    """The mean of values [n] of rows, by their weights."""
    return ((rows.weight * values).sum() / rows.weight.sum()).item()
