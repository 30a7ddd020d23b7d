r"""How much predictions need each column of the data, as Sobol indices of the mean that an estimator predicts.

Rows are taken in a random order, and each row is paired with the next one. With a the first row of a pair, b the second
and c the first row with its column j from the second,

.. math:: T_j = \frac{E[(f(a) - f(c))^2]}{2 \, \mathrm{Var} f}, \qquad
   S_j = \frac{E[(f(b) - E f)(f(c) - f(a))]}{\mathrm{Var} f}

(Jansen, 1999, and Saltelli et al., 2010). So one more prediction per row and column has both. §13 of
docs/mathematics.md says what they mean where columns are correlated.

A fit without neighbors computes the indices from a sample of its rows and keeps the result. Where there is none, the
rows that predictions use take their place, or else the coreset's points, as often as their weights say.
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
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.frames import user_columns
from cvgp.estimators.inputs import check_prediction
from cvgp.estimators.predictive import Predictive
from cvgp.files import TINY, Fields
from cvgp.fitting.monitor import Run
from cvgp.tables.encode import Inputs

MOST_PREDICTIONS, MOST_WITH_NEIGHBORS = 2**15, 2**13
"""Predictions that indices are made of; one that uses neighbors takes far longer."""
ROWS_TO_DRAW_FROM = 8192
SHARE_OF_A_COLUMN, LARGEST_SHARE = 0.002, 0.1
"""Of a time limit, what is kept back for the importance of columns."""
TIMED_ROWS = 128
LEAST_PAIRS, MOST_PAIRS = 1024, 2048
"""As many pairs of rows as there are rows, between these; fewer only where columns are many."""
FEWEST_PAIRS = 64
"""However many columns there are."""
POSTERIOR_POINTS = 4096
"""Pairs times columns, of which the posterior standard deviation is made, within the limits below."""
POSTERIOR_PAIRS = (32, 64)
LARGEST = 1e100

Function = Callable[[Array], Array]
"""From inputs [n, D] to values [n, Q], or to the posterior covariance of the function there [n, n, Q]."""


class SobolIndices(NamedTuple):
    """Shares of the variance of the predicted function, one number per column of the data.

    Attributes
    ----------
    first_order : ndarray of shape (n_columns,)
        The share that the column explains by itself.
    total : ndarray of shape (n_columns,)
        The share that needs the column, alone or together with others. Both are the same for a sum of functions of one
        column each; what a product of columns adds is counted for each of its columns, so totals may add up to more
        than one.
    first_order_error, total_error : ndarray of shape (n_columns,)
        Standard errors: the indices are averages over pairs of rows.
    total_sd : ndarray of shape (n_columns,)
        The posterior standard deviation of `total`: the uncertainty due to the unknown function.

    Examples
    --------
    >>> import numpy as np
    >>> from cvgp import CVGPRegressor, TrainingOptions
    >>> X = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    >>> model = CVGPRegressor(n_coreset=20, random_state=0, training=TrainingOptions(max_iter=20))
    >>> model = model.fit(X, X[:, 0] + 2 * X[:, 1])
    >>> found = model.sobol_indices()
    >>> bool(found.total[0] < found.total[1])
    True
    """

    first_order: Array
    total: Array
    first_order_error: Array
    total_error: Array
    total_sd: Array

    @property
    def total_uncertainty(self) -> Array:
        """The standard deviation of `total` from both sources."""
        return np.hypot(self.total_error, self.total_sd)

    @classmethod
    def from_state(cls, state: Fields, num_columns: int) -> SobolIndices:
        """From a file that need not be trusted; shares are about 1 at most, and larger if estimated from few rows."""
        least = {"first_order": -LARGEST}
        arrays = [state.array(name, (num_columns,), limits=(least.get(name, 0.0), LARGEST)) for name in cls._fields]
        for array in arrays:
            array.flags.writeable = False
        return cls(*arrays)


class ImportanceMixin(BaseEstimator):  # type: ignore[misc]
    """The importance of columns, for an estimator whose fit leaves a `FittedGP` in `_gp`."""

    _gp: FittedGP

    def sobol_indices(self, X: ArrayLike | None = None) -> SobolIndices:
        """Return which share of the variance of the predicted mean each column explains, and which share needs it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), optional
            Rows over which the indices are averaged. By default they are a sample of the rows of the fit. After
            `prune`, `condition` or `merge` they are the rows that predictions use, or without neighbors the points of
            the coreset, which need not lie as the rows did: give rows where it matters.

        Returns
        -------
        SobolIndices
            One number per column in each array. Features that stand for one column of a table count together. A
            constant column has zeros, and several outputs count alike.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPRegressor, TrainingOptions
        >>> X = np.random.default_rng(0).uniform(-1, 1, (200, 3))
        >>> model = CVGPRegressor(n_coreset=40, random_state=0, training=TrainingOptions(max_iter=30))
        >>> model = model.fit(X, X[:, 0] * X[:, 1])
        >>> model.sobol_indices().total.round(1).tolist()
        [1.0, 1.0, 0.0]
        """
        check_is_fitted(self)
        if X is not None:
            found = check_prediction(self, X)
            # Of cells that are not known, the mean.
            return self._indices_over(self._gp, found.x if isinstance(found, Inputs) else found, None)
        gp = self._gp
        if gp.indices_of_fit is not None:
            if len(gp.indices_of_fit.total) != len(user_columns(self)):
                raise FileFormatError("The model has other columns than importances; the file is damaged.")
            return gp.indices_of_fit
        if gp.indices_of_held_rows is None:
            gp.indices_of_held_rows = self._indices_over(gp, *_held_rows(gp))
        return gp.indices_of_held_rows

    @property
    def feature_importances_(self) -> Array:
        """The share of the variance of predictions that needs each column: ``sobol_indices().total``."""
        return self.sobol_indices().total.copy()

    def _indices_over(self, gp: FittedGP, x: Array, weight: Array | None, run: Run | None = None) -> SobolIndices:
        columns = [column.features for column in user_columns(self)]
        affordable = MOST_PREDICTIONS if gp.kept is None else MOST_WITH_NEIGHBORS
        if run is not None and run.budget.max_time is not None:
            affordable = min(affordable, _predictions_in_time(gp, x, len(columns), run))
        # A pair of rows is predicted once as it is and once more for each column.
        affordable = max(affordable // (len(columns) + 1), FEWEST_PAIRS)
        count = min(max(len(x), LEAST_PAIRS), MOST_PAIRS, affordable)
        rows = drawn_in_random_order(x, weight, count, np.random.default_rng(0))
        rows[:, ~gp.scaling.varies] = gp.scaling.x_mean[~gp.scaling.varies]  # no prediction depends on these
        if gp.target.name == "identity":
            return sobol_indices(rows, columns, gp.mean, gp.covariance)

        def covariance(at: Array) -> Array:
            return Predictive.at(gp, at).function_covariance(gp.covariance(at))

        return sobol_indices(rows, columns, lambda at: Predictive.at(gp, at).moments.mean, covariance)


def note_indices(estimator: ImportanceMixin, x: Array, weight: Array | None, run: Run) -> None:
    """Keep the indices over rows of a fit [n, D] with the estimator, unless its model holds these rows itself.

    They are averages over fewer rows where a time limit has left little time.
    """
    gp = estimator._gp
    if gp.kept is not None:
        return
    another = gp.with_model(gp.model)  # so that what predictions prepare is not kept with the estimator
    try:
        gp.indices_of_fit = estimator._indices_over(another, x, weight, run)
    except InvalidInputError:
        # Predictions are beyond the range of floats somewhere. That is no reason to lose the fit, and who asks for the
        # indices will be told.
        gp.indices_of_fit = None


def seconds_for_importance(num_dims: int, run: Run) -> float:
    """Of a time limit, what the importance of columns may need after the fit; their number is at most that of inputs.

    A prediction has to be made for each of them.
    """
    limit = run.budget.max_time
    return 0.0 if limit is None else min(0.01 + SHARE_OF_A_COLUMN * num_dims, LARGEST_SHARE) * limit


def _predictions_in_time(gp: FittedGP, x: Array, num_columns: int, run: Run) -> int:
    """How many predictions there is time for, by a few that are timed, beside the covariances of each column."""
    few = x[np.arange(TIMED_ROWS) % len(x)]
    gp.mean(few[:1])  # which prepares all others
    begin = run.budget.clock.own_seconds()
    gp.mean(few)
    predicted = run.budget.clock.own_seconds()
    gp.covariance(few)
    covariances = num_columns * (run.budget.clock.own_seconds() - predicted)
    seconds = max(predicted - begin, 1e-9) / TIMED_ROWS
    return int(max(run.budget.left - covariances, 0.0) / seconds)


def _held_rows(gp: FittedGP) -> tuple[Array, Array | None]:
    """Inputs that a model holds, in the user's units, and their weights."""
    if gp.kept is None:
        return gp.coreset.X, gp.coreset.beta
    rows = gp.kept.rows
    weight = None if rows.sample_weight is None else rows.sample_weight.cpu().numpy()
    return gp.scaling.unscale_x(rows.x.cpu().numpy()), weight


