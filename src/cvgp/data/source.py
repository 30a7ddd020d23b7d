"""Training data: a protocol that fits arrays in memory, files, and rows spread over processes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cvgp.data.rows import Array, Rows
from cvgp.errors import InvalidInputError
from cvgp.parallel.group import ALONE, Group, gather_text

ENOUGH_CLUSTERS, MOST_TIMES_MORE = 40, 10  # in a sample of whole clusters, which may then have this many times the rows
Variance = Callable[[Tensor], Tensor]  # from inputs [n, D] to noise variances [n]


class DataSource(Protocol):
    """Rows that can be read in order, and as shuffled minibatches that depend only on a seed and a step number.

    Of rows spread over processes, `chunks` and `minibatch` give those of this one; the others describe all.
    """

    group: Group  # the processes over which the rows are spread
    num_rows: int  # N
    local_rows: int  # that `chunks` gives
    device: torch.device
    has_known_noise: bool  # whether rows carry noise variances of their own

    @property
    def total_weight(self) -> float:
        """The sum of the sample weights; N where there are none."""

    @property
    def largest_value(self) -> float:
        """At least the largest magnitude of any input or output."""

    def harmonic_noise(self, learned: float) -> float:
        """The harmonic mean over the rows of their total noise variance: the learned one plus each row's own."""

    def identity(self) -> str:
        """A short name of the content: equal for sources that hold the same rows, so that a run can be resumed."""

    def to(self, dtype: torch.dtype) -> Self:
        """The same rows, given out in another precision."""

    def with_noise(self, variance: Variance) -> Self:
        """The same rows, each with this much more noise."""

    def chunks(self, size: int) -> Iterator[Rows[Tensor]]:
        """Every row once, in order, `size` at a time."""

    def minibatch(self, step: int, size: int, seed: int) -> Rows[Tensor]:
        """The batch of a step, a uniform sample of the rows as often as they count, without sample weights."""

    def share(self, size: int) -> float:
        """The part that this process's rows in a batch of `size` have in an estimate for all rows; 0 if it has none."""

    def sample(self, count: int, rng: np.random.Generator) -> Rows[Tensor]:
        """`count` different rows, drawn uniformly; all rows, without a draw, if there are fewer."""

    def whole_clusters(self, count: int, rng: np.random.Generator) -> Rows[Tensor]:
        """All rows of random clusters, about `count` in all; as :meth:`sample` where rows have no clusters."""


