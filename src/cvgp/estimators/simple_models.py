"""Simple models to compare with: learned from the rows of a fit, and kept with the model and in its file."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cvgp.data.rows import Array
from cvgp.errors import FileFormatError
from cvgp.files.untrusted import Members

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
    def learn(cls, x: Array, y: Array, weight: Array | None = None) -> Baselines:
        """From features [N, D] and targets [N]; a row of weight w counts as w rows.

        The line is a ridge regression. On standardised features its penalty of one is a single pseudo-observation for
        each slope: too little to matter where there are many rows, and enough where columns repeat each other, as the
        indicators of one text column do.
        """
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

    def constant(self, num_rows: int) -> Predictions:
        """Predictions of the constant."""
        return np.full(num_rows, self.mean), np.full(num_rows, self.mean_sd)

    def linear(self, x: Array) -> Predictions:
        """Predictions of the line."""
        return self.intercept + x @ self.slopes, np.full(len(x), self.line_sd)

    @property
    def is_finite(self) -> bool:
        """Whether all numbers are within the range of floats."""
        return bool(np.isfinite([*self.slopes, self.mean, self.mean_sd, self.intercept, self.line_sd]).all())

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
        tiny = float(np.finfo(np.float64).tiny)
        if not (mean_sd >= tiny and line_sd >= tiny):
            raise FileFormatError("baselines.mean_sd and baselines.line_sd must be positive.")
        return cls(mean, mean_sd, np.array(slopes), intercept, line_sd)


def _sd_without_own_row(y: Array, residual: Array, leverage: Array, share: Array) -> float:
    """The root mean square error of each row's prediction by the others: residuals over (1 - leverage)."""
    left_out = residual / np.maximum(1.0 - leverage, 1e-6)
    # Rows without any spread would give a density without bounds.
    floor = 1e-6 * max(float(np.abs(y).max()), float(np.finfo(np.float64).tiny))
    return max(float(np.sqrt(share @ left_out**2)), floor)
