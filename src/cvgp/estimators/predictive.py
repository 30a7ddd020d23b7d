"""Predictions of new observations in the units of y: their distribution, and the methods of an estimator.

T(y) = f + noise, and E[y | f] is expanded in Hermite polynomials (§11 of docs/mathematics.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import ndtri
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from cvgp import metrics
from cvgp.data.rows import Array
from cvgp.data.transforms import TargetTransform
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.estimators.display import number
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.inputs import (
    check_exposed,
    check_exposure,
    check_noise,
    check_observed,
    check_prediction,
    check_seed,
    check_size,
    take_exposure,
)
from cvgp.files import TINY
from cvgp.gp.calibration import Calibration
from cvgp.gp.likelihoods import WithQuantiles
from cvgp.gp.linalg import safe_cholesky
from cvgp.gp.noise import Contamination, Tails, log_normal, normal, with_rare
from cvgp.progress import tell
from cvgp.runtime import clean_torch_state
from cvgp.tables.encode import Inputs

IntervalName = Literal["conformal", "model"]

CRPS_LEVELS, LEVELS_AT_ONCE = 1000, 50
NODES, TERMS = 64, 32  # of the Gauss-Hermite quadrature, and of the expansion in polynomials
PART_ROWS = 4096
BEYOND, TAIL_NODES = 1e-4, 128  # the probability left out at either end of heavy tails, and nodes of their quadrature


class Moments(NamedTuple):
    """Of y at each row and output, [n, Q]."""

    mean: Array
    f_variance: Array  # of the function E[y | f]
    noise_variance: Array  # of an observation about the function, on average over the posterior of f

    @property
    def variance(self) -> Array:
        """The variance of an observation."""
        return self.f_variance + self.noise_variance


@dataclass(eq=False)
class Predictive:
    """Observations y for which T(y) is Gaussian, except for outliers and tails."""

    target: TargetTransform
    mean: Array  # [n, Q], of T(y)
    f_var: Array  # [n, Q]
    noise: Array  # [n, Q]
    outliers: Contamination | None = None  # in quantiles, densities and draws, but not in moments
    tails: Tails | None = None  # if observations around their mean are not normal; never together with outliers
    calibration: Calibration | None = None
    rare_share: float = 0.0  # of observations far from their mean, which count where outliers do

    @classmethod
    def at(cls, gp: FittedGP, x: Array | Inputs, exposure: Any = None) -> Predictive:
        """That of a fitted model at inputs [n, D], with the noise that it has learned; counts may have exposures."""
        if isinstance(gp.likelihood, WithQuantiles):
            return LatentPredictive.of(gp, gp.likelihood, x, exposure)
        if exposure is not None:
            raise InvalidInputError("exposure is for a model of counts; this one has likelihood='gaussian'.")
        return cls(gp.target, *gp.moments(x), gp.outliers, gp.tails, gp.calibration, gp.rare_share)

    @cached_property
    def shape(self) -> Tails | None:
        """The distribution of observations around their mean, rare ones included; None if it is normal."""
        if not self.rare_share:
            return self.tails
        tails = normal(torch.ones(())) if self.tails is None else self.tails.cpu()
        return with_rare(tails, self.rare_share)

    @cached_property
    def moments(self) -> Moments:
        """Mean and variances of y [n, Q], without outliers, and without the last `BEYOND` of heavy tails."""
        if self.target.name == "identity":
            return Moments(self.mean, self.f_var, self.noise)
        parts = []
        for start in range(0, len(self.mean), PART_ROWS):
            rows = slice(start, start + PART_ROWS)
            with np.errstate(over="ignore", invalid="ignore"):
                parts.append(self._transformed(self.mean[rows], self.f_var[rows], self.noise[rows]))
        found = Moments(*map(np.concatenate, zip(*parts, strict=True)))
        if not all(np.isfinite(values).all() for values in found):
            raise InvalidInputError(
                "The mean or the variance of y is beyond the range of floating-point numbers, since its transform is "
                "very uncertain at some rows. Ask for quantiles of these rows, or fit with target_transform='identity'."
            )
        return found

    def _transformed(self, mean: Array, f_var: Array, noise: Array) -> Moments:
        normal = _by_expansion(self.target, mean, f_var, noise)
        if self.tails is None:
            return normal
        # Without its ends: an exponential of heavy tails may have no mean at all. The function keeps its share.
        y_mean, variance = _with_tails(self.target, mean, f_var + noise, self.tails)
        f_variance = variance * normal.f_variance / normal.variance
        return Moments(y_mean, f_variance, variance - f_variance)

    def function_covariance(self, f_cov: Array) -> Array:
        """Joint covariance of the function E[y | f] [n, n, Q], from that of f."""
        if self.target.name == "identity":
            return f_cov
        f_var = np.moveaxis(np.diagonal(f_cov), -1, 0)  # [n, Q]
        if self.tails is not None:
            heavy = replace(self, f_var=f_var)
            normal = replace(heavy, tails=None)
            ratio = np.sqrt(heavy.moments.f_variance / normal.moments.f_variance)  # [n, Q]
            return ratio[:, None] * ratio[None] * normal.function_covariance(f_cov)
        return _covariance(self.target.predict, self.mean, np.sqrt(f_var + self.noise), f_cov)

    def outlier_errors(self, num_draws: int, rng: np.random.RandomState) -> Array:
        """Draws [n, Q, S] of what outliers add to T(y); a row is an outlier in all of its outputs."""
        n, Q = self.mean.shape
        if self.outliers is None:
            return np.zeros((n, Q, num_draws))
        is_outlier = rng.random_sample((n, 1, num_draws)) < self.outliers.share
        sd = np.sqrt(self.outliers.variance)[:, None]
        return np.asarray(is_outlier * sd * rng.standard_normal((n, Q, num_draws)))

    def quantiles(self, levels: Array, interval: IntervalName = "conformal") -> Array:
        """Quantiles of y at probabilities [L], as [n, Q, L]: a monotone transform maps quantiles to quantiles."""
        variance = self.f_var + self.noise
        if self.outliers is not None:
            errors = [self.outliers.quantile(level, variance) for level in levels]
        else:
            z = ndtri(levels) if self.shape is None else self.shape.quantiles(levels)  # [L]
            errors = [np.sqrt(variance) * value for value in z]
        if interval == "conformal" and self.calibration is not None:
            sd = np.sqrt(variance)
            pairs = zip(levels.tolist(), errors, strict=True)
            errors = [sd * self.calibration.quantile(level, error / sd) for level, error in pairs]
        return np.stack([self.target.predict(self.mean + error) for error in errors], axis=-1)

    def residuals(self, y: Array) -> Array:
        """Residuals of observations [n, Q]: those of T(y), over their standard deviations."""
        return np.asarray((self.target.apply(y) - self.mean) / np.sqrt(self.f_var + self.noise))

    def log_density(self, y: Array) -> Array:
        """Log density of observations [n, Q], of each by itself."""
        variance, error = self.f_var + self.noise, self.target.apply(y) - self.mean
        if self.shape is not None:
            square = torch.as_tensor(error**2)
            found = self.shape.cpu().log_density(square, torch.as_tensor(variance).expand(square.shape))[0].numpy()
        else:
            found = (log_normal if self.outliers is None else self.outliers.log_density)(error, variance)
        return np.asarray(found + self.target.log_slope(y))

    def crps(self, y: Array) -> Array:
        """Continuous ranked probability score [n, Q], by quantiles (Laio and Tamea, 2007)."""
        levels = (np.arange(CRPS_LEVELS) + 0.5) / CRPS_LEVELS
        total = np.zeros(y.shape)
        for start in range(0, CRPS_LEVELS, LEVELS_AT_ONCE):
            p = levels[start : start + LEVELS_AT_ONCE]
            q = self.quantiles(p, "model")
            total += (((y[..., None] < q) - p) * (q - y[..., None])).sum(axis=-1)
            tell("score", start + LEVELS_AT_ONCE, CRPS_LEVELS)
        return 2.0 * total / CRPS_LEVELS


@dataclass(eq=False)
class LatentPredictive(Predictive):
    """Observations of a likelihood that is not Gaussian, given f."""

    likelihood: WithQuantiles = field(kw_only=True)

    @classmethod
    def of(cls, gp: FittedGP, likelihood: WithQuantiles, x: Array | Inputs, exposure: Any) -> LatentPredictive:
        """That of a fitted model at inputs [n, D]."""
        if exposure is None and gp.exposure is not None:
            column = f"a table with the column {gp.exposure!r}, or " if gp.exposure else ""
            raise InvalidInputError(
                f"The model was fitted with exposures, and predictions need them too: give {column}exposure=..., a "
                "number per row. exposure=1 predicts counts for one unit of it."
            )
        mean, f_var = gp.mean_and_variance(x)
        if exposure is not None:
            check_exposed(likelihood.name, exposure)
            mean = mean + np.log(check_exposure(exposure, len(mean)))[:, None]
        return cls(gp.target, mean, np.maximum(f_var, 0.0), np.zeros_like(f_var), likelihood=likelihood)

    @property
    def _f(self) -> tuple[Tensor, Tensor]:
        return torch.as_tensor(self.mean), torch.as_tensor(self.f_var)

    @cached_property
    def moments(self) -> Moments:
        """Mean and variances of y [n, 1]."""
        return Moments(*(values.numpy()[:, None] for values in self.likelihood.moments(*self._f)))

    def function_covariance(self, f_cov: Array) -> Array:
        """Joint covariance of E[y | f] [n, n, 1], from that of f."""
        sd = np.sqrt(np.maximum(self.f_var, TINY))
        return _covariance(
            lambda f: self.likelihood.distribution(torch.as_tensor(f)).mean.numpy(), self.mean, sd, f_cov
        )

    def quantiles(self, levels: Array, interval: IntervalName = "conformal") -> Array:
        """Quantiles of y at probabilities [L], as [n, 1, L]."""
        parts = zip(*(values.split(PART_ROWS) for values in self._f), strict=True)
        return np.concatenate([self.likelihood.quantiles(levels, *part) for part in parts])[:, None]

    def log_density(self, y: Array) -> Array:
        """Log density, or log-probability of counts, of observations [n, 1]; minus infinity where y cannot be."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = self.likelihood.log_predictive(torch.tensor(y[:, 0]), *self._f).numpy()
        return np.where(self.likelihood.is_possible(y), found[:, None], -np.inf)

    def crps(self, y: Array) -> Array:
        """Continuous ranked probability score [n, 1], by draws."""
        rng, found, weight = np.random.RandomState(0), [], 2.0 * np.arange(CRPS_LEVELS) - CRPS_LEVELS + 1.0
        for start in range(0, len(y), LEVELS_AT_ONCE):
            rows = slice(start, start + LEVELS_AT_ONCE)
            sd = np.sqrt(self.f_var[rows])
            f = self.mean[rows] + sd * rng.standard_normal((len(sd), CRPS_LEVELS))
            draws = np.sort(self._draw(f, rng))
            spread = (weight * draws).sum(1) / (CRPS_LEVELS * (CRPS_LEVELS - 1.0))
            found.append(np.abs(draws - y[rows]).mean(1) - spread)
        return np.concatenate(found)[:, None]

    def sample(self, f_cov: Array, num_draws: int, rng: np.random.RandomState) -> Array:
        """Joint draws [n, S] of y, from the covariance of f [n, n]."""
        scale = f_cov.diagonal().mean() or 1.0
        L = safe_cholesky(torch.as_tensor(f_cov / scale), "covariance of the latent values").numpy()
        return self._draw(self.mean + np.sqrt(scale) * L @ rng.standard_normal((len(L), num_draws)), rng)

    def _draw(self, f: Array, rng: np.random.RandomState) -> Array:
        return np.asarray(self.likelihood.sample(torch.as_tensor(f), rng.randint(2**31)))


