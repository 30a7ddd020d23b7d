"""One model from the coresets of several that were fitted on shards of the data."""

import warnings
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from cvgp.data.pooled_warp import pool_warped_scalings
from cvgp.data.rows import Rows
from cvgp.data.scaling import Scaling
from cvgp.data.schema import Schema
from cvgp.errors import CVGPWarning, InvalidInputError, InvalidTypeError
from cvgp.estimators.frames import feature_names, schema_of
from cvgp.estimators.inputs import check_seed, check_size
from cvgp.estimators.modes import usual_modes
from cvgp.estimators.pooled_prior import as_array, mean_noise, mean_prior, same_prior
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.estimators.units import ScaledGP
from cvgp.optim.stopping import Result
from cvgp.training.merge import combine, log_evidence, refit_prior, sites_of
from cvgp.training.monitor import Watch, as_columns


@usual_modes()
def merge(
    models: Sequence[CVGPRegressor], *, n_coreset: int | None = None, refit: bool = False, random_state: Any = 0
) -> CVGPRegressor:
    """Make one model of all data from models that were fitted on disjoint shards; no data are needed.

    Each model's coreset stands for its shard, and the prior counts once: the result is the exact posterior of all
    pseudo-data. The prior is the kernel and the mean, in the units of the data. Where the models' priors differ, the
    result has the mean of their parameters, on the scale on which they are learned and weighted by rows. The noise
    variance is the mean of the models', weighted by rows. Where models warp columns in different ways, the result has
    the mean of the warps (each in standard deviations of its rows), weighted by rows.

    Parameters
    ----------
    models : sequence of CVGPRegressor
        Fitted, with the same columns. No row may be in two shards: it would count twice.
    n_coreset : int, optional
        How many pseudo-points the result may have; by default it has those of all models.
    refit : bool
        Where priors differ, learn kernel and mean again from the union of the coresets. This helps where shards are
        many, small and alike, and harms where they are of different regions (docs: merging).
    random_state : int, RandomState or None
        Where a smaller coreset, or a search for a kernel, starts.

    Returns
    -------
    CVGPRegressor
        A new one, which predicts, prunes and is saved as any other; the models stay as they are. `merged_` says what
        was merged. `elbo_` is an estimate from the bounds of the models.

    Raises
    ------
    InvalidTypeError
        If `models` is not a list of at least one CVGPRegressor.
    NotFittedError
        If one of them is not fitted.
    InvalidInputError
        If the models have different columns or outputs, or one is given twice. If they transform y in different ways,
        as ``target="yeo-johnson"`` does with a power that each shard learns for itself.

    Warns
    -----
    CVGPWarning
        If the models read tables in different ways, so that the merged one reads none. If a model consults neighbours:
        the merged one does not, since its coreset alone stands for the data.

    Examples
    --------
    >>> import cvgp, numpy as np
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> y = np.sin(X[:, 0])
    >>> shards = [cvgp.CVGPRegressor(6, max_iter=10, random_state=0).fit(X[i::2], y[i::2]) for i in range(2)]
    >>> len(cvgp.merge(shards).coreset_)
    12
    """
    models = _checked(models)
    _notice_neighbours(models)
    rng = np.random.default_rng(check_seed(random_state).randint(2**31))
    size = None if n_coreset is None else check_size("n_coreset", n_coreset)
    rows = np.array([model.n_rows_ for model in models])
    largest = models[int(rows.argmax())]
    shared = same_prior(models)
    pooled, alike = pool_warped_scalings([model.gp_.scaling for model in models], rows)
    scaling = largest.gp_.scaling if shared else pooled
    sites = Rows[Tensor].join([_rescaled(model, scaling) for model in models])
    watch = Watch()
    searches: list[Result] = []
    if shared:
        kernel, mean = deepcopy(largest.model_.kernel).cpu(), deepcopy(largest.model_.mean).cpu()
    else:
        kernel, mean = mean_prior(models, alike, rows, scaling)
        if refit:
            kernel, mean, search = refit_prior(sites, kernel, mean, rng, watch)
            searches.append(search)
    combined = combine(sites, kernel, mean, mean_noise(models, rows, scaling), rng, watch, size=size)
    if combined.result is not None:
        searches.append(combined.result)

    if any(model.gp_.outliers is not None for model in models):
        warnings.warn(
            "The merged model knows of no outliers: its parts left them out, but the share of them is not merged.",
            CVGPWarning,
            stacklevel=2,
        )
    if any(model.gp_.noise is not None for model in models):
        warnings.warn(
            "The merged model has constant noise: what its parts learned of noise that depends on x is not merged.",
            CVGPWarning,
            stacklevel=2,
        )
    merged: CVGPRegressor = clone(largest)
    merged.set_params(n_coreset=len(combined.model.X_c), neighbors=0, callbacks=None, checkpoint_dir=None)
    merged.n_features_in_ = largest.n_features_in_
    if hasattr(largest, "feature_names_in_"):
        merged.feature_names_in_ = largest.feature_names_in_
    merged._single_output = largest._single_output
    dtypes = {model.gp_.dtype for model in models}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.float64
    merged.gp_ = ScaledGP(combined.model, scaling, dtype, target=largest.gp_.target)
    merged._log_slopes = sum(model._log_slopes for model in models)
    merged.statistics_ = combined.statistics
    merged.n_rows_ = float(rows.sum())
    merged.elbo_ = _estimated_bound(models, combined.bound, len(sites.x), scaling)
    merged.history_ = as_columns(watch.history)
    merged.n_iter_ = sum(search.num_iter for search in searches)
    merged.converged_ = all(search.converged for search in searches)
    merged.solver_ = "merge"
    merged.merged_ = {
        "prior": "shared" if shared else "refitted" if refit else "mean",
        "rows": rows.tolist(),
        "points": [len(model.coreset_) for model in models],
        "noise_variance": [np.atleast_1d(model.noise_variance_).tolist() for model in models],
    }
    _take_schema(merged, models)
    return merged


