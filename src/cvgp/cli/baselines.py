"""Simple models to compare with, each row predicted from the other rows of the same table.

A model file holds no training data, so the simple models learn from the table that is evaluated. Leaving out the row
that is predicted keeps them honest, and costs no more than one fit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["FEWEST_ROWS", "constant_predictions", "linear_predictions"]

Array = NDArray[np.float64]
FEWEST_ROWS = 3
"""Two other rows are needed for a mean and a spread."""


def constant_predictions(y: Array) -> tuple[Array, Array]:
    """Means and standard deviations [n] from the mean of the other rows."""
    return _without_own_row(y, np.full(len(y), y.mean()), np.full(len(y), 1.0 / len(y)))


def linear_predictions(x: Array, y: Array) -> tuple[Array, Array]:
    """Means and standard deviations [n] from the ridge regression of the other rows.

    On standardised features a penalty of one is a single pseudo-observation for each slope: too little to matter where
    there are many rows, and enough where columns repeat each other, as the indicators of one text column do.
    """
    centred = x - x.mean(axis=0)
    scale = centred.std(axis=0)
    z = centred / np.where(scale > 0.0, scale, 1.0)  # [n, D]
    inverse = np.linalg.inv(z.T @ z + np.eye(z.shape[1]))
    slopes = inverse @ (z.T @ (y - y.mean()))
    leverage = 1.0 / len(y) + np.einsum("nd,de,ne->n", z, inverse, z)
    return _without_own_row(y, y.mean() + z @ slopes, leverage)


def _without_own_row(y: Array, fitted: Array, leverage: Array) -> tuple[Array, Array]:
    """From a linear smoother of all rows to the predictions of each row by the others.

    The residual without the own row is the ordinary one over (1 - leverage); the spread is that of the other rows'.
    """
    residual = (y - fitted) / (1.0 - leverage)
    squares = residual**2
    variance = (squares.sum() - squares) / (len(y) - 1)
    # Rows without any spread would give a density without bounds.
    floor = (1e-6 * max(float(np.abs(y).max()), np.finfo(np.float64).tiny)) ** 2
    return y - residual, np.sqrt(np.maximum(variance, floor))
