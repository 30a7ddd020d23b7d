"""Tables in files as what an estimator is fitted to: loaded where they are small, and otherwise read in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from cvgp.data.input_warp import InputWarp
from cvgp.data.rows import Array, Rows
from cvgp.data.split import SharedSource
from cvgp.errors import InvalidInputError
from cvgp.estimators.frames import frame_table, is_frame
from cvgp.estimators.inputs import canonical, check_variance, held_out_rows, known_device
from cvgp.estimators.model_units import Sources, Units
from cvgp.extras import optional_packages
from cvgp.parallel.group import Group
from cvgp.training.plan import Settings

if TYPE_CHECKING:
    from cvgp.data.tables.training_table import TrainingTable


def open_table(x: Any, y: Any, **options: Any) -> TrainingTable:
    """The table that `fit` was given, or given the place of, looked through once."""
    with optional_packages():
        from cvgp.data.tables.training_table import TrainingTable

    if isinstance(x, TrainingTable):
        return x
    if is_frame(x):
        x, y, weight, noise = frame_table(x, y, options["sample_weight"], options["noise_variance"])
        options |= {"sample_weight": weight, "noise_variance": noise}
    return TrainingTable(x, y, **options)


def refuse_transform(target: str) -> None:
    """Refuse a transform of y that would need the rows in memory."""
    if target not in ("auto", "identity"):
        raise InvalidInputError(
            f"target={target!r} is for rows in memory, and this table is too large to be loaded. Store the transformed "
            "column in the table, or fit a sample of the rows."
        )


def table_sources(
    table: TrainingTable,
    settings: Settings,
    rng: np.random.Generator,
    *,
    units: Units,
    choose_warp: Callable[[Rows[Array]], InputWarp],
    device: str,
    group: Group,
) -> Sources:
    """Those of a table that is read in parts, each process of the group its own.

    `choose_warp` says what becomes of x, from a sample of the rows that is the same in all processes.
    """
    learned = table.warped_scaling(choose_warp(canonical(table.common_sample)))
    scaling = units(learned, table.y_varies)
    check_variance(scaling.y_scale)
    source = table.source(scaling, known_device(device))
    held_out = None
    if settings.early_stopping:
        # The scaling is that of all rows, of which the held-out ones are few.
        held = round(held_out_rows(table.num_rows, settings) * source.num_rows / table.num_rows)
        source, held_out = source.hold_out(held, rng)
    if group.world == 1:
        return Sources.of(source, held_out, scaling, learned, y_varies=table.y_varies)
    shared = SharedSource(source, group), held_out and SharedSource(held_out, group)
    return Sources.of(*shared, scaling, learned, y_varies=table.y_varies)
