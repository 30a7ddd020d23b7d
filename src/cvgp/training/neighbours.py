"""A fit whose predictions may consult the nearest rows: whether they help, and with which kernel, is judged.

After an ordinary fit, kernel and noise are refined for neighbours. The refined and the unrefined kernel, each with
neighbours, and the coreset alone are compared by the density of rows that no prediction of them has seen: rows late in
a random order given earlier ones, and rows left out of the coreset.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.gp.bounds import Statistics
from cvgp.gp.model import CVGP
from cvgp.gp.neighbours.conditional_densities import moments_given
from cvgp.gp.neighbours.decorrelated import gather_decorrelated
from cvgp.gp.neighbours.global_part import global_part
from cvgp.gp.neighbours.search import RowIndex
from cvgp.gp.tails import normal
from cvgp.optim.stopping import Progress
from cvgp.training.densities import is_clearly_better, weighted_mean
from cvgp.training.fit import FitReport, fit_from_start
from cvgp.training.monitor import Watch
from cvgp.training.neighbour_rows import NeighbourRows, adopt_neighbours, in_random_order, ordered, whitened
from cvgp.training.plan import Settings
from cvgp.training.refine import PHASE, refine_kernel
from cvgp.training.residuals import residuals_of

Neighbors = int | Literal["auto"]

MOST_ROWS = 200_000
"""Beyond this many rows the search for neighbours would take longer than the fit, and a model file would be large."""
LEAST_ROWS = 200
"""With fewer rows nothing can be said of the use of neighbours, and the exact GP is as cheap."""
DEFAULT_COUNT = 20
FITTED = "kernel of the fit"
JUDGED_ROWS, JUDGED_SHARE = 2000, 0.25
ROWS_FOR_U, ROWS_FOR_U_PER_POINT = 20_000, 100
"""Rows, before those that are judged, from which the coreset's part is known while kernels are compared. Too few judge
neighbours too harshly: on elevators, M = 200, 8000 of 12,900 cost .01 nats per row."""
STANDARD_ERRORS = 2.0
"""Neighbours are consulted if their gain is more than so many standard errors."""

ROW_SECONDS, PAIR_SECONDS = (2e-5, 3e-7), 2e-9
"""Of a row's statistics, once and per pseudo-point, and of the search per pair of rows: about."""
REFINING_SECONDS = 4.0
LARGEST_SHARE = 0.4
"""Of a time limit, what may be kept back for neighbours."""
USUAL_POINTS = 200


class Candidate(NamedTuple):
    """A kernel with neighbours, and how it did on late rows."""

    name: str
    model: CVGP
    densities: Tensor  # [n]
    late: Statistics  # of the rows from `start` on
    start: int


class Choice(NamedTuple):
    """What is said of it, and the model that is to consult neighbours, if any."""

    text: str
    model: CVGP | None = None
    statistics: Statistics | None = None
    """Of all rows given their neighbours, where they are known."""


def check_neighbors(neighbors: Any) -> Neighbors:
    """The parameter `neighbors`: a whole number of at least 0, or 'auto'."""
    if isinstance(neighbors, str) and neighbors == "auto":
        return "auto"
    if isinstance(neighbors, bool) or not isinstance(neighbors, int | np.integer):
        raise InvalidTypeError(
            "neighbors must be a whole number of rows that a prediction may consult, 0 for none, or 'auto'; "
            f"got {neighbors!r}."
        )
    if neighbors < 0:
        raise InvalidInputError(f"neighbors must be at least 0, or 'auto'; got {neighbors}. 0 is the coreset alone.")
    return int(neighbors)


def fit_with_neighbours(
    neighbors: Neighbors,
    begin: Callable[[str | None], CVGP],
    source: DataSource,
    settings: Settings,
    watch: Watch,
    **options: Any,
) -> tuple[FitReport, NeighbourRows | None]:
    """:func:`~cvgp.training.fit.fit_from_start`, and after it the rows that predictions consult, if any.

    Parameters
    ----------
    neighbors
        How many nearest rows; 0 is the fit alone, and ``"auto"`` takes 20 if they help.
    begin, source, settings, watch, options
        As for the fit.

    Raises
    ------
    InvalidInputError
        If a number of neighbours is asked for, and the rows are too many or not in the memory of one process.
    """
    if neighbors == 0:
        return fit_from_start(begin, source, settings, watch, **options), None
    reason = reason_against(source)
    if reason and neighbors != "auto":
        raise InvalidInputError(f"neighbors={neighbors} cannot be: {reason}. Use neighbors=0, or 'auto'.")
    reason = reason or (_reason_to_do_without(source, settings, watch) if neighbors == "auto" else "")
    kept_back = 0.0 if reason else _seconds_to_keep(source.num_rows, watch)
    with watch.shortened(kept_back):
        report = fit_from_start(begin, source, settings, watch, **options)
    if not reason and neighbors == "auto" and len(report.model.X_c) >= source.num_rows:
        reason = "every row is a pseudo-point"
    if reason or not isinstance(source, MemorySource):
        _report(watch, report, source, f"no neighbours: {reason}")
        return report, None
    rows = in_random_order(source.data, settings.seed)
    count = DEFAULT_COUNT if neighbors == "auto" else neighbors
    refined = _refined(report.model, rows, count, settings, watch)
    if refined is None and neighbors != "auto":
        chosen = Choice(f"{count} neighbours, {FITTED}", report.model)
    else:
        chosen = _choose(report, refined, rows, count, needed=neighbors != "auto")
    kept = None
    if chosen.model is not None:
        kept, bound = adopt_neighbours(chosen.model, rows, count, chosen.statistics)
        report = report._replace(model=chosen.model, bound=bound, statistics=kept.statistics)
    _report(watch, report, source, chosen.text)
    return report, kept


