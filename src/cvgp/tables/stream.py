"""Rows of a table in numbers: written once, and read again in order or as shuffled minibatches.

An epoch shuffles blocks of rows, then rows within windows of blocks, by the seed and the number of the epoch alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from threading import Lock
from typing import IO, Any, NamedTuple
from weakref import finalize

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import Moments, Scaling
from cvgp.data.source import Variance, add_noise, random_clusters
from cvgp.errors import FileAccessError
from cvgp.parallel.group import ALONE, Group
from cvgp.tables.columns import Column, Extra
from cvgp.tables.encode import features_of, new_inputs
from cvgp.tables.levels import row_folds

IN_MEMORY_BYTES = 128_000_000  # larger tables, in float64, are read in blocks
BLOCK_ROWS = 4096  # rows that are read together; the unit in which an epoch is shuffled
WINDOW_BYTES = 48_000_000  # the size of the rows that are shuffled together, in float64
SAMPLE_ROWS = 100_000  # enough for every use of a sample


class Store:
    """Rows of floats [n, W]: appended, then read by their numbers."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.num_rows = 0
        self._pieces: list[Array] = []
        self._file: IO[bytes] | None = None
        self._lock = Lock()  # two threads may read

    def append(self, values: Array) -> None:
        """Add rows at the end."""
        self.num_rows += len(values)
        self._pieces.append(np.ascontiguousarray(values))
        if self._file is not None or 8 * self.width * self.num_rows > IN_MEMORY_BYTES:
            try:
                if self._file is None:
                    self._file = tempfile.TemporaryFile(prefix="cvgp-")  # noqa: SIM115
                    finalize(self, self._file.close)
                for piece in self._pieces:
                    self._file.write(piece.data)
            except OSError as error:
                raise FileAccessError(
                    f"The table could not be copied to a temporary file ({error}); make room in "
                    f"{tempfile.gettempdir()}, or name another folder in the variable TMPDIR."
                ) from error
            self._pieces = []

    def read(self, start: int, stop: int) -> Array:
        """Rows [stop - start, W]."""
        stop = min(stop, self.num_rows)
        if self._file is None:
            if len(self._pieces) != 1:
                self._pieces = [np.concatenate([np.empty((0, self.width)), *self._pieces])]
            return self._pieces[0][start:stop]
        values = np.empty((max(stop - start, 0), self.width))
        with self._lock:
            self._file.seek(8 * self.width * start)
            self._file.readinto(values.data)  # type: ignore[attr-defined]
        return values


class GroupSizes(NamedTuple):
    """How many rows each group has in all processes, and the correlation by which its rows count less."""

    labels: Array  # [G], in order
    sizes: Array  # [G]
    correlation: float = 0.0

    @classmethod
    def of(cls, parts: Sequence[Array]) -> GroupSizes:
        """From labels and numbers of rows [G, 2] of several parts."""
        pairs = np.concatenate([np.empty((0, 2)), *parts])
        labels, place = np.unique(pairs[:, 0], return_inverse=True)
        return cls(labels, np.bincount(place, weights=pairs[:, 1], minlength=len(labels)).astype(np.float64))

    def shares(self, cluster: Array) -> Array:
        """By how much rows [n] of some groups count: one over the design effect (Kish, 1965)."""
        return np.asarray(1.0 / (1.0 + (self.sizes[self.labels.searchsorted(cluster)] - 1.0) * self.correlation))


Numbered = tuple[Rows[Array], NDArray[np.int64]]  # rows in numbers, and their numbers in their files


