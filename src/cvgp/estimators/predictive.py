r"""The predictive distribution of new observations in the units of y, its moments and its scores.

T(y) = f + noise. The function in the units of y is :math:`\mu = E[y \mid f]`, which is f itself where T is the
identity. With t the standardized f + noise and :math:`g(t) = y`, an expansion in Hermite polynomials has

.. math:: g = \sum_k a_k H_k, \qquad
   \mathrm{Cov}(\mu_i, \mu_j) = \mathrm{Cov}(y_i, y_j) = \sum_{k \ge 1} k! \, a_{ik} a_{jk} \rho_{ij}^k

(Mehler, 1866), where rho is the covariance of f in units of the standard deviations of f + noise. For i = j the sum is
Var mu, and with rho = 1 it is Var y. For the logarithm the sums are exponentials.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import ndtri

from cvgp import metrics
from cvgp.data.rows import Array, Rows
from cvgp.data.transforms import TargetTransform
from cvgp.errors import InvalidInputError
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.inputs import check_noise
from cvgp.fitting.outliers import regular_rows
from cvgp.gp.noise import Contamination, Tails, log_normal
from cvgp.tables.encode import Inputs

CRPS_LEVELS, LEVELS_AT_ONCE = 1000, 50
NODES, TERMS = 64, 32
"""Points of the Gauss-Hermite quadrature, and polynomials of the expansion."""
PART_ROWS = 4096
BEYOND, TAIL_NODES = 1e-4, 128
"""The probability that is left out at either end of heavy tails, and the points of their quadrature."""


class Moments(NamedTuple):
    """Of y at each row and output, [n, Q]."""

    mean: Array
    f_variance: Array
    """Of the function E[y | f]."""
    noise_variance: Array
    """Of an observation about the function, on average over what is known of f."""

    @property
    def variance(self) -> Array:
        """Of an observation."""
        return self.f_variance + self.noise_variance


class Predictive:
    """Observations y for which T(y) is Gaussian, except for outliers.

    Parameters
    ----------
    target
        The transform T.
    mean, f_var, noise
        Of T(y): its mean, the variance of f and that of the noise, each [n, Q].
    outliers
        If some observations are gross outliers. Quantiles, densities and draws count them, and moments do not.
    tails
        The shape of observations around their mean, if it is not normal; never together with outliers.
    """

    def __init__(
        self,
        target: TargetTransform,
        mean: Array,
        f_var: Array,
        noise: Array,
        outliers: Contamination | None = None,
        tails: Tails | None = None,
    ) -> None:
        self.target, self.mean, self.f_var, self.noise, self.outliers = target, mean, f_var, noise, outliers
        self.tails = tails

    @classmethod
    def at(cls, gp: FittedGP, x: Array | Inputs) -> Predictive:
        """That of a fitted model at inputs [n, D], with the noise that it has learned."""
        return cls(gp.target, *gp.mean_and_variance(x), gp.noise_at(x), gp.outliers, gp.tails)

    @cached_property
    def moments(self) -> Moments:
        """Mean and variances of y [n, Q], of observations that are not outliers."""
        return moments_of_y(self.target, self.mean, self.f_var, self.noise, self.tails)

    def function_covariance(self, f_cov: Array) -> Array:
        """Joint covariance of the function E[y | f] [n, n, Q], from that of f."""
        return covariance_of_y(self.target, self.mean, f_cov, self.noise, self.tails)

    def outlier_errors(self, num_draws: int, rng: np.random.RandomState) -> Array:
        """Draws [n, Q, S] of what outliers add to T(y); a row is an outlier in all of its outputs."""
        n, Q = self.mean.shape
        if self.outliers is None:
            return np.zeros((n, Q, num_draws))
        is_outlier = rng.random_sample((n, 1, num_draws)) < self.outliers.share
        return np.asarray(
            is_outlier * np.sqrt(self.outliers.variance)[:, None] * rng.standard_normal((n, Q, num_draws))
        )

    def quantiles(self, levels: Array) -> Array:
        """Quantiles of y at probabilities [L], as [n, Q, L]: a monotone transform maps quantiles to quantiles."""
        variance = self.f_var + self.noise
        if self.outliers is None:
            errors = [
                np.sqrt(variance) * z for z in (ndtri(levels) if self.tails is None else self.tails.quantiles(levels))
            ]
        else:
            errors = [self.outliers.quantile(level, variance) for level in levels]
        return np.stack([self.target.invert(self.mean + error) for error in errors], axis=-1)

    def log_density(self, y: Array) -> Array:
        """Log density of observations [n, Q], of each by itself."""
        variance, error = self.f_var + self.noise, self.target.apply(y) - self.mean
        if self.tails is not None:
            square = torch.as_tensor(error**2)
            found = self.tails.cpu().log_density(square, torch.as_tensor(variance).expand(square.shape))[0].numpy()
        else:
            found = (log_normal if self.outliers is None else self.outliers.log_density)(error, variance)
        return np.asarray(found + self.target.log_slope(y))

    def regular(self, rows: Rows[Array]) -> Rows[Array]:
        """The rows that are predicted, weighted by their probability of not being an outlier."""
        if self.outliers is None:
            return rows
        error = self.target.apply(rows.y) - self.mean
        return regular_rows(rows, self.outliers.probability(error, self.f_var + self.noise))

    def crps(self, y: Array) -> Array:
        r"""Continuous ranked probability score of observations [n, Q], in the unit of y.

        It is :math:`2 \int_0^1 (1[y < q_p] - p)(q_p - y) \, dp` over the quantiles (Laio and Tamea, 2007), taken at
        the midpoints of equal steps.
        """
        levels = (np.arange(CRPS_LEVELS) + 0.5) / CRPS_LEVELS
        total = np.zeros(y.shape)
        for start in range(0, CRPS_LEVELS, LEVELS_AT_ONCE):
            p = levels[start : start + LEVELS_AT_ONCE]
            q = self.quantiles(p)
            total += (((y[..., None] < q) - p) * (q - y[..., None])).sum(axis=-1)
        return 2.0 * total / CRPS_LEVELS


def ends_of_interval(level: float) -> Array:
    """The probabilities [2] below the ends of a central interval."""
    return np.array([0.5 - 0.5 * level, 0.5 + 0.5 * level])


def known_noise(target: TargetTransform, noise_variance: ArrayLike | None, num_rows: int) -> Array:
    """Known noise variances of points to predict [n, 1]; zero where there are none."""
    if noise_variance is None:
        return np.zeros((num_rows, 1))
    if target.name != "identity":
        raise InvalidInputError(
            f"noise_variance is in the units of y squared, and the model describes y by "
            f"target_transform={target.name!r}. Fit with target_transform='identity' to predict with known noise."
        )
    return check_noise(noise_variance, num_rows)[:, None]


def moments_of_y(
    target: TargetTransform, mean: Array, f_var: Array, noise: Array, tails: Tails | None = None
) -> Moments:
    """The moments of y where T(y) has a mean, a variance of f and a noise variance, all [n, Q].

    With `tails`, T(y) has this shape around its mean, except for its last `BEYOND`. An exponential of heavy tails may
    have no mean at all, and one observation in ten thousand must not decide it. The function keeps its share of the
    variance.
    """
    if target.name == "identity":
        return Moments(mean, f_var, noise)
    if tails is not None:
        normal, total = moments_of_y(target, mean, f_var, noise), f_var + noise
        rows = [slice(i, i + PART_ROWS) for i in range(0, len(mean), PART_ROWS)]
        with np.errstate(over="ignore", invalid="ignore"):
            by_part = [_with_tails(target, mean[part], total[part], tails) for part in rows]
            y_mean, variance = (np.concatenate(column) for column in zip(*by_part, strict=True))
            f_variance = variance * normal.f_variance / normal.variance
        return _checked(Moments(y_mean, f_variance, variance - f_variance))
    if target.name == "log":
        with np.errstate(over="ignore", invalid="ignore"):
            y_mean = np.exp(mean + 0.5 * (f_var + noise))
            square = y_mean**2
            found = Moments(y_mean, square * np.expm1(f_var), square * np.exp(f_var) * np.expm1(noise))
        return _checked(found)
    parts = range(0, len(mean), PART_ROWS)
    with np.errstate(over="ignore", invalid="ignore"):
        pieces = [_by_expansion(target, *(a[i : i + PART_ROWS] for a in (mean, f_var, noise))) for i in parts]
    return _checked(Moments(*(np.concatenate(column) for column in zip(*pieces, strict=True))))


def covariance_of_y(
    target: TargetTransform, mean: Array, f_cov: Array, noise: Array, tails: Tails | None = None
) -> Array:
    """Covariance of the function E[y | f] [n, n, Q], where T(y) has a mean [n, Q], f_cov [n, n, Q] and noise [n, Q]."""
    if target.name == "identity":
        return f_cov
    f_var = np.moveaxis(np.diagonal(f_cov), -1, 0)  # [n, Q]
    if tails is not None:
        normal, heavy = (moments_of_y(target, mean, f_var, noise, shape) for shape in (None, tails))
        ratio = np.sqrt(heavy.f_variance / normal.f_variance)  # [n, Q]
        return ratio[:, None] * ratio[None] * covariance_of_y(target, mean, f_cov, noise)
    if target.name == "log":
        y_mean = moments_of_y(target, mean, f_var, noise).mean
        return np.asarray(y_mean[:, None] * y_mean[None] * np.expm1(f_cov))
    total = np.sqrt(f_var + noise)
    rho = f_cov / (total[:, None] * total[None])
    coefficients = _coefficients(target, mean, total)[1]  # [TERMS, n, Q]
    powers = np.ones_like(rho)
    cov: Array = np.zeros(rho.shape)
    for a in coefficients:
        powers *= rho
        cov += a[:, None] * a[None] * powers
    return cov


def _with_tails(target: TargetTransform, mean: Array, variance: Array, tails: Tails) -> tuple[Array, Array]:
    """Mean and variance of y [n, Q] where T(y) has heavy tails, by quadrature over normal quantiles."""
    end = -float(ndtri(BEYOND))
    nodes, weights = np.polynomial.legendre.leggauss(TAIL_NODES)
    weights = weights * np.exp(-0.5 * (end * nodes) ** 2)
    weights /= weights.sum()
    errors = tails.from_normal(end * nodes)[:, None, None] * np.sqrt(variance)  # [TAIL_NODES, n, Q]
    y = target.invert(mean + errors)
    y_mean = np.tensordot(weights, y, 1)
    return y_mean, np.tensordot(weights, (y - y_mean) ** 2, 1)


def _by_expansion(target: TargetTransform, mean: Array, f_var: Array, noise: Array) -> Moments:
    total = f_var + noise
    y, a = _coefficients(target, mean, np.sqrt(total))
    weights = _quadrature()[1]
    y_mean = np.tensordot(weights, y, 1)
    variance = np.tensordot(weights, (y - y_mean) ** 2, 1)
    share = np.divide(f_var, total, out=np.zeros_like(f_var), where=total > 0.0)
    powers = share ** np.arange(1, TERMS + 1)[:, None, None]
    f_variance = np.minimum((a**2 * powers).sum(0), variance)
    return Moments(y_mean, f_variance, variance - f_variance)


def _coefficients(target: TargetTransform, mean: Array, sd: Array) -> tuple[Array, Array]:
    """Y at the nodes [NODES, n, Q], and the coefficients of normalized polynomials from the first on [TERMS, n, Q]."""
    nodes, weights, polynomials = _quadrature()
    y = target.invert(mean + nodes[:, None, None] * sd)
    return y, np.tensordot(polynomials * weights, y, 1)


@cache
def _quadrature() -> tuple[Array, Array, Array]:
    """Nodes and weights of a standard normal variable, and H_k / sqrt(k!) at the nodes [TERMS, NODES] for k >= 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    rows = [np.ones(NODES), nodes]
    for k in range(1, TERMS):  # H_{k+1} = x H_k - k H_{k-1}, divided by the roots of factorials
        rows.append((nodes * rows[k] - np.sqrt(k) * rows[k - 1]) / np.sqrt(k + 1))
    return nodes, weights / weights.sum(), np.array(rows[1:])


