"""Rows of a table in files as arrays: which columns they come from, and how they are read piece by piece."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cvgp.data.cell_features import UNKNOWN, FoldEffects, features_of
from cvgp.data.columns import Column
from cvgp.data.level_effects import row_folds
from cvgp.data.rows import Array, Rows
from cvgp.data.tables.arrow_cells import days, labels, numbers, truths
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
    fold_effects: Mapping[str, FoldEffects] = field(default_factory=dict)
    """The effects of levels for training rows, by column."""

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
        """The form of the rows of a table in numbers, without any."""
        none = np.empty(0)
        return Rows(
            np.empty((0, len(self.columns))),
            np.empty((0, len(self.targets))),
            None if self.weight is None else none,
            None if self.noise is None else none,
        )

    def numbers(self, batch: pa.RecordBatch) -> Rows[Array]:
        """The rows of a batch with one number per cell in the place of features (:mod:`cvgp.data.cell_features`)."""
        y = np.empty((len(batch), len(self.targets)))
        for position, name in enumerate(self.targets):
            y[:, position] = numbers(name, batch.column(name))
        weight, noise = (None if n is None else numbers(n, batch.column(n)) for n in (self.weight, self.noise))
        cells = np.empty((len(batch), len(self.columns)))
        for position, column in enumerate(self.columns):
            cells[:, position] = _numbers_of(column, batch.column(column.name))
        return Rows(cells, y, weight, noise)

    def training_features(self, cells: Array, row_numbers: NDArray[np.int64]) -> Array:
        """The features [n, D] of training rows in numbers, by the effects of levels that other folds have taught."""
        return features_of(self.columns, cells, self.fold_effects, row_folds(row_numbers))


def _numbers_of(column: Column, cells: pa.Array) -> Array:
    if column.is_text:
        codes, names = labels(column.name, cells)
        position = {category: float(index) for index, category in enumerate(column.categories)}
        # The code of a missing value is -1, which picks the last entry.
        return np.array([*(position.get(name, UNKNOWN) for name in names), np.nan])[codes]
    read = {"numeric": numbers, "boolean": truths, "date": days}[column.kind]
    return read(column.name, cells)


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
    for rows, where in read_numbers(known, encoder, first_block):
        x = encoder.training_features(rows.x, known.part.first_row + where)
        unknown = rows.x[:, [column.kind == "categorical" for column in encoder.columns]] == UNKNOWN
        if np.isnan(x).any() or unknown.any():
            raise FileFormatError(
                f"{known.part.file} has changed: it holds a text that it did not have in the first pass, or lacks "
                "a value that it had; start again, once nothing writes to it any more."
            )
        yield rows._replace(x=x)


def read_numbers(
    known: KnownPart, encoder: Encoder, first_block: int = 0
) -> Iterator[tuple[Rows[Array], NDArray[np.int64]]]:
    """The same rows with one number per cell, and their numbers in the part."""
    begin = first_block * BLOCK_ROWS
    for rows in regrouped(_in_numbers(known.part, encoder, begin), BLOCK_ROWS):
        for start in range(0, len(rows.x), BLOCK_ROWS):
            block = rows.take(slice(start, start + BLOCK_ROWS))
            inside = slice(*np.searchsorted(known.excluded, (begin, begin + BLOCK_ROWS)))
            good = np.delete(np.arange(len(block.x)), known.excluded[inside] - begin)
            yield block.take(good), begin + good
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


def _in_numbers(part: Part, encoder: Encoder, skip: int) -> Iterator[Rows[Array]]:
    """The rows of a part after the first `skip`, which are read but not put into numbers."""
    for batch in read_batches(part, encoder.names, encoder.kinds):
        skipped = min(skip, len(batch))
        skip -= skipped
        if skipped < len(batch):
            yield encoder.numbers(batch.slice(skipped))
