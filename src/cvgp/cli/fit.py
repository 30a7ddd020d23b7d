"""`cvgp fit`: from a table to a model file."""

from __future__ import annotations

import time
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvgp.cli.checked_values import count_or_auto, known_kernel, not_zero, positive, share
from cvgp.cli.checkpoints import check_folder, how_to_go_on
from cvgp.cli.console import note, print_facts, print_json
from cvgp.cli.guard import terminate_between_iterations
from cvgp.cli.model_files import check_can_write
from cvgp.cli.options import (
    AsJson,
    Dates,
    Decimal,
    Encoding,
    Impute,
    OnBadRows,
    Quiet,
    Ray,
    Sep,
    Thousands,
    Workers,
    csv_options,
)
from cvgp.cli.progress import show_progress
from cvgp.errors import FileAccessError, InvalidInputError, WorkerError
from cvgp.gp.kernel_names import KERNEL_NAMES
from cvgp.parallel.launcher import launched
from cvgp.printable import printable

if TYPE_CHECKING:
    from cvgp.data.tables.training_table import TrainingTable
    from cvgp.estimators.regressor import CVGPRegressor

# The value of each choice is its name in lower case, unless it is given.
Init = StrEnum("Init", ["KMEANS", "RANDOM", "GREEDY"])
Target = StrEnum("Target", {"IDENTITY": "identity", "AUTO": "auto", "LOG": "log", "YEO_JOHNSON": "yeo-johnson"})
Inputs = StrEnum("Inputs", ["AUTO", "IDENTITY", "RANK", "MIXED"])
Noise = StrEnum("Noise", {"AUTO": "auto", "CONSTANT": "constant", "INPUT_DEPENDENT": "input-dependent"})
Solver = StrEnum("Solver", ["AUTO", "LBFGS", "ADAM", "PAPER"])
Bound = StrEnum("Bound", ["AUTO", "ELBO", "TIGHT", "POWER"])
Dtype = StrEnum("Dtype", ["AUTO", "FLOAT32", "FLOAT64"])

