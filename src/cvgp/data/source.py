"""Where training data come from: a protocol that fits arrays in memory, files and shards."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from torch import Tensor

__all__ = ["Batch", "DataSource"]


class Batch(NamedTuple):
    """Some rows of a data set, as tensors of one precision on one device."""

    x: Tensor  # [B, D]
    y: Tensor  # [B] or [B, T]
    sample_weight: Tensor | None = None  # [B]
    noise_variance: Tensor | None = None  # [B]


class DataSource(Protocol):
    """Rows that can be read in order, and as shuffled minibatches that depend only on a seed and a step number."""

    @property
    def num_rows(self) -> int:
        """N, the number of rows."""
        ...

    @property
    def total_weight(self) -> float:
        """The sum of the sample weights; N where there are none."""
        ...

    def chunks(self, size: int) -> Iterator[Batch]:
        """Every row once, in order, `size` at a time."""
        ...

    def minibatch(self, step: int, size: int, seed: int) -> Batch:
        """The batch of a step, a uniform sample of the rows as often as they count, without sample weights."""
        ...
