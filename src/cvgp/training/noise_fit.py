"""The noise of a finished fit: how it depends on x, and the fit once more with each row at its own precision.

A row of a quiet place says more of f than one of a noisy place. Once the noise is known, the coreset (with neighbours,
what the nearest rows say too) is solved for with the noise of each row, and the noise is learned again from what is
then left. This is kept if rows that were left out are more likely for it and not predicted worse, and then tried once
more.
"""

import math
from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgp.data.extra_noise import add_noise, with_extra_noise
from cvgp.data.source import DataSource
from cvgp.gp.hyperparameters import multiply_inside
from cvgp.gp.input_noise import InputNoise
from cvgp.gp.neighbours.search import RowIndex
from cvgp.objectives.full_batch import CHUNK_ROWS, full_bound, statistics_and_gain
from cvgp.optim.stopping import Progress
from cvgp.training.fit import FitReport
from cvgp.training.monitor import Watch
from cvgp.training.neighbour_rows import NeighbourRows, adopt_neighbours, residuals_given_neighbours
from cvgp.training.noise_learning import choose_noise, clear_gain, mean_over, number_of_rows
from cvgp.training.plan import Settings
from cvgp.training.residuals import Residuals, residuals_of
from cvgp.training.small_data import holds_the_data, take_observations

PHASE = "noise"
ROUNDS = 2
LARGEST_ERROR = 1.0
"""By this factor the squared error of unseen rows may rise. A gain in density that costs more is not taken."""
SMALLEST_NOISE = 0.1
"""Of the median noise. A row that counts far more than others would leave them little to say, and could not be left out
to see what is left of it."""
LEARNING_SECONDS, ROW_SECONDS, LARGEST_SHARE = 4.0, 1e-4, 0.2
"""Kept back of a time limit: for the noise alone, per row for what follows, and at most this share."""
POINT_SECONDS, NEIGHBOUR_SECONDS = 4e-10, 2e-8
"""Of a pass over the rows, per row and point: for each other point, and for each neighbour and the row itself."""


