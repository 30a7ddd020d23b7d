"""A uniform sample of the rows that a pass goes by."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvgp.data.rows import Array, Rows

RESERVOIR_ROWS = 100_000
"""Enough for whatever looks at a sample: the search for a start, k-means, held-out rows."""


class _Kept(NamedTuple):
    """Rows with their random keys, and the numbers of their parts and of the rows in these."""

    keys: Array  # [n]
    rows: Rows[Array]
    where: NDArray[np.int64]  # [n, 2]

    def take(self, chosen: Any) -> _Kept:
        return _Kept(self.keys[chosen], self.rows.take(chosen), self.where[chosen])


class Reservoir:
    """The rows with the smallest of random keys: a uniform sample without replacement.

    `nothing` has the form of the rows, for a sample that may stay empty.
    """

    def __init__(self, nothing: Rows[Array], size: int = RESERVOIR_ROWS) -> None:
        self.size = size
        self._pieces = [_Kept(np.empty(0), nothing, np.empty((0, 2), dtype=np.int64))]
        self._limit = np.inf

    def add(self, rows: Rows[Array], part: int, numbers: NDArray[np.int64], rng: np.random.Generator) -> None:
        """Offer rows of a part, with their numbers [n]."""
        keys = rng.random(len(numbers))
        chosen = np.flatnonzero(keys < self._limit)
        if len(chosen) == 0:
            return
        where = np.stack([np.full(len(numbers), part), numbers], axis=1)
        self._pieces.append(_Kept(keys, rows, where).take(chosen))
        if sum(len(piece.keys) for piece in self._pieces) > 2 * self.size:
            self._settled()

    @property
    def rows(self) -> Rows[Array]:
        """The sample, in the order of the table."""
        return self._settled().rows

    @property
    def where(self) -> NDArray[np.int64]:
        """Parts and numbers [n, 2] of the sample."""
        return self._settled().where

    def part_of(self, kept: NDArray[np.bool_]) -> Reservoir:
        """Some of its rows."""
        return self._with(self._settled().take(kept))

    def with_features(self, change: Callable[[Array], Array]) -> Reservoir:
        """With other features, made from those of all its rows [n, D]."""
        kept = self._settled()
        return self._with(kept._replace(rows=kept.rows._replace(x=change(kept.rows.x))))

    def _with(self, kept: _Kept) -> Reservoir:
        other = copy(self)
        other._pieces = [kept]
        return other

    def _settled(self) -> _Kept:
        """The sample of what was offered so far, in one piece."""
        if len(self._pieces) > 1:
            keys, rows, where = zip(*self._pieces, strict=True)
            kept = _Kept(np.concatenate(keys), Rows[Array].join(rows), np.concatenate(where))
            if len(kept.keys) > self.size:
                kept = kept.take(np.sort(np.argpartition(kept.keys, self.size)[: self.size]))
                self._limit = kept.keys.max()
            self._pieces = [kept]
        return self._pieces[0]
