"""Frames and files as users pass them: which of them are plain numbers, and how the others become features."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Collection, Sequence
from numbers import Number
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from cvgp.coreset import NamedColumn
from cvgp.data.rows import Array
from cvgp.errors import CVGPWarning, FileFormatError, InvalidInputError, InvalidTypeError, optional_packages
from cvgp.tables.columns import PERIODS, TYPICAL, Column, Kind, Reading, Schema, feature_slices, sphere_of
from cvgp.tables.encode import Inputs, new_inputs

if TYPE_CHECKING:
    from cvgp.tables.table import Table

FOR_CLASSES = "For classes there is CVGPClassifier (cvgp fit --task classify)."
TYPICAL_ROWS = 10_000  # of a frame of numbers, for its quantiles
TYPICAL_LEVELS = (np.arange(TYPICAL) + 0.5) / TYPICAL


def is_in_files(x: Any) -> bool:
    """Whether a value is a path, a list of paths, a pyarrow dataset or what `read_table` returns."""
    if isinstance(x, (list, tuple)):
        return bool(x) and all(isinstance(item, (str, os.PathLike)) for item in x)
    if isinstance(x, (str, os.PathLike)):
        return True
    # An object of these classes cannot exist before their modules are imported; arrays are fitted without them.
    classes = (("pyarrow.dataset", "Dataset"), ("cvgp.tables.table", "Table"))
    return any(isinstance(x, getattr(sys.modules[module], name)) for module, name in classes if module in sys.modules)


def is_frame(x: Any) -> bool:
    """Whether a value is a table in memory whose columns have types of their own."""
    return hasattr(x, "__dataframe__") or (hasattr(x, "__arrow_c_stream__") and hasattr(x, "columns"))


def is_name(y: Any) -> bool:
    """Whether a target is the name of a column, or several names."""
    return isinstance(y, str) or (isinstance(y, list | tuple) and bool(y) and all(isinstance(n, str) for n in y))


def is_plain(frame: Any) -> bool:
    """Whether a frame holds only numbers, true and false, without gaps."""
    if hasattr(frame, "isna"):  # pandas
        kinds = [getattr(dtype, "kind", "O") for dtype in frame.dtypes]
        return all(kind in "biuf" for kind in kinds) and not frame.isna().to_numpy().any()
    if hasattr(frame, "null_count") and hasattr(frame, "to_numpy"):  # polars
        is_number = all(dtype.is_numeric() or str(dtype) == "Boolean" for dtype in frame.dtypes)
        return is_number and not np.isnan(np.asarray(frame.to_numpy(), dtype=np.float64)).any()
    return False


def schema_of(estimator: BaseEstimator) -> Schema | None:
    """How a fitted estimator reads tables; None where its columns have no names."""
    stored = getattr(estimator, "schema_", None)
    if stored is None:
        return None
    known = estimator.__dict__.get("_schema")
    if known is None or known[0] is not stored:
        known = estimator._schema = (stored, Schema.from_json(stored))
    schema: Schema = known[1]
    if len(schema.feature_names) != len(estimator._gp.scaling.x_mean):
        raise FileFormatError("The model's schema names other features than the model has; the file is damaged.")
    return schema


def feature_names(estimator: BaseEstimator) -> list[str]:
    """The names of the model's own features; x0, x1, ... where they have none."""
    schema = schema_of(estimator)
    if schema is not None:
        return list(schema.feature_names)
    known = getattr(estimator, "feature_names_in_", None)
    return [f"x{d}" for d in range(estimator.n_features_in_)] if known is None else [str(name) for name in known]


def place_features(estimator: BaseEstimator) -> tuple[int, ...]:
    """The features of a fitted estimator that are a place on the sphere, if it has one."""
    schema = schema_of(estimator)
    return () if schema is None else sphere_of(schema.columns)


def reads_columns(estimator: BaseEstimator, x: Any) -> bool:
    """Whether inputs are read column by column, as a table, rather than as a matrix of numbers."""
    schema = schema_of(estimator)
    if schema is None or not hasattr(estimator, "feature_names_in_"):
        return False
    if schema.is_numeric:
        return is_frame(x) and not is_plain(x)
    if not is_frame(x):
        if all(column.kind == "numeric" for column in schema.columns):
            return False
        raise InvalidTypeError(
            f"The model was fitted to a table with the columns {[column.name for column in schema.columns]}, which are "
            f"not all numbers; give a DataFrame or an Arrow table with these columns, not a {type(x).__name__}."
        )
    return True


def values_of_frame(estimator: BaseEstimator, x: Any) -> Any:
    """The values of a pandas frame that has the columns of the fit in their order, all of them numbers; or None."""
    schema = schema_of(estimator) if hasattr(x, "isna") and hasattr(x, "columns") else None
    if schema is None or not schema.is_numeric or x.columns.tolist() != estimator.feature_names_in_.tolist():
        return None
    return x.to_numpy()


