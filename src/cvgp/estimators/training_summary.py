"""What an estimator keeps of a sample of its rows: importance of columns, quantiles of features, two simple models."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cvgp.data.rows import Array
from cvgp.data.scaling import Scaling
from cvgp.data.source import DataSource
from cvgp.errors import InvalidInputError
from cvgp.estimators.frames import UserColumn
from cvgp.files import TINY, Fields

if TYPE_CHECKING:
    from cvgp.estimators.classifier import CVGPClassifier
    from cvgp.estimators.regressor import CVGPRegressor

ROWS_TO_DRAW_FROM = 8192
LARGEST = 1e120  # the squares of larger values are near the end of the range of floats, and no summary is kept
PARTS = 16
LEVELS = np.linspace(0.0, 1.0, PARTS + 1)  # the first and the last quantile are the ends of the range
DIGITS = 7  # of quantiles, more than a sample determines
FALSE_ALARMS = 0.01  # the probability of any warning about rows that are like the training rows
SMALLEST_DRIFT = 0.1  # difference of shares that is worth a warning
MARGIN, FAR = 0.05, 1.5  # beyond the range of the training rows, in widths of it


class Drift(NamedTuple):
    """How rows differ from the training rows, by the names of columns; nothing that chance explains."""

    shares: dict[str, float]  # the largest difference of shares, of columns that are distributed differently
    outside: dict[str, int]  # the number of rows outside the range of the training rows
    target: float | None  # as `shares`, of what is predicted


def summarize_rows(estimator: CVGPRegressor, source: DataSource, seed: int) -> None:
    """Summarize a sample of the rows that a model was just fitted to."""
    rows = source.sample(ROWS_TO_DRAW_FROM, np.random.default_rng(seed))
    x, y, weight, *_ = estimator._gp.in_user_units(rows)
    estimator.__dict__.pop("_baselines", None)  # of an earlier fit
    if max(np.abs(x).max(), np.abs(y).max()) <= LARGEST and y.shape[1] == 1:
        # The slope of a large y in a tiny x may be beyond the range of floats.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            simple = Baselines.learn(x, y[:, 0], weight)
        if all(np.isfinite(values).all() for values in simple):
            estimator._baselines = simple
    summarize_features(estimator, x, y, weight)


def summarize_features(estimator: CVGPRegressor | CVGPClassifier, x: Array, y: Array, weight: Array | None) -> None:
    """Keep the quantiles of features [n, D] and outputs [n, Q], and the importance of columns."""
    gp = estimator._gp
    estimator.__dict__.pop("_feature_quantiles", None)
    if not estimator.private and max(np.abs(x).max(), np.nanmax(np.abs(y))) <= LARGEST:
        estimator._feature_quantiles = FeatureQuantiles.learn(x, y)
    if gp.kept is None:
        another = gp.with_model(gp.model)  # so that what predictions prepare is not kept with the estimator
        with suppress(InvalidInputError):  # some predictions overflow; asking for the indices raises again
            gp.indices_of_fit = estimator._indices_over(another, x, weight)


class FeatureQuantiles(NamedTuple):
    """The distribution of each feature and output in the training rows, in the user's units."""

    num_rows: int
    x: Array  # [PARTS + 1, D]
    x_mean: Array  # [D]
    y: Array  # [PARTS + 1, Q]

    @classmethod
    def learn(cls, x: Array, y: Array) -> FeatureQuantiles:
        """From rows [N, D] and [N, Q]."""
        short = np.vectorize(lambda value: float(f"{value:.{DIGITS}g}"))
        quantiles = (np.quantile(x, LEVELS, axis=0), x.mean(axis=0), np.nanquantile(y, LEVELS, axis=0))
        return cls(len(x), *map(short, quantiles))

    @classmethod
    def from_state(cls, state: Fields, num_features: int, num_outputs: int) -> FeatureQuantiles:
        """From an untrusted file."""
        shapes = {"x": (PARTS + 1, num_features), "x_mean": (num_features,), "y": (PARTS + 1, num_outputs)}
        return cls(state.integer("num_rows", 1), *(state.array(name, shape) for name, shape in shapes.items()))

    def drift(self, x: Array, y: Array, columns: Sequence[UserColumn], scaling: Scaling, output: int = 0) -> Drift:
        """How rows [n, D] with one output [n] differ from the training rows.

        The differences of shares are tested by the bounds of Smirnov and Hoeffding, and counts of rows outside the
        range by the ranks of all rows; both are corrected for the number of tests (Bonferroni).
        """
        n, num_tests = len(x), 1 + sum(max(len(column.categories), 2) for column in columns)
        log_tests = float(np.log(2.0 * num_tests / FALSE_ALARMS))
        limit = 1.0 / self.num_rows + np.sqrt(0.5 * log_tests * (1.0 / n + 1.0 / self.num_rows))
        shares, outside = dict[str, float](), dict[str, int]()
        # Rows in the model's own units, where a heavy tail that is warped has no far ends.
        z, (low, high) = scaling.scale_x(x), scaling.scale_x(self.x[[0, -1]])
        width = np.where(scaling.varies & (high > low), high - low, np.inf)
        beyond = np.maximum(low - z, z - high) / width  # [n, D]
        for column in columns:
            own = column.features
            if column.categories:
                shares[column.name] = float(np.abs(x[:, own].mean(axis=0) - self.x_mean[own]).max())
                continue
            if not column.is_level:  # effects of levels are learned from other rows than those that they describe
                shares[column.name] = largest_difference(self.x[:, own.start], x[:, own.start])
            farthest = beyond[:, own].max(axis=1)
            count = int((farthest > MARGIN).sum())
            # The probability that this many new rows are beyond all of the training rows, on one side.
            is_chance = log_tests > -count * np.log(n / (n + self.num_rows)) and farthest.max() <= FAR
            if count and not is_chance:
                outside[column.name] = count
        least = max(SMALLEST_DRIFT, limit)
        target = largest_difference(self.y[:, output], y)
        drifted = {name: share for name, share in shares.items() if share > least}
        return Drift(drifted, outside, target if target > least else None)