def ends_of_interval(level: float) -> Array:
    """The probabilities [2] below the ends of a central interval."""
    return np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])


def _with_tails(target: TargetTransform, mean: Array, variance: Array, tails: Tails) -> tuple[Array, Array]:
    """Mean and variance of y [n, Q] where T(y) has heavy tails, by quadrature over normal quantiles."""
    nodes, weights = tail_nodes(tails)
    errors = nodes[:, None, None] * np.sqrt(variance)  # [TAIL_NODES, n, Q]
    y = target.predict(mean + errors)
    y_mean = np.tensordot(weights, y, 1)
    return y_mean, np.tensordot(weights, (y - y_mean) ** 2, 1)


def tail_nodes(tails: Tails) -> tuple[Array, Array]:
    """Nodes and weights [TAIL_NODES] of the quadrature over heavy tails, whose last `BEYOND` is left out."""
    end = -float(ndtri(BEYOND))
    nodes, weights = np.polynomial.legendre.leggauss(TAIL_NODES)
    weights = weights * np.exp(-0.5 * (end * nodes) ** 2)
    return tails.from_normal(end * nodes), weights / weights.sum()


def _covariance(function: Callable[[Array], Array], mean: Array, sd: Array, f_cov: Array) -> Array:
    """Covariance [n, n, Q] of a function of normal variables, whose joint covariance is known except for the variances.

    It is a sum over powers of the correlations, by Hermite polynomials.
    """
    rho = f_cov / (sd[:, None] * sd[None])
    powers = np.ones_like(rho)
    cov: Array = np.zeros(rho.shape)
    for a in _coefficients(function, mean, sd)[1]:  # [n, Q]
        powers *= rho
        cov += a[:, None] * a[None] * powers
    return cov


