"""The order in which an epoch goes through the parts of a table: shuffled parts, mixed block by block, in windows.

The parts come in random order, several of them at a time, a block of each in turn. So many blocks make a window, whose
rows are shuffled when it is in memory. Everything follows from the seed and the epoch, and how many rows each block
has is known: the window of any row of any epoch is found without reading anything. A run that goes on in the middle
of an epoch reads its window, and what comes before it in the parts that are open there, but nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cvgp.data.rows import Array, Rows
from cvgp.data.tables.blocks import BLOCK_ROWS, Encoder, KnownPart, read_blocks
from cvgp.errors import FileFormatError

WINDOW_BYTES = 48_000_000
"""Of the rows that are shuffled together, in float64; one window is in use while the next one is made."""
OPEN_BYTES = 200_000_000
"""Of the buffers of the parts that are open at the same time."""
COLUMN_BYTES = 3_000_000
"""What a column of an open part takes: a buffer, a dictionary and a page, as encoded and as numbers."""
MOST_OPEN = 16


@dataclass(frozen=True)
class Mixing:
    """How many parts are mixed, and how many blocks make a window."""

    open_parts: int
    window_blocks: int

    @classmethod
    def plan(cls, parts: Sequence[KnownPart], num_columns: int) -> Mixing:
        """As much mixing as the memory for it allows."""
        largest = min(3 * max((known.part.num_bytes for known in parts), default=0), COLUMN_BYTES * num_columns)
        open_parts = min(MOST_OPEN, max(OPEN_BYTES // max(largest, 1), 2))
        return cls(int(open_parts), max(WINDOW_BYTES // (8 * num_columns * BLOCK_ROWS), 1))


def mix_blocks(num_blocks: Sequence[int], order: Sequence[int], open_parts: int) -> NDArray[np.int64]:
    """Parts and blocks [n, 2]: some parts at a time, a block of each in turn; where one ends, the next one comes in."""
    waiting = [part for part in reversed(order) if num_blocks[part]]
    turns: list[tuple[int, int]] = []
    lanes = [[waiting.pop(), 0] for _ in range(min(open_parts, len(waiting)))]
    while lanes:
        for lane in list(lanes):
            part, block = lane
            turns.append((part, block))
            if block + 1 < num_blocks[part]:
                lane[1] += 1
            elif waiting:
                lane[:] = [waiting.pop(), 0]
            else:
                lanes.remove(lane)
    return np.array(turns, dtype=np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class Window:
    """Shuffled rows, and where they stand in the epoch."""

    epoch: int
    first: int
    """Rows of the epoch that come before."""
    rows: Rows[Array]


class Epoch:
    """One way through the table."""

    def __init__(self, parts: Sequence[KnownPart], mixing: Mixing, seed: int, number: int) -> None:
        self.parts = parts
        self.seed = seed
        self.number = number
        order = np.random.default_rng([seed, number]).permutation(len(parts))
        self.turns = mix_blocks([known.num_blocks for known in parts], order.tolist(), mixing.open_parts)
        sizes = [known.block_sizes() for known in parts]
        self._is_weighted = parts[0].block_weight is not None
        counts = np.array([sizes[part][block] for part, block in self.turns])
        if self._is_weighted:
            weights = np.array([parts[part].block_weight[block] for part, block in self.turns])
            self._offset = float(np.random.default_rng([seed, number, 1]).random())
            self._edges = np.concatenate([[0.0], np.cumsum(weights)])
            # Ticks at equal distances along the summed weights: a row is drawn once for each that falls on it.
            self._step = self._edges[-1] / counts.sum()
            ticks = np.ceil(self._edges / self._step - self._offset).astype(np.int64)
            ticks[0], ticks[-1] = 0, counts.sum()
            self._ticks = ticks
            counts = np.diff(ticks)
        self._firsts = np.arange(0, len(self.turns), mixing.window_blocks)
        self._window_blocks = mixing.window_blocks
        self.starts = np.concatenate([[0], np.cumsum(np.add.reduceat(counts, self._firsts))])
        """Rows before each window, and in the end all."""

    def window_of(self, row: int) -> int:
        """The window that holds a row of the epoch."""
        return int(np.searchsorted(self.starts, row, side="right")) - 1

    def windows(self, encoder: Encoder, first: int = 0) -> Iterator[Window]:
        """The windows from one on."""
        readers: dict[int, Iterator[Rows[Array]]] = {}
        for window in range(first, len(self._firsts)):
            begin = int(self._firsts[window])
            first, total = int(self.starts[window]), int(self.starts[window + 1] - self.starts[window])
            # Each row goes straight to its random place, so that the window is in memory once.
            places = np.random.default_rng([self.seed, self.number, 2, window]).permutation(total)
            shuffled: Rows[Array] | None = None
            filled = 0
            for turn in range(begin, min(begin + self._window_blocks, len(self.turns))):
                part, block = self.turns[turn].tolist()
                if part not in readers:
                    readers[part] = read_blocks(self.parts[part], encoder, block)
                rows = next(readers[part], None)
                if rows is None:
                    file = self.parts[part].part.file
                    raise FileFormatError(f"{file} has fewer rows than before; start again, once it is at rest.")
                if self._is_weighted:
                    rows = self._draw(rows, turn)
                shuffled = shuffled or _room_for(total, rows)
                filled += _put(rows, shuffled, places[filled:])
                if block + 1 == self.parts[part].num_blocks:
                    # To its end, where the file is looked at once more.
                    for _ in readers.pop(part):
                        pass
            assert shuffled is not None
            yield Window(self.number, first, shuffled)

    def _draw(self, rows: Rows[Array], turn: int) -> Rows[Array]:
        assert rows.sample_weight is not None
        ticks = (np.arange(self._ticks[turn], self._ticks[turn + 1]) + self._offset) * self._step - self._edges[turn]
        places = np.searchsorted(np.cumsum(rows.sample_weight), ticks, side="right")
        return rows.take(np.minimum(places, len(rows.x) - 1))


def _room_for(count: int, like: Rows[Array]) -> Rows[Array]:
    return like.map(lambda values: np.empty((count, *values.shape[1:])))


def _put(rows: Rows[Array], into: Rows[Array], places: NDArray[np.int64]) -> int:
    count = len(rows.x)
    for values, room in zip(rows, into, strict=True):
        if values is not None and room is not None:
            room[places[:count]] = values
    return count
