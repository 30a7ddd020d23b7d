"""Rows with the transform of y that a model describes."""

import numpy as np

from cvgp.data.rows import Array, Rows
from cvgp.data.target import TargetTransform
from cvgp.errors import InvalidInputError


def transformed(target: TargetTransform, rows: Rows[Array]) -> Rows[Array]:
    """Rows with T(y), which must be finite; known noise variances have the units of y, and allow the identity alone."""
    if target.name != "identity" and rows.noise_variance is not None:
        raise InvalidInputError(
            f"noise_variance is in the units of y squared, and a model with target={target.name!r} has other units. "
            "Fit with target='identity', or transform y and its noise variances before the fit."
        )
    y = target.apply(rows.y)
    if not np.isfinite(y).all():
        raise InvalidInputError(
            f"The model takes the logarithm of y, so y must be above 0; got {rows.y.min():g}. Leave such rows out, or "
            "fit with target='yeo-johnson' or 'identity'."
        )
    return rows._replace(y=y)


def sum_of_log_slopes(target: TargetTransform, rows: Rows[Array]) -> float:
    """The sum over rows, by their weights, and outputs of log T'(y)."""
    if target.name == "identity":
        return 0.0
    slopes = target.log_slope(rows.y).sum(axis=1)
    return float(slopes.sum() if rows.sample_weight is None else rows.sample_weight @ slopes)
