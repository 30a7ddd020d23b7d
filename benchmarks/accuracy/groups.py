"""Which rows belong together, so that a grouped split does not learn from near-copies of the rows that it scores.

Where columns say what was observed more than once, these make the groups. Elsewhere rows belong together whose
standardised inputs are nearly equal, directly or through others between them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from sklearn.neighbors import NearestNeighbors

__all__ = ["NEAR", "OBSERVED", "Observed", "describe", "group_rows", "near_copies"]

Array = NDArray[np.float64]
Labels = NDArray[np.intp]

NEAR = 0.05
"""Standard deviations per column, as a root mean square, up to which two rows are near-copies."""


class Observed(NamedTuple):
    """What the rows of a group have in common."""

    what: str
    columns: Sequence[int]
    """Those that tell the groups apart."""


OBSERVED = {
    "energy": Observed("a building, whichever way it faces", (0, 1, 2, 3, 4, 6, 7)),
    "concrete": Observed("a mixture, at any age", (0, 1, 2, 3, 4, 5, 6)),
    "airfoil": Observed("a set-up of the wind tunnel, at any frequency", (1, 2, 3, 4)),
    "parkinsons": Observed("a person", (0,)),
    "bike": Observed("a day", (0, 1, 2)),
    "flights": Observed("a day", (0,)),
}
"""By the name of the data set."""


def describe(dataset: str) -> str:
    """What a group of the data set is, in words."""
    return OBSERVED[dataset].what if dataset in OBSERVED else "near-copies"


def group_rows(dataset: str, x: Array) -> Labels:
    """A number per row; rows that belong together share it."""
    if dataset not in OBSERVED:
        return near_copies(x)
    _, labels = np.unique(x[:, list(OBSERVED[dataset].columns)], axis=0, return_inverse=True)
    return labels.reshape(-1)


def near_copies(x: Array, near: float = NEAR) -> Labels:
    """Groups of rows that are linked by steps of at most `near` standard deviations per column."""
    spread = x.std(axis=0)
    different, labels = np.unique(x / np.where(spread > 0, spread, 1.0), axis=0, return_inverse=True)
    radius = near * np.sqrt(x.shape[1])
    links = NearestNeighbors(radius=radius).fit(different).radius_neighbors_graph()
    _, linked = connected_components(links, directed=False)
    return np.asarray(linked[labels.reshape(-1)], dtype=np.intp)
