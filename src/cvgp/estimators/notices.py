"""What a fit says of its data before it begins: what they cannot teach, so that nothing of that is silent."""

import warnings
from collections.abc import Sequence

from cvgp.data.scaling import Scaling
from cvgp.errors import CVGPWarning

__all__ = ["notice_constants"]

MOST_NAMES = 10
"""Columns that a warning names."""


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
