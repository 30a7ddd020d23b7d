"""What an estimator remembers of the rows of its fit, learned from a sample.

That is the importance of columns, the distribution of each, and models to compare with: a constant, a line and trees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cvgp.data.rows import Array, Rows
from cvgp.data.source import DataSource
from cvgp.estimators.boosted_trees import BoostedTrees, rows_to_learn_from, seconds_to_learn
from cvgp.estimators.columns_seen import ColumnsSeen
from cvgp.estimators.importance import ROWS_TO_DRAW_FROM, note_indices, seconds_for_importance
from cvgp.estimators.simple_models import Baselines
from cvgp.estimators.units import ScaledGP
from cvgp.files.untrusted import Arrays
from cvgp.training.monitor import Watch

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor

LARGEST = 1e120
"""Of larger values the sums of squares come near the end of the range of floats, and nothing is remembered."""
LARGEST_SHARE = 0.05
"""Of a time limit, what is kept back for trees; where they need more, they are learned if time is left over."""


def note_rows(estimator: CVGPRegressor, source: DataSource, seed: int, watch: Watch) -> None:
    """Learn from a sample of rows that are in the units of a model which was just fitted to them.

    Where a time limit has left little time, importances are made of fewer rows, and there are no trees.
    """
    gp = estimator.gp_
    z, y, weight = _arrays(gp, source.sample(ROWS_TO_DRAW_FROM, np.random.default_rng(seed)))
    x = gp.scaling.unscale_x(z)
    for name in ("columns_seen_", "baselines_", "boosting_"):
        estimator.__dict__.pop(name, None)  # of an earlier fit
    if _is_moderate(x, y):
        estimator.columns_seen_ = ColumnsSeen.learn(x, y).to_json()
        if y.shape[1] == 1:
            # The slope of a large y in a tiny x may be beyond the range of floats.
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                simple = Baselines.learn(x, y[:, 0], weight)
            if simple.is_finite:
                estimator.baselines_ = simple.to_json()
    if y.shape[1] == 1 and _has_time_for_trees(source.num_rows, x.shape[1], watch):
        _note_trees(estimator, source, seed)
    note_indices(estimator, x, weight, watch)  # which takes what time is left


def seconds_to_note(num_rows: int, num_dims: int, num_outputs: int, watch: Watch) -> float:
    """Of a time limit, what :func:`note_rows` may need after the fit."""
    needed = seconds_for_importance(num_dims, watch)
    if watch.max_time is None or num_outputs > 1:
        return needed
    trees = watch.pace * seconds_to_learn(num_rows, num_dims)
    return needed + (trees if trees <= LARGEST_SHARE * watch.max_time else 0.0)


def _has_time_for_trees(num_rows: int, num_dims: int, watch: Watch) -> bool:
    """Whether they can be learned within the time limit, beside the importance of columns."""
    return watch.left - seconds_for_importance(num_dims, watch) >= watch.pace * seconds_to_learn(num_rows, num_dims)


def _note_trees(estimator: CVGPRegressor, source: DataSource, seed: int) -> None:
    """Learn trees from inputs in the model's units.

    A split goes by the order of values, which is the same in these. Back in the user's units a value would have changed
    by its last digit, and all rows that have it could be on the other side of a split.
    """
    gp = estimator.gp_
    count = rows_to_learn_from(len(gp.scaling.x_mean))
    z, y, weight = _arrays(gp, source.sample(count, np.random.default_rng(seed)))
    found = BoostedTrees.learn(z, y[:, 0], weight) if _is_moderate(z, y) else None
    if found is not None and found.is_storable:
        estimator.boosting_ = found


def _arrays(gp: ScaledGP, rows: Rows[Tensor]) -> tuple[Array, Array, Array | None]:
    """Features [n, D] in the model's units, outputs [n, Q] in the user's, and weights."""
    x = rows.x.to("cpu").double().numpy()
    y = gp.target.invert(gp.scaling.unscale_y(rows.y.to("cpu").double().numpy().reshape(len(x), -1)))
    return x, y, None if rows.sample_weight is None else rows.sample_weight.to("cpu").double().numpy()


def _is_moderate(x: Array, y: Array) -> bool:
    return bool(max(np.abs(x).max(), np.abs(y).max()) <= LARGEST)


def pack_noted(estimator: CVGPRegressor) -> dict[str, NDArray[Any]]:
    """What is noted of the rows as arrays of a file; the rest is JSON."""
    return estimator.boosting_.to_arrays() if hasattr(estimator, "boosting_") else {}


def unpack_noted(estimator: CVGPRegressor, arrays: Arrays) -> None:
    """Take the arrays of an untrusted file, and refuse what it says of the rows, unless it is as it would be noted."""
    num_features, num_outputs = len(estimator.gp_.scaling.x_mean), len(estimator.gp_.scaling.y_mean)
    if hasattr(estimator, "baselines_"):
        Baselines.from_json(estimator.baselines_, num_features)
    if hasattr(estimator, "columns_seen_"):
        ColumnsSeen.from_json(estimator.columns_seen_, num_features, num_outputs)
    trees = BoostedTrees.from_arrays(arrays, num_features)
    if trees is not None:
        estimator.boosting_ = trees
