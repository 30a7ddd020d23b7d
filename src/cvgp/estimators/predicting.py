"""What a fitted regressor predicts at new inputs: moments, quantiles, draws and densities, in the units of y."""

from typing import Any, Literal, NoReturn, TypedDict, Unpack, overload

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError, InvalidTypeError, SeveralArraysError
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.inputs import check_observed, check_prediction, check_seed, check_size
from cvgp.estimators.predictive import Predictive, ends_of_interval, known_noise
from cvgp.gp.linalg import safe_cholesky
from cvgp.runtime import clean_torch_state


class _Noise(TypedDict, total=False):
    """What `predict` may be told of the noise, whatever else it is asked for."""

    include_noise: bool
    noise_variance: ArrayLike | None


class _Arrays(tuple[Array, ...]):
    """The mean and what was asked for beside it.

    `TransformedTargetRegressor` of scikit-learn takes what a regressor predicts for one array, whose `ndim` it asks
    for. A standard deviation cannot be transformed back as a value can, so what it reads instead is what to do.
    """

    __slots__ = ()

    @property
    def ndim(self) -> NoReturn:
        raise SeveralArraysError(
            "predict was asked for several arrays (return_std, return_cov or return_noise), where one array is "
            "expected. A TransformedTargetRegressor cannot transform a standard deviation back. Fit "
            "CVGPRegressor(target_transform='log'), 'yeo-johnson' or 'auto' without it: mean, standard deviation and"
            " intervals are then those of y itself."
        )


