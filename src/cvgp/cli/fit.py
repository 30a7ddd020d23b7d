"""`cvgp fit`: from a table to a model file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from scipy.stats import skew

from cvgp.cli import options
from cvgp.cli.console import note, print_result, terminate_between_iterations
from cvgp.cli.info import summarize
from cvgp.data.rows import Array
from cvgp.errors import FileAccessError, InvalidInputError, WorkerError, printable
from cvgp.estimators.classifier import CVGPClassifier
from cvgp.estimators.display import model_facts
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.fitting.options import TrainingOptions
from cvgp.gp.kernels import parse_kernel_name
from cvgp.parallel import launched
from cvgp.parallel.group import current_group, process_group
from cvgp.tables.apply import near_names
from cvgp.tables.classes import are_classes, with_classes
from cvgp.tables.table import Table, names_in, read_table

Task = StrEnum("Task", ["CLASSIFY", "REGRESS"])
FEWEST_VALUES = 3  # with two values they are classes
SMALL_COUNT, CLEAR_SKEW = 10.0, 1.0  # the median of counts, and the skewness of a long tail


def fit(
    context: typer.Context,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A table: CSV, TSV, JSON lines, Excel, Parquet or Feather; a file, a glob or a folder."
        ),
    ],
    target: Annotated[str, typer.Option(help="The column to predict; all others are features.")],
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Where to save the model.")],
    columns: Annotated[
        dict[str, Any],
        options.OptionsOf(read_table, "Columns and rows", leave_out=("data", "target", *options.TEXT_FORMAT)),
    ],
    text: options.TextFormat,
    model: Annotated[
        dict[str, Any],
        options.OptionsOf(
            CVGPRegressor, "What to learn", leave_out=("verbose", "training"), defaults={"random_state": 0}
        ),
    ],
    of_classes: Annotated[
        dict[str, Any], options.OptionsOf(CVGPClassifier, "What to learn", only=("class_weight", "link"))
    ],
    training: Annotated[
        dict[str, Any], options.OptionsOf(TrainingOptions, "How to train", leave_out=("callbacks", "heuristics"))
    ],
    task: Annotated[
        Task | None, typer.Option(help="What to fit; by default, text, and true and false, are classes.")
    ] = None,
    overwrite: options.Overwrite = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Fit a model to a table and save it.

    Text columns become indicators, or effects of their levels where these are many. What is not given is chosen from
    the data.
    """
    start, is_first = time.perf_counter(), launched().rank == 0
    reading = {
        name: [n for words in given for n in names_in(words)] if isinstance(given, list) else given
        for name, given in {**columns, **options.csv_options(text)}.items()
        if given is not None
    }
    if is_first:
        options.check_output(out, data, overwrite=overwrite)
    if task is not None:
        options.refuse_others(context, task, f"--task is {task}")
    _check_kernel(model["kernel"])
    how_to_continue = partial(_how_to_continue, training["checkpoint_dir"])
    with process_group():  # alone, unless torchrun started other processes beside this one
        opened = _open(context, data, target, reading, task, quiet)
        estimator: Any = CVGPRegressor(verbose=int(not quiet))
        if opened.label is not None:
            estimator = CVGPClassifier(**of_classes, verbose=int(not quiet))
            model = {name: value for name, value in model.items() if name in estimator.get_params()}
        elif not quiet and model["likelihood"] == "gaussian" and model["target_transform"] in ("auto", "identity"):
            rows, _ = opened.learn(current_group()).rows.sample_in_numbers()
            if (hint := likelihood_hint(rows.y[:, 0])) is not None:
                note(f"{data}: {target} holds {hint}")
        estimator.set_params(**model, **{f"training__{name}": value for name, value in training.items()})
        # Progress goes to the standard error. A group is ended by its first worker, between two iterations of all.
        with how_to_continue(), redirect_stdout(sys.stderr), terminate_between_iterations() as end_here:
            estimator.set_params(training__callbacks=[end_here] if is_first else [])
            estimator.fit(opened)
    if not is_first:
        return  # the first process stores what all of them hold
    with how_to_continue():
        estimator.save(out)
    seconds = time.perf_counter() - start
    facts = {"model": str(out), "target": target, "seconds": seconds, **summarize(estimator)}
    facts |= {"rows_dropped": estimator.schema_["n_dropped"], "rows_skipped": estimator.n_bad_rows_}
    print_result(as_json, facts, {**model_facts(estimator), "time": f"{seconds:.1f} s", "saved": str(out)})


def _open(
    context: typer.Context, data: str, target: str, reading: dict[str, Any], task: str | None, quiet: bool
) -> Table:
    """The table, after a description of it on the standard error; with classes, unless the target is a number."""
    opened = read_table(data, target, **reading)
    how = opened.reading
    _check_target(target, opened.names, f"{data}, read with {how.describe()}," if how.sep else data)
    if task == "classify" or (task is None and are_classes(opened.opened, target)):
        options.refuse_others(context, "classify", f"{target!r} is a class")
        opened = with_classes(opened)
        if task is None:
            note(f"{target!r} is not a number, so a classifier of its {len(opened.classes)} classes is fitted.")
    else:
        options.refuse_others(context, "regress", f"{target!r} is a number")
    table = opened.learn(current_group())
    if left_out := table.bad.summary():
        note(f"{data}: {left_out}.")
    if not quiet:
        if how.sep is not None or not how.is_plain:
            note(f"{data}: {how.describe()}")
        several = f", {launched().world} workers" if launched().world > 1 else ""
        note(f"{data}: {table.describe()}{several}")
    return opened


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


def _check_target(target: str, columns: list[str], data: str) -> None:
    if target not in columns:
        meant = " or ".join(map(repr, near_names(target, columns)))
        hint = f"did you mean {meant}? It has" if meant else "it has"
        raise typer.BadParameter(
            f"{data} has no column {target!r}; {hint} {', '.join(map(printable, columns))}.", param_hint="'--target'"
        )


def likelihood_hint(y: Array) -> str | None:
    """What a target seems to be and the flag for it, in words; None if it may well be Gaussian."""
    if len(np.unique(y)) < FEWEST_VALUES or y.min() < 0.0:
        return None
    is_skewed = skew(y) > CLEAR_SKEW
    if (y == np.round(y)).all() and np.median(y) <= SMALL_COUNT and (y.min() == 0.0 or is_skewed):
        return "small whole numbers from 0 on. If they count events, --likelihood poisson or negative_binomial suits."
    if y.min() > 0.0 and y.max() < 1.0:
        return "numbers between 0 and 1. If they are proportions, --likelihood beta suits."
    if y.min() > 0.0 and is_skewed:
        return "positive numbers with a long tail. --target-transform log or --likelihood gamma may suit better."
    return None


def _check_kernel(name: str | None) -> None:
    if name not in (None, "auto"):
        try:
            parse_kernel_name(name)
        except InvalidInputError as error:
            raise typer.BadParameter(str(error), param_hint="'--kernel'") from error
