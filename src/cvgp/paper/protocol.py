"""The paper's cross-validation, and the presets that say how long to train."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from cvgp.data.scaling import Scaling, learn_scaling
from cvgp.errors import InvalidInputError
from cvgp.paper.baselines import EXACT_ROWS, Recipe
from cvgp.paper.datasets import load
from cvgp.paper.datasets.uci import UCI

__all__ = ["FOLD_SEED", "NUM_FOLDS", "PRESETS", "TRAIN_SHARE", "Preset", "Split", "find_preset", "fold", "train_rows"]

Array = NDArray[np.float64]

NUM_FOLDS = 5
FOLD_SEED = 0
TRAIN_SHARE = 0.7
"""Of a fold's rows that are not scored; the rest validates."""


class Split(NamedTuple):
    """One fold, standardised by the statistics of its training rows: a constant predictor has an RMSE of about 1."""

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


@dataclass(frozen=True)
class Preset:
    """How long to train, and on how many rows.

    Parameters
    ----------
    recipe
        The same for every system, but for the learning rate.
    learning_rates
        Of which each system takes the one with the best validation log-likelihood on the first fold, for each data set
        and size. One rate means no choice.
    rows
        Most rows of a data set that are used, a random choice of them; None for all.
    time_limit
        Seconds for one task.
    """

    name: str
    recipe: Recipe
    learning_rates: tuple[float, ...]
    rows: int | None
    time_limit: float


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "paper",
            Recipe(
                steps=None,
                epochs=100_000,
                learning_rate=1e-3,
                schedule="constant",
                patience=3000,
                full_batch="adam",
                beta_transform="softplus",
            ),
            learning_rates=(1e-3,),
            rows=None,
            time_limit=7 * 86400.0,
        ),
        Preset("fair", Recipe(steps=2000), learning_rates=(0.01, 0.03, 0.1), rows=None, time_limit=1800.0),
        Preset(
            "smoke", Recipe(steps=12, batch_size=64, evaluations=6), learning_rates=(0.03,), rows=120, time_limit=60.0
        ),
    )
}


def find_preset(name: str) -> Preset:
    """A preset by its name."""
    if name not in PRESETS:
        raise InvalidInputError(f"Unknown preset {name!r}. Choose from {', '.join(PRESETS)}.")
    return PRESETS[name]


def fold(dataset: str, number: int, rows: int | None = None) -> Split:
    """One of five folds: a fifth is scored, and of the rest 70 % are learned from and 30 % validate.

    All of it depends on fixed seeds alone, so that every system and every run sees the same folds.
    """
    if not 0 <= number < NUM_FOLDS:
        raise InvalidInputError(f"Folds are numbered from 0 to {NUM_FOLDS - 1}; got {number}.")
    x, y = load(dataset)
    if rows is not None and rows < len(x):
        chosen = np.random.default_rng(FOLD_SEED).permutation(len(x))[:rows]
        x, y = x[chosen], y[chosen]
    rest, test = list(KFold(NUM_FOLDS, shuffle=True, random_state=FOLD_SEED).split(x))[number]
    order = np.random.default_rng(number).permutation(rest)
    num_train = round(TRAIN_SHARE * len(rest))
    train, validation = order[:num_train], order[num_train:]
    scaling = learn_scaling(x[train], y[train, None])
    x, y = scaling.scale_x(x), scaling.scale_y(y[:, None])[:, 0]
    return Split(x[train], y[train], x[validation], y[validation], x[test], y[test], scaling)


def train_rows(dataset: str, rows: int | None = None) -> int:
    """About how many rows a fold learns from, without reading the data."""
    total = UCI[dataset].rows if dataset in UCI else len(load(dataset).x)
    if rows is not None:
        total = min(total, rows)
    return round(TRAIN_SHARE * total * (NUM_FOLDS - 1) / NUM_FOLDS)


def exact_is_possible(dataset: str, rows: int | None = None) -> bool:
    """Whether an exact GP can be computed on a fold."""
    return train_rows(dataset, rows) <= EXACT_ROWS
