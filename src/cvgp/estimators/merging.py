"""One model from the coresets of several that were fitted on shards of the data."""

import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn import Module
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import Scaling, pool_warped_scalings
from cvgp.errors import CVGPWarning, InvalidInputError, InvalidTypeError
from cvgp.estimators.coresets import combine, log_evidence, sites_of
from cvgp.estimators.fitted import FittedGP, as_array, kernel_in_units
from cvgp.estimators.frames import feature_names, place_features, schema_of
from cvgp.estimators.inputs import check_seed, check_size
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.files import TINY
from cvgp.fitting.monitor import Run, as_columns
from cvgp.runtime import clean_torch_state
from cvgp.tables.columns import Schema


@clean_torch_state()
def merge(models: Sequence[CVGPRegressor], *, n_coreset: int | None = None, random_state: Any = 0) -> CVGPRegressor:
    """Make one model of all data from models that were fitted on disjoint shards; no data are needed.

    Each coreset stands for its shard, and the prior counts once. Kernel, mean, noise and warps are averages over rows.
    The noise is constant, and there are no neighbors; a `CVGPWarning` says what is lost. Intervals are the model's own
    until `calibrate` is given rows that no shard has learned from.

    Parameters
    ----------
    models : sequence of CVGPRegressor
        Fitted, with the same columns. No row may be in two shards: it would count twice.
    n_coreset : int, optional
        How many pseudo-points the result may have; by default it has those of all models.
    random_state : int, RandomState or None
        Where the search for a smaller coreset starts.

    Returns
    -------
    CVGPRegressor
        A new one; `merged_` says what was merged, and `elbo_` is an estimate from the bounds of the models.

    Examples
    --------
    >>> import cvgp, numpy as np
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> shards = [cvgp.CVGPRegressor(6, random_state=0).fit(X[i::2], np.sin(X[i::2, 0])) for i in range(2)]
    >>> len(cvgp.merge(shards).coreset_)
    12
    """
    models, seed = _checked(models), check_seed(random_state).randint(2**31)
    size = None if n_coreset is None else check_size("n_coreset", n_coreset)
    rows = np.array([model.n_rows_ for model in models])
    largest = models[int(rows.argmax())]
    scaling, alike = pool_warped_scalings([model._gp.scaling for model in models], rows)
    scaling = scaling.with_common_scale(place_features(largest))
    sites = Rows[Tensor].join([_rescaled(model, scaling) for model in models])
    # Parameters are averaged as they are learned, most of them as logarithms.
    kernels = [kernel_in_units(model.model_.kernel, own, scaling) for model, own in zip(models, alike, strict=True)]
    _fill_unlearned(kernels, np.stack([own.varies for own in alike]), rows)
    kernel, mean = _average(kernels, rows), _average([deepcopy(model.model_.mean) for model in models], rows)
    run = Run.alone()
    combined, search = combine(sites, kernel, mean, _mean_noise(models, rows, scaling), run, size, seed)

    merged: CVGPRegressor = clone(largest)
    merged.set_params(n_coreset=len(combined.model.X_c), n_neighbors=0, private=False)  # there are no rows to check
    if merged.training is not None:
        merged.set_params(training__callbacks=None, training__checkpoint_dir=None)
    for name in ("n_features_in_", "feature_names_in_", "_single_output"):
        if hasattr(largest, name):
            setattr(merged, name, getattr(largest, name))
    dtypes = {model._gp.dtype for model in models}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.float64
    target = largest._gp.target
    for model in models:
        target = target.joined(model._gp.target)
    merged._gp = FittedGP(combined.model, scaling, dtype, target=target)
    merged._gp.rare_share = min(model._gp.rare_share for model in models)
    merged._log_slopes = sum(model._log_slopes for model in models)
    merged._statistics = combined.statistics
    merged.n_rows_ = float(rows.sum())
    merged.elbo_ = _estimated_bound(models, combined.bound, len(sites.x), scaling)
    merged.history_ = as_columns(run.log.history)
    merged.n_iter_, merged.converged_ = (0, True) if search is None else (search.num_iter, search.converged)
    merged.solver_ = "merge"
    merged.merged_ = {
        "rows": rows.tolist(),
        "points": [len(model.coreset_) for model in models],
        "noise_variance": [np.atleast_1d(model.noise_variance_).tolist() for model in models],
    }
    lost = [*_lost_parts(models), *_take_schema(merged, models)]
    if lost:
        warnings.warn(f"Not all is merged. {' '.join(lost)}", CVGPWarning, stacklevel=2)
    return merged


