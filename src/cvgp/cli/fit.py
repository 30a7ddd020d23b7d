"""`cvgp fit`: from a table to a model file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvgp.cli.checkpoints import check_folder, how_to_go_on
from cvgp.cli.console import note, print_facts, print_json
from cvgp.cli.files import check_can_write, features
from cvgp.cli.options import AsJson, Bound, Dtype, Impute, Init, Kernel, Quiet, Solver, positive
from cvgp.cli.progress import show_progress
from cvgp.cli.signals import terminate_between_iterations
from cvgp.errors import FileAccessError

if TYPE_CHECKING:
    from cvgp.data.schema import Schema
    from cvgp.estimators.regressor import CVGPRegressor

__all__ = ["fit"]

MODEL, TRAINING, RUN = "What to learn", "How to learn it", "Running"


def fit(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="A table: CSV, TSV, Parquet or Feather.")],
    target: Annotated[str, typer.Option(help="The column to predict; all others are features.")],
    out: Annotated[Path, typer.Option(metavar="MODEL", help="Where to save the model.")],
    impute: Annotated[Impute | None, typer.Option(help="What to do about missing values.")] = None,
    coreset: Annotated[
        str, typer.Option(metavar="N|auto", help="Number of pseudo-points.", rich_help_panel=MODEL)
    ] = "auto",
    kernel: Annotated[
        Kernel | None, typer.Option(help="Covariance function; chosen by default.", rich_help_panel=MODEL)
    ] = None,
    ard: Annotated[
        bool, typer.Option("--ard/--no-ard", help="One lengthscale a feature, or one for all.", rich_help_panel=MODEL)
    ] = True,
    init: Annotated[Init, typer.Option(help="Where the coreset starts.", rich_help_panel=MODEL)] = Init.KMEANS,
    solver: Annotated[
        Solver, typer.Option(help="L-BFGS, Adam or the paper's recipe.", rich_help_panel=TRAINING)
    ] = Solver.AUTO,
    bound: Annotated[
        Bound, typer.Option(help="The paper's bound or the tighter one.", rich_help_panel=TRAINING)
    ] = Bound.AUTO,
    max_iter: Annotated[
        int | None, typer.Option(min=1, help="Adam steps, or L-BFGS evaluations.", rich_help_panel=TRAINING)
    ] = None,
    max_time: Annotated[
        float | None,
        typer.Option(help="Seconds after which to keep the best so far.", callback=positive, rich_help_panel=TRAINING),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Rows an Adam step.", rich_help_panel=TRAINING)] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Largest step size of Adam.", callback=positive, rich_help_panel=TRAINING)
    ] = None,
    early_stopping: Annotated[
        bool,
        typer.Option("--early-stopping", help="Hold rows out and keep the best on them.", rich_help_panel=TRAINING),
    ] = False,
    dtype: Annotated[
        Dtype, typer.Option(help="Precision of the products with data.", rich_help_panel=RUN)
    ] = Dtype.AUTO,
    device: Annotated[str, typer.Option(help="'auto' is the CPU; or a torch device.", rich_help_panel=RUN)] = "auto",
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="The same seed, the same model.", rich_help_panel=RUN)
    ] = 0,
    checkpoint_dir: Annotated[
        Path | None, typer.Option(help="Folder for progress, to go on after an interruption.", rich_help_panel=RUN)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --checkpoint-dir.", rich_help_panel=RUN)
    ] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Fit a model to a table and save it.

    Text columns become one indicator a category. Everything that is not said is chosen from the data.
    """
    size = _coreset_size(coreset)
    check_can_write(out)
    check_folder(checkpoint_dir, resume)
    _check_device(device)
    schema, x, y = _read(data, target, impute)

    from cvgp.cli.baselines import Baselines
    from cvgp.cli.summary import as_text, summarise
    from cvgp.estimators.regressor import CVGPRegressor

    if not quiet:
        note(f"{data}: {len(y)} rows, {len(schema.columns)} columns as {len(schema.feature_names)} features")
    parameters: dict[str, Any] = {
        "n_coreset": size,
        "kernel": None if kernel is None else kernel.value,
        "ard": ard,
        "init": init.value,
        "solver": solver.value,
        "bound": bound.value,
        "max_iter": max_iter,
        "max_time": max_time,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "early_stopping": early_stopping,
        "dtype": dtype.value,
        "device": device,
        "random_state": seed,
        "checkpoint_dir": checkpoint_dir,
    }
    model = CVGPRegressor(**parameters)
    seconds = _fit(model, features(schema, x), y, quiet)
    model.schema_ = schema.to_json()
    model.baselines_ = Baselines.learn(x, y).to_json()
    _save(model, out)
    facts = summarise(model)
    if as_json:
        print_json({"model": str(out), "target": target, "seconds": seconds, "rows_dropped": schema.n_dropped, **facts})
    else:
        print_facts({**as_text(facts, model), "time": f"{seconds:.1f} s", "saved": str(out)})


def _fit(model: CVGPRegressor, x: Any, y: Any, quiet: bool) -> float:
    start = time.perf_counter()
    try:
        with show_progress(model.max_time, quiet=quiet) as callbacks, terminate_between_iterations() as end_here:
            model.set_params(callbacks=[*callbacks, end_here]).fit(x, y)
    except KeyboardInterrupt as stop:
        raise type(stop)(how_to_go_on(_folder(model))) from stop
    return time.perf_counter() - start


def _save(model: CVGPRegressor, out: Path) -> None:
    try:
        model.save(out)
    except FileAccessError as error:
        raise FileAccessError(f"{error}\n{how_to_go_on(_folder(model))}") from error


def _folder(model: CVGPRegressor) -> Path | None:
    return None if model.checkpoint_dir is None else Path(model.checkpoint_dir)


def _read(data: Path, target: str, impute: Impute | None) -> tuple[Schema, Any, Any]:
    from cvgp.data.schema import Schema
    from cvgp.data.tables import read_table

    frame = read_table(data)
    if target not in frame.columns:
        raise typer.BadParameter(_no_such_column(target, list(frame.columns), data), param_hint="'--target'")
    schema = Schema.learn(frame, target, None if impute is None else impute.value)
    if schema.n_dropped:
        note(f"Left out {schema.n_dropped} of {len(frame)} rows, which have missing values.")
    return schema, *schema.encode_both(frame)


def _no_such_column(target: str, columns: list[str], data: Path) -> str:
    from difflib import get_close_matches

    similar = get_close_matches(target.lower(), [name.lower() for name in columns], n=3)
    meant = [name for name in columns if name.lower() in similar]
    hint = f"did you mean {' or '.join(repr(name) for name in meant)}? It has" if meant else "it has"
    return f"{data} has no column {target!r}; {hint} {', '.join(columns)}."


def _coreset_size(text: str) -> Any:
    if text == "auto":
        return text
    if not (text.isdecimal() and int(text) > 0):
        raise typer.BadParameter(f"{text!r} is neither 'auto' nor a whole number above 0.", param_hint="'--coreset'")
    return int(text)


def _check_device(name: str) -> None:
    if name == "auto":
        return
    import torch

    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise typer.BadParameter(
            f"torch cannot use {name!r} here ({reason}); use 'auto' or 'cpu'.", param_hint="'--device'"
        ) from error
