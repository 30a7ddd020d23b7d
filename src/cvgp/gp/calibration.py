"""Conformal quantiles: how far unseen rows were from their predictions decides how wide intervals are (§15).

A residual is that of T(y), over its predicted standard deviation. A quantile of a new observation is the mean plus the
standard deviation times a quantile of the residuals (Lei et al., 2018), which keeps quantiles from crossing.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvgp.errors import FileFormatError
from cvgp.files import Fields, State

Array = NDArray[np.float64]

LARGEST = 1e100  # of a residual


class Calibration(NamedTuple):
    """Residuals of rows that a fit has not seen, sorted in each output, and their weights."""

    residuals: Array  # [n, Q]
    weights: Array  # [n, Q]

    @classmethod
    def of(cls, residuals: Array, weight: Array | None = None) -> "Calibration":
        """From residuals [n, Q] and the weights of their rows [n]: one for each, or for each group of rows in all."""
        order = np.argsort(residuals, axis=0, kind="stable")
        weights = np.ones(len(residuals)) if weight is None else weight
        clipped = np.clip(residuals, -LARGEST, LARGEST)
        return cls(np.take_along_axis(clipped, order, axis=0), weights[order])

    def pooled(self, size: int) -> "Calibration | None":
        """Means of at least `size` residuals in the place of each, or None if they are too few."""
        first = np.arange(0, len(self.residuals) - size + 1, size)
        if len(first) < 2:
            return None
        weights = np.add.reduceat(self.weights, first)
        return Calibration(np.add.reduceat(self.weights * self.residuals, first) / weights, weights)

    def to_state(self) -> State:
        """Values for a file."""
        return self._asdict()

    @classmethod
    def from_state(cls, state: Fields, num_outputs: int) -> "Calibration":
        """From a file that need not be trusted."""
        residuals = state.array("residuals", (None, num_outputs), limits=(-LARGEST, LARGEST))
        weights = state.array("weights", residuals.shape, limits=(0.0, LARGEST))
        if not len(residuals) or (np.diff(residuals, axis=0) < 0.0).any() or not (weights.sum(0) > 0.0).all():
            raise FileFormatError(f"{state.where} must be sorted residuals with weights above 0.")
        return cls(residuals, weights)

    def quantile(self, level: float, own: Array) -> Array:
        """The `level` quantile of a new residual in each output, where that of the model itself is `own` [..., Q].

        With n residuals it is the ceil((n + 1) level)-th, so that a new row lies below it with at least this
        probability. What is narrower than the model itself is first widened by a standard error. Beyond the largest
        residual it is the model's own.
        """
        if level == 0.5:
            return 0.5 * (self._upper(0.5, own) - self._mirrored()._upper(0.5, -own))
        return self._upper(level, own) if level > 0.5 else -self._mirrored()._upper(1.0 - level, -own)

    def width(self, level: float) -> Array:
        """The width of the central interval of residuals [Q]; infinite if they are too few."""
        half = 0.5 + 0.5 * level
        return self._rank(half) + self._mirrored()._rank(half)

    def _upper(self, level: float, own: Array) -> Array:
        exact, most = self._rank(level), self.residuals[-1]
        eased = self._rank(level, standard_errors=1.0)
        return np.asarray(np.where(np.isinf(exact), np.maximum(own, most), np.maximum(exact, np.minimum(own, eased))))

    def _rank(self, level: float, standard_errors: float = 0.0) -> Array:
        """The residual [Q] whose rank is the level of all and of one that is yet to come; infinite beyond the last."""
        found = np.empty(self.residuals.shape[1])
        for q, (column, weights) in enumerate(zip(self.residuals.T, self.weights.T, strict=True)):
            below = np.cumsum(weights)
            wanted = level + standard_errors * math.sqrt(level * (1.0 - level) / below[-1])
            place = int(np.searchsorted(below, wanted * (below[-1] + 1.0) * (1.0 - 1e-12)))
            found[q] = column[place] if place < len(column) else np.inf
        return found

    def _mirrored(self) -> "Calibration":
        return Calibration(-self.residuals[::-1], self.weights[::-1])
