"""Rows that carry more noise than is known of them, as a function of their inputs."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.data.split import SplitSource
from cvgp.parallel.group import Group

Variance = Callable[[Tensor], Tensor]
"""From inputs [n, D] to noise variances [n]."""

CHUNK_ROWS = 8192


def add_noise(rows: Rows[Tensor], variance: Variance) -> Rows[Tensor]:
    """The rows with this noise beside what is known."""
    known = 0.0 if rows.noise_variance is None else rows.noise_variance
    return rows._replace(noise_variance=variance(rows.x) + known)


def with_extra_noise(source: DataSource, variance: Variance) -> DataSource:
    """The same rows with more noise; rows in memory stay in memory."""
    if isinstance(source, MemorySource):
        noisy = MemorySource(*add_noise(source.data, variance))
        return noisy if source.group.world == 1 else SplitSource(noisy, source.group)
    return _ExtraNoise(source, variance)


class _ExtraNoise:
    """A source of which each part gets its noise when it is read."""

    def __init__(self, source: DataSource, variance: Variance) -> None:
        self._source = source
        self._variance = variance
        self.has_known_noise = True

    @property
    def group(self) -> Group:
        return self._source.group

    @property
    def num_rows(self) -> int:
        return self._source.num_rows

    @property
    def local_rows(self) -> int:
        return self._source.local_rows

    @property
    def total_weight(self) -> float:
        return self._source.total_weight

    @property
    def device(self) -> torch.device:
        return self._source.device

    @property
    def largest_value(self) -> float:
        return self._source.largest_value

    def harmonic_noise(self, learned: float) -> float:
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for rows in self.chunks(CHUNK_ROWS):
            assert rows.noise_variance is not None, "each chunk has its noise"
            precision = (learned + rows.noise_variance.to(torch.float64)).reciprocal()
            sums += torch.stack([precision.sum(), precision.new_tensor(len(precision))])
        (total,) = self.group.sum([sums])
        return (total[1] / total[0]).item()

    def identity(self) -> str:
        return f"{self._source.identity()} with more noise"

    def to(self, dtype: torch.dtype) -> "_ExtraNoise":
        return _ExtraNoise(self._source.to(dtype), self._variance)

    def chunks(self, size: int) -> Iterator[Rows[Tensor]]:
        return (add_noise(rows, self._variance) for rows in self._source.chunks(size))

    def minibatch(self, step: int, size: int, seed: int) -> Rows[Tensor]:
        return add_noise(self._source.minibatch(step, size, seed), self._variance)

    def share(self, size: int) -> float:
        return self._source.share(size)

    def sample(self, count: int, rng: np.random.Generator) -> Rows[Tensor]:
        return add_noise(self._source.sample(count, rng), self._variance)
