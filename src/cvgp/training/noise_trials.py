"""A finished fit with the noise of each row: solved for again, and judged by rows that had no part in their prediction.

There are three ways, by what a prediction consults: the coreset, all rows (an exact GP), or a coreset and the nearest
rows. Kernel and pseudo-inputs stay as they are in all of them.
"""

import math
from copy import deepcopy
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from cvgp.data.arrays import MemorySource
from cvgp.data.extra_noise import add_noise, with_extra_noise
from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.gp.bounds import solve_titsias
from cvgp.gp.hyperparameters import multiply_inside
from cvgp.gp.input_noise import InputNoise
from cvgp.gp.model import CVGP
from cvgp.objectives.full_batch import CHUNK_ROWS, statistics_and_gain
from cvgp.parallel.group import Group
from cvgp.threads import threads_for
from cvgp.training.fit import UNTRAINED, FitReport, reports_tight_bound
from cvgp.training.neighbour_rows import (
    NeighbourRows,
    adopt_neighbours,
    all_statistics,
    find_near,
    late_residuals,
    walk,
    whitened,
)
from cvgp.training.plan import Settings
from cvgp.training.residuals import Residuals, residuals_left_out, residuals_of, residuals_of_new
from cvgp.training.size_choice import rows_beside
from cvgp.training.small_data import all_rows, exact_bound, holds_the_data, take_observations

SEEN_SHARE = 0.8
ROWS_OF_A_ROUND = 100_000
"""Rows that a coreset is solved for with while its noise is tried; all of them once it is kept."""
SMALLEST_NOISE = 0.1
"""Of the median noise. A row that counts far more than others would leave them little to say, and could not be left out
to see what is left of it."""


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


class Left(NamedTuple):
    """What is left of rows of a fit."""

    to_learn_from: Residuals
    """Of rows that all others predict."""
    to_judge_by: Residuals
    """Of rows that had no part in their prediction.

    Rows that are left out one by one would not do here: where some count far more than others, what is left of them
    says little.
    """


class Trials(Protocol):
    """One way to solve for a fit with the noise of each row."""

    def left(self, fit: NoiseFit) -> Left:
        """What is left of the rows of a fit."""

    def weighed(self, fit: NoiseFit, x: Tensor) -> NoiseFit:
        """The same kernel and pseudo-inputs, with rows that have the noise of a fit; x are some of them."""

    def finished(self, fit: NoiseFit) -> NoiseFit:
        """The weighed fit that is kept, with the statistics of all rows."""


def trials_of(fit: NoiseFit, source: DataSource, settings: Settings, count: int, rng: np.random.Generator) -> Trials:
    """Those that suit a fit; of about `count` rows it is looked at what is left of them."""
    if fit.kept is not None:
        return _WithNeighbours(fit.report, fit.kept, count, source.group)
    if holds_the_data(fit.report.model, source):
        return _OfAllRows(fit.report, source, rng)
    return _OfCoreset(fit.report, source, settings, count, rng)


class _WithNeighbours:
    """Late rows, each predicted by all rows before it, serve for both."""

    def __init__(self, report: FitReport, kept: NeighbourRows, count: int, group: Group) -> None:
        self.kept, self.count, self.group = kept, count, group
        model = report.model
        self.model = model
        self.walk = report.walk or walk(
            model, kept.rows, find_near(model, kept.rows.x, kept.num_neighbours, group), group
        )

    def left(self, fit: NoiseFit) -> Left:
        assert fit.kept is not None, "a fit with neighbours stays one"
        found = late_residuals(fit.report.model, fit.kept.rows, fit.report.walk or self.walk, self.count)
        return Left(found, found)

    @torch.no_grad()
    def weighed(self, fit: NoiseFit, x: Tensor) -> NoiseFit:
        model, noise = _with_lowest_noise(self.model, fit.needed_noise, x)
        rows = add_noise(self.kept.rows, noise.beyond_base)
        found = walk(model, rows, self.walk.near, self.group)
        kept = self.kept._replace(rows=rows, statistics=found.statistics)
        walked = len(rows.x) - found.near.start
        value = solve_titsias(found.statistics, whitened(model).L_K_inv).value.item()
        report = fit.report._replace(
            model=model, bound=value * len(rows.x) / walked, statistics=found.statistics, walk=found
        )
        return NoiseFit(report, kept, noise)

    def finished(self, fit: NoiseFit) -> NoiseFit:
        assert fit.kept is not None, "a fit with neighbours stays one"
        assert fit.report.walk is not None, "it was weighed"
        model, rows = fit.report.model, fit.kept.rows
        found = all_statistics(model, rows, fit.report.walk, self.group)
        kept, bound = adopt_neighbours(model, rows, fit.kept.num_neighbours, found)
        return fit._replace(report=fit.report._replace(bound=bound, statistics=found), kept=kept)