@dataclass(frozen=True)
class NumberedRows:
    """Rows in a store and how they become features: cells, targets, what is beside them, number in the file."""

    store: Store
    columns: tuple[Column, ...]
    places: Sequence[int]  # of the columns in the store
    targets: tuple[str, ...]
    extra: Extra
    codes: Mapping[int, Array] = field(default_factory=dict)  # by place: the category or date of each code in the store
    fold_effects: Mapping[str, Array] | None = None  # of levels, for training rows; None if others taught the columns
    apart: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # rows that are set aside, in order
    weight_apart: Array = field(default_factory=lambda: np.empty(0))  # of each, infinite for a whole row
    groups: GroupSizes | None = None

    @property
    def feature_names(self) -> list[str]:
        """The names of the columns of x."""
        return [name for column in self.columns for name in column.feature_names]

    @property
    def has_weights(self) -> bool:
        """Whether rows count by weights."""
        return self.extra[0] is not None or (self.groups is not None and self.groups.correlation > 0.0)

    @cached_property
    def left_out(self) -> NDArray[np.int64]:
        """The rows of the store that do not count at all."""
        return self.apart[np.isinf(self.weight_apart)]

    @property
    def num_rows(self) -> int:
        """The number of rows that count."""
        return self.store.num_rows - len(self.left_out)

    def without(self, places: NDArray[np.int64], weight: Array) -> NumberedRows:
        """The others of these rows, where some are set aside as a whole, and of others some of their weight."""
        apart, where = np.unique(np.concatenate([self.apart, places]), return_inverse=True)
        taken = np.bincount(where, weights=np.concatenate([self.weight_apart, weight]))
        return replace(self, apart=apart, weight_apart=taken.astype(np.float64))

    def in_numbers(self, values: Array, places: NDArray[np.int64]) -> Numbered:
        """Rows of the store at some places that count, with one number per cell for x."""
        x = values[:, list(self.places)]
        for position, place in enumerate(self.places):
            if place in self.codes:
                known = ~np.isnan(x[:, position])
                x[known, position] = self.codes[place][x[known, position].astype(np.int64)]
        y_end = self.store.width - 1 - sum(name is not None for name in self.extra)
        extra = iter(values[:, y_end:-1].T)
        beside = (None if name is None else next(extra) for name in self.extra)
        y = values[:, y_end - len(self.targets) : y_end]
        rows, numbers = Rows(x, y, *beside), values[:, -1].astype(np.int64)
        if len(self.apart):
            at = np.searchsorted(self.apart, places).clip(max=len(self.apart) - 1)
            taken = np.where(self.apart[at] == places, self.weight_apart[at], 0.0)
            if rows.sample_weight is not None:
                rows = rows._replace(sample_weight=rows.sample_weight - taken)
            rows, numbers = rows.take(np.isfinite(taken)), numbers[np.isfinite(taken)]
        if self.groups is not None and self.groups.correlation > 0.0:
            assert rows.cluster is not None, "rows of groups are labeled"
            share = self.groups.shares(rows.cluster)
            rows = rows._replace(sample_weight=share if rows.sample_weight is None else share * rows.sample_weight)
        return rows, numbers

    def encode(self, rows: Rows[Array], numbers: NDArray[np.int64]) -> Rows[Array]:
        """Rows in numbers with their features for x."""
        if self.fold_effects is None:
            return rows._replace(x=new_inputs(self.columns, rows.x)[0].x)
        return rows._replace(x=features_of(self.columns, rows.x, self.fold_effects, row_folds(numbers)))

    def cell_blocks(self) -> Iterator[Numbered]:
        """All rows in numbers, in blocks."""
        for start in range(0, self.store.num_rows, BLOCK_ROWS):
            yield self.cells(start, start + BLOCK_ROWS)

    def cells(self, start: int, stop: int) -> Numbered:
        """Rows in numbers."""
        return self.in_numbers(self.store.read(start, stop), np.arange(start, min(stop, self.store.num_rows)))

    def read(self, start: int, stop: int) -> Rows[Array]:
        """Rows with their features."""
        return self.encode(*self.cells(start, stop))

    @cached_property
    def sample_numbers(self) -> NDArray[np.int64]:
        """Which rows of the store are in the sample, in order."""
        count = min(SAMPLE_ROWS, self.store.num_rows)
        chosen = np.random.default_rng(20240613).choice(self.store.num_rows, count, replace=False)
        return np.setdiff1d(chosen, self.left_out)

    def sample_in_numbers(self) -> Numbered:
        """A uniform sample of the rows in numbers; all of them up to 100,000."""
        chosen, found = self.sample_numbers, []
        for start in range(0, self.store.num_rows, BLOCK_ROWS):
            inside = chosen[slice(*np.searchsorted(chosen, (start, start + BLOCK_ROWS)))]
            if len(inside):
                found.append(self.store.read(start, start + BLOCK_ROWS)[inside - start])
        return self.in_numbers(np.concatenate([np.empty((0, self.store.width)), *found]), chosen)

    def whole_groups(self, count: int, rng: np.random.Generator) -> Rows[Array]:
        """All rows of random groups, about `count` in all processes, with their features."""
        assert self.groups is not None, "the groups have been counted"
        chosen, found = random_clusters(self.groups.labels, self.groups.sizes, count, rng), [self.read(0, 0)]
        for rows, numbers in self.cell_blocks():
            inside = np.isin(np.asarray(rows.cluster), chosen)
            found.append(self.encode(rows.take(inside), numbers[inside]))
        return Rows[Array].join(found)


