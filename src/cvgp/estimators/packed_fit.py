"""What a fit leaves beside its model, as arrays and JSON of a file.

These are its history, the importance of columns, and the rows that predictions consult.

Rows are in float64 and in the model's units, so that predictions stay to the bit. Inputs or outputs that float32 holds
exactly in the user's units are stored so: the model's units follow from them to the bit, in half of the space.
"""

import reprlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cvgp.data.rows import Array, Rows
from cvgp.data.scaling import Scaling
from cvgp.errors import FileFormatError
from cvgp.estimators.sobol import SobolIndices
from cvgp.files.untrusted import Arrays, Members
from cvgp.gp.bounds import Statistics
from cvgp.gp.model import CVGP
from cvgp.training.monitor import as_columns, check_history
from cvgp.training.neighbour_rows import NeighbourRows

PREFIX = "rows."
INDICES = "sobol."
LARGEST_INDEX = 1e100
"""Shares of a variance are about 1 at most; an estimate from few rows may be larger."""
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


def pack_indices(indices: SobolIndices | None) -> dict[str, NDArray[Any]]:
    """How much predictions need each column; nothing where the fit left no indices."""
    return {} if indices is None else {INDICES + name: np.array(column) for name, column in indices._asdict().items()}


def unpack_indices(arrays: Arrays, num_columns: int) -> SobolIndices | None:
    """The indices of what may be an untrusted file; None where it holds none."""
    if f"{INDICES}total" not in arrays:
        return None
    found = SobolIndices(
        *(
            arrays.take(
                INDICES + name,
                (num_columns,),
                dtypes=FLOAT64,
                limits=(-LARGEST_INDEX if name == "first_order" else 0.0, LARGEST_INDEX),
            )
            for name in SobolIndices._fields
        )
    )
    for column in found:
        column.flags.writeable = False
    return found


def pack_rows(kept: NeighbourRows | None, scaling: Scaling) -> dict[str, NDArray[Any]]:
    """Rows in their order, with what is known of each; nothing where there are none."""
    if kept is None:
        return {}
    x, y, weight, noise = kept.rows.map(lambda values: values.cpu().numpy())
    packed = {
        "x": _in_half_the_space(x, scaling.scale_x, scaling.unscale_x),
        "y": _in_half_the_space(y.reshape(len(x), -1), scaling.scale_y, scaling.unscale_y).reshape(y.shape),
        "sample_weight": weight,
        "noise_variance": noise,
    }
    return {PREFIX + name: values for name, values in packed.items() if values is not None}


def _in_half_the_space(
    values: NDArray[Any], scale: Callable[[Array], Array], unscale: Callable[[Array], Array]
) -> NDArray[Any]:
    """Values in the user's units and in float32 if they come back from there to the bit, and otherwise as they are."""
    with np.errstate(over="ignore"):
        half = unscale(values).astype(np.float32)
    with np.errstate(invalid="ignore"):
        return half if np.array_equal(scale(half.astype(np.float64)), values) else values


def _in_model_units(stored: NDArray[Any], scale: Callable[[Array], Array]) -> Tensor:
    in_users_units = stored.dtype == np.float32
    return torch.tensor(scale(stored.astype(np.float64)) if in_users_units else stored)


def unpack_rows(
    arrays: Arrays, num_neighbours: int, model: CVGP, scaling: Scaling, statistics: Statistics
) -> NeighbourRows | None:
    """The rows of what may be an untrusted file; anything wrong is a :class:`~cvgp.errors.FileFormatError`."""
    if num_neighbours == 0:
        return None
    stored = arrays.take(f"{PREFIX}x", (None, model.X_c.shape[1]))  # [N, D]
    x = _in_model_units(stored, scaling.scale_x)
    stored = arrays.take(f"{PREFIX}y", (len(x), *model.y_c.shape[1:]))  # [N] or [N, Q]
    y = _in_model_units(stored.reshape(len(x), -1), scaling.scale_y).reshape(stored.shape)
    weight = _one_per_row(arrays, "sample_weight", len(x))
    noise = _one_per_row(arrays, "noise_variance", len(x))
    if (weight is not None and not bool((weight > 0).all())) or (noise is not None and bool((noise < 0).any())):
        raise FileFormatError("Weights of rows must be positive, and their noise variances at least 0.")
    return NeighbourRows(Rows(x, y, weight, noise), num_neighbours, statistics)


def _one_per_row(arrays: Arrays, name: str, num_rows: int) -> Tensor | None:
    if PREFIX + name not in arrays:
        return None
    return torch.tensor(arrays.take(PREFIX + name, (num_rows,), dtypes=FLOAT64))
