"""How much predictions need each column of the data, as Sobol indices of the mean that an estimator predicts.

The indices are averages over rows, and a fitted coreset holds none. So a fit without neighbours computes them from a
sample of its rows and keeps the result. Where there is none, the rows that predictions consult take their place. Where
these are missing too, in old files and after `prune`, `condition` or `merge`, the coreset's points do, as often as
their weights say.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from cvgp.data.rows import Array
from cvgp.data.uncertain import Inputs
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.estimators.inputs import check_prediction
from cvgp.estimators.new_observations import Predictive
from cvgp.estimators.sobol import SobolIndices, drawn_in_random_order, number_of_pairs, sobol_indices
from cvgp.estimators.units import ScaledGP
from cvgp.estimators.user_columns import user_columns
from cvgp.training.monitor import Watch

MOST_PREDICTIONS, MOST_WITH_NEIGHBOURS = 2**15, 2**13
"""Predictions that indices are made of; one that consults neighbours takes far longer."""
ROWS_TO_DRAW_FROM = 8192
SHARE_OF_A_COLUMN, LARGEST_SHARE = 0.002, 0.1
"""Of a time limit, what is kept back for the importance of columns."""
TIMED_ROWS = 128


class ImportanceMixin(BaseEstimator):  # type: ignore[misc]
    """The importance of columns, for an estimator whose fit leaves a `ScaledGP` in `gp_`."""

    gp_: ScaledGP

    def sobol_indices(self, X: ArrayLike | None = None) -> SobolIndices:
        """Return which share of the variance of the predicted mean each column explains, and which share needs it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), optional
            Rows over which the indices are averaged. By default they are a sample of the rows of the fit; the result is
            then kept with the model and its file. A model that was changed since (`prune`, `condition`, `merge`), or
            whose file is older than version 5, has no such result. It takes the rows that predictions consult, or
            without neighbours the points of its coreset, as often as their weights say. These need not lie as the rows
            did, so give rows where they matter.

        Returns
        -------
        SobolIndices
            The arrays `first_order` and `total` with one number per column, `first_order_error` and `total_error`, the
            standard errors of these averages, and `total_sd`, the posterior standard deviation of `total`. Features
            that stand for one column of a table count together. A constant column has zeros, and several outputs count
            alike.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If X cannot be used.
        InvalidTypeError
            If X holds no numbers.
        FileFormatError
            If the model comes from a file whose columns and importances do not fit.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPRegressor
        >>> X = np.random.default_rng(0).uniform(-1, 1, (200, 3))
        >>> model = CVGPRegressor(n_coreset=40, max_iter=30, random_state=0).fit(X, X[:, 0] * X[:, 1])
        >>> found = model.sobol_indices()
        >>> found.total.round(1).tolist()  # neither of the first two can be spared,
        [1.0, 1.0, 0.0]
        >>> bool(abs(found.first_order).max() < 0.2)  # and neither says anything by itself
        True
        """
        check_is_fitted(self)
        if X is not None:
            found = check_prediction(self, X)
            # Of cells that are not known, the mean.
            return self._indices_over(self.gp_, found.x if isinstance(found, Inputs) else found, None)
        gp = self.gp_
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

    def _indices_over(self, gp: ScaledGP, x: Array, weight: Array | None, watch: Watch | None = None) -> SobolIndices:
        columns = [column.features for column in user_columns(self)]
        affordable = MOST_PREDICTIONS if gp.local is None else MOST_WITH_NEIGHBOURS
        if watch is not None and watch.max_time is not None:
            affordable = min(affordable, _predictions_in_time(gp, x, len(columns), watch))
        count = number_of_pairs(len(x), len(columns), affordable)
        rows = drawn_in_random_order(x, weight, count, np.random.default_rng(0))
        rows[:, ~gp.scaling.varies] = gp.scaling.x_mean[~gp.scaling.varies]  # no prediction depends on these
        if gp.target.name == "identity":
            return sobol_indices(rows, columns, gp.mean, gp.covariance)
        return sobol_indices(
            rows,
            columns,
            lambda at: Predictive.at(gp, at).moments.mean,
            lambda at: Predictive.at(gp, at).function_covariance(gp.covariance(at)),
        )


def note_indices(estimator: ImportanceMixin, x: Array, weight: Array | None, watch: Watch) -> None:
    """Keep the indices over rows of a fit [n, D] with the estimator, unless its model holds these rows itself.

    They are averages over fewer rows where a time limit has left little time.
    """
    gp = estimator.gp_
    if gp.local is not None:
        return
    another = gp.with_model(gp.model)  # so that what predictions prepare is not kept with the estimator
    try:
        gp.indices_of_fit = estimator._indices_over(another, x, weight, watch)
    except InvalidInputError:
        # Predictions are beyond the range of floats somewhere. That is no reason to lose the fit, and who asks for the
        # indices will be told.
        gp.indices_of_fit = None


def seconds_for_importance(num_dims: int, watch: Watch) -> float:
    """Of a time limit, what the importance of columns may need after the fit; their number is at most that of inputs.

    A prediction has to be made for each of them.
    """
    return 0.0 if watch.max_time is None else min(0.01 + SHARE_OF_A_COLUMN * num_dims, LARGEST_SHARE) * watch.max_time


def _predictions_in_time(gp: ScaledGP, x: Array, num_columns: int, watch: Watch) -> int:
    """How many predictions there is time for, by a few that are timed, beside the covariances of each column."""
    few = x[np.arange(TIMED_ROWS) % len(x)]
    gp.mean(few[:1])  # which prepares all others
    begin = watch.own_seconds()
    gp.mean(few)
    predicted = watch.own_seconds()
    gp.covariance(few)
    covariances = num_columns * (watch.own_seconds() - predicted)
    seconds = max(predicted - begin, 1e-9) / TIMED_ROWS
    return int(max(watch.left - covariances, 0.0) / seconds)


def _held_rows(gp: ScaledGP) -> tuple[Array, Array | None]:
    """Inputs that a model holds, in the user's units, and their weights."""
    if gp.local is None:
        return gp.coreset.X, gp.coreset.beta
    rows = gp.local.kept.rows
    weight = None if rows.sample_weight is None else rows.sample_weight.cpu().numpy()
    return gp.scaling.unscale_x(rows.x.cpu().numpy()), weight
