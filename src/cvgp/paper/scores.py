"""What is measured of a fitted system on rows that it has not seen."""

import numpy as np
from numpy.typing import NDArray

from cvgp import metrics
from cvgp.errors import FactorisationError
from cvgp.paper.baselines import Baseline
from cvgp.paper.store import Metrics

__all__ = ["JOINT_ROWS", "score"]

Array = NDArray[np.float64]

JOINT_ROWS = 4000
"""Most rows whose joint log density is computed; its covariance would not fit for many more."""

LEVEL = 0.9


def score(model: Baseline, x: Array, y: Array, *, joint: bool = False) -> Metrics:
    """RMSE, the mean of the marginal log densities and, if `joint`, the paper's PPLL: the joint one divided by n."""
    found = model.predict(x)
    scores: Metrics = {
        "rmse": metrics.rmse(y, found.mean),
        "log_likelihood": metrics.mean_log_density(y, found.mean, found.y_sd),
    }
    if joint:
        scores["crps"] = metrics.crps(y, found.mean, found.y_sd)
        scores["coverage"] = metrics.coverage(y, found.mean, found.y_sd, LEVEL)
        scores["joint_log_likelihood"] = _joint_log_likelihood(model, x, y)
    return scores


def _joint_log_likelihood(model: Baseline, x: Array, y: Array) -> float | None:
    if len(y) > JOINT_ROWS:
        return None
    found = model.predict(x, joint=True)
    assert found.f_covariance is not None, "asked for"
    covariance = 0.5 * (found.f_covariance + found.f_covariance.T) + found.noise * np.eye(len(y))
    try:
        return metrics.joint_log_density(y, found.mean, covariance) / len(y)
    except FactorisationError:  # a covariance learned in float32 may have no density
        return None
