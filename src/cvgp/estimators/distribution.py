"""The distribution of new observations: quantiles, intervals, draws and densities, in the units of the data."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.estimators.inputs import check_observed, check_prediction, check_seed, check_size
from cvgp.estimators.modes import usual_modes
from cvgp.estimators.new_observations import Predictive, ends_of_interval
from cvgp.estimators.units import ScaledGP
from cvgp.gp.linalg import safe_cholesky


class DistributionMixin(BaseEstimator):  # type: ignore[misc]
    """Predictions of an estimator whose fit leaves a `ScaledGP` in `gp_`."""

    gp_: ScaledGP
    _single_output: bool

    @usual_modes()
    def predict_quantiles(self, X: ArrayLike, q: ArrayLike) -> Array:
        """Predict quantiles of new observations, noise included.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Where to predict.
        q : float or array-like of shape (n_quantiles,)
            Probabilities between 0 and 1, both excluded.

        Returns
        -------
        ndarray of shape (n_samples, n_quantiles) or (n_samples, n_outputs, n_quantiles)
            The quantiles, in the units of y.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If X cannot be used, or `q` is outside (0, 1).
        InvalidTypeError
            If `q` or X holds no numbers.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> low, median, high = model.predict_quantiles([[1.0]], [0.05, 0.5, 0.95])[0]
        >>> bool(low < median < high)
        True
        """
        try:
            levels = np.atleast_1d(np.asarray(q, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise InvalidTypeError(f"q must be one or more numbers between 0 and 1; got {q!r}.") from error
        if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
            raise InvalidInputError(f"q must be one or more numbers between 0 and 1; got {q!r}.")
        check_is_fitted(self)
        return self._shape(Predictive.at(self.gp_, check_prediction(self, X)).quantiles(levels))

    @usual_modes()
    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> Array:
        """Predict central intervals of new observations, noise included.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Where to predict.
        level : float
            The probability that an observation is inside, between 0 and 1. As many are below as above on average.

        Returns
        -------
        ndarray of shape (n_samples, 2) or (n_samples, n_outputs, 2)
            Lower and upper ends, in the units of y: the quantiles at (1 - level) / 2 and (1 + level) / 2.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If X cannot be used, or `level` is outside (0, 1).
        InvalidTypeError
            If `level` is no number, or X holds none.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> low, high = model.predict_interval(X, level=0.9).T
        >>> bool((low < high).all())
        True
        """
        try:
            probability = float(level)
        except (TypeError, ValueError) as error:
            raise InvalidTypeError(f"level must be one number between 0 and 1, such as 0.9; got {level!r}.") from error
        if not 0.0 < probability < 1.0:
            raise InvalidInputError(f"level must be between 0 and 1, such as 0.9 for 90 %; got {level!r}.")
        return self.predict_quantiles(X, ends_of_interval(probability))

    @usual_modes()
    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draw new observations at all rows of X jointly, noise included.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
            Where to draw. The cost grows with the cube of the number of rows.
        n_samples : int
            How many draws.
        random_state : int, RandomState or None
            The same number gives the same draws.

        Returns
        -------
        ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_outputs, n_samples)
            The draws, one per column.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If X or `random_state` cannot be used, or `n_samples` is not a whole number of at least 1.
        InvalidTypeError
            If X holds no numbers.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.sample_y(X, n_samples=3).shape
        (40, 3)
        """
        check_is_fitted(self)
        x = check_prediction(self, X)
        n_samples = check_size("n_samples", n_samples)
        rng = check_seed(random_state)
        scale = self.gp_.scaling.y_scale  # outputs share a covariance, but for their scales
        cov = self.gp_.covariance(x)[:, :, 0] + np.diag(self.gp_.noise_at(x)[:, 0])
        L = safe_cholesky(torch.as_tensor(cov / scale[0] ** 2), "predictive covariance").numpy()
        mean = self.gp_.mean(x)
        draws = np.einsum("nm,mqs->nqs", L, rng.standard_normal((*mean.shape, n_samples)))
        if self.gp_.tails is not None:
            # Each draw is taken to the place of the same rank in its own distribution.
            sd = np.sqrt(cov.diagonal())[:, None, None] / scale[0]
            draws = sd * self.gp_.tails.from_normal(draws / sd)
        samples = np.stack([self.gp_.target.invert(mean + draws[..., i] * scale) for i in range(n_samples)], axis=-1)
        return np.asarray(samples[:, 0] if self._single_output else samples)

    @usual_modes()
    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> Array:
        """Return the density log p(y_i | x_i) of each row in nats, noise included.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Where to predict.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Observations there, in their own units.

        Returns
        -------
        ndarray of shape (n_samples,)
            Nats per row; several outputs are summed. Minus infinity where y cannot be: at and below 0 for a model with
            ``target="log"``.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If X or y cannot be used, or y has another shape than the predictions.
        InvalidTypeError
            If X holds no numbers.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> y = np.sin(X[:, 0])
        >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, y)
        >>> near, far = model.log_predictive_density([[1.0], [1.0]], [0.8, 9.0])
        >>> bool(near > far)
        True
        """
        check_is_fitted(self)
        found = Predictive.at(self.gp_, check_prediction(self, X))
        values = check_observed(y, self._shape(found.mean).shape).reshape(found.mean.shape)
        return np.asarray(found.log_density(values).sum(axis=1))

    def _shape(self, values: Array) -> Array:
        return values[:, 0] if self._single_output else values