def largest_difference(quantiles: Array, values: Array) -> float:
    """The largest difference of the distribution functions that the quantiles of the training rows prove."""
    rounding = 10.0 ** (1 - DIGITS) * np.abs(quantiles)
    values = np.sort(values)
    # Below a quantile are at most its level of the training rows, and at or below it at least that, also with ties.
    below = np.searchsorted(values, quantiles - rounding, side="left") / len(values)
    up_to = np.searchsorted(values, quantiles + rounding, side="right") / len(values)
    return float(np.maximum(below - LEVELS, LEVELS - up_to).max(initial=0.0))


class Baselines(NamedTuple):
    """A constant and a line, each with the error that it makes on rows that it has not seen."""

    mean: float
    mean_sd: float
    slopes: Array  # [D]
    intercept: float
    line_sd: float

    @classmethod
    def learn(cls, x: Array, y: Array, weight: Array | None = None) -> Baselines:
        """From features [N, D] and targets [N], the line by ridge regression; a row of weight w counts as w rows."""
        count = np.ones(len(y)) if weight is None else weight  # [N]
        share = count / count.sum()
        centre, middle = share @ x, float(share @ y)
        spread = np.sqrt(share @ (x - centre) ** 2)
        scale = np.where(spread > 0.0, spread, 1.0)
        z = (x - centre) / scale  # [N, D]
        # Weights of 1e90 leave nothing of the penalty, and a matrix that may have no inverse.
        inverse = np.linalg.pinv((z.T * count) @ z + np.eye(z.shape[1]), hermitian=True)
        slopes = inverse @ (z.T @ (count * (y - middle)))
        own = 1.0 / count.sum()  # the leverage of one row on the mean
        leverage = own + ((z @ inverse) * z).sum(axis=1)
        return cls(
            mean=middle,
            mean_sd=_sd_without_own_row(y, y - middle, np.full(len(y), own), share),
            slopes=slopes / scale,
            intercept=middle - float((slopes / scale) @ centre),
            line_sd=_sd_without_own_row(y, y - middle - z @ slopes, leverage, share),
        )

    def constant(self, num_rows: int) -> tuple[Array, Array]:
        """The mean and standard deviation that the constant predicts."""
        return np.full(num_rows, self.mean), np.full(num_rows, self.mean_sd)

    def linear(self, x: Array) -> tuple[Array, Array]:
        """The mean and standard deviation that the line predicts."""
        return self.intercept + x @ self.slopes, np.full(len(x), self.line_sd)

    @classmethod
    def from_state(cls, state: Fields, num_features: int) -> Baselines:
        """From an untrusted file."""
        numbers = {name: state.number(name) for name in ("mean", "intercept")}
        numbers |= {name: state.number(name, TINY) for name in ("mean_sd", "line_sd")}
        return cls(slopes=state.array("slopes", (num_features,)), **numbers)


def _sd_without_own_row(y: Array, residual: Array, leverage: Array, share: Array) -> float:
    """The leave-one-out root mean square error: residuals over (1 - leverage)."""
    left_out = residual / np.maximum(1.0 - leverage, 1e-6)
    # Rows without any spread would give an unbounded density.
    floor = 1e-6 * max(float(np.abs(y).max()), float(np.finfo(np.float64).tiny))
    return max(float(np.sqrt(share @ left_out**2)), floor)
