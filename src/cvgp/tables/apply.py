"""Rows of a table in numbers: which of them count, and how the schema of a fitted model reads them.

A row is bad if it holds infinity or text for a number, or has a negative weight, noise variance or exposure. A row
without a target is left out.
"""

from __future__ import annotations

import reprlib  # a cell may be very long
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from cvgp.data.rows import Array, Rows
from cvgp.errors import CVGPWarning, InvalidInputError, InvalidTypeError, printable
from cvgp.parallel.group import Group, gather_text
from cvgp.runtime import memory_left
from cvgp.tables.cells import cell_numbers, numbers, times
from cvgp.tables.columns import PLACE, Extra, Schema
from cvgp.tables.encode import MOST_SHOWN, Findings, Inputs, new_inputs
from cvgp.tables.read import Location, Opened, Part, open_table

ADVICE = "Correct it, or leave the row out."
TRAINING_ADVICE = (
    "Correct it, or leave such rows out and have them counted: read_table(..., on_bad_rows='skip'), --on-bad-rows skip."
)
Mask = NDArray[np.bool_]
OnBadRows = Literal["error", "skip"]


def near_names(name: str, names: Sequence[str]) -> list[str]:
    """The names that could have been meant."""
    similar = get_close_matches(name.lower().strip(), [other.lower().strip() for other in names], n=3)
    return [other for other in names if other.lower().strip() in similar]


def names_to_choose(name: str, names: Sequence[str]) -> str:
    """The end of a message about a column that a table lacks: what could have been meant, and what it has."""
    meant = " or ".join(map(repr, near_names(name, names)))
    return f"{f'did you mean {meant}? It' if meant else 'it'} has {', '.join(map(printable, names))}."


