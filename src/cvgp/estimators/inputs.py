"""What a user passes to an estimator: checked, ordered, scaled, and made into what training reads."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from numbers import Number
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import check_array, check_random_state, check_X_y, column_or_1d, validate_data

from cvgp.coreset import check_sum, refuse_masked
from cvgp.data.rows import Array, Rows, in_stretches
from cvgp.data.source import MemorySource, SharedSource
from cvgp.errors import CVGPError, CVGPWarning, InvalidInputError, InvalidTypeError
from cvgp.estimators.frames import (
    FOR_CLASSES,
    as_table,
    cell_inputs,
    feature_names,
    frame_inputs,
    in_order_of_fit,
    is_frame,
    is_in_files,
    numbers,
    numeric_schema,
    reads_columns,
    schema_of,
    values_of_frame,
    without_column,
)
from cvgp.fitting.decisions import Choice, Decisions
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.monitor import Budget, Clock, FitLog, ProgressLines, Run
from cvgp.fitting.neighbors import check_neighbors
from cvgp.fitting.options import ModelOptions, TrainingOptions, check_positive, settings_of
from cvgp.fitting.prepare import (
    FitData,
    check_fingerprints,
    check_variance,
    choose_scaling,
    decide_warp,
    merge_copies,
    spread_of,
    suitable_target,
    suitable_warp,
)
from cvgp.fitting.privacy import FEWEST, OPEN, private_columns
from cvgp.fitting.sample import learn_correlation, two_parts
from cvgp.parallel.group import Group, current_group
from cvgp.runtime import check_n_jobs, sklearn_alone
from cvgp.tables.columns import Schema, sphere_of
from cvgp.tables.encode import Inputs, features_of

if TYPE_CHECKING:
    from cvgp.tables.table import Table, TrainingTable

FEWEST_GROUPS = 5
LARGEST_GROUP = 2500  # rows, where whole groups have to be loaded
COUNTS = ("poisson", "negative_binomial")


def check_training(
    estimator: BaseEstimator,
    x: Any,
    y: Any,
    sample_weight: Any,
    noise_variance: Any,
    exposure: Any = None,
    groups: Array | None = None,
    time: Array | None = None,
    *,
    reset: bool = True,
) -> tuple[Rows[Array], bool]:
    """Validate everything that `fit` is given and, with `reset`, note its columns; also returns whether y is 1-d."""
    with errors_of_cvgp():
        # Training has the mean of cells that are not known.
        given = _unwrapped("X", x) if reset else _features(check_prediction(estimator, x))
        y, has_y = _without_gaps(plain := _unwrapped("y", y), partly=False)
        check = partial(validate_data, estimator, ensure_all_finite="allow-nan") if reset else check_X_y
        x, y = check(given, y, multi_output=True, y_numeric=True, dtype=np.float64)
        weight = None if sample_weight is None else check_weight(sample_weight, len(x))
        if y.ndim == 2 and y.shape[1] == 1 and not get_tags(estimator).target_tags.multi_output:
            y = column_or_1d(y, warn=True)
        single_output = y.ndim == 1
        y = np.asarray(y, dtype=np.float64).reshape(len(x), -1)
    if not np.isfinite(y).all():
        raise InvalidInputError("y contains NaN or infinity; drop or impute those rows before fitting.")
    noise = None if noise_variance is None else check_noise(noise_variance, len(x))
    if noise is not None and y.shape[1] > 1:
        raise InvalidInputError("noise_variance is for one output; fit each output by itself.")
    known = None if exposure is None else check_exposure(exposure, len(x))
    if groups is not None and len(groups) != len(x):
        raise InvalidInputError(f"groups has {len(groups)} labels, and there are {len(x)} rows. Give each row a label.")
    if has_y is not None:
        gaps = np.isnan(numbers("y", plain)).reshape(y.shape)
        partial_rows = int((gaps.any(axis=1) & has_y).sum())
        if partial_rows and not (reset and getattr(estimator, "missing_targets", False)):
            raise InvalidInputError(
                f"{partial_rows} of {len(y)} rows lack some, but not all, targets. Fit with missing_targets=True to "
                "learn each output from the rows that have it; otherwise fill the gaps, or leave these rows out."
            )
        y = np.where(gaps, np.nan, y)
    if time is not None and len(time) != len(x):
        raise InvalidInputError(f"time has {len(time)} values, and there are {len(x)} rows. Give each row a time.")
    data = Rows(x, y, weight, noise, groups, known, time)
    if has_y is not None:
        data = data.take(has_y)
    return data if data.sample_weight is None else data.take(data.sample_weight > 0), single_output


def open_training_table(
    estimator: Any, x: Any, y: Any, sample_weight: Any, noise_variance: Any = None, **columns: Any
) -> Any:
    """Rows that are read as a table, or None where x holds numbers; notes what is known of it on the estimator."""
    for name in ("schema_", "n_bad_rows_", "merged_", "batch_log_densities_"):
        estimator.__dict__.pop(name, None)  # of an earlier fit
    opened = as_table(x, y, sample_weight, noise_variance, **columns)
    if opened is None:
        return None
    _refuse_classes(opened)
    if estimator.private:
        opened = replace(opened, least_rows=FEWEST, _learned={})
    table = opened.learn(current_group())
    if estimator.private:
        known = private_columns(table.rows.columns, table.num_rows)
        table = replace(table, rows=replace(table.rows, columns=known))
    schema = table.schema
    estimator._single_output = isinstance(schema.target, str)
    estimator.n_features_in_ = len(schema.columns)
    estimator.feature_names_in_ = np.array([column.name for column in schema.columns], dtype=object)
    estimator.n_bad_rows_ = table.bad.skipped + table.bad.unlabeled
    if estimator.verbose and not schema.reading.is_plain:
        print(f"The table was read with {schema.reading.describe()}.", flush=True)
    estimator.schema_ = schema.to_json()
    return table


def model_options(estimator: Any, solver: str) -> ModelOptions:
    """What the parameters of an estimator say about its model, checked."""
    given = {own.name: getattr(estimator, own.name) for own in fields(ModelOptions) if hasattr(estimator, own.name)}
    size = estimator.n_coreset
    given["n_coreset"] = None if size == "auto" else check_size("n_coreset (unless 'auto')", size)
    given["n_neighbors"] = check_neighbors(given.get("n_neighbors", 0))
    options = ModelOptions(**given | {"device": known_device(estimator.device)})
    warp, target = suitable_warp(options, solver), suitable_target(options, solver)
    options = replace(options, input_warp=warp, target_transform=target)
    for name, allowed in OPEN.items() if options.private else ():
        if (value := getattr(options, name)) not in allowed:
            raise InvalidInputError(
                f"private=True excludes {name}={value!r}, which keeps values of rows; leave it at {allowed[0]!r}."
            )
        options = replace(options, **{name: allowed[1]})
    return options


class Begun(NamedTuple):
    """What a fit begins with, whatever its likelihood is."""

    run: Run
    settings: TrainingOptions
    n_jobs: int | None
    table: Any  # None if the rows are not read as a table
    groups: Array | None  # of rows that are not read as a table, or given beside it
    time: Array | None  # the same
    has_groups: bool
    trends: dict[str, int]  # the features that are trends of dates, by column, if the fit has to decide about them

    def without_trends(self, estimator: Any, dates: Choice | None, *rows: Rows[Array] | None) -> tuple[Any, ...]:
        """The table and rows with features, without the trends that a decision leaves out."""
        if dates is None or not dates.value:
            return self.table, *rows
        table, left_out = self.table.without_trends(dates.value), [self.trends[name] for name in dates.value]
        estimator.schema_ = table.schema.to_json()
        return table, *(some and some._replace(x=np.delete(some.x, left_out, axis=1)) for some in rows)


def begin_fit(
    estimator: Any, training: TrainingOptions, pinned: Decisions, given: dict[str, Any], groups: Any, **named: Any
) -> Begun:
    """Check the options of a fit, and open the table if it is given one; a column of groups is taken out of x."""
    group, settings = current_group(), settings_of(training)
    check_positive("max_time", estimator.max_time)
    n_jobs, seed = check_n_jobs(estimator.n_jobs), pinned.seed
    if seed is None:
        seed = first_seed(group, check_seed(estimator.random_state))
    shown = [ProgressLines()] if estimator.verbose and group.rank == 0 else []
    log = FitLog([*shown, *(settings.callbacks or ())])
    heuristics = settings.heuristics or Heuristics()
    if estimator.private:
        if training.init != "kmeans" or any(pinned) or group.world > 1:
            raise InvalidInputError("private=True excludes training.init, decisions and several processes.")
        heuristics = replace(heuristics, exact_seconds=0.0, rows_per_point=FEWEST)
    run = Run(Budget(estimator.max_time, Clock(group=group)), log, heuristics, seed)
    given["x"], codes = take_groups(given["x"], groups)
    time = named["time"] = times_of_rows(named["time"])
    if time is not None and groups is not None:
        raise InvalidInputError("Rows are judged by groups or by time; give one of the two.")
    table = open_training_table(estimator, **given, groups=groups if codes is None else codes, **named)
    if table is not None:
        if table.table.time is not None and not table.fits_in_memory:
            why = "time is for rows in the memory of one process, and this table is read in parts."
            raise InvalidInputError(f"{why} Fit its latest rows, or a sample.")
        check_exposed(getattr(estimator, "likelihood", "classes"), table.table.exposure)
    has_groups = codes is not None or (table is not None and table.table.groups is not None)
    trends = {} if table is None or training.solver == "paper" else table.open_trends
    return Begun(run, settings, n_jobs, table, codes, time, has_groups, trends)


def training_rows(
    estimator: Any,
    table: Any,
    x: Any,
    y: Any,
    sample_weight: Any,
    noise_variance: Any = None,
    exposure: Any = None,
    groups: Array | None = None,
    time: Array | None = None,
) -> Rows[Array]:
    """Rows in memory, checked; notes their columns on the estimator."""
    if table is not None:
        return _informative(table.load())
    beside = (sample_weight, noise_variance, exposure, groups, time)
    rows, estimator._single_output = check_training(estimator, x, y, *beside)
    if hasattr(estimator, "feature_names_in_") or np.isnan(rows.x).any():
        schema = numeric_schema(feature_names(estimator), x, rows.x, y)
        if estimator.private:
            schema = replace(schema, columns=private_columns(schema.columns, len(rows.x)))
        estimator.schema_ = schema.to_json()
        if not schema.is_numeric:
            rows = rows._replace(x=features_of(schema.columns, rows.x))
    return _informative(rows)


def _informative(rows: Rows[Array]) -> Rows[Array]:
    """Rows of which something can be learned, or else an error."""
    if rows.time is not None:
        if (count := len(np.unique(rows.time))) < FEWEST_GROUPS:
            raise InvalidInputError(
                f"time has {count} different values. The latest rows cannot be held out with fewer than "
                f"{FEWEST_GROUPS}; fit without time."
            )
        rows = in_stretches(rows)
    elif rows.cluster is not None:
        check_groups(len(np.unique(rows.cluster)))
    if len(rows.x) < 2:
        raise InvalidInputError(
            f"Only {len(rows.x)} sample (n_samples={len(rows.x)}) has a target and a weight above 0. A fit needs at "
            "least 2 rows; give more."
        )
    if (rows.x == rows.x[0]).all():
        raise InvalidInputError(
            f"Each column has the same value in all {len(rows.x)} rows, so y cannot be predicted from them; give a "
            "column that varies."
        )
    return rows


def take_groups(x: Any, groups: Any) -> tuple[Any, Array | None]:
    """Inputs without the column that names groups, if it is one of theirs, and a number for each row's group [n].

    A table in files reads the column by itself.
    """
    if groups is None or (isinstance(groups, str) and is_in_files(x)):
        return x, None
    if isinstance(groups, str):
        x, groups = without_column(x, groups, "groups")
    values = np.asarray(_unwrapped("groups", groups)).reshape(-1).tolist()
    if any(value is None or value != value for value in values):
        raise InvalidInputError("groups has missing values; give each row a group, or leave those rows out.")
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return x, np.array([numbers[value] for value in values], dtype=np.float64)


def times_of_rows(time: Any) -> Any:
    """Dates as days, or numbers [n], by which rows are put in order; the name of a column stays."""
    if time is None or isinstance(time, str):
        return time
    values = np.asarray(_unwrapped("time", time)).reshape(-1)
    try:
        if values.dtype.kind in "OUM":
            stamps = values.astype("datetime64[us]")
            values = np.where(np.isnat(stamps), np.nan, stamps.astype(np.int64) / 86400e6)
        values = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(f"time must hold dates or numbers, such as 2024-05-31; {error}.") from error
    if not np.isfinite(values).all():
        raise InvalidInputError("time has missing or infinite values; give each row a time, or leave those rows out.")
    return values


def with_sphere(estimator: Any, options: ModelOptions) -> ModelOptions:
    """The options, and which features are a place on the sphere."""
    columns = Schema.from_json(estimator.schema_).columns if hasattr(estimator, "schema_") else ()
    return replace(options, sphere=sphere_of(columns))


def check_groups(count: int) -> None:
    """Raise if groups are too few to learn from."""
    if count < FEWEST_GROUPS:
        raise InvalidInputError(
            f"groups has {count} different labels. Intervals for new groups cannot be learned from fewer than "
            f"{FEWEST_GROUPS}; fit without groups."
        )


def check_prediction(estimator: BaseEstimator, x: Any) -> Array | Inputs:
    """Validate inputs to predict at: the same columns, by name where the training table had names."""
    if isinstance(x, Inputs):
        return x  # they were read by the estimator's schema
    ready = _ready(estimator, x)
    if ready is not None:
        return ready
    schema = schema_of(estimator)
    if schema is not None and reads_columns(estimator, x):
        return frame_inputs(schema, x)
    with errors_of_cvgp():
        plain = _unwrapped("X", in_order_of_fit(estimator, x))
        cells = validate_data(estimator, plain, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
    return cell_inputs(estimator, np.asarray(cells))


def _ready(estimator: BaseEstimator, x: Any) -> Array | None:
    """What scikit-learn's checks would return, if it is clear without them: they take longer than to predict a row."""
    if hasattr(estimator, "feature_names_in_"):
        x = values_of_frame(estimator, x)
    if type(x) is not np.ndarray or x.dtype != np.float64 or x.ndim != 2 or not len(x):
        return None
    if len(estimator._gp.scaling.x_mean) != estimator.n_features_in_:
        return None  # the features say where values are missing
    with np.errstate(over="ignore", invalid="ignore"):
        # A value that is not finite makes the sum so.
        return x if x.shape[1] == estimator.n_features_in_ and math.isfinite(x.sum()) else None


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


