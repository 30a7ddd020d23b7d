"""Checking what the metrics are given: vectors of one length, positive deviations, covariances."""

import numpy as np
from numpy.typing import ArrayLike

from cvgp.errors import FactorisationError, InvalidInputError
from cvgp.finite import FloatArray, finite_array

LOG_2PI = float(np.log(2 * np.pi))


def vectors(**values: ArrayLike) -> list[FloatArray]:
    """The values as finite float64 vectors of one length; NumPy would broadcast [n] against [n, 1] unasked."""
    arrays = {name: finite_array(name, value) for name, value in values.items()}
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) > 1 or any(array.ndim != 1 or array.size == 0 for array in arrays.values()):
        found = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InvalidInputError(f"Expected vectors of one length, at least 1, got {found}; flatten them with ravel().")
    return list(arrays.values())


def predictions(y: ArrayLike, mean: ArrayLike, sd: ArrayLike) -> list[FloatArray]:
    """Observations, means and positive standard deviations."""
    checked = vectors(y=y, mean=mean, sd=sd)
    check_positive("sd", checked[2])
    return checked


def check_positive(name: str, values: FloatArray) -> None:
    """Refuse standard deviations of zero or less."""
    if np.any(values <= 0):
        raise InvalidInputError(
            f"{name} must be positive, but its smallest value is {values.min():g}; pass standard deviations."
        )


def cholesky(name: str, value: ArrayLike, n: int) -> FloatArray:
    """The Cholesky factor [n, n] of a covariance."""
    matrix = finite_array(name, value)
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