@dataclass
class BadRows:
    """Finds bad rows, and counts those that were left out."""

    opened: Opened
    names: list[str]  # features, targets, weight, noise, group, exposure and time
    gaps: Mask  # the features that may be missing
    on_bad_rows: OnBadRows
    drops: bool  # whether rows that lack a value are dropped rather than bad
    advice: str = TRAINING_ADVICE
    skipped: int = 0
    dropped: int = 0
    unlabeled: int = 0  # rows without a target; they count as bad ones if these are skipped
    first: str = ""  # bad row and its fault

    def find(self, rows: Rows[Array], part: Part, start: int) -> Mask:
        """Mark the rows [n] that count; `start` rows of the part came before them."""
        extra = [column[:, None] for column in rows[2:] if column is not None]
        values, D, Q = np.hstack([rows.x, rows.y, *extra]), rows.x.shape[1], rows.y.shape[1]
        chosen = self.opened.chosen.get((part.file, part.first_row))
        kept = np.ones(len(rows.x), dtype=np.bool_) if chosen is None else chosen[start : start + len(rows.x)]
        negative = values[:, D + Q :] < 0.0
        if rows.time is not None:
            negative[:, -1] = False
        if not np.isfinite(values).all() or negative.any():
            wrong, missing = np.isinf(values), np.isnan(values) & kept[:, None]
            wrong[:, :D] |= missing[:, :D] & ~self.gaps
            wrong[:, D : D + Q] |= missing[:, D : D + Q] & (not self.drops and self.on_bad_rows == "skip")
            wrong[:, D + Q :] |= missing[:, D + Q :] | negative
            unlabeled = missing[:, D : D + Q].any(axis=1) & (not self.drops and self.on_bad_rows == "error")
            if (unlabeled & ~missing[:, D : D + Q].all(axis=1)).any():
                raise InvalidInputError(
                    "Some rows lack some, but not all, targets of the table. Leave them out, or fit arrays with "
                    "missing_targets=True."
                )
            wrong[unlabeled | ~kept] = False
            bad = np.logical_or.reduce(wrong, axis=1)
            if bad.any() and not self.first:
                self._note_first(values, wrong, part, start)
            self.skipped += int(bad.sum())
            self.unlabeled += int(unlabeled.sum())
            incomplete = ~bad & np.logical_or.reduce(missing[:, : D + Q], axis=1) & self.drops
            self.dropped += int(incomplete.sum())
            kept = kept & ~(bad | incomplete | unlabeled)
        # A row of weight zero is not bad; it does not count.
        return kept if rows.sample_weight is None else kept & (rows.sample_weight > 0.0)

    def count_all(self, group: Group, good: int) -> int:
        """Add up the rows that all processes have left out; returns how many good rows all have, at least one."""
        own = torch.tensor([good, self.skipped, self.dropped, self.unlabeled], dtype=torch.float64)
        total, self.skipped, self.dropped, self.unlabeled = (int(count) for count in group.sum([own])[0])
        self.first = next((text for text in gather_text(group, self.first) if text), "")
        self.check_any(total, warns=group.rank == 0)
        return total

    def check_any(self, total: int, *, warns: bool = True) -> None:
        """Raise if no row is left, and warn of rows without a target."""
        share = f"{self.unlabeled} of {total + self.skipped + self.dropped + self.unlabeled}"
        lacking = f"the target is missing in {share} rows" if self.unlabeled else ""
        if total == 0:
            reasons = "; ".join(filter(None, (self.summary(), lacking)))
            raise InvalidInputError(f"No row of the table is left to use; {reasons or 'it has none'}.")
        if lacking and warns:
            warnings.warn(f"Left out: {lacking}.", CVGPWarning, stacklevel=6)

    def summary(self) -> str:
        """The rows that were left out, in words; empty if there are none."""
        bad = f"{self.skipped} bad rows were left out, the first of them: {self.first}" if self.skipped else ""
        gaps = f"{self.dropped} rows with missing values were left out" if self.dropped else ""
        return "; ".join(filter(None, (bad, gaps)))

    def _note_first(self, values: Array, wrong: Mask, part: Part, start: int) -> None:
        row, position = (int(index[0]) for index in np.nonzero(wrong))
        name, value = self.names[position], values[row, position]
        found = "is missing" if np.isnan(value) else "is infinite or not a number" if np.isinf(value) else "is negative"
        text = self.opened.cell_text(part, name, start + row) if not np.isfinite(value) else None
        held = "" if text is None else f": it holds {reprlib.repr(text)}"
        first = part.first_row + start + 1
        others = [str(first + other) for other in np.flatnonzero(wrong[:, position])[1 : 1 + MOST_SHOWN]]
        also = f" (also in data row {', '.join(others)})" if others else ""
        self.first = f"{part.file}, data row {first + row}: column {name!r} {found}{held}{also}"
        if self.on_bad_rows == "error":
            raise InvalidInputError(f"{self.first}. {self.advice}")


class Piece(NamedTuple):
    """Some rows of a part of a table."""

    part: Part
    batch: pa.RecordBatch
    rows: Rows[Array]  # one number per cell for x, of all rows of the batch
    kept: Mask
    numbers: NDArray[np.int64]  # the numbers of these in their file

    def stored(self) -> Array:
        """The rows that count as a matrix: cells, targets, what is beside them, and the numbers of the rows."""
        kept = self.rows.take(self.kept)
        extra = [values[:, None] for values in kept[2:] if values is not None]
        return np.hstack([kept.x, kept.y, *extra, self.numbers[:, None].astype(np.float64)])


@dataclass
class RowReader:
    """Reads the rows of a table in numbers."""

    opened: Opened
    cells: Mapping[str, Callable[[pa.Array], Array]]  # how each feature column becomes numbers
    kinds: Mapping[str, str]
    targets: Sequence[str]
    extra: Extra
    bad: BadRows
    label: Callable[[pa.Array], Array] | None = None  # how groups become numbers

    def pieces(self, parts: list[Part], names: Sequence[str] = ()) -> Iterator[Piece]:
        """The rows of some parts, with more columns of the batches if they are named."""
        special = [*self.targets, *(name for name in self.extra if name is not None)]
        wanted = list(dict.fromkeys([*self.cells, *special, *names]))
        for part in parts:
            before = 0
            for batch in self.opened.batches(part, wanted, self.kinds):
                try:
                    x = [read(batch.column(name)) for name, read in self.cells.items()]
                    y = [numbers(name, batch.column(name)) for name in self.targets]
                    weight, noise, exposure = (
                        None if name is None else numbers(name, batch.column(name))
                        for name in (*self.extra[:2], self.extra[3])
                    )
                    named, timed = self.extra[2], self.extra[4]
                    time = None if timed is None else times(timed, batch.column(timed))
                    group = None if named is None or self.label is None else self.label(batch.column(named))
                except InvalidTypeError as error:
                    raise InvalidTypeError(f"{part.file}: {error}") from error
                x_cells, y_cells = (np.array(columns).reshape(len(columns), len(batch)).T for columns in (x, y))
                rows = Rows(x_cells, y_cells, weight, noise, group, exposure, time)
                kept = self.bad.find(rows, part, before)
                yield Piece(part, batch, rows, kept, part.first_row + before + np.flatnonzero(kept))
                before += len(batch)


