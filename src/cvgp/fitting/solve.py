"""From a starting model to a finished one: maximize the bound, then solve for the coreset in closed form."""

import math
import warnings
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.errors import CVGPWarning
from cvgp.fitting.checkpoint import LBFGS_FILE, Checkpoint
from cvgp.fitting.compare import model_scores, simple_densities, weight_of
from cvgp.fitting.maximize import maximize_by_lbfgs
from cvgp.fitting.minibatches import fit_adam
from cvgp.fitting.monitor import Run, evaluation_seconds, exact_seconds
from cvgp.fitting.options import TrainingOptions
from cvgp.fitting.sample import distinct_rows, take_observations
from cvgp.fitting.size import default_batch, initial_coreset, points_to_keep
from cvgp.gp import bounds
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import prior_mean, release, square_matrix
from cvgp.gp.model import CVGP
from cvgp.objectives import CHUNK_ROWS, ExactObjective, TitsiasObjective, chunk_work, full_bound, statistics_and_gain
from cvgp.optim import Result, Status
from cvgp.runtime import reused_memory, threads_for


@dataclass(frozen=True)
class Plan:
    """A solver, all decided: ``exact``, ``lbfgs``, ``adam``, ``adam+lbfgs``, or ``closed form`` (untrained)."""

    solver: str
    tight: bool  # whether the reported bound is the tighter one
    max_iter: int  # steps of Adam or evaluations of L-BFGS
    batch_size: int = 0
    learning_rate: float = 0.0
    schedule_is_constant: bool = False
    dtype: str = "float64"
    solve_at_end: bool = True
    polish: int = 0  # evaluations of L-BFGS after Adam


