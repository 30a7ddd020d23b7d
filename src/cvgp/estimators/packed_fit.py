"""What a fit leaves beside its model, as arrays and JSON of a file: its history, and the rows that predictions consult.

Rows are in float64, so that predictions stay to the bit.
"""

import reprlib
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from cvgp.data.rows import Rows
from cvgp.errors import FileFormatError
from cvgp.files.untrusted import Arrays, Members
from cvgp.gp.bounds import Statistics
from cvgp.gp.model import CVGP
from cvgp.training.monitor import as_columns, check_history
from cvgp.training.neighbour_rows import NeighbourRows

PREFIX = "rows."
FLOAT64 = ("float64",)


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


def pack_rows(kept: NeighbourRows | None) -> dict[str, NDArray[Any]]:
    """Rows in the model's units and in their order, with what is known of each; nothing where there are none."""
    if kept is None:
        return {}
    return {PREFIX + name: values.cpu().numpy() for name, values in kept.rows._asdict().items() if values is not None}


def unpack_rows(arrays: Arrays, num_neighbours: int, model: CVGP, statistics: Statistics) -> NeighbourRows | None:
    """The rows of what may be an untrusted file; anything wrong is a :class:`~cvgp.errors.FileFormatError`."""
    if num_neighbours == 0:
        return None
    x = arrays.take(f"{PREFIX}x", (None, model.X_c.shape[1]), dtypes=FLOAT64)  # [N, D]
    y = arrays.take(f"{PREFIX}y", (len(x), *model.y_c.shape[1:]), dtypes=FLOAT64)  # [N] or [N, Q]
    weight = _one_per_row(arrays, "sample_weight", len(x))
    noise = _one_per_row(arrays, "noise_variance", len(x))
    if (weight is not None and not bool((weight > 0).all())) or (noise is not None and bool((noise < 0).any())):
        raise FileFormatError("Weights of rows must be positive, and their noise variances at least 0.")
    return NeighbourRows(Rows(torch.tensor(x), torch.tensor(y), weight, noise), num_neighbours, statistics)


def _one_per_row(arrays: Arrays, name: str, num_rows: int) -> Tensor | None:
    if PREFIX + name not in arrays:
        return None
    return torch.tensor(arrays.take(PREFIX + name, (num_rows,), dtypes=FLOAT64))
