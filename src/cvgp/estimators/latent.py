"""Fits of latent values for an estimator, and what cannot be combined with a likelihood that is not Gaussian."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cvgp.data.rows import Array, Rows
from cvgp.errors import InvalidInputError
from cvgp.estimators import inputs
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.importance import seconds_for_importance
from cvgp.estimators.training_summary import ROWS_TO_DRAW_FROM
from cvgp.fitting.decisions import Decisions
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.kinds import fit_kind
from cvgp.fitting.monitor import Budget, Clock, FitLog, ProgressLines, Run, as_columns
from cvgp.fitting.options import ModelOptions, Number, TrainingOptions, check_positive, settings_of
from cvgp.fitting.prepare import decide_trends
from cvgp.gp.likelihoods import LIKELIHOODS, Likelihood
from cvgp.optim import Status
from cvgp.parallel.group import current_group
from cvgp.runtime import check_n_jobs, limited_threads

if TYPE_CHECKING:
    from cvgp.estimators.classifier import CVGPClassifier
    from cvgp.estimators.regressor import CVGPRegressor

LATENT_SOLVER = "sites and L-BFGS"
CHOICES: dict[str, tuple[Any, ...]] = {"noise": ("auto", "constant"), "n_neighbors": ("auto", 0)}
CHOICES |= {"target_transform": ("auto", "identity"), "mean": ("zero",)}  # that a likelihood can be combined with
USED = ("callbacks", "heuristics")  # of the training options


def fit_latent_values(
    estimator: CVGPClassifier | CVGPRegressor,
    likelihood: Likelihood,
    given: dict[str, Any],
    observed: Callable[[Rows[Array]], Rows[Array]],
    options: ModelOptions,
    training: TrainingOptions | None = None,
) -> tuple[list[FittedGP], float, Rows[Array]]:
    """Fit latent values to what `fit` was given, and describe the fit on the estimator.

    `observed` makes rows with observations [n, 1] of rows with outputs [n, P], and raises if some are impossible.
    Returns a posterior for each latent value, the mean log density of left-out rows, and a sample of the rows.
    """
    group, settings = current_group(), settings_of(TrainingOptions() if training is None else training)
    if group.world > 1:
        raise InvalidInputError(
            "Classes, counts and other likelihoods than 'gaussian' are fitted in one process; start one alone."
        )
    check_positive("max_time", estimator.max_time)
    n_jobs, seed = check_n_jobs(estimator.n_jobs), inputs.first_seed(group, inputs.check_seed(estimator.random_state))
    log = FitLog([*([ProgressLines()] if estimator.verbose else []), *(settings.callbacks or ())])
    run = Run(Budget(estimator.max_time, Clock()), log, settings.heuristics or Heuristics(), seed)
    table = inputs.open_training_table(estimator, **given)
    if table is not None:
        inputs.check_exposed(likelihood.name, table.table.exposure)
    if table is not None and not table.fits_in_memory:
        raise InvalidInputError(
            f"The table has {table.num_rows} rows, which is too large to be loaded ({table.describe()}). Likelihoods "
            "other than 'gaussian' need all rows in memory; fit a sample of the rows."
        )
    trends = {} if table is None else table.open_trends
    with limited_threads(n_jobs):
        rows = inputs.training_rows(estimator, table, **given)
        if rows.exposure is not None:
            inputs.check_exposure(rows.exposure, len(rows.x))
        dates = decide_trends(rows, trends, run, Decisions())
        if dates is not None and dates.value:
            inputs.without_trends(estimator, table, dates)
            rows = rows._replace(x=np.delete(rows.x, [trends[name] for name in dates.value], axis=1))
        rows = observed(rows)
        unit = likelihood.unit(rows.y[:, 0])
        reserved = seconds_for_importance(rows.x.shape[1], estimator.max_time)
        run = run._replace(budget=run.budget.reserving(reserved))
        found = fit_kind(rows._replace(y=rows.y / unit), likelihood, options, settings, run)
    fit, latents = found.fit, found.fit.latents
    named = given.get("exposure")
    if table is not None and named is None:
        named = table.table.exposure
    exposure = None if rows.exposure is None else named if isinstance(named, str) else ""
    scaling = found.scaling._replace(y_scale=np.array([unit]))
    gps = [
        FittedGP(
            model,
            scaling._replace(y_mean=np.array([unit * constant])),
            likelihood=latents.likelihood.in_units(unit),
            exposure=exposure,
        )
        for model, constant in zip(latents.models, latents.constant.tolist(), strict=True)
    ]
    estimator.n_rows_ = fit.total_weight
    estimator.elbo_ = fit.bound - estimator.n_rows_ * float(np.log(unit))
    estimator.decisions_ = found.decisions if dates is None else found.decisions.with_choice("dates", dates)
    estimator.n_iter_ = max(fit.result.num_iter, 1)
    estimator.converged_ = fit.result.status is Status.CONVERGED
    estimator.history_ = as_columns(log.history)
    if len(rows.x) > ROWS_TO_DRAW_FROM:
        rows = rows.take(np.random.default_rng(seed).choice(len(rows.x), ROWS_TO_DRAW_FROM, replace=False))
    return gps, fit.left_out.density - float(np.log(unit)), rows


def check_combination(estimator: CVGPRegressor, given: dict[str, Any]) -> Likelihood:
    """The likelihood that a regressor begins with; raise if something else is asked for that it cannot have."""
    name, training = estimator.likelihood, estimator.training or TrainingOptions()
    values = {key: (getattr(estimator, key), allowed) for key, allowed in CHOICES.items()}
    values |= {key: (value, (None,)) for key, value in given.items()}
    defaults = TrainingOptions().get_params()
    values |= {f"training__{key}": (getattr(training, key), (defaults[key],)) for key in defaults if key not in USED}
    for key, (value, allowed) in values.items():
        if not any(value is known or (isinstance(value, type(known)) and value == known) for known in allowed):
            got = repr(value) if isinstance(value, str | Number) else f"a {type(value).__name__}"
            raise InvalidInputError(
                f"{key} is for likelihood='gaussian'. With likelihood={name!r}, leave it at {allowed[0]!r}; got {got}."
            )
    return LIKELIHOODS[name]()