def make_plan(
    settings: TrainingOptions, num_rows: int, size: int, num_dims: int, run: Run, *, brief: bool = False
) -> Plan:
    """Decide how to train a coreset; briefly if neighbors were no better than the coreset at its start."""
    h, limit, paper = run.heuristics, run.budget.max_time, settings.solver == "paper"
    solver = chosen_solver(settings, num_rows, run, brief=brief)
    if solver == "lbfgs":
        evaluations = settings.max_iter or lbfgs_evaluations(num_rows, size, num_dims, run, brief=brief)
        return Plan("exact" if size >= num_rows else "lbfgs", settings.bound != "elbo", evaluations)
    batch = min(settings.batch_size or (h.paper_batch if paper else default_batch(size)), num_rows)
    growth = math.sqrt(max(num_rows / h.usual_rows, 1.0))  # how much longer a fit may take than on the usual rows
    steps = settings.max_iter
    if steps is None and paper:
        steps = h.paper_epochs * max(num_rows // batch, 1)
    elif steps is None:
        steps = min(int(h.adam_steps * growth), h.most_adam_steps)
        steps = steps if limit is None else max(steps, h.most_adam_steps)
    polish = 0
    if settings.solver == "auto" and settings.max_iter is None and not settings.early_stopping:
        # Evaluations on all rows after Adam, unless they would be too few to help.
        seconds = h.polish_seconds * min(growth, h.longest_growth)
        seconds = seconds if limit is None else min(seconds, 0.5 * limit / run.budget.clock.pace)
        affordable = int(seconds / evaluation_seconds(num_rows, size, num_dims, h))
        polish = min(affordable, h.polish_evaluations) if affordable >= h.fewest_polish_evaluations else 0
    return Plan(
        solver="adam+lbfgs" if polish else "adam",
        tight=settings.bound == "tight" or (polish > 0 and settings.bound == "auto"),
        max_iter=steps,
        batch_size=batch,
        learning_rate=float(settings.learning_rate or (h.paper_learning_rate if paper else h.learning_rate)),
        schedule_is_constant=paper,
        dtype="float32" if paper and settings.dtype == "auto" else settings.dtype,
        solve_at_end=not (paper or settings.early_stopping),
        polish=polish,
    )


def chosen_solver(settings: TrainingOptions, num_rows: int, run: Run, *, brief: bool = False) -> str:
    """L-BFGS on all rows where rows are few, and otherwise Adam on minibatches."""
    h = run.heuristics
    if settings.solver == "auto":
        most = h.brief_rows if brief and run.budget.max_time is None else h.lbfgs_rows
        return "lbfgs" if num_rows <= most and not settings.early_stopping else "adam"
    return "adam" if settings.solver == "paper" else settings.solver


def lbfgs_evaluations(num_rows: int, size: int, num_dims: int, run: Run, *, brief: bool = False) -> int:
    """How many evaluations L-BFGS may take by itself."""
    h = run.heuristics
    if run.budget.max_time is not None:
        return h.lbfgs_evaluations
    is_exact = size >= num_rows
    seconds = exact_seconds(num_rows, num_dims, h) if is_exact else evaluation_seconds(num_rows, size, num_dims, h)
    if brief and num_rows > h.lbfgs_rows:
        return int(np.clip(h.brief_seconds / seconds, *h.brief_evaluations))
    longest = h.brief_seconds if brief else h.lbfgs_seconds
    return int(np.clip(longest / seconds, h.fewest_lbfgs_evaluations, h.lbfgs_evaluations))


def reports_tight_bound(bound: str, solver: str) -> bool:
    """Whether the bound of a finished fit is the tighter one, by the user's choice and the solver's name."""
    return bound == "tight" or (bound == "auto" and solver in ("exact", "lbfgs", "adam+lbfgs"))


class Solution(NamedTuple):
    """A trained model, its bound in total nats, and the statistics of all rows at its kernel and pseudo-inputs."""

    model: CVGP
    solver: str
    bound: float
    result: Result
    statistics: Statistics
    tight: bool = False


@reused_memory()
@torch.enable_grad()  # also for a caller that has switched gradients off
def solve(
    model: CVGP,
    source: DataSource,
    plan: Plan,
    settings: TrainingOptions,
    run: Run,
    *,
    checkpoint: Checkpoint | None = None,
    validation: DataSource | None = None,
    may_shrink: bool = False,
) -> Solution:
    """Train the model in place on a float64 source; early stopping needs validation data."""
    h, limit, is_exact = run.heuristics, run.budget.max_time, plan.solver == "exact"
    evaluation = evaluation_seconds(source.num_rows, len(model.X_c), model.X_c.shape[1], h)
    reserved = min(run.budget.clock.pace * evaluation, h.largest_closing_share * run.budget.left)
    training = run if limit is None else run._replace(budget=run.budget.reserving(reserved))

    by_lbfgs = partial(maximize_by_lbfgs, run=training, tol=settings.tol, group=source.group, checkpoint=checkpoint)

    def maximize_bound(evaluations: int) -> Result:
        objective = TitsiasObjective(
            model, lambda: source.chunks(CHUNK_ROWS), source.local_rows, tight=plan.tight, group=source.group
        )
        return by_lbfgs(objective, source.total_weight, max_evaluations=evaluations)

    if plan.solver == "closed form":
        result = Result(Status.CONVERGED, math.nan, 0)
    elif is_exact:
        # Copies of a row count once while kernel, mean and noise are learned, and all of them count in the posterior.
        rows = all_rows(source)
        data = distinct_rows(rows)
        result = by_lbfgs(ExactObjective(model, data), weight_of(data).sum().item(), max_evaluations=plan.max_iter)
        take_observations(model, rows)
    elif plan.solver == "lbfgs":
        if checkpoint is None and not training.budget.affords(evaluation):
            result = Result(Status.TIME_LIMIT, math.inf, 0)  # there is time for the best coreset at the start alone
        else:
            result = maximize_bound(plan.max_iter)
    else:
        result = fit_adam(model, source, plan, settings, training, checkpoint, validation)
        result = result if settings.max_iter is not None else result.completed()
        is_stored = checkpoint is not None and checkpoint.has(LBFGS_FILE)
        has_time = training.has_time and training.budget.affords(evaluation)
        if plan.polish and result.status is not Status.INTERRUPTED and (has_time or is_stored):
            # Without a limit L-BFGS stops where most of the gain is made; with one, at convergence or when time is up.
            polished = maximize_bound(plan.polish if limit is None else h.longest_polish)
            result = polished._replace(num_iter=result.num_iter + polished.num_iter)
    release(model.kernel, model.likelihood)
    smaller = _smaller(model, source, run) if is_exact and may_shrink else None
    model = model if smaller is None else smaller
    with threads_for(chunk_work(len(model.X_c), source.num_rows)):
        found, gain = _all_statistics(model, source, run)
        if is_exact and smaller is None:
            bound = exact_bound(model, source)
        elif plan.solve_at_end:
            bound = model.adopt_optimum(found).item() + (gain if plan.tight else 0.0)
        else:
            bound = full_bound(model, source.chunks(CHUNK_ROWS), source.num_rows, tight=plan.tight, group=source.group)
        set_site_noise(model, source)
    return Solution(model, plan.solver, bound, result, found, plan.tight)


def all_rows(source: DataSource) -> Rows[Tensor]:
    """Every row of a source that has few."""
    return source.sample(source.num_rows, np.random.default_rng(0))  # takes all, and draws none


def is_exact_gp(model: CVGP, source: DataSource) -> bool:
    """Whether each row is a pseudo-point, so that the bound is the marginal likelihood itself."""
    if len(model.X_c) != source.num_rows:
        return False
    rows = all_rows(source)
    return model.X_c.shape == rows.x.shape and torch.equal(model.X_c, rows.x) and torch.equal(model.y_c, rows.y)


def _smaller(model: CVGP, source: DataSource, run: Run) -> CVGP | None:
    """A model whose greedy points explain the inputs as well; None where half of the rows are too few for that."""
    x, y, weight, *_ = all_rows(source).map(lambda values: values.cpu().numpy())
    size = points_to_keep(model.kernel, source.harmonic_noise(model.noise.item()), x, run.heuristics)
    if size is None:
        return None
    rng = run.rng("fewer points")
    return model.with_coreset(initial_coreset("greedy", x, y, size, rng, sample_weight=weight, kernel=model.kernel))


def _all_statistics(model: CVGP, source: DataSource, run: Run) -> tuple[Statistics, float]:
    """The sums over all rows; estimated from some of them if there is no time to read them all."""
    h, limit = run.heuristics, run.budget.max_time
    seconds = run.budget.clock.pace * evaluation_seconds(source.num_rows, len(model.X_c), model.X_c.shape[1], h)
    most = run.budget.left + h.largest_closing_share * (limit or 0.0)
    if limit is None or seconds <= most:
        return statistics_and_gain(model, source.chunks(CHUNK_ROWS), source.group)
    count = max(int(source.num_rows * most / seconds), CHUNK_ROWS)
    text = (
        f"max_time left time to solve for the coreset with {count} of {source.num_rows} rows; give the fit more time."
    )
    warnings.warn(text, CVGPWarning, stacklevel=2)
    rows = source.sample(count, run.rng("closing"))
    chunks = (rows.take(slice(first, first + CHUNK_ROWS)) for first in range(0, len(rows.x), CHUNK_ROWS))
    found, gain = statistics_and_gain(model, chunks)
    scale = source.total_weight / weight_of(rows).sum().item()
    return found.times(scale), scale * gain


@torch.no_grad()
def exact_bound(model: CVGP, source: DataSource) -> float:
    """The log marginal likelihood in nats, copies of rows counted."""
    rows = all_rows(source)
    residual, noise = rows.y - prior_mean(model.mean, rows.x, rows.y), model.total_noise(rows.noise_variance)
    K_xx = square_matrix(model.kernel, rows.x)
    return bounds.log_marginal(K_xx, residual, noise, sample_weight=rows.sample_weight).item()


def set_site_noise(model: CVGP, source: DataSource) -> None:
    """Let a weight of one stand for the harmonic mean of the total noise of the rows."""
    model.set_site_noise_offset(source.harmonic_noise(model.noise.item()) - model.noise.item())


def warn_if_simpler_is_better(model: CVGP, source: DataSource, run: Run) -> None:
    """Warn if a constant or a line describes a sample of the rows better than the fit does."""
    if not model.likelihood.raw_noise.requires_grad:
        return  # the noise was given, so there is nothing to compare with
    rows = source.sample(run.rows(run.heuristics.compared_rows), run.rng("compare"))
    fit, (constant, line) = model_scores(model, rows).density, simple_densities(rows)
    if fit >= max(constant, line) - run.heuristics.margin:
        return
    warnings.warn(
        f"The fit gives its own rows a mean log density of {fit:.2f} nats. A constant has {constant:.2f} and a linear "
        f"model {line:.2f} (in standardized units). Give it more time or pseudo-points, another kernel, or look for "
        "extreme values in X and y.",
        ConvergenceWarning,
        stacklevel=3,
    )