def _lost_parts(models: Sequence[CVGPRegressor]) -> Iterator[str]:
    known = {
        "neighbors": any(model.n_neighbors_ for model in models),
        "outliers": any(model._gp.outliers is not None for model in models),
        "noise that depends on x": any(model._gp.noise is not None for model in models),
    }
    lost = [name for name, is_known in known.items() if is_known]
    if lost:
        yield (
            f"The merged model has no {' and no '.join(lost)}, as some of its parts have: it is made of coresets. Fit "
            "shards with n_neighbors=0 and noise='constant' to lose nothing but their calibration."
        )


def _checked(models: Any) -> list[CVGPRegressor]:
    found = [type(m).__name__ for m in models] if isinstance(models, Sequence) else type(models).__name__
    if not isinstance(models, Sequence) or not models or not all(isinstance(m, CVGPRegressor) for m in models):
        raise InvalidTypeError(
            f"models must be a list of at least one fitted CVGPRegressor, such as cvgp.load returns; got {found}."
        )
    for model in models:
        check_is_fitted(model)
        model._gp.need_gaussian("merge", alike=True)
    first = models[0]
    for number, model in enumerate(models[1:], start=2):
        if _columns(model) != _columns(first):
            raise InvalidInputError(
                f"Models to merge must have the same columns and outputs, but model {number} has "
                f"{_described(model)}, and the first {_described(first)}; fit all shards with the same columns (and "
                "the same categories of text columns, and dates='trend' or 'season' in place of 'auto')."
            )
        own, others = model._gp.target, first._gp.target
        if own.name != others.name or not all(map(np.array_equal, own[1:4], others[1:4])):
            power = " of another power" if model.target_transform_ == first.target_transform_ else ""
            raise InvalidInputError(
                f"Models to merge must describe y in the same way, but model {number} has "
                f"target_transform_={model.target_transform_!r}{power}, and the first {first.target_transform_!r}; "
                "fit all shards with target_transform='identity' or target_transform='log'."
            )
    for number, model in enumerate(models):
        if any(model is other or model.coreset_ == other.coreset_ for other in models[:number]):
            raise InvalidInputError(
                f"Model {number + 1} has the coreset of one before it, and its data would count twice; give each "
                "shard's model once."
            )
    return list(models)


def _columns(model: CVGPRegressor) -> tuple[Any, ...]:
    names = tuple(feature_names(model)) if hasattr(model, "feature_names_in_") else None
    return len(model._gp.scaling.x_mean), names, model._single_output, len(model._gp.scaling.y_mean)


def _described(model: CVGPRegressor) -> str:
    dims, names, _, outputs = _columns(model)
    return f"{dims} features{'' if names is None else f' {list(names)}'} and {outputs} outputs"


def _rescaled(model: CVGPRegressor, scaling: Scaling) -> Rows[Tensor]:
    """The sites of a model in other units. Several outputs share one weight, which changes by their mean ratio."""
    own = model._gp.scaling
    sites = sites_of(model.model_)
    x = scaling.scale_x(own.unscale_x(as_array(sites.x)))
    y = scaling.scale_y(own.unscale_y(as_array(sites.y).reshape(len(x), -1)))
    ratio = float(np.exp(2.0 * np.log(own.y_scale / scaling.y_scale).mean()))
    assert sites.noise_variance is not None, "sites carry their noise"
    y = y[:, 0] if model._single_output else y
    return Rows(torch.as_tensor(x), torch.as_tensor(y), None, sites.noise_variance.cpu() * ratio)


def _estimated_bound(models: Sequence[CVGPRegressor], bound: float, count: int, scaling: Scaling) -> float:
    """The evidence of all sites together, plus each model's bound minus the evidence of its sites; in user's units."""
    total = bound - count * float(np.log(scaling.y_scale).sum())
    for model in models:
        sites = sites_of(model.model_)
        evidence = log_evidence(sites, model.model_.kernel, model.model_.mean)
        total += model.elbo_ - (evidence - len(sites.x) * float(np.log(model._gp.scaling.y_scale).sum()))
    return total


