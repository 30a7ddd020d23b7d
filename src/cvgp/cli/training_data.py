"""What `cvgp fit` learns from: a table that is loaded, or one that is read in parts."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from cvgp.cli.model_files import features
from cvgp.cli.options import Impute, OnBadRows
from cvgp.errors import InvalidInputError, InvalidTypeError

if TYPE_CHECKING:
    from cvgp.data.schema import Schema

__all__ = ["TrainingData", "read_training_data"]


class TrainingData(NamedTuple):
    """Rows, or where they are, and what there is to say about them."""

    x: Any
    """Features under their names, or a table in files."""
    y: Any
    """Targets, or the name of their column."""
    schema: Schema
    sample: tuple[Any, Any]
    """Features and targets of all rows, or of a random sample of very many."""
    description: str
    left_out: str
    """Which rows were, in words."""
    num_skipped: int


def read_training_data(data: str, target: str, impute: Impute | None, on_bad_rows: OnBadRows) -> TrainingData:
    """One small file is loaded as a whole; anything else is looked through first, and loaded if it is small."""
    from cvgp.data.tables.training_table import is_small_file

    rule = None if impute is None else impute.value
    if is_small_file(data):
        return _load_file(data, target, rule, on_bad_rows)
    return _look_through(data, target, rule, on_bad_rows)


def _load_file(data: str, target: str, impute: Any, on_bad_rows: OnBadRows) -> TrainingData:
    from cvgp.data.schema import Schema
    from cvgp.data.tables.bad_rows import bad_cells
    from cvgp.data.tables.whole import read_table

    frame = read_table(Path(data))
    _check_target(target, list(frame.columns), data)
    total = len(frame)
    words = []
    skipped = 0
    try:
        if on_bad_rows is OnBadRows.SKIP:
            names = list(frame.columns)
            bad, first_column = bad_cells(frame, names, missing_is_bad=impute is None)
            if impute is not None and impute != "drop":
                no_target, _ = bad_cells(frame, [target], missing_is_bad=True)
                bad, first_column = bad | no_target, first_column or target
            skipped = int(bad.sum())
            if skipped == total:
                raise InvalidInputError(f"No row of the table is left to learn from; all {total} are bad.")
            if skipped:
                row = int(bad.argmax()) + 1
                words.append(f"{skipped} bad rows were left out, the first of them: data row {row}, {first_column!r}")
                frame = frame[~bad].reset_index(drop=True)
        schema = Schema.learn(frame, target, impute)
        x, y = schema.encode_both(frame)
    except (InvalidInputError, InvalidTypeError) as error:
        raise type(error)(f"{data}: {error}") from error
    if schema.n_dropped:
        words.append(f"{schema.n_dropped} of {total} rows, which have missing values, were left out")
    size = f"{len(y)} rows, {len(schema.columns)} columns as {len(schema.feature_names)} features (loaded)"
    return TrainingData(features(schema, x), y, schema, (x, y), size, "; ".join(words), skipped)


def _look_through(data: str, target: str, impute: Any, on_bad_rows: OnBadRows) -> TrainingData:
    from cvgp.data.tables.dataset import open_dataset
    from cvgp.data.tables.training_table import TrainingTable
    from cvgp.parallel.process_group import current_group

    dataset = open_dataset(data)
    _check_target(target, dataset.schema.names, data)
    table = TrainingTable(dataset, target, impute=impute, on_bad_rows=on_bad_rows.value, group=current_group())
    schema, sample, bad = table.schema, table.sample(), table.survey.bad
    assert schema is not None, "there is one target"
    rows = (sample.x, sample.y[:, 0])
    return TrainingData(table, target, schema, rows, table.describe(), bad.summary(), bad.skipped)


def _check_target(target: str, columns: list[str], data: str) -> None:
    if target in columns:
        return
    similar = get_close_matches(target.lower(), [name.lower() for name in columns], n=3)
    meant = [name for name in columns if name.lower() in similar]
    hint = f"did you mean {' or '.join(repr(name) for name in meant)}? It has" if meant else "it has"
    raise typer.BadParameter(f"{data} has no column {target!r}; {hint} {', '.join(columns)}.", param_hint="'--target'")
