"""Gross outliers in y: how many there are, how far off, and which rows they are.

A row is regular, or with a small probability an outlier whose y has much more noise. Two exact GPs of a sample each
predict the rows of the other. From the residuals the share and the variance of outliers are learned, rows then count by
their probability of not being one, and the GPs learn again (expectation maximization). There are no outliers if a
Gaussian describes the residuals as well, if the predictions become less accurate, or if outliers lie close together: a
wrong y says nothing about the rows around it, whereas noise that depends on x does.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize

from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import moments_of
from cvgp.fitting.compare import Scores, compare
from cvgp.fitting.monitor import Run
from cvgp.fitting.sample import learn_sample
from cvgp.gp.noise import Contamination, log_normal

ROUNDS = 3
SMALLEST_WEIGHT = 1e-3  # rows of a smaller weight are dropped
NEAR, CLUSTERED_ERRORS = 10, 4.0  # nearest rows of each, and the standard errors that make outliers clustered


class Outliers(NamedTuple):
    """The share and the variance of outliers in the units of y, and the probability of each row to be one [N]."""

    noise: Contamination
    probability: Array

    @property
    def num_rows(self) -> int:
        """How many rows are more likely outliers than not."""
        return int((self.probability > 0.5).sum())

    @property
    def about(self) -> str:
        """Their share and standard deviation in words."""
        sd = " and ".join(f"{value:.4g}" for value in np.sqrt(self.noise.variance))
        return f"{self.noise.share:.2%} of {len(self.probability)} rows, with a standard deviation of {sd}"


def regular_rows(rows: Rows[Array], outlier: Array, smallest: float = SMALLEST_WEIGHT) -> Rows[Array]:
    """Rows weighted by their probability of not being an outlier."""
    weight = (1.0 - outlier) * (1.0 if rows.sample_weight is None else rows.sample_weight)
    kept = rows._replace(sample_weight=np.maximum(weight, np.finfo(np.float64).tiny))
    return kept.take(1.0 - outlier >= smallest)


def find_outliers(rows: Rows[Array], run: Run) -> Outliers | None:
    """The outliers among rows in the user's units; None if there are none."""
    h = run.heuristics
    if len(rows.x) < h.least_rows_to_choose or not moments_of(rows.y, rows.sample_weight).scales.all():
        return None
    order = run.rng("sample").permutation(len(rows.x))
    half = min(run.rows(h.sample_rows), len(order) // 2)
    chosen, parts = order[: 2 * half], (slice(half), slice(half, 2 * half))
    sample = rows.take(chosen)
    probability = np.zeros(2 * half)
    before: Scores | None = None
    first_log_unit: float | None = None
    for round_ in range(ROUNDS):
        if round_ and not run.has_time:
            break
        kept = regular_rows(sample, probability, smallest=0.0)
        first, second = kept.take(parts[0]), kept.take(parts[1])
        learned = learn_sample(first, second, run), learn_sample(second, first, run)
        models = [gp for gp in learned if gp is not None]
        if len(models) < 2:
            return None  # what cannot be learned says nothing about outliers
        # Each half is predicted by the GP of the other.
        both = [models[1].residuals(sample.take(parts[0])), models[0].residuals(sample.take(parts[1]))]
        error, f_var = (np.concatenate(values) for values in zip(*both, strict=True))
        # Outliers do not set the units, so that they change from round to round; those of the first are one.
        log_unit = float(np.log([gp.scaling.y_scale for gp in models]).mean())
        first_log_unit = log_unit if first_log_unit is None else first_log_unit
        unit = math.exp(log_unit - first_log_unit)
        found = _learn_mixture(error, f_var, h.largest_outlier_share, unit)
        if not found.is_far(h.outlier_variance):
            return None
        before = before or found.normal_scores()
        probability = found.noise.probability(found.error, found.f_var + found.regular)
    assert before is not None, "there was a round"
    scaling = models[0].scaling
    change = compare(found.scores(), before)
    # A GP predicts better without gross errors, but worse without rows that are merely rare.
    is_accurate = change.square_gain > change.square_error
    if not (change.is_clear and is_accurate) or _are_clustered(scaling.scale_x(sample.x), probability):
        return None
    error, f_var = models[0].residuals(rows)
    every = found.noise.probability(error, f_var + found.regular)
    every[chosen] = probability  # by the GP that has not seen the row
    return Outliers(Contamination(found.noise.share, found.noise.variance * scaling.y_scale**2), every)


class _Mixture(NamedTuple):
    """Residuals in standard deviations of y, and the noise of regular rows and of outliers that they imply."""

    error: Array  # [n, Q]
    f_var: Array  # [n, Q]
    regular: float
    noise: Contamination
    unit: float

    def is_far(self, factor: float) -> bool:
        """Whether outliers vary far more than regular rows, and more than y; otherwise noise may depend on x."""
        typical = float(np.median(self.f_var)) + self.regular
        return bool(self.noise.variance[0] >= max(factor * typical, 1.0))

    def scores(self) -> Scores:
        return self._scores(self.noise.log_density(self.error, self.f_var + self.regular))

    def normal_scores(self) -> Scores:
        """Scores of the rows if there were no outliers, under the most likely noise."""

        def negative_density(theta: Array) -> float:
            return -float(log_normal(self.error, self.f_var + math.exp(theta[0])).mean())

        start = [math.log(max(float((self.error**2).mean()), 1e-300))]
        noise = math.exp(minimize(negative_density, start, method="Nelder-Mead").x[0])
        return self._scores(log_normal(self.error, self.f_var + noise))

    def _scores(self, densities: Array) -> Scores:
        square = torch.as_tensor((self.error**2).mean(1)) * self.unit**2
        return Scores(torch.as_tensor(densities.mean(1)) - math.log(self.unit), square, torch.ones_like(square))


def _learn_mixture(error: Array, f_var: Array, largest_share: float, unit: float) -> _Mixture:
    squares = error**2
    middle = float(np.median(squares)) / 0.455  # the median square of a normal variable is .455 of its variance

    def unpacked(theta: Array) -> tuple[float, Contamination]:
        share = largest_share / (1.0 + math.exp(-theta[1]))
        return math.exp(theta[0]), Contamination(share, np.array([math.exp(theta[2])]))

    def negative_density(theta: Array) -> float:
        noise, outliers = unpacked(np.clip(theta, -30.0, 30.0))
        return -float(outliers.log_density(error, f_var + noise).mean())

    start = np.log([max(middle - float(np.median(f_var)), 0.1 * middle), 0.2, max(squares.max(), 1e-12) / 4])
    found = minimize(
        negative_density, start, method="Nelder-Mead", options={"maxiter": 400, "xatol": 1e-2, "fatol": 1e-6}
    )
    return _Mixture(error, f_var, *unpacked(np.clip(found.x, -30.0, 30.0)), unit)


def _are_clustered(x: Array, outlier: Array) -> bool:
    """Whether rows `[n, D]` that are outliers with some probability `[n]` lie near others that are."""
    from scipy.spatial import KDTree  # only where there seem to be outliers

    _, found = KDTree(x).query(x, k=min(NEAR + 1, len(x)))
    others = found != np.arange(len(x))[:, None]  # of equal rows another may come first
    near = (outlier[found] * others).sum(1) / others.sum(1)
    together = (outlier - outlier.mean()) * (near - outlier.mean())
    return bool(together.mean() > CLUSTERED_ERRORS * together.std() / math.sqrt(len(x)))
