"""The splits of the race: random ones, and ones that keep groups of rows together. A fifth is scored in both."""

from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.accuracy.groups import group_rows
from benchmarks.speed.flights import flights_file, schedule
from cvgp.errors import InvalidInputError
from cvgp.paper.datasets import load
from cvgp.paper.splits import Split, standardised

__all__ = ["FLIGHTS", "KINDS", "check_dataset", "held_out", "race_split"]

Array = NDArray[np.float64]
Labels = NDArray[np.intp]

FLIGHTS = "flights"
KINDS = ("random", "grouped")
SCORED_SHARE = 0.2
MOST_SCORED = 10_000
"""Of the rows that are held out: more would take time and change no digit."""


@lru_cache(maxsize=2)
def race_split(dataset: str, kind: str, number: int) -> Split:
    """Rows to learn from and rows to score, in the units of the former."""
    x, y = _rows(dataset)
    rng = np.random.default_rng(number)
    if kind == "random":
        order = rng.permutation(len(x))
        test, train = order[: len(x) // 5], order[len(x) // 5 :]
    else:
        chosen = held_out(_groups(dataset), rng)
        test, train = rng.permutation(np.flatnonzero(chosen)), rng.permutation(np.flatnonzero(~chosen))
    return standardised(x, y, train, test[:MOST_SCORED])


def held_out(groups: Labels, rng: np.random.Generator) -> NDArray[np.bool_]:
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


def check_dataset(name: str) -> None:
    """Read the data, so that a wrong name or a missing file does not wait for its turn."""
    _rows(name)


@lru_cache(maxsize=2)
def _rows(dataset: str) -> tuple[Array, Array]:
    if dataset == FLIGHTS:
        return schedule(pd.read_csv(flights_file()))
    x, y = load(dataset)
    return x, y


@lru_cache(maxsize=32)
def _groups(dataset: str) -> Labels:
    return group_rows(dataset, _rows(dataset)[0])
