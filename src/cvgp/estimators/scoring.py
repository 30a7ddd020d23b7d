"""Scores of predictions: error, log-likelihood, CRPS and the share of observations inside intervals."""

from __future__ import annotations

import numpy as np

from cvgp import metrics
from cvgp.data.rows import Array
from cvgp.estimators.new_observations import Predictive

LEVELS = (50, 90, 95)
"""The probabilities of intervals in percent."""


def scores_of_model(found: Predictive, y: Array, output: int = 0) -> dict[str, float]:
    """Those of predictions that need not be Gaussian, for observations [n, Q] of which one output counts."""
    own = y[:, output]
    mean, sd = found.moments.mean[:, output], np.sqrt(found.moments.variance[:, output])
    is_gaussian = found.target.name == "identity" and found.outliers is None
    halves = np.array(LEVELS) / 200
    ends = found.quantiles(np.append(0.5 - halves, 0.5 + halves))[:, output]  # [n, 2 L]
    inside = (ends[:, : len(LEVELS)] <= own[:, None]) & (own[:, None] <= ends[:, len(LEVELS) :])
    return {
        "rmse": metrics.rmse(own, mean),
        "mean_log_likelihood": float(found.log_density(y)[:, output].mean()),
        "crps": metrics.crps(own, mean, sd) if is_gaussian else float(found.crps(y)[:, output].mean()),
        **{f"coverage_{level}": float(share) for level, share in zip(LEVELS, inside.mean(axis=0), strict=True)},
    }


def scores_of_normal(y: Array, mean: Array, sd: Array) -> dict[str, float]:
    """Those of Gaussian predictions of one output."""
    return {
        "rmse": metrics.rmse(y, mean),
        "mean_log_likelihood": metrics.mean_log_density(y, mean, sd),
        "crps": metrics.crps(y, mean, sd),
        **{f"coverage_{level}": metrics.coverage(y, mean, sd, level / 100) for level in LEVELS},
    }


SCORE_NAMES = {"rmse": "RMSE", "mean_log_likelihood": "mean log-likelihood", "crps": "CRPS"} | {
    f"coverage_{level}": f"inside {level} % intervals" for level in LEVELS
}


def score_as_text(name: str, value: float) -> str:
    """A score for people: shares in percent."""
    return f"{value:.1%}" if name.startswith("coverage") else f"{value:.4g}"
