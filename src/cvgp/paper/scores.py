"""What is measured of a fitted system on rows that it has not seen."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cvgp import metrics
from cvgp.errors import FactorisationError
from cvgp.paper.baselines import Prediction
from cvgp.paper.store import Metrics

Array = NDArray[np.float64]

JOINT_ROWS = 4000
"""Most rows whose joint log density is computed; its covariance would not fit for many more."""

LEVEL = 0.9


class Fitted(Protocol):
    """A system after its fit."""

    def predict(self, x: Array, *, joint: bool = False) -> Prediction:
        """The posterior predictive at inputs [n, D], with the joint covariance if `joint`."""
        ...


def marginal_scores(y: Array, mean: Array, sd: Array) -> Metrics:
    """RMSE, the mean of the marginal log densities, CRPS, and the coverage of 90 % intervals."""
    return {
        "rmse": metrics.rmse(y, mean),
        "log_likelihood": metrics.mean_log_density(y, mean, sd),
        "crps": metrics.crps(y, mean, sd),
        "coverage": metrics.coverage(y, mean, sd, LEVEL),
    }


def score(model: Fitted, x: Array, y: Array, *, joint: bool = False) -> Metrics:
    """The marginal scores and, if `joint`, the paper's PPLL: the joint log density divided by n."""
    found = model.predict(x)
    scores = marginal_scores(y, found.mean, found.y_sd)
    return scores | {"joint_log_likelihood": _joint_log_likelihood(model, x, y)} if joint else scores


def _joint_log_likelihood(model: Fitted, x: Array, y: Array) -> float | None:
    if len(y) > JOINT_ROWS:
        return None
    found = model.predict(x, joint=True)
    assert found.f_covariance is not None, "asked for"
    covariance = 0.5 * (found.f_covariance + found.f_covariance.T) + found.noise * np.eye(len(y))
    try:
        return metrics.joint_log_density(y, found.mean, covariance) / len(y)
    except FactorisationError:  # a covariance learned in float32 may have no density
        return None
