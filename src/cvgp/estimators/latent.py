"""Fits of latent values for an estimator, and what cannot be combined with a likelihood that is not Gaussian."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cvgp.data.rows import Array, Rows
from cvgp.errors import InvalidInputError
from cvgp.estimators import inputs
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.importance import seconds_for_importance
from cvgp.estimators.training_summary import ROWS_TO_DRAW_FROM
from cvgp.fitting.decisions import Choice, Decisions
from cvgp.fitting.kinds import LATENT_SOLVER, fit_kind, linked_rows
from cvgp.fitting.monitor import as_columns
from cvgp.fitting.options import ModelOptions, Number, TrainingOptions
from cvgp.fitting.prepare import decide_trends, merge_copies
from cvgp.gp.likelihoods import LIKELIHOODS, GPyTorchLikelihood, Likelihood
from cvgp.objectives import CHUNK_ROWS
from cvgp.optim import Status
from cvgp.parallel.group import ALONE, Group, current_group
from cvgp.runtime import limited_threads

Change = Callable[[Rows[Array]], Rows[Array]]

if TYPE_CHECKING:
    from cvgp.estimators.classifier import CVGPClassifier
    from cvgp.estimators.regressor import CVGPRegressor

CHOICES: dict[str, tuple[Any, ...]] = {"noise": ("auto", "constant"), "n_neighbors": ("auto", 0)}
CHOICES |= {"target_transform": ("auto", "identity"), "mean": ("zero",)}  # that a likelihood can be combined with
USED = ("callbacks", "checkpoint_dir", "heuristics")  # of the training options
DECIDED = ("dates", "input_warp", "kernel", "n_coreset", "seed")  # and can be pinned


def fit_latent_values(
    estimator: CVGPClassifier | CVGPRegressor,
    likelihood: Likelihood,
    given: dict[str, Any],
    observed: Change,
    looked_at: Callable[[Rows[Array], Group], Change],
    options: ModelOptions,
    training: TrainingOptions,
    *,
    groups: Any = None,
    decisions: Decisions | Mapping[str, Choice] | None = None,
    geo: Any = None,
    time: Any = None,
) -> tuple[list[FittedGP], float, Rows[Array]]:
    """Fit latent values to what `fit` was given, and describe the fit on the estimator.

    `observed` makes rows with observations [n, 1] of rows with outputs [n, P]. `looked_at` sees the observations of all
    rows, without inputs; it raises if some are impossible, and returns what gives rows their weights. Of a table that
    is read in parts, each process sees its own rows.

    Returns a posterior for each latent value, the mean log density of left-out rows, and a sample of the rows.
    """
    group, pinned = current_group(), _pinned(decisions)
    begun = inputs.begin_fit(estimator, training, pinned, given, groups, geo=geo, time=time)
    run, table = begun.run, begun.table
    in_parts = table is not None and not table.fits_in_memory
    with limited_threads(begun.n_jobs):
        beside = {"groups": begun.groups, "time": begun.time}
        whole = None if in_parts else inputs.training_rows(estimator, table, **given, **beside)
        # What was observed, without the inputs: of all rows that this process can see.
        pieces = [whole] if whole is not None else [part for part, _ in table.rows.cell_blocks()]
        seen = Rows[Array].join([observed(part)._replace(x=part.x[:, :0]) for part in pieces])
        if seen.exposure is not None:
            inputs.check_exposure(seen.exposure, len(seen.x))
        counted = looked_at(seen, group if in_parts else ALONE)
        choosing = run.choosing(begun.settings.checkpoint_dir)
        if whole is None and begun.has_groups:
            table = inputs.weigh_groups(table, choosing, lambda some: linked_rows(observed(some), likelihood))
            rows = table.whole_groups(run.heuristics.latent_rows, run.rng("whole groups"))
        else:
            rows = table.common_sample if whole is None else whole
        dates = decide_trends(rows, begun.trends, choosing, pinned)
        table, rows = begun._replace(table=table).without_trends(estimator, dates, rows)
        options = inputs.with_sphere(estimator, options)
        rows = merge_copies(counted(observed(rows)))
        unit = likelihood.unit(rows.y[:, 0])

        def blocks() -> Iterator[Rows[Array]]:
            for start in range(0, table.rows.store.num_rows, CHUNK_ROWS):
                part = counted(observed(table.rows.read(start, start + CHUNK_ROWS)))
                yield part._replace(y=part.y / unit)

        reserved = seconds_for_importance(rows.x.shape[1], estimator.max_time)
        run = run._replace(budget=run.budget.reserving(reserved))
        in_units = rows._replace(y=rows.y / unit)
        every = blocks if in_parts else None
        found = fit_kind(in_units, likelihood, options, begun.settings, run, pinned, every)
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
    estimator.history_ = as_columns(run.log.history)
    if len(rows.x) > ROWS_TO_DRAW_FROM:
        rows = rows.take(np.random.default_rng(run.seed).choice(len(rows.x), ROWS_TO_DRAW_FROM, replace=False))
    return gps, fit.left_out.density - float(np.log(unit)), rows


def _pinned(given: Any) -> Decisions:
    """Decisions of an earlier fit, which must be one of latent values if they say more than it decides."""
    pinned = Decisions.pinned(given)
    others = {name: choice.taken for name, choice in pinned if name not in DECIDED}
    if found := [name for name, taken in others.items() if taken not in ("none", LATENT_SOLVER)]:
        raise InvalidInputError(
            f"decisions has {', '.join(found)}, which only a fit with likelihood='gaussian' decides. Give decisions of "
            f"a fit to classes, counts and the like, or a dict with some of {', '.join(DECIDED)}."
        )
    return pinned


def check_training(training: TrainingOptions, whose: str) -> None:
    """Raise if training options are given that fits of latent values do not use."""
    defaults = TrainingOptions().get_params()
    _check(
        {f"training__{key}": (getattr(training, key), (defaults[key],)) for key in defaults if key not in USED}, whose
    )


def check_combination(estimator: CVGPRegressor, noise_variance: Any, training: TrainingOptions) -> Likelihood:
    """The likelihood that a regressor begins with; raise if something else is asked for that it cannot have."""
    name, is_named = estimator.likelihood, isinstance(estimator.likelihood, str)
    whose = f"likelihood={name!r}" if is_named else f"the likelihood {type(name).__name__}"
    values = {key: (getattr(estimator, key), allowed) for key, allowed in CHOICES.items()}
    _check({**values, "noise_variance": (noise_variance, (None,))}, whose)
    check_training(training, whose)
    return LIKELIHOODS[name]() if isinstance(name, str) else GPyTorchLikelihood(name)


def _check(values: Mapping[str, tuple[Any, tuple[Any, ...]]], whose: str) -> None:
    for key, (value, allowed) in values.items():
        if not any(value is known or (isinstance(value, type(known)) and value == known) for known in allowed):
            got = repr(value) if isinstance(value, str | Number) else f"a {type(value).__name__}"
            raise InvalidInputError(
                f"{key} is for likelihood='gaussian'. With {whose}, leave it at {allowed[0]!r}; got {got}."
            )
