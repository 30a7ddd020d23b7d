"""Fitted estimators as files: arrays and JSON in one safetensors file.

Training data are in it only where predictions consult them (`neighbors`): then all rows are.
Nothing in a file is executed, so a file from anybody may be opened. A damaged or hostile one is a `FileFormatError`.
What a fit learned comes back to the bit, on the CPU. So do the parameters that are plain values. The others have their
defaults again: `callbacks`, `checkpoint_dir`, an `init` that is a Coreset (it may hold rows of the training data) and a
`random_state` that is a generator.
"""

import json
import math
import os
import reprlib
from collections.abc import Mapping
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import Mean
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from cvgp import __version__
from cvgp.coreset import Coreset
from cvgp.data.input_warp import NO_WARP
from cvgp.data.target import IDENTITY
from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError
from cvgp.estimators.frames import set_columns
from cvgp.estimators.modes import usual_modes
from cvgp.estimators.noted_rows import pack_noted, unpack_noted
from cvgp.estimators.packed_fit import (
    pack_history,
    pack_indices,
    pack_rows,
    unpack_history,
    unpack_indices,
    unpack_rows,
)
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.estimators.saved_scaling import check_units, unpack_scaling
from cvgp.estimators.saved_target import pack_outliers, pack_target, unpack_outliers, unpack_target
from cvgp.estimators.saved_warp import pack_warp, unpack_warp
from cvgp.estimators.units import ScaledGP
from cvgp.files.modules import pack_part, unpack_part
from cvgp.files.packed_model import pack_model, unpack_model
from cvgp.files.packed_noise import NOISE, pack_noise, unpack_noise
from cvgp.files.tensors import read_tensors, write_tensors
from cvgp.files.untrusted import MAX_INTEGER, SQUARABLE, Arrays, Members, check_texts
from cvgp.gp.bounds import Statistics

ArrayDict = dict[str, NDArray[Any]]

FORMAT = "cvgp estimator"
VERSION = 6
"""Raised whenever a new file would mislead or break an older cvgp: version 2 may hold noise(x) and rows to consult, and
version 3 a transform of y and outliers. In version 4 rows may be in float32, in the user's units. In version 5 the
columns are those of the user's table, whose schema says how they become features; inputs may be warped, and the
importance of columns is held. In version 6 the distribution of columns and boosted trees may be. Version 1, without
`scaling.x_limit`, is read too: its inputs have no limit."""

CLASSES = {"CVGPRegressor": CVGPRegressor}
ATTACHED = ("schema", "baselines", "columns_seen", "merged")
"""What may be attached to a model: how to read its table, simple models of the same rows, the distribution of their
columns, what it was merged from."""
NOT_STORED = ("callbacks", "checkpoint_dir")
PARTS = {"kernel": Kernel, "mean": Mean}
"""Parameters that may be GPyTorch objects."""

RESULTS = {"n_rows": float, "elbo": float, "n_iter": int, "converged": bool, "solver": str}
"""Attributes that are single values, without their underscore."""
FLOAT64 = ("float64",)
DTYPES = {"float32": torch.float32, "float64": torch.float64}
MODEL = "model."


