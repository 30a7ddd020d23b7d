"""`cvgp fit`: from a table to a model file."""

from __future__ import annotations

import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvgp.cli.console import note, print_facts, print_json, terminate_between_iterations
from cvgp.cli.options import (
    AsJson,
    Overwrite,
    Quiet,
    Ray,
    Workers,
    check_output,
    command,
    csv_options,
    options_of,
    text_format,
)
from cvgp.errors import FileAccessError, InvalidInputError, WorkerError, printable
from cvgp.parallel import launched

if TYPE_CHECKING:
    from cvgp.estimators.regressor import CVGPRegressor

TRAINING = "training__"


def fit(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A table: CSV, TSV, JSON lines, Excel, Parquet, Feather or sqlite:///file::table; a file, a glob or a "
            "folder.",
        ),
    ],
    target: Annotated[str, typer.Option(help="The column to predict; all others are features.")],
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Where to save the model.")],
    columns: dict[str, Any],
    text: dict[str, Any],
    model: dict[str, Any],
    training: dict[str, Any],
    ray: Ray = None,
    workers: Workers = 2,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model to a table and save it.

    Text columns become indicators, or effects of their levels where these are many. What is not given is chosen from
    the data.
    """
    from cvgp.tables.table import names_in

    reading = {name: given for name, given in {**columns, **csv_options(text)}.items() if given is not None}
    for name, given in reading.items():
        if isinstance(given, list):
            reading[name] = [each for words in given for each in names_in(words)]
    worker = launched()
    if worker.rank == 0:
        check_output(out, data, overwrite=overwrite)
        if ray is not None and training["checkpoint_dir"] is None:
            raise typer.BadParameter(
                "workers of a cluster keep their progress in a folder that all of them reach; name it.",
                param_hint="'--checkpoint-dir'",
            )
    _check_kernel(model["kernel"])
    parameters = {**model, **{f"{TRAINING}{name}": value for name, value in training.items()}}
    start = time.perf_counter()
    if ray is not None:
        from cvgp.cli.cluster import fit_on_ray

        if not quiet:
            note(f"{data}: fitted by {workers} workers of the cluster at {ray}")
        fitted = fit_on_ray(ray, workers, data, target, reading, parameters)
    else:
        from cvgp.parallel.process_group import process_group

        with process_group():  # alone, unless torchrun started other processes beside this one
            fitted = _fit(data, target, reading, parameters, quiet)
    if worker.rank == 0:  # which stores what all of them hold
        _finish(fitted, out, target, time.perf_counter() - start, as_json)


def build(name: str) -> Any:
    """The command, with options from the library."""
    from cvgp.estimators.regressor import CVGPRegressor
    from cvgp.fitting.options import TrainingOptions
    from cvgp.tables.table import read_table

    of_file = {"data", "target", *(option.name for option in text_format())}
    return command(
        fit,
        columns=options_of(read_table, "Columns and rows", leave_out=of_file),
        text=text_format(),
        model=options_of(CVGPRegressor, "What to learn", leave_out=("verbose", "training"), random_state=0),
        training=options_of(TrainingOptions, "How to train", leave_out=("callbacks", "heuristics")),
    )


def _fit(data: str, target: str, reading: dict[str, Any], parameters: dict[str, Any], quiet: bool) -> CVGPRegressor:
    from cvgp.estimators.regressor import CVGPRegressor
    from cvgp.parallel.process_group import current_group
    from cvgp.tables.table import read_table

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
    try:
        with redirect_stdout(sys.stderr), terminate_between_iterations() as end_here:
            ending = [end_here] if launched().rank == 0 else []
            return model.set_params(**{f"{TRAINING}callbacks": ending}).fit(opened)
    except WorkerError as error:
        raise WorkerError(f"{error}\n{_how_to_continue(model)}") from error
    except KeyboardInterrupt as stop:
        raise type(stop)(_how_to_continue(model)) from stop


def _finish(model: CVGPRegressor, out: Path, target: str, seconds: float, as_json: bool) -> None:
    """Store the model, and say what it is."""
    from cvgp.cli.info import as_text, summarize

    try:
        model.save(out)
    except FileAccessError as error:
        raise FileAccessError(f"{error}\n{_how_to_continue(model)}") from error
    except KeyboardInterrupt as stop:
        raise type(stop)(_how_to_continue(model)) from stop
    facts = summarize(model)
    if as_json:
        left_out = {"rows_dropped": model.schema_["n_dropped"], "rows_skipped": model.n_bad_rows_}
        print_json({"model": str(out), "target": target, "seconds": seconds, **left_out, **facts})
    else:
        print_facts({**as_text(facts, model), "time": f"{seconds:.1f} s", "saved": str(out)})


def _how_to_continue(model: CVGPRegressor) -> str:
    """What to tell a user whose fit ended before its model was stored."""
    folder = model.get_params()[f"{TRAINING}checkpoint_dir"]
    if folder is None:
        return "Progress was not kept; --checkpoint-dir FOLDER keeps it the next time."
    return f"The same command continues from the progress in {folder}."


def _check_target(target: str, columns: list[str], data: str) -> None:
    if target in columns:
        return
    from cvgp.tables.apply import near_names

    meant = near_names(target, columns)
    hint = f"did you mean {' or '.join(repr(name) for name in meant)}? It has" if meant else "it has"
    raise typer.BadParameter(
        f"{data} has no column {target!r}; {hint} {', '.join(map(printable, columns))}.", param_hint="'--target'"
    )


def _check_kernel(name: str | None) -> None:
    """Raise for an unknown kernel before the table is read."""
    from cvgp.gp.kernel_names import parse_kernel_name

    if name not in (None, "auto"):
        try:
            parse_kernel_name(name)
        except InvalidInputError as error:
            raise typer.BadParameter(str(error), param_hint="'--kernel'") from error
