"""Simple models to compare with: learned from the training rows by `cvgp fit`, and kept in the model's file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cvgp.data.rows import Array
from cvgp.errors import FileFormatError
from cvgp.files.untrusted import Members

if TYPE_CHECKING:
    from cvgp.data.tables.training_table import TrainingTable
    from cvgp.estimators.regressor import CVGPRegressor

Predictions = tuple[Array, Array]
"""Means and standard deviations [n]."""


class Baselines(NamedTuple):
    """A constant and a line, each with the error that it makes on rows that it has not seen."""

    mean: float
    mean_sd: float
    slopes: Array  # [D]
    intercept: float
    line_sd: float

    @classmethod
    def learn(cls, x: Array, y: Array) -> Baselines:
        """From features [N, D] and targets [N].

        The line is a ridge regression. On standardised features its penalty of one is a single pseudo-observation for
        each slope: too little to matter where there are many rows, and enough where columns repeat each other, as the
        indicators of one text column do.
        """
        centre, spread = x.mean(axis=0), x.std(axis=0)
        scale = np.where(spread > 0.0, spread, 1.0)
        z = (x - centre) / scale  # [N, D]
        inverse = np.linalg.inv(z.T @ z + np.eye(z.shape[1]))
        slopes = inverse @ (z.T @ (y - y.mean()))
        leverage = 1.0 / len(y) + ((z @ inverse) * z).sum(axis=1)
        return cls(
            mean=float(y.mean()),
            mean_sd=_sd_without_own_row(y, y - y.mean(), np.full(len(y), 1.0 / len(y))),
            slopes=slopes / scale,
            intercept=float(y.mean() - (slopes / scale) @ centre),
            line_sd=_sd_without_own_row(y, y - y.mean() - z @ slopes, leverage),
        )

    def constant(self, num_rows: int) -> Predictions:
        """Predictions of the constant."""
        return np.full(num_rows, self.mean), np.full(num_rows, self.mean_sd)

    def linear(self, x: Array) -> Predictions:
        """Predictions of the line."""
        return self.intercept + x @ self.slopes, np.full(len(x), self.line_sd)

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` reads them."""
        return {**self._asdict(), "slopes": self.slopes.tolist()}

    @classmethod
    def from_json(cls, value: object, num_features: int) -> Baselines:
        """From a file, which may hold anything."""
        members = Members(value, "baselines")
        # A whole number may be beyond the range of floats, and none is ever written here.
        slopes = [slope for slope in members.items("slopes") if isinstance(slope, float)]
        if len(slopes) != num_features or not np.isfinite(slopes).all():
            raise FileFormatError(f"The slopes of the linear baseline must be {num_features} finite numbers.")
        mean, mean_sd, intercept, line_sd = (
            members.number(name) for name in ("mean", "mean_sd", "intercept", "line_sd")
        )
        members.close()
        if not (mean_sd > 0.0 and line_sd > 0.0):
            raise FileFormatError("The baselines' standard deviations must be positive.")
        return cls(mean, mean_sd, np.array(slopes), intercept, line_sd)


def learn_baselines(model: CVGPRegressor, table: TrainingTable) -> None:
    """Attach the simple models that `cvgp evaluate` compares with."""
    sample = table.sample()
    model.baselines_ = Baselines.learn(sample.x, sample.y[:, 0]).to_json()


def _sd_without_own_row(y: Array, residual: Array, leverage: Array) -> float:
    """The root mean square error of each row's prediction by the others: residuals over (1 - leverage)."""
    left_out = residual / np.maximum(1.0 - leverage, 1e-6)
    # Rows without any spread would give a density without bounds.
    floor = 1e-6 * max(float(np.abs(y).max()), float(np.finfo(np.float64).tiny))
    return max(float(np.sqrt(np.mean(left_out**2))), floor)
