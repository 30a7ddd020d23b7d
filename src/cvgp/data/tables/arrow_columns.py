"""Columns of Arrow batches as numbers, by the same rules as those of tables in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cvgp.data.cells import labels, time_error
from cvgp.data.columns import Column
from cvgp.errors import FileFormatError, InvalidTypeError

__all__ = ["column_labels", "column_numbers", "encode_columns", "kind_of_type"]

Array = NDArray[np.float64]


def kind_of_type(name: str, arrow_type: Any) -> str:
    """How a column of this type is encoded; `null` for a column without any value; times are refused, as elsewhere."""
    types = pa.types
    if types.is_null(arrow_type):
        return "null"
    if types.is_boolean(arrow_type):
        return "boolean"
    if types.is_integer(arrow_type) or types.is_floating(arrow_type) or types.is_decimal(arrow_type):
        return "numeric"
    if types.is_dictionary(arrow_type):
        return "categorical"
    if types.is_string(arrow_type) or types.is_large_string(arrow_type) or types.is_string_view(arrow_type):
        return "categorical"
    if types.is_temporal(arrow_type):
        content = "time" if types.is_time(arrow_type) else "timedelta" if types.is_duration(arrow_type) else "datetime"
        raise time_error(name, content)
    raise InvalidTypeError(
        f"Column {name!r} holds values of type {arrow_type}, but a column must hold only numbers, only true and false, "
        "or only text; convert it to one of these or leave it out."
    )


def column_numbers(column: pa.Array) -> Array:
    """Numbers, or true and false as 1 and 0; NaN where a value is missing."""
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def column_labels(column: pa.Array) -> tuple[NDArray[np.intp], list[str]]:
    """Codes [n] into a list of category names; -1 where a value is missing."""
    if pa.types.is_null(column.type):
        return np.full(len(column), -1), []
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    of_entry, names = labels(encoded.dictionary.to_pandas())
    entry = encoded.indices.cast(pa.int64()).fill_null(len(of_entry)).to_numpy(zero_copy_only=False)
    return np.append(of_entry, -1)[entry], names


def encode_columns(batch: pa.RecordBatch, columns: Sequence[Column]) -> Array:
    """The columns as a matrix [n, D]; NaN where a value is missing and the column has nothing to fill it with."""
    out = np.empty((len(batch), sum(len(column.feature_names) for column in columns)))
    start = 0
    for column in columns:
        width = len(column.feature_names)
        if column.kind == "categorical":
            values, unknown = column.encode_codes(*column_labels(batch.column(column.name)))
            if unknown.any():
                raise FileFormatError(
                    f"Column {column.name!r} holds text that was not there when the table was looked through; start "
                    "again, once nothing writes to it any more."
                )
            out[:, start : start + width] = values
        else:
            values = column_numbers(batch.column(column.name))
            if column.fill is not None:
                values = np.where(np.isnan(values), float(column.fill), values)
            out[:, start] = values
        start += width
    return out