def held_out_rows(num_rows: int, settings: TrainingOptions) -> int:
    """How many rows early stopping holds out."""
    held = round(num_rows * settings.validation_fraction)
    if not 1 <= held < num_rows:
        raise InvalidInputError(
            f"early_stopping holds out validation_fraction={settings.validation_fraction} of {num_rows} rows, "
            "which leaves nothing to fit or to check; give more rows or another fraction."
        )
    return held


def hold_out(
    rows: Rows[Array], settings: TrainingOptions, rng: np.random.Generator
) -> tuple[Rows[Array], Rows[Array] | None]:
    """Rows to fit, and rows that early stopping holds out, if any."""
    if not settings.early_stopping:
        return rows, None
    held = held_out_rows(len(rows.x), settings)
    validation, train = two_parts(rows, held, len(rows.x) - held, rng, first_is_later=True)
    return train, validation


@contextmanager
def errors_of_cvgp() -> Iterator[None]:
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
    refuse_masked(name, values)
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values


def _features(found: Array | Inputs) -> Array:
    return found.x if isinstance(found, Inputs) else found


def _without_gaps(y: Any, *, partly: bool = True) -> tuple[Any, NDArray[np.bool_] | None]:
    """Outputs with zeros in gaps, and the rows [n] that have no gap, or unless `partly` any target; None if all do."""
    if y is None or np.asarray(y).dtype.kind == "c":
        return y, None  # scikit-learn's checks say what is wrong
    values = numbers("y", y)
    if not (gaps := np.isnan(values)).any():
        return y, None
    has_y = np.asarray(~(gaps.any if partly else gaps.all)(axis=tuple(range(1, values.ndim))))  # [n]
    if not has_y.any():
        raise InvalidInputError(f"Input y contains NaN only: none of its {len(values)} rows has a target.")
    if not has_y.all():
        left_out = f"Left out: the target is missing in {(~has_y).sum()} of {len(has_y)} rows."
        warnings.warn(left_out, CVGPWarning, stacklevel=5)
    return np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf), has_y


