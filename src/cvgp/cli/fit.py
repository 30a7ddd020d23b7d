"""`cvgp fit`: from a table to a model file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from cvgp.cli import options
from cvgp.cli.console import note, print_result, terminate_between_iterations
from cvgp.cli.info import summarize
from cvgp.errors import FileAccessError, InvalidInputError, WorkerError, printable
from cvgp.estimators.display import model_facts
from cvgp.estimators.regressor import CVGPRegressor
from cvgp.fitting.options import TrainingOptions
from cvgp.gp.kernels import parse_kernel_name
from cvgp.parallel import launched
from cvgp.parallel.group import current_group, process_group
from cvgp.tables.apply import near_names
from cvgp.tables.table import names_in, read_table


def fit(
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
    training: Annotated[
        dict[str, Any], options.OptionsOf(TrainingOptions, "How to train", leave_out=("callbacks", "heuristics"))
    ],
    ray: options.Ray = None,
    workers: options.Workers = 2,
    overwrite: options.Overwrite = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Fit a model to a table and save it.

    Text columns become indicators, or effects of their levels where these are many. What is not given is chosen from
    the data.
    """
    start, folder, is_first = time.perf_counter(), training["checkpoint_dir"], launched().rank == 0
    lists = {
        name: [n for words in given for n in names_in(words)] for name, given in columns.items() if type(given) is list
    }
    reading = {
        name: given for name, given in {**columns, **lists, **options.csv_options(text)}.items() if given is not None
    }
    if is_first:
        options.check_output(out, data, overwrite=overwrite)
    if ray is not None and folder is None:
        raise typer.BadParameter(
            "workers of a cluster keep their progress in a folder that all of them reach; name it.",
            param_hint="'--checkpoint-dir'",
        )
    _check_kernel(model["kernel"])
    parameters = {**model, **{f"training__{name}": value for name, value in training.items()}}
    if ray is None:
        with process_group():  # alone, unless torchrun started other processes beside this one
            fitted = _fit(data, target, reading, parameters, quiet)
    else:
        if not quiet:
            note(f"{data}: fitted by {workers} workers of the cluster at {ray}")
        fitted = _fit_on_ray(ray, workers, data, target, reading, parameters)
    if not is_first:
        return  # the first process stores what all of them hold
    with _how_to_continue(folder):
        fitted.save(out)
    seconds = time.perf_counter() - start
    facts = {"rows_dropped": fitted.schema_["n_dropped"], "rows_skipped": fitted.n_bad_rows_, **summarize(fitted)}
    print_result(
        as_json,
        {"model": str(out), "target": target, "seconds": seconds, **facts},
        {**model_facts(fitted), "time": f"{seconds:.1f} s", "saved": str(out)},
    )


def _fit(data: str, target: str, reading: dict[str, Any], parameters: dict[str, Any], quiet: bool) -> CVGPRegressor:
    opened = read_table(data, target, **reading)
    how = opened.reading
    _check_target(target, opened.names, f"{data}, read with {how.describe()}," if how.sep else data)
    table = opened.learn(current_group())
    if left_out := table.bad.summary():
        note(f"{data}: {left_out}.")
    if not quiet:
        if how.sep is not None or not how.is_plain:
            note(f"{data}: {how.describe()}")
        several = f", {launched().world} workers" if launched().world > 1 else ""
        note(f"{data}: {table.describe()}{several}")
    model = CVGPRegressor(verbose=int(not quiet)).set_params(**parameters)
    # Progress goes to the standard error. A group is ended by its first worker, between two iterations of all.
    with (
        _how_to_continue(parameters["training__checkpoint_dir"]),
        redirect_stdout(sys.stderr),
        terminate_between_iterations() as end_here,
    ):
        return model.set_params(training__callbacks=[end_here] if launched().rank == 0 else []).fit(opened)


def _fit_on_ray(
    address: str, workers: int, data: str, target: str, reading: dict[str, Any], parameters: dict[str, Any]
) -> CVGPRegressor:
    from cvgp.adapters import ray

    storage = parameters.pop("training__checkpoint_dir")
    ray.connect(address)
    with _how_to_continue(storage):
        return ray.fit(
            data, target, storage=storage, name="fit", num_workers=workers, fit_options=reading, **parameters
        )


@contextmanager
def _how_to_continue(folder: Path | None) -> Iterator[None]:
    """Add to what ends a fit before its model is stored how to go on with it."""
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
    if target in columns:
        return
    meant = near_names(target, columns)
    hint = f"did you mean {' or '.join(repr(name) for name in meant)}? It has" if meant else "it has"
    raise typer.BadParameter(
        f"{data} has no column {target!r}; {hint} {', '.join(map(printable, columns))}.", param_hint="'--target'"
    )


def _check_kernel(name: str | None) -> None:
    """Raise for an unknown kernel before the table is read."""
    if name not in (None, "auto"):
        try:
            parse_kernel_name(name)
        except InvalidInputError as error:
            raise typer.BadParameter(str(error), param_hint="'--kernel'") from error
