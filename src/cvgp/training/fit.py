"""One fit from a starting model to a finished one: plan, maximise, close."""

import math
import os
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from cvgp.data.source import DataSource
from cvgp.gp.bounds import Statistics
from cvgp.gp.model import CVGP
from cvgp.host import reused_memory
from cvgp.objectives.full_batch import CHUNK_ROWS, TitsiasObjective, chunk_work, full_bound, statistics
from cvgp.optim.stopping import Result, Status
from cvgp.threads import threads_for
from cvgp.training.checkpoint import Checkpoint, open_checkpoint
from cvgp.training.maximise import maximise_by_lbfgs
from cvgp.training.minibatches import fit_adam
from cvgp.training.monitor import Watch
from cvgp.training.plan import Plan, Settings, make_plan
from cvgp.training.small_data import fit_exact, holds_the_data, smaller_coreset
from cvgp.training.verdict import compare

__all__ = ["FitReport", "fit_from_start", "fit_model"]

LONGEST_POLISH = 1500
"""Evaluations of L-BFGS after Adam where a time limit says when to stop."""


class FitReport(NamedTuple):
    """What a fit did."""

    model: CVGP
    """The model that was given, or one with a smaller coreset."""
    solver: str
    bound: float
    """Total nats in the model's units."""
    result: Result
    statistics: Statistics
    """Of all rows, at the model's kernel and pseudo-inputs."""


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
    set `max_iter` has said what ends the fit, and gets that.
    """
    report = fit_model(
        begin(checkpoint_dir),
        source,
        settings,
        watch,
        checkpoint_dir=checkpoint_dir,
        validation=validation,
        summary_rng=summary_rng,
    )
    if settings.max_iter is not None or report.result.status is Status.INTERRUPTED:
        return report
    verdict = compare(report.model, source)
    folder = None if checkpoint_dir is None else os.path.join(checkpoint_dir, "restart")
    is_stored = folder is not None and watch.group.first_bytes(b"1" if os.path.isdir(folder) else b"") == b"1"
    if not verdict.is_good and (watch.time_used() < 0.5 or is_stored):
        again = fit_model(
            begin(folder),
            source,
            settings,
            watch,
            checkpoint_dir=folder,
            validation=validation,
            summary_rng=summary_rng,
        )
        second = compare(again.model, source)
        if second.fit > verdict.fit:
            report, verdict = again, second
    if not verdict.is_good:
        warnings.warn(
            f"{verdict}. Give it more time or pseudo-points, another kernel, or look for extreme values in X and y.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return report


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
    plan = make_plan(settings, source.num_rows, len(model.X_c))
    watch.meet()
    is_exact = plan.solver == "lbfgs" and holds_the_data(model, source)
    with open_checkpoint(checkpoint_dir, model, source, settings, watch) as checkpoint:
        if is_exact:
            name = "lbfgs"
            result = fit_exact(model, source, watch, checkpoint, max_evaluations=plan.max_iter, tol=settings.tol)
        else:
            name, result = _maximise(model, source, plan, settings, watch, checkpoint, validation)
    smaller = smaller_coreset(model, source, summary_rng) if is_exact and summary_rng is not None else None
    model = model if smaller is None else smaller
    with threads_for(chunk_work(len(model.X_c), source.num_rows)):
        found, bound = _close(model, source, plan, solve=plan.solve_at_end and (not is_exact or smaller is not None))
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
            model, lambda: source.chunks(CHUNK_ROWS), source.local_rows, tight=tight, group=source.group
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
        return "lbfgs", lbfgs(plan.max_iter, tight=plan.tight)
    result = fit_adam(model, source, plan, settings, watch, checkpoint, validation)
    is_stored = checkpoint is not None and checkpoint.has_journal
    if not plan.polish or result.status is Status.INTERRUPTED or (watch.time_used() >= 1.0 and not is_stored):
        return "adam", result
    # Without a limit it stops where most of the gain is made; with one, where nothing more is gained or time is up.
    evaluations = plan.polish if watch.max_time is None else LONGEST_POLISH
    polished = lbfgs(evaluations, tight=plan.polish_tight)
    return "adam+lbfgs", polished._replace(num_iter=result.num_iter + polished.num_iter)


def _close(model: CVGP, source: DataSource, plan: Plan, *, solve: bool) -> tuple[Statistics, float]:
    """Gather the statistics of all rows, set the coreset to its optimum where that is asked for, and take the bound."""
    found = statistics(model, source.chunks(CHUNK_ROWS), source.group)
    bound = model.adopt_optimum(found).item() if solve else math.nan
    tight = plan.tight or plan.polish_tight
    if tight or not solve:  # a pass over all rows, which large data are better spared
        bound = full_bound(model, source.chunks(CHUNK_ROWS), source.num_rows, tight=tight, group=source.group)
    # A weight of one is to stand for the harmonic mean of the total noise of the rows.
    model.set_site_noise_offset(source.harmonic_noise(model.noise.item()) - model.noise.item())
    return found, bound