def _refuse_classes(table: Table) -> None:
    """Raise if a regressor is given labels as its target."""
    from cvgp.tables.classes import are_classes

    for name in table.targets if table.label is None else ():
        if name in table.names and table.opened.kind(name) != "boolean" and are_classes(table.opened, name):
            raise InvalidTypeError(f"Column {name!r} holds text, and CVGPRegressor predicts numbers. {FOR_CLASSES}")


def check_noise(noise_variance: Any, num_rows: int) -> Array:
    """Validate known noise variances [N]."""
    with errors_of_cvgp():
        noise = _one_per_row("noise_variance", noise_variance, num_rows)
    if (noise < 0).any():
        raise InvalidInputError("noise_variance holds variances, which are not negative; square the deviations.")
    return noise


def check_exposed(name: str, exposure: Any) -> None:
    """Raise if exposures are given to a likelihood that is not one of counts."""
    if exposure is not None and name not in COUNTS:
        raise InvalidInputError(
            f"exposure is for counts: use likelihood='poisson' or 'negative_binomial'; got likelihood={name!r}. For a "
            "rate or a share, divide y before the fit, or give the exposure as a column of X."
        )


def check_exposure(exposure: Any, num_rows: int) -> Array:
    """Validate exposures [N]; a number is that of every row."""
    if isinstance(exposure, str):
        raise InvalidInputError(f"exposure={exposure!r} names a column, which only a frame has; give a number per row.")
    with errors_of_cvgp():
        values = np.full(num_rows, exposure) if isinstance(exposure, Number) else exposure
        found = _one_per_row("exposure", values, num_rows)
    if (found <= 0.0).any():
        rows = np.flatnonzero(found <= 0.0)
        raise InvalidInputError(
            f"exposure must be above 0: in {len(rows)} of {num_rows} rows it is not, first in row {rows[0] + 1}, with "
            f"{found[rows[0]]:g}. It is the time, area or number at risk in which events were counted; leave out rows "
            "without any."
        )
    return found