def in_order_of_fit(estimator: BaseEstimator, x: Any) -> Any:
    """A frame of numbers with the columns of the fit, found by name; anything else as it is."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None or not is_frame(x) or not hasattr(x, "columns"):
        return x
    given, wanted = list(x.columns), list(names)
    if given == wanted or not set(wanted) <= set(given):
        return x
    _warn_of_others(schema_of(estimator), given)
    return x[wanted]


def without_column(frame: Any, name: str, parameter: str) -> tuple[Any, Any]:
    """A frame without one of its columns, which a parameter names, and the column."""
    names = list(getattr(frame, "column_names", frame.columns)) if is_frame(frame) else []
    if name not in names:
        known = f"X has the columns {', '.join(map(str, names))}" if names else "X is not a frame"
        raise InvalidInputError(f"{parameter}={name!r} must be a column of X, or a label for each row; {known}.")
    rest = [other for other in names if other != name]
    return (frame.select(rest) if hasattr(frame, "select") else frame[rest]), frame[name]


def _warn_of_others(schema: Schema | None, names: Sequence[str]) -> None:
    known = set() if schema is None else {*schema.targets, *schema.unused, *(column.name for column in schema.columns)}
    extra = [name for name in names if name not in known]
    if extra:
        warnings.warn(f"The model does not know the columns {extra}, which are ignored.", CVGPWarning, stacklevel=5)


def frame_inputs(schema: Schema, frame: Any) -> Inputs | Array:
    """The features of a frame's rows, with cells that are not known integrated out."""
    with optional_packages():
        from cvgp.tables.apply import load_rows
        from cvgp.tables.read import column_names, open_frame

    names = column_names(frame)
    opened = open_frame(frame, known=schema.reading)
    inputs, _ = load_rows(opened, schema, with_target=False)
    num_rows = opened.parts[0].num_rows or 0
    _warn_of_others(schema, names)
    if len(inputs) < num_rows:
        raise InvalidInputError(
            f"{num_rows - len(inputs)} rows have missing values, and the model's rule (impute='drop') "
            "leaves such rows out; drop them, or fit the model without that rule."
        )
    return inputs if inputs.unknown or inputs.gaps else inputs.x


def cell_inputs(estimator: BaseEstimator, x: Array) -> Inputs | Array:
    """The features of an array [n, C] with the columns of the fit; missing cells are NaN."""
    schema = schema_of(estimator)
    if not np.isnan(x).any() and (schema is None or schema.is_numeric):
        return x
    if schema is not None:
        columns = schema.columns
    elif (known := getattr(estimator, "_feature_quantiles", None)) is not None:
        typical = [np.interp(TYPICAL_LEVELS, np.linspace(0.0, 1.0, len(own)), own) for own in known.x.T]
        names = feature_names(estimator)
        columns = tuple(
            Column(name, "numeric", typical=tuple(own.tolist())) for name, own in zip(names, typical, strict=True)
        )
    else:
        raise InvalidInputError(
            "Input X contains NaN, and this model does not know how its columns are distributed, as merged ones; fill "
            "the missing values."
        )
    found, findings = new_inputs(columns, x)
    findings.warn()
    return found if found.unknown or found.gaps else found.x


