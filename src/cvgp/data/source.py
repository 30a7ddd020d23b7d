"""Where training data come from: a protocol that fits arrays in memory, files and shards."""

from collections.abc import Iterator
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.parallel.group import Group


class DataSource(Protocol):
    """Rows that can be read in order, and as shuffled minibatches that depend only on a seed and a step number.

    This is all that training knows of data: where they are, and whether they fit in memory, is a source's own affair.
    The rows may be spread over a group of processes. Then `chunks` and `minibatch` give those of this process alone,
    and everything else stands for the rows of all of them.
    """

    @property
    def group(self) -> Group:
        """The processes over which the rows are spread."""

    @property
    def num_rows(self) -> int:
        """N, the number of rows."""

    @property
    def local_rows(self) -> int:
        """The number of rows that `chunks` gives."""

    @property
    def total_weight(self) -> float:
        """The sum of the sample weights; N where there are none."""

    @property
    def device(self) -> torch.device:
        """Where the tensors are that it gives out."""

    @property
    def has_known_noise(self) -> bool:
        """Whether the rows carry noise variances of their own."""

    @property
    def largest_value(self) -> float:
        """At least the largest magnitude of any input or output."""

    def harmonic_noise(self, learned: float) -> float:
        """The harmonic mean over the rows of their total noise variance: the learned one plus each row's own."""

    def identity(self) -> str:
        """A short name of the content: equal for sources that hold the same rows, so that a run can be resumed."""

    def to(self, dtype: torch.dtype) -> Self:
        """The same rows, given out in another precision."""

    def chunks(self, size: int) -> Iterator[Rows[Tensor]]:
        """Every row once, in order, `size` at a time."""

    def minibatch(self, step: int, size: int, seed: int) -> Rows[Tensor]:
        """The batch of a step, a uniform sample of the rows as often as they count, without sample weights."""

    def share(self, size: int) -> float:
        """The part that this process's rows in a batch of `size` have in an estimate for all rows; 0 if it has none."""

    def sample(self, count: int, rng: np.random.Generator) -> Rows[Tensor]:
        """So many different rows, drawn uniformly; all of them, without a draw, where there are no more."""
