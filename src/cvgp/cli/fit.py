"""`cvgp fit`: from a table to a model file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from scipy.stats import skew

from cvgp.cli import options
from cvgp.cli.console import (
    is_terminal,
    note,
    print_result,
    print_table,
    progress,
    say,
    terminate_between_iterations,
)
from cvgp.cli.info import summarize
from cvgp.cli.predict import scored_rows, scores_of
from cvgp.data.rows import Array
from cvgp.errors import FileAccessError, InvalidInputError, WorkerError
from cvgp.estimators.classifier import CVGPClassifier
from cvgp.estimators.display import model_facts
from cvgp.estimators.predictive import score_rows
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.gp.kernels import parse_kernel_name
from cvgp.parallel import launched
from cvgp.parallel.group import current_group, process_group
from cvgp.tables.apply import names_to_choose
from cvgp.tables.classes import are_classes, with_classes
from cvgp.tables.read import Opened
from cvgp.tables.splits import split_table
from cvgp.tables.table import Table, TrainingTable, names_in, read_table

SMALL_COUNT, CLEAR_SKEW = 10.0, 1.0  # the median of counts, and the skewness of a long tail
FEW_LABELS = 10  # different whole numbers, which may name classes


@dataclass
class Asked:
    """What a command line asks to be fitted: a table, and an estimator with its options."""

    context: typer.Context
    data: str
    target: str
    columns: dict[str, Any]
    text: dict[str, Any]
    model: dict[str, Any]
    of_classes: dict[str, Any]
    training: dict[str, Any]
    task: str | None

    def table(self) -> Table:
        """The table, with the classes of its target unless this is a number."""
        if self.task is not None:
            options.refuse_others(self.context, self.task, f"--task is {self.task}")
        if self.model["kernel"] not in (None, "auto"):
            try:
                parse_kernel_name(self.model["kernel"])
            except InvalidInputError as error:
                raise typer.BadParameter(str(error), param_hint="'--kernel'") from error
        given = {**self.columns, **options.csv_options(self.text)}
        reading: dict[str, Any] = {
            name: [n for words in value for n in names_in(words)] if isinstance(value, list) else value
            for name, value in given.items()
            if value is not None
        }
        if "periods" in reading:
            reading["periods"] = options.named_numbers("periods", reading["periods"])
        opened = read_table(self.data, self.target, **reading)
        how = opened.reading
        if self.target not in opened.names:
            read = f"{self.data}, read with {how.describe()}," if how.sep else self.data
            raise typer.BadParameter(
                f"{read} has no column {self.target!r}; {names_to_choose(self.target, opened.names)}",
                param_hint="'--target'",
            )
        if self.task == "classify" or (self.task is None and are_classes(opened.opened, self.target)):
            options.refuse_others(self.context, "classify", f"{self.target!r} is a class")
            opened = with_classes(opened)
            if self.task is None:
                count = len(opened.classes)
                note(f"{self.target!r} is not a number, so a classifier of its {count} classes is fitted.")
        else:
            options.refuse_others(self.context, "regress", f"{self.target!r} is a number")
        return opened

    def splits(self, table: Table, **how: Any) -> Iterator[tuple[Table, Opened]]:
        """Pairs of the table to fit, and the one to score, as it was read."""
        raw = read_table(self.data, **options.csv_options(self.text)).opened
        how |= {name: self.columns[name] for name in ("groups", "time")}
        for train, test in split_table(raw, self.target, **how):
            yield replace(table, opened=replace(table.opened, chosen=train.chosen), _learned={}), test

    def estimator(self, table: Table, *, verbose: bool) -> Any:
        """A regressor, or a classifier if the target is a class."""
        estimator: Any = CVGPRegressor(verbose=int(verbose))
        if table.label is not None:
            estimator = CVGPClassifier(**self.of_classes, verbose=int(verbose))
        known = {name: value for name, value in self.model.items() if name in estimator.get_params()}
        return estimator.set_params(**known, **{f"training__{name}": value for name, value in self.training.items()})

    def hint(self, table: TrainingTable) -> None:
        """Print what the target seems to be, if an option may suit it better."""
        if self.model["likelihood"] == "gaussian" and self.model["target_transform"] in ("auto", "identity"):
            rows, _ = table.rows.sample_in_numbers()
            if self.task is None and (hint := likelihood_hint(rows.y[:, 0])) is not None:
                note(f"{self.data}: {self.target} holds {hint}")


def fit(
    context: typer.Context,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A table, as CSV, JSON lines, Excel, Parquet or Feather: a file, a glob or a folder."
        ),
    ],
    target: Annotated[str, typer.Option(metavar="COLUMN", help="The column to predict; all others are features.")],
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Where to save the model.")],
    columns: options.ColumnOptions,
    text: options.TextFormat,
    model: options.ModelOptions,
    of_classes: options.ClassOptions,
    training: options.TrainingOfCommand,
    test_size: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Hold out a share of the rows, such as .2, and score it."),
    ] = None,
    task: options.TaskOption = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Fit a model to a table and save it.

    What is not given is chosen from the data.
    """
    start, is_first = time.perf_counter(), launched().rank == 0
    if is_first:
        options.check_output(out, data, overwrite=overwrite)
    if test_size is not None and launched().world > 1:
        raise typer.BadParameter("is for one process; start one alone.", param_hint="'--test-size'")
    asked = Asked(context, data, target, columns, text, model, of_classes, training, task)
    how_to_continue = partial(_how_to_continue, training["checkpoint_dir"])
    with process_group():  # alone, unless torchrun started other processes beside this one
        opened, held_out = asked.table(), None
        if test_size is not None:
            ((opened, held_out),) = asked.splits(opened, test_size=test_size)
        _describe(opened, data, quiet)
        estimator = asked.estimator(opened, verbose=not quiet and not is_terminal())
        if opened.label is None and not quiet:
            asked.hint(opened.learn(current_group()))
        # Progress goes to the standard error. A group is ended by its first worker, between two iterations of all.
        shown = progress(quiet=quiet or not is_terminal(), limit=model["max_time"])
        with how_to_continue(), redirect_stdout(sys.stderr), terminate_between_iterations() as end_here, shown:
            estimator.set_params(training__callbacks=[end_here] if is_first else [])
            estimator.fit(opened)
    if not is_first:
        return  # the first process stores what all of them hold
    with how_to_continue():
        estimator.save(out)
    seconds = time.perf_counter() - start
    facts = {"model": str(out), "target": target, "seconds": seconds, **summarize(estimator)}
    facts |= {"rows_dropped": estimator.schema_["n_dropped"], "rows_skipped": estimator.n_bad_rows_}
    lines = {**model_facts(estimator), "time": f"{seconds:.1f} s", "saved": str(out)}
    if held_out is None:
        print_result(as_json, facts, lines)
        return
    rows = scored_rows(estimator, out, held_out, columns["on_bad_rows"])
    scores = scores_of(estimator, rows)
    print_result(as_json, facts | {"held_out": {"rows": len(rows.y), "scores": scores}}, lines)
    if not as_json:
        say(f"Scores of the {len(rows.y)} rows that were held out:")
        print_table(["", *scores], score_rows(scores))


