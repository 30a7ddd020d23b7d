"""A uniform sample of the rows that a pass goes by."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cvgp.data.rows import Array, Rows

__all__ = ["RESERVOIR_ROWS", "Reservoir"]

RESERVOIR_ROWS = 100_000
"""Enough for whatever looks at a sample: the search for a start, k-means, held-out rows."""


class Reservoir:
    """The rows with the smallest of random keys: a uniform sample without replacement.

    Rows are known by the number of their part and their number in it. `nothing` has the form of the rows, for a sample
    that may stay empty.
    """

    def __init__(self, size: int = RESERVOIR_ROWS, nothing: Rows[Array] | None = None) -> None:
        self.size = size
        self._keys: list[NDArray[np.float64]] = []
        self._rows: list[Rows[Array]] = []
        self._where: list[NDArray[np.int64]] = []  # [n, 2]
        if nothing is not None:
            self._keys, self._rows, self._where = [np.empty(0)], [nothing], [np.empty((0, 2), dtype=np.int64)]
        self._limit = np.inf

    def add(self, rows: Rows[Array], part: int, numbers: NDArray[np.int64], rng: np.random.Generator) -> None:
        """Offer rows of a part, with their numbers [n]."""
        keys = rng.random(len(numbers))
        chosen = np.flatnonzero(keys < self._limit)
        if len(chosen) == 0:
            return
        self._keys.append(keys[chosen])
        self._rows.append(rows.take(chosen))
        self._where.append(np.stack([np.full(len(chosen), part), numbers[chosen]], axis=1))
        if sum(map(len, self._keys)) > 2 * self.size:
            self._settle()

    @property
    def rows(self) -> Rows[Array]:
        """The sample, in the order of the table."""
        self._settle()
        return self._rows[0]

    @property
    def where(self) -> NDArray[np.int64]:
        """Parts and numbers [n, 2] of the sample."""
        self._settle()
        return self._where[0]

    def part_of(self, kept: NDArray[np.bool_]) -> Reservoir:
        """Some of its rows."""
        return self._with(self.rows.take(kept), self.where[kept], self._keys[0][kept])

    def with_features(self, change: Callable[[Array], Array]) -> Reservoir:
        """With other features, made from those of all its rows [n, D]."""
        rows = self.rows
        return self._with(rows._replace(x=change(rows.x)), self.where, self._keys[0])

    def _with(self, rows: Rows[Array], where: NDArray[np.int64], keys: NDArray[np.float64]) -> Reservoir:
        other = Reservoir(self.size)
        other._rows, other._where, other._keys, other._limit = [rows], [where], [keys], self._limit
        return other

    def _settle(self) -> None:
        if len(self._keys) == 1 and len(self._keys[0]) <= self.size:
            return
        keys, where, rows = np.concatenate(self._keys), np.concatenate(self._where), Rows[Array].join(self._rows)
        if len(keys) > self.size:
            chosen = np.sort(np.argpartition(keys, self.size)[: self.size])
            keys, where, rows = keys[chosen], where[chosen], rows.take(chosen)
            self._limit = keys.max()
        self._keys, self._where, self._rows = [keys], [where], [rows]
