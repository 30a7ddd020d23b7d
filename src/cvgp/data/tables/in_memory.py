"""Data frames and Arrow tables in memory, as the tables that files hold."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.interchange

from cvgp.data.reading import Reading
from cvgp.data.tables.arrow_cells import MOST_SHOWN
from cvgp.data.tables.spelled import with_numerals
from cvgp.errors import InvalidInputError, InvalidTypeError


def dataset_of(frame: Any, beside: Mapping[str, Any] | None = None, *, known: Reading | None = None) -> ds.Dataset:
    """The frame as one part of a table, with more columns beside it. A model that is to read it says what is `known`.

    A frame is a pandas or polars DataFrame, an Arrow table or record batch, or any other object with one of the
    protocols `__arrow_c_stream__` and `__dataframe__`.
    """
    table = _arrow_table(frame)
    for name, values in (beside or {}).items():
        if len(values) != len(table):
            raise InvalidInputError(
                f"Found input variables with inconsistent numbers of samples: the table has {len(table)} rows, and "
                f"{name!r} has {len(values)}."
            )
        table = table.append_column(name, _arrow_column(name, values))
    # What stands in the notes of the user's table is not ours.
    fields = [field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field for field in table.schema]
    # One piece: the number of a row is then its number in the table.
    dataset = ds.dataset(table.cast(pa.schema(fields)).combine_chunks())
    return with_numerals(dataset, known, plain=known is not None)


def column_names(frame: Any) -> list[str]:
    """The names of a frame's columns, which must be text and different."""
    if not hasattr(frame, "columns"):
        frame = _arrow_table(frame)
    names = frame.schema.names if isinstance(frame, pa.Table | pa.RecordBatch) else list(frame.columns)
    if not all(isinstance(name, str) for name in names):
        raise InvalidTypeError(
            f"Column names must be text, got {names}; rename them, with pandas by frame.columns.astype(str)."
        )
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InvalidInputError(f"Column names must be unique, and {twice} are not; rename or drop the repeated ones.")
    return names


def _arrow_table(frame: Any) -> pa.Table:
    if isinstance(frame, pa.Table):
        table = frame
    elif isinstance(frame, pd.DataFrame):
        names = column_names(frame)
        return pa.table([_arrow_column(name, frame.iloc[:, i]) for i, name in enumerate(names)], names=names)
    elif isinstance(frame, pa.RecordBatch):
        table = pa.Table.from_batches([frame])
    elif hasattr(frame, "__arrow_c_stream__"):
        table = pa.table(frame)
    else:
        table = pa.interchange.from_dataframe(frame)
    column_names(table)
    return table


def _arrow_column(name: str, values: Any) -> Any:
    """A column of pandas or NumPy as one of Arrow; one that mixes types is refused by its first odd rows."""
    if isinstance(values, pa.ChunkedArray | pa.Array):
        return values
    if not isinstance(values, pd.Series) and hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, ValueError) as error:
        cells = [(row, cell) for row, cell in enumerate(values) if not _is_missing(cell)]
        usual = type(cells[0][1]) if cells else object
        odd = [(row, cell) for row, cell in cells if type(cell) is not usual][:MOST_SHOWN]
        shown = ", ".join(f"row {row + 1} holds {cell!r}" for row, cell in odd)
        reason = f"it begins with {usual.__name__}, but {shown}" if odd else str(error)
        raise InvalidTypeError(
            f"Column {name!r} mixes types: {reason}. Make all cells numbers, all text, all dates or all true and "
            "false, and leave out those that are none."
        ) from error


def _is_missing(cell: Any) -> bool:
    return cell is None or cell is pd.NA or cell is pd.NaT or (isinstance(cell, float) and np.isnan(cell))
