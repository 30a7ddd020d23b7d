"""Fitted estimators as files: arrays and JSON in one safetensors file, safe to open from anybody.

Each part of a fitted model has `to_state()` and `from_state()` beside its class; what is packed here are GPyTorch's
modules and the estimator that holds the parts. What a fit learned comes back to the bit, on the CPU. Training rows are
stored only if predictions use them (neighbors).
"""

import math
import os
import reprlib
import warnings
from copy import deepcopy
from typing import Any, Literal, cast

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.kernels import Kernel, MaternKernel, PolynomialKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from gpytorch.means import ConstantMean, LinearMean, Mean, ZeroMean
from gpytorch.priors import Prior
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from cvgp import __version__
from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.data.scaling import Scaling
from cvgp.data.transforms import TargetTransform
from cvgp.errors import CVGPError, CVGPWarning, FileFormatError, InvalidInputError, InvalidTypeError
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.frames import schema_of
from cvgp.estimators.importance import SobolIndices
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.estimators.training_summary import check_summary
from cvgp.files import (
    FLOATS,
    MAX_INTEGER,
    SQUARABLE,
    TINY,
    Fields,
    State,
    flat_arrays,
    join_state,
    read_state,
    split_state,
    write_arrays,
)
from cvgp.fitting.decisions import Decisions
from cvgp.fitting.monitor import as_columns, check_history
from cvgp.fitting.neighbors import NeighborRows
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import prior_mean, scale_kernel, square_matrix
from cvgp.gp.model import CVGP
from cvgp.gp.noise import Contamination, InputNoise
from cvgp.runtime import clean_torch_state

FORMAT, VERSION = "cvgp model", 1
CLASSES = {"CVGPRegressor": CVGPRegressor}
ATTACHED = {
    "schema": "schema_",
    "baselines": "_baselines",
    "feature_quantiles": "_feature_quantiles",
    "merged": "merged_",
}
"""JSON objects in a file and the attributes that they become, where a model has them."""
NOT_STORED = ("callbacks", "checkpoint_dir", "heuristics")
"""Parameters that have their defaults again after loading."""
DTYPES = {"float32": torch.float32, "float64": torch.float64}
CORESET = ("X_c", "y_c", "raw_beta")
PARTS = {"kernel": Kernel, "mean": Mean}

KERNELS = "RBF Matern RQ Periodic Linear Polynomial Cosine Constant Scale Additive Product"
MODULES: dict[str, Any] = {f"{name}Kernel": getattr(gpytorch.kernels, f"{name}Kernel") for name in KERNELS.split()}
MODULES |= {module.__name__: module for module in (ZeroMean, ConstantMean, LinearMean, HomoskedasticNoise)}
"""The modules that `load` can build."""
CONSTRAINTS = {"Positive": Positive, "GreaterThan": GreaterThan, "LessThan": LessThan, "Interval": Interval}
SOFTPLUS = nn.Softplus()
TRANSFORMS: dict[str, tuple[Any, Any]] = {
    "exp": (torch.exp, torch.log),
    "softplus": (SOFTPLUS, inv_softplus),
    "sigmoid": (torch.sigmoid, inv_sigmoid),
}
MAX_DEPTH = 8
"""How deep kernels may be nested: GPyTorch's time doubles with each level, so a file must not choose it."""


