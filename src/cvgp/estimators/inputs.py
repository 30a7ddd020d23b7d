"""What a user passes to an estimator: checked, ordered, scaled, and made into what training reads."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from numbers import Number
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_random_state, check_X_y, column_or_1d, validate_data

from cvgp.data.arrays import MemorySource
from cvgp.data.input_warp import InputWarp
from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import Scaling, learn_warped_scaling, moments_of
from cvgp.data.source import DataSource
from cvgp.data.split import split
from cvgp.data.uncertain import Inputs
from cvgp.errors import CVGPError, InvalidInputError, InvalidTypeError
from cvgp.estimators.described_rows import Described
from cvgp.estimators.frames import frame_inputs, reads_columns, schema_of
from cvgp.estimators.model_units import Sources, Units
from cvgp.finite import check_sum, refuse_masked
from cvgp.host import sklearn_alone
from cvgp.parallel.group import Group
from cvgp.training.plan import Settings

MOST_SHOWN = 3
"""Rows that an error names."""
MERGE_ROWS = 100_000
"""Up to this many rows, equal rows become one with their summed weight, and rows are put in order."""


def check_training(
    estimator: BaseEstimator, x: Any, y: Any, sample_weight: Any, noise_variance: Any, *, reset: bool = True
) -> tuple[Rows[Array], bool]:
    """Validate everything that `fit` is given; returns the rows, and whether y had no second axis.

    Sets the estimator's n_features_in_ and feature_names_in_, or with `reset=False` compares the columns with them.
    """
    is_read = not reset and (isinstance(x, Inputs) or reads_columns(estimator, x))
    with _errors_of_cvgp():
        found = check_prediction(estimator, x) if is_read else _unwrapped("X", x)
        # Of cells that are not known, training has the mean.
        x = found.x if isinstance(found, Inputs) else found
        _refuse_missing(y)
        check = check_X_y if is_read else partial(validate_data, estimator, reset=reset)
        x, y = check(x, _unwrapped("y", y), multi_output=True, y_numeric=True, dtype=np.float64)
        weight = None if sample_weight is None else _check_weight(sample_weight, len(x))
        single_output = y.ndim == 1
        y = np.asarray(y, dtype=np.float64).reshape(len(x), -1)
    if not np.isfinite(y).all():
        raise InvalidInputError("y contains NaN or infinity; drop or impute those rows before fitting.")
    noise = None if noise_variance is None else check_noise(noise_variance, len(x))
    if noise is not None and y.shape[1] > 1:
        raise InvalidInputError("noise_variance is for one output; fit each output by itself.")
    data = Rows(x, y, weight, noise)
    return data if weight is None else data.take(weight > 0), single_output


def check_prediction(estimator: BaseEstimator, x: Any) -> Array | Inputs:
    """Validate inputs to predict at: the same columns, by name where the training table had names."""
    if isinstance(x, Inputs):
        return x  # they were read by the estimator's schema
    if _is_ready(estimator, x):
        return np.asarray(x)
    schema = schema_of(estimator)
    if schema is not None and reads_columns(estimator, x):
        return frame_inputs(schema, x)
    with _errors_of_cvgp():
        return np.asarray(validate_data(estimator, _unwrapped("X", x), reset=False, dtype=np.float64))


def _is_ready(estimator: BaseEstimator, x: Any) -> bool:
    """Whether scikit-learn would return x as it is. Its own check takes most of the time of a prediction of one row."""
    if type(x) is not np.ndarray or x.dtype != np.float64 or x.ndim != 2 or not len(x):
        return False
    if x.shape[1] != estimator.n_features_in_ or hasattr(estimator, "feature_names_in_"):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(x.sum())  # a value that is not finite makes the sum so


def canonical(data: Rows[Array]) -> Rows[Array]:
    """Merge equal rows into one with their summed weight, and sort.

    A weight of two and a row given twice then give the same fit, to the bit, and the order of rows does not matter.
    Beyond `MERGE_ROWS` the rows are left as they are: minibatches shuffle them, and the sort would cost too much.
    """
    if len(data.x) > MERGE_ROWS:
        return data
    columns = [data.x, data.y] + ([] if data.noise_variance is None else [data.noise_variance[:, None]])
    rows, where = np.unique(np.hstack(columns), axis=0, return_inverse=True)
    weight = np.bincount(where.reshape(-1), weights=data.sample_weight, minlength=len(rows)).astype(np.float64)
    dims, outputs = data.x.shape[1], data.y.shape[1]
    return Rows(
        x=np.ascontiguousarray(rows[:, :dims]),
        y=np.ascontiguousarray(rows[:, dims : dims + outputs]),
        sample_weight=None if (weight == 1.0).all() else weight,
        noise_variance=None if data.noise_variance is None else np.ascontiguousarray(rows[:, -1]),
    )


def array_sources(
    data: Rows[Array],
    settings: Settings,
    rng: np.random.Generator,
    *,
    units: Units,
    describe: Callable[[Rows[Array], Rows[Array] | None], Described],
    choose_warp: Callable[[Rows[Array]], InputWarp],
    device: str,
    group: Group,
) -> Sources:
    """Those of rows in memory, of which every process of the group is given all and works on a part.

    `describe` says what becomes of y, and how much each row counts, and `choose_warp` what becomes of x.
    """
    held_out = None
    if settings.early_stopping:
        held = held_out_rows(len(data.x), settings)
        order = rng.permutation(len(data.x))
        data, held_out = data.take(order[held:]), data.take(order[:held])
    train, held_out, target, outliers, log_slopes = describe(canonical(data), held_out)
    learned = learn_warped_scaling(choose_warp(train), train)
    y_varies = bool(moments_of(train.y, train.sample_weight).scales.any())
    scaling = units(learned, y_varies)
    check_variance(scaling.y_scale)
    source = partial(array_source, scaling=scaling, device=known_device(device), group=group)
    return Sources.of(
        source(train),
        None if held_out is None else source(held_out),
        scaling,
        learned,
        y_varies=y_varies,
        target=target,
        outliers=outliers,
        log_slopes=log_slopes,
    )


def array_source(rows: Rows[Array], scaling: Scaling, device: str | torch.device, group: Group) -> DataSource:
    """Rows in memory, scaled and shared out over the group."""
    whole = MemorySource(*scaling.tensors(rows, device=device))
    return whole if group.world == 1 else split(whole, group)


def known_device(name: str) -> str:
    """The device of a name, which torch must have here."""
    device = "cpu" if name == "auto" else name
    try:
        torch.zeros(1, device=device)
    # torch raises another error for each way in which a device can be missing
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidInputError(
            f"device must be 'auto' or a device that torch has here; got {device!r} ({reason})."
        ) from error
    return device


def check_variance(y_scale: Array) -> None:
    """Refuse outputs whose variance floating-point numbers cannot hold."""
    if y_scale.max() > 1e150 or y_scale.min() < 1e-150:
        raise InvalidInputError(
            f"y has a standard deviation of {y_scale.max():.0e}, whose square is beyond the range of floating-point "
            "numbers; give y in another unit."
        )


def held_out_rows(num_rows: int, settings: Settings) -> int:
    """How many rows early stopping holds out."""
    held = round(num_rows * settings.validation_fraction)
    if not 1 <= held < num_rows:
        raise InvalidInputError(
            f"early_stopping holds out validation_fraction={settings.validation_fraction} of {num_rows} rows, "
            "which leaves nothing to fit or to check; give more rows or another fraction."
        )
    return held


@contextmanager
def _errors_of_cvgp() -> Iterator[None]:
    """Turn what scikit-learn's checks raise into errors of cvgp, with the same message."""
    try:
        # Numbers that overflow here are refused then.
        with sklearn_alone(), np.errstate(over="ignore", invalid="ignore"):
            yield
    except CVGPError:
        raise
    except TypeError as error:
        raise InvalidTypeError(str(error)) from error
    except ValueError as error:
        raise InvalidInputError(str(error)) from error