class _OfAllRows:
    """An exact GP, of which everything follows from one factorisation."""

    def __init__(self, report: FitReport, source: DataSource, rng: np.random.Generator) -> None:
        self.model, self.source = report.model, source
        self.parts = _two_parts(all_rows(source), rng)

    def left(self, fit: NoiseFit) -> Left:
        model, noise = fit.report.model, fit.noise
        with threads_for(len(model.X_c) ** 3):
            left_out = residuals_left_out(model, _weighed(all_rows(self.source), noise))
            seen, new = self.parts
            return Left(left_out, residuals_of_new(model, _weighed(seen, noise), new))

    @torch.no_grad()
    def weighed(self, fit: NoiseFit, x: Tensor) -> NoiseFit:
        model, noise = _with_lowest_noise(self.model, fit.needed_noise, x)
        source = with_extra_noise(self.source, noise.beyond_base)
        take_observations(model, all_rows(source))
        with threads_for(len(model.X_c) ** 3):
            bound = exact_bound(model, source)
        _set_site_noise(model, source)
        return NoiseFit(fit.report._replace(model=model, bound=bound), None, noise)

    def finished(self, fit: NoiseFit) -> NoiseFit:
        source = with_extra_noise(self.source, fit.needed_noise.beyond_base)
        with threads_for(len(fit.report.model.X_c) ** 3):
            found, _ = statistics_and_gain(fit.report.model, source.chunks(CHUNK_ROWS), source.group)
        return fit._replace(report=fit.report._replace(statistics=found))


class _OfCoreset:
    """Rows of a sample are left out; to judge, the coreset is solved for with four fifths of them."""

    def __init__(
        self, report: FitReport, source: DataSource, settings: Settings, count: int, rng: np.random.Generator
    ) -> None:
        self.model, self.source = report.model, source
        self.tried = source
        if source.num_rows > ROWS_OF_A_ROUND and source.group.world == 1:
            self.tried = MemorySource(*source.sample(ROWS_OF_A_ROUND, rng))
        self.tight = reports_tight_bound(settings.bound, report.solver)
        self.power = settings.power if settings.bound == "power" else None
        sample = source.sample(count, rng)
        # What is left of a point that is a row says little of rows that are none.
        self.sample = rows_beside(sample, report.model.X_c) if report.solver == UNTRAINED else sample
        self.parts = _two_parts(self.sample, rng)

    @torch.no_grad()
    def left(self, fit: NoiseFit) -> Left:
        model, noise = fit.report.model, fit.noise
        seen, new = self.parts
        found, _ = statistics_and_gain(model, [_weighed(seen, noise)])
        return Left(
            residuals_of(model, fit.report.statistics, _weighed(self.sample, noise)),
            residuals_of(model, found, new, are_new=True),
        )

    @torch.no_grad()
    def weighed(self, fit: NoiseFit, x: Tensor) -> NoiseFit:
        model, noise = _with_lowest_noise(self.model, fit.needed_noise, x)
        return self._solved(fit, self.tried, model, noise)

    def _solved(self, fit: NoiseFit, source: DataSource, model: CVGP, noise: InputNoise) -> NoiseFit:
        """The best coreset for rows of the source, which count as all rows do."""
        source = with_extra_noise(source, noise.beyond_base)
        found, gain = statistics_and_gain(model, source.chunks(CHUNK_ROWS), source.group, power=self.power)
        if source.total_weight < self.source.total_weight:
            scale = self.source.total_weight / source.total_weight
            found, gain = found.times(scale), scale * gain
        bound = model.adopt_optimum(found).item() + (gain if self.tight else 0.0)
        _set_site_noise(model, source)
        return NoiseFit(fit.report._replace(model=model, bound=bound, statistics=found), None, noise)

    @torch.no_grad()
    def finished(self, fit: NoiseFit) -> NoiseFit:
        if self.tried is self.source:
            return fit
        return self._solved(fit, self.source, fit.report.model, fit.needed_noise)


def _with_lowest_noise(model: CVGP, noise: InputNoise, x: Tensor) -> tuple[CVGP, InputNoise]:
    """A copy whose constant is the lowest noise of all, so that each row has something beyond it."""
    model = deepcopy(model)
    lowest = torch.maximum(noise.lowest.exp(), SMALLEST_NOISE * noise.variance(x).median())
    multiply_inside(model.likelihood.noise_covar, "noise", lowest / model.noise)
    return model, noise._replace(base=model.noise.detach().clone())


def _weighed(rows: Rows[Tensor], noise: InputNoise | None) -> Rows[Tensor]:
    """Rows with the noise that a fit gave them: none of its own where it has one level for all."""
    return rows if noise is None or not bool(noise.base > 0.0) else add_noise(rows, noise.beyond_base)


def _two_parts(rows: Rows[Tensor], rng: np.random.Generator) -> tuple[Rows[Tensor], Rows[Tensor]]:
    """Rows that are seen, and rows to judge by."""
    order = torch.as_tensor(rng.permutation(len(rows.x)), device=rows.x.device)
    first = math.ceil(SEEN_SHARE * len(order))
    return rows.take(order[:first]), rows.take(order[first:])


def _set_site_noise(model: CVGP, source: DataSource) -> None:
    """Let a weight of one stand for the harmonic mean of the total noise of the rows."""
    model.set_site_noise_offset(source.harmonic_noise(model.noise.item()) - model.noise.item())
