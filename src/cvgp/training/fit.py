"""One fit from a starting model to a finished one: plan, maximise, close."""

import math
import os
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.errors import CVGPWarning, FactorisationError
from cvgp.gp.bounds import Statistics, solve_titsias, whitener
from cvgp.gp.hyperparameters import release
from cvgp.gp.model import CVGP
from cvgp.host import reused_memory
from cvgp.objectives.full_batch import (
    CHUNK_ROWS,
    TitsiasObjective,
    chunk_work,
    full_bound,
    statistics,
    statistics_and_gain,
)
from cvgp.optim.stopping import Result, Status
from cvgp.threads import threads_for
from cvgp.training.checkpoint import Checkpoint, open_checkpoint
from cvgp.training.closing_time import estimated, plan_close
from cvgp.training.densities import ROWS_COMPARED, compare
from cvgp.training.maximise import maximise_by_lbfgs
from cvgp.training.minibatches import fit_adam
from cvgp.training.monitor import Watch
from cvgp.training.neighbour_rows import Walk
from cvgp.training.plan import Plan, Settings, evaluation_seconds, make_plan
from cvgp.training.small_data import exact_bound, fit_exact, holds_the_data, smaller_coreset

UNTRAINED = "closed form"
"""The solver of a coreset that is not trained."""

CLEARLY_WORSE = 0.05
"""Nats per row; a few first steps may well cost less than that."""

LONGEST_POLISH = 1500
"""Evaluations of L-BFGS after Adam where a time limit says when to stop."""


class FitReport(NamedTuple):
    """What a fit did."""

    model: CVGP
    """The model that was given, or one with a smaller coreset."""
    solver: str
    bound: float
    """Total nats in the model's units; of power EP its estimate, which is no bound."""
    result: Result
    statistics: Statistics
    """Of all rows, at the model's kernel and pseudo-inputs."""
    walk: Walk | None = None
    """What rows said in their order, where neighbours are consulted."""