def _unwrapped(name: str, values: Any) -> Any:
    """What scikit-learn's checks can read; `name` is what errors call it."""
    refuse_masked(name, values)
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values


def _refuse_missing(y: Any) -> None:
    """Name the first rows that have no target."""
    values = np.asarray(y) if isinstance(y, np.ndarray) or hasattr(y, "to_numpy") else np.empty(0)
    if values.dtype.kind != "f" or not np.isnan(values).any():
        return
    rows = np.flatnonzero(np.isnan(values.reshape(len(values), -1)).any(axis=1))
    shown = ", ".join(str(row + 1) for row in rows[:MOST_SHOWN])
    raise InvalidInputError(
        f"Input y contains NaN: {len(rows)} of {len(values)} rows have no target, the first are row {shown}. Leave "
        "them out; with the target as a column of the table, fit(table, 'y', on_bad_rows='skip') does so."
    )


def check_noise(noise_variance: Any, num_rows: int) -> Array:
    """Validate known noise variances [N]."""
    with _errors_of_cvgp():
        noise = _one_per_row("noise_variance", noise_variance, num_rows)
    if (noise < 0).any():
        raise InvalidInputError("noise_variance holds variances, which are not negative; square the deviations.")
    return noise


def check_observed(y: Any, shape: tuple[int, ...]) -> Array:
    """Validate observations that predictions of some shape are compared with."""
    with _errors_of_cvgp():
        plain = _unwrapped("y", y)
        values = plain if len(shape) > 1 else column_or_1d(plain, warn=True)
        observed = np.asarray(check_array(values, ensure_2d=False, dtype=np.float64, input_name="y"))
    if observed.shape != shape:
        raise InvalidInputError(f"y must have the shape of the predictions, {shape}; got {observed.shape}.")
    return observed


