"""What a fit says of its data before it begins: what they cannot teach, so that nothing of that is silent."""

import warnings
from collections.abc import Sequence

import numpy as np

from cvgp.data.rows import Array
from cvgp.data.scaling import Scaling, constant_output_sd
from cvgp.errors import CVGPWarning

__all__ = ["notice_constants", "notice_one_output", "notice_weights"]

MOST_NAMES = 10
"""Columns that a warning names."""
FEW_ROWS = 30
"""Weights that add up to more than this leave something to learn, however small they are."""


def notice_one_output(only_y: Array | None, total_weight: float) -> None:
    """Warn of outputs with one value in all rows, whose spread is a convention."""
    if only_y is None:
        return
    sd = constant_output_sd(only_y, np.full_like(only_y, total_weight))
    warnings.warn(
        f"y is {_listed(only_y)} in every row, which says nothing of its spread. "
        f"The standard deviation of predictions is set to |y| divided by the number of rows, {_listed(sd)}.",
        CVGPWarning,
        stacklevel=3,
    )


def _listed(values: Array) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def notice_weights(total_weight: float, num_rows: int) -> None:
    """Warn of weights that make a handful of rows of many: mostly weights that were meant to compare rows."""
    if total_weight > min(num_rows / 2, FEW_ROWS):
        return
    warnings.warn(
        f"The sample weights of {num_rows} rows add up to {total_weight:.3g}. A row of weight w counts as w rows, so "
        f"there is as little to learn as from {total_weight:.3g} rows. Weights that are to compare rows should have a "
        "mean of one: divide them by their mean.",
        CVGPWarning,
        stacklevel=3,
    )


def notice_constants(scaling: Scaling, names: Sequence[str], num_rows: int) -> None:
    """Warn of columns that have one value in all of several rows; a single row has no other."""
    if num_rows == 1 or scaling.varies.all():
        return
    constant = [name for name, varies in zip(names, scaling.varies, strict=True) if not varies]
    shown = ", ".join(map(repr, constant[:MOST_NAMES])) + (", ..." if len(constant) > MOST_NAMES else "")
    what = "so the model predicts one value" if len(constant) == len(names) else "so the model leaves them out"
    warnings.warn(
        f"Columns with one value in all rows: {shown} ({len(constant)} of {len(names)}). They teach nothing, "
        f"{what}, and no prediction depends on them.",
        CVGPWarning,
        stacklevel=3,
    )
