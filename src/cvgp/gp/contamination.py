r"""Noise with outliers: an observation is regular, or with a small probability it has much more noise (§12).

.. math:: p(e) = (1 - \epsilon) N(e \mid 0, v) + \epsilon N(e \mid 0, v + \tau)

where v is the variance of a regular observation, which differs from row to row (Tukey, 1960).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Array = NDArray[np.float64]

BISECTIONS = 60
"""Halvings of a bracket: what is left of it is rounding."""


class Contamination(NamedTuple):
    """What is known of outliers."""

    share: float
    """The probability that an observation is one."""
    variance: Array  # [Q], of outliers, beside that of regular observations

    def log_density(self, error: Array, variance: Array) -> Array:
        """Of each error [n, Q] by itself, where regular ones have a variance [n, Q]."""
        regular, wild = log_normal(error, variance), log_normal(error, variance + self.variance)
        return np.asarray(np.logaddexp(np.log1p(-self.share) + regular, np.log(self.share) + wild))

    def probability(self, error: Array, variance: Array) -> Array:
        """That a row is an outlier [n], given its errors [n, Q] in all outputs."""
        regular, wild = log_normal(error, variance).sum(1), log_normal(error, variance + self.variance).sum(1)
        log_odds = np.log(self.share) - np.log1p(-self.share) + wild - regular
        return np.asarray(np.exp(-np.logaddexp(0.0, -log_odds)))

    def quantile(self, level: float, variance: Array) -> Array:
        """The error [n, Q] that is not exceeded with a probability: between the quantiles of the two parts."""
        sd, wild_sd = np.sqrt(variance), np.sqrt(variance + self.variance)
        ends = ndtri(level) * sd, ndtri(level) * wild_sd
        low, high = np.minimum(*ends), np.maximum(*ends)
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            is_low = (1.0 - self.share) * ndtr(middle / sd) + self.share * ndtr(middle / wild_sd) < level
            low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
        return 0.5 * (low + high)


def log_normal(error: Array, variance: Array) -> Array:
    """Log density of normal errors."""
    return -0.5 * (np.log(2.0 * np.pi * variance) + error**2 / variance)
