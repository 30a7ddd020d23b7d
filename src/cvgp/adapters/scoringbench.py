"""The regressor behind the interface of ScoringBench's model wrappers: fit, predict, predict_distribution."""

from typing import Any, Self

import numpy as np

from cvgp.data.rows import Array
from cvgp.estimators.regressor import CVGPRegressor

TAIL = np.array([1e-5, 1e-4, 1e-3, 5e-3])
LEVELS = np.concatenate([TAIL, np.arange(1, 100) / 100, 1.0 - TAIL[::-1]])  # of the edges of the bins


class CVGPWrapper:
    """A `CVGPRegressor` for ScoringBench, which scores histograms; parameters are those of the regressor."""

    def __init__(self, **parameters: Any) -> None:
        self.model = CVGPRegressor(**parameters)

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model to a frame or an array, and a column of numbers."""
        self.model.fit(X, np.asarray(y, dtype=np.float64))
        return self

    def predict(self, X: Any) -> Array:
        """Means [n]."""
        return np.asarray(self.model.predict(X))

    def predict_distribution(self, X: Any) -> Any:
        """A histogram for each row, between quantiles that leave out 2e-5 of the probability."""
        from scoringbench.wrappers.base import DistributionPrediction

        edges = self.model.predict_quantiles(X, LEVELS)  # [n, L]
        masses = np.tile(np.diff(LEVELS) / (LEVELS[-1] - LEVELS[0]), (len(edges), 1))
        return DistributionPrediction(masses, edges, 0.5 * (edges[:, :-1] + edges[:, 1:]), self.predict(X))
