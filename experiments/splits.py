"""Rows to learn from and rows to score: the paper's folds, random splits, and splits that keep groups together.

All of it depends on fixed seeds alone, so that every system and every run sees the same rows. Everything is
standardized by the statistics of the training rows: an error is in units of the target's standard deviation, and a
constant predictor has an RMSE of about 1.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from sklearn.model_selection import KFold
from sklearn.neighbors import NearestNeighbors

from cvgp.data.scaling import Scaling, learn_scaling
from cvgp.errors import InvalidInputError
from experiments.data import UCI, load

Array = NDArray[np.float64]
RowNumbers = NDArray[np.intp]

NUM_FOLDS = 5
FOLD_SEED = 0
TRAIN_SHARE = 0.7
"""The share that is learned from, of a fold's rows that are not scored; the others validate."""


KINDS = ("random", "grouped")
SCORED_SHARE = 0.2
MOST_SCORED = 10_000
"""Of the held-out rows of a race: more would take time and change no digit."""
NEAR = 0.05
"""Standard deviations per column, as a root mean square, up to which two rows are near-copies."""


class Split(NamedTuple):
    """Standardized rows; a random split has no validation rows."""

    x: Array  # [N, D]
    y: Array  # [N]
    x_validation: Array
    y_validation: Array
    x_test: Array
    y_test: Array
    scaling: Scaling

    @property
    def validation(self) -> tuple[Array, Array]:
        """As a baseline's `fit` takes it."""
        return self.x_validation, self.y_validation


def fold(dataset: str, number: int, rows: int | None = None, *, train_share: float = TRAIN_SHARE) -> Split:
    """One of five folds: a fifth is scored. Of the other rows a share is learned from, and the rest validate."""
    if not 0 <= number < NUM_FOLDS:
        raise InvalidInputError(f"Folds are numbered from 0 to {NUM_FOLDS - 1}; got {number}.")
    x, y = load(dataset)
    if rows is not None and rows < len(x):
        chosen = np.random.default_rng(FOLD_SEED).permutation(len(x))[:rows]
        x, y = x[chosen], y[chosen]
    rest, test = list(KFold(NUM_FOLDS, shuffle=True, random_state=FOLD_SEED).split(x))[number]
    order = np.random.default_rng(number).permutation(rest)
    num_train = round(train_share * len(rest))
    return standardized(x, y, order[:num_train], test, order[num_train:])


def random_split(dataset: str, seed: int) -> Split:
    """A random 80 % to learn from and 20 % to score."""
    x, y = load(dataset)
    order = np.random.default_rng(seed).permutation(len(x))
    held_out = len(x) // 5
    return standardized(x, y, order[held_out:], order[:held_out])


def standardized(
    x: Array, y: Array, train: RowNumbers, test: RowNumbers, validation: RowNumbers | None = None
) -> Split:
    """A split by row numbers, in the units of its training rows."""
    scaling = learn_scaling(x[train], y[train, None])
    x, y = scaling.scale_x(x), scaling.scale_y(y[:, None])[:, 0]
    kept = train[:0] if validation is None else validation
    return Split(x[train], y[train], x[kept], y[kept], x[test], y[test], scaling)


def train_rows(dataset: str, rows: int | None = None) -> int:
    """About how many rows a fold learns from, without reading the data."""
    total = UCI[dataset].rows if dataset in UCI else len(load(dataset).x)
    if rows is not None:
        total = min(total, rows)
    return round(TRAIN_SHARE * total * (NUM_FOLDS - 1) / NUM_FOLDS)


# The race


@lru_cache(maxsize=2)
def race_split(dataset: str, kind: str, number: int) -> Split:
    """Rows to learn from and rows to score, in the units of the former."""
    x, y = load(dataset)
    rng = np.random.default_rng(number)
    if kind == "random":
        order = rng.permutation(len(x))
        test, train = order[: len(x) // 5], order[len(x) // 5 :]
    else:
        chosen = held_out(_groups(dataset), rng)
        test, train = rng.permutation(np.flatnonzero(chosen)), rng.permutation(np.flatnonzero(~chosen))
    return standardized(x, y, train, test[:MOST_SCORED])


def held_out(groups: RowNumbers, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which rows are scored: random whole groups that come to a fifth of the rows and no more."""
    sizes = np.bincount(groups)
    taken, room = np.zeros(len(sizes), dtype=bool), int(SCORED_SHARE * len(groups))
    for group in rng.permutation(len(sizes)):
        if sizes[group] <= room:  # a group that is too large is learned from
            taken[group] = True
            room -= sizes[group]
    if not taken.any():
        raise InvalidInputError(f"Every group has more than {SCORED_SHARE:.0%} of the rows; there is none to score.")
    return np.asarray(taken[groups])


@lru_cache(maxsize=32)
def _groups(dataset: str) -> RowNumbers:
    return group_rows(dataset, load(dataset).x)


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


def describe_groups(dataset: str) -> str:
    """What a group of the data set is, in words."""
    return OBSERVED[dataset].what if dataset in OBSERVED else "near-copies"


def group_rows(dataset: str, x: Array) -> RowNumbers:
    """A number per row; rows that belong together share it."""
    if dataset not in OBSERVED:
        return near_copies(x)
    _, labels = np.unique(x[:, list(OBSERVED[dataset].columns)], axis=0, return_inverse=True)
    return labels.reshape(-1)


def near_copies(x: Array, near: float = NEAR) -> RowNumbers:
    """Groups of rows that are linked by steps of at most `near` standard deviations per column."""
    spread = x.std(axis=0)
    different, labels = np.unique(x / np.where(spread > 0, spread, 1.0), axis=0, return_inverse=True)
    radius = near * np.sqrt(x.shape[1])
    links = NearestNeighbors(radius=radius).fit(different).radius_neighbors_graph()
    _, linked = connected_components(links, directed=False)
    return np.asarray(linked[labels.reshape(-1)], dtype=np.intp)
