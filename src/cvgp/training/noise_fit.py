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
from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.gp.hyperparameters import multiply_inside
from cvgp.gp.input_noise import InputNoise
from cvgp.gp.neighbours.search import RowIndex
from cvgp.objectives.full_batch import CHUNK_ROWS, full_bound, statistics_and_gain
from cvgp.optim.stopping import Progress
from cvgp.parallel.group import Group
from cvgp.training.fit import UNTRAINED, FitReport, reports_tight_bound
from cvgp.training.monitor import Watch
from cvgp.training.neighbour_rows import (
    NeighbourRows,
    adopt_neighbours,
    near_own_part,
    residuals_given_neighbours,
)
from cvgp.training.noise_learning import choose_noise, clear_gain, mean_over, number_of_rows
from cvgp.training.plan import Settings
from cvgp.training.residuals import Residuals, residuals_of
from cvgp.training.size_choice import rows_beside
from cvgp.training.small_data import holds_the_data, take_observations

PHASE = "noise"
ROUNDS = 2
SEEN_SHARE = 0.8
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

    @property
    def needed_noise(self) -> InputNoise:
        """The noise, of a fit that is known to have one."""
        assert self.noise is not None, "asked for before it was learned"
        return self.noise


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
    rng = _agreed(rng, source.group)
    count = number_of_rows(watch)
    sample = source.sample(count, rng) if kept is None else None
    if sample is not None and report.solver == UNTRAINED:
        sample = rows_beside(sample, report.model.X_c)  # what is left of a point says little of rows that are none
    left = _left_of(NoiseFit(report, kept), sample, count, source.group)
    counted = left.weight > 0
    left = left.take(counted)
    choice = choose_noise(report.model, left, rng, watch, always=always, is_normal=is_normal)
    if choice is None:
        return NoiseFit(report, kept)
    best, best_left = NoiseFit(report, kept, choice.learn(left)), left
    weigh, judge = _Weighing(report, kept, source, settings), _Judge(sample, count, rng, source.group)
    before = judge(best)
    for round_ in range(1, ROUNDS + 1):
        if watch.stopped or not weigh.is_in_time(watch):
            break
        tried = weigh(best, left.x)
        again = (
            _left_of(tried, sample, count, source.group).take(counted)._replace(known=left.known)
        )  # noise(x) is to be learned
        tried = tried._replace(noise=choice.learn(again)._replace(base=tried.needed_noise.base))
        after = judge(tried)
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
    return best._replace(noise=noise._replace(base=had.base, constant=had.constant))


def _agreed(rng: np.random.Generator, group: Group) -> np.random.Generator:
    """A generator that draws the same in all processes of a group; those that hold out rows of their own differ."""
    if group.world == 1:
        return rng
    (seed,) = group.first([torch.tensor(float(rng.integers(2**31)), dtype=torch.float64)])
    return np.random.default_rng(int(seed))


def _left_of(fit: NoiseFit, sample: Rows[Tensor] | None, count: int, group: Group) -> Residuals:
    """What is left of rows of a fit when others predict them: of late rows with neighbours, otherwise of a sample."""
    if fit.kept is not None:
        return residuals_given_neighbours(fit.report.model, fit.kept, count, group)
    assert sample is not None, "drawn where no rows are consulted"
    return residuals_of(fit.report.model, fit.report.statistics, _weighed(sample, fit.noise))


def _weighed(rows: Rows[Tensor], noise: InputNoise | None) -> Rows[Tensor]:
    """Rows with the noise that a fit gave them: none of its own where it has one level for all."""
    return rows if noise is None or not bool(noise.base > 0.0) else add_noise(rows, noise.beyond_base)


class _Judgement(NamedTuple):
    """How likely rows were that had no part in their prediction."""

    rows: Residuals
    densities: Tensor  # [n]

    @property
    def square(self) -> Tensor:
        """Squared errors `[n]`."""
        return self.rows.square.mean(1)


class _Judge:
    """Judges a fit by rows that had no part in their prediction.

    With neighbours these are late rows given earlier ones. Otherwise the coreset of the fit is solved for with four
    fifths of a sample, and the others are predicted. Rows that are left out one by one would not do here: where some
    count far more than others, what is left of them says little.
    """

    def __init__(self, sample: Rows[Tensor] | None, count: int, rng: np.random.Generator, group: Group) -> None:
        self.count, self.group = count, group
        self.parts: tuple[Rows[Tensor], Rows[Tensor]] | None = None
        self.known: Tensor | None = None
        if sample is not None:
            order = torch.as_tensor(rng.permutation(len(sample.x)), device=sample.x.device)
            first = math.ceil(SEEN_SHARE * len(order))
            self.parts = sample.take(order[:first]), sample.take(order[first:])

    @torch.no_grad()
    def __call__(self, fit: NoiseFit) -> _Judgement:
        model, noise = fit.report.model, fit.needed_noise
        if fit.kept is not None:
            left = residuals_given_neighbours(model, fit.kept, self.count, self.group)
        else:
            assert self.parts is not None, "drawn where no rows are consulted"
            seen, new = self.parts
            found, _ = statistics_and_gain(model, [_weighed(seen, noise)])
            left = residuals_of(model, found, new, are_new=True)
        if self.known is None:
            self.known = left.known  # of a first fit, which weighs no row by its noise
        total = noise.f_factor(left.f_var) * left.f_var + noise.variance(left.x) + self.known
        return _Judgement(left, noise.tails.log_density(left.square, total[:, None])[0].mean(1))


class _Weighing:
    """Solves for the coreset of a fit again, with the noise of each row."""

    def __init__(self, report: FitReport, kept: NeighbourRows | None, source: DataSource, settings: Settings) -> None:
        self.report, self.kept, self.source = report, kept, source
        self.is_exact = kept is None and holds_the_data(report.model, source)
        self.tight = reports_tight_bound(settings.bound, report.solver)
        self.power = settings.power if settings.bound == "power" else None
        self.near: Tensor | None = None
        if kept is not None:
            index = RowIndex(report.model.kernel, kept.rows.x)
            self.near = near_own_part(index, kept.num_neighbours, source.group)

    def is_in_time(self, watch: Watch) -> bool:
        """Whether there is time for a pass over the rows."""
        if watch.max_time is None:
            return True
        size, per_row = len(self.report.model.X_c), 0 if self.kept is None else self.kept.num_neighbours + 1
        seconds = self.source.num_rows * size * (POINT_SECONDS * size + NEIGHBOUR_SECONDS * per_row)
        return watch.seconds + seconds < watch.max_time

    @torch.no_grad()
    def __call__(self, fit: NoiseFit, x: Tensor) -> NoiseFit:
        """The same kernel and pseudo-inputs, with rows that have the noise of a fit; x are some of them."""
        model, noise = deepcopy(self.report.model), fit.needed_noise
        # The constant becomes the lowest noise of all, so that each row has something beyond it.
        lowest = torch.maximum(noise.lowest.exp(), SMALLEST_NOISE * noise.variance(x).median())
        multiply_inside(model.likelihood.noise_covar, "noise", lowest / model.noise)
        noise = noise._replace(base=model.noise.detach().clone())
        if self.kept is not None:
            rows = add_noise(self.kept.rows, noise.beyond_base)
            kept, bound = adopt_neighbours(
                model, rows, self.kept.num_neighbours, near=self.near, group=self.source.group
            )
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
