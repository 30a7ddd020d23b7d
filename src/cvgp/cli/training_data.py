"""The table that `cvgp fit` learns from."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import typer

from cvgp.cli.options import Impute, OnBadRows

if TYPE_CHECKING:
    from cvgp.data.tables.training_table import TrainingTable

__all__ = ["open_training_table"]


def open_training_table(data: str, target: str, impute: Impute | None, on_bad_rows: OnBadRows) -> TrainingTable:
    """The table as the estimator opens it, once the target is known to be in it."""
    from cvgp.data.tables.location import open_dataset
    from cvgp.data.tables.training_table import TrainingTable
    from cvgp.parallel.process_group import current_group

    dataset = open_dataset(data)
    _check_target(target, dataset.schema.names, data)
    rule: Any = None if impute is None else impute.value
    return TrainingTable(dataset, target, impute=rule, on_bad_rows=on_bad_rows.value, group=current_group())


def _check_target(target: str, columns: list[str], data: str) -> None:
    if target in columns:
        return
    similar = get_close_matches(target.lower(), [name.lower() for name in columns], n=3)
    meant = [name for name in columns if name.lower() in similar]
    hint = f"did you mean {' or '.join(repr(name) for name in meant)}? It has" if meant else "it has"
    raise typer.BadParameter(f"{data} has no column {target!r}; {hint} {', '.join(columns)}.", param_hint="'--target'")