def reason_against(source: DataSource) -> str:
    """Why neighbours cannot be consulted at all; nothing where they can."""
    if source.group.world > 1:
        return "the rows are spread over a group of processes, and neighbours need them in one"
    if not isinstance(source, MemorySource):
        return "the table is read in parts, and neighbours need all rows in memory"
    if source.num_rows > MOST_ROWS:
        return f"there are {source.num_rows} rows, and neighbours are for at most {MOST_ROWS}"
    return ""


def _reason_to_do_without(source: DataSource, settings: Settings, watch: Watch) -> str:
    """Why neighbours are not worth a trial; nothing where they are."""
    if settings.solver == "paper":
        return "the paper's recipe has none"
    if source.num_rows < LEAST_ROWS:
        return f"{source.num_rows} rows are too few to judge them by"
    if watch.max_time is not None and _seconds(source.num_rows, USUAL_POINTS) > LARGEST_SHARE * watch.max_time:
        return "max_time leaves no time for them"
    return ""


def _choose(report: FitReport, refined: CVGP | None, rows: Rows[Tensor], count: int, *, needed: bool) -> Choice:
    """Compare the kernels, and the coreset alone unless neighbours are needed."""
    judged = rows.take(slice(_first_judged(len(rows.x)), None))
    models = {FITTED: report.model} if refined is None else {FITTED: report.model, "refined kernel": refined}
    candidates = [_judge(name, model, rows, count) for name, model in models.items()]
    best = max(candidates, key=lambda candidate: weighted_mean(candidate.densities, judged))
    left = residuals_of(report.model, report.statistics, judged)
    alone = _densities(report.model, left.square, left.f_var + left.known)
    found = {candidate.name: candidate.densities for candidate in candidates} | {"coreset alone": alone}
    listed = ", ".join(f"{weighted_mean(densities, judged):.3f} with the {name}" for name, densities in found.items())
    listed += " (nats per unseen row)"
    if not needed and not is_clearly_better(best.densities, alone, judged, errors=STANDARD_ERRORS):
        return Choice(f"no neighbours: {listed}")
    return Choice(f"{count} neighbours, {best.name}: {listed}", best.model, _all_statistics(best, rows, count))


@torch.no_grad()
def _judge(name: str, model: CVGP, rows: Rows[Tensor], count: int) -> Candidate:
    """The density of the last rows given rows before them: neighbours among all, and u from those just before."""
    N, first = len(rows.x), _first_judged(len(rows.x))
    start = max(first - max(ROWS_FOR_U, ROWS_FOR_U_PER_POINT * len(model.X_c)), 0)
    points, data = whitened(model), ordered(model, rows)
    near = RowIndex(model.kernel, rows.x).earlier(count, start)  # [N - start, k]
    before = data.take(torch.arange(first, device=rows.x.device))
    early = gather_decorrelated(points, before, near[: first - start], start)
    late = torch.arange(first, N, device=rows.x.device)
    given = moments_given(points, data, near[first - start :], global_part(early), late)
    square = (data.y[first:] - given.f_mean).square()
    known = 0.0 if rows.noise_variance is None else rows.noise_variance[first:]
    densities = _densities(model, square, given.f_var + known)
    return Candidate(
        name, model, densities, early.merge(gather_decorrelated(points, data, near[first - start :], first)), start
    )


@torch.no_grad()
def _all_statistics(chosen: Candidate, rows: Rows[Tensor], count: int) -> Statistics:
    """Those of the rows that had no part in the judgement too."""
    model, start = chosen.model, chosen.start
    if start == 0:
        return chosen.late
    before = rows.take(slice(start))
    near = RowIndex(model.kernel, before.x).earlier(count)
    return gather_decorrelated(whitened(model), ordered(model, before), near).merge(chosen.late)


def _refined(model: CVGP, rows: Rows[Tensor], count: int, settings: Settings, watch: Watch) -> CVGP | None:
    """The model with a kernel for neighbours; None where the user has set the length of the fit, or time is up.

    One who has set `max_iter` has said what ends the fit.
    """
    if settings.max_iter is not None or watch.stopped or len(rows.x) < LEAST_ROWS:
        return None
    begin = watch.seconds
    limit = math.inf if watch.max_time is None else watch.max_time
    seconds = limit - begin - _seconds(len(rows.x), len(model.X_c))
    if seconds <= 0.0:
        return None
    generator = torch.Generator().manual_seed(settings.seed)
    return refine_kernel(model, rows, count, watch, generator, lambda: (watch.seconds - begin) / seconds)


def _seconds(num_rows: int, size: int) -> float:
    """What judging two kernels and adopting one takes, about."""
    once, per_point = ROW_SECONDS
    return 2.0 * num_rows * (once + per_point * size + PAIR_SECONDS * num_rows)


def _seconds_to_keep(num_rows: int, watch: Watch) -> float:
    limit = math.inf if watch.max_time is None else watch.max_time
    return min(REFINING_SECONDS + _seconds(num_rows, USUAL_POINTS), LARGEST_SHARE * limit)


def _report(watch: Watch, report: FitReport, source: DataSource, choice: str) -> None:
    """Write the choice, with the bound per row that the fit ends with, into the history; callbacks see it too."""
    watch.begin(PHASE, 1)
    watch.observe(Progress(1, -report.bound / source.total_weight, math.nan, choice))


def _first_judged(num_rows: int) -> int:
    return num_rows - min(JUDGED_ROWS, math.ceil(JUDGED_SHARE * num_rows))


def _densities(model: CVGP, square: Tensor, variance: Tensor) -> Tensor:
    """The log density of each residual with the learned noise [n], the mean over outputs."""
    return normal(square).log_density(square, (variance + model.noise.detach())[:, None])[0].mean(1)