def numeric_schema(names: Sequence[str], frame: Any, x: Array, y: Any) -> Schema:
    """That of columns of numbers that an estimator is fitted to, with y beside them; NaN is a missing cell."""
    dtypes = list(getattr(frame, "dtypes", ()))
    columns = []
    missing = np.isnan(x).sum(axis=0).tolist()
    rows = x[:: -(-len(x) // TYPICAL_ROWS)]
    for position, (name, values, gaps) in enumerate(zip(names, rows.T, missing, strict=True)):
        is_truth = position < len(dtypes) and str(dtypes[position]).lower() in ("bool", "boolean", "bool[pyarrow]")
        known = values[~np.isnan(values)] if gaps < len(x) else np.zeros(1)
        typical = tuple(np.quantile(known if len(known) else np.zeros(1), TYPICAL_LEVELS).tolist())
        fill = float(np.median(known)) if gaps else None
        kind: Kind = "boolean" if is_truth else "numeric"
        columns.append(Column(name, kind, fill=fill, n_missing=gaps, marks_missing=gaps > 0, typical=typical))
    targets = target_names(y, [column.name for column in columns])
    return Schema(targets if np.ndim(y) > 1 else targets[0], tuple(columns))


def target_names(y: Any, taken: Sequence[str]) -> tuple[str, ...]:
    """The names of outputs that are given beside a frame: their own where they have some, or else y, y0, y1, ..."""
    shape = np.shape(y)
    count = 1 if len(shape) < 2 else shape[1]
    own = [str(name) for name in (getattr(y, "columns", ()) if len(shape) > 1 else [getattr(y, "name", None) or ""])]
    is_named = len(own) == count == len(set(own)) and all(own) and not set(own) & set(taken)
    return tuple(free_names(own if is_named else ["y"] if len(shape) < 2 else [f"y{q}" for q in range(count)], taken))


def free_names(wanted: Sequence[str], taken: Collection[str]) -> list[str]:
    """The names, all with the same number appended if any of them is taken already."""
    names, number = list(wanted), 1
    while set(taken).intersection(names):
        number += 1
        names = [f"{name}_{number}" for name in wanted]
    return names


def as_table(
    x: Any,
    y: Any,
    sample_weight: Any = None,
    noise_variance: Any = None,
    known: Reading | None = None,
    groups: Any = None,
    exposure: Any = None,
    geo: Any = None,
    time: Any = None,
) -> Table | None:
    """Rows that are read as a table, as a fit has read its own if `known`: files, and frames of more than numbers."""
    is_named = is_name(y) or is_name(exposure) or is_name(time) or geo is not None
    if not is_in_files(x) and not (is_frame(x) and (is_named or not is_plain(x))):
        if geo is not None or isinstance(time, str):
            option = "geo" if geo is not None else "time"
            raise InvalidInputError(
                f"{option} names columns, which only a frame or a table in files has; X is a {type(x).__name__}. Give "
                "a DataFrame."
            )
        return None
    with optional_packages():
        from cvgp.tables.read import column_names, open_frame, open_table
        from cvgp.tables.table import Table

    if not is_frame(x):
        table = x if isinstance(x, Table) else Table(open_table(x, known=known))
        beside_y = {"sample_weight": sample_weight, "noise_variance": noise_variance}
        return table.with_target(y, **beside_y, groups=groups, exposure=exposure, geo=geo, time=time)
    names, target = column_names(x), tuple(y) if isinstance(y, list) else y
    beside: dict[str, Any] = {}
    if not is_name(y):
        own, values = target_names(y, names), numbers("y", y)
        beside |= dict(zip(own, values.reshape(len(values), -1).T, strict=True))
        target = own[0] if values.ndim == 1 else own
    columns = {"sample_weight": sample_weight, "noise_variance": noise_variance, "groups": groups, "exposure": exposure}
    columns["time"] = time
    for name, given in columns.items():
        if given is not None and not isinstance(given, str):
            columns[name] = f"{name} beside"
            num_rows = len(next(iter(beside.values()), x))
            values = np.full(num_rows, float(given)) if isinstance(given, Number) else numbers(name, given)  # type: ignore[arg-type]
            beside[f"{name} beside"] = values
    drop = () if time is None or isinstance(time, str) else (columns["time"],)  # a column of x would be a feature
    return Table(open_frame(x, beside, known=known), target, **columns, geo=geo, drop=drop)


def numbers(name: str, values: Any) -> Array:
    """Values as numbers, NaN where one is missing."""
    if getattr(getattr(values, "dtype", None), "kind", None) in ("M", "m"):
        raise InvalidTypeError(
            f"{name} must hold numbers, and it holds dates or times. Count units of time since some day: "
            f"({name} - {name}.min()) / np.timedelta64(1, 'D')."
        )
    try:
        if hasattr(values, "to_numpy") and hasattr(values, "isna"):
            return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        advice = f" {FOR_CLASSES}" if name == "y" else ""
        raise InvalidTypeError(f"{name} must hold numbers; {error}.{advice}") from error


class UserColumn(NamedTuple):
    """A column, which is one feature or several; the first one is what it is drawn by, unless it has categories."""

    name: str
    features: slice
    categories: tuple[str, ...] = ()  # that have a feature each
    parts: tuple[str, ...] = ()  # of dates that become features
    is_level: bool = False  # text of many levels, whose effects are its feature
    is_boolean: bool = False
    period: float | None = None  # of what goes round, and is drawn along its circle
    is_place: bool = False  # two columns, the latitude and the longitude

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its values, if they are few: categories, or false and true."""
        return ("false", "true") if self.is_boolean else self.categories


def user_columns(estimator: BaseEstimator) -> list[UserColumn]:
    """The columns of the table that the model was fitted to, or its features where it knows no table."""
    schema = schema_of(estimator)
    if schema is None:
        return [UserColumn(name, slice(d, d + 1)) for d, name in enumerate(feature_names(estimator))]
    found = list[UserColumn]()
    for own, at in zip(schema.columns, feature_slices(schema.columns), strict=True):
        if own.kind == "longitude":
            place = slice(found[-1].features.start, at.stop)
            found[-1] = UserColumn(f"{found[-1].name}, {own.name}", place, is_place=True)
            continue
        categories = own.categories if own.kind == "categorical" else ()
        period = own.period if own.kind != "date" else PERIODS.get(own.parts[0])
        kinds = own.kind == "levels", own.kind == "boolean"
        found.append(UserColumn(own.name, at, categories, own.parts, *kinds, period))
    return found


def named_inputs(estimator: BaseEstimator) -> list[NamedColumn]:
    """What the inputs of a coreset stand for: a column whose categories have one feature each, or a feature."""
    names, found = feature_names(estimator), list[NamedColumn]()
    for column in user_columns(estimator):
        own = names[column.features]
        is_decoded = column.categories and len(own) == len(column.categories)
        found += [NamedColumn(column.name, column.categories)] if is_decoded else [NamedColumn(name) for name in own]
    return found