class MemorySource:
    """Tensors as a :class:`DataSource`; every process of a group holds all rows and works on its part."""

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        sample_weight: Tensor | None = None,
        noise_variance: Tensor | None = None,
        cluster: Tensor | None = None,
        exposure: Tensor | None = None,
        time: Tensor | None = None,
        *,
        group: Group = ALONE,
    ) -> None:
        self.data = Rows(x, y, sample_weight, noise_variance, cluster, exposure, time)
        self.group = group
        self.num_rows = len(x)
        start, stop = cut(len(x), group)
        self.local_rows = stop - start
        self.device = x.device
        self.has_known_noise = noise_variance is not None
        self._epoch_key: tuple[int, int] | None = None
        self._order = torch.empty(0, dtype=torch.long)

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

    def to(self, dtype: torch.dtype) -> MemorySource:
        """The same rows in another precision."""
        return MemorySource(*self.data.map(lambda values: values.to(dtype)), group=self.group)

    def with_noise(self, variance: Variance) -> MemorySource:
        """The same rows with more noise."""
        return MemorySource(*add_noise(self.data, variance), group=self.group)

    def take(self, rows: Tensor) -> MemorySource:
        """Some of the rows, by index."""
        return MemorySource(*self.data.map(lambda values: values.index_select(0, rows)))

    def sample(self, count: int, rng: np.random.Generator) -> Rows[Tensor]:
        """`count` different rows, in order; all rows, without a draw, if there are fewer."""
        if self.num_rows <= count:
            return self.data
        rows = torch.as_tensor(np.sort(rng.choice(self.num_rows, count, replace=False)))
        return self.take(rows.to(self.device)).data

    def whole_clusters(self, count: int, rng: np.random.Generator) -> Rows[Tensor]:
        """All rows of random clusters, about `count` in all; as :meth:`sample` where rows have no clusters."""
        if self.data.cluster is None or self.num_rows <= count:
            return self.sample(count, rng)
        labels, sizes = np.unique(self.data.cluster.cpu().numpy(), return_counts=True)
        chosen = torch.as_tensor(random_clusters(labels, sizes, count, rng)).to(self.device)
        return self.take(torch.isin(self.data.cluster, chosen).nonzero()[:, 0]).data

    def chunks(self, size: int) -> Iterator[Rows[Tensor]]:
        """Every row of the part of this process, in order; the chunks are views."""
        first, last = cut(self.num_rows, self.group)
        for start in range(first, last, size):
            yield self.data.take(slice(start, min(start + size, last)))

    def minibatch(self, step: int, size: int, seed: int) -> Rows[Tensor]:
        """Rows of one step, drawn by weight; a remainder that fills no batch sits the epoch out."""
        size = min(size, self.num_rows)
        epoch, position = divmod(step, self.num_rows // size)
        if self._epoch_key != (seed, epoch):
            # Each epoch has a generator of its own, so that a resumed run needs only the seed and the step.
            generator = torch.Generator().manual_seed((seed * 1_000_003 + epoch) % 2**63)
            self._order = self._shuffle(generator).to(self.device)
            self._epoch_key = (seed, epoch)
        first, last = cut(size, self.group)
        rows = self._order[position * size + first : position * size + last]
        return self.data._replace(sample_weight=None).map(lambda values: values.index_select(0, rows))

    def share(self, size: int) -> float:
        """The part of a batch that is this process's, by the number of rows."""
        rows = min(size, self.num_rows)
        start, stop = cut(rows, self.group)
        return (stop - start) / rows

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


def split(whole: MemorySource, group: Group) -> MemorySource:
    """Spread rows that every process of a group holds, if they are the same in each."""
    if len(set(gather_text(group, whole.identity()))) > 1:
        raise InvalidInputError(
            f"The {group.world} workers of this fit were given different rows. Give each of them the same data: every "
            "one of them works on its own part."
        )
    return MemorySource(*whole.data, group=group)


class SharedSource:
    """Rows of which every process holds some or none; a batch is stratified by process, in proportion to weight."""

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

    def to(self, dtype: torch.dtype) -> SharedSource:
        """The same rows in another precision."""
        return SharedSource(self._local.to(dtype), self.group)

    def with_noise(self, variance: Variance) -> SharedSource:
        """The same rows with more noise."""
        return SharedSource(self._local.with_noise(variance), self.group)

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
        count, seed = self._agreed(count, rng)
        common = np.random.default_rng(seed)
        counts = self._rows if count >= self.num_rows else common.multivariate_hypergeometric(self._rows, count)
        own = np.random.default_rng([seed, self.group.rank])
        return self._gathered(self._local.sample(int(counts[self.group.rank]), own))

    def whole_clusters(self, count: int, rng: np.random.Generator) -> Rows[Tensor]:
        """All rows of random clusters, which all processes draw alike; the same rows everywhere."""
        some = self.sample(count, rng)
        if some.cluster is None:
            return some
        count, seed = self._agreed(count, rng)
        return self._gathered(self._local.whole_clusters(count, np.random.default_rng(seed)))

    def _agreed(self, count: int, rng: np.random.Generator) -> tuple[int, int]:
        """A number of rows and a seed that are the same everywhere."""
        (agreed,) = self.group.first([torch.tensor([count, rng.integers(2**31)], dtype=torch.float64)])
        return int(agreed[0]), int(agreed[1])

    def _gathered(self, rows: Rows[Tensor]) -> Rows[Tensor]:
        return rows.map(lambda values: torch.cat(self.group.gather(values)))


def random_clusters(labels: Array, sizes: NDArray[Any], count: int, rng: np.random.Generator) -> Array:
    """Labels of random clusters that have about `count` rows in all; more rows where these would be few clusters."""
    order = rng.permutation(len(labels))
    rows = sizes[order].cumsum()
    enough = (rows <= count) | ((rows <= MOST_TIMES_MORE * count) & (np.arange(len(order)) < ENOUGH_CLUSTERS))
    return np.asarray(labels[order[: max(int(enough.sum()), 2)]])


def cut(rows: int, group: Group) -> tuple[int, int]:
    """Where the part of this process begins and ends among `rows` rows."""
    return rows * group.rank // group.world, rows * (group.rank + 1) // group.world


def add_noise(rows: Rows[Tensor], variance: Variance) -> Rows[Tensor]:
    """The rows with this noise beside what is known."""
    known = 0.0 if rows.noise_variance is None else rows.noise_variance
    return rows._replace(noise_variance=variance(rows.x) + known)
