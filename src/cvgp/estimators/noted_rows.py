"""What an estimator remembers of the rows of its fit: a few numbers per column, learned from a sample.

They are the importance of columns, the distribution of each, and a constant and a line to compare with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cvgp.data.source import DataSource
from cvgp.estimators.columns_seen import ColumnsSeen
from cvgp.estimators.importance import ROWS_TO_DRAW_FROM
from cvgp.estimators.simple_models import Baselines

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor


def note_rows(estimator: CVGPRegressor, source: DataSource, seed: int) -> None:
    """Learn from a sample of rows that are in the units of a model which was just fitted to them."""
    gp = estimator.gp_
    rows = source.sample(ROWS_TO_DRAW_FROM, np.random.default_rng(seed))
    x = gp.scaling.unscale_x(rows.x.to("cpu").double().numpy())
    y = gp.target.invert(gp.scaling.unscale_y(rows.y.to("cpu").double().numpy().reshape(len(x), -1)))
    weight = None if rows.sample_weight is None else rows.sample_weight.to("cpu").double().numpy()
    estimator.note_indices(x, weight)
    for name in ("columns_seen_", "baselines_"):
        estimator.__dict__.pop(name, None)  # of an earlier fit
    # Sums and squares of values such as 1e200 are beyond the range of floats. There is nothing to remember then.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        seen = ColumnsSeen.learn(x, y)
        simple = Baselines.learn(x, y[:, 0], weight) if y.shape[1] == 1 else None
    if seen.is_finite:
        estimator.columns_seen_ = seen.to_json()
    if simple is not None and simple.is_finite:
        estimator.baselines_ = simple.to_json()


def check_noted(estimator: CVGPRegressor) -> None:
    """Refuse what an untrusted file says of the rows, unless it is as it would be noted."""
    num_features, num_outputs = len(estimator.gp_.scaling.x_mean), len(estimator.gp_.scaling.y_mean)
    if hasattr(estimator, "baselines_"):
        Baselines.from_json(estimator.baselines_, num_features)
    if hasattr(estimator, "columns_seen_"):
        ColumnsSeen.from_json(estimator.columns_seen_, num_features, num_outputs)
