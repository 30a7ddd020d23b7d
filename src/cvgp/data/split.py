"""Training data that are spread over the processes of a group."""

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.data.source import DataSource
from cvgp.errors import InvalidInputError
from cvgp.parallel.group import Group, gather_text


def split(whole: MemorySource, group: Group) -> "SplitSource":
    """Spread rows that every process of a group of several holds, after a look whether they are the same."""
    if len(set(gather_text(group, whole.identity()))) > 1:
        raise InvalidInputError(
            f"The {group.world} workers of this fit were given different rows. Give each of them the same data: every "
            "one of them works on its own part."
        )
    return SplitSource(whole, group)


class SplitSource(MemorySource):
    """Rows that every process holds, and of which each works on its part.

    Samples and minibatches are those of a single process, the latter cut into parts, so that the fit is the same. So
    is the identity: a run can be resumed by another number of processes.
    """

    def __init__(self, whole: MemorySource, group: Group) -> None:
        super().__init__(*whole.data)
        self.group = group

    @property
    def local_rows(self) -> int:
        """Those of the part of this process."""
        start, stop = cut(self.num_rows, self.group)
        return stop - start

    def to(self, dtype: torch.dtype) -> "SplitSource":
        """The same rows in another precision."""
        return SplitSource(super().to(dtype), self.group)

    def chunks(self, size: int) -> Iterator[Rows[Tensor]]:
        """Part of the rows."""
        return self.part(*cut(self.num_rows, self.group)).chunks(size)

    def minibatch(self, step: int, size: int, seed: int) -> Rows[Tensor]:
        """Part of the batch of a single process."""
        batch = super().minibatch(step, size, seed)
        return batch.take(slice(*cut(len(batch.x), self.group)))

    def share(self, size: int) -> float:
        """By the number of rows."""
        rows = min(size, self.num_rows)
        start, stop = cut(rows, self.group)
        return (stop - start) / rows


class SharedSource:
    """Rows of which every process holds some; some hold many, and some may hold none.

    A batch takes from each process in proportion to the weight of its rows, but at least one row, and counts them for
    what they stand for: the estimate is that of a sample from each process's rows as a stratum.
    """

    def __init__(self, local: DataSource, group: Group) -> None:
        self.group = group
        self._local = local
        self._weight = local.total_weight if local.num_rows else 0.0
        largest = local.largest_value if local.num_rows else 0.0
        mine = [local.num_rows, self._weight, float(local.has_known_noise), largest]
        held = torch.stack(group.gather(torch.tensor(mine, dtype=torch.float64)))  # [world, 4]
        self._rows = held[:, 0].to(torch.int64).numpy()  # [world]
        self.num_rows = int(self._rows.sum())
        self.local_rows = local.num_rows
        self.total_weight = held[:, 1].sum().item()
        self.device = local.device
        self.has_known_noise = bool(held[:, 2].any())
        self.largest_value = held[:, 3].max().item()

    def harmonic_noise(self, learned: float) -> float:
        """That of the rows of all processes."""
        inverse = self.local_rows / self._local.harmonic_noise(learned) if self.local_rows else 0.0
        (total,) = self.group.sum([torch.tensor(inverse, dtype=torch.float64)])
        return self.num_rows / total.item()

    def identity(self) -> str:
        """A digest of what each process holds, in their order."""
        return hashlib.sha256("\n".join(gather_text(self.group, self._local.identity())).encode()).hexdigest()

    def to(self, dtype: torch.dtype) -> "SharedSource":
        """The same rows in another precision."""
        return SharedSource(self._local.to(dtype), self.group)

    def chunks(self, size: int) -> Iterator[Rows[Tensor]]:
        """The rows of this process."""
        return self._local.chunks(size)

    def minibatch(self, step: int, size: int, seed: int) -> Rows[Tensor]:
        """Rows of this process, as many as its part of a batch of `size`; one that has none must not ask."""
        return self._local.minibatch(step, max(round(size * self.share(size)), 1), seed)

    def share(self, size: int) -> float:
        """By the weight of the rows."""
        return self._weight / self.total_weight

    def sample(self, count: int, rng: np.random.Generator) -> Rows[Tensor]:
        """Rows of all processes, each as likely as any other; the same ones everywhere."""
        (agreed,) = self.group.first([torch.tensor([count, rng.integers(2**31)], dtype=torch.float64)])
        count, seed = (int(number) for number in agreed)
        common = np.random.default_rng(seed)
        counts = self._rows if count >= self.num_rows else common.multivariate_hypergeometric(self._rows, count)
        own = np.random.default_rng([seed, self.group.rank])
        mine = self._local.sample(int(counts[self.group.rank]), own)
        return mine.map(lambda values: torch.cat(self.group.gather(values)))


def cut(rows: int, group: Group) -> tuple[int, int]:
    """Where the part of this process begins and ends, of so many rows."""
    return rows * group.rank // group.world, rows * (group.rank + 1) // group.world
