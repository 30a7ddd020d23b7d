"""Training data in memory."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.parallel.group import ALONE, Group


class Undivided(ABC):
    """What holds for a source whose rows are all in one process."""

    group: Group = ALONE

    @property
    @abstractmethod
    def num_rows(self) -> int:
        """N, the number of rows."""

    @property
    def local_rows(self) -> int:
        """All rows."""
        return self.num_rows

    def share(self, size: int) -> float:
        """All of a batch."""
        return 1.0


class MemorySource(Undivided):
    """Tensors as a :class:`~cvgp.data.source.DataSource`."""

    def __init__(
        self, x: Tensor, y: Tensor, sample_weight: Tensor | None = None, noise_variance: Tensor | None = None
    ) -> None:
        self.data = Rows(x, y, sample_weight, noise_variance)
        self._epoch_key: tuple[int, int] | None = None
        self._order = torch.empty(0, dtype=torch.long)

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.data.x)

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.data.x.device

    @property
    def has_known_noise(self) -> bool:
        """Whether the rows carry noise variances of their own."""
        return self.data.noise_variance is not None

    @property
    def largest_value(self) -> float:
        """The largest magnitude of any input or output."""
        ends = [end for values in (self.data.x, self.data.y) for end in values.aminmax()]
        return max(abs(end.item()) for end in ends)

    def harmonic_noise(self, learned: float) -> float:
        """The harmonic mean of the learned noise variance plus each row's own."""
        known = self.data.noise_variance
        return learned if known is None else 1.0 / (learned + known).reciprocal().mean().item()

    def identity(self) -> str:
        """A digest of all values."""
        digest = hashlib.sha256()
        for tensor in self.data:
            digest.update(b"none" if tensor is None else str((tensor.dtype, tuple(tensor.shape))).encode())
            if tensor is not None:
                digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)
        return digest.hexdigest()

    def to(self, dtype: torch.dtype) -> "MemorySource":
        """The same rows in another precision."""
        return MemorySource(*self.data.map(lambda values: values.to(dtype)))

    def take(self, rows: Tensor) -> "MemorySource":
        """Some of the rows, by index."""
        return MemorySource(*self.data.map(lambda values: values.index_select(0, rows)))

    def part(self, start: int, stop: int) -> "MemorySource":
        """Some of the rows, one after the other, as views."""
        return MemorySource(*self.data.take(slice(start, stop)))

    def sample(self, count: int, rng: np.random.Generator) -> Rows[Tensor]:
        """So many different rows, in order; all of them, without a draw, where there are no more."""
        if self.num_rows <= count:
            return self.data
        rows = torch.as_tensor(np.sort(rng.choice(self.num_rows, count, replace=False)))
        return self.take(rows.to(self.device)).data

    def chunks(self, size: int) -> Iterator[Rows[Tensor]]:
        """Every row once, in order; the chunks are views."""
        for start in range(0, self.num_rows, size):
            yield self.part(start, start + size).data

    def minibatch(self, step: int, size: int, seed: int) -> Rows[Tensor]:
        """Rows of one step. A remainder that fills no batch sits the epoch out; the next epoch shuffles anew.

        Rows with weights are drawn in proportion to them and carry none in the batch: a uniform sample of the rows as
        often as they count, of which there are `total_weight`. That is far less noisy than a few heavy rows among
        many light ones.
        """
        size = min(size, self.num_rows)
        per_epoch = self.num_rows // size
        epoch, position = divmod(step, per_epoch)
        if self._epoch_key != (seed, epoch):
            # Each epoch has a generator of its own, so that a resumed run needs only the seed and the step.
            generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
            self._order = self._shuffle(generator).to(self.data.x.device)
            self._epoch_key = (seed, epoch)
        rows = self._order[position * size : (position + 1) * size]
        return self.data._replace(sample_weight=None).map(lambda values: values.index_select(0, rows))

    @cached_property
    def total_weight(self) -> float:
        """The sum of the sample weights; N where there are none."""
        weight = self.data.sample_weight
        return float(self.num_rows) if weight is None else weight.sum(dtype=torch.float64).item()

    def _shuffle(self, generator: torch.Generator) -> Tensor:
        """Row numbers of one epoch: a permutation, or with weights a systematic sample of as many rows."""
        permutation = torch.randperm(self.num_rows, generator=generator)
        if self.data.sample_weight is None:
            return permutation
        edges = self.data.sample_weight.to(torch.float64).cpu().cumsum(0)
        offset = torch.rand((), generator=generator, dtype=torch.float64)
        ticks = (torch.arange(self.num_rows, dtype=torch.float64) + offset) * (edges[-1] / self.num_rows)
        return torch.searchsorted(edges, ticks, right=True).clamp_max(self.num_rows - 1)[permutation]
