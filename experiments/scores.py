"""Scores of predictions of rows that a method has not seen."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from cvgp import metrics
from cvgp.errors import FactorizationError
from cvgp.gp.likelihoods import Poisson
from experiments.divergences import joint_log_density
from experiments.store import Metrics

Array = NDArray[np.float64]

JOINT_ROWS = 10_000
"""Rows of a block whose joint log density is computed; the covariance of many more would not fit into memory."""

LEVEL = 0.9

INTERVALS = (0.5, 0.9, 0.95)
"""Probabilities of the central intervals whose coverage is counted."""
CRPS_LEVELS = tuple((k + 0.5) / 200 for k in range(200))
"""The CRPS of a standard normal is 0.003 % too large by these; that of other libraries is exact."""
LEVELS = tuple(sorted({*CRPS_LEVELS, *((1 + sign * p) / 2 for p in INTERVALS for sign in (-1, 1))}))
"""Quantiles that are asked for where a prediction need not be Gaussian."""
EQUAL_WIDTHS = 1e-6
"""Intervals whose widths differ by less than this share have no quiet and noisy rows."""


class Prediction(NamedTuple):
    """The posterior predictive at some inputs."""

    mean: Array  # [n]
    f_var: Array  # [n]
    noise: float
    f_covariance: Array | None = None  # [n, n], where it was asked for

    @property
    def f_sd(self) -> Array:
        """Standard deviation of the function."""
        return np.sqrt(self.f_var)

    @property
    def y_sd(self) -> Array:
        """Standard deviation of a new observation."""
        return np.sqrt(self.f_var + self.noise)


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
    """The marginal scores and, if `joint`, the paper's PPLL: the joint log density divided by n.

    More than `JOINT_ROWS` rows are taken in blocks, as if these were independent given the posterior.
    """
    found = model.predict(x)
    scores = marginal_scores(y, found.mean, found.y_sd)
    return scores | {"joint_log_likelihood": _joint_log_likelihood(model, x, y)} if joint else scores


def _joint_log_likelihood(model: Fitted, x: Array, y: Array) -> float | None:
    total = 0.0
    for first in range(0, len(y), JOINT_ROWS):
        block = slice(first, first + JOINT_ROWS)
        found = model.predict(x[block], joint=True)
        assert found.f_covariance is not None, "asked for"
        covariance = 0.5 * (found.f_covariance + found.f_covariance.T)
        covariance[np.diag_indices_from(covariance)] += found.noise
        try:
            total += joint_log_density(y[block], found.mean, covariance)
        except FactorizationError:  # a covariance learned in float32 may have no density
            return None
    return total / len(y)


def predictive_scores(y: Array, found: Mapping[str, Array]) -> Metrics:
    """RMSE, mean log-likelihood, CRPS, and the coverage and mean width of intervals, of quiet and noisy thirds also.

    A prediction is a Gaussian, by its mean and sd, or quantiles at `LEVELS` with a log density.
    """
    scores: Metrics = {"rmse": metrics.rmse(y, found["mean"])}
    if "sd" in found:
        mean, sd = found["mean"], found["sd"]
        scores |= {"log_likelihood": metrics.mean_log_density(y, mean, sd), "crps": metrics.crps(y, mean, sd)}
        ends = {p: metrics.interval(mean, sd, p) for p in INTERVALS}
    else:
        at = dict(zip(np.round(found["levels"], 6).tolist(), found["quantiles"], strict=True))
        ends = {p: (at[round((1 - p) / 2, 6)], at[round((1 + p) / 2, 6)]) for p in INTERVALS}
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
        scores[f"width_{100 * p:.0f}"] = float(np.mean(high - low))
        for place, rows in (("quiet", order[:third]), ("noisy", order[-third:])):
            scores[f"{name}_{place}"] = float(np.mean(inside[rows])) if vary and third else None
    scores["coverage"] = scores["coverage_90"]
    return scores


def quantile_crps(y: Array, quantiles: Array) -> float:
    """Twice the mean pinball loss over the levels of `CRPS_LEVELS`, and over rows."""
    levels = np.asarray(CRPS_LEVELS)[:, None]
    error = y - quantiles  # [levels, n]
    return float(2 * np.mean(np.maximum(levels * error, (levels - 1) * error)))


# Classes and counts

BINS = 10
"""Of equal width, of the probability of the class that is predicted."""
LEAST_PROBABILITY = 1e-15
COUNT_LEVELS = (0.05, 0.5, 0.95)


def class_scores(y: Array, found: Mapping[str, Array]) -> Metrics:
    """Log loss, Brier score, accuracy and, of two classes, AUC; what `calibration_error` needs of each bin.

    The Brier score is the squared error summed over classes.
    """
    p = found["probabilities"] / found["probabilities"].sum(1, keepdims=True)
    codes = y.astype(np.intp)
    is_y = codes[:, None] == np.arange(p.shape[1])
    taken, sure = p.argmax(1), p.max(1)
    scores: Metrics = {
        "log_loss": -float(np.mean(np.log(np.maximum(p[is_y], LEAST_PROBABILITY)))),
        "brier": float(np.mean(((p - is_y) ** 2).sum(1))),
        "accuracy": float(np.mean(taken == codes)),
        "auc": float(roc_auc_score(codes, p[:, 1])) if p.shape[1] == 2 else None,
    }
    bins = np.minimum((BINS * sure).astype(np.intp), BINS - 1)
    scores |= {f"gap_{k}": float(((taken == codes) - sure)[bins == k].sum()) for k in range(BINS)}
    return scores | {f"variance_{k}": float((sure * (1.0 - sure))[bins == k].sum()) for k in range(BINS)}


def calibration_error(records: Sequence[Metrics]) -> tuple[float, float]:
    """The expected calibration error of the scored rows of all splits, and what chance alone makes of it.

    Of the rows of each bin, the share whose class is predicted is compared with the mean probability. A calibrated
    method has a gap too: of a normal variable with the variance of the bin's count, nearly.
    """
    rows = sum(record["rows_scored"] or 0.0 for record in records)
    sums = {name: [sum(r[f"{name}_{k}"] or 0.0 for r in records) for k in range(BINS)] for name in ("gap", "variance")}
    by_chance = np.sqrt(2.0 / np.pi * np.asarray(sums["variance"])).sum()
    return float(np.abs(sums["gap"]).sum() / rows), float(by_chance / rows)


def count_scores(y: Array, found: Mapping[str, Array]) -> Metrics:
    """Mean log probability, the mean absolute error of the median, RMSE, and the coverage of 90 % intervals.

    A prediction has these itself, or mean and variance of the logarithm of a Poisson rate, exposure included.
    """
    if "log_probability" not in found:
        f_mean, f_var = (torch.as_tensor(found[name])[:, None] for name in ("f_mean", "f_var"))
        poisson = Poisson()
        found = {
            "mean": poisson.moments(f_mean, f_var)[0].numpy(),
            "log_probability": poisson.log_predictive(torch.as_tensor(y), f_mean, f_var).numpy(),
            "quantiles": poisson.quantiles(np.asarray(COUNT_LEVELS), f_mean, f_var),
        }
    lower, middle, upper = np.asarray(found["quantiles"]).T
    return {
        "log_probability": float(np.mean(found["log_probability"])),
        "absolute_error": float(np.mean(np.abs(y - middle))),
        "rmse": metrics.rmse(y, found["mean"]),
        "coverage_90": float(np.mean((lower <= y) & (y <= upper))),
    }