class PredictiveMixin(BaseEstimator):  # type: ignore[misc]
    """Predictions of an estimator whose fit leaves a `FittedGP` in `_gp`."""

    _gp: FittedGP
    _single_output: bool

    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[False] = ..., return_cov: Literal[False] = ..., **noise: Unpack[_Noise]
    ) -> Array: ...

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True], **noise: Unpack[_Noise]) -> tuple[Array, Array]: ...

    @overload
    def predict(self, X: ArrayLike, *, return_cov: Literal[True], **noise: Unpack[_Noise]) -> tuple[Array, Array]: ...

    @overload
    def predict(
        self, X: ArrayLike, return_std: bool = ..., return_cov: bool = ..., **noise: Unpack[_Noise]
    ) -> Array | tuple[Array, Array]: ...

    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: bool = ...,
        return_cov: bool = ...,
        *,
        return_noise: Literal[True],
        **noise: Unpack[_Noise],
    ) -> tuple[Array, ...]: ...

    @clean_torch_state()
    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = True,
        noise_variance: ArrayLike | None = None,
        return_noise: bool = False,
    ) -> Array | tuple[Array, ...]:
        """Predict the mean, and the standard deviation, the covariance or the noise on request.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or a table
            Where to predict. The columns are those of the fit. After a fit to a table with text, dates or missing
            values it is a DataFrame or an Arrow table; cells of which the model knows nothing are integrated out.
        return_std, return_cov : bool
            Also return the standard deviation, or the joint covariance. Only one of them can be asked for.
        include_noise : bool
            Whether the uncertainty is that of a new observation y. Then it includes the learned noise, and
            `noise_variance` where it is given. False gives the uncertainty of the function alone, which is what y would
            be on average over its noise. The mean is the same for both, also where y is transformed.
        noise_variance : array-like of shape (n_samples,), optional
            Known noise variances of the points to predict; not for a model that transforms y.
        return_noise : bool
            Also return the standard deviation of the learned noise at each row, as the last value.

        Returns
        -------
        mean : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            The predictive mean; alone, unless `return_std` or `return_cov` is set.
        std : ndarray of the shape of mean
            If `return_std`: the standard deviation.
        cov : ndarray of shape (n_samples, n_samples) or (n_samples, n_samples, n_outputs)
            If `return_cov`: the joint covariance.
        noise_std : ndarray of the shape of mean
            If `return_noise`: the standard deviation of the noise.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If X has other columns than the data of the fit or holds NaN or infinity, if `noise_variance` is not one
            number of at least 0 per row, or if both `return_std` and `return_cov` are set. If y is transformed and its
            mean or variance is beyond the range of floats.
        InvalidTypeError
            If X holds no numbers where the fit had some.

        Warns
        -----
        CVGPWarning
            If a table has categories that the fit did not have, gaps in columns that had none, dates outside its range,
            or columns that the model does not know.

        Examples
        --------
        >>> import numpy as np
        >>> from cvgp import CVGPRegressor, TrainingOptions
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPRegressor(n_coreset=8, random_state=0, training=TrainingOptions(max_iter=20))
        >>> model = model.fit(X, np.sin(X[:, 0]))
        >>> model.predict([[1.0], [2.0]]).round(1).tolist()
        [0.8, 0.9]
        >>> mean, sd = model.predict(X, return_std=True)
        >>> mean.shape, sd.shape
        ((40,), (40,))
        >>> mean, cov = model.predict(X, return_cov=True, include_noise=False)
        >>> cov.shape
        (40, 40)
        """
        check_is_fitted(self)
        x = check_prediction(self, X)
        if return_std and return_cov:
            raise InvalidInputError("Ask for return_std or return_cov, not both.")
        if not (return_std or return_cov or return_noise) and self._gp.target.name == "identity":
            return self._shape(self._gp.mean(x))
        known = known_noise(self._gp.target, noise_variance if include_noise else None, len(x))
        found = Predictive.at(self._gp, x)
        mean, f_variance, noise = found.moments
        extra = (self._shape(np.sqrt(noise)),) if return_noise else ()
        if return_std:
            sd = np.sqrt(f_variance + noise + known if include_noise else f_variance)
            return _Arrays((self._shape(mean), self._shape(sd), *extra))
        if return_cov:
            cov = found.function_covariance(self._gp.covariance(x))
            if include_noise:
                cov[np.arange(len(x)), np.arange(len(x))] += noise + known
            return _Arrays((self._shape(mean), cov[:, :, 0] if self._single_output else cov, *extra))
        return _Arrays((self._shape(mean), *extra)) if extra else self._shape(mean)

    @clean_torch_state()
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
        >>> from cvgp import CVGPRegressor, TrainingOptions
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPRegressor(n_coreset=8, random_state=0, training=TrainingOptions(max_iter=20))
        >>> model = model.fit(X, np.sin(X[:, 0]))
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
        return self._shape(Predictive.at(self._gp, check_prediction(self, X)).quantiles(levels))

    @clean_torch_state()
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
        >>> from cvgp import CVGPRegressor, TrainingOptions
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPRegressor(n_coreset=8, random_state=0, training=TrainingOptions(max_iter=20))
        >>> model = model.fit(X, np.sin(X[:, 0]))
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

    @clean_torch_state()
    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draw new observations at all rows of X jointly, with their noise and, if there are any, outliers.

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
        >>> from cvgp import CVGPRegressor, TrainingOptions
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPRegressor(n_coreset=8, random_state=0, training=TrainingOptions(max_iter=20))
        >>> model = model.fit(X, np.sin(X[:, 0]))
        >>> model.sample_y(X, n_samples=3).shape
        (40, 3)
        """
        check_is_fitted(self)
        x = check_prediction(self, X)
        n_samples = check_size("n_samples", n_samples)
        rng = check_seed(random_state)
        scale = self._gp.scaling.y_scale  # outputs share a covariance, but for their scales
        cov = self._gp.covariance(x)[:, :, 0] + np.diag(self._gp.noise_at(x)[:, 0])
        L = safe_cholesky(torch.as_tensor(cov / scale[0] ** 2), "predictive covariance").numpy()
        found = Predictive.at(self._gp, x)
        mean = found.mean
        draws = np.einsum("nm,mqs->nqs", L, rng.standard_normal((*mean.shape, n_samples)))
        if self._gp.tails is not None:
            # Each draw is taken to the place of the same rank in its own distribution.
            sd = np.sqrt(cov.diagonal())[:, None, None] / scale[0]
            draws = sd * self._gp.tails.from_normal(draws / sd)
        errors = draws * scale[:, None] + found.outlier_errors(n_samples, rng)  # [n, Q, n_samples]
        samples = np.stack([self._gp.target.invert(mean + errors[..., i]) for i in range(n_samples)], axis=-1)
        return np.asarray(samples[:, 0] if self._single_output else samples)

    @clean_torch_state()
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
            ``target_transform="log"``.

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
        >>> from cvgp import CVGPRegressor, TrainingOptions
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> y = np.sin(X[:, 0])
        >>> model = CVGPRegressor(n_coreset=8, random_state=0, training=TrainingOptions(max_iter=20)).fit(X, y)
        >>> near, far = model.log_predictive_density([[1.0], [1.0]], [0.8, 9.0])
        >>> bool(near > far)
        True
        """
        check_is_fitted(self)
        found = Predictive.at(self._gp, check_prediction(self, X))
        values = check_observed(y, self._shape(found.mean).shape).reshape(found.mean.shape)
        return np.asarray(found.log_density(values).sum(axis=1))

    def _shape(self, values: Array) -> Array:
        return values[:, 0] if self._single_output else values