class StoredSource:
    """A table that is read in blocks, as a :class:`~cvgp.data.source.DataSource`; moments are of all processes."""

    group: Group = ALONE

    def __init__(
        self,
        rows: NumberedRows,
        moments: Moments,
        scaling: Scaling,
        device: torch.device | str = "cpu",
    ) -> None:
        self.rows = rows
        self.moments = moments
        self.scaling = scaling
        self.device = torch.device(device)
        self._dtype = torch.float64
        self.num_rows = self.local_rows = rows.num_rows
        self.has_known_noise = rows.extra[1] is not None
        self._noise: tuple[Variance, ...] = ()
        self._cache: dict[tuple[int, int, int], Rows[Array]] = {}

    def share(self, size: int) -> float:
        """All of a batch."""
        return 1.0

    @cached_property
    def total_weight(self) -> float:
        """The sum of the sample weights; N where there are none."""
        return float(self._block_weights.sum()) if self.rows.has_weights else float(self.num_rows)

    @property
    def largest_value(self) -> float:
        """At least the largest magnitude of any input or output, in the units of the tensors."""
        D, magnitude = len(self.scaling.x_mean), self.moments.magnitude
        ends = np.stack([-magnitude, magnitude])  # transforms and scaling are monotone
        free = self.scaling._replace(x_limit=math.inf)
        return float(max(np.abs(free.scale_x(ends[:, :D])).max(), np.abs(free.scale_y(ends[:, D:])).max()))

    def harmonic_noise(self, learned: float) -> float:
        """The harmonic mean of the learned noise variance plus each row's own: a pass, if they have any."""
        if not self.has_known_noise:
            return learned
        known = (chunk.noise_variance for chunk in self.chunks(BLOCK_ROWS) if chunk.noise_variance is not None)
        return self.num_rows / sum((learned + noise.double()).reciprocal().sum().item() for noise in known)

    def identity(self) -> str:
        """A digest of the features, the number of rows and the moments of all values."""
        facts = [self.rows.feature_names, self.rows.targets, self.num_rows, BLOCK_ROWS, self._window_blocks]
        digest = hashlib.sha256(json.dumps(facts).encode())
        for array in (*self.moments, *self.scaling[:-1], *self.scaling.warp[1:]):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest() + " with more noise" * len(self._noise)

    def to(self, dtype: torch.dtype) -> StoredSource:
        """The same rows in another precision; the two share the window in memory."""
        other = copy(self)
        other._dtype = dtype
        return other

    def with_noise(self, variance: Variance) -> StoredSource:
        """The same rows with more noise, which each batch gets when it is read."""
        other = copy(self)
        other._noise = (*self._noise, variance)
        other.has_known_noise = True
        return other

    def _batch(self, rows: Rows[Array]) -> Rows[Tensor]:
        batch = self.scaling.tensors(rows, dtype=self._dtype, device=self.device)
        return reduce(add_noise, self._noise, batch)

    def chunks(self, size: int) -> Iterator[Rows[Tensor]]:
        """Every row once, in order; rows that are held out leave chunks smaller."""
        self._cache.clear()  # a pass and minibatches do not take turns, and need not both be in memory
        for start in range(0, self.rows.store.num_rows, size):
            rows = self.rows.read(start, start + size)
            if len(rows.x):
                yield self._batch(rows)

    def minibatch(self, step: int, size: int, seed: int) -> Rows[Tensor]:
        """Rows of one step. A remainder that fills no batch sits the epoch out; weighted rows are drawn by weight."""
        size = min(size, self.num_rows)
        epoch, position = divmod(step, self.num_rows // size)
        first, pieces = position * size, []
        while size:
            window, begin = self._window_of(seed, epoch, first)
            piece = window.take(slice(first - begin, first - begin + size))
            pieces.append(piece)
            first, size = first + len(piece.x), size - len(piece.x)
        return self._batch(Rows[Array].join(pieces)._replace(sample_weight=None))

    def sample(self, count: int, rng: np.random.Generator) -> Rows[Tensor]:
        """Different rows, drawn uniformly from a sample of 100,000; all of these if `count` is larger."""
        rows = self._sample
        if len(rows.x) > count:
            rows = rows.take(np.sort(rng.choice(len(rows.x), count, replace=False)))
        return self._batch(rows)

    def whole_clusters(self, count: int, rng: np.random.Generator) -> Rows[Tensor]:
        """All rows of random groups, about `count` in all; as :meth:`sample` where rows have no groups."""
        return self.sample(count, rng) if self.rows.groups is None else self._batch(self.rows.whole_groups(count, rng))

    @cached_property
    def _sample(self) -> Rows[Array]:
        return self.rows.encode(*self.rows.sample_in_numbers())

    @property
    def _window_blocks(self) -> int:
        return max(WINDOW_BYTES // (8 * len(self.moments.mean) * BLOCK_ROWS), 1)

    @cached_property
    def _block_sizes(self) -> NDArray[np.int64]:
        """How many rows of each block count."""
        edges = np.append(np.arange(0, self.rows.store.num_rows, BLOCK_ROWS), self.rows.store.num_rows)
        return np.diff(edges) - np.diff(np.searchsorted(self.rows.left_out, edges))

    @cached_property
    def _block_weights(self) -> Array:
        starts = range(0, self.rows.store.num_rows, BLOCK_ROWS)
        weights = (self.rows.read(start, start + BLOCK_ROWS).sample_weight for start in starts)
        return np.array([0.0 if weight is None else weight.sum() for weight in weights])

    def _window_of(self, seed: int, epoch: int, row: int) -> tuple[Rows[Array], int]:
        """The window of an epoch that holds a row, and the rows of the epoch before it."""
        order = np.random.default_rng([seed, epoch]).permutation(len(self._block_sizes))
        counts: NDArray[Any] = self._block_sizes[order]
        if self.rows.has_weights:
            # Ticks at equal distances along the summed weights: a row is drawn once for each that falls on it.
            edges = np.concatenate([[0.0], np.cumsum(self._block_weights[order])])
            offset, distance = np.random.default_rng([seed, epoch, 1]).random(), edges[-1] / self.num_rows
            ends = np.clip(np.ceil(edges / distance - offset), 0, self.num_rows).astype(np.int64)
            ends[-1] = self.num_rows
            counts = np.diff(ends)
        firsts = np.arange(0, len(order), self._window_blocks)
        starts = np.concatenate([[0], np.cumsum(np.add.reduceat(counts, firsts))])
        index = int(np.searchsorted(starts, row, side="right")) - 1
        key = (seed, epoch, index)
        if key not in self._cache:
            self._cache.clear()
            blocks = range(firsts[index], min(firsts[index] + self._window_blocks, len(order)))
            pieces = []
            for turn in blocks:
                rows = self.rows.read(order[turn] * BLOCK_ROWS, (order[turn] + 1) * BLOCK_ROWS)
                if rows.sample_weight is not None:
                    ticks = (np.arange(ends[turn], ends[turn + 1]) + offset) * distance - edges[turn]
                    drawn = np.searchsorted(np.cumsum(rows.sample_weight), ticks, side="right")
                    rows = rows.take(np.minimum(drawn, len(rows.x) - 1))
                pieces.append(rows)
            whole = Rows[Array].join(pieces)
            places = np.random.default_rng([seed, epoch, 2, index]).permutation(len(whole.x))
            self._cache[key] = whole.take(places)
        return self._cache[key], int(starts[index])
