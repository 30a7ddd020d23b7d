"""Rows whose y is wildly wrong: how many there are, how far off, and which.

A row is regular, or with a small probability an outlier, whose y has much more noise. Two exact GPs of some rows each
predict the rows of the other, so no residual is one that its row helped to make. From the residuals the share and the
variance of outliers are learned, and for each row the probability that it is one. Rows then count by the probability
that they are regular, and the GPs learn again (expectation maximisation). Where a Gaussian describes the residuals as
well, there are no outliers, and nothing changes. The same holds where wild rows have wild neighbours: a wrong y says
nothing of the rows around it, and noise that depends on x does.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.means import ZeroMean
from scipy.optimize import minimize

from cvgp.coreset import Coreset
from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import Scaling, bulk_of, learn_scaling, moments_of
from cvgp.errors import FactorisationError
from cvgp.gp.contamination import Contamination, log_normal
from cvgp.gp.kernels import gaussian_likelihood
from cvgp.gp.model import CVGP
from cvgp.host import kept_warnings
from cvgp.objectives.exact import ExactObjective
from cvgp.optim.stopping import Progress
from cvgp.training.kernel_search import START_NOISE
from cvgp.training.maximise import maximise_by_lbfgs
from cvgp.training.monitor import Watch
from cvgp.training.small_data import distinct_rows, take_observations
from cvgp.training.start import starting_kernel

LEAST_ROWS = 200
"""With fewer rows nothing can be said of one in fifty."""
PART_ROWS, EVALUATIONS, ROUNDS = 400, 20, 3
STANDARD_ERRORS = 2.0
"""There are outliers if rows are more likely with them by so many standard errors, in both parts."""
WILD = 50.0
"""Outliers have at least this many times the variance that regular rows have about their predictions, and at least the
variance of y: what is closer is noise that depends on x, or a function that is hard to learn."""
LARGEST_SHARE = 0.25
NEAR, CLUSTERED_ERRORS = 10, 4.0
"""Wild rows come in places if this many neighbours of each are wild with it, by more than so many standard errors. Two
rows can be neighbours of each other, so that the errors are up to 1.4 times as large as they are taken for."""
SHARE_OF_TIME = 0.1
"""Of a time limit, what the search may take."""
SMALLEST_WEIGHT = 1e-3
"""Rows that count less than this do not count."""
CHUNK_ROWS = 4096


class WildRows(NamedTuple):
    """The outliers of a data set."""

    outliers: Contamination
    """In the units of y."""
    probability: Array
    """Of each row, that it is one [N]."""


class _Residuals(NamedTuple):
    """Of rows that a GP has not seen, in standard deviations of regular rows' y: errors and variances of f [n, Q]."""

    error: Array
    f_var: Array

    def take(self, index: slice) -> "_Residuals":
        return _Residuals(self.error[index], self.f_var[index])


