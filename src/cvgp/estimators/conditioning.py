"""A fitted estimator that also sees new rows, without another fit."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from cvgp.errors import InvalidInputError
from cvgp.estimators.growing import known_rows
from cvgp.estimators.inputs import array_source
from cvgp.estimators.new_observations import Predictive
from cvgp.estimators.transformed_rows import sum_of_log_slopes, transformed
from cvgp.parallel.group import ALONE
from cvgp.training.appended_rows import append_to_coreset, append_to_neighbours
from cvgp.training.neighbours import MOST_ROWS

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor


def condition(estimator: CVGPRegressor, x: Any, y: Any, sample_weight: Any, noise_variance: Any) -> CVGPRegressor:
    """`CVGPRegressor.condition`; rows stay in the order in which they come."""
    gp = estimator.gp_
    rows = known_rows(estimator, x, y, sample_weight, noise_variance)
    if gp.outliers is not None:
        rows = Predictive.at(gp, rows.x).regular(rows)
    # The parts of a fitted estimator are never changed, only replaced, so that the copy may share them.
    found = copy(estimator)
    if not len(rows.x):
        return found  # all are outliers, and say nothing
    source = gp.weighed(array_source(transformed(gp.target, rows), gp.scaling, gp.model.X_c.device, ALONE))
    (new,) = source.chunks(source.num_rows)
    if gp.local is None:
        # What `_set_bound` adds is taken off again.
        log_scale = float(np.log(gp.scaling.y_scale).sum())
        bound = estimator.elbo_ + estimator.n_rows_ * log_scale - estimator._log_slopes
        appended = append_to_coreset(gp.model, new, bound)
    else:
        total = len(gp.local.kept.rows.x) + source.num_rows
        if total > MOST_ROWS:
            raise InvalidInputError(
                f"Predictions can consult at most {MOST_ROWS} rows, and with the new ones there would be {total}. Fit "
                "with neighbors=0 to condition on more."
            )
        appended = append_to_neighbours(gp.model, gp.local.kept, new)
    found.gp_ = gp.with_model(appended.model, appended.kept)
    found.statistics_ = appended.statistics
    num_rows = estimator.n_rows_ + source.total_weight
    found._set_bound(appended.bound, num_rows, estimator._log_slopes + sum_of_log_slopes(gp.target, rows))
    return found