def _describe(opened: Table, data: str, quiet: bool) -> None:
    """Print how a table was read and what it has, on the standard error."""
    how, table = opened.reading, opened.learn(current_group())
    if left_out := table.bad.summary():
        note(f"{data}: {left_out}.")
    if not quiet:
        if how.sep is not None or not how.is_plain:
            note(f"{data}: {how.describe()}")
        several = f", {launched().world} workers" if launched().world > 1 else ""
        note(f"{data}: {table.describe()}{several}")


@contextmanager
def _how_to_continue(folder: Path | None) -> Iterator[None]:
    """Add advice on resuming to whatever ends a fit before its model is stored."""
    advice = f"The same command continues from the progress in {folder}."
    if folder is None:
        advice = "Progress was not kept; --checkpoint-dir FOLDER keeps it the next time."
    try:
        yield
    except (WorkerError, FileAccessError) as error:
        raise type(error)(f"{error}\n{advice}") from error
    except KeyboardInterrupt as stop:
        raise type(stop)(advice) from stop


def likelihood_hint(y: Array) -> str | None:
    """What a target seems to be and the flag for it, in words; None if it may well be Gaussian."""
    values, is_whole = np.unique(y), bool((y == np.round(y)).all())
    if len(values) == 2:
        return f"two values, {values[0]:g} and {values[1]:g}. If they are classes, --task classify suits."
    if len(values) < 2 or y.min() < 0.0:
        return None
    is_skewed = skew(y) > CLEAR_SKEW
    if is_whole and np.median(y) <= SMALL_COUNT and (y.min() == 0.0 or is_skewed):
        return "small whole numbers from 0 on. If they count events, --likelihood poisson or negative_binomial suits."
    if is_whole and len(values) <= FEW_LABELS and y.max() <= SMALL_COUNT:
        return f"{len(values)} small whole numbers. If they name classes, --task classify suits."
    if y.min() > 0.0 and y.max() < 1.0:
        return "numbers between 0 and 1. If they are proportions, --likelihood beta suits."
    if y.min() > 0.0 and is_skewed:
        return "positive numbers with a long tail. --target-transform log or --likelihood gamma may suit better."
    return None
