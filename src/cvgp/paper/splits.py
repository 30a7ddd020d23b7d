"""Rows to learn from and rows to score: the paper's folds, and random splits.

All of it depends on fixed seeds alone, so that every system and every run sees the same rows. Everything is
standardised by the statistics of the training rows: an error is in units of the target's standard deviation, and a
constant predictor has an RMSE of about 1.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from cvgp.data.scaling import Scaling, learn_scaling
from cvgp.errors import InvalidInputError
from cvgp.paper.datasets import load
from cvgp.paper.datasets.uci import UCI

Array = NDArray[np.float64]
RowNumbers = NDArray[np.intp]

NUM_FOLDS = 5
FOLD_SEED = 0
TRAIN_SHARE = 0.7
"""The share that is learned from, of a fold's rows that are not scored; the others validate."""


class Split(NamedTuple):
    """Standardised rows; a random split has no validation rows."""

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
    return standardised(x, y, order[:num_train], test, order[num_train:])


def random_split(dataset: str, seed: int) -> Split:
    """A random 80 % to learn from and 20 % to score."""
    x, y = load(dataset)
    order = np.random.default_rng(seed).permutation(len(x))
    held_out = len(x) // 5
    return standardised(x, y, order[held_out:], order[:held_out])


def validation_split(dataset: str, seed: int) -> Split:
    """Of the rows that a random split learns from, a random 80 % to learn from and 20 % to score.

    For choices: none of these rows is scored by the random split itself.
    """
    x, y = load(dataset)
    order = np.random.default_rng(seed).permutation(len(x))[len(x) // 5 :]
    inner = np.random.default_rng([seed, 1]).permutation(order)
    held_out = len(inner) // 5
    return standardised(x, y, inner[held_out:], inner[:held_out])


def subset_split(dataset: str, seed: int, num_train: int) -> Split:
    """A random `num_train` rows to learn from; all others are scored."""
    x, y = load(dataset)
    order = np.random.default_rng(seed).permutation(len(x))
    return standardised(x, y, order[:num_train], order[num_train:])


def standardised(
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
