"""Coresets of other sizes for a fitted estimator: rows to grow on, the neighbours that it consults, quality by size."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from cvgp import metrics
from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Array, Rows
from cvgp.data.schema import Schema
from cvgp.data.source import DataSource
from cvgp.data.split import SharedSource
from cvgp.errors import CVGPWarning, InvalidInputError
from cvgp.estimators.frames import feature_names
from cvgp.estimators.inputs import (
    array_source,
    canonical,
    check_seed,
    check_size,
    check_training,
)
from cvgp.estimators.modes import usual_modes
from cvgp.estimators.new_observations import Predictive
from cvgp.estimators.table_options import TableOptions, is_table
from cvgp.estimators.tables import open_table, refuse_transform
from cvgp.estimators.transformed_rows import sum_of_log_slopes, transformed
from cvgp.estimators.units import ScaledGP
from cvgp.gp.bounds import Statistics
from cvgp.gp.model import CVGP
from cvgp.parallel.group import ALONE, Group
from cvgp.training.grow import grow_model
from cvgp.training.neighbour_rows import adopt_neighbours, in_random_order
from cvgp.training.neighbours import reason_against
from cvgp.training.prune import shrink_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cvgp.data.tables.training_table import TrainingTable
    from cvgp.estimators.regressor import CVGPRegressor

HELD_OUT = 0.2
"""The share of the rows, the last ones, that are scored where no others are given."""


def known_source(
    estimator: CVGPRegressor,
    x: Any,
    y: Any,
    sample_weight: Any,
    noise_variance: Any,
    group: Group,
    reading: TableOptions,
) -> tuple[DataSource, float]:
    """Rows as `fit` takes them, in the units of a fitted estimator, whose columns they must have.

    Also returns the sum over rows of log T'(y), for the transform T of the estimator.
    """
    gp, table = estimator.gp_, None
    if is_table(x, y, reading):
        named = {"sample_weight": sample_weight, "noise_variance": noise_variance}
        table = open_table(x, y, **named, **_as_before(estimator, reading), dates=estimator.dates, group=group)
        _check_columns(estimator, table)
    device = gp.model.X_c.device
    if table is None or table.fits_in_memory:
        given = known_rows(estimator, x, y, sample_weight, noise_variance) if table is None else table.load()
        rows = canonical(given)
        if gp.outliers is not None:
            rows = Predictive.at(gp, rows.x).regular(rows)
        source = array_source(transformed(gp.target, rows), gp.scaling, device, group)
        return source, sum_of_log_slopes(gp.target, rows)
    refuse_transform(gp.target.name)
    read = table.source(gp.scaling, device)
    return (read if group.world == 1 else SharedSource(read, group)), 0.0


def _as_before(estimator: CVGPRegressor, reading: TableOptions) -> dict[str, Any]:
    """Read the columns that the fit has used, as it has read them."""
    stored = getattr(estimator, "schema_", None)
    if stored is None:
        return dict(reading._asdict())
    schema = Schema.from_json(stored)
    used = tuple(column.name for column in schema.columns)
    return {**reading._asdict(), "features": used, "known": schema.reading}


class Resized(NamedTuple):
    """What an estimator is to hold from now on."""

    gp: ScaledGP
    statistics: Statistics
    bound: float | None
    """That of the model with neighbours, in nats and in the model's units; None without neighbours."""


def resize(
    gp: ScaledGP, model: CVGP, statistics: Statistics, source: DataSource | None = None, seed: int = 0
) -> Resized:
    """Put a model with other points, and the same kernel and noise, in the place of one that may consult neighbours.

    Parameters
    ----------
    gp
        The present one.
    model, statistics
        The new model, which is the result where no neighbours are consulted.
    source, seed
        Rows to consult from now on, and their order; those of the present one by default. Rows that cannot be consulted
        leave the coreset alone, with a warning.
    """
    rows, num_neighbours = None, 0
    if gp.local is not None:
        rows, num_neighbours = gp.local.kept.rows, gp.local.kept.num_neighbours
        if isinstance(source, MemorySource) and not reason_against(source):
            rows = in_random_order(source.data, seed)
        elif source is not None:
            warnings.warn(
                f"The model has consulted neighbours, and no longer does: {reason_against(source)}.",
                CVGPWarning,
                stacklevel=3,
            )
            rows = None
    if rows is None:
        return Resized(gp.with_model(model), statistics, None)
    group = ALONE if source is None else source.group
    kept, bound = adopt_neighbours(model, rows, num_neighbours, group=group)
    return Resized(gp.with_model(model, kept), kept.statistics, bound)