class NoiseFit(NamedTuple):
    """A fit, the rows that it consults, and its noise, if that depends on x."""

    report: FitReport
    kept: NeighbourRows | None = None
    noise: InputNoise | None = None


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
        Those of the fit. With a time limit, nothing is solved again once the time is up.
    rng
        Draws rows and centres.
    always
        Whether to learn it even where a constant is as good.
    is_normal
        Whether residuals are normal, as they are taken for where outliers have a distribution of their own.
    """
    count = number_of_rows(watch)
    sample = source.sample(count, rng) if kept is None else None

    def left_of(report: FitReport, kept: NeighbourRows | None, noise: InputNoise | None) -> Residuals:
        """What is left of the same rows, whatever they were weighed with."""
        if kept is not None:
            return residuals_given_neighbours(report.model, kept, count)
        assert sample is not None, "drawn where no rows are consulted"
        rows = sample if noise is None else add_noise(sample, noise.beyond_base)
        return residuals_of(report.model, report.statistics, rows)

    left = left_of(report, kept, None)
    counted = left.weight > 0
    left = left.take(counted)
    choice = choose_noise(report.model, left, rng, watch, always=always, is_normal=is_normal)
    if choice is None:
        return NoiseFit(report, kept)
    best = tried = NoiseFit(report, kept, choice.learn(left))
    weigh, judged = _Weighing(report, kept, source, settings), left.take(choice.judged)
    best_left, densities = left, choice.held_out(left)
    for round_ in range(1, ROUNDS + 1):
        if watch.stopped or not weigh.is_in_time(watch):
            break
        assert tried.noise is not None, "learned above"
        tried = weigh(tried.noise, left.x)
        again = left_of(*tried).take(counted)._replace(known=left.known)  # the noise of x is still to be learned
        before, densities = densities, choice.held_out(again)
        error = mean_over(again.square.mean(1), left) / mean_over(left.square.mean(1), left)
        _report(watch, tried.report.bound / source.total_weight, round_, mean_over(densities - before, judged), error)
        if not clear_gain(densities, before, judged):
            break
        assert tried.noise is not None, "weighed with"
        tried = tried._replace(noise=choice.learn(again)._replace(base=tried.noise.base))
        if error <= LARGEST_ERROR:
            best, best_left = tried, again
    if best_left is left:
        return best
    # What is left now may need another description than what was left at first.
    assert best.noise is not None, "learned above"
    choice = choose_noise(best.report.model, best_left, rng, watch, always=True, is_normal=is_normal)
    assert choice is not None, "wanted always"
    noise = choice.learn(best_left)._replace(base=best.noise.base, constant=best.noise.constant)
    return best._replace(noise=noise)


class _Weighing:
    """Solves for the coreset of a fit again, with the noise of each row."""

    def __init__(self, report: FitReport, kept: NeighbourRows | None, source: DataSource, settings: Settings) -> None:
        self.report, self.kept, self.source = report, kept, source
        self.is_exact = kept is None and holds_the_data(report.model, source)
        self.tight = settings.bound == "tight" or (settings.bound == "auto" and "lbfgs" in report.solver)
        self.power = settings.power if settings.bound == "power" else None
        self.near = None if kept is None else RowIndex(report.model.kernel, kept.rows.x).earlier(kept.num_neighbours)

    def is_in_time(self, watch: Watch) -> bool:
        """Whether there is time for a pass over the rows."""
        if watch.max_time is None:
            return True
        size, per_row = len(self.report.model.X_c), 0 if self.kept is None else self.kept.num_neighbours + 1
        seconds = self.source.num_rows * size * (POINT_SECONDS * size + NEIGHBOUR_SECONDS * per_row)
        return watch.seconds + seconds < watch.max_time

    @torch.no_grad()
    def __call__(self, noise: InputNoise, x: Tensor) -> NoiseFit:
        """The same kernel and pseudo-inputs, with rows that have this noise; its median is taken at some rows x."""
        model = deepcopy(self.report.model)
        # The constant becomes the lowest noise of all, so that each row has something beyond it.
        lowest = torch.maximum(noise.lowest.exp(), SMALLEST_NOISE * noise.variance(x).median())
        multiply_inside(model.likelihood.noise_covar, "noise", lowest / model.noise)
        noise = noise._replace(base=model.noise.detach().clone())
        if self.kept is not None:
            rows = add_noise(self.kept.rows, noise.beyond_base)
            kept, bound = adopt_neighbours(model, rows, self.kept.num_neighbours, near=self.near)
            return NoiseFit(self.report._replace(model=model, bound=bound, statistics=kept.statistics), kept, noise)
        source = with_extra_noise(self.source, noise.beyond_base)
        found, gain = statistics_and_gain(model, source.chunks(CHUNK_ROWS), source.group, power=self.power)
        if self.is_exact:
            take_observations(model, source.sample(source.num_rows, np.random.default_rng(0)))
            chunks, size = source.chunks(CHUNK_ROWS), source.num_rows
            bound = full_bound(model, chunks, size, tight=self.tight, power=self.power, group=source.group)
        else:
            bound = model.adopt_optimum(found).item() + (gain if self.tight else 0.0)
        # A weight of one is to stand for the harmonic mean of the total noise of the rows.
        model.set_site_noise_offset(source.harmonic_noise(model.noise.item()) - model.noise.item())
        return NoiseFit(self.report._replace(model=model, bound=bound, statistics=found), None, noise)


def _report(watch: Watch, bound: float, round_: int, gain: float, error: float) -> None:
    """Write what rows weighed by their own precision gain into the history; callbacks see it too."""
    watch.begin(PHASE, ROUNDS)
    text = f"rows weighed by their noise: {gain:+.3f} nats per unseen row, squared error times {error:.3f}"
    watch.observe(Progress(round_, -bound, math.nan, text))
