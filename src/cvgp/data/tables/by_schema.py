"""Reading a table by the schema of a model, which says what its columns are."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from numpy.typing import NDArray

from cvgp.data.columns import Column
from cvgp.data.reading import CsvOptions, Reading
from cvgp.data.rows import Array
from cvgp.data.schema import Schema
from cvgp.data.tables.arrow_cells import SECONDS_PER_DAY, days, numbers
from cvgp.data.tables.bad_rows import BadRows, OnBadRows
from cvgp.data.tables.blocks import Encoder
from cvgp.data.tables.location import Location, open_dataset
from cvgp.data.tables.notes import notes_of
from cvgp.data.tables.reader import column_kinds, column_types, list_parts, read_parts
from cvgp.data.uncertain import Findings, Inputs, new_inputs
from cvgp.errors import InvalidInputError
from cvgp.host import memory_left

ADVICE = "Correct it, or leave the row out."
Tell = Callable[[str, Reading], None]


def encoder_of(schema: Schema, dataset: ds.Dataset, *, with_target: bool) -> Encoder:
    """What reads a table with the columns of the schema; columns that it does not know are ignored."""
    kinds: dict[str, str] = {column.name: _cell_kind(column) for column in schema.columns}
    targets = schema.targets if with_target else ()
    names = dataset.schema.names
    absent = [name for name in (*kinds, *targets) if name not in names]
    if absent:
        raise InvalidInputError(
            f"The table lacks the columns {absent}, which the model was fitted with; it has {names}. "
            f"{_similar(absent, [name for name in names if name not in kinds])}Add or rename them."
        )
    for _ in column_types(dataset, list(kinds)):  # every file has them
        pass
    for name in targets:
        kinds[name] = "boolean" if column_kinds(dataset, targets).get(name) == "boolean" else "numeric"
    return Encoder(schema.columns, targets, None, None, kinds)


def finder_of(encoder: Encoder, schema: Schema, on_bad_rows: OnBadRows = "error", advice: str = ADVICE) -> BadRows:
    """What finds rows that the schema can make nothing of."""
    gaps = [c.fill is not None or c.marks_missing or bool(c.typical or c.effects) for c in schema.columns]
    return BadRows(encoder, schema.impute, on_bad_rows, advice, gaps)


def load_rows(
    location: Location,
    schema: Schema,
    csv: CsvOptions | None = None,
    tell: Tell | None = None,
    *,
    with_target: bool = True,
) -> tuple[Inputs, Array]:
    """Features and targets [n, Q] of a table; under the rule "drop" without its incomplete rows.

    Text is read as `csv` says, and otherwise as the file and the schema do; `tell` is called with how it was read.
    Cells of which the model knows nothing are integrated out, and a warning counts them.
    """
    inputs, targets, _ = _load(location, schema, None, csv, tell, with_target=with_target)
    return inputs, targets


def load_rows_in_time(
    location: Location, schema: Schema, time: str, csv: CsvOptions | None = None, tell: Tell | None = None
) -> tuple[Inputs, Array, NDArray[Any]]:
    """Features, targets [n, Q] and the times [n] that a column of the table has: dates in UTC, or numbers."""
    return _load(location, schema, time, csv, tell, with_target=True)


def _load(
    location: Location,
    schema: Schema,
    time: str | None,
    csv: CsvOptions | None,
    tell: Tell | None,
    *,
    with_target: bool,
) -> tuple[Inputs, Array, NDArray[Any]]:
    dataset = open_dataset(location, csv, schema.reading)
    if tell is not None:
        tell(str(location), notes_of(dataset).reading)
    encoder = encoder_of(schema, dataset, with_target=with_target)
    names = encoder.names
    if time is not None:
        if time not in dataset.schema.names:
            similar = _similar([time], dataset.schema.names)
            raise InvalidInputError(f"The table has no column {time!r}; it has {dataset.schema.names}. {similar}")
        names = list(dict.fromkeys([*names, time]))
    kinds = dict.fromkeys(names, "") | encoder.kinds
    bad, findings = finder_of(encoder, schema), Findings()
    pieces, targets, num_bytes = [], [], 0
    times: list[NDArray[Any]] = []
    for part, before, batch in read_parts(list_parts(dataset), names, kinds):
        rows = encoder.numbers(batch)
        kept = bad.find(rows, part, before)
        good = rows.take(kept)
        numbers_in_file = part.first_row + before + np.flatnonzero(kept)
        inputs, found = new_inputs(schema.columns, good.x, numbers_in_file, part.file)
        findings.add(found)
        pieces.append(inputs)
        targets.append(good.y)
        times.append(np.empty(0) if time is None else _times(time, batch.column(time))[kept])
        num_bytes += inputs.x.nbytes
        _check_fits(part.file, num_bytes)
    findings.warn()
    if not any(map(len, pieces)):
        raise InvalidInputError(f"No row of the table can be used; {bad.summary() or 'it has none'}.")
    return Inputs.join(pieces), np.concatenate(targets), np.concatenate(times)


def _times(name: str, cells: pa.Array) -> NDArray[Any]:
    types = pa.types
    is_number = types.is_integer(cells.type) or types.is_floating(cells.type) or types.is_decimal(cells.type)
    found = numbers(name, cells) if is_number else days(name, cells)
    if not np.isfinite(found).all():
        raise InvalidInputError(f"Column {name!r} must hold a date or a number in every row that is scored.")
    return found if is_number else np.round(found * SECONDS_PER_DAY).astype("datetime64[s]")


def _cell_kind(column: Column) -> str:
    """How the cells of a text file are read."""
    return "categorical" if column.is_text else column.kind


def _similar(absent: list[str], others: list[str]) -> str:
    """Names that may be meant, in words."""
    lower = {name.lower().strip(): name for name in others}
    meant = {name: get_close_matches(name.lower().strip(), lower, n=1) for name in absent}
    pairs = [f"{lower[found[0]]!r} for {name!r}" for name, found in meant.items() if found]
    return f"Perhaps it has {', '.join(pairs)}. " if pairs else ""


def _check_fits(file: str, size: int) -> None:
    """Refuse more rows than there is memory: a few bytes of a file can stand for very many."""
    left = memory_left()
    if size > left:
        raise InvalidInputError(
            f"{file} holds at least {size / 1e9:.1f} GB when it is unpacked, and {left / 1e9:.1f} GB of memory are "
            "left; use fewer rows or columns."
        )