def drawn_in_random_order(x: Array, weight: Array | None, count: int, rng: np.random.Generator) -> Array:
    """A systematic sample of rows, each as often as its weight says."""
    edges = np.cumsum(np.ones(len(x)) if weight is None else weight)
    ticks = (np.arange(count) + rng.random()) * (edges[-1] / count)
    rows = np.minimum(np.searchsorted(edges, ticks, side="right"), len(x) - 1)
    return x[rng.permutation(rows)]


def sobol_indices(x: Array, columns: Sequence[slice], f: Function, covariance: Function) -> SobolIndices:
    """The indices of columns, each of which is some features of x [n, D], over rows x in random order."""
    values = f(x)
    z, unit = _standardized(values)  # [n, Q]
    found = np.zeros((5, len(columns)))
    num_pairs = int(np.clip(POSTERIOR_POINTS // (len(columns) + 1), *POSTERIOR_PAIRS))
    for j, features in enumerate(columns):
        replaced = x.copy()
        replaced[:, features] = np.roll(x[:, features], -1, axis=0)
        if not z.any() or np.array_equal(replaced, x):
            continue  # the function or the column is constant
        change = z - (f(replaced) - values.mean(axis=0)) * unit  # [n, Q]
        found[:4, j] = _indices(z, change)
        pairs = slice(num_pairs)
        found[4, j] = _posterior_sd(x[pairs], replaced[pairs], z[pairs], change[pairs], found[1, j], unit, covariance)
    found.flags.writeable = False  # a model keeps them
    return SobolIndices(*found)


def _standardized(values: Array) -> tuple[Array, Array]:
    """Values [n, Q] with mean zero and variance one, and what the centred ones are multiplied by [Q].

    An output that does not vary is zero.
    """
    centred = values - values.mean(axis=0)
    largest = np.abs(centred).max(axis=0)
    varies = largest > ROUNDING * np.abs(values).max(axis=0)
    centred, largest = np.where(varies, centred, 0.0), np.where(varies, largest, 1.0)  # squares of 1e200 would overflow
    sd = largest * np.sqrt(((centred / largest) ** 2).mean(axis=0))
    unit = np.where(varies, 1.0 / np.where(varies, sd, 1.0), 0.0)
    return centred * unit, unit


def _indices(z: Array, change: Array) -> tuple[float, float, float, float]:
    """First-order and total index of a column, and their standard errors; several outputs count alike.

    z [n, Q] are the standardized predictions of rows in random order, and `change` [n, Q] is what each of them loses
    where the column comes from the next row.
    """
    varying = z.any(axis=0)
    z, change = z[:, varying], change[:, varying]
    partner = np.roll(z, -1, axis=0)
    own = -(partner * change).mean(axis=1)  # [n]
    needed = 0.5 * (change**2).mean(axis=1)  # [n]
    spread = (z**2).mean(axis=1)  # [n], of mean one
    chance = (z * partner).mean(axis=1)  # [n]
    (first, first_error), (total, total_error) = (_average(terms, spread, chance) for terms in (own, needed))
    return first, max(total, 0.0), first_error, total_error


def _average(terms: Array, spread: Array, chance: Array) -> tuple[float, float]:
    """The mean of terms [n] over that of `spread`, which is one, and its standard error.

    `chance` [n] would be zero on average over all pairs. What it is on average over these is taken off the terms, by
    their regression on it: most of what differs between one draw of the pairs and another.
    """
    slope = float((terms - terms.mean()) @ chance) / max(float(chance @ chance), TINY)
    terms = terms - slope * chance
    mean = float(terms.mean())
    influence = terms - mean * spread  # each pair shares a row with the next one
    variance, shared = float((influence**2).mean()), float((influence * np.roll(influence, -1)).mean())
    return mean, float(np.sqrt((variance + max(2.0 * shared, 0.0)) / len(terms)))


def _posterior_sd(
    x: Array, replaced: Array, z: Array, change: Array, total: float, unit: Array, covariance: Function
) -> float:
    r"""The posterior standard deviation of a total index, to first order in what the function may differ from its mean.

    A difference :math:`\delta` of the function changes the index by :math:`g^T \delta`. At a row as it is, g is
    :math:`(z_a - z_c) - 2 T z_a` over the number of pairs, and with its column replaced it is minus the first term.
    """
    C = covariance(np.vstack([x, replaced]))  # [2 n, 2 n, Q]
    slopes = np.vstack([change - 2.0 * total * z, -change]) * unit / len(x)  # [2 n, Q]
    variance = np.einsum("iq,ijq,jq->q", slopes, C, slopes)  # [Q]
    count = max(int(np.count_nonzero(unit)), 1)
    return float(np.sqrt(np.maximum(variance, 0.0).sum()) / count)
