"""The noise of a finished fit: how it depends on x, and the fit once more with each row at its own precision.

A row of a quiet place says more of f than one of a noisy place. Once the noise is known, the coreset (with neighbours,
what the nearest rows say too) is solved for with the noise of each row, and the noise is learned again from what is
then left. This is kept if rows that were left out are more likely for it and not predicted worse, and then tried once
more.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgp.data.source import DataSource
from cvgp.gp.input_noise import InputNoise
from cvgp.optim.stopping import Progress
from cvgp.parallel.group import Group
from cvgp.training.fit import FitReport
from cvgp.training.monitor import Watch
from cvgp.training.neighbour_rows import NeighbourRows
from cvgp.training.noise_learning import choose_noise, clear_gain, mean_over, number_of_rows
from cvgp.training.noise_trials import NoiseFit, trials_of
from cvgp.training.plan import Settings
from cvgp.training.residuals import Residuals

PHASE = "noise"
ROUNDS = 2
LEARNING_SECONDS, ROW_SECONDS, LARGEST_SHARE = 4.0, 1e-4, 0.2
"""Kept back of a time limit: for the noise alone, per row for what follows, and at most this share."""
FACTORS_SECONDS = 1.2e-9
"""Of all factorisations that the noise needs at least, for each M^3."""
POINT_SECONDS, NEIGHBOUR_SECONDS = 4e-10, 2e-8
"""Of a pass over the rows, per row and point: for each other point, and for each neighbour and the row itself."""


def seconds_to_keep(num_rows: int, watch: Watch) -> float:
    """Of a time limit, what the noise may need after the fit."""
    if watch.max_time is None:
        return 0.0
    return min(LEARNING_SECONDS + num_rows * ROW_SECONDS, LARGEST_SHARE * watch.max_time)


def fit_noise(
    report: FitReport,
    kept: NeighbourRows | None,
    source: DataSource,
    settings: Settings,
    watch: Watch,
    rng: np.random.Generator,
    *,
    always: bool = False,
    is_normal: bool = False,
) -> NoiseFit:
    """Learn how the noise depends on x, and solve for the coreset again with the noise of each row if that helps.

    Parameters
    ----------
    report, kept
        The fit, and the rows that it consults.
    source
        Its rows.
    settings, watch
        Those of the fit. Where a time limit leaves next to no time, the noise stays constant. Nothing is solved again
        once the time is up.
    rng
        Draws rows and centres.
    always
        Whether to learn it even where a constant is as good.
    is_normal
        Whether residuals are normal, as they are taken for where outliers have a distribution of their own.
    """
    rng = _agreed(rng, source.group)
    fit = NoiseFit(report, kept)
    if not always and watch.pace * FACTORS_SECONDS * len(report.model.X_c) ** 3 > watch.left:
        return fit
    trials = trials_of(fit, source, settings, number_of_rows(watch), rng)
    left, judged = trials.left(fit)
    counted = left.weight > 0
    left = left.take(counted)
    if not left.square.any():
        return fit  # y is constant: of no error, nothing is to be learned
    choice = choose_noise(report.model, left, rng, watch, always=always, is_normal=is_normal)
    if choice is None:
        return fit
    best, best_left = fit._replace(noise=choice.learn(left)), left
    # A first fit weighs no row by its noise, so all that is known of the noise is known from it.
    known = judged.known
    before = _judge(best.needed_noise, judged, known)
    for round_ in range(1, ROUNDS + 1):
        if watch.stopped or not _is_in_time(report, kept, source, watch):
            break
        tried = trials.weighed(best, left.x)
        again, judged = trials.left(tried)
        again = again.take(counted)._replace(known=left.known)  # noise(x) is to be learned
        tried = tried._replace(noise=choice.learn(again)._replace(base=tried.needed_noise.base))
        after = _judge(tried.needed_noise, judged, known)
        error = mean_over(after.square, before.rows) / mean_over(before.square, before.rows)
        gain = mean_over(after.densities - before.densities, before.rows)
        _report(watch, tried.report.bound / source.total_weight, round_, gain, error)
        is_less_accurate = clear_gain(after.square, before.square, before.rows)
        if is_less_accurate or not clear_gain(after.densities, before.densities, before.rows):
            break
        best, best_left, before = tried, again, after
    if best_left is left:
        return best
    # What is left now may need another description than what was left at first.
    choice = choose_noise(best.report.model, best_left, rng, watch, always=True, is_normal=is_normal)
    assert choice is not None, "wanted always"
    noise, had = choice.learn(best_left), best.needed_noise
    return trials.finished(best)._replace(noise=noise._replace(base=had.base, constant=had.constant))


def _agreed(rng: np.random.Generator, group: Group) -> np.random.Generator:
    """A generator that draws the same in all processes of a group; those that hold out rows of their own differ."""
    if group.world == 1:
        return rng
    (seed,) = group.first([torch.tensor(float(rng.integers(2**31)), dtype=torch.float64)])
    return np.random.default_rng(int(seed))


class _Judgement(NamedTuple):
    """How likely rows were that had no part in their prediction."""

    rows: Residuals
    densities: Tensor  # [n]

    @property
    def square(self) -> Tensor:
        """Squared errors `[n]`."""
        return self.rows.square.mean(1)


@torch.no_grad()
def _judge(noise: InputNoise, rows: Residuals, known: Tensor) -> _Judgement:
    """Densities of rows under a noise, beside the noise variances `[n]` that are known of them."""
    total = noise.f_factor(rows.f_var) * rows.f_var + noise.variance(rows.x) + known
    return _Judgement(rows, noise.tails.log_density(rows.square, total[:, None])[0].mean(1))


def _is_in_time(report: FitReport, kept: NeighbourRows | None, source: DataSource, watch: Watch) -> bool:
    """Whether there is time for a pass over the rows."""
    if watch.max_time is None:
        return True
    size, per_row = len(report.model.X_c), 0 if kept is None else kept.num_neighbours + 1
    seconds = source.num_rows * size * (POINT_SECONDS * size + NEIGHBOUR_SECONDS * per_row)
    return watch.pace * seconds < watch.left


def _report(watch: Watch, bound: float, round_: int, gain: float, error: float) -> None:
    """Write what rows weighed by their own precision gain into the history; callbacks see it too."""
    watch.begin(PHASE, ROUNDS)
    text = f"rows weighed by their noise: {gain:+.3f} nats per unseen row, squared error times {error:.3f}"
    watch.observe(Progress(round_, -bound, math.nan, text))
