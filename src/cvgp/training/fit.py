"""One fit from a starting model to a finished one: plan, solve, close."""

import math
from typing import NamedTuple

import numpy as np
import torch

from cvgp.data.source import DataSource
from cvgp.gp.bounds import Statistics
from cvgp.gp.model import CVGP
from cvgp.host import reused_memory
from cvgp.objectives.full_batch import CHUNK_ROWS, full_bound, statistics
from cvgp.optim.result import Result, Status
from cvgp.training.checkpoint import Checkpoint, fingerprint
from cvgp.training.cost import ADAM_STEPS, default_batch, evaluation_seconds
from cvgp.training.mirror import mirrored
from cvgp.training.monitor import Watch
from cvgp.training.settings import Settings
from cvgp.training.small_data import fit_exact, holds_the_data, summarise
from cvgp.training.solvers import Plan, fit_adam, fit_lbfgs

__all__ = ["FitReport", "fit_model", "make_plan"]

LBFGS_ROWS = 3000
"""Up to this many rows a full pass costs about as much as a minibatch, and L-BFGS needs fewer of them."""

LBFGS_EVALUATIONS = 200
FEWEST_POLISH_EVALUATIONS, POLISH_EVALUATIONS = 20, 150
POLISH_SECONDS = 30.0
"""The most that L-BFGS may take after Adam, on the machine of the cost model."""
LONGEST_POLISH = 1500
"""Evaluations of L-BFGS after Adam where a time limit says when to stop."""
LEARNING_RATE = 0.03
PAPER_LEARNING_RATE = 1e-3
PAPER_BATCH = 512
PAPER_EPOCHS = 100_000


class FitReport(NamedTuple):
    """What a fit did."""

    model: CVGP
    """The one that was given, or a smaller one that says the same."""
    solver: str
    bound: float
    """Total nats in the model's units."""
    result: Result
    statistics: Statistics
    """Of all rows, at the model's kernel and pseudo-inputs."""


def make_plan(settings: Settings, num_rows: int, size: int) -> Plan:
    """Decide what the settings leave open, from the number of rows and the size of the coreset."""
    paper = settings.solver == "paper"
    solver = "adam" if paper else settings.solver
    if solver == "auto":
        solver = "lbfgs" if num_rows <= LBFGS_ROWS and not settings.early_stopping else "adam"
    batch_size = settings.batch_size or (PAPER_BATCH if paper else default_batch(size))
    batch_size = min(batch_size, num_rows)
    if settings.max_iter is not None:
        max_iter = settings.max_iter
    elif paper:
        max_iter = PAPER_EPOCHS * max(num_rows // batch_size, 1)
    else:
        max_iter = LBFGS_EVALUATIONS if solver == "lbfgs" else ADAM_STEPS
    polish = polish_evaluations(num_rows, size) if solver != settings.solver == "auto" and solver == "adam" else 0
    if settings.early_stopping or settings.max_iter is not None:
        polish = 0  # the user has said what ends the fit
    dtype = settings.dtype
    if dtype == "auto" and (paper or solver == "lbfgs"):
        dtype = "float32" if paper else "float64"
    return Plan(
        solver=solver,
        # The tighter bound predicts better at equal time where L-BFGS is used, and slows Adam (docs: defaults).
        tight=settings.bound == "tight" or (settings.bound == "auto" and solver == "lbfgs"),
        max_iter=max_iter,
        batch_size=batch_size,
        learning_rate=settings.learning_rate or (PAPER_LEARNING_RATE if paper else LEARNING_RATE),
        schedule_is_constant=paper,
        dtype=dtype,
        solve_at_end=not (paper or settings.early_stopping),
        polish=polish,
        polish_tight=polish > 0 and settings.bound != "elbo",
    )


def polish_evaluations(num_rows: int, size: int) -> int:
    """How many evaluations on all rows are worth their time after Adam; none where they would be too few to help."""
    affordable = int(POLISH_SECONDS / evaluation_seconds(num_rows, size))
    return min(affordable, POLISH_EVALUATIONS) if affordable >= FEWEST_POLISH_EVALUATIONS else 0


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

    A coreset that is the data itself is made smaller after the fit if `summary_rng` is given.
    """
    plan = make_plan(settings, source.num_rows, len(model.X_c))
    identity = ""
    if checkpoint_dir is not None:
        identity = fingerprint(model.parameters(), source.identity(), plan, settings)
    with mirrored(checkpoint_dir, source.group) as folder:
        checkpoint = Checkpoint(folder, identity, watch)
        watch.meet()
        exact = plan.solver == "lbfgs" and holds_the_data(model, source)
        if exact:
            name = "lbfgs"
            result = fit_exact(model, source, watch, checkpoint, max_evaluations=plan.max_iter, tol=settings.tol)
        else:
            name, result = _solve(model, source, plan, settings, watch, checkpoint, validation)
    if exact and summary_rng is not None:
        model = summarise(model, source, summary_rng)
    found = statistics(model, source.chunks(CHUNK_ROWS), source.group)
    is_solved = plan.solve_at_end and not exact
    bound = model.adopt_optimum(found).item() if is_solved else math.nan
    tight = plan.tight or plan.polish_tight
    if tight or not is_solved:  # a pass over all rows, which large data are better spared
        bound = full_bound(model, source.chunks(CHUNK_ROWS), source.num_rows, tight=tight, group=source.group)
    return FitReport(model, name, bound, result, found)


def _solve(
    model: CVGP,
    source: DataSource,
    plan: Plan,
    settings: Settings,
    watch: Watch,
    checkpoint: Checkpoint,
    validation: DataSource | None,
) -> tuple[str, Result]:
    """The names of the solvers that were used, and how the last of them ended."""
    if plan.solver == "lbfgs":
        return "lbfgs", fit_lbfgs(
            model, source, watch, checkpoint, max_evaluations=plan.max_iter, tight=plan.tight, tol=settings.tol
        )
    result = fit_adam(model, source, plan, settings, watch, checkpoint, validation)
    if not plan.polish or result.status is Status.INTERRUPTED or watch.time_used() >= 1.0:
        return "adam", result
    # Without a limit it stops where most of the gain is made; with one, where nothing more is gained or time is up.
    evaluations = plan.polish if watch.max_time is None else LONGEST_POLISH
    polished = fit_lbfgs(
        model, source, watch, checkpoint, max_evaluations=evaluations, tight=plan.polish_tight, tol=settings.tol
    )
    return "adam+lbfgs", polished._replace(num_iter=result.num_iter + polished.num_iter)
