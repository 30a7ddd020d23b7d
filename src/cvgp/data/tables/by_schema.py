"""Reading a table by the schema of a model, which says what its columns are."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow.dataset as ds

from cvgp.data.reading import CsvOptions, Reading
from cvgp.data.rows import Array, Rows
from cvgp.data.schema import Schema, warn_unknown
from cvgp.data.tables.bad_rows import BadRows
from cvgp.data.tables.blocks import Encoder
from cvgp.data.tables.location import Location, open_dataset
from cvgp.data.tables.notes import notes_of
from cvgp.data.tables.reader import column_kinds, column_types, list_parts, read_parts
from cvgp.errors import InvalidInputError
from cvgp.host import memory_left

ADVICE = "Correct it, or fit the model again with a rule for missing values (--impute)."


def encoder_of(schema: Schema, dataset: ds.Dataset, *, with_target: bool) -> Encoder:
    """What reads a table with the columns of the schema; columns that it does not know are ignored."""
    kinds: dict[str, str] = {column.name: column.kind for column in schema.columns}
    targets = (schema.target,) if with_target else ()
    absent = [name for name in (*kinds, *targets) if name not in dataset.schema.names]
    if absent:
        raise InvalidInputError(
            f"The table lacks the columns {absent}, which the model was fitted with; it has {dataset.schema.names}. "
            "Add or rename them."
        )
    for _ in column_types(dataset, list(kinds)):  # every file has them
        pass
    for name in targets:
        kinds[name] = "boolean" if column_kinds(dataset, targets).get(name) == "boolean" else "numeric"
    return Encoder(schema.columns, targets, None, None, kinds)


def load_rows(
    location: Location,
    schema: Schema,
    csv: CsvOptions | None = None,
    tell: Callable[[str, Reading], None] | None = None,
) -> tuple[Array, Array]:
    """Features [n, D] and target [n] of a table; under the rule "drop" without its incomplete rows.

    Text is read as `csv` says, and otherwise as the file and the schema do; `tell` is called with how it was read.

    A category that the training table did not have gets no indicator, and a warning counts such cells.
    """
    dataset = open_dataset(location, csv, schema.reading)
    if tell is not None:
        tell(str(location), notes_of(dataset).reading)
    encoder = encoder_of(schema, dataset, with_target=True)
    bad, unknown = BadRows(encoder, schema.impute, "error", ADVICE), Counter[str]()
    pieces, num_bytes = [encoder.no_rows()], 0
    for part, before, batch in read_parts(list_parts(dataset), encoder.names, encoder.kinds):
        rows = encoder.encode(batch, unknown)
        pieces.append(rows.take(bad.find(rows, part, before)))
        num_bytes += rows.x.nbytes
        _check_fits(part.file, num_bytes)
    warn_unknown(unknown)
    rows = Rows[Array].join(pieces)
    if not len(rows.x):
        raise InvalidInputError(f"No row of the table can be used; {bad.summary() or 'it has none'}.")
    return rows.x, np.ascontiguousarray(rows.y[:, 0])


def _check_fits(file: str, size: int) -> None:
    """Refuse more rows than there is memory: a few bytes of a file can stand for very many."""
    left = memory_left()
    if size > left:
        raise InvalidInputError(
            f"{file} holds at least {size / 1e9:.1f} GB when it is unpacked, and {left / 1e9:.1f} GB of memory are "
            "left; use fewer rows or columns."
        )
