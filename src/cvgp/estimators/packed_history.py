"""The history of a fit as arrays and JSON of a file."""

import reprlib
from typing import Any

from numpy.typing import NDArray

from cvgp.errors import FileFormatError
from cvgp.files.untrusted import Arrays, Members
from cvgp.training.monitor import as_columns, check_history

__all__ = ["pack_history", "unpack_history"]


def pack_history(history: dict[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], dict[str, list[Any] | None]]:
    """Columns of numbers as arrays, and of text as lists."""
    arrays = {f"history.{name}": column for name, column in history.items() if column.dtype.kind in "if"}
    return arrays, {name: None if f"history.{name}" in arrays else column.tolist() for name, column in history.items()}


def unpack_history(members: Members, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """The columns of what may be an untrusted file."""
    columns: dict[str, Any] = {}
    for name in members.names():
        listed = members.take(name)
        if listed is None:
            listed = arrays.take(f"history.{name}", (None,), dtypes=("float64", "int64"), finite=False)
        elif not isinstance(listed, list):
            raise FileFormatError(f"The column {name!r} of the history cannot be {reprlib.repr(listed)}.")
        columns[name] = listed
    lengths = {len(column) for column in columns.values()}
    if len(lengths) != 1 or lengths == {0}:
        raise FileFormatError("The columns of the history differ in length, or are empty.")
    cells = (column if isinstance(column, list) else column.tolist() for column in columns.values())
    return as_columns(check_history([dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]))
