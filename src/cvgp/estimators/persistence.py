"""Fitted estimators as files: arrays and JSON in one safetensors file, safe to open from anybody.

A kernel or mean that the user passed as an object is stored as its tensors, and `load` is given the object again.
"""

import math
import os
import reprlib
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict
from dataclasses import fields as dataclass_fields
from functools import partial
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.likelihoods import Likelihood as GPyTorchObject
from gpytorch.means import Mean
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from cvgp import __version__
from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.data.scaling import Scaling
from cvgp.data.transforms import TargetTransform
from cvgp.errors import CVGPError, FileFormatError, InvalidInputError, InvalidTypeError
from cvgp.estimators.classifier import CVGPClassifier
from cvgp.estimators.fitted import FittedGP, as_array
from cvgp.estimators.frames import schema_of, user_columns
from cvgp.estimators.importance import SobolIndices
from cvgp.estimators.predictive import Predictive
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.estimators.training_summary import Baselines, FeatureQuantiles
from cvgp.files import (
    FLOATS,
    MAX_INTEGER,
    SQUARABLE,
    TINY,
    Fields,
    State,
    join_state,
    read_state,
    split_state,
    write_state,
)
from cvgp.fitting.decisions import Decisions
from cvgp.fitting.kernel import starting_mean
from cvgp.fitting.kinds import LATENT_SOLVER
from cvgp.fitting.monitor import as_columns, check_history
from cvgp.fitting.neighbors import NeighborRows
from cvgp.fitting.options import LikelihoodName
from cvgp.gp.bounds import Statistics
from cvgp.gp.calibration import Calibration
from cvgp.gp.kernels import gaussian_likelihood, make_kernel, name_of_kernel, prior_mean, square_matrix
from cvgp.gp.likelihoods import LIKELIHOODS, GPyTorchLikelihood, Likelihood, Softmax
from cvgp.gp.model import CVGP
from cvgp.gp.noise import Contamination, InputNoise
from cvgp.gp.outputs import Outputs
from cvgp.runtime import clean_torch_state
from cvgp.tables.columns import MOST_CLASSES

