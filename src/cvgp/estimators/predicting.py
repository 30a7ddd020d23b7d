"""What a fitted regressor predicts at new inputs, in the units of the data."""

from typing import Literal, NoReturn, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from cvgp.data.rows import Array
from cvgp.errors import InvalidInputError, SeveralArraysError
from cvgp.estimators.distribution import DistributionMixin
from cvgp.estimators.inputs import check_prediction
from cvgp.estimators.modes import usual_modes
from cvgp.estimators.new_observations import Predictive, known_noise


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
            "CVGPRegressor(target='log'), target='yeo-johnson' or target='auto' without it: mean, standard deviation "
            "and intervals are then those of y itself."
        )


class PredictiveMixin(DistributionMixin):
    """Means, standard deviations and covariances."""

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

    @usual_modes()
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
        >>> from cvgp import CVGPRegressor
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = CVGPRegressor(n_coreset=8, max_iter=20, random_state=0).fit(X, np.sin(X[:, 0]))
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
        if not (return_std or return_cov or return_noise) and self.gp_.target.name == "identity":
            return self._shape(self.gp_.mean(x))
        known = known_noise(self.gp_.target, noise_variance if include_noise else None, len(x))
        found = Predictive.at(self.gp_, x)
        mean, f_variance, noise = found.moments
        extra = (self._shape(np.sqrt(noise)),) if return_noise else ()
        if return_std:
            sd = np.sqrt(f_variance + noise + known if include_noise else f_variance)
            return _Arrays((self._shape(mean), self._shape(sd), *extra))
        if return_cov:
            cov = found.function_covariance(self.gp_.covariance(x))
            if include_noise:
                cov[np.arange(len(x)), np.arange(len(x))] += noise + known
            return _Arrays((self._shape(mean), cov[:, :, 0] if self._single_output else cov, *extra))
        return _Arrays((self._shape(mean), *extra)) if extra else self._shape(mean)
