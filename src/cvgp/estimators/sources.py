"""From checked data to what training reads: rows to learn from, rows that are held out, and their scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from cvgp.data.arrays import MemorySource
from cvgp.data.rows import Rows
from cvgp.data.scaling import Scaling, learn_scaling, no_scaling
from cvgp.data.source import DataSource
from cvgp.data.split import shared, split
from cvgp.errors import InvalidInputError
from cvgp.estimators.inputs import canonical
from cvgp.parallel.group import Group
from cvgp.training.plan import Settings

if TYPE_CHECKING:
    from cvgp.data.tables.training_table import TrainingTable

__all__ = ["Sources", "array_sources", "table_sources"]

Array = NDArray[np.float64]


class Sources(NamedTuple):
    """Scaled rows, and what they were scaled by."""

    train: DataSource
    held_out: DataSource | None
    """The rows of early stopping."""
    scaling: Scaling


def array_sources(
    data: Rows[Array],
    settings: Settings,
    rng: np.random.Generator,
    *,
    standardize: bool,
    single_output: bool,
    device: str,
    group: Group,
) -> Sources:
    """Those of rows in memory, of which every process of the group is given all and works on a part."""
    train, held_out = _split(data, settings, rng)
    train = canonical(train)
    dims, outputs = train.x.shape[1], train.y.shape[1]
    scaling = learn_scaling(train.x, train.y, train.sample_weight) if standardize else no_scaling(dims, outputs)
    _check_variance(scaling.y_scale)
    place = _known_device(device)
    validation = None if held_out is None else split(_scaled(held_out, scaling, single_output, place), group)
    return Sources(split(_scaled(train, scaling, single_output, place), group), validation, scaling)


def table_sources(
    table: TrainingTable, settings: Settings, rng: np.random.Generator, *, standardize: bool, device: str, group: Group
) -> Sources:
    """Those of a table in files, which is read in parts, each process of the group its own."""
    scaling = table.scaling
    if not standardize:
        scaling = no_scaling(len(scaling.x_mean), len(scaling.y_mean))
    _check_variance(scaling.y_scale)
    source = table.source(scaling, _known_device(device))
    if not settings.early_stopping:
        return Sources(shared(source, group), None, scaling)
    # The scaling is that of all rows, of which the held-out ones are few.
    held = round(_held_out_rows(table.num_rows, settings) * source.num_rows / table.num_rows)
    train, held_out = source.hold_out(held, rng)
    return Sources(shared(train, group), shared(held_out, group), scaling)


def _scaled(data: Rows[Array], scaling: Scaling, single_output: bool, device: str) -> MemorySource:
    y = scaling.scale_y(data.y)
    known = None if data.noise_variance is None else data.noise_variance / scaling.y_scale[0] ** 2
    arrays = (scaling.scale_x(data.x), y[:, 0] if single_output else y, data.sample_weight, known)
    return MemorySource(*(None if a is None else torch.as_tensor(a, device=device) for a in arrays))  # type: ignore[arg-type]


def _known_device(name: str) -> str:
    device = "cpu" if name == "auto" else name
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:  # torch has one for each way to lack a device
        raise InvalidInputError(f"device must be 'auto' or a device that torch has here; got {device!r}.") from error
    return device


def _check_variance(y_scale: Array) -> None:
    if y_scale.max() > 1e150 or y_scale.min() < 1e-150:
        raise InvalidInputError(
            f"y has a standard deviation of {y_scale.max():.0e}, whose square is beyond the range of floating-point "
            "numbers; give y in another unit."
        )


def _split(data: Rows[Array], settings: Settings, rng: np.random.Generator) -> tuple[Rows[Array], Rows[Array] | None]:
    """Training rows, and the rows that early stopping holds out."""
    if not settings.early_stopping:
        return data, None
    held = _held_out_rows(len(data.x), settings)
    order = rng.permutation(len(data.x))
    return data.take(order[held:]), data.take(order[:held])


def _held_out_rows(num_rows: int, settings: Settings) -> int:
    held = round(num_rows * settings.validation_fraction)
    if not 1 <= held < num_rows:
        raise InvalidInputError(
            f"early_stopping holds out validation_fraction={settings.validation_fraction} of {num_rows} rows, "
            "which leaves nothing to fit or to check; give more rows or another fraction."
        )
    return held
