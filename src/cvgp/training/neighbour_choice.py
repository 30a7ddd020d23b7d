"""Whether neighbours help, and with which kernel: judged by the density of rows that no prediction has seen.

With neighbours, rows late in a random order are predicted from earlier ones. The coreset alone predicts the same rows
with each left out in turn. What is left of them is taken for noise whose level and tails other judged rows imply: by
normal tails, a few wild rows would decide.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.gp.model import CVGP
from cvgp.parallel.group import ALONE, Group
from cvgp.training.densities import constant_density, is_clearly_better, line_density, weighted_mean
from cvgp.training.fit import FitReport
from cvgp.training.neighbour_rows import Walk, find_near, late_residuals, walk
from cvgp.training.noise_learning import densities_by_level
from cvgp.training.residuals import residuals_of

JUDGED_ROWS, JUDGED_SHARE = 2000, 0.25
STANDARD_ERRORS = 2.0
"""Neighbours are consulted if their gain is more than so many standard errors."""


class Candidate(NamedTuple):
    """A kernel with neighbours, and how it did on late rows."""

    name: str
    model: CVGP
    densities: Tensor  # [n]
    walk: Walk


class Choice(NamedTuple):
    """Which model is to consult neighbours, if any, and why."""

    reason: str
    candidate: Candidate | None = None
    is_good: bool = True
    """Whether neither a constant nor a line is better than the best candidate."""


def choose(report: FitReport, candidates: list[Candidate], rows: Rows[Tensor], *, needed: bool) -> Choice:
    """The best candidate, or the coreset alone if neighbours are not needed and do not clearly help.

    Parameters
    ----------
    report
        The fit of the coreset alone.
    candidates
        Models with neighbours, at least one.
    rows
        All rows, in the order in which each is conditioned on those before it.
    needed
        Whether the user asks for neighbours.
    """
    judged, alone = _alone(report, rows)
    found = {candidate.name: candidate.densities for candidate in candidates} | {"coreset alone": alone}
    means = {name: weighted_mean(densities, judged) for name, densities in found.items()}
    listed = ", ".join(f"{mean:.3f} with the {name}" for name, mean in means.items()) + " (nats per unseen row)"
    best = max(candidates, key=lambda candidate: means[candidate.name])
    is_taken = needed or is_clearly_better(best.densities, alone, judged, errors=STANDARD_ERRORS)
    is_good = means[best.name] >= max(constant_density(judged), line_density(judged))
    return Choice(listed, best if is_taken else None, is_good)


def is_clearly_ahead(report: FitReport, candidate: Candidate, rows: Rows[Tensor]) -> bool:
    """Whether the coreset alone is clearly better than a candidate.

    Neighbours with another kernel are then not worth the time of a trial: the candidate's was learned for them.
    """
    judged, alone = _alone(report, rows)
    return is_clearly_better(alone, candidate.densities, judged, errors=STANDARD_ERRORS)


def _alone(report: FitReport, rows: Rows[Tensor]) -> tuple[Rows[Tensor], Tensor]:
    """The rows that are judged, and their densities by the coreset alone."""
    judged = rows.take(slice(_first_judged(len(rows.x)), None))
    return judged, densities_by_level(report.model, residuals_of(report.model, report.statistics, judged))


@torch.no_grad()
def judge(name: str, model: CVGP, rows: Rows[Tensor], count: int, group: Group = ALONE) -> Candidate:
    """The density of the last rows, each given all rows before it: its neighbours directly, and others through u.

    The processes of a group share the rows for u, which are most of the work.
    """
    found = walk(model, rows, find_near(model, rows.x, count, group), group)
    residuals = late_residuals(model, rows, found, len(rows.x) - _first_judged(len(rows.x)))
    return Candidate(name, model, densities_by_level(model, residuals), found)


def _first_judged(num_rows: int) -> int:
    return num_rows - min(JUDGED_ROWS, math.ceil(JUDGED_SHARE * num_rows))