@usual_modes()
def save(estimator: CVGPRegressor, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a file, as `CVGPRegressor.save` describes.

    `schema_`, `baselines_`, `columns_seen_` and `merged_`, dictionaries of JSON values, are stored where they are set,
    and so are the trees of `boosting_`.
    """
    if type(estimator) not in CLASSES.values():
        raise InvalidTypeError(f"A file can hold a {' or a '.join(CLASSES)}; got a {type(estimator).__name__}.")
    check_is_fitted(estimator)
    arrays, metadata = _pack(estimator)
    try:
        _unpack(arrays, metadata)
    except FileFormatError as error:
        raise InvalidInputError(f"This estimator could not be loaded again if it were stored: {error}") from error
    write_tensors(path, arrays, metadata)


@usual_modes()
def load(path: str | os.PathLike[str]) -> CVGPRegressor:
    """Open the estimator that `save` wrote, of its own class.

    Its predictions are those of before, to the bit, on the same machine with the same number of threads. It is safe to
    load a file that you do not trust.

    Parameters
    ----------
    path : str or path
        A file that `CVGPRegressor.save` or ``cvgp fit`` wrote.

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
        If the file is damaged, not a cvgp model, or written by a newer version.

    Examples
    --------
    >>> import cvgp, numpy as np, tempfile, pathlib
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = cvgp.CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "sine.cvgp"
    ...     model.save(file)
    ...     again = cvgp.load(file)
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    arrays, metadata = read_tensors(path)
    name = os.fspath(path)
    version = metadata.get("version")
    if metadata.get("format") != FORMAT or type(version) is not int or version < 1:
        raise FileFormatError(f"{name} is not a cvgp model, or it is damaged. Give a file that `save` wrote.")
    if version > VERSION:
        raise FileFormatError(
            f"{name} was written by a newer cvgp, in version {version:d} of the format; this one ({__version__}) reads "
            f"up to version {VERSION}. Upgrade cvgp."
        )
    try:
        return _unpack(arrays, metadata)
    except FileFormatError as error:
        raise FileFormatError(f"{name} is damaged: {error} Save the model again, or restore a copy.") from error


def _pack(estimator: CVGPRegressor) -> tuple[ArrayDict, dict[str, Any]]:
    gp = estimator.gp_
    model_arrays, model = pack_model(gp.model)
    parameter_arrays, parameters = _pack_parameters(estimator)
    history_arrays, history = pack_history(estimator.history_)
    names = getattr(estimator, "feature_names_in_", None)
    attached = {name: getattr(estimator, f"{name}_", None) for name in ATTACHED}
    fit = {
        "n_features": estimator.n_features_in_,
        "feature_names": None if names is None else list(names),
        "single_output": estimator._single_output,
        "dtype": next(name for name, dtype in DTYPES.items() if dtype is gp.dtype),
        **{name: kind(getattr(estimator, f"{name}_")) for name, kind in RESULTS.items()},
        "n_neighbors": estimator.n_neighbors_,
        "target": gp.target.name,
        "inputs": gp.scaling.warp.name,
        "log_slopes": estimator._log_slopes,
    }
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "class": type(estimator).__name__,
        "libraries": {
            "cvgp": __version__,
            "torch": str(torch.__version__),
            "gpytorch": gpytorch.__version__,
            "numpy": np.__version__,
        },
        "parameters": parameters,
        "fit": fit,
        "model": model,
        "history": history,
        **{name: _json_object(f"{name}_", value) for name, value in attached.items() if value is not None},
    }
    arrays = {MODEL + name: array for name, array in model_arrays.items()}
    scaled_by = {name: value for name, value in gp.scaling._asdict().items() if name != "warp"}
    arrays |= {f"scaling.{name}": np.asarray(value) for name, value in scaled_by.items()} | pack_warp(gp.scaling.warp)
    arrays |= pack_noise(gp.noise) | pack_target(gp.target) | pack_outliers(gp.outliers)
    arrays |= {f"statistics.{name}": sums.cpu().numpy() for name, sums in estimator.statistics_._asdict().items()}
    rows = pack_rows(None if gp.local is None else gp.local.kept, gp.scaling)
    arrays |= pack_indices(gp.indices_of_fit) | pack_noted(estimator)
    return arrays | rows | parameter_arrays | history_arrays, metadata