@usual_modes()
def quality_by_size(
    model: CVGPRegressor,
    X: ArrayLike,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    noise_variance: ArrayLike | None = None,
    *,
    sizes: Sequence[int] | None = None,
    held_out: tuple[ArrayLike, ArrayLike] | None = None,
) -> dict[str, NDArray[Any]]:
    """Prune and grow a fitted model to several sizes, and score each of them on rows that were held out.

    For each size the points are solved for from the rows in X that are not held out. Kernel and noise stay as they are,
    and so does the model. A model that was fitted to the held-out rows as well has learned its kernel from them too,
    so give `held_out` if there are rows that it has not seen. Coresets are scored alone: no neighbours are consulted.

    Parameters
    ----------
    model : CVGPRegressor
        Fitted.
    X, y : array-like
        Rows of the columns that the model was fitted to: usually those of the fit.
    sample_weight, noise_variance : array-like of shape (n_samples,), optional
        As for `fit`. Scores count every held-out row once.
    sizes : sequence of int, optional
        Numbers of pseudo-points. The powers of two up to twice the present size by default.
    held_out : (X, y), optional
        Rows to score. By default they are the last fifth of X and y.

    Returns
    -------
    dict of ndarrays
        One entry per size, in rising order: `size` (where nothing is left to explain it is smaller than asked for),
        `bound_per_row` (the paper's bound in nats, for y in its own units), `rmse`, `mean_log_likelihood` (nats per
        held-out row and output) and `seconds` (to prune or grow to this size). A ``pandas.DataFrame`` can be made of
        it.

    Raises
    ------
    NotFittedError
        If the model is not fitted.
    InvalidInputError
        If the rows have other columns or outputs than the model, if a size is not a whole number of at least 1, or if
        there are too few rows to grow to it.
    InvalidTypeError
        If X or y holds no numbers.

    Examples
    --------
    >>> import cvgp, numpy as np
    >>> X = np.random.default_rng(0).uniform(0, 6, (200, 1))
    >>> y = np.sin(X[:, 0])
    >>> model = cvgp.CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X[:150], y[:150])
    >>> quality = cvgp.quality_by_size(model, X, y, sizes=[2, 8, 16])
    >>> quality["size"].tolist()
    [2, 8, 16]
    >>> bool(quality["rmse"][2] < quality["rmse"][0])
    True
    """
    check_is_fitted(model)
    rows = known_rows(model, X, y, sample_weight, noise_variance)
    if held_out is None:
        rows, scored = _split_off_the_last(rows)
    else:
        x_new, y_new = held_out
        scored = known_rows(model, x_new, y_new, None, None)
    target, rows = model.gp_.target, canonical(rows)
    if model.gp_.outliers is not None:
        rows = Predictive.at(model.gp_, rows.x).regular(rows)
    source = array_source(transformed(target, rows), model.gp_.scaling, model.model_.X_c.device, ALONE)
    seed = check_seed(model.random_state).randint(2**31)
    # Also at the present size: the fit may have seen the rows that are now held out.
    present = grow_model(model.model_, source, len(model.model_.X_c), np.random.default_rng(seed))
    log_scale = float(np.log(model.gp_.scaling.y_scale).sum())
    log_scale -= sum_of_log_slopes(target, rows) / source.total_weight
    found = []
    for size in _checked_sizes(sizes, len(present.model.X_c), source.num_rows):
        start = time.perf_counter()
        if size <= len(present.model.X_c):
            pruned = shrink_model(present.model, present.statistics, size)
            resized, bound = pruned.model, present.bound - pruned.loss
        else:
            grown = grow_model(present.model, source, size, np.random.default_rng(seed))
            resized, bound = grown.model, grown.bound
        seconds = time.perf_counter() - start
        scores = _scores(model.gp_.with_model(resized), scored)
        found.append((len(resized.X_c), bound / source.total_weight - log_scale, *scores, seconds))
    names = ("size", "bound_per_row", "rmse", "mean_log_likelihood", "seconds")
    return {name: np.array(column) for name, column in zip(names, zip(*found, strict=True), strict=True)}


def known_rows(estimator: CVGPRegressor, x: Any, y: Any, sample_weight: Any, noise_variance: Any) -> Rows[Array]:
    """Rows in memory, checked, with the columns and outputs that a fitted estimator has."""
    rows, _ = check_training(estimator, x, y, sample_weight, noise_variance, reset=False)
    _check_outputs(estimator, rows.y.shape[1])
    return rows


def _check_columns(estimator: CVGPRegressor, table: TrainingTable) -> None:
    expected = feature_names(estimator)
    if table.feature_names != expected:
        raise InvalidInputError(
            f"The table must have the features that the model was fitted to, {expected}; got {table.feature_names}."
        )
    _check_outputs(estimator, len(table.survey.encoder.targets))


def _check_outputs(estimator: CVGPRegressor, count: int) -> None:
    outputs = len(estimator.gp_.scaling.y_mean)
    if count != outputs:
        raise InvalidInputError(f"y must have the {outputs} outputs that the model was fitted to; got {count}.")


def _split_off_the_last(rows: Rows[Array]) -> tuple[Rows[Array], Rows[Array]]:
    held = round(HELD_OUT * len(rows.x))
    if not 1 <= held < len(rows.x):
        raise InvalidInputError(
            f"The last fifth of the rows is scored, which needs at least 3 rows; got {len(rows.x)}. Give held_out."
        )
    return rows.take(slice(-held)), rows.take(slice(-held, None))


def _checked_sizes(sizes: Any, present: int, num_rows: int) -> list[int]:
    """Different sizes in rising order; by default powers of two that the rows suffice for."""
    if sizes is None:
        most = min(2 * present, max(present, num_rows))
        return [2**power for power in range(most.bit_length())]
    return sorted({check_size("each of sizes", size) for size in sizes})


def _scores(gp: ScaledGP, scored: Rows[Array]) -> tuple[float, float]:
    """RMSE and mean log-likelihood over rows and outputs."""
    found = Predictive.at(gp, scored.x)
    return metrics.rmse(scored.y.ravel(), found.moments.mean.ravel()), float(found.log_density(scored.y).mean())
