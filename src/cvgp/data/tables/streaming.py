"""Training data in files: read in order or as shuffled minibatches, with a window of rows in memory at a time."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from copy import copy
from dataclasses import asdict, replace
from functools import partial
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cvgp.data.arrays import MemorySource, Undivided
from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import Scaling
from cvgp.data.tables.blocks import BLOCK_ROWS, KnownPart, read_blocks, regrouped
from cvgp.data.tables.first_pass import Survey
from cvgp.data.tables.prefetch import prefetch
from cvgp.data.tables.shuffle import Epoch, Mixing, Window

PASS_ROWS = 8 * BLOCK_ROWS
"""Rows that are handed over together in a pass in order."""


class ArrowSource(Undivided):
    """A table in files as a :class:`~cvgp.data.source.DataSource`.

    Parameters
    ----------
    survey
        What the first pass found.
    scaling
        From the units of the table to those that are given out.
    dtype, device
        Of the tensors.
    """

    def __init__(
        self,
        survey: Survey,
        scaling: Scaling,
        *,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> None:
        self.survey = survey
        self.scaling = scaling
        self.device = torch.device(device)
        self._batch = partial(scaling.tensors, dtype=dtype, device=self.device)
        self._stream = _Stream(survey)

    @property
    def num_rows(self) -> int:
        """N, without rows that do not count."""
        return self._stream.num_rows

    @property
    def total_weight(self) -> float:
        """The sum of the sample weights; N where there are none."""
        weights = [known.block_weight.sum() for known in self.survey.parts if known.block_weight is not None]
        return float(sum(weights)) if weights else float(self.num_rows)

    @property
    def has_known_noise(self) -> bool:
        """Whether the rows carry noise variances of their own."""
        return self.survey.encoder.noise is not None

    @property
    def largest_value(self) -> float:
        """At least the largest magnitude of any input or output, in the units that are given out."""
        D, magnitude = len(self.scaling.x_mean), self.survey.moments.magnitude
        ends = np.stack([-magnitude, magnitude])  # what becomes of values is monotone
        given_out = self.scaling._replace(x_limit=math.inf)
        return float(max(np.abs(given_out.scale_x(ends[:, :D])).max(), np.abs(given_out.scale_y(ends[:, D:])).max()))

    def harmonic_noise(self, learned: float) -> float:
        """The harmonic mean of the learned noise variance plus each row's own: a pass, if they have any."""
        if not self.has_known_noise:
            return learned
        known = (chunk.noise_variance for chunk in self.chunks(BLOCK_ROWS) if chunk.noise_variance is not None)
        return self.num_rows / sum((learned + noise.to(torch.float64)).reciprocal().sum().item() for noise in known)

    def identity(self) -> str:
        """A digest of the columns, the files with their sizes and rows, and the moments of all values."""
        survey = self.survey
        files = [
            (known.part.file.rpartition("/")[2], known.part.num_bytes, known.num_rows, len(known.excluded))
            for known in survey.parts
        ]
        order = [BLOCK_ROWS, asdict(self._stream.mixing)]
        digest = hashlib.sha256(json.dumps([survey.encoder.names, survey.encoder.feature_names, files, order]).encode())
        for array in (*survey.moments, *self.scaling[:-1], *self.scaling.warp[1:]):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def to(self, dtype: torch.dtype) -> ArrowSource:
        """The same rows in another precision; the two go through the files together."""
        other = copy(self)
        other._batch = partial(self._batch, dtype=dtype)
        return other

    def chunks(self, size: int) -> Iterator[Rows[Tensor]]:
        """Every row once, in order, while the next ones are being read."""
        self._stream.rest()  # a pass and minibatches do not take turns, and need not both be in memory
        parts, encoder, to_batch = self.survey.parts, self.survey.encoder, self._batch
        blocks = chain.from_iterable(read_blocks(known, encoder) for known in parts)
        for batch in prefetch(lambda: map(to_batch, regrouped(blocks, size, PASS_ROWS))):
            for start in range(0, len(batch.x), size):
                yield batch.take(slice(start, start + size))

    def minibatch(self, step: int, size: int, seed: int) -> Rows[Tensor]:
        """Rows of one step, from the window that is in memory or from the next one, which is read meanwhile.

        As in memory, a remainder that fills no batch sits the epoch out, and rows with weights are drawn in proportion
        to them.
        """
        size = min(size, self.num_rows)
        epoch, position = divmod(step, self.num_rows // size)
        return self._batch(self._stream.rows(seed, epoch, position * size, size)._replace(sample_weight=None))

    def sample(self, count: int, rng: np.random.Generator) -> Rows[Tensor]:
        """Different rows, drawn uniformly from those that the first pass kept; all of these if there are no more."""
        rows = self.survey.reservoir.rows
        if len(rows.x) > count:
            rows = rows.take(np.sort(rng.choice(len(rows.x), count, replace=False)))
        return self._batch(rows)

    def hold_out(self, count: int, rng: np.random.Generator) -> tuple[ArrowSource, MemorySource]:
        """A source without some random rows, at most half of the kept sample, and these rows in memory."""
        reservoir = self.survey.reservoir
        total = len(reservoir.rows.x)
        held = np.zeros(total, dtype=np.bool_)
        held[rng.choice(total, min(count, total // 2), replace=False)] = True
        apart = reservoir.part_of(held)
        in_part = [apart.where[:, 0] == number for number in range(len(self.survey.parts))]
        parts = [
            _without(known, apart.where[mine, 1], apart.rows.take(mine).sample_weight)
            for known, mine in zip(self.survey.parts, in_part, strict=True)
        ]
        rest = copy(self)
        rest.survey = replace(self.survey, parts=tuple(parts), reservoir=reservoir.part_of(~held))
        rest._stream = _Stream(rest.survey)
        return rest, MemorySource(*self._batch(apart.rows))


class _Stream:
    """An endless run through the epochs, of which the present window is kept."""

    def __init__(self, survey: Survey) -> None:
        self.survey = survey
        self.num_rows = survey.num_rows
        self.mixing = Mixing.plan(survey.parts, survey.encoder.num_columns)
        self._seed: int | None = None
        self._windows: Iterator[Window] = iter(())
        self._current: Window | None = None

    def rows(self, seed: int, epoch: int, first: int, count: int) -> Rows[Array]:
        """Consecutive rows of an epoch."""
        if not (self._seed == seed and self._leads_to(epoch, first, count)):
            self._restart(seed, epoch, first)
        pieces = []
        while count:
            window = self._reach(epoch, first)
            start = first - window.first
            piece = window.rows.take(slice(start, start + count))
            pieces.append(piece)
            first, count = first + len(piece.x), count - len(piece.x)
        return Rows[Array].join(pieces)

    def rest(self) -> None:
        """Let go of what was read ahead."""
        self._seed, self._current, self._windows = None, None, iter(())

    def _leads_to(self, epoch: int, first: int, count: int) -> bool:
        """Whether the rows are in the present window, or come as the next in the run."""
        window = self._current
        if window is None:
            return False
        end = window.first + len(window.rows.x)
        ends_epoch = self.num_rows - end < count
        return (window.epoch == epoch and window.first <= first <= end) or (
            window.epoch + 1 == epoch and first == 0 and ends_epoch
        )

    def _reach(self, epoch: int, row: int) -> Window:
        while True:
            window = self._current
            if window is not None and window.epoch == epoch and row < window.first + len(window.rows.x):
                return window
            self._current = window = None  # not held while the next one is waited for
            self._current = next(self._windows)

    def _restart(self, seed: int, epoch: int, row: int) -> None:
        # The thread that reads ahead ends when this object does, so it must not hold the object.
        survey, mixing = self.survey, self.mixing
        self._seed, self._current = seed, None
        self._windows = prefetch(lambda: _endless(survey, mixing, seed, epoch, row))


def _endless(survey: Survey, mixing: Mixing, seed: int, epoch: int, row: int) -> Iterator[Window]:
    while True:
        way = Epoch(survey.parts, mixing, seed, epoch)
        yield from way.windows(survey.encoder, way.window_of(row))
        epoch, row = epoch + 1, 0


def _without(known: KnownPart, numbers: NDArray[np.int64], weight: NDArray[np.float64] | None) -> KnownPart:
    left = replace(known, excluded=np.union1d(known.excluded, numbers))
    if known.block_weight is None:
        return left
    taken = np.bincount(numbers // BLOCK_ROWS, weights=weight, minlength=known.num_blocks)
    # A block without rows has no weight, whatever rounding leaves of it.
    return replace(left, block_weight=np.where(left.block_sizes() > 0, known.block_weight - taken, 0.0))