def fit_from_start(
    begin: Callable[[str | None], CVGP],
    source: DataSource,
    settings: Settings,
    watch: Watch,
    *,
    checkpoint_dir: str | None = None,
    validation: DataSource | None = None,
    summary_rng: np.random.Generator | None = None,
) -> FitReport:
    """Begin and train a model; where a constant or a line does better, begin once more from elsewhere.

    `begin` is told the folder of the checkpoint, in which its start may be stored.

    The better of the two is kept. If a simpler model is still ahead, a ``ConvergenceWarning`` says so. A user who has
    set `max_iter` has said what ends the fit, and gets that. A model whose pseudo-inputs require no gradient is solved
    for where it begins.
    """

    def fit(folder: str | None) -> FitReport:
        model = begin(folder)
        if not model.X_c.requires_grad:
            return _solve_untrained(model, source, settings)
        options: dict[str, Any] = {"validation": validation, "summary_rng": summary_rng}
        return fit_model(model, source, settings, watch, checkpoint_dir=folder, **options)

    report = fit(checkpoint_dir)
    if settings.max_iter is not None or report.result.status is Status.INTERRUPTED:
        return report
    compared = watch.some_of(ROWS_COMPARED)
    verdict = compare(report.model, source, compared)
    folder = None if checkpoint_dir is None else os.path.join(checkpoint_dir, "restart")
    is_stored = folder is not None and watch.group.first_bytes(b"1" if os.path.isdir(folder) else b"") == b"1"
    if not verdict.is_good and (watch.time_used() < 0.5 or is_stored):
        again = fit(folder)
        second = compare(again.model, source, compared)
        if second.fit > verdict.fit:
            report, verdict = again, second
    if not verdict.is_good:
        warnings.warn(
            f"{verdict}. Give it more time or pseudo-points, another kernel, or look for extreme values in X and y.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return report


def reports_tight_bound(bound: str, solver: str) -> bool:
    """Whether the bound of a finished fit is the tighter one, by the user's choice of a bound and the solver's name."""
    return bound == "tight" or (bound == "auto" and ("lbfgs" in solver or solver == UNTRAINED))


def _solve_untrained(model: CVGP, source: DataSource, settings: Settings) -> FitReport:
    """A coreset whose points are too many to train."""
    report = close_at_start(model, source, replace(settings, bound="tight"))
    model.X_c.requires_grad_(True)
    return report._replace(solver=UNTRAINED)


@reused_memory()
def close_at_start(model: CVGP, source: DataSource, settings: Settings) -> FitReport:
    """The best coreset at the kernel, noise and pseudo-inputs of a start, in place and without training."""
    plan = make_plan(settings, source.num_rows, *model.X_c.shape)
    with threads_for(chunk_work(len(model.X_c), source.num_rows)):
        found, bound = _close(model, source, plan, settings, None, solve=True)
    return FitReport(model, "", bound, Result(Status.CONVERGED, -bound, 0), found)


@reused_memory()
@torch.enable_grad()  # also for a caller that has switched gradients off
def fit_model(
    model: CVGP,
    source: DataSource,
    settings: Settings,
    watch: Watch,
    *,
    checkpoint_dir: str | None = None,
    validation: DataSource | None = None,
    summary_rng: np.random.Generator | None = None,
) -> FitReport:
    """Train the model in place on a float64 source; early stopping needs validation data.

    A coreset that is the data itself becomes smaller after the fit if `summary_rng` is given and fewer points suffice.
    """
    plan = make_plan(settings, source.num_rows, *model.X_c.shape)
    watch.meet()
    # A fit that can go on later is closed whole, so that what it has learned is not lost to a shorter limit.
    to_read = None if watch.max_time is None or checkpoint_dir is not None else plan_close(model, source, watch)
    is_exact = plan.solver == "lbfgs" and holds_the_data(model, source)
    with open_checkpoint(checkpoint_dir, model, source, settings, watch) as checkpoint:
        if is_exact:
            name = "lbfgs"
            result = fit_exact(model, source, watch, checkpoint, max_evaluations=plan.max_iter, tol=settings.tol)
        else:
            name, result = _maximise(model, source, plan, settings, watch, checkpoint, validation)
    release(model.kernel, model.likelihood)
    smaller = smaller_coreset(model, source, summary_rng) if is_exact and summary_rng is not None else None
    model = model if smaller is None else smaller
    solve = plan.solve_at_end and (not is_exact or smaller is not None)
    with threads_for(chunk_work(len(model.X_c), source.num_rows)):
        found, bound = _close(model, source, plan, settings, to_read, solve=solve, is_exact=is_exact and not smaller)
    return FitReport(model, name, bound, result, found)


def _maximise(
    model: CVGP,
    source: DataSource,
    plan: Plan,
    settings: Settings,
    watch: Watch,
    checkpoint: Checkpoint | None,
    validation: DataSource | None,
) -> tuple[str, Result]:
    """The names of the solvers that were used, and how the last of them ended."""

    def lbfgs(evaluations: int, *, tight: bool) -> Result:
        objective = TitsiasObjective(
            model,
            lambda: source.chunks(CHUNK_ROWS),
            source.local_rows,
            tight=tight,
            power=plan.power,
            group=source.group,
        )
        return maximise_by_lbfgs(
            objective,
            source.total_weight,
            watch,
            max_evaluations=evaluations,
            tol=settings.tol,
            group=source.group,
            checkpoint=checkpoint,
        )

    if plan.solver == "lbfgs":
        if checkpoint is None and _has_no_time(model, source, watch):
            # The best coreset at the start is what there is time for.
            return "lbfgs", Result(Status.TIME_LIMIT, math.inf, 0)
        return "lbfgs", lbfgs(plan.max_iter, tight=plan.tight)
    some = source.sample(watch.some_of(CHUNK_ROWS), np.random.default_rng(settings.seed))
    keep_better = _keeping_better(model, some, source.total_weight, plan)
    result = fit_adam(model, source, plan, settings, watch, checkpoint, validation)
    if plan.solve_at_end:
        keep_better()
    is_stored = checkpoint is not None and checkpoint.has_journal
    has_no_time = watch.time_used() >= 1.0 or _has_no_time(model, source, watch)
    if not plan.polish or result.status is Status.INTERRUPTED or (has_no_time and not is_stored):
        return "adam", result
    # Without a limit it stops where most of the gain is made; with one, where nothing more is gained or time is up.
    evaluations = plan.polish if watch.max_time is None else LONGEST_POLISH
    polished = lbfgs(evaluations, tight=plan.polish_tight)
    return "adam+lbfgs", polished._replace(num_iter=result.num_iter + polished.num_iter)


def _has_no_time(model: CVGP, source: DataSource, watch: Watch) -> bool:
    """Whether even one evaluation on all rows would take longer than there is."""
    return watch.pace * evaluation_seconds(source.num_rows, *model.X_c.shape) > watch.left


def _keeping_better(model: CVGP, rows: Rows[Tensor], total_weight: float, plan: Plan) -> Callable[[], None]:
    """Remember the model; what is returned goes back to it if training has made it worse, and says so.

    It is judged by priors and by the bound of some rows that count as all rows do. Of these rows alone, the bound would
    prefer a simpler model than all of them can teach.
    """
    before = [p.detach().clone() for p in model.parameters()]
    factor = total_weight / (len(rows.x) if rows.sample_weight is None else rows.sample_weight.sum().item())

    @torch.no_grad()
    def bound_per_row() -> float:
        found = statistics(model, [rows], power=plan.power).times(factor)
        bound = solve_titsias(found, whitener(model.jittered_covariance())).value + model.log_prior()
        return bound.item() / total_weight

    value = bound_per_row()

    @torch.no_grad()
    def keep_better() -> None:
        with suppress(FactorisationError):
            if bound_per_row() >= value - CLEARLY_WORSE:
                return
        for parameter, old in zip(model.parameters(), before, strict=True):
            parameter.copy_(old)
        warnings.warn(
            "Adam ended with a lower bound than it began with, so the fit went back to its start. A smaller "
            "learning_rate may do better.",
            CVGPWarning,
            stacklevel=2,
        )

    return keep_better


def _close(
    model: CVGP,
    source: DataSource,
    plan: Plan,
    settings: Settings,
    to_read: int | None,
    *,
    solve: bool,
    is_exact: bool = False,
) -> tuple[Statistics, float]:
    """Gather the statistics of all rows, set the coreset to its optimum where that is asked for, and take the bound."""
    tight = plan.tight or plan.polish_tight
    if to_read is None:
        found, gain = statistics_and_gain(model, source.chunks(CHUNK_ROWS), source.group, power=plan.power)
    else:
        found, gain = estimated(model, source, plan, to_read, np.random.default_rng(settings.seed))
    if solve:
        bound = model.adopt_optimum(found).item() + (gain if tight else 0.0)
    elif is_exact:
        bound = exact_bound(model, source)
    else:
        bound = full_bound(
            model, source.chunks(CHUNK_ROWS), source.num_rows, tight=tight, power=plan.power, group=source.group
        )
    # A weight of one is to stand for the harmonic mean of the total noise of the rows.
    model.set_site_noise_offset(source.harmonic_noise(model.noise.item()) - model.noise.item())
    return found, bound
