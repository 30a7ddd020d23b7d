"""What a fitted regressor says of new inputs, in the units of the data."""

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_y, check_is_fitted

from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.estimators.inputs import check_noise, check_prediction, check_seed, check_size
from cvgp.estimators.units import ScaledGP
from cvgp.gp.linalg import safe_cholesky

__all__ = ["PredictiveMixin"]

Array = NDArray[np.float64]


class PredictiveMixin(BaseEstimator):  # type: ignore[misc]
    """Predictions of an estimator whose fit leaves a :class:`~cvgp.estimators.units.ScaledGP` in `gp_`."""

    gp_: ScaledGP
    _single_output: bool

    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = True,
        noise_variance: ArrayLike | None = None,
    ) -> Any:
        """Predictive mean, and standard deviation or covariance on request.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        return_std, return_cov : bool
            Also return the standard deviation, or the joint covariance.
        include_noise : bool
            Predict y rather than the function: the learned noise is added, and `noise_variance` where it is given.
        noise_variance : array-like of shape (n_samples,), optional
            Known noise variances of the points to predict.

        Returns
        -------
        mean, or (mean, std) or (mean, cov)
            Of shape (n_samples,) or (n_samples, n_outputs); cov is (n_samples, n_samples), with outputs last.
        """
        check_is_fitted(self)
        x = check_prediction(self, X)
        if return_std and return_cov:
            raise InvalidInputError("Ask for return_std or return_cov, not both.")
        if not (return_std or return_cov):
            return self._shape(self.gp_.mean(x))
        noise = np.zeros((len(x), 1))
        if include_noise:
            noise = noise + self.gp_.noise_variance
            if noise_variance is not None:
                noise = noise + check_noise(noise_variance, len(x))[:, None]
        if return_std:
            mean, f_var = self.gp_.mean_and_variance(x)
            return self._shape(mean), self._shape(np.sqrt(f_var + noise))
        scale = self.gp_.scaling.y_scale**2
        cov = self.gp_.covariance(x)[:, :, None] * scale
        cov[np.arange(len(x)), np.arange(len(x))] += noise
        return self._shape(self.gp_.mean(x)), cov[:, :, 0] if self._single_output else cov

    def predict_quantiles(self, X: ArrayLike, q: ArrayLike) -> Array:
        """Quantiles of y, (n_samples, n_quantiles) (with outputs in the middle if there are several)."""
        try:
            levels = np.atleast_1d(np.asarray(q, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise InvalidTypeError(f"q must be one or more numbers between 0 and 1; got {q!r}.") from error
        if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
            raise InvalidInputError(f"q must be one or more numbers between 0 and 1; got {q!r}.")
        mean, sd = self.predict(X, return_std=True)
        return np.asarray(mean[..., None] + sd[..., None] * ndtri(levels))

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Joint draws of y, (n_samples_X, n_samples) or (n_samples_X, n_outputs, n_samples)."""
        check_is_fitted(self)
        x = check_prediction(self, X)
        n_samples = check_size("n_samples", n_samples)
        rng = check_seed(random_state)
        cov = torch.as_tensor(self.gp_.covariance(x)) + self.gp_.model.noise.item() * torch.eye(len(x))
        L = safe_cholesky(cov, "predictive covariance").numpy()
        mean = self.gp_.mean(x)
        draws = np.einsum("nm,mts->nts", L, rng.standard_normal((*mean.shape, n_samples)))
        samples = mean[:, :, None] + draws * self.gp_.scaling.y_scale[:, None]
        return np.asarray(samples[:, 0] if self._single_output else samples)

    def log_predictive_density(self, X: ArrayLike, y: ArrayLike) -> Array:
        """The density log p(y_i | x_i) of each row in nats, noise included, for y in its own units."""
        mean, sd = self.predict(X, return_std=True)
        try:
            values = np.asarray(_check_y(y, multi_output=not self._single_output, y_numeric=True), dtype=np.float64)
        except ValueError as error:
            raise InvalidInputError(str(error)) from error
        if values.shape != mean.shape:
            raise InvalidInputError(f"y must have the shape of the predictions, {mean.shape}; got {values.shape}.")
        density = -0.5 * np.log(2 * np.pi * sd**2) - 0.5 * ((values - mean) / sd) ** 2
        return np.asarray(density.reshape(len(density), -1).sum(axis=1))

    def _shape(self, values: Array) -> Array:
        return values[:, 0] if self._single_output else values
