"""A fit whose predictions may consult the nearest rows.

Kernel and noise are refined for neighbours from the start of the fit, before a coreset is trained. Where neighbours
are then clearly better than the coreset at its start, it stays where it is: its places matter little beside them,
and training it takes most of the time of a fit. Otherwise it is trained, and the two are compared again.

In a group of processes each holds all rows. They refine the kernel alike, and share the work of the statistics.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.gp.model import CVGP
from cvgp.optim.stopping import Progress
from cvgp.parallel.group import Group
from cvgp.training.fit import FitReport, close_at_start, fit_from_start
from cvgp.training.monitor import Watch
from cvgp.training.neighbour_choice import Candidate, Choice, choose, is_clearly_ahead, judge
from cvgp.training.neighbour_rows import NeighbourRows, adopt_neighbours, all_statistics, in_random_order
from cvgp.training.plan import Settings
from cvgp.training.refine import PHASE, Refined, refine_kernel

Neighbors = int | Literal["auto"]

MOST_ROWS = 300_000
"""Beyond this many rows the search for neighbours, which grows with the square of the rows, would take many minutes."""
LEAST_ROWS = 200
"""With fewer rows nothing can be said of the use of neighbours, and the exact GP is as cheap."""
DEFAULT_COUNT = 20

ROW_SECONDS, PAIR_SECONDS = (2e-5, 3e-7), 2e-9
"""Of a row's statistics, once and per pseudo-point, and of the search per pair of rows: about."""
REFINING_SECONDS = 4.0
LARGEST_SHARE = 0.4
"""Of a time limit, what may be kept back for neighbours."""


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
        How many nearest rows; 0 is the fit alone, and ``"auto"`` takes 20 if they help. It is the fit alone too where
        the settings say how the coreset is to be trained.
    begin, source, settings, watch, options
        As for the fit.

    Raises
    ------
    InvalidInputError
        If a number of neighbours is asked for, and the rows are too many or not in memory.
    """
    if neighbors == 0 or (neighbors == "auto" and not settings.leaves_training_open):
        return fit_from_start(begin, source, settings, watch, **options), None
    reason = reason_against(source)
    if reason and neighbors != "auto":
        raise InvalidInputError(f"neighbors={neighbors} cannot be: {reason}. Use neighbors=0, or 'auto'.")
    started = begin(options.get("checkpoint_dir"))
    begin = _beginning_with(started, begin)
    reason = reason or (_reason_to_do_without(started, source, watch) if neighbors == "auto" else "")
    is_exact = len(started.X_c) >= source.num_rows
    if is_exact and neighbors == "auto":
        reason = reason or "it was fitted as an exact GP, in which each row knows all others"
    if reason or not isinstance(source, MemorySource):
        report = fit_from_start(begin, source, settings, watch, **options)
        _report(watch, report, source, f"no neighbours: {reason}")
        return report, None
    is_needed, count = neighbors != "auto", DEFAULT_COUNT if neighbors == "auto" else neighbors
    rows, candidates, group = in_random_order(source.data, settings.seed), list[Candidate](), source.group
    if settings.leaves_training_open and not is_exact:
        report = close_at_start(deepcopy(started), source, settings)
        refined = _refined(report.model, rows, count, settings, watch)
        if refined is not None:
            candidates = [judge("refined kernel", refined.model, rows, count, group)]
            chosen = choose(report, candidates, rows, needed=is_needed)
            if chosen.candidate is not None and chosen.is_good:
                report = report._replace(solver=PHASE, result=refined.result)
                return _adopt(report, chosen, rows, count, source, watch)
            settings = replace(settings, is_brief=chosen.is_good)
    with watch.shortened(_seconds_to_keep(started, source, watch, is_refined=bool(candidates))):
        report = fit_from_start(begin, source, settings, watch, **options)
    if not candidates:
        refined = _refined(report.model, rows, count, settings, watch)
        candidates = [] if refined is None else [judge("refined kernel", refined.model, rows, count, group)]
    has_time = _seconds(len(rows.x), len(report.model.X_c), watch) / 2.0 <= watch.left
    if not candidates or is_needed or (has_time and not is_clearly_ahead(report, candidates[0], rows)):
        candidates.append(judge("kernel of the fit", report.model, rows, count, group))
    return _adopt(report, choose(report, candidates, rows, needed=is_needed), rows, count, source, watch)


def _adopt(
    report: FitReport, chosen: Choice, rows: Rows[Tensor], count: int, source: DataSource, watch: Watch
) -> tuple[FitReport, NeighbourRows | None]:
    """The report of the model that was chosen, and the rows that it consults, if any."""
    kept = None
    if chosen.candidate is not None:
        model, walk = chosen.candidate.model, chosen.candidate.walk
        kept, bound = adopt_neighbours(model, rows, count, all_statistics(model, rows, walk, source.group))
        report = report._replace(model=model, bound=bound, statistics=kept.statistics, walk=walk)
    _report(watch, report, source, f"{'no' if kept is None else count} neighbours: {chosen.reason}")
    return report, kept


def _beginning_with(started: CVGP, begin: Callable[[str | None], CVGP]) -> Callable[[str | None], CVGP]:
    """`begin`, of which the first start is known."""
    known = [started]
    return lambda folder: known.pop() if known else begin(folder)


def reason_against(source: DataSource) -> str:
    """Why neighbours cannot be consulted at all; nothing where they can."""
    if not isinstance(source, MemorySource):
        return "the table is read in parts, and neighbours need all rows in memory"
    if source.num_rows > MOST_ROWS:
        return f"there are {source.num_rows} rows, and neighbours are for at most {MOST_ROWS}"
    return ""


def _reason_to_do_without(started: CVGP, source: DataSource, watch: Watch) -> str:
    """Why neighbours are not worth a trial; nothing where they are."""
    if source.num_rows < LEAST_ROWS:
        return f"{source.num_rows} rows are too few to judge them by"
    if watch.max_time is not None:
        seconds = _seconds(source.num_rows, len(started.X_c), watch)
        if seconds > LARGEST_SHARE * watch.max_time or 2.0 * seconds > watch.left:
            return "max_time leaves no time for them"
    return ""


def _refined(model: CVGP, rows: Rows[Tensor], count: int, settings: Settings, watch: Watch) -> Refined | None:
    """The model with a kernel for neighbours; None where the user has set the length of the fit, or time is up.

    One who has set `max_iter` has said what ends the fit.
    """
    if settings.max_iter is not None or watch.stopped or len(rows.x) < LEAST_ROWS:
        return None
    begin = watch.seconds
    limit = math.inf if watch.max_time is None else watch.max_time
    seconds = min(limit - begin - _seconds(len(rows.x), len(model.X_c), watch), LARGEST_SHARE * limit)
    if seconds <= 0.0:
        return None
    generator = torch.Generator().manual_seed(settings.seed)

    def time_used() -> float:
        return (watch.seconds - begin) / seconds

    refined = refine_kernel(model, rows, count, watch, generator, time_used, settings.tol)
    if refined is not None:
        _take_from_the_first(refined.model, watch.group)
    return refined


@torch.no_grad()
def _take_from_the_first(model: CVGP, group: Group) -> None:
    """Give all processes the same bits, whatever rounding did to the same steps."""
    parameters = list(model.parameters())
    for parameter, value in zip(parameters, group.first([p.detach() for p in parameters]), strict=True):
        parameter.copy_(value)


def _seconds(num_rows: int, size: int, watch: Watch) -> float:
    """What judging two kernels and adopting one takes, about."""
    once, per_point = ROW_SECONDS
    return 2.0 * watch.pace * num_rows * (once + per_point * size + PAIR_SECONDS * num_rows)


def _seconds_to_keep(started: CVGP, source: DataSource, watch: Watch, *, is_refined: bool) -> float:
    """Of a time limit, what neighbours may need after the fit; less where a kernel for them is known."""
    limit = math.inf if watch.max_time is None else watch.max_time
    seconds = _seconds(source.num_rows, len(started.X_c), watch)
    return min(seconds if is_refined else REFINING_SECONDS + seconds, LARGEST_SHARE * limit)


def _report(watch: Watch, report: FitReport, source: DataSource, choice: str) -> None:
    """Write the choice, with the bound per row that the fit ends with, into the history; callbacks see it too."""
    watch.begin(PHASE, 1)
    watch.observe(Progress(1, -report.bound / source.total_weight, math.nan, choice))