def _check_weight(sample_weight: Any, num_rows: int) -> Array:
    values = np.full(num_rows, sample_weight) if isinstance(sample_weight, Number) else sample_weight
    weight = _one_per_row("sample_weight", values, num_rows)
    if (weight < 0).any():
        raise InvalidInputError("Negative values in data passed to `sample_weight`; weights are at least 0.")
    if not weight.any():  # in the words of scikit-learn, whose checks look for them
        raise InvalidInputError("Sample weights must contain at least one non-zero number. All of them are zero.")
    check_sum("weights", weight)
    return weight


def _one_per_row(name: str, values: Any, num_rows: int) -> Array:
    if isinstance(values, Number):
        raise InvalidInputError(f"{name} must have at least 1 dimension, with one number per row; got {values!r}.")
    array = check_array(_unwrapped(name, values), ensure_2d=False, dtype=np.float64, input_name=name)
    if array.shape != (num_rows,):
        raise InvalidInputError(f"{name} must be one number per row, [{num_rows}]; got {array.shape}.")
    return np.asarray(array)


def check_seed(random_state: Any) -> np.random.RandomState:
    """A source of random numbers from what scikit-learn calls a random state."""
    try:
        return check_random_state(random_state)  # type: ignore[no-any-return]
    except ValueError as error:
        raise InvalidInputError(
            f"random_state must be a whole number of at least 0, a numpy RandomState or None; got {random_state!r}."
        ) from error


def first_seed(group: Group, random_state: np.random.RandomState) -> int:
    """A seed that is the same in all processes of a group: the one that the first process draws."""
    (seed,) = group.first([torch.tensor(float(random_state.randint(2**31)), dtype=torch.float64)])
    return int(seed)


def check_callbacks(callbacks: Any) -> list[Any]:
    """The callbacks, none by default."""
    functions = () if callbacks is None else callbacks
    if not isinstance(functions, Sequence) or not all(callable(f) for f in functions):
        raise InvalidTypeError(f"callbacks must be a list of functions of one argument; got {callbacks!r}.")
    return list(functions)


def check_folder(folder: Any) -> str | None:
    """The name of a folder, or None."""
    if folder is not None and not isinstance(folder, str | os.PathLike):
        raise InvalidTypeError(f"checkpoint_dir must be a path or None; got {folder!r}.")
    return None if folder is None else os.fspath(folder)


def check_size(name: str, value: Any) -> int:
    """A whole number of at least 1."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise InvalidInputError(f"{name} must be a whole number of at least 1; got {value!r}.")
    return int(value)