@torch.enable_grad()  # also for a caller that has switched gradients off
def find_wild_rows(rows: Rows[Array], seed: int, watch: Watch, *, in_time: bool = False) -> WildRows | None:
    """The outliers among rows in the user's units; None where there are none.

    With `in_time` the search takes its share of the time limit. A run that may go on later with another limit must find
    the same, and has none.
    """
    if len(rows.x) < LEAST_ROWS or not moments_of(rows.y, rows.sample_weight).scales.all():
        return None
    order = np.random.default_rng(seed).permutation(len(rows.x))
    half = min(watch.some_of(PART_ROWS) if in_time else PART_ROWS, len(order) // 2)
    watches = watch.shares(SHARE_OF_TIME, 2 * ROUNDS) if in_time else (Watch() for _ in range(2 * ROUNDS))
    end = watch.time_used() + SHARE_OF_TIME
    first, second = order[:half], order[half : 2 * half]
    wild = np.zeros(2 * half)
    noise, found, scaling = 0.0, Contamination(0.0, np.zeros(1)), None
    try:
        with kept_warnings():
            for round_ in range(ROUNDS):
                if in_time and round_ and watch.time_used() >= end:
                    break
                kept = kept_rows(rows.take(order[: 2 * half]), wild, smallest=0.0)
                # Outliers must not set the units.
                scaling = learn_scaling(kept.x, kept.y, kept.sample_weight, bulk_of(kept.x, kept.sample_weight))
                parts = (slice(half), slice(half, None))
                models = [_learn(kept.take(part), scaling, next(watches)) for part in parts]
                pairs = ((models[1], first), (models[0], second))
                both = [_residuals(model, rows.take(index), scaling) for model, index in pairs]
                pooled = _Residuals(*(np.concatenate(parts) for parts in zip(*both, strict=True)))
                noise, found = _learn_mixture(pooled)
                if not _are_wild(noise, found, pooled, half):
                    return None
                wild = found.probability(pooled.error, pooled.f_var + noise)
    except (FactorisationError, FloatingPointError):
        return None  # what cannot be learned says nothing of outliers
    assert scaling is not None, "there is a round"
    if _come_in_places(scaling.scale_x(rows.x[order[: 2 * half]]), wild):
        return None
    every = _residuals(models[0], rows, scaling)
    probability = found.probability(every.error, every.f_var + noise)
    probability[order[: 2 * half]] = wild  # by the GP that has not seen the row
    outliers = Contamination(found.share, found.variance * scaling.y_scale**2)
    _report(outliers, probability, watch)
    return WildRows(outliers, probability)


def kept_rows(rows: Rows[Array], wild: Array, smallest: float = SMALLEST_WEIGHT) -> Rows[Array]:
    """Rows that count by the probability that they are regular."""
    weight = (1.0 - wild) * (1.0 if rows.sample_weight is None else rows.sample_weight)
    kept = rows._replace(sample_weight=np.maximum(weight, np.finfo(np.float64).tiny))
    return kept.take(1.0 - wild >= smallest)


def _learn(rows: Rows[Array], scaling: Scaling, watch: Watch) -> CVGP:
    """What the exact likelihood of some rows learns."""
    data = scaling.tensors(rows)
    kernel = starting_kernel(None, data.x.shape[1], ard=True)
    points = Coreset(data.x, data.y, np.ones(len(data.x)))
    model = CVGP(points, kernel, mean=ZeroMean(), likelihood=gaussian_likelihood(START_NOISE))
    objective = ExactObjective(model, distinct_rows(data))
    maximise_by_lbfgs(objective, len(data.x), watch, max_evaluations=EVALUATIONS, tol=0.0, phase="start outliers")
    take_observations(model, data)
    return model


@torch.no_grad()
def _residuals(model: CVGP, rows: Rows[Array], scaling: Scaling) -> _Residuals:
    process, means, variances = model.process(), [], []
    for start in range(0, len(rows.x), CHUNK_ROWS):
        prediction = process(torch.as_tensor(scaling.scale_x(rows.x[start : start + CHUNK_ROWS])))
        means.append(prediction.mean.reshape(len(prediction.mean), -1).numpy())
        variances.append(prediction.variance.numpy())
    error = scaling.scale_y(rows.y) - np.concatenate(means)
    return _Residuals(error, np.broadcast_to(np.concatenate(variances)[:, None], error.shape))


def _learn_mixture(residuals: _Residuals) -> tuple[float, Contamination]:
    """The noise of regular rows, and the outliers, under which the residuals are most likely."""
    squares = residuals.error**2
    middle = float(np.median(squares)) / 0.455  # the median square of a normal variable is .455 of its variance

    def unpacked(theta: Array) -> tuple[float, Contamination]:
        share = LARGEST_SHARE / (1.0 + math.exp(-theta[1]))
        return math.exp(theta[0]), Contamination(share, np.array([math.exp(theta[2])]))

    def negative_density(theta: Array) -> float:
        noise, outliers = unpacked(np.clip(theta, -30.0, 30.0))
        return -float(outliers.log_density(residuals.error, residuals.f_var + noise).mean())

    start = np.log([max(middle - float(np.median(residuals.f_var)), 0.1 * middle), 0.2, max(squares.max(), 1e-12) / 4])
    found = minimize(
        negative_density, start, method="Nelder-Mead", options={"maxiter": 400, "xatol": 1e-2, "fatol": 1e-6}
    )
    return unpacked(np.clip(found.x, -30.0, 30.0))


def _are_wild(noise: float, found: Contamination, residuals: _Residuals, half: int) -> bool:
    """Whether the outliers are far off, and residuals clearly more likely with them than as normal ones."""
    typical = float(np.median(residuals.f_var)) + noise
    if found.variance[0] < max(WILD * typical, 1.0):
        return False
    gain = found.log_density(residuals.error, residuals.f_var + noise).mean(1)
    gain = gain - log_normal(residuals.error, residuals.f_var + _normal_noise(residuals)).mean(1)
    parts = (gain[:half], gain[half:])
    return all(part.mean() > STANDARD_ERRORS * part.std() / math.sqrt(len(part)) for part in parts)


def _come_in_places(x: Array, wild: Array) -> bool:
    """Whether rows `[n, D]` that are wild with some probability `[n]` lie near others that are."""
    from scipy.spatial import KDTree  # only where there seem to be outliers

    _, found = KDTree(x).query(x, k=min(NEAR + 1, len(x)))
    others = found != np.arange(len(x))[:, None]  # of equal rows another may come first
    near = (wild[found] * others).sum(1) / others.sum(1)
    together = (wild - wild.mean()) * (near - wild.mean())
    return bool(together.mean() > CLUSTERED_ERRORS * together.std() / math.sqrt(len(x)))


def _normal_noise(residuals: _Residuals) -> float:
    """The noise under which the residuals are most likely without outliers."""

    def negative_density(theta: Array) -> float:
        return -float(log_normal(residuals.error, residuals.f_var + math.exp(theta[0])).mean())

    return math.exp(minimize(negative_density, [math.log((residuals.error**2).mean())], method="Nelder-Mead").x[0])


def _report(outliers: Contamination, wild: Array, watch: Watch) -> None:
    """Write what was found into the history, where callbacks see it too."""
    sd = ", ".join(f"{value:.4g}" for value in np.sqrt(outliers.variance))
    watch.begin("start outliers", 1)
    text = f"outliers: {int((wild > 0.5).sum())} of {len(wild)} rows, with an sd of {sd}"
    watch.observe(Progress(1, math.nan, math.nan, text))