FORMAT, VERSION = "cvgp model", 1
DAMAGES = (CVGPError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
NOT_STORED = ("callbacks", "checkpoint_dir", "heuristics")
DTYPES = {"float32": torch.float32, "float64": torch.float64}
LABEL_KINDS = {"i": np.int64, "u": np.int64, "f": np.float64, "b": np.bool_, "U": np.str_, "O": object}
CORESET = ("X_c", "y_c", "raw_beta")
PARTS = {"kernel": Kernel, "mean": Mean, "likelihood": GPyTorchObject}
PROBES = 4  # pseudo-inputs at which a file has the values of kernel and mean, to recognize other ones
LATENT_PROBES = torch.linspace(-1.0, 1.0, PROBES, dtype=torch.float64)[:, None]  # where it has those of a likelihood


class _WrongObjectError(InvalidInputError):
    """A kernel, mean or likelihood is missing, not needed, or not built like the stored one."""


@clean_torch_state()
def save(estimator: CVGPRegressor | CVGPClassifier, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a file, as `CVGPRegressor.save` describes."""
    if type(estimator) not in (CVGPRegressor, CVGPClassifier):
        raise InvalidTypeError(
            f"A file can hold a CVGPRegressor or a CVGPClassifier; got a {type(estimator).__name__}."
        )
    check_is_fitted(estimator)
    given = {name: value for name, kind in PARTS.items() if isinstance(value := getattr(estimator, name, None), kind)}
    is_gaussian = isinstance(estimator, CVGPRegressor) and estimator.likelihood_ is None
    state = _state(estimator, given) if is_gaussian else _latent_state(estimator, given)
    try:
        _restored(join_state(*split_state(state)), given)
    except DAMAGES as error:
        raise InvalidInputError(f"This estimator could not be loaded again if it were stored: {error}") from error
    write_state(path, state)


@clean_torch_state()
def load(
    path: str | os.PathLike[str],
    *,
    kernel: Kernel | None = None,
    mean: Mean | None = None,
    likelihood: GPyTorchObject | None = None,
) -> Any:
    """Open the estimator that `save` wrote; it is safe to load a file that you do not trust.

    Predictions equal those of the saved model to the bit, on the same machine with the same number of threads.

    Parameters
    ----------
    path : str or path
    kernel, mean, likelihood : gpytorch kernel, mean and likelihood, optional
        For a model that was fitted with a GPyTorch object: one that is built in the same way. Files hold no code.

    Returns
    -------
    CVGPRegressor or CVGPClassifier

    Raises
    ------
    CVGPError
        If the file is missing, damaged or of another version, or `kernel`, `mean` or `likelihood` is not what the model
        needs.

    Examples
    --------
    >>> import cvgp, numpy as np, tempfile, pathlib
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = cvgp.CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(pathlib.Path(folder) / "sine.cvgp")
    ...     again = cvgp.load(pathlib.Path(folder) / "sine.cvgp")
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    every: dict[str, Any] = {"kernel": kernel, "mean": mean, "likelihood": likelihood}
    given = {name: value for name, value in every.items() if value is not None}
    for name, value in given.items():
        if not isinstance(value, PARTS[name]):
            raise InvalidTypeError(f"{name} must be a gpytorch {name}, not a {type(value).__name__}.")
    state, file = read_state(path), os.fspath(path)
    version = state.get("version")
    if state.get("format") != FORMAT or type(version) is not int:
        raise FileFormatError(f"{file} is not a cvgp model, or it is damaged. Give a file that `save` wrote.")
    if version != VERSION:
        raise FileFormatError(
            f"{file} is in version {reprlib.repr(version)} of the format; cvgp {__version__} reads version {VERSION}. "
            "Install the cvgp that wrote it, or fit the model again."
        )
    try:
        return _restored(state, given)
    except _WrongObjectError:
        raise
    except DAMAGES as error:
        reason = reprlib.repr(str(error)) if not isinstance(error, CVGPError) else error
        raise FileFormatError(f"{file} is damaged: {reason} Save the model again, or restore a copy.") from error


def _common_state(estimator: CVGPRegressor | CVGPClassifier, fit: dict[str, Any]) -> dict[str, Any]:
    """What the file of any estimator has."""
    names, decisions = getattr(estimator, "feature_names_in_", None), getattr(estimator, "decisions_", None)
    densities = getattr(estimator, "batch_log_densities_", None)
    quantiles, indices = getattr(estimator, "_feature_quantiles", None), estimator._gp.indices_of_fit
    return {
        "format": FORMAT,
        "version": VERSION,
        "libraries": {"cvgp": __version__, "torch": str(torch.__version__)},
        "parameters": _parameters_state(estimator),
        "fit": {
            "n_features": estimator.n_features_in_,
            "feature_names": None if names is None else list(names),
            "n_rows": float(estimator.n_rows_),
            "elbo": float(estimator.elbo_),
            "n_iter": int(estimator.n_iter_),
            "converged": bool(estimator.converged_),
            **fit,
        },
        "importance": None if indices is None else indices._asdict(),
        "history": {name: column.tolist() for name, column in estimator.history_.items()},
        "decisions": None if decisions is None else decisions.to_json(),
        "schema": getattr(estimator, "schema_", None),
        "feature_quantiles": None if quantiles is None else quantiles._asdict(),
        **({} if densities is None else {"batch_log_densities": densities}),
    }


def _state(estimator: CVGPRegressor, given: dict[str, Any]) -> dict[str, Any]:
    gp, baselines = estimator._gp, getattr(estimator, "_baselines", None)
    fit = {
        "single_output": estimator._single_output,
        "dtype": str(gp.dtype).removeprefix("torch."),
        "solver": estimator.solver_,
        "log_slopes": estimator._log_slopes,
    }
    return {
        **_common_state(estimator, fit),
        "model": _model_state(gp.model, given),
        "scaling": gp.scaling.to_state(),
        "target": gp.target.to_state(),
        "noise": None if gp.noise is None else gp.noise.to_state(),
        "outliers": None if gp.outliers is None else gp.outliers.to_state(),
        "calibration": None if gp.calibration is None else gp.calibration.to_state(),
        "rare_share": gp.rare_share,
        "statistics": estimator._statistics._asdict(),
        "rows": None if gp.kept is None else {"n_neighbors": gp.kept.num_neighbors, **_stored_rows(gp.kept.rows)},
        "merged": getattr(estimator, "merged_", None),
        "baselines": None if baselines is None else baselines._asdict(),
        **({} if gp.outputs is None else {"outputs": gp.outputs.to_state()}),
        **({} if gp.mixing is None else {"mixing": gp.mixing}),
    }


def _latent_state(estimator: CVGPRegressor | CVGPClassifier, given: dict[str, Any]) -> dict[str, Any]:
    """That of classes, counts and other likelihoods than the Gaussian one."""
    if isinstance(estimator, CVGPClassifier):
        gps, density, labels = estimator._gps, -estimator.left_out_log_loss_, estimator.classes_
        assert gps[0].likelihood is not None, "classes have one"
        if labels.dtype.kind == "O" and not all(isinstance(label, str) for label in labels):
            raise InvalidTypeError(
                f"A file can hold labels that are texts, numbers, or true and false; got {labels!r}."
            )
        own: dict[str, Any] = {
            "classes": {
                "kind": labels.dtype.kind,
                "labels": [str(label) for label in labels],
                "shares": estimator.class_prior_,
                "likelihood": gps[0].likelihood.name,
            }
        }
    else:
        gps, density = [estimator._gp], estimator.left_out_log_density_
        likelihood: Any = gps[0].likelihood
        if isinstance(likelihood, GPyTorchLikelihood):
            stored = _module_state(likelihood.wrapped, None, LATENT_PROBES)
        else:
            stored = {"name": likelihood.name, **asdict(likelihood)}
        own = {"likelihood": stored, "exposure": gps[0].exposure}
    latents = {
        str(number): {"model": _model_state(gp.model, given), "scaling": gp.scaling.to_state()}
        for number, gp in enumerate(gps)
    }
    return {**_common_state(estimator, {"left_out_log_density": float(density)}), **own, "latents": latents}


def _restored(state: dict[str, Any], given: dict[str, Any]) -> CVGPRegressor | CVGPClassifier:
    fields, is_latent = Fields(state, "model file"), "latents" in state
    for known in ("format", "version", "libraries"):
        fields.take(known)
    if "likelihood" in given and "class" not in state.get("likelihood", {}):
        raise _WrongObjectError("The likelihood of the model is in the file; load it without likelihood=.")
    estimator = CVGPClassifier() if "classes" in state else CVGPRegressor()
    estimator.set_params(**fields.part("parameters", _parameters_from_state, estimator.get_params()) | given)
    fit = Fields(fields.take("fit"), "fit")
    found = (_restore_latents if is_latent else _restore_gaussian)(estimator, fields, fit, given)
    gp = estimator._gp
    D, Q = len(gp.scaling.x_mean), len(gp.scaling.y_mean)
    estimator.n_rows_, estimator.elbo_ = fit.number("n_rows", *SQUARABLE), fit.number("elbo")
    estimator.n_iter_, estimator.converged_ = fit.integer("n_iter"), fit.flag("converged")
    estimator.history_ = fields.part("history", _history_from_state)
    found |= {
        "schema_": fields.optional("schema", _json_from_state, fields),
        "_feature_quantiles": fields.optional("feature_quantiles", fields.part, FeatureQuantiles.from_state, D, Q),
    }
    estimator.__dict__.update({name: value for name, value in found.items() if value is not None})
    if "batch_log_densities" in fields.values:  # that `partial_fit` has learned
        estimator.batch_log_densities_ = fields.array("batch_log_densities", (None,))
    _set_columns(estimator, D, fit.integer("n_features", 1), fit.take("feature_names"))
    count = len(user_columns(estimator))
    gp.indices_of_fit = fields.optional("importance", fields.part, SobolIndices.from_state, count)
    fit.close()
    fields.close()
    return estimator


def _restore_gaussian(estimator: Any, fields: Fields, fit: Fields, given: dict[str, Any]) -> dict[str, Any]:
    model = fields.part("model", _model_from_state, given)
    (M, D), Q = model.X_c.shape, model.num_outputs
    scaling = fields.part("scaling", Scaling.from_state, D, Q)
    estimator._statistics = fields.part("statistics", _statistics_from_state, M, Q)
    kept = fields.optional("rows", fields.part, _rows_from_state, model, estimator._statistics)
    noise = fields.optional("noise", fields.part, InputNoise.from_state, D)
    target = fields.part("target", TargetTransform.from_state, Q)
    outliers = fields.optional("outliers", fields.part, Contamination.from_state, Q)
    calibration = fields.optional("calibration", fields.part, Calibration.from_state, Q)
    rare_share, dtype = fields.number("rare_share", 0.0, 0.5), DTYPES[fit.text("dtype", DTYPES)]
    estimator._gp = FittedGP(model, scaling, dtype, kept, noise, target, outliers, calibration, rare_share)
    if "outputs" in fields.values:
        read = partial(_statistics_from_state, size=M, num_outputs=1)
        estimator._gp.outputs = fields.part("outputs", Outputs.from_state, estimator._statistics, read)
    if "mixing" in fields.values:
        estimator._gp.mixing = fields.array("mixing", (Q, Q), limits=(-SQUARABLE[1], SQUARABLE[1]))
        if estimator._gp.outputs is None or not np.isfinite(np.linalg.inv(estimator._gp.mixing)).all():
            raise FileFormatError("mixing must be a matrix with an inverse, of several outputs.")
    estimator._single_output = fit.flag("single_output")
    if estimator._single_output and model.y_c.ndim > 1:
        raise FileFormatError("fit.single_output is not true of the model.")
    estimator._log_slopes, estimator.solver_ = fit.number("log_slopes"), fit.text("solver")
    _check_usable(estimator._gp)
    return {
        "decisions_": fields.optional("decisions", lambda name: Decisions.from_json(fields.take(name))),
        "merged_": fields.optional("merged", _json_from_state, fields),
        "_baselines": fields.optional("baselines", fields.part, Baselines.from_state, D),
    }


def _restore_latents(estimator: Any, fields: Fields, fit: Fields, given: dict[str, Any]) -> dict[str, Any]:
    density, exposure = fit.number("left_out_log_density"), None
    likelihood: Likelihood
    if isinstance(estimator, CVGPClassifier):
        estimator.classes_, estimator.class_prior_, likelihood = fields.part("classes", _labels)
    else:
        likelihood = fields.part("likelihood", _likelihood_from_state, given.get("likelihood"))
        exposure = fields.optional("exposure", fields.text)

    def restored(latent: Fields) -> FittedGP:
        model = latent.part("model", _model_from_state, given)
        scaling = latent.part("scaling", Scaling.from_state, model.X_c.shape[1], 1)
        return FittedGP(model, scaling, likelihood=likelihood, exposure=exposure)

    latents = Fields(fields.take("latents"), "latents")
    gps = [latents.part(str(number), restored) for number in range(likelihood.num_latents)]
    latents.close()
    if not all(np.isfinite(gp.mean(gp.coreset.X[:1])).all() for gp in gps):
        raise FileFormatError("The latent values are out of range.")
    if isinstance(estimator, CVGPClassifier):
        estimator._gps, estimator.left_out_log_loss_ = gps, -density
    else:
        estimator._gp, estimator.left_out_log_density_ = gps[0], density
        estimator._single_output, estimator.solver_ = True, LATENT_SOLVER
    return {"decisions_": Decisions.from_json(fields.take("decisions"))}


def _likelihood_from_state(fields: Fields, given: GPyTorchObject | None) -> Likelihood:
    if "class" in fields.values:
        return GPyTorchLikelihood(_module_from_state(fields, None, given, LATENT_PROBES))
    kind = LIKELIHOODS[fields.text("name", [name for name in get_args(LikelihoodName) if name != "gaussian"])]
    return kind(**{own.name: fields.number(own.name, *SQUARABLE) for own in dataclass_fields(kind)})


def _labels(fields: Fields) -> tuple[Any, Any, Likelihood]:
    """The labels of classes, as they were given: numbers, texts, or true and false; their shares and likelihood."""
    kind, texts = fields.text("kind", LABEL_KINDS), fields.items("labels")
    if not 2 <= len(texts) <= MOST_CLASSES or not all(isinstance(text, str) for text in texts):
        raise FileFormatError(f"classes.labels must be 2 to {MOST_CLASSES} texts.")
    values = [text == "True" for text in texts] if kind == "b" else texts
    labels: Any = np.array(values, dtype=LABEL_KINDS[kind])
    if len(np.unique(labels)) < len(labels):
        raise FileFormatError("classes.labels must be different.")
    shares = fields.array("shares", (len(labels),), limits=(0.0, 1.0))
    if abs(shares.sum() - 1.0) > 1e-6:
        raise FileFormatError("classes.shares must add up to 1.")
    likelihood = fields.text("likelihood", ("bernoulli", "probit") if len(labels) == 2 else ("categorical",))
    return labels, shares, LIKELIHOODS[likelihood]() if len(labels) == 2 else Softmax(len(labels))


def _json_from_state(name: str, fields: Fields) -> State:
    return Fields(fields.take(name), name).values


def _set_columns(estimator: CVGPRegressor | CVGPClassifier, num_features: int, count: int, names: Any) -> None:
    """Set the columns of a file, which must be those of the schema, or else the features of the model."""
    schema = schema_of(estimator)
    expected = num_features if schema is None else len(schema.columns)
    is_array = names is None and schema is not None and {column.kind for column in schema.columns} == {"numeric"}
    if schema is not None and not is_array and names != [column.name for column in schema.columns]:
        raise FileFormatError("fit.feature_names: the model's schema names other columns.")
    if count != expected or (names is not None and (len(names) != count or not all(isinstance(n, str) for n in names))):
        raise FileFormatError("fit.n_features and fit.feature_names do not have the number of features of the model.")
    estimator.n_features_in_ = count
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)


def _parameters_state(estimator: BaseEstimator) -> dict[str, Any]:
    stored: dict[str, Any] = {}
    for name, value in estimator.get_params().items():
        value = value.item() if isinstance(value, np.generic) else value
        if name.split("__")[-1] in NOT_STORED or isinstance(value, PARTS.get(name, ())):
            continue
        if _is_plain(value):
            stored[name] = value
        elif not isinstance(value, np.random.RandomState | np.random.Generator | Coreset | BaseEstimator | Mapping):
            raise InvalidTypeError(
                f"A file cannot hold the parameter {name}={reprlib.repr(value)}; "
                "it can hold None, text, finite numbers, true and false. Change it with set_params."
            )
    return stored


def _parameters_from_state(fields: Fields, defaults: dict[str, Any]) -> dict[str, Any]:
    known = [name for name in fields.values if name in defaults and name.split("__")[-1] not in NOT_STORED]
    values = {name: fields.take(name) for name in known}
    if not all(map(_is_plain, values.values())):
        raise FileFormatError("the parameters must be None, text, finite numbers, true or false.")
    return values


def _is_plain(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | str) or (isinstance(value, int) and abs(value) <= MAX_INTEGER)


def _statistics_from_state(fields: Fields, size: int, num_outputs: int) -> Statistics:
    shapes = {"Phi": (size, size), "b": (size, num_outputs)}
    return Statistics(*(torch.tensor(fields.array(name, shapes.get(name, ()))) for name in Statistics._fields))


def _stored_rows(rows: Rows[Tensor]) -> State:
    """What predictions need of rows; their groups and times are not among it, and only counts have exposures."""
    return {name: value for name, value in rows._asdict().items() if name not in ("cluster", "exposure", "time")}


def _rows_from_state(fields: Fields, model: CVGP, statistics: Statistics) -> NeighborRows:
    x = fields.array("x", (None, model.X_c.shape[1]))
    y = fields.array("y", (len(x), *model.y_c.shape[1:]))
    limits = {"sample_weight": (TINY, math.inf), "noise_variance": (0.0, math.inf)}
    beside = (fields.optional(name, fields.array, (len(x),), limits=allowed) for name, allowed in limits.items())
    rows = Rows(x, y, *beside).map(torch.tensor)
    return NeighborRows(rows, fields.integer("n_neighbors", 1), statistics)


def _history_from_state(fields: Fields) -> Any:
    columns = {name: fields.items(name) for name in list(fields.values)}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if not rows:
        raise FileFormatError("The history is empty.")
    return as_columns(check_history(rows))


def _check_usable(gp: FittedGP) -> None:
    """Raise unless the model predicts at one of its pseudo-inputs, with everything in the range of floats."""
    with np.errstate(all="ignore"):
        coreset, spread = gp.coreset, gp.y_spread
        moments = Predictive.at(gp, coreset.X[:1]).moments
    positive = (coreset.beta.sum(), gp.noise_variance, moments.variance, gp.model.site_noise.item())
    in_range = [np.isfinite(values).all() and (np.asarray(values) >= TINY).all() for values in positive]
    if not (all(in_range) and ((spread >= SQUARABLE[0]) & (spread <= SQUARABLE[1])).all()):
        raise FileFormatError("The weights, the noise or the target are out of range in the units of 'scaling'.")


def _model_state(model: CVGP, given: dict[str, Any]) -> dict[str, Any]:
    parts = [part for part in model.kernel.modules() if isinstance(part, Kernel)]
    modules = {
        "kernel": (model.kernel, name_of_kernel(model.kernel)),
        "mean": (model.mean, "constant" if list(model.mean.parameters()) else "zero"),
        "noise": (model.likelihood, "gaussian"),
    }
    return {
        "beta_transform": model.beta_transform,
        "ard": any(part.ard_num_dims is not None for part in parts),
        **{name: getattr(model, name) for name in (*CORESET, "site_noise_offset")},
        **{
            part: _module_state(module, None if part in given else known_as, model.X_c[:PROBES])
            for part, (module, known_as) in modules.items()
        },
    }


def _module_state(module: nn.Module, name: str | None, x: Tensor) -> dict[str, Any]:
    tensors = {path.replace(".", "/"): tensor for path, tensor in module.state_dict().items()}
    return {"name": name, "class": type(module).__qualname__, "tensors": tensors, "values": _values(module, x)}


def _model_from_state(fields: Fields, given: dict[str, Any]) -> CVGP:
    X_c = fields.array("X_c", (None, None), dtypes=FLOATS)  # [M, D]
    M, D = X_c.shape
    y_c = fields.array("y_c", (M,), (M, None), dtypes=FLOATS)
    raw_beta = fields.array("raw_beta", (M,), dtypes=FLOATS)
    ard = fields.flag("ard")
    makers = {
        "kernel": lambda name: make_kernel(name, D, ard=ard),
        "mean": starting_mean,
        "noise": lambda name: gaussian_likelihood(),
    }
    x = torch.tensor(X_c[:PROBES])
    parts = {part: fields.part(part, _module_from_state, make, given.get(part), x) for part, make in makers.items()}
    model = CVGP(
        Coreset(X_c, y_c, np.ones(M)),
        parts["kernel"],
        mean=parts["mean"],
        likelihood=parts["noise"],
        beta_transform=cast(Literal["log", "softplus"], fields.text("beta_transform", ("log", "softplus"))),
    )
    for name, array in zip(CORESET, (X_c, y_c, raw_beta), strict=True):
        setattr(model, name, nn.Parameter(torch.tensor(array)))
    model.site_noise_offset = torch.tensor(fields.array("site_noise_offset", (), dtypes=FLOATS))
    return model


def _module_from_state(fields: Fields, make: Any, given: nn.Module | None, x: Tensor) -> nn.Module:
    """A kernel, mean or likelihood with the stored tensors: made from its name, or a copy of the user's object."""
    part = fields.where.rpartition(".")[2]
    name, kind = fields.optional("name", fields.text), fields.text("class")
    tensors = Fields(fields.take("tensors"), f"{fields.where}.tensors").values
    stored = {path.replace("/", "."): torch.tensor(array) for path, array in tensors.items()}
    values = fields.array("values", dtypes=FLOATS)
    if name is None and given is None:
        raise _WrongObjectError(
            f"The model was fitted with a {part} that is an object of the class {kind}, which a file cannot hold. Give "
            f"one that is built in the same way: cvgp.load(path, {part}={kind}(...))."
        )
    if name is not None and given is not None:
        raise _WrongObjectError(f"The {part} of the model is {name!r}, which is in the file; load it without {part}=.")
    try:
        module: nn.Module = make(name) if given is None else deepcopy(given).double().cpu()
        _set_tensors(module, stored)
        now = _values(module, x)
        if now.shape != values.shape or not np.allclose(now, values, rtol=1e-6, atol=1e-8 * np.abs(values).max()):
            raise FileFormatError(f"The {part} has other values at the pseudo-inputs.")
    except DAMAGES as error:
        if given is None:
            raise
        raise _WrongObjectError(f"The {part} is not built like the {kind} of the model: {error}") from error
    return module


def _set_tensors(module: nn.Module, stored: dict[str, Tensor]) -> None:
    """Give a module stored tensors; raises unless names, shapes and kinds of numbers are its own."""
    for name, now in module.state_dict().items():
        tensor = stored.get(name, now)
        is_float = tensor.dtype in DTYPES.values()
        is_valid = ~tensor.isnan() if name.endswith(("lower_bound", "upper_bound")) else tensor.isfinite()
        if tensor.is_floating_point() != is_float or is_float != now.is_floating_point() or not bool(is_valid.all()):
            raise FileFormatError(f"{name} must be finite numbers of the kind {now.dtype}.")
    module.load_state_dict(stored, assign=True)


@torch.no_grad()
def _values(module: Any, x: Tensor) -> Any:
    """What a module is at inputs: a kernel's matrix, the values of a mean, the noise, or expectations given f."""
    if isinstance(module, Kernel):
        return as_array(square_matrix(module, x))
    if isinstance(module, Mean):
        return as_array(prior_mean(module, x, x.new_zeros(len(x))))
    return as_array(module.noise if isinstance(module, GaussianLikelihood) else module.forward(x[:, 0]).mean)