@clean_torch_state()
def save(estimator: CVGPRegressor, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a file, as `CVGPRegressor.save` describes."""
    if type(estimator) not in CLASSES.values():
        raise InvalidTypeError(f"A file can hold a {' or a '.join(CLASSES)}; got a {type(estimator).__name__}.")
    check_is_fitted(estimator)
    arrays, text = split_state(_state(estimator))
    try:
        _restored(join_state(arrays, text), estimator.kernel if isinstance(estimator.kernel, Kernel) else None)
    except FileFormatError as error:
        raise InvalidInputError(f"This estimator could not be loaded again if it were stored: {error}") from error
    write_arrays(path, arrays, text)


@clean_torch_state()
def load(path: str | os.PathLike[str], *, kernel: Kernel | None = None) -> CVGPRegressor:
    """Open the estimator that `save` wrote.

    Its predictions equal those of the saved model to the bit, on the same machine with the same number of threads. It
    is safe to load a file that you do not trust.

    Parameters
    ----------
    path : str or path
        A file that `CVGPRegressor.save` or ``cvgp fit`` wrote.
    kernel : gpytorch.kernels.Kernel, optional
        A kernel built as the one that the model was fitted with, for a model with a kernel class of your own. The file
        holds the values of its parameters and the name of its class, never code.

    Returns
    -------
    CVGPRegressor
        Fitted, on the CPU.

    Raises
    ------
    MissingFileError
        If there is no such file.
    FileAccessError
        If the system will not read it.
    FileFormatError
        If the file is damaged, not a cvgp model, or of another version of the format.
    InvalidInputError
        If the model has a kernel class of your own and `kernel` is missing, or does not match.

    Examples
    --------
    >>> import cvgp, numpy as np, tempfile, pathlib
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = cvgp.CVGPRegressor(n_coreset=8, random_state=0, training=cvgp.TrainingOptions(max_iter=20))
    >>> model = model.fit(X, np.sin(X[:, 0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "sine.cvgp"
    ...     model.save(file)
    ...     again = cvgp.load(file)
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    if not isinstance(kernel, Kernel | None):
        raise InvalidTypeError(f"kernel must be a gpytorch.kernels.Kernel; got {type(kernel).__name__}.")
    state, name = read_state(path), os.fspath(path)
    version = state.get("version")
    if state.get("format") != FORMAT or type(version) is not int:
        raise FileFormatError(f"{name} is not a cvgp model, or it is damaged. Give a file that `save` wrote.")
    if version != VERSION:
        raise FileFormatError(
            f"{name} is in version {reprlib.repr(version)} of the format; cvgp {__version__} reads version {VERSION}. "
            "Install the cvgp that wrote it, or fit the model again."
        )
    try:
        return _restored(state, kernel)
    except FileFormatError as error:
        raise FileFormatError(f"{name} is damaged: {error} Save the model again, or restore a copy.") from error


def _state(estimator: CVGPRegressor) -> State:
    gp = estimator._gp
    kept = None if gp.local is None else gp.local.kept
    names = getattr(estimator, "feature_names_in_", None)
    attached = {name: getattr(estimator, attribute, None) for name, attribute in ATTACHED.items()}
    history = estimator.history_.items()
    return {
        "format": FORMAT,
        "version": VERSION,
        "class": type(estimator).__name__,
        "libraries": {
            "cvgp": __version__,
            "torch": str(torch.__version__),
            "gpytorch": gpytorch.__version__,
            "numpy": np.__version__,
        },
        "parameters": _parameters_state(estimator),
        "fit": {
            "n_features": estimator.n_features_in_,
            "feature_names": None if names is None else list(names),
            "single_output": estimator._single_output,
            "dtype": next(name for name, dtype in DTYPES.items() if dtype is gp.dtype),
            "n_rows": float(estimator.n_rows_),
            "elbo": float(estimator.elbo_),
            "n_iter": int(estimator.n_iter_),
            "converged": bool(estimator.converged_),
            "solver": estimator.solver_,
            "log_slopes": estimator._log_slopes,
        },
        "model": _model_state(gp.model),
        "scaling": gp.scaling.to_state(),
        "target": gp.target.to_state(),
        "noise": None if gp.noise is None else gp.noise.to_state(),
        "outliers": None if gp.outliers is None else gp.outliers.to_state(),
        "statistics": estimator._statistics._asdict(),
        "rows": None if kept is None else {"n_neighbors": kept.num_neighbors, **kept.rows._asdict()},
        "importance": None if gp.indices_of_fit is None else gp.indices_of_fit._asdict(),
        "history": {name: column if column.dtype.kind in "if" else column.tolist() for name, column in history},
        "decisions": estimator.decisions_.to_json() if hasattr(estimator, "decisions_") else None,
        "attached": {name: value for name, value in attached.items() if value is not None},
    }


def _restored(state: State, kernel: Kernel | None) -> CVGPRegressor:
    fields = Fields(state, "model file")
    for known in ("format", "version", "libraries"):
        fields.take(known)
    cls = CLASSES[fields.text("class", CLASSES)]
    estimator: CVGPRegressor
    model = fields.part("model", _model_from_state, kernel)
    (M, D), Q = model.X_c.shape, model.num_outputs
    estimator = cls().set_params(**fields.part("parameters", _parameters_from_state, cls().get_params(), kernel, D))
    fit = Fields(fields.take("fit"), "fit")
    scaling = fields.part("scaling", Scaling.from_state, D, Q)
    estimator._statistics = fields.part("statistics", _statistics_from_state, M, Q)
    kept = fields.optional("rows", fields.part, _rows_from_state, model, estimator._statistics)
    noise = fields.optional("noise", fields.part, InputNoise.from_state, D)
    target = fields.part("target", TargetTransform.from_state, Q)
    outliers = fields.optional("outliers", fields.part, Contamination.from_state, Q)
    dtype = DTYPES[fit.text("dtype", DTYPES)]
    estimator._gp = gp = FittedGP(model, scaling, dtype, kept, noise, target, outliers)
    _check_units(gp)
    estimator._single_output = fit.flag("single_output")
    if estimator._single_output and model.y_c.ndim > 1:
        raise FileFormatError("fit.single_output is not true of the model.")
    estimator.n_rows_ = fit.number("n_rows", *SQUARABLE)
    estimator.elbo_ = fit.number("elbo")
    estimator.n_iter_ = fit.integer("n_iter")
    estimator.converged_ = fit.flag("converged")
    estimator.solver_ = fit.text("solver")
    estimator._log_slopes = fit.number("log_slopes")
    estimator.history_ = fields.part("history", _history_from_state)
    decisions = fields.take("decisions")
    if decisions is not None:
        estimator.decisions_ = Decisions.from_json(decisions)
    for name, value in Fields(fields.take("attached"), "attached").values.items():
        if name not in ATTACHED or not isinstance(value, dict):
            raise FileFormatError(f"attached.{name[:50]} must be a known JSON object; got {reprlib.repr(value)}.")
        setattr(estimator, ATTACHED[name], value)
    check_summary(estimator)
    _set_columns(estimator, fit.integer("n_features", 1), fit.take("feature_names"))
    gp.indices_of_fit = fields.optional("importance", fields.part, SobolIndices.from_state, estimator.n_features_in_)
    fit.close()
    fields.close()
    return estimator


def _set_columns(estimator: CVGPRegressor, count: int, names: object) -> None:
    """Set the columns of a file, which must be those of the schema, or else the features of the model."""
    schema = schema_of(estimator)
    columns = None if schema is None else [column.name for column in schema.columns]
    if columns is not None and names != columns:
        raise FileFormatError("fit.feature_names: the model's schema names other columns.")
    if count != (len(estimator._gp.scaling.x_mean) if columns is None else len(columns)):
        raise FileFormatError("fit.n_features is not the number of features of the model.")
    estimator.n_features_in_ = count
    if names is not None:
        if not (isinstance(names, list) and len(names) == count and all(isinstance(n, str) for n in names)):
            raise FileFormatError(f"fit.feature_names must be {count} texts; got {reprlib.repr(names)}.")
        estimator.feature_names_in_ = np.array(names, dtype=object)


def _parameters_state(estimator: BaseEstimator) -> State:
    stored: State = {}
    for name, value in estimator.get_params().items():
        if isinstance(value, np.generic):
            value = value.item()
        if name in PARTS and isinstance(value, PARTS[name]):
            stored[name] = _module_state(value, name)
        elif name.split("__")[-1] in NOT_STORED:
            pass
        elif _is_plain(value):
            stored[name] = value
        elif not isinstance(value, np.random.RandomState | np.random.Generator | Coreset | BaseEstimator):
            raise InvalidTypeError(
                f"A file cannot hold the parameter {name}={reprlib.repr(value)}; "
                "it can hold None, text, finite numbers, true and false. Change it with set_params."
            )
    return stored


def _parameters_from_state(fields: Fields, defaults: State, kernel: Kernel | None, num_dims: int) -> State:
    values = {}
    for name in [name for name in fields.values if name in defaults and name.split("__")[-1] not in NOT_STORED]:
        if name in PARTS and isinstance(fields.values[name], dict):
            given = kernel if name == "kernel" else None
            values[name] = fields.part(name, _module_from_state, PARTS[name], num_dims, given)
            continue
        values[name] = fields.take(name)
        if not _is_plain(values[name]):
            raise FileFormatError(f"parameters.{name} cannot be {reprlib.repr(values[name])}.")
    return values


def _is_plain(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | str) or (isinstance(value, int) and abs(value) <= MAX_INTEGER)


def _statistics_from_state(fields: Fields, size: int, num_outputs: int) -> Statistics:
    shapes = {"Phi": (size, size), "b": (size, num_outputs)}
    return Statistics(*(torch.tensor(fields.array(name, shapes.get(name, ()))) for name in Statistics._fields))


def _rows_from_state(fields: Fields, model: CVGP, statistics: Statistics) -> NeighborRows:
    x = fields.array("x", (None, model.X_c.shape[1]))
    y = fields.array("y", (len(x), *model.y_c.shape[1:]))
    limits = {"sample_weight": (TINY, math.inf), "noise_variance": (0.0, math.inf)}
    beside = (fields.optional(name, fields.array, (len(x),), limits=allowed) for name, allowed in limits.items())
    rows = Rows(x, y, *beside).map(torch.tensor)
    return NeighborRows(rows, fields.integer("n_neighbors", 1), statistics)


def _history_from_state(fields: Fields) -> Any:
    columns = {}
    for name in list(fields.values):
        is_array = isinstance(fields.values[name], np.ndarray)
        numbers = {"dtypes": ("float64", "int64"), "finite": False}
        columns[name] = fields.array(name, (None,), **numbers).tolist() if is_array else fields.items(name)  # type: ignore[arg-type]
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise FileFormatError("The columns of the history differ in length, or are empty.")
    rows = zip(*columns.values(), strict=True)
    return as_columns(check_history([dict(zip(columns, row, strict=True)) for row in rows]))


def _check_units(gp: FittedGP) -> None:
    """Raise if the coreset or the noise leaves the range of floats in the units of the data."""
    with np.errstate(all="ignore"):
        try:
            total = gp.coreset.beta.sum()
        except CVGPError as error:
            raise FileFormatError(f"The coreset is out of range in the units of 'scaling': {error}") from error
        if not 0.0 < total < math.inf:
            raise FileFormatError("The weights in 'model.raw_beta' are all zero, or overflow.")
        if not ((gp.noise_variance >= TINY) & (gp.noise_variance < math.inf)).all():
            raise FileFormatError("The noise is out of range in the units of 'scaling.y_scale'.")
        spread = gp.y_spread
    if not ((spread >= SQUARABLE[0]) & (spread <= SQUARABLE[1])).all():
        raise FileFormatError("The target is out of range in the units of 'scaling.y_mean' and of its transform.")


def _model_state(model: CVGP) -> State:
    if type(model) is not CVGP or type(model.likelihood) is not GaussianLikelihood:
        raise InvalidTypeError(
            "A file can hold a cvgp.CVGP with GPyTorch's GaussianLikelihood; "
            f"got a {type(model).__name__} with {type(getattr(model, 'likelihood', None)).__name__}."
        )
    parts = {"kernel": model.kernel, "mean": model.mean, "noise": model.likelihood.noise_covar}
    for name, part in parts.items():
        if any(True for _ in part.named_priors()):
            warnings.warn(
                f"The priors of the {name} are not stored. Predictions do not need them. To fit the loaded model "
                "again, give it the kernel with its priors by set_params.",
                CVGPWarning,
                stacklevel=5,
            )
    return {
        "beta_transform": model.beta_transform,
        "frozen": [name for name in CORESET if not getattr(model, name).requires_grad],
        **{name: getattr(model, name) for name in (*CORESET, "site_noise_offset")},
        **{name: _module_state(part, name) for name, part in parts.items()},
    }


def _model_from_state(fields: Fields, own_kernel: Kernel | None) -> CVGP:
    X_c = fields.array("X_c", (None, None), dtypes=FLOATS)  # [M, D]
    M, D = X_c.shape
    y_c = fields.array("y_c", (M,), (M, None), dtypes=FLOATS)
    raw_beta = fields.array("raw_beta", (M,), dtypes=FLOATS)
    kernel = fields.part("kernel", _module_from_state, Kernel, D, own_kernel)
    likelihood = GaussianLikelihood()
    likelihood.noise_covar = fields.part("noise", _module_from_state, HomoskedasticNoise, D)
    transform = cast(Literal["log", "softplus"], fields.text("beta_transform", ("log", "softplus")))
    frozen = fields.items("frozen")
    if not all(name in CORESET for name in frozen):
        raise FileFormatError(f"model.frozen may name {', '.join(CORESET)} and nothing else.")
    mean = fields.part("mean", _module_from_state, Mean, D)
    model = CVGP(Coreset(X_c, y_c, np.ones(M)), kernel, mean=mean, likelihood=likelihood, beta_transform=transform)
    for name, array in zip(CORESET, (X_c, y_c, raw_beta), strict=True):
        setattr(model, name, nn.Parameter(torch.tensor(array), requires_grad=name not in frozen))
    model.site_noise_offset = torch.tensor(fields.array("site_noise_offset", (), dtypes=FLOATS))
    _check_usable(model)
    return model


@torch.no_grad()
def _check_usable(model: CVGP) -> None:
    """Check on one point that the parts fit each other, so that the first prediction does not fail."""
    x, y = model.X_c[:1], model.y_c[:1]
    try:
        values = [square_matrix(model.kernel, x), prior_mean(model.mean, x, y), model.beta]
        noise = [model.noise, model.site_noise]
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise FileFormatError(f"The parts of the model do not fit each other ({error}).") from error
    if not all(bool(torch.isfinite(value).all()) for value in (*values, *noise)):
        raise FileFormatError("The kernel, the mean, the weights or the noise overflow.")
    if not all(bool(value > 0) for value in noise):
        raise FileFormatError("The noise variance must be positive.")


def _module_state(module: nn.Module, where: str) -> State:
    """How to build a kernel, mean or noise model, and its tensors by the names of torch's `state_dict`, without priors.

    `build` is None for a kernel that has a class or a constraint that `load` cannot build.
    """
    parameters = dict(module.named_parameters(remove_duplicate=False))
    if len({id(parameter) for parameter in parameters.values()}) < len(parameters):
        raise InvalidInputError(
            f"Parts of the {where} share a parameter, which a file cannot express. Copy it with deepcopy for each part."
        )
    try:
        build = _description(module, where)
    except InvalidTypeError:
        if not isinstance(module, Kernel):
            raise
        build = None
    frozen = [name for name, parameter in parameters.items() if not parameter.requires_grad]
    return {"classes": _class_names(module), "build": build, "frozen": frozen, "tensors": _tensors(module)}


def _tensors(module: nn.Module) -> dict[str, Any]:
    """Parameters and buffers, without those of priors."""
    priors = tuple(f"{name}." for name, part in module.named_modules() if isinstance(part, Prior))
    return {name: value for name, value in module.state_dict(keep_vars=True).items() if not name.startswith(priors)}


def _class_names(module: nn.Module) -> list[str]:
    return [type(part).__name__ for part in module.modules() if isinstance(part, Kernel)]


def _description(module: Any, where: str) -> State:
    """The class, arguments and constraints of a module, and of the kernels in it."""
    name = type(module).__name__
    if type(module) is not MODULES.get(name):
        raise InvalidTypeError(
            f"A file cannot hold the {where}, a {name}; it can hold GPyTorch's {', '.join(MODULES)}. "
            "Build it from these, or pickle the estimator; open a pickle only if you trust its source."
        )
    described: State = {"class": name}
    if isinstance(module, Kernel):
        inner = [module.base_kernel] if isinstance(module, ScaleKernel) else getattr(module, "kernels", [])
        described |= {"ard_num_dims": module.ard_num_dims, "kernels": [_description(part, where) for part in inner]}
    if isinstance(module, MaternKernel):
        described["nu"] = module.nu
    elif isinstance(module, PolynomialKernel):
        described["power"] = module.power
    elif isinstance(module, LinearMean):
        described["bias"] = module.bias is not None
    constraints = {child: part for child, part in module.named_children() if isinstance(part, Interval)}
    described["constraints"] = {child: _constraint_names(part, where) for child, part in constraints.items()}
    return described


def _constraint_names(constraint: Any, where: str) -> list[str]:
    kind, forward = type(constraint).__name__, constraint._transform
    if forward is nn.functional.softplus or repr(forward) == repr(SOFTPLUS):  # a module, copied with the constraint
        forward = SOFTPLUS
    for name, functions in TRANSFORMS.items():
        if (forward, constraint._inv_transform) == functions and type(constraint) is CONSTRAINTS.get(kind):
            return [kind, name]
    raise InvalidTypeError(
        f"A file cannot hold a constraint of the {where}. Use GPyTorch's {', '.join(CONSTRAINTS)} with exp and log, or "
        "with GPyTorch's softplus or sigmoid and its inverse."
    )


def _module_from_state(fields: Fields, kind: Any, num_dims: int, given: Kernel | None = None) -> Any:
    """The module of a file; a copy of the user's own kernel, if one is `given`, gets the stored values."""
    classes, build, frozen = fields.items("classes"), fields.take("build"), fields.items("frozen")
    stored = flat_arrays(fields.take("tensors"))
    if build is not None or kind is not Kernel:
        with torch.random.fork_rng(devices=()):  # some classes draw values that are replaced below
            module = _built(Fields(build, f"{fields.where}.build"), kind, num_dims)
        _set_tensors(module, stored, frozen, fields.where)
        return module
    if given is None or _class_names(given) != classes:
        names = ", ".join(str(name)[:50] for name in classes[:5])
        got = "" if given is None else f"; got {', '.join(_class_names(given))}"
        raise InvalidInputError(
            f"The model has a kernel that cvgp cannot build from a file: {names}{got}. Pass a kernel built like it: "
            "cvgp.load(path, kernel=...)."
        )
    own = deepcopy(given).cpu()
    try:
        _set_tensors(own, stored, frozen, "the kernel", is_own=True)
    except FileFormatError as error:
        raise InvalidInputError(f"The kernel is not built like the one of the model: {error}") from error
    return own


def _built(fields: Fields, kind: Any, num_dims: int, depth: int = 1) -> Any:
    """A module whose parameters have their default values."""
    cls = MODULES[fields.text("class", [name for name, module in MODULES.items() if issubclass(module, kind)])]
    kernels: list[Kernel] = []
    arguments: dict[str, Any] = {}
    if issubclass(cls, Kernel):
        inner = fields.items("kernels")
        is_sum = cls.__name__ in ("AdditiveKernel", "ProductKernel")
        if depth > MAX_DEPTH or not (len(inner) >= 1 if is_sum else len(inner) == (cls is ScaleKernel)):
            raise FileFormatError(f"{fields.where}, a {cls.__name__}, cannot have {len(inner)} kernels at this depth.")
        kernels = [_built(Fields(part, f"{fields.where}.kernels"), Kernel, num_dims, depth + 1) for part in inner]
        ard = fields.optional("ard_num_dims", fields.integer, 1, num_dims)
        arguments |= {} if ard is None else {"ard_num_dims": ard}
    if cls is MaternKernel:
        arguments["nu"] = fields.number("nu", 0.5, 2.5)
    elif cls is PolynomialKernel:
        arguments["power"] = fields.integer("power", 1)
    elif cls is LinearMean:
        arguments |= {"input_size": num_dims, "bias": fields.flag("bias")}
    try:
        module = (scale_kernel if cls is ScaleKernel else cls)(*kernels, **arguments)
    except (TypeError, ValueError, RuntimeError) as error:
        raise FileFormatError(f"{fields.where} is not a {cls.__name__} ({error}).") from error
    known = [[constraint, transform] for constraint in CONSTRAINTS for transform in TRANSFORMS]
    for name, names in Fields(fields.take("constraints"), f"{fields.where}.constraints").values.items():
        raw = name.removesuffix("_constraint")
        if names not in known or raw not in module._parameters:
            raise FileFormatError(f"{fields.where}.constraints cannot have {reprlib.repr({name: names})}.")
        transform, inverse = TRANSFORMS[names[1]]
        bounds = {"Positive": (), "Interval": (0.0, 1.0)}.get(names[0], (0.0,))  # replaced by the stored ones
        constraint = CONSTRAINTS[names[0]](*bounds, transform=transform, inv_transform=inverse)
        module.register_constraint(raw, constraint)
    fields.close()
    return module


def _set_tensors(
    module: nn.Module, stored: dict[str, Any], frozen: list[Any], where: str, *, is_own: bool = False
) -> None:
    """Replace the parameters and buffers of a module by stored ones of the same names and shapes."""
    expected = _tensors(module)
    added = [name for name in stored if name not in expected]  # such as what a kernel draws when it is first used
    if not (set(expected) <= set(stored) and (is_own or all(name.endswith("active_dims") for name in added))):
        raise FileFormatError(
            f"{where} must have the tensors {', '.join(expected)}; got {reprlib.repr(', '.join(sorted(stored)))}."
        )
    for name, array in stored.items():
        path, _, leaf = name.rpartition(".")
        is_bound, now = leaf in ("lower_bound", "upper_bound"), expected.get(name)
        kinds = "fiub" if is_own else "i" if leaf == "active_dims" else "f"
        has_shape = now is None or is_bound or tuple(now.shape) == array.shape
        if array.dtype.kind not in kinds or array.dtype == np.float16 or not has_shape:
            raise FileFormatError(f"{where}.{name} cannot be {array.dtype} of shape {list(array.shape)}.")
        if np.isnan(array).any() or not (is_bound or np.isfinite(array).all()):
            raise FileFormatError(f"{where}.{name} has values that are NaN or infinite.")
        try:
            owner = module.get_submodule(path)
            if isinstance(now, nn.Parameter):
                setattr(owner, leaf, nn.Parameter(torch.tensor(array), requires_grad=name not in frozen))
            else:
                owner.register_buffer(leaf, torch.tensor(array))
        except (AttributeError, KeyError, RuntimeError) as error:
            raise FileFormatError(f"{where} cannot have a tensor {reprlib.repr(name)}.") from error
    for name, constraint in module.named_modules():
        if isinstance(constraint, Interval):
            _check_bounds(constraint, module.get_parameter(name.removesuffix("_constraint")), f"{where}.{name}")


def _check_bounds(constraint: Any, parameter: Tensor, where: str) -> None:
    low, high = constraint.lower_bound, constraint.upper_bound
    least = 0.0 if type(constraint) is Positive else -math.inf
    try:
        fits = all(bound.expand(parameter.shape) is not None for bound in (low, high))
    except RuntimeError:
        fits = False
    if not (fits and bool((low < high).all()) and bool((low >= least).all())):
        raise FileFormatError(f"The bounds of {where} do not fit each other or their parameter.")
