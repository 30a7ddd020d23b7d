"""Scores of predictions, as NumPy functions of vectors in the user's units; `sd` includes the noise."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from cvgp.coreset import FloatArray, finite_array
from cvgp.errors import InvalidInputError

__all__ = ["coverage", "crps", "interval", "mean_log_density", "rmse"]

LOG_2PI = float(np.log(2 * np.pi))


def vectors(**values: ArrayLike) -> list[FloatArray]:
    """The values as finite float64 vectors of one length; NumPy would broadcast [n] against [n, 1] unasked."""
    arrays = {name: finite_array(name, value) for name, value in values.items()}
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) > 1 or any(array.ndim != 1 or array.size == 0 for array in arrays.values()):
        found = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InvalidInputError(f"Expected vectors of one length, at least 1, got {found}; flatten them with ravel().")
    if "sd" in arrays:
        check_positive("sd", arrays["sd"])
    return list(arrays.values())


def check_positive(name: str, values: FloatArray) -> None:
    """Raise unless all standard deviations are positive."""
    if np.any(values <= 0):
        raise InvalidInputError(
            f"{name} must be positive, but its smallest value is {values.min():g}; pass standard deviations."
        )


def rmse(y: ArrayLike, mean: ArrayLike) -> float:
    """Root mean squared error.

    Parameters
    ----------
    y, mean : array-like of shape [n]
        Observations and their predictions.

    Returns
    -------
    float
        In the unit of y.

    Examples
    --------
    >>> from cvgp.metrics import rmse
    >>> rmse([0.0, 0.0], [1.0, -1.0])
    1.0
    """
    y, mean = vectors(y=y, mean=mean)
    return float(np.sqrt(np.mean((y - mean) ** 2)))


def mean_log_density(y: ArrayLike, mean: ArrayLike, sd: ArrayLike) -> float:
    """Mean over the points of log N(y_i; mean_i, sd_i^2), each point by itself.

    Parameters
    ----------
    y, mean, sd : array-like of shape [n]
        Observations, predictive means and standard deviations.

    Returns
    -------
    float
        Nats per point; larger is better.

    Examples
    --------
    >>> from cvgp.metrics import mean_log_density
    >>> round(mean_log_density([0.0], [0.0], [1.0]), 3)
    -0.919
    """
    y, mean, sd = vectors(y=y, mean=mean, sd=sd)
    z = (y - mean) / sd
    return float(np.mean(-0.5 * (LOG_2PI + z**2) - np.log(sd)))


def crps(y: ArrayLike, mean: ArrayLike, sd: ArrayLike) -> float:
    """Mean continuous ranked probability score of Gaussian predictions.

    It is the integral of (F(t) - 1[t >= y])^2 over t, and becomes the absolute error as sd goes to 0.

    Parameters
    ----------
    y, mean, sd : array-like of shape [n]
        Observations, predictive means and standard deviations.

    Returns
    -------
    float
        In the unit of y; smaller is better.

    Examples
    --------
    >>> from cvgp.metrics import crps
    >>> round(crps([0.0], [0.0], [1.0]), 3)
    0.234
    """
    y, mean, sd = vectors(y=y, mean=mean, sd=sd)
    z = (y - mean) / sd
    density = np.exp(-0.5 * (LOG_2PI + z**2))
    return float(np.mean(sd * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))))


def interval(mean: ArrayLike, sd: ArrayLike, level: float) -> tuple[FloatArray, FloatArray]:
    """Lower and upper ends of the central intervals that hold the probability `level`.

    Parameters
    ----------
    mean, sd : array-like of shape [n]
        Predictive means and standard deviations.
    level : float
        Between 0 and 1, both excluded; 0.95 for 95 % intervals.

    Returns
    -------
    lower, upper : ndarray of shape [n]
        The ends of the intervals.

    Examples
    --------
    >>> from cvgp.metrics import interval
    >>> lower, upper = interval([0.0], [1.0], 0.95)
    >>> round(float(upper[0]), 2)
    1.96
    """
    mean, sd = vectors(mean=mean, sd=sd)
    if not 0 < level < 1:
        raise InvalidInputError(f"The level must lie between 0 and 1, got {level}; write 95 % as 0.95.")
    half = float(ndtri((1 + level) / 2)) * sd
    return mean - half, mean + half


def coverage(y: ArrayLike, mean: ArrayLike, sd: ArrayLike, level: float) -> float:
    """Share of the observations inside their central intervals; near `level` if the predictions are calibrated.

    Parameters
    ----------
    y, mean, sd : array-like of shape [n]
        Observations, predictive means and standard deviations.
    level : float
        Between 0 and 1, both excluded.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    >>> from cvgp.metrics import coverage
    >>> coverage([0.0, 5.0], [0.0, 0.0], [1.0, 1.0], level=0.95)
    0.5
    """
    y, mean, sd = vectors(y=y, mean=mean, sd=sd)
    lower, upper = interval(mean, sd, level)
    return float(np.mean((lower <= y) & (y <= upper)))
