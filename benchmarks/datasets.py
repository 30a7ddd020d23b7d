"""Data sets by name, and the splits that the measurements use.

Everything is standardised with the statistics of the training rows: an error is in units of the target's standard
deviation, and a constant predictor is the standard normal.
"""

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from cvgp.data.scaling import learn_scaling
from cvgp.errors import InvalidInputError, MissingFileError

__all__ = [
    "DATASETS",
    "Split",
    "fold_split",
    "load",
    "random_split",
    "standardised",
    "subset_split",
    "waves",
    "waves_split",
]

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

DATASETS = (
    "energy",
    "concrete",
    "airfoil",
    "wine",
    "skillcraft",
    "parkinsons",
    "elevators",
    "bike",
    "protein",
    "keggdirected",
)
"""The UCI sets, from small to large."""

NUM_FOLDS = 5
FOLD_SEED = 0
NUM_WAVES = 64
WAVES_NAME = re.compile(r"waves-(\d+)x(\d+)")


class Split(NamedTuple):
    """Rows to learn from and rows to score, standardised."""

    x: Array  # [N, D]
    y: Array  # [N]
    x_test: Array  # [n, D]
    y_test: Array  # [n]


@lru_cache(maxsize=len(DATASETS))
def load(name: str) -> tuple[Array, Array]:
    """Inputs [N, D] and targets [N] of a UCI set, or of ``waves-NxD``, which is generated."""
    generated = WAVES_NAME.fullmatch(name)
    if generated:
        return waves(int(generated[1]), int(generated[2]))
    if name not in DATASETS:
        raise InvalidInputError(f"Unknown data set {name!r}. Choose from {', '.join(DATASETS)}, or waves-ROWSxINPUTS.")
    folder = os.environ.get("CVGP_DATA")
    if not folder:
        raise MissingFileError(f"Set CVGP_DATA to the folder that holds uci/{name}.csv.gz.")
    path = Path(folder) / "uci" / f"{name}.csv.gz"
    if not path.exists():
        raise MissingFileError(f"There is no uci/{name}.csv.gz in the folder that CVGP_DATA names, {folder}.")
    table = pd.read_csv(path, header=None).to_numpy(dtype=np.float64)
    return table[:, :-1], table[:, -1]


def waves(num_rows: int, num_dims: int) -> tuple[Array, Array]:
    """A sum of random cosines, much like a draw from an RBF process that half of the inputs matter to, with noise."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_rows, num_dims))
    relevant = np.arange(num_dims) < (num_dims + 1) // 2
    y = 0.1 * rng.standard_normal(num_rows)
    for _ in range(NUM_WAVES):  # one wave at a time, so that memory stays flat in their number
        direction = relevant * rng.standard_normal(num_dims) / np.sqrt(relevant.sum())
        y += np.sqrt(2.0 / NUM_WAVES) * np.cos(x @ direction + rng.uniform(0.0, 2.0 * np.pi))
    return x, y


def random_split(name: str, seed: int) -> Split:
    """A random 80 % to learn from and 20 % to score."""
    x, y = load(name)
    order = np.random.default_rng(seed).permutation(len(x))
    held_out = len(x) // 5
    return standardised(x, y, order[held_out:], order[:held_out])


def subset_split(name: str, seed: int, num_rows: int) -> Split:
    """A random `num_rows` to learn from; all others are scored."""
    x, y = load(name)
    order = np.random.default_rng(seed).permutation(len(x))
    return standardised(x, y, order[:num_rows], order[num_rows:])


def waves_split(num_rows: int, num_dims: int, num_test: int) -> Split:
    """Waves of any length to learn from, with a few rows more to score; not kept in memory."""
    x, y = waves(num_rows + num_test, num_dims)
    rows = np.arange(len(x))
    return standardised(x, y, rows[:num_rows], rows[num_rows:])


def fold_split(name: str, fold: int, train_share: float) -> Split:
    """One of the paper's five folds: a fifth to score, and `train_share` of the rest to learn from.

    The paper learns from 70 % of the rest and stops by the score on the other 30 %.
    """
    x, y = load(name)
    folds = KFold(NUM_FOLDS, shuffle=True, random_state=FOLD_SEED).split(x)
    train, test = list(folds)[fold]
    order = np.random.default_rng(fold).permutation(train)
    return standardised(x, y, order[: round(train_share * len(train))], test)


def standardised(x: Array, y: Array, train: Rows, test: Rows) -> Split:
    """A split by row numbers, in the units of its training rows."""
    scaling = learn_scaling(x[train], y[train, None])
    x, y = scaling.scale_x(x), scaling.scale_y(y[:, None])[:, 0]
    return Split(x[train], y[train], x[test], y[test])
