"""How good predictions are, and how far apart two Gaussian posteriors lie: NumPy functions, in nats.

The scores take observations `y`, predictive means and predictive standard deviations as vectors of one
length, in the user's units; `sd` holds the noise as well, since observations are noisy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular
from scipy.special import ndtr, ndtri

from cvgp.errors import FactorisationError, InvalidInputError, InvalidTypeError

__all__ = [
    "coverage",
    "crps",
    "interval",
    "jeffreys",
    "jensen_shannon_marginals",
    "joint_log_density",
    "kl_gaussian",
    "mean_log_density",
    "r2",
    "rmse",
]

FloatArray = npt.NDArray[np.float64]

_LOG_2PI = float(np.log(2 * np.pi))
_LOG_2 = float(np.log(2))

# Jensen-Shannon quadrature: Gauss-Legendre on panels one standard deviation wide, out to 9 on either side of each
# mean, beyond which lies a mass of 2e-19.
_PANEL_EDGES = np.arange(-9.0, 10.0)
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(12)
_PAIRS_AT_ONCE = 2048  # bounds the memory: about 10 MB for each intermediate array


def rmse(y: npt.ArrayLike, mean: npt.ArrayLike) -> float:
    """Root mean squared error.

    Parameters
    ----------
    y, mean : array-like of shape [n]
        Observations and their predictions.

    Examples
    --------
    >>> rmse([0.0, 0.0], [1.0, -1.0])
    1.0
    """
    y, mean = _vectors(y=y, mean=mean)
    return float(np.sqrt(np.mean((y - mean) ** 2)))


def r2(y: npt.ArrayLike, mean: npt.ArrayLike) -> float:
    """Coefficient of determination: 1 is perfect, 0 as good as the mean of y.

    Where y is constant, the value is 1 if every prediction is exact and 0 otherwise, as in scikit-learn.

    Parameters
    ----------
    y, mean : array-like of shape [n]
        Observations and their predictions.
    """
    y, mean = _vectors(y=y, mean=mean)
    residual = np.sum((y - mean) ** 2)
    total = np.sum((y - y.mean()) ** 2)
    if total == 0:
        return float(residual == 0)
    return float(1 - residual / total)


def mean_log_density(y: npt.ArrayLike, mean: npt.ArrayLike, sd: npt.ArrayLike) -> float:
    """Mean over the points of log N(y_i; mean_i, sd_i^2), each point by itself.

    Parameters
    ----------
    y, mean, sd : array-like of shape [n]
        Observations, predictive means and standard deviations.
    """
    y, mean, sd = _predictions(y, mean, sd)
    z = (y - mean) / sd
    return float(np.mean(-0.5 * (_LOG_2PI + z**2) - np.log(sd)))


def joint_log_density(y: npt.ArrayLike, mean: npt.ArrayLike, covariance: npt.ArrayLike) -> float:
    """Log N(y; mean, covariance) of all points together; divide by n to compare with the paper's PPLL.

    Parameters
    ----------
    y, mean : array-like of shape [n]
        Observations and predictive means.
    covariance : array-like of shape [n, n]
        Predictive covariance, noise included; symmetric and positive definite.
    """
    y, mean = _vectors(y=y, mean=mean)
    L = _cholesky("covariance", covariance, len(y))  # [n, n]
    z = solve_triangular(L, y - mean, lower=True)  # [n]
    return float(-0.5 * (len(y) * _LOG_2PI + z @ z) - np.sum(np.log(np.diag(L))))


def crps(y: npt.ArrayLike, mean: npt.ArrayLike, sd: npt.ArrayLike) -> float:
    """Mean continuous ranked probability score of Gaussian predictions, in the unit of y; smaller is better.

    It is the integral of (F(t) - 1[t >= y])^2 over t, and becomes the absolute error as sd goes to 0.

    Parameters
    ----------
    y, mean, sd : array-like of shape [n]
        Observations, predictive means and standard deviations.
    """
    y, mean, sd = _predictions(y, mean, sd)
    z = (y - mean) / sd
    density = np.exp(-0.5 * (_LOG_2PI + z**2))
    return float(np.mean(sd * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))))


def interval(mean: npt.ArrayLike, sd: npt.ArrayLike, level: float) -> tuple[FloatArray, FloatArray]:
    """Lower and upper ends of the central intervals that hold the probability `level`.

    Parameters
    ----------
    mean, sd : array-like of shape [n]
        Predictive means and standard deviations.
    level : float
        Between 0 and 1, both excluded; 0.95 for 95 % intervals.
    """
    mean, sd = _vectors(mean=mean, sd=sd)
    _check_positive("sd", sd)
    if not 0 < level < 1:
        raise InvalidInputError(f"The level must lie between 0 and 1, got {level}; write 95 % as 0.95.")
    half = float(ndtri((1 + level) / 2)) * sd
    return mean - half, mean + half


def coverage(y: npt.ArrayLike, mean: npt.ArrayLike, sd: npt.ArrayLike, level: float) -> float:
    """Share of the observations inside their central intervals; near `level` if the predictions are calibrated.

    Parameters
    ----------
    y, mean, sd : array-like of shape [n]
        Observations, predictive means and standard deviations.
    level : float
        Between 0 and 1, both excluded.
    """
    y, mean, sd = _predictions(y, mean, sd)
    lower, upper = interval(mean, sd, level)
    return float(np.mean((lower <= y) & (y <= upper)))


def kl_gaussian(m0: npt.ArrayLike, S0: npt.ArrayLike, m1: npt.ArrayLike, S1: npt.ArrayLike) -> float:
    """KL(N(m0, S0) || N(m1, S1)).

    Parameters
    ----------
    m0, m1 : array-like of shape [n]
        Means.
    S0, S1 : array-like of shape [n, n]
        Covariances, symmetric and positive definite.
    """
    m0, m1 = _vectors(m0=m0, m1=m1)
    L0, L1 = _cholesky("S0", S0, len(m0)), _cholesky("S1", S1, len(m0))
    A = solve_triangular(L1, L0, lower=True)  # [n, n], lower triangular, the identity where S0 = S1
    z = solve_triangular(L1, m1 - m0, lower=True)  # [n]
    # With e = diag(A)^2 - 1, trace and determinants give e - log(1 + e): no term can be negative or cancel another.
    excess = np.diag(A) ** 2 - 1
    return float(0.5 * (np.sum(np.tril(A, -1) ** 2) + np.sum(excess - np.log1p(excess)) + z @ z))


def jeffreys(m0: npt.ArrayLike, S0: npt.ArrayLike, m1: npt.ArrayLike, S1: npt.ArrayLike) -> float:
    """Mean of the two Kullback-Leibler divergences between N(m0, S0) and N(m1, S1).

    The paper's figures call this, divided by the number of points, a Jensen-Shannon divergence.

    Parameters
    ----------
    m0, m1 : array-like of shape [n]
        Means.
    S0, S1 : array-like of shape [n, n]
        Covariances, symmetric and positive definite.
    """
    return 0.5 * (kl_gaussian(m0, S0, m1, S1) + kl_gaussian(m1, S1, m0, S0))


def jensen_shannon_marginals(
    mean0: npt.ArrayLike, sd0: npt.ArrayLike, mean1: npt.ArrayLike, sd1: npt.ArrayLike
) -> FloatArray:
    """Jensen-Shannon divergence of each pair of one-dimensional Gaussians, between 0 and log 2.

    By quadrature, since the mixture of two Gaussians has no entropy in closed form; the absolute error stays
    below 1e-12 however unequal the pair.

    Parameters
    ----------
    mean0, sd0, mean1, sd1 : array-like of shape [n]
        Means and standard deviations.

    Returns
    -------
    array of shape [n]
    """
    mean0, sd0, mean1, sd1 = _vectors(mean0=mean0, sd0=sd0, mean1=mean1, sd1=sd1)
    _check_positive("sd0", sd0)
    _check_positive("sd1", sd1)
    # The narrower of the two becomes N(0, 1), so that rounding never swallows its panels.
    narrow = np.minimum(sd0, sd1)
    ratio = np.maximum(sd0, sd1) / narrow
    # From 40 standard deviations on there is no overlap left, and a greater distance would swallow them as well.
    distance = np.minimum(np.abs(mean1 - mean0) / narrow, 40 * (1 + ratio))
    starts = range(0, len(narrow), _PAIRS_AT_ONCE)
    parts = [_jensen_shannon(distance[i : i + _PAIRS_AT_ONCE], ratio[i : i + _PAIRS_AT_ONCE]) for i in starts]
    return np.concatenate(parts)


def _jensen_shannon(distance: FloatArray, ratio: FloatArray) -> FloatArray:
    """Divergence of p = N(0, 1) from q = N(distance, ratio^2), ratio >= 1, for each pair."""
    centre, scale = distance[:, None], ratio[:, None]  # [n, 1]
    own = np.broadcast_to(_PANEL_EDGES, (len(distance), len(_PANEL_EDGES)))
    edges = np.sort(np.concatenate([own, centre + scale * _PANEL_EDGES], axis=1), axis=1)  # [n, panels + 1]
    half_width = 0.5 * np.diff(edges)[..., None]  # [n, panels, 1]
    t = 0.5 * (edges[:, :-1] + edges[:, 1:])[..., None] + half_width * _NODES  # [n, panels, nodes]
    # 1000 standard deviations out a density is zero, and its square must not overflow.
    z_p = np.clip(t, -1e3, 1e3)
    z_q = np.clip((t - centre[..., None]) / scale[..., None], -1e3, 1e3)
    log_p, log_q = -0.5 * z_p**2, -0.5 * z_q**2 - np.log(scale[..., None])  # without the factor 1 / sqrt(2 pi)
    mixture = 0.5 * (np.exp(log_p) + np.exp(log_q)) / np.sqrt(2 * np.pi)
    # p = mixture (1 + u) and q = mixture (1 - u) with u = tanh(gap / 2), so the integrand is the mixture times half of
    # (1 + u) log(1 + u) + (1 - u) log(1 - u) = u gap - 2 log cosh(gap / 2), which is 2 log 2 from a gap of 60 on.
    gap = np.minimum(np.abs(log_p - log_q), 60.0)
    divergence = 0.5 * (gap * np.tanh(0.5 * gap) - np.log1p(np.sinh(0.5 * gap) ** 2))
    total = np.sum(_NODE_WEIGHTS * half_width * mixture * divergence, axis=(1, 2))  # [n]
    return np.asarray(np.minimum(total, _LOG_2))  # rounding may exceed the limit by an ulp


def _predictions(y: npt.ArrayLike, mean: npt.ArrayLike, sd: npt.ArrayLike) -> list[FloatArray]:
    vectors = _vectors(y=y, mean=mean, sd=sd)
    _check_positive("sd", vectors[2])
    return vectors


def _vectors(**values: npt.ArrayLike) -> list[FloatArray]:
    """The values as finite float64 vectors of one length; NumPy would broadcast [n] against [n, 1] unasked."""
    arrays = {name: _finite(name, value) for name, value in values.items()}
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) > 1 or any(array.ndim != 1 or array.size == 0 for array in arrays.values()):
        found = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InvalidInputError(f"Expected vectors of one length, at least 1, got {found}; flatten them with ravel().")
    return list(arrays.values())


def _finite(name: str, value: npt.ArrayLike) -> FloatArray:
    try:
        array: npt.NDArray[Any] = np.asarray(value)
    except ValueError as error:
        raise InvalidInputError(f"{name} must be a rectangular array of numbers ({error}).") from error
    if array.dtype.kind not in "biuf":  # NumPy's codes for bool, int, unsigned int and float
        raise InvalidTypeError(f"{name} must hold real numbers, got dtype {array.dtype}; convert it to float.")
    array = array.astype(np.float64)
    n_bad = int(np.sum(~np.isfinite(array)))
    if n_bad:
        raise InvalidInputError(
            f"{name} must be finite, but {n_bad} of its {array.size} values are NaN or infinite; remove these points."
        )
    return array


def _check_positive(name: str, values: FloatArray) -> None:
    if np.any(values <= 0):
        raise InvalidInputError(
            f"{name} must be positive, but its smallest value is {values.min():g}; pass standard deviations."
        )


def _cholesky(name: str, value: npt.ArrayLike, n: int) -> FloatArray:
    matrix = _finite(name, value)
    if matrix.shape != (n, n):
        raise InvalidInputError(f"{name} must have shape ({n}, {n}), as the means have length {n}; got {matrix.shape}.")
    asymmetry = np.max(np.abs(matrix - matrix.T))
    if asymmetry > 1e-5 * np.max(np.abs(matrix)):  # room for the rounding of single precision
        raise InvalidInputError(f"{name} must be symmetric, but its mirrored entries differ by up to {asymmetry:g}.")
    try:
        return np.asarray(np.linalg.cholesky(matrix), dtype=np.float64)
    except np.linalg.LinAlgError as error:
        raise FactorisationError(
            f"{name} is not positive definite, so it has no density; include the noise or add a small diagonal."
        ) from error
