"""What an estimator remembers of the rows of its fit: a few numbers per column, learned from a sample.

They are the importance of columns, the distribution of each, and a constant and a line to compare with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cvgp.data.source import DataSource
from cvgp.estimators.columns_seen import ColumnsSeen
from cvgp.estimators.importance import ROWS_TO_DRAW_FROM, note_indices
from cvgp.estimators.simple_models import Baselines
from cvgp.training.monitor import Watch

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor

LARGEST = 1e120
"""Of larger values the sums of squares come near the end of the range of floats, and nothing is remembered."""


def note_rows(estimator: CVGPRegressor, source: DataSource, seed: int, watch: Watch) -> None:
    """Learn from a sample of rows that are in the units of a model which was just fitted to them.

    Importances are made of fewer rows where a time limit has left little time.
    """
    gp = estimator.gp_
    rows = source.sample(ROWS_TO_DRAW_FROM, np.random.default_rng(seed))
    x = gp.scaling.unscale_x(rows.x.to("cpu").double().numpy())
    y = gp.target.invert(gp.scaling.unscale_y(rows.y.to("cpu").double().numpy().reshape(len(x), -1)))
    weight = None if rows.sample_weight is None else rows.sample_weight.to("cpu").double().numpy()
    for name in ("columns_seen_", "baselines_"):
        estimator.__dict__.pop(name, None)  # of an earlier fit
    if max(np.abs(x).max(), np.abs(y).max()) <= LARGEST:
        estimator.columns_seen_ = ColumnsSeen.learn(x, y).to_json()
        if y.shape[1] == 1:
            # The slope of a large y in a tiny x may be beyond the range of floats.
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                simple = Baselines.learn(x, y[:, 0], weight)
            if simple.is_finite:
                estimator.baselines_ = simple.to_json()
    note_indices(estimator, x, weight, watch)  # which takes what time is left


def check_noted(estimator: CVGPRegressor) -> None:
    """Refuse what an untrusted file says of the rows, unless it is as it would be noted."""
    num_features, num_outputs = len(estimator.gp_.scaling.x_mean), len(estimator.gp_.scaling.y_mean)
    if hasattr(estimator, "baselines_"):
        Baselines.from_json(estimator.baselines_, num_features)
    if hasattr(estimator, "columns_seen_"):
        ColumnsSeen.from_json(estimator.columns_seen_, num_features, num_outputs)
