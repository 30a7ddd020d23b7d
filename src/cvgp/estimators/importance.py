"""How much predictions need each column: Sobol indices of the predicted mean (§13 of docs/mathematics.md).

They are estimated from pairs of rows as by Jansen (1999) and Saltelli et al. (2010).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from cvgp.data.rows import Array
from cvgp.data.transforms import ROUNDING
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.frames import user_columns
from cvgp.estimators.inputs import check_prediction
from cvgp.estimators.predictive import Predictive
from cvgp.files import TINY, Fields
from cvgp.tables.encode import Inputs

MOST_PREDICTIONS, MOST_WITH_NEIGHBORS = 2**15, 2**13
SHARE_OF_A_COLUMN, LARGEST_SHARE = 0.002, 0.1  # of a time limit
LEAST_ROWS, MOST_ROWS, FEWEST_ROWS = 1024, 2048, 64  # the last one where columns are many
LARGEST = 1e100
CLEAR, SMALLEST = 2.0, 1e-6  # standard errors, and share of the variance, up to which an index is zero


class SobolIndices(NamedTuple):
    """Shares of the variance of the predicted function, one number from 0 to 1 per column of the data."""

    first_order: Array  # that the column explains by itself
    total: Array  # that needs the column, alone or in interaction with others; 0 if it cannot be told from 0
    total_error: Array  # the standard error of `total`

    @property
    def interaction(self) -> Array:
        """The shares that need the column together with others: total minus first order."""
        return self.total - self.first_order

    def in_words(self, column: int) -> str:
        """The share of a column, with its part that is interaction."""
        together = self.interaction[column]
        about = f" ({together:.2f} of it in interaction)" if together >= 0.005 else ""
        return f"{self.total[column]:.2f}{about}"

    @classmethod
    def bounded(cls, first_order: Array, total: Array, total_error: Array) -> SobolIndices:
        """From estimates, which chance and correlated columns may take out of their range."""
        known = np.where(total > np.maximum(CLEAR * total_error, SMALLEST), np.clip(total, 0.0, 1.0), 0.0)
        found = cls(np.clip(first_order / np.maximum(total, 1.0), 0.0, known), known, np.minimum(total_error, 1.0))
        for array in found:
            array.flags.writeable = False  # a model keeps them
        return found

    @classmethod
    def from_state(cls, state: Fields, num_columns: int) -> SobolIndices:
        """From a file that need not be trusted."""
        return cls.bounded(*(state.array(name, (num_columns,), limits=(-LARGEST, LARGEST)) for name in cls._fields))


class ImportanceMixin(BaseEstimator):  # type: ignore[misc]
    """The importance of columns, for an estimator whose fit leaves a `FittedGP` in `_gp`."""

    _gp: FittedGP

    def sobol_indices(self, X: ArrayLike | None = None) -> SobolIndices:
        """Return which share of the variance of the predicted mean each column explains, and which share needs it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), optional
            Rows to average over, by default a sample of the rows of the fit, or else those that the model holds.

        Returns
        -------
        SobolIndices
            Shares from 0 to 1; `interaction` is the part of `total` that is not in `first_order`. Features of one
            column count together, and several outputs count alike. A column has zeros if it is constant, or if its
            share cannot be told from zero.

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> X = np.random.default_rng(0).uniform(-1, 1, (200, 3))
        >>> model = cvgp.CVGPRegressor(n_coreset=40, random_state=0).fit(X, X[:, 0] * X[:, 1])
        >>> model.sobol_indices().total.round().tolist()
        [1.0, 1.0, 0.0]
        """
        check_is_fitted(self)
        if X is not None:
            found = check_prediction(self, X)
            x = found.x if isinstance(found, Inputs) else found  # unknown cells have their mean
            return self._indices_over(self._gp, x, None)
        gp = self._gp
        if gp.indices_of_fit is not None:
            return gp.indices_of_fit
        if gp.indices_of_held_rows is None:
            gp.indices_of_held_rows = self._indices_over(gp, *held_rows(gp))
        return gp.indices_of_held_rows

    @property
    def feature_importances_(self) -> Array:
        """The share of the variance of predictions that needs each column, alone or in interaction with others.

        It is ``sobol_indices().total``, from 0 to 1.
        """
        return self.sobol_indices().total.copy()

    def _indices_over(self, gp: FittedGP, x: Array, weight: Array | None) -> SobolIndices:
        columns = [column.features for column in user_columns(self)]
        affordable = MOST_PREDICTIONS if gp.kept is None else MOST_WITH_NEIGHBORS
        # A row is predicted once as it is and once more for each column.
        gps = getattr(self, "_gps", [gp])  # of a classifier, one for each latent value
        affordable = max(affordable // ((len(columns) + 1) * len(gps)), FEWEST_ROWS)
        count = min(max(len(x), LEAST_ROWS), MOST_ROWS, affordable)
        rows = drawn_in_random_order(x, weight, count, np.random.default_rng(0))
        rows[:, ~gp.scaling.varies] = gp.scaling.x_mean[~gp.scaling.varies]  # no prediction depends on these
        if gp.target.name == "identity":
            return sobol_indices(rows, columns, lambda at: np.hstack([own.mean(at) for own in gps]))
        return sobol_indices(rows, columns, lambda at: Predictive.at(gp, at).moments.mean)


def seconds_for_importance(num_dims: int, max_time: float | None) -> float:
    """Of a time limit, what the importance of columns may need after the fit."""
    return 0.0 if max_time is None else min(0.01 + SHARE_OF_A_COLUMN * num_dims, LARGEST_SHARE) * max_time


def held_rows(gp: FittedGP) -> tuple[Array, Array | None]:
    """Inputs [n, D] and weights [n] of the training rows that a model holds, or else of its pseudo-points."""
    if gp.kept is None:
        return gp.coreset.X, gp.coreset.beta
    held = gp.in_user_units(gp.kept.rows)
    return held.x, held.sample_weight


def drawn_in_random_order(x: Array, weight: Array | None, count: int, rng: np.random.Generator) -> Array:
    """Rows [count, D] of x [n, D], each about as often as its weight says."""
    edges = np.cumsum(np.ones(len(x)) if weight is None else weight)
    ticks = (np.arange(count) + rng.random()) * (edges[-1] / count)
    rows = np.minimum(np.searchsorted(edges, ticks, side="right"), len(x) - 1)
    return x[rng.permutation(rows)]


def sobol_indices(x: Array, columns: Sequence[slice], f: Callable[[Array], Array]) -> SobolIndices:
    """The indices of columns, each of which is some features of x [n, D], over rows x in random order; f is [n, Q]."""
    x = x[: len(x) // 2 * 2]
    other = np.arange(len(x)) ^ 1  # rows 0 and 1 are a pair, 2 and 3, ...
    values = f(x)
    z, unit = _standardized(values)  # [n, Q]
    found = np.zeros((3, len(columns)))
    for j, features in enumerate(columns):
        swapped = x.copy()
        swapped[:, features] = x[other, features]
        if z.any() and not np.array_equal(swapped, x):  # otherwise the function or the column is constant
            change = z - (f(swapped) - values.mean(axis=0)) * unit  # [n, Q]
            found[:, j] = _indices(z, change)
    return SobolIndices.bounded(*found)


def _standardized(values: Array) -> tuple[Array, Array]:
    """Values [n, Q] with mean zero and variance one, or zero if they do not vary, and the factors [Q]."""
    centred = values - values.mean(axis=0)
    largest = np.abs(centred).max(axis=0)
    varies = largest > ROUNDING * np.abs(values).max(axis=0)
    centred, largest = np.where(varies, centred, 0.0), np.where(varies, largest, 1.0)  # squares of 1e200 would overflow
    sd = largest * np.sqrt(((centred / largest) ** 2).mean(axis=0))
    unit = np.where(varies, 1.0 / np.where(varies, sd, 1.0), 0.0)
    return centred * unit, unit


def _indices(z: Array, change: Array) -> tuple[float, float, float]:
    """First-order index, total index and its error, from z [n, Q] and its `change` with the column of the other row."""
    varying = z.any(axis=0)
    (z, other), (change, others) = ((values[::2, varying], values[1::2, varying]) for values in (z, change))
    chance = (z * other).mean(axis=1)  # [n / 2]
    needed = _without_chance(0.25 * (change**2 + others**2).mean(axis=1), chance)
    total = float(needed.mean())
    # Without interaction, a column changes f by the same in both rows.
    interaction = 0.25 * float(((change + others) ** 2).mean())
    influence = needed - total * 0.5 * (z**2 + other**2).mean(axis=1)
    return total - interaction, total, float(np.sqrt((influence**2).mean() / len(z)))


def _without_chance(terms: Array, chance: Array) -> Array:
    """Terms [n] minus their regression on `chance` [n], a control variate that is zero on average over all pairs."""
    slope = float((terms - terms.mean()) @ chance) / max(float(chance @ chance), TINY)
    return terms - slope * chance
