"""Tables in files as what an estimator is fitted to: loaded where they are small, and otherwise read in parts."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from cvgp.data.source import SharedSource
from cvgp.errors import InvalidInputError, optional_packages
from cvgp.estimators.frames import frame_table, is_frame, is_name, is_plain
from cvgp.estimators.inputs import held_out_rows
from cvgp.fitting.decisions import Choice, Decisions
from cvgp.fitting.monitor import Run
from cvgp.fitting.options import ModelOptions, TrainingOptions
from cvgp.fitting.prepare import (
    FitData,
    check_variance,
    choose_scaling,
    decide_warp,
    merge_copies,
    spread_of,
)

if TYPE_CHECKING:
    from cvgp.tables.formats import Reading
    from cvgp.tables.table import Table, TrainingTable


def is_in_files(x: Any) -> bool:
    """Whether a value is a path, a list of paths, a pyarrow dataset or what `read_table` returns."""
    if isinstance(x, (list, tuple)):
        return bool(x) and all(isinstance(item, (str, os.PathLike)) for item in x)
    if isinstance(x, (str, os.PathLike)):
        return True
    # An object of these classes cannot exist before their modules are imported; arrays are fitted without them.
    classes = (("pyarrow.dataset", "Dataset"), ("cvgp.tables.table", "Table"))
    return any(isinstance(x, getattr(sys.modules[module], name)) for module, name in classes if module in sys.modules)


def as_table(
    x: Any, y: Any, sample_weight: Any = None, noise_variance: Any = None, known: Reading | None = None
) -> Table | None:
    """Rows that are read as a table: those in files, and frames that hold more than numbers or their own target.

    `known` is how a fitted model has read its training table.
    """
    if not is_in_files(x) and not (is_frame(x) and (is_name(y) or not is_plain(x))):
        return None
    with optional_packages():
        from cvgp.tables.read import open_table
        from cvgp.tables.table import Table

    if is_frame(x):
        return frame_table(x, y, sample_weight, noise_variance, known)
    table = x if isinstance(x, Table) else Table(open_table(x, known=known), None)
    return table.with_target(y, sample_weight, noise_variance)


def refuse_transform(target: str) -> None:
    """Refuse a transform of y that would need the rows in memory."""
    if target not in ("auto", "identity"):
        raise InvalidInputError(
            f"target_transform={target!r} is for rows in memory, and this table is too large to be loaded. Store the "
            "transformed column in the table, or fit a sample of the rows."
        )


def table_data(
    table: TrainingTable, options: ModelOptions, settings: TrainingOptions, run: Run, pinned: Decisions
) -> FitData:
    """A table that is read in parts, ready to be fitted; each process of a group reads its own part."""
    # From a sample of the rows that is the same in all processes.
    warp, choice = decide_warp(merge_copies(table.common_sample), options, run, pinned)
    learned = table.warped_scaling(warp)
    scaling = choose_scaling(learned, options, y_varies=table.y_varies)
    check_variance(scaling.y_scale)
    source, held_out = table.source(scaling, options.device), None
    if settings.early_stopping:
        # The scaling is that of all rows, of which the held-out ones are few.
        held = round(held_out_rows(table.num_rows, settings) * source.num_rows / table.num_rows)
        source, held_out = source.hold_out(held, run.rng("validation"))
    reason = "the table is read in parts"
    decisions = Decisions(
        outliers=Choice("none", None, reason),
        target_transform=Choice("identity", None, reason),
        input_warp=choice,
        seed=run.seed,
    )
    only_y = None if table.y_varies else learned.y_mean
    found = FitData(source, held_out, scaling, spread_of(scaling, learned), only_y, decisions=decisions)
    if run.group.world == 1:
        return found
    shared = None if held_out is None else SharedSource(held_out, run.group)
    return found._replace(train=SharedSource(source, run.group), held_out=shared)
