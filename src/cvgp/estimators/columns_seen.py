"""The distribution of each feature and output in the rows of a fit, by which new rows are recognised as different."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cvgp.data.rows import Array
from cvgp.errors import FileFormatError
from cvgp.files.untrusted import Members

PARTS = 16
LEVELS = np.linspace(0.0, 1.0, PARTS + 1)
"""The probabilities of the quantiles that are kept; the first and the last are the ends of the range."""


class ColumnsSeen(NamedTuple):
    """Quantiles and means, in the user's units."""

    num_rows: int
    """How many rows of the fit they are of."""
    x: Array  # [PARTS + 1, D]
    x_mean: Array  # [D]
    y: Array  # [PARTS + 1, Q]

    @classmethod
    def learn(cls, x: Array, y: Array) -> ColumnsSeen:
        """From rows [N, D] and [N, Q]."""
        return cls(len(x), np.quantile(x, LEVELS, axis=0), x.mean(axis=0), np.quantile(y, LEVELS, axis=0))

    def to_json(self) -> dict[str, Any]:
        """Plain values; :meth:`from_json` reads them."""
        # Seven digits tell as much as there is to tell of a sample, in half of the space.
        return {
            "num_rows": self.num_rows,
            **{name: np.vectorize(_short)(getattr(self, name)).tolist() for name in ("x", "x_mean", "y")},
        }

    @classmethod
    def from_json(cls, value: object, num_features: int, num_outputs: int) -> ColumnsSeen:
        """From a file, which may hold anything."""
        members = Members(value, "columns_seen")
        num_rows = members.integer("num_rows", 1)
        shapes = {"x": (PARTS + 1, num_features), "x_mean": (num_features,), "y": (PARTS + 1, num_outputs)}
        arrays = [_array(name, members.items(name), shape) for name, shape in shapes.items()]
        members.close()
        return cls(num_rows, *arrays)


def _short(value: float) -> float:
    return float(f"{value:.7g}")


def _array(name: str, value: list[Any], shape: tuple[int, ...]) -> Array:
    try:
        found = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.full(1, np.nan)
    if found.shape != shape or not np.isfinite(found).all():
        raise FileFormatError(f"{name} of the columns that were seen must be finite numbers of the shape {shape}.")
    return found