def schema_reader(
    opened: Opened,
    schema: Schema,
    targets: Sequence[str] = (),
    extra: Extra = (None, None, None, None, None),
    on_bad_rows: OnBadRows = "error",
    advice: str = ADVICE,
) -> RowReader:
    """The reader of a table whose columns a model knows; columns that it does not know are ignored."""
    columns, used = schema.columns, [column.name for column in schema.columns]
    special = [*targets, *(name for name in extra if name is not None)]
    _check_present(opened, [*used, *special])
    for part in opened.parts:
        for name in used:
            opened.type_of(part, name)  # every part has them
    plain = dict.fromkeys(("cyclic", *PLACE), "numeric")
    kinds = {c.name: "categorical" if c.is_text else plain.get(c.kind, c.kind) for c in columns}
    kinds |= {name: "boolean" if opened.kind(name) == "boolean" else "numeric" for name in special}
    drops = schema.impute == "drop"
    gaps = [c.fill is not None or c.marks_missing or bool(c.typical or c.effects) for c in columns]
    gaps = [drops or (has_rule and c.kind not in PLACE) for c, has_rule in zip(columns, gaps, strict=True)]
    bad = BadRows(opened, [*used, *special], np.array(gaps), on_bad_rows, drops, advice)
    cells = {column.name: partial(cell_numbers, column) for column in columns}
    return RowReader(opened, cells, kinds, targets, extra, bad)


def load_rows(
    location: Location | Opened, schema: Schema, *, with_target: bool = True, on_bad_rows: OnBadRows = "error"
) -> tuple[Inputs, Array]:
    """Features and targets [n, Q] of a table."""
    opened = location if isinstance(location, Opened) else open_table(location, known=schema.reading)
    targets = schema.targets if with_target else ()
    advice = TRAINING_ADVICE if with_target else ADVICE
    reader = schema_reader(opened, schema, targets, on_bad_rows=on_bad_rows, advice=advice)
    findings, pieces, observed, num_bytes = Findings(), [], [], 0
    for piece in reader.pieces(opened.parts, []):
        good = piece.rows.take(piece.kept)
        inputs, found = new_inputs(schema.columns, good.x, piece.numbers, piece.part.file)
        findings.add(found)
        pieces.append(inputs)
        observed.append(good.y)
        num_bytes += inputs.x.nbytes
        if num_bytes > memory_left():  # a small file can unpack to a very large table
            raise InvalidInputError(
                f"{piece.part.file} holds at least {num_bytes / 1e9:.1f} GB when it is unpacked, and "
                f"{memory_left() / 1e9:.1f} GB of memory are left; use fewer rows or columns."
            )
    findings.warn()
    reader.bad.check_any(sum(map(len, pieces)))
    return Inputs.join(pieces), np.concatenate(observed)


def _check_present(opened: Opened, names: Sequence[str]) -> None:
    absent = [name for name in names if name not in opened.names]
    if absent:
        meant = {name: near_names(name, [other for other in opened.names if other not in names]) for name in absent}
        pairs = [f"{found[0]!r} for {name!r}" for name, found in meant.items() if found]
        hint = f"Perhaps it has {', '.join(pairs)}. " if pairs else ""
        raise InvalidInputError(
            f"The table lacks the columns {absent}, which the model was fitted with; it has {opened.names}. {hint}"
            "Add or rename them."
        )
