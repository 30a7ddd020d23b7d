"""What an estimator keeps of a sample of its rows: importance of columns, quantiles of features, two simple models."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cvgp.data.rows import Array
from cvgp.data.source import DataSource
from cvgp.errors import InvalidInputError
from cvgp.estimators.fitted import as_array
from cvgp.files import TINY, Fields

if TYPE_CHECKING:
    from cvgp.estimators.classifier import CVGPClassifier
    from cvgp.estimators.regressor import CVGPRegressor

ROWS_TO_DRAW_FROM = 8192
LARGEST = 1e120  # the squares of larger values are near the end of the range of floats, and no summary is kept
PARTS = 16
LEVELS = np.linspace(0.0, 1.0, PARTS + 1)  # the first and the last quantile are the ends of the range


def summarize_rows(estimator: CVGPRegressor, source: DataSource, seed: int) -> None:
    """Summarize a sample of the rows that a model was just fitted to."""
    gp, rows = estimator._gp, source.sample(ROWS_TO_DRAW_FROM, np.random.default_rng(seed))
    x = gp.scaling.unscale_x(as_array(rows.x))  # [n, D]
    y = gp.target.invert(gp.scaling.unscale_y(as_array(rows.y).reshape(len(x), -1)))  # [n, Q]
    weight = None if rows.sample_weight is None else as_array(rows.sample_weight)
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
    if max(np.abs(x).max(), np.abs(y).max()) <= LARGEST:
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
        """From rows [N, D] and [N, Q]; to seven digits, more than a sample determines."""
        short = np.vectorize(lambda value: float(f"{value:.7g}"))
        quantiles = (np.quantile(x, LEVELS, axis=0), x.mean(axis=0), np.quantile(y, LEVELS, axis=0))
        return cls(len(x), *map(short, quantiles))

    @classmethod
    def from_state(cls, state: Fields, num_features: int, num_outputs: int) -> FeatureQuantiles:
        """From an untrusted file."""
        shapes = {"x": (PARTS + 1, num_features), "x_mean": (num_features,), "y": (PARTS + 1, num_outputs)}
        return cls(state.integer("num_rows", 1), *(state.array(name, shape) for name, shape in shapes.items()))


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