def _by_expansion(target: TargetTransform, mean: Array, f_var: Array, noise: Array) -> Moments:
    total = f_var + noise
    y, a = _coefficients(target.predict, mean, np.sqrt(total))
    weights = _quadrature()[1]
    y_mean = np.tensordot(weights, y, 1)
    variance = np.tensordot(weights, (y - y_mean) ** 2, 1)
    share = np.divide(f_var, total, out=np.zeros_like(f_var), where=total > 0.0)
    powers = share ** np.arange(1, TERMS + 1)[:, None, None]
    f_variance = np.minimum((a**2 * powers).sum(0), variance)
    return Moments(y_mean, f_variance, variance - f_variance)


def _coefficients(function: Callable[[Array], Array], mean: Array, sd: Array) -> tuple[Array, Array]:
    """The y at the nodes [NODES, n, Q], and the coefficients of normalized polynomials from k = 1 [TERMS, n, Q]."""
    nodes, weights, polynomials = _quadrature()
    y = function(mean + nodes[:, None, None] * sd)
    return y, np.tensordot(polynomials * weights, y, 1)


@cache
def _quadrature() -> tuple[Array, Array, Array]:
    """Nodes and weights of a standard normal variable, and H_k / sqrt(k!) at the nodes [TERMS, NODES] for k >= 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    rows = [np.ones(NODES), nodes]
    for k in range(1, TERMS):  # H_{k+1} = x H_k - k H_{k-1}, divided by the roots of factorials
        rows.append((nodes * rows[k] - np.sqrt(k) * rows[k - 1]) / np.sqrt(k + 1))
    return nodes, weights / weights.sum(), np.array(rows[1:])


LEVELS = (50, 90, 95)  # of intervals, in percent


def scores_of_model(found: Predictive, y: Array, output: int = 0) -> dict[str, float]:
    """Scores of predictions that need not be Gaussian, for one output of observations [n, Q]."""
    own = y[:, output]
    mean, sd = found.moments.mean[:, output], np.sqrt(found.moments.variance[:, output])
    is_gaussian = found.target.name == "identity" and found.outliers is None and found.shape is None
    halves = np.array(LEVELS) / 200
    ends = found.quantiles(np.append(0.5 - halves, 0.5 + halves))[:, output]  # [n, 2 L]
    inside = (ends[:, : len(LEVELS)] <= own[:, None]) & (own[:, None] <= ends[:, len(LEVELS) :])
    low, high = found.quantiles(ends_of_interval(0.9), "model")[:, output].T
    return {
        "rmse": metrics.rmse(own, mean),
        "mean_log_likelihood": float(found.log_density(y)[:, output].mean()),
        "crps": metrics.crps(own, mean, sd) if is_gaussian else float(found.crps(y)[:, output].mean()),
        **{f"coverage_{level}": float(share) for level, share in zip(LEVELS, inside.mean(axis=0), strict=True)},
        "coverage_90_model": float(np.mean((low <= own) & (own <= high))),
    }


def scores_of_normal(y: Array, mean: Array, sd: Array) -> dict[str, float]:
    """Scores of Gaussian predictions of one output."""
    return {
        "rmse": metrics.rmse(y, mean),
        "mean_log_likelihood": metrics.mean_log_density(y, mean, sd),
        "crps": metrics.crps(y, mean, sd),
        **{f"coverage_{level}": metrics.coverage(y, mean, sd, level / 100) for level in LEVELS},
    }


SCORE_NAMES = {"rmse": "RMSE", "mean_log_likelihood": "mean log-likelihood", "crps": "CRPS"} | {
    f"coverage_{level}": f"inside {level} % intervals" for level in LEVELS
}
SCORE_NAMES["coverage_90_model"] = "inside 90 % intervals, not calibrated"
SCORE_NAMES |= {"log_loss": "log loss", "brier": "Brier score", "auc": "AUC", "accuracy": "accuracy"}
SCORE_NAMES["calibration_error"] = "expected calibration error"


def score_as_text(name: str, value: float) -> str:
    """A score for people: shares in percent."""
    return f"{value:.1%}" if name.startswith(("coverage", "accuracy")) else number(value, 4)


def score_rows(scores: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    """A line for each score that a model has: its name, and its value for each model, empty where it has none."""
    return [
        [label, *(score_as_text(name, own[name]) if name in own else "" for own in scores.values())]
        for name, label in SCORE_NAMES.items()
        if any(name in own for own in scores.values())
    ]


class PredictiveMixin(BaseEstimator):  # type: ignore[misc]
    """Predictions of an estimator whose fit leaves a `FittedGP` in `_gp`."""

    _gp: FittedGP
    _single_output: bool

    @overload
    def predict(self, X: ArrayLike) -> Array: ...

    @overload
    def predict(self, X: ArrayLike, return_std: Literal[True]) -> tuple[Array, Array]: ...

    @overload
    def predict(
        self,
        X: ArrayLike,
        return_std: bool = ...,
        return_cov: bool = ...,
        include_noise: bool = ...,
        noise_variance: ArrayLike | None = ...,
        return_noise: bool = ...,
        exposure: ArrayLike | str | None = ...,
    ) -> Any: ...

    @clean_torch_state()
    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
        return_cov: bool = False,
        include_noise: bool = True,
        noise_variance: ArrayLike | None = None,
        return_noise: bool = False,
        exposure: ArrayLike | str | None = None,
    ) -> Any:
        """Predict the mean, and the standard deviation, the covariance or the noise on request.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or a table
            Where to predict, with the columns of the fit. Unknown cells are integrated out, with a warning.
        return_std, return_cov : bool
            Also return the standard deviation, or the joint covariance, but not both.
        include_noise : bool
            Whether the uncertainty is that of a new observation y, or of the function alone. The mean is the same.
        noise_variance : array-like of shape (n_samples,), optional
            Known noise variances at these rows, beside the learned noise; not for a model that transforms y.
        return_noise : bool
            Also return the standard deviation of the learned noise at each row, as the last value.
        exposure : array-like of shape (n_samples,), number or the name of a column, optional
            For counts, the time, area or number at risk of each row. By default it is the column that the fit has used.

        Returns
        -------
        ndarray, or a tuple of ndarrays
            The mean, of shape (n_samples,) or (n_samples, n_outputs), and after it what was asked for.

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = cvgp.CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.predict([[1.0], [2.0]]).round(1).tolist()
        [0.8, 0.9]
        """
        x, exposure = self._inputs(X, exposure)
        if return_std and return_cov:
            raise InvalidInputError("Ask for return_std or return_cov, not both.")
        is_plain = self._gp.target.name == "identity" and self._gp.likelihood is None and exposure is None
        if not (return_std or return_cov or return_noise) and is_plain:
            return self._shape(self._gp.mean(x))
        known = self._known_noise(noise_variance if include_noise else None, len(x))
        found = Predictive.at(self._gp, x, exposure)
        mean, f_variance, noise = found.moments
        extra = (self._shape(np.sqrt(noise)),) if return_noise else ()
        if return_std:
            sd = np.sqrt(f_variance + noise + known if include_noise else f_variance)
            return self._shape(mean), self._shape(sd), *extra
        if return_cov:
            cov = found.function_covariance(self._gp.covariance(x))
            if include_noise:
                cov[np.arange(len(x)), np.arange(len(x))] += noise + known
            return self._shape(mean), cov[:, :, 0] if self._single_output else cov, *extra
        return (self._shape(mean), *extra) if extra else self._shape(mean)

    @clean_torch_state()
    def predict_quantiles(
        self, X: ArrayLike, q: ArrayLike, interval: IntervalName = "conformal", *, exposure: Any = None
    ) -> Array:
        """Predict quantiles of new observations, noise included.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        q : float or array-like of shape (n_quantiles,)
            Probabilities between 0 and 1, both excluded.
        interval : {"conformal", "model"}
            Quantiles that are calibrated by rows that the fit has not learned from, or those of the model itself. The
            two are the same for a model without a calibration, such as one that was merged.
        exposure : as for `predict`

        Returns
        -------
        ndarray of shape (n_samples, n_quantiles) or (n_samples, n_outputs, n_quantiles)

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = cvgp.CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.predict_quantiles(X, [0.05, 0.5, 0.95]).shape
        (40, 3)
        """
        levels = _probabilities("q", q)
        check_is_fitted(self)
        if interval not in ("conformal", "model"):
            raise InvalidInputError(f"interval must be 'conformal' or 'model'; got {interval!r}.")
        return self._shape(self._predictive(X, exposure).quantiles(levels, interval))

    @clean_torch_state()
    def predict_interval(
        self, X: ArrayLike, level: float = 0.9, interval: IntervalName = "conformal", *, exposure: Any = None
    ) -> Array:
        """Predict central intervals of new observations, noise included.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        level : float
            The probability that an observation is inside, between 0 and 1.
        interval, exposure : as for `predict_quantiles` and `predict`

        Returns
        -------
        ndarray of shape (n_samples, 2) or (n_samples, n_outputs, 2)

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = cvgp.CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.predict_interval(X, level=0.9).shape
        (40, 2)
        """
        if np.ndim(level):
            raise InvalidTypeError(f"level must be one number between 0 and 1, such as 0.9; got {level!r}.")
        (probability,) = _probabilities("level", level)
        return self.predict_quantiles(X, ends_of_interval(probability), interval, exposure=exposure)

    @clean_torch_state()
    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0, *, exposure: Any = None) -> Array:
        """Draw new observations at all rows of X jointly, with noise and outliers.

        Parameters
        ----------
        X : array-like of shape (n_samples_X, n_features)
            Where to draw. The cost grows with the cube of the number of rows.
        n_samples : int
        random_state : int, RandomState or None
        exposure : as for `predict`

        Returns
        -------
        ndarray of shape (n_samples_X, n_samples) or (n_samples_X, n_outputs, n_samples)

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = cvgp.CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.sample_y(X, n_samples=3).shape
        (40, 3)
        """
        x, exposure = self._inputs(X, exposure)
        n_samples = check_size("n_samples", n_samples)
        gp, mixing = self._gp.unmixed, self._gp.mixing
        rng, found = check_seed(random_state), Predictive.at(gp, x, exposure)
        if isinstance(found, LatentPredictive):
            return found.sample(gp.covariance(x)[:, :, 0], n_samples, rng)
        scale, mean, cov = gp.scaling.y_scale, found.mean, gp.covariance(x)
        # Outputs share a covariance, but for their scales, unless they have noise of their own.
        own = range(1 if gp.outputs is None else len(scale))
        covs = [cov[:, :, q] + np.diag(gp.noise_at(x)[:, q]) for q in own]
        scaled = (torch.as_tensor(one / scale[q] ** 2) for q, one in enumerate(covs))
        Ls = [safe_cholesky(one, "predictive covariance").numpy() for one in scaled]
        normal = np.split(rng.standard_normal((*mean.shape, n_samples)), len(own), axis=1)
        draws = np.hstack([np.einsum("nm,mqs->nqs", L, part) for L, part in zip(Ls, normal, strict=True)])
        if found.shape is not None:
            # Each draw is moved to the same quantile of its own distribution.
            sd = np.stack([np.sqrt(one.diagonal()) / scale[q] for q, one in enumerate(covs)], axis=1)[:, :, None]
            draws = sd * found.shape.from_normal(draws / sd)
        errors = draws * scale[:, None] + found.outlier_errors(n_samples, rng)  # [n, Q, n_samples]
        samples = np.stack([gp.target.predict(mean + errors[..., i]) for i in range(n_samples)], axis=-1)
        if mixing is not None:
            samples = mixing.T @ samples
        return np.asarray(samples[:, 0] if self._single_output else samples)

    @clean_torch_state()
    def log_predictive_density(self, X: ArrayLike, y: ArrayLike, *, exposure: Any = None) -> Array:
        """Return the density log p(y_i | x_i) of each row in nats, noise included; of counts, the log-probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        exposure : as for `predict`

        Returns
        -------
        ndarray of shape (n_samples,)
            Several outputs are summed, or with a learned covariance joint. Minus infinity where y cannot be, as 0 for a
            model of log y.

        Examples
        --------
        >>> import cvgp, numpy as np
        >>> X = np.linspace(0, 6, 40)[:, None]
        >>> model = cvgp.CVGPRegressor(n_coreset=8, random_state=0).fit(X, np.sin(X[:, 0]))
        >>> model.log_predictive_density(X, np.sin(X[:, 0])).shape
        (40,)
        """
        x, exposure = self._inputs(X, exposure)
        found, mixing = Predictive.at(self._gp.unmixed, x, exposure), self._gp.mixing
        values = check_observed(y, self._shape(found.mean).shape).reshape(found.mean.shape)
        if mixing is None:
            return np.asarray(found.log_density(values).sum(axis=1))
        density = found.log_density(np.asarray(np.linalg.solve(mixing.T, values.T).T, np.float64)).sum(axis=1)
        return np.asarray(density - np.linalg.slogdet(mixing)[1])

    def _inputs(self, X: Any, exposure: Any) -> tuple[Array | Inputs, Any]:
        check_is_fitted(self)
        X, exposure = take_exposure(self, X, exposure)
        return check_prediction(self, X), exposure

    def _predictive(self, X: Any, exposure: Any) -> Predictive:
        x, exposure = self._inputs(X, exposure)
        return Predictive.at(self._gp, x, exposure)

    def _known_noise(self, noise_variance: ArrayLike | None, num_rows: int) -> Array:
        if noise_variance is None:
            return np.zeros((num_rows, 1))
        self._gp.need_gaussian("noise_variance", complete=False)
        if self._gp.target.name != "identity":
            raise InvalidInputError(
                f"noise_variance is in the units of y squared, and the model describes y by target_transform="
                f"{self._gp.target.name!r}. Fit with target_transform='identity' to predict with known noise."
            )
        return check_noise(noise_variance, num_rows)[:, None]

    def _shape(self, values: Array) -> Array:
        return values[:, 0] if self._single_output else values


def _probabilities(name: str, values: ArrayLike) -> Array:
    expected = "{} must be between 0 and 1, such as 0.9 for 90 %; got {!r}."
    try:
        found = np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise InvalidTypeError(expected.format(name, values)) from error
    if found.ndim != 1 or not ((found > 0) & (found < 1)).all():
        raise InvalidInputError(expected.format(name, values))
    return found