# Options by the panel of the help page that shows them.
of_columns = partial(typer.Option, rich_help_panel="Columns")
of_model = partial(typer.Option, rich_help_panel="What to learn")
of_training = partial(typer.Option, rich_help_panel="How to learn it")
of_run = partial(typer.Option, rich_help_panel="Running")


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
    impute: Annotated[
        Impute | None, typer.Option(help="Fill missing values or drop their rows; by default they are learned from.")
    ] = None,
    dates: Annotated[
        Dates, typer.Option(help="Refuse dates, or expand them to trend, season, weekday and hour.")
    ] = Dates.REFUSE,
    on_bad_rows: Annotated[
        OnBadRows, typer.Option(help="Stop at a row that cannot be used, or leave it out and count it.")
    ] = OnBadRows.ERROR,
    drop: Annotated[list[str] | None, of_columns(metavar="A,B", help="Columns to leave out.")] = None,
    features: Annotated[list[str] | None, of_columns(metavar="A,B", help="The only columns to use.")] = None,
    keep: Annotated[
        list[str] | None,
        of_columns(metavar="A,B", help="Columns to use even if they are constant, or number or name the rows."),
    ] = None,
    sep: Sep = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    coreset: Annotated[str, of_model(metavar="N|auto", help="Number of pseudo-points.")] = "auto",
    kernel: Annotated[
        str | None,
        of_model(
            metavar="NAME",
            help=f"{', '.join(KERNEL_NAMES)}, several joined by + and *, or auto.",
            callback=known_kernel,
        ),
    ] = None,
    neighbors: Annotated[
        str, of_model(metavar="K|auto", help="Nearest training rows that a prediction consults; 0 for none.")
    ] = "auto",
    ard: Annotated[bool, of_model("--ard/--no-ard", help="One lengthscale per feature, or one for all.")] = True,
    noise: Annotated[Noise, of_model(help="One noise level, or one for each place.")] = Noise.AUTO,
    target_transform: Annotated[
        Target, of_model(help="What is Gaussian: the target, its logarithm, or a power of it.")
    ] = Target.IDENTITY,
    inputs: Annotated[Inputs, of_model(help="The features, their ranks, or a learned mixture of both.")] = Inputs.AUTO,
    init: Annotated[Init, of_model(help="Where the coreset starts.")] = Init.KMEANS,
    solver: Annotated[Solver, of_training(help="L-BFGS, Adam or the paper's recipe.")] = Solver.AUTO,
    bound: Annotated[Bound, of_training(help="The paper's bound, the tighter one, or power EP.")] = Bound.AUTO,
    power: Annotated[
        float, of_training(help="Of power EP: above 0 (Titsias' bound) and at most 1 (FITC).", callback=share)
    ] = 0.5,
    max_iter: Annotated[int | None, of_training(min=1, help="Adam steps, or L-BFGS evaluations.")] = None,
    max_time: Annotated[
        float | None, of_training(help="Seconds after which to keep the best so far.", callback=positive)
    ] = None,
    batch_size: Annotated[int | None, of_training(min=1, help="Rows per Adam step.")] = None,
    learning_rate: Annotated[float | None, of_training(help="Largest step size of Adam.", callback=positive)] = None,
    early_stopping: Annotated[
        bool, of_training("--early-stopping", help="Hold rows out and keep the best on them.")
    ] = False,
    dtype: Annotated[Dtype, of_run(help="Precision of the products with data.")] = Dtype.AUTO,
    device: Annotated[str, of_run(help="'auto' is the CPU; or a torch device.")] = "auto",
    n_jobs: Annotated[
        int | None, of_run(help="Threads; -1 is all. By default as many as are worth it.", callback=not_zero)
    ] = None,
    seed: Annotated[int, of_run(min=0, max=2**32 - 1, help="The same seed, the same model.")] = 0,
    checkpoint_dir: Annotated[Path | None, of_run(help="Folder for progress, to go on after an interruption.")] = None,
    resume: Annotated[bool, of_run("--resume", help="Go on with the run in --checkpoint-dir.")] = False,
    ray: Ray = None,
    workers: Workers = 2,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model to a table and save it.

    Text columns become indicators, or effects of their levels where these are many. What is not given is chosen from
    the data.
    """
    size, count = count_or_auto("--coreset", coreset, 1), count_or_auto("--neighbors", neighbors, 0)
    reading: dict[str, Any] = {
        "impute": None if impute is None else impute.value,
        "on_bad_rows": on_bad_rows.value,
        "csv": csv_options(sep, decimal, thousands, encoding),
        "drop": _names(drop),
        "features": None if features is None else _names(features),
        "keep": _names(keep),
    }
    worker = launched()
    if worker.rank == 0:
        check_can_write(out)
    if ray is not None:
        from cvgp.cli.cluster import check_storage

        check_storage(checkpoint_dir, resume)
    elif worker.rank == 0:
        check_folder(checkpoint_dir, resume)
    _check_device(device)
    parameters: dict[str, Any] = {
        "n_coreset": size,
        "kernel": kernel,
        "neighbors": count,
        "ard": ard,
        "noise": noise.value,
        "target": target_transform.value,
        "inputs": inputs.value,
        "dates": "features" if dates is Dates.EXPAND else "refuse",
        "init": init.value,
        "solver": solver.value,
        "bound": bound.value,
        "power": power,
        "max_iter": max_iter,
        "max_time": max_time,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "early_stopping": early_stopping,
        "dtype": dtype.value,
        "device": device,
        "n_jobs": n_jobs,
        "random_state": seed,
        "checkpoint_dir": checkpoint_dir,
    }
    if ray is not None:
        from cvgp.cli.cluster import fit_on_ray

        if not quiet:
            note(f"{data}: fitted by {workers} workers of the cluster at {ray}")
        start = time.perf_counter()
        model = fit_on_ray(ray, workers, data, target, reading, parameters)
        _finish(model, out, target, time.perf_counter() - start, as_json)
        return
    from cvgp.parallel.process_group import process_group

    with process_group():  # alone, unless torchrun started other processes beside this one
        table = _open_table(data, target, {**reading, "dates": parameters["dates"]})
        left_out = table.survey.bad.summary()
        if left_out:
            note(f"{data}: {left_out}.")
        if not quiet:
            if table.reading.sep is not None or not table.reading.is_plain:
                note(f"{data}: {table.reading.describe()}")
            several = f", {worker.world} workers" if worker.world > 1 else ""
            note(f"{data}: {table.describe()}{several}")
        start = time.perf_counter()
        model = _fit(parameters, table, target, quiet or worker.rank > 0)
        seconds = time.perf_counter() - start
    if worker.rank > 0:
        return  # the first one stores what all of them hold
    _finish(model, out, target, seconds, as_json)


def _names(given: list[str] | None) -> list[str]:
    """The names of all flags of an option, each with one or several."""
    from cvgp.data.tables.choice import names_in

    return [name for text in given or () for name in names_in(text)]


def _open_table(data: str, target: str, reading: dict[str, Any]) -> TrainingTable:
    """The table as the estimator opens it, once the target is known to be in it."""
    from cvgp.data.tables.location import open_dataset
    from cvgp.data.tables.notes import notes_of
    from cvgp.data.tables.training_table import TrainingTable
    from cvgp.parallel.process_group import current_group

    dataset = open_dataset(data, reading["csv"])
    how = notes_of(dataset).reading
    _check_target(target, dataset.schema.names, f"{data}, read with {how.describe()}," if how.sep else data)
    return TrainingTable(dataset, target, **{**reading, "csv": None}, group=current_group())


def _check_target(target: str, columns: list[str], data: str) -> None:
    if target in columns:
        return
    from cvgp.data.tables.choice import near_names

    meant = near_names(target, columns)
    hint = f"did you mean {' or '.join(repr(name) for name in meant)}? It has" if meant else "it has"
    raise typer.BadParameter(
        f"{data} has no column {target!r}; {hint} {', '.join(map(printable, columns))}.", param_hint="'--target'"
    )


def _finish(model: CVGPRegressor, out: Path, target: str, seconds: float, as_json: bool) -> None:
    """Store the model, and say what it is."""
    from cvgp.cli.info import as_text, summarise

    try:
        model.save(out)
    except FileAccessError as error:
        raise FileAccessError(f"{error}\n{how_to_go_on(model.checkpoint_dir)}") from error
    except KeyboardInterrupt as stop:
        raise type(stop)(how_to_go_on(model.checkpoint_dir)) from stop
    facts = summarise(model)
    if as_json:
        left_out = {"rows_dropped": model.schema_["n_dropped"], "rows_skipped": model.n_bad_rows_}
        print_json({"model": str(out), "target": target, "seconds": seconds, **left_out, **facts})
    else:
        print_facts({**as_text(facts, model), "time": f"{seconds:.1f} s", "saved": str(out)})


def _fit(parameters: dict[str, Any], table: TrainingTable, target: str, quiet: bool) -> CVGPRegressor:
    from cvgp.estimators.regressor import CVGPRegressor

    model = CVGPRegressor(**parameters)
    try:
        with show_progress(model.max_time, quiet=quiet) as callbacks, terminate_between_iterations() as end_here:
            # A group is ended by its first worker, between two iterations of all.
            ending = [end_here] if launched().rank == 0 else []
            model.set_params(callbacks=[*callbacks, *ending]).fit(table, target)
    except WorkerError as error:
        raise WorkerError(f"{error}\n{how_to_go_on(model.checkpoint_dir)}") from error
    except KeyboardInterrupt as stop:
        raise type(stop)(how_to_go_on(model.checkpoint_dir)) from stop
    return model


def _check_device(name: str) -> None:
    if name == "auto":
        return
    from cvgp.estimators.inputs import known_device

    try:
        known_device(name)
    except InvalidInputError as error:
        raise typer.BadParameter(str(error), param_hint="'--device'") from error