def _checked(models: Any) -> list[CVGPRegressor]:
    if not isinstance(models, Sequence) or not models or not all(isinstance(m, CVGPRegressor) for m in models):
        raise InvalidTypeError(
            "models must be a list of at least one fitted CVGPRegressor, such as cvgp.load returns; "
            f"got {type(models).__name__}."
        )
    for model in models:
        check_is_fitted(model)
    first = models[0]
    for number, model in enumerate(models[1:], start=2):
        if _columns(model) != _columns(first):
            raise InvalidInputError(
                f"Models to merge must have the same columns and outputs, but model {number} has "
                f"{_described(model)}, and the first {_described(first)}; fit all shards with the same columns (and "
                "the same categories of text columns)."
            )
        if not _same_transform(model, first):
            raise InvalidInputError(
                f"Models to merge must describe y in the same way, but model {number} has "
                f"target_={model.target_!r}{' of another power' if model.target_ == first.target_ else ''}, and the "
                f"first {first.target_!r}; fit all shards with target='identity' or target='log'."
            )
    for number, model in enumerate(models):
        if any(model is other or model.coreset_ == other.coreset_ for other in models[:number]):
            raise InvalidInputError(
                f"Model {number + 1} has the coreset of one before it, and its data would count twice; give each "
                "shard's model once."
            )
    return list(models)


def _notice_neighbours(models: Sequence[CVGPRegressor]) -> None:
    consulting = [number for number, model in enumerate(models, start=1) if model.n_neighbors_]
    if consulting:
        warnings.warn(
            f"Models {', '.join(map(str, consulting))} of {len(models)} consult neighbours among their training rows. "
            "The merged model is made of the coresets alone and consults none; fit shards with neighbors=0.",
            CVGPWarning,
            stacklevel=3,
        )


def _columns(model: CVGPRegressor) -> tuple[Any, ...]:
    names = tuple(feature_names(model)) if hasattr(model, "feature_names_in_") else None
    return (
        len(model.gp_.scaling.x_mean),
        names,
        model._single_output,
        len(model.gp_.scaling.y_mean),
    )


def _same_transform(model: CVGPRegressor, other: CVGPRegressor) -> bool:
    own, others = model.gp_.target, other.gp_.target
    return own.name == others.name and all(map(np.array_equal, own[1:], others[1:]))


def _described(model: CVGPRegressor) -> str:
    dims, names, _, outputs = _columns(model)
    return f"{dims} features{'' if names is None else f' {list(names)}'} and {outputs} outputs"


def _rescaled(model: CVGPRegressor, scaling: Scaling) -> Rows[Tensor]:
    """The sites of a model in other units. Several outputs share one weight, which changes by their mean ratio."""
    own = model.gp_.scaling
    sites = sites_of(model.model_)
    x = scaling.scale_x(own.unscale_x(as_array(sites.x)))
    y = scaling.scale_y(own.unscale_y(as_array(sites.y).reshape(len(x), -1)))
    ratio = float(np.exp(2.0 * np.log(own.y_scale / scaling.y_scale).mean()))
    assert sites.noise_variance is not None, "sites carry their noise"
    return Rows(
        torch.as_tensor(x),
        torch.as_tensor(y[:, 0] if model._single_output else y),
        None,
        sites.noise_variance.cpu() * ratio,
    )


def _estimated_bound(models: Sequence[CVGPRegressor], bound: float, count: int, scaling: Scaling) -> float:
    """The evidence of all sites together, plus each model's bound minus the evidence of its sites; in user's units."""
    total = bound - count * float(np.log(scaling.y_scale).sum())
    for model in models:
        sites = sites_of(model.model_)
        evidence = log_evidence(sites, model.model_.kernel, model.model_.mean)
        total += model.elbo_ - (evidence - len(sites.x) * float(np.log(model.gp_.scaling.y_scale).sum()))
    return total


def _take_schema(merged: CVGPRegressor, models: Sequence[CVGPRegressor]) -> None:
    """Keep how tables are read, where all models read them in the same way."""
    schemas = [schema_of(model) for model in models]
    if all(schema is not None and _reading(schema) == _reading(schemas[0]) for schema in schemas):
        dropped = sum(schema.n_dropped for schema in schemas if schema is not None)
        merged.schema_ = {**models[0].schema_, "n_dropped": dropped}
    elif any(schema is not None for schema in schemas):
        warnings.warn(
            "The models read tables in different ways (another rule or fill for missing values, or other effects of "
            "levels), so the merged one reads none; it predicts from features in Python.",
            CVGPWarning,
            stacklevel=3,
        )
        merged.n_features_in_ = len(merged.gp_.scaling.x_mean)
        merged.feature_names_in_ = np.array(feature_names(models[0]), dtype=object)


def _reading(schema: Schema | None) -> Schema | None:
    """What of a schema decides how cells become features; how they were distributed does not."""
    if schema is None:
        return None
    columns = tuple(replace(column, typical=(), n_missing=0) for column in schema.columns)
    return replace(schema, columns=columns)
