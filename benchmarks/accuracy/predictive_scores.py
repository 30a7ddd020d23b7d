"""Scores of a prediction that is a Gaussian, a set of quantiles, or quantiles with a density.

A score that needs what a prediction does not have is None: quantiles alone have no density, and six of them are too
few for a CRPS.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from cvgp import metrics
from cvgp.paper.store import Metrics

__all__ = ["INTERVALS", "LEVELS", "predictive_scores", "quantile_crps"]

Array = NDArray[np.float64]

INTERVALS = (0.5, 0.9, 0.95)
"""Probabilities of the central intervals whose coverage is counted."""
CRPS_LEVELS = tuple((k + 0.5) / 200 for k in range(200))
"""The CRPS of a standard normal is 0.003 % too large by these; that of other libraries is exact."""
LEVELS = tuple(sorted({*CRPS_LEVELS, *((1 + sign * p) / 2 for p in INTERVALS for sign in (-1, 1))}))
"""Quantiles that are asked for where a prediction need not be Gaussian."""
EQUAL_WIDTHS = 1e-6
"""Intervals whose widths differ by less than this share have no quiet and noisy rows."""


def predictive_scores(y: Array, found: Mapping[str, Array]) -> Metrics:
    """RMSE, mean log-likelihood, CRPS, and the coverage of intervals: of all rows, and of quiet and noisy thirds."""
    scores: Metrics = {"rmse": metrics.rmse(y, found["mean"]), "log_likelihood": None, "crps": None}
    if "sd" in found:
        mean, sd = found["mean"], found["sd"]
        scores |= {"log_likelihood": metrics.mean_log_density(y, mean, sd), "crps": metrics.crps(y, mean, sd)}
        ends = {p: metrics.interval(mean, sd, p) for p in INTERVALS}
    else:
        at = dict(zip(np.round(found["levels"], 6).tolist(), found["quantiles"], strict=True))
        ends = {p: (at[round((1 - p) / 2, 6)], at[round((1 + p) / 2, 6)]) for p in INTERVALS}
        if "log_density" in found:
            scores["log_likelihood"] = float(np.mean(found["log_density"]))
            scores["crps"] = quantile_crps(y, np.stack([at[round(level, 6)] for level in CRPS_LEVELS]))
    lower, upper = ends[0.9]
    widths = upper - lower
    order = np.argsort(widths, kind="stable")
    third = len(y) // 3
    vary = np.ptp(widths) > EQUAL_WIDTHS * widths.max()
    for p, (low, high) in ends.items():
        inside = (low <= y) & (y <= high)
        name = f"coverage_{100 * p:.0f}"
        scores[name] = float(np.mean(inside))
        for place, rows in (("quiet", order[:third]), ("noisy", order[-third:])):
            scores[f"{name}_{place}"] = float(np.mean(inside[rows])) if vary and third else None
    scores["coverage"] = scores["coverage_90"]
    return scores


def quantile_crps(y: Array, quantiles: Array) -> float:
    """Twice the mean pinball loss over the levels of `CRPS_LEVELS`, and over rows."""
    levels = np.asarray(CRPS_LEVELS)[:, None]
    error = y - quantiles  # [levels, n]
    return float(2 * np.mean(np.maximum(levels * error, (levels - 1) * error)))
