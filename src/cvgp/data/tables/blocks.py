"""Rows of a table in files as arrays: which columns they come from, and how they are read piece by piece."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cvgp.data.rows import Array, Rows
from cvgp.data.schema import Column, feature_slices
from cvgp.data.tables.arrow_cells import labels, numbers, truths
from cvgp.data.tables.reader import Part, read_batches
from cvgp.errors import FileFormatError

BLOCK_ROWS = 8192
"""Rows of a part that are passed on together; the unit in which parts are mixed."""


@dataclass(frozen=True)
class Encoder:
    """From the columns of a table to rows."""

    columns: tuple[Column, ...]
    targets: tuple[str, ...]
    weight: str | None
    noise: str | None
    kinds: dict[str, str]

    @property
    def names(self) -> list[str]:
        """The columns that have to be read."""
        return list(dict.fromkeys([*(column.name for column in self.columns), *self.special]))

    @property
    def special(self) -> list[str]:
        """The columns that are no features."""
        return [*self.targets, *(name for name in (self.weight, self.noise) if name is not None)]

    @property
    def feature_names(self) -> list[str]:
        """The names of the columns of x."""
        return [name for column in self.columns for name in column.feature_names]

    @property
    def num_columns(self) -> int:
        """Of x and y together."""
        return len(self.feature_names) + len(self.targets)

    def no_rows(self) -> Rows[Array]:
        """The form of the rows, without any."""
        none = np.empty(0)
        return Rows(
            np.empty((0, len(self.feature_names))),
            np.empty((0, len(self.targets))),
            None if self.weight is None else none,
            None if self.noise is None else none,
        )

    def encode(self, batch: pa.RecordBatch, unknown: Counter[str] | None = None) -> Rows[Array]:
        """The rows of a batch, with NaN where a value is missing and its column has no fill.

        A category that its column does not have gets no indicator and is counted in `unknown`; without a counter it is
        as good as missing.
        """
        y = np.empty((len(batch), len(self.targets)))
        for position, name in enumerate(self.targets):
            y[:, position] = numbers(name, batch.column(name))
        weight, noise = (None if n is None else numbers(n, batch.column(n)) for n in (self.weight, self.noise))
        return Rows(self._features(batch, unknown), y, weight, noise)

    def _features(self, batch: pa.RecordBatch, unknown: Counter[str] | None) -> Array:
        x = np.empty((len(batch), len(self.feature_names)))
        for column, at in zip(self.columns, feature_slices(self.columns), strict=True):
            cells = batch.column(column.name)
            if column.kind == "categorical":
                x[:, at], is_unknown = _indicators(column, *labels(column.name, cells))
                if unknown is None:
                    x[is_unknown, at] = np.nan
                elif is_unknown.any():
                    unknown[column.name] += int(is_unknown.sum())
            else:
                values = (numbers if column.kind == "numeric" else truths)(column.name, cells)
                x[:, at.start] = (
                    values if column.fill is None else np.where(np.isnan(values), float(column.fill), values)
                )
        return x


def _indicators(column: Column, codes: NDArray[np.int64], names: Sequence[str]) -> tuple[Array, NDArray[np.bool_]]:
    """One number per category [n, C], NaN where text is missing and not filled; and which cells [n] are unknown."""
    position = {category: index for index, category in enumerate(column.categories)}
    # The code of a missing value is -1, which picks the last entry: that of the fill.
    lookup = np.array([position.get(name, -1) for name in [*names, str(column.fill)]])
    index = lookup[codes]  # [n]
    known = np.flatnonzero(index >= 0)
    values = np.zeros((len(codes), len(column.categories)))
    values[known, index[known]] = 1.0
    unfilled = (codes < 0) & (column.fill is None)
    values[unfilled] = np.nan
    return values, (index < 0) & ~unfilled


@dataclass(frozen=True)
class KnownPart:
    """A part after the first pass."""

    part: Part
    num_rows: int
    """Good and bad ones."""
    excluded: NDArray[np.int64]
    """The rows that do not count, in order."""
    block_weight: Array | None
    """The summed sample weight of the rows that count, by block; None without weights."""

    @property
    def num_blocks(self) -> int:
        """Blocks, of which the last may be short."""
        return -(-self.num_rows // BLOCK_ROWS)

    def block_sizes(self) -> NDArray[np.int64]:
        """How many rows of each block count."""
        edges = np.arange(self.num_blocks + 1) * BLOCK_ROWS
        edges[-1] = self.num_rows
        return np.diff(edges) - np.diff(np.searchsorted(self.excluded, edges))


def read_blocks(known: KnownPart, encoder: Encoder, first_block: int = 0) -> Iterator[Rows[Array]]:
    """The rows of a part that count, from a block on, one block at a time."""
    begin = first_block * BLOCK_ROWS
    for rows in regrouped(_encoded(known.part, encoder, begin), BLOCK_ROWS):
        for start in range(0, len(rows.x), BLOCK_ROWS):
            block = rows.take(slice(start, start + BLOCK_ROWS))
            inside = slice(*np.searchsorted(known.excluded, (begin, begin + BLOCK_ROWS)))
            bad = known.excluded[inside] - begin
            good = block.take(np.delete(np.arange(len(block.x)), bad)) if len(bad) else block
            if np.isnan(good.x).any():
                raise FileFormatError(
                    f"{known.part.file} has changed: it holds a text that it did not have in the first pass, or lacks "
                    "a value that it had; start again, once nothing writes to it any more."
                )
            yield good
            begin += BLOCK_ROWS


def regrouped(pieces: Iterable[Rows[Array]], size: int, least: int = 0) -> Iterator[Rows[Array]]:
    """Rows in pieces of a multiple of `size`, and of at least `least`, but for the last, however they came."""
    pending: list[Rows[Array]] = []
    count = 0
    for rows in pieces:
        pending.append(rows)
        count += len(rows.x)
        if count >= max(size, least):
            joined = Rows[Array].join(pending)
            rest = count % size
            yield joined.take(slice(0, count - rest))
            pending, count = [joined.take(slice(count - rest, None))], rest
    if count:
        yield Rows[Array].join(pending)


def _encoded(part: Part, encoder: Encoder, skip: int) -> Iterator[Rows[Array]]:
    """The rows of a part after the first `skip`, which are read but not encoded."""
    for batch in read_batches(part, encoder.names, encoder.kinds):
        skipped = min(skip, len(batch))
        skip -= skipped
        if skipped < len(batch):
            yield encoder.encode(batch.slice(skipped))