def take_exposure(estimator: Any, x: Any, exposure: Any) -> tuple[Any, Any]:
    """Inputs without the column of exposures, and the exposures: what is given, or the column that the fit has used."""
    name = estimator._gp.exposure
    if exposure is None and name and is_frame(x) and name in getattr(x, "column_names", x.columns):
        exposure = name
    return without_column(x, exposure, "exposure") if isinstance(exposure, str) else (x, exposure)


def check_observed(y: Any, shape: tuple[int, ...]) -> Array:
    """Validate observations that predictions of some shape are compared with."""
    with errors_of_cvgp():
        plain = _unwrapped("y", y)
        values = plain if len(shape) > 1 else column_or_1d(plain, warn=True)
        observed = np.asarray(check_array(values, ensure_2d=False, dtype=np.float64, input_name="y"))
    if observed.shape != shape:
        raise InvalidInputError(f"y must have the shape of the predictions, {shape}; got {observed.shape}.")
    return observed


def observed_rows(
    inputs: Array | Inputs, y: Any, shape: tuple[int, ...], exposure: Any = None
) -> tuple[Array | Inputs, Array, Any]:
    """Inputs of rows that have an observation, these [n, Q], and the exposures of these rows."""
    y, has_y = _without_gaps(_unwrapped("y", y))
    observed = check_observed(y, shape).reshape(len(inputs), -1)
    if has_y is None:
        return inputs, observed, exposure
    chosen = np.flatnonzero(has_y)
    exposed = exposure if exposure is None else check_exposure(exposure, len(inputs))[chosen]
    return inputs.take(chosen) if isinstance(inputs, Inputs) else inputs[chosen], observed[chosen], exposed