def _checked(moments: Moments) -> Moments:
    if not all(np.isfinite(values).all() for values in moments):
        raise InvalidInputError(
            "The mean or the variance of y is beyond the range of floating-point numbers, since its transform is very "
            "uncertain at some rows. Ask for quantiles of these rows, or fit with target_transform='identity'."
        )
    return moments


LEVELS = (50, 90, 95)
"""The probabilities of intervals in percent."""


def scores_of_model(found: Predictive, y: Array, output: int = 0) -> dict[str, float]:
    """Those of predictions that need not be Gaussian, for observations [n, Q] of which one output counts."""
    own = y[:, output]
    mean, sd = found.moments.mean[:, output], np.sqrt(found.moments.variance[:, output])
    is_gaussian = found.target.name == "identity" and found.outliers is None and found.tails is None
    halves = np.array(LEVELS) / 200
    ends = found.quantiles(np.append(0.5 - halves, 0.5 + halves))[:, output]  # [n, 2 L]
    inside = (ends[:, : len(LEVELS)] <= own[:, None]) & (own[:, None] <= ends[:, len(LEVELS) :])
    return {
        "rmse": metrics.rmse(own, mean),
        "mean_log_likelihood": float(found.log_density(y)[:, output].mean()),
        "crps": metrics.crps(own, mean, sd) if is_gaussian else float(found.crps(y)[:, output].mean()),
        **{f"coverage_{level}": float(share) for level, share in zip(LEVELS, inside.mean(axis=0), strict=True)},
    }


def scores_of_normal(y: Array, mean: Array, sd: Array) -> dict[str, float]:
    """Those of Gaussian predictions of one output."""
    return {
        "rmse": metrics.rmse(y, mean),
        "mean_log_likelihood": metrics.mean_log_density(y, mean, sd),
        "crps": metrics.crps(y, mean, sd),
        **{f"coverage_{level}": metrics.coverage(y, mean, sd, level / 100) for level in LEVELS},
    }


SCORE_NAMES = {"rmse": "RMSE", "mean_log_likelihood": "mean log-likelihood", "crps": "CRPS"} | {
    f"coverage_{level}": f"inside {level} % intervals" for level in LEVELS
}


def score_as_text(name: str, value: float) -> str:
    """A score for people: shares in percent."""
    return f"{value:.1%}" if name.startswith("coverage") else f"{value:.4g}"