def _take_schema(merged: CVGPRegressor, models: Sequence[CVGPRegressor]) -> Iterator[str]:
    """Keep how tables are read where all models read them in the same way; otherwise say that none are read."""
    schemas = [schema for model in models if (schema := schema_of(model)) is not None]
    if len(schemas) == len(models) and all(_reading(schema) == _reading(schemas[0]) for schema in schemas):
        merged.schema_ = {**models[0].schema_, "n_dropped": sum(schema.n_dropped for schema in schemas)}
    elif schemas:
        merged.n_features_in_ = len(merged._gp.scaling.x_mean)
        merged.feature_names_in_ = np.array(feature_names(models[0]), dtype=object)
        yield (
            "The models read tables in different ways (another rule or fill for missing values, or other effects of "
            "levels), so the merged one reads none; it predicts from features in Python."
        )


def _reading(schema: Schema) -> Schema:
    """What of a schema decides how cells become features; how they were distributed does not."""
    columns = tuple(replace(column, typical=(), n_missing=0) for column in schema.columns)
    return replace(schema, columns=columns)


@torch.no_grad()
def _fill_unlearned(kernels: Sequence[Kernel], varies: NDArray[np.bool_], rows: Array) -> None:
    """Where a column is constant in a shard, its lengthscale is not learned there: give it the mean of the others'."""
    if varies.all():
        return
    largest = kernels[int(rows.argmax())]
    alike = [i for i, kernel in enumerate(kernels) if _kind(kernel) == _kind(largest)]
    learned = torch.as_tensor(varies[alike])  # [K, D]
    share = learned * torch.as_tensor(rows[alike])[:, None]
    share = share / share.sum(0).clamp_min(TINY)
    for parts in zip(*(kernels[i].modules() for i in alike), strict=True):
        if not (isinstance(parts[0], Kernel) and parts[0].has_lengthscale and parts[0].ard_num_dims == varies.shape[1]):
            continue
        logs = torch.stack([part.lengthscale.log().reshape(-1) for part in parts])  # [K, D]
        filled = torch.where(learned | ~learned.any(0), logs, (share * logs).sum(0))
        for part, values in zip(parts, filled, strict=True):
            part.lengthscale = values.exp().reshape(part.lengthscale.shape)


def _average(parts: Sequence[Module], rows: Array) -> Module:
    result = parts[int(rows.argmax())].cpu()
    if not list(result.parameters()):  # such as a mean of zero
        return result
    alike = [i for i, part in enumerate(parts) if _kind(part) == _kind(result)]
    share = rows[alike] / rows[alike].sum()
    vectors = torch.stack([parameters_to_vector(parts[i].cpu().parameters()) for i in alike])  # [K, n]
    with torch.no_grad():
        vector_to_parameters(torch.as_tensor(share, dtype=vectors.dtype) @ vectors, result.parameters())
    return result


def _kind(part: Module) -> tuple[list[Any], list[Any], list[Any]]:
    """What two parts must share for a mean of their raw parameters: classes, shapes and bounds."""
    classes = [(name, type(module)) for name, module in part.named_modules()]
    shapes = [(name, tuple(parameter.shape)) for name, parameter in part.named_parameters()]
    bounds = [(name, bound.tolist()) for name, bound in part.named_buffers() if name.endswith("_bound")]
    return classes, shapes, bounds


def _mean_noise(models: Sequence[CVGPRegressor], rows: Array, scaling: Scaling) -> tuple[float, float]:
    """The mean over rows of the models' noise, which their coresets do not contain, and of the sites' offset to it."""
    ratios = np.array([np.mean((model._gp.scaling.y_scale / scaling.y_scale) ** 2) for model in models])
    constants = [model.model_.noise if model._gp.noise is None else model._gp.noise.constant for model in models]
    learned = np.array([constant.item() for constant in constants])
    offsets = np.array([model.model_.site_noise.item() for model in models]) - learned
    share = ratios * rows / rows.sum()
    return float(share @ learned), float(share @ offsets)