def check_weight(sample_weight: Any, num_rows: int) -> Array:
    """Validate sample weights [N]."""
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


def check_size(name: str, value: Any) -> int:
    """A whole number of at least 1."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise InvalidInputError(f"{name} must be a whole number of at least 1; got {value!r}.")
    return int(value)


def refuse_transform(target: str) -> None:
    """Refuse a transform of y that would need the rows in memory."""
    if target not in ("auto", "identity"):
        raise InvalidInputError(
            f"target_transform={target!r} is for rows in memory, and this table is too large to be loaded. Store the "
            "transformed column in the table, or fit a sample of the rows."
        )


def weigh_groups(table: TrainingTable, run: Run, linked: Callable[[Rows[Array]], Rows[Array]]) -> TrainingTable:
    """A table that is read in parts, whose rows count less the more there are in their group, if that helps.

    Rows of groups are alike on the scale of f, to which `linked` takes their observations.
    """
    sizes = table.group_sizes.sizes
    check_groups(len(sizes))
    if sizes.max() > LARGEST_GROUP:
        raise InvalidInputError(
            f"groups has one of {sizes.max():.0f} rows, and in a table that is too large to be loaded each may have at "
            f"most {LARGEST_GROUP}, since whole groups are left out at once. Fit a sample of the rows of each group, "
            "which predicts new groups about as well."
        )
    some = table.whole_groups(2 * run.rows(run.heuristics.sample_rows), run.rng("groups"))
    return table.with_correlation(learn_correlation(merge_copies(linked(some)), run))


def table_data(
    table: TrainingTable, options: ModelOptions, settings: TrainingOptions, run: Run, pinned: Decisions
) -> FitData:
    """A table that is read in parts, ready to be fitted; each process of a group reads its own part."""
    device, group, held_out = options.device, run.group, None
    if settings.early_stopping:
        if table.table.groups is not None:
            raise InvalidInputError(
                "early_stopping with groups is for rows in memory, and this table is too large to be loaded. Fit "
                "without early_stopping, or a sample of whole groups."
            )
        share = held_out_rows(table.num_rows, settings) / table.num_rows
        table, watched = table.hold_out(share, run.rng("validation"))
    check_fingerprints(table.common_sample.x, options.kernel)
    # From a sample of the rows that is the same in all processes.
    warp, choice = decide_warp(merge_copies(table.common_sample), options, run, pinned)
    learned = table.scaling(warp).with_common_scale(options.sphere)
    scaling = choose_scaling(learned, options, y_varies=table.y_varies)
    check_variance(scaling.y_scale)
    source = table.source(scaling, device)
    if settings.early_stopping:
        held_out = MemorySource(*scaling.tensors(table.rows.encode(*watched), device=device))
    reason = "the table is read in parts"
    none, identity = Choice("none", None, reason), Choice("identity", None, reason)
    decisions = Decisions(outliers=none, target_transform=identity, input_warp=choice, seed=run.seed)
    only_y = None if table.y_varies else learned.y_mean
    found = FitData(source, held_out, scaling, spread_of(scaling, learned), only_y, decisions=decisions)
    if group.world > 1:
        shared = None if held_out is None else SharedSource(held_out, group)
        found = found._replace(train=SharedSource(source, group), held_out=shared)
    return found