def _unpack(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]) -> CVGPRegressor:
    check_texts(metadata, "metadata")
    members = Members(metadata, "metadata")
    for known in ("format", "libraries"):
        members.take(known)
    version = members.integer("version", 1)
    cls = CLASSES[members.text("class", CLASSES)]
    left = Arrays({name: array for name, array in arrays.items() if not name.startswith(MODEL)})
    own = {name.removeprefix(MODEL): array for name, array in arrays.items() if name.startswith(MODEL)}
    model = unpack_model(own, members.take("model"))
    M, D, Q = *model.X_c.shape, model.coreset.num_outputs

    estimator = cls(**_unpack_parameters(members.members("parameters"), left, cls().get_params(deep=False)))
    fit = members.members("fit")
    num_columns, names = fit.integer("n_features", 1), fit.take("feature_names")
    estimator._single_output = fit.flag("single_output")
    if estimator._single_output and model.y_c.ndim > 1:
        raise FileFormatError("The number of outputs is not that of the model.")
    # Files before version 5 know of no warps.
    warp = unpack_warp(fit, left, D) if version > 4 else NO_WARP
    scaling = unpack_scaling(left, D, Q, warp, has_limit=version > 1)
    has_noise = any(name.startswith(NOISE) for name in arrays)
    noise = unpack_noise(left, D, model.noise.item()) if has_noise else None
    matrices = {"Phi": (M, M), "b": (M, Q)}
    sums = (left.take(f"statistics.{name}", matrices.get(name, ()), dtypes=FLOAT64) for name in Statistics._fields)
    estimator.statistics_ = Statistics(*map(torch.tensor, sums))
    # Files of version 1 know of no neighbours.
    num_neighbours = fit.integer("n_neighbors", 0) if "n_neighbors" in fit.names() else 0
    kept = unpack_rows(left, num_neighbours, model, scaling, estimator.statistics_)
    # Files before version 3 know of no transforms.
    target = unpack_target(fit, left, Q) if version > 2 else IDENTITY
    estimator._log_slopes = fit.number("log_slopes") if version > 2 else 0.0
    outliers = unpack_outliers(left, Q)
    estimator.gp_ = ScaledGP(model, scaling, DTYPES[fit.text("dtype", DTYPES)], kept, noise, target, outliers)
    check_units(estimator.gp_)
    estimator.n_rows_ = fit.number("n_rows")
    if not SQUARABLE[0] <= estimator.n_rows_ <= SQUARABLE[1]:
        raise FileFormatError(f"fit.n_rows must be a positive number of rows; got {estimator.n_rows_}.")
    estimator.elbo_ = fit.number("elbo")
    estimator.n_iter_ = fit.integer("n_iter", 0)
    estimator.converged_ = fit.flag("converged")
    estimator.solver_ = fit.text("solver")
    fit.close()
    estimator.history_ = unpack_history(members.members("history"), left)
    for name in [name for name in ATTACHED if name in members.names()]:
        attached = members.take(name)
        if not isinstance(attached, dict):
            raise FileFormatError(f"The {name} must be a JSON object; got {reprlib.repr(attached)}.")
        setattr(estimator, f"{name}_", attached)
    unpack_noted(estimator, left)
    set_columns(estimator, num_columns, names, is_old=version < 5)
    estimator.gp_.indices_of_fit = unpack_indices(left, estimator.n_features_in_)
    members.close()
    left.close()
    return estimator


def _pack_parameters(estimator: CVGPRegressor) -> tuple[ArrayDict, dict[str, Any]]:
    arrays: ArrayDict = {}
    stored: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():
        if isinstance(value, np.generic):
            value = value.item()
        if name in PARTS and isinstance(value, PARTS[name]):
            part_arrays, stored[name] = pack_part(value, f"parameters.{name}")
            arrays |= part_arrays
        elif _is_plain(value):
            stored[name] = value
        elif name not in (*NOT_STORED, "random_state") and not isinstance(value, Coreset):
            raise InvalidTypeError(
                f"A file cannot hold the parameter {name}={reprlib.repr(value)}; "
                "it can hold None, text, finite numbers, true and false. Change it with set_params."
            )
    return arrays, {name: value for name, value in stored.items() if name not in NOT_STORED}


def _unpack_parameters(members: Members, arrays: Arrays, defaults: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for name in members.names():
        if name not in defaults or name in NOT_STORED:
            continue  # left for close() to refuse
        value = members.take(name)
        if name in PARTS and isinstance(value, dict):
            prefix = f"parameters.{name}"
            value = unpack_part(Members(value, prefix), arrays, prefix, PARTS[name])
        elif not _is_plain(value):
            raise FileFormatError(f"The parameter {name} cannot be {reprlib.repr(value)}.")
        values[name] = value
    members.close()
    return values


def _is_plain(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | str) or (isinstance(value, int) and abs(value) <= MAX_INTEGER)


def _json_object(name: str, value: object) -> object:
    try:
        same = isinstance(value, dict) and json.loads(json.dumps(value, allow_nan=False)) == value
    except (TypeError, ValueError, RecursionError):
        same = False
    if not same:
        raise InvalidTypeError(f"{name} must be a dictionary of JSON values; got {reprlib.repr(value)}.")
    return value
