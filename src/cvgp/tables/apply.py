"""Reading a table by the schema of a fitted model, which says what its columns are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cvgp.data.rows import Array, Rows
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.runtime import memory_left
from cvgp.tables.cells import SECONDS_PER_DAY, cell_numbers, days, numbers
from cvgp.tables.columns import Schema
from cvgp.tables.encode import Findings, Inputs, new_inputs
from cvgp.tables.formats import Reading
from cvgp.tables.read import Location, Opened, Part, open_table
from cvgp.tables.select import BadRows, OnBadRows, near_names

ADVICE = "Correct it, or leave the row out."
Tell = Callable[[str, Reading], None]


class Piece(NamedTuple):
    """Some rows of a part of a table."""

    part: Part
    batch: pa.RecordBatch
    rows: Rows[Array]
    """One number per cell for x, of all rows of the batch."""
    kept: NDArray[np.bool_]
    """Which of them count."""
    numbers: NDArray[np.int64]
    """The numbers of these in their file."""


class SchemaReader:
    """Goes through a table whose columns a model knows; columns that it does not know are ignored."""

    def __init__(
        self,
        opened: Opened,
        schema: Schema,
        *,
        targets: Sequence[str] = (),
        sample_weight: str | None = None,
        noise_variance: str | None = None,
        on_bad_rows: OnBadRows = "error",
        advice: str = ADVICE,
    ) -> None:
        self.opened, self.schema = opened, schema
        self.targets = tuple(targets)
        self.weight, self.noise = sample_weight, noise_variance
        used = [column.name for column in schema.columns]
        self.special = [*self.targets, *(name for name in (sample_weight, noise_variance) if name is not None)]
        absent = [name for name in (*used, *self.special) if name not in opened.names]
        if absent:
            others = [name for name in opened.names if name not in used]
            raise InvalidInputError(
                f"The table lacks the columns {absent}, which the model was fitted with; it has {opened.names}. "
                f"{_similar(absent, others)}Add or rename them."
            )
        for part in opened.parts:
            for name in used:
                opened.type_of(part, name)  # every part has them
        self.kinds: dict[str, str] = {c.name: "categorical" if c.is_text else c.kind for c in schema.columns}
        found = opened.kinds(self.special)
        self.kinds |= {name: "boolean" if found.get(name) == "boolean" else "numeric" for name in self.special}
        drops = schema.impute == "drop"
        gaps = [c.fill is not None or c.marks_missing or bool(c.typical or c.effects) for c in schema.columns]
        self.bad = BadRows(opened, used, self.special, on_bad_rows, advice, None if drops else gaps, drops=drops)

    def pieces(self, parts: list[Part], names: list[str] | None = None) -> Iterator[Piece]:
        """The rows of some parts, with some columns of the batches (those of the schema by default)."""
        wanted = list(dict.fromkeys([*(c.name for c in self.schema.columns), *self.special, *(names or ())]))
        for part in parts:
            before = 0
            for batch in self.opened.batches(part, wanted, self.kinds):
                try:
                    rows = self._in_numbers(batch)
                except InvalidTypeError as error:
                    raise InvalidTypeError(f"{part.file}: {error}") from error
                kept = self.bad.find(rows, part, before)
                if self.schema.impute == "drop":
                    is_whole = ~np.isnan(rows.x).any(axis=1)
                    self.bad.dropped += int((kept & ~is_whole).sum())
                    kept &= is_whole
                yield Piece(part, batch, rows, kept, part.first_row + before + np.flatnonzero(kept))
                before += len(batch)

    def _in_numbers(self, batch: pa.RecordBatch) -> Rows[Array]:
        x = np.empty((len(batch), len(self.schema.columns)))
        for position, column in enumerate(self.schema.columns):
            x[:, position] = cell_numbers(column, batch.column(column.name))
        y = np.empty((len(batch), len(self.targets)))
        for position, name in enumerate(self.targets):
            y[:, position] = numbers(name, batch.column(name))
        weight, noise = (None if n is None else numbers(n, batch.column(n)) for n in (self.weight, self.noise))
        return Rows(x, y, weight, noise)


def load_rows(
    location: Location | Opened,
    schema: Schema,
    csv: Mapping[str, object] | None = None,
    tell: Tell | None = None,
    *,
    with_target: bool = True,
) -> tuple[Inputs, Array]:
    """Features and targets [n, Q] of a table; under the rule "drop" without its incomplete rows.

    Text is read as `csv` says, and otherwise as the file and the schema do; `tell` is called with how it was read.
    Cells of which the model knows nothing are integrated out, and a warning counts them.
    """
    inputs, targets, _ = load_rows_in_time(location, schema, None, csv, tell, with_target=with_target)
    return inputs, targets


def load_rows_in_time(
    location: Location | Opened,
    schema: Schema,
    time: str | None,
    csv: Mapping[str, object] | None = None,
    tell: Tell | None = None,
    *,
    with_target: bool = True,
) -> tuple[Inputs, Array, NDArray[Any]]:
    """Features, targets [n, Q] and the times [n] that a column of the table has: dates in UTC, or numbers."""
    opened = location if isinstance(location, Opened) else open_table(location, csv, schema.reading)
    if tell is not None:
        tell(str(location), opened.reading)
    reader = SchemaReader(opened, schema, targets=schema.targets if with_target else ())
    if time is not None and time not in opened.names:
        raise InvalidInputError(
            f"The table has no column {time!r}; it has {opened.names}. {_similar([time], opened.names)}"
        )
    findings, pieces, targets, num_bytes = Findings(), [], [], 0
    times: list[NDArray[Any]] = []
    for piece in reader.pieces(opened.parts, [] if time is None else [time]):
        good = piece.rows.take(piece.kept)
        inputs, found = new_inputs(schema.columns, good.x, piece.numbers, piece.part.file)
        findings.add(found)
        pieces.append(inputs)
        targets.append(good.y)
        times.append(np.empty(0) if time is None else _times(time, piece.batch.column(time))[piece.kept])
        num_bytes += inputs.x.nbytes
        if num_bytes > memory_left():  # a small file can unpack to a very large table
            raise InvalidInputError(
                f"{piece.part.file} holds at least {num_bytes / 1e9:.1f} GB when it is unpacked, and "
                f"{memory_left() / 1e9:.1f} GB of memory are left; use fewer rows or columns."
            )
    findings.warn()
    if not any(map(len, pieces)):
        raise InvalidInputError(f"No row of the table can be used; {reader.bad.summary() or 'it has none'}.")
    return Inputs.join(pieces), np.concatenate(targets), np.concatenate(times)


def _times(name: str, cells: pa.Array) -> NDArray[Any]:
    types = pa.types
    is_number = types.is_integer(cells.type) or types.is_floating(cells.type) or types.is_decimal(cells.type)
    found = numbers(name, cells) if is_number else days(name, cells)
    if not np.isfinite(found).all():
        raise InvalidInputError(f"Column {name!r} must hold a date or a number in every row that is scored.")
    return found if is_number else np.round(found * SECONDS_PER_DAY).astype("datetime64[s]")


def _similar(absent: list[str], others: list[str]) -> str:
    """Names that may be meant, in words."""
    meant = {name: near_names(name, others) for name in absent}
    pairs = [f"{found[0]!r} for {name!r}" for name, found in meant.items() if found]
    return f"Perhaps it has {', '.join(pairs)}. " if pairs else ""
