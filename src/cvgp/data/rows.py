"""The one record for rows: inputs, outputs, weights, known noise, groups, exposures, times; arrays or tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
Values = TypeVar("Values")


class Rows(NamedTuple, Generic[Values]):
    """Some rows of a data set: arrays in the user's units, with NaN for missing values, or tensors in the model's."""

    x: Values  # [n, D]
    y: Values  # [n] or [n, P]
    sample_weight: Values | None = None  # [n]
    noise_variance: Values | None = None  # [n]
    cluster: Values | None = None  # [n], numbers of the groups that the user names: a new row belongs to a new one
    exposure: Values | None = None  # [n], by which the expected count of a row is multiplied
    time: Values | None = None  # [n]; clusters are then stretches of time, and later ones judge what earlier ones teach

    def take(self, rows: Any) -> Rows[Values]:
        """The rows of an index, a mask or a slice."""
        return self.map(lambda values: values[rows])  # type: ignore[index]

    def map(self, change: Callable[[Values], Any]) -> Rows[Any]:
        """The same rows with all that is known of them changed in one way."""
        return Rows(*(None if values is None else change(values) for values in self))

    @staticmethod
    def join(pieces: Sequence[Rows[Values]]) -> Rows[Values]:
        """All pieces, one after another."""
        if len(pieces) == 1:
            return pieces[0]
        concatenate: Any = torch.cat if isinstance(pieces[0].x, Tensor) else np.concatenate
        columns = zip(*pieces, strict=True)
        return Rows(*(None if parts[0] is None else concatenate(parts) for parts in columns))


NUM_STRETCHES = 20  # so that a tenth of the rows is two of them, and a quarter five


def in_stretches(rows: Rows[Array]) -> Rows[Array]:
    """Rows with a time, in clusters that follow each other and have about as many rows each; equal times share one."""
    _, place, sizes = np.unique(np.asarray(rows.time), return_inverse=True, return_counts=True)
    before = sizes.cumsum() - sizes
    return rows._replace(cluster=(before * NUM_STRETCHES // len(rows.x))[place].astype(np.float64))


def draw_weight(rows: Rows[Array], share: float, rng: np.random.Generator, *, copies: bool = False) -> Array:
    """The weight [n] of each row in a random share of rows.

    With `copies`, and weights that are whole numbers, single copies are drawn; otherwise rows are drawn as a whole.
    """
    weight = np.ones(len(rows.x)) if rows.sample_weight is None else rows.sample_weight
    if copies and rows.sample_weight is not None and (weight == np.round(weight)).all():
        return rng.binomial(weight.astype(np.int64), share).astype(np.float64)
    drawn, chosen = np.zeros(len(weight)), rng.permutation(len(weight))[: round(share * len(weight))]
    drawn[chosen] = weight[chosen]
    return drawn
