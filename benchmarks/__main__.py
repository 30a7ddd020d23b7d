"""``python -m benchmarks``: run measurements, and print their tables from what is stored."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from benchmarks import defaults as defaults_benchmark
from benchmarks import defaults_table, quality_table
from benchmarks import quality as quality_benchmark
from benchmarks.datasets import DATASETS, NUM_FOLDS, load
from benchmarks.markdown import fill
from benchmarks.runner import Task, run_tasks
from benchmarks.store import Store
from cvgp.errors import CVGPError

RESULTS = Path(__file__).resolve().parent / "results"
SIZE = 200
ALL_DATASETS = ",".join(DATASETS)
ALL_FACTORS = ",".join(defaults_benchmark.FACTORS)

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)

Datasets = Annotated[str, typer.Option(help="Names separated by commas; waves-ROWSxINPUTS is generated.")]
Parts = Literal["a", "b", "ab"]
Size = Annotated[int, typer.Option("--size", min=1, help="Points of the coreset, M.")]
Threads = Annotated[int, typer.Option(min=1)]
StorePath = Annotated[Path, typer.Option("--store", help="Results; fits that are in it are not run again.")]
TableOnly = Annotated[bool, typer.Option("--table", help="Run nothing; print the table of what is stored.")]
Renew = Annotated[bool, typer.Option("--renew", help="Run our own fits again where cvgp's code has changed since.")]
Write = Annotated[Path | None, typer.Option(help="With --table: also put it into its place in this page.")]


@app.command()
def defaults(
    datasets: Datasets = ALL_DATASETS,
    splits: Annotated[int, typer.Option(min=1, help="Random 80/20 splits.")] = 5,
    factors: Annotated[str, typer.Option(help="Factors to vary, separated by commas.")] = ALL_FACTORS,
    max_time: Annotated[float, typer.Option(min=0.01, help="Seconds for each fit.")] = 6.0,
    size: Size = SIZE,
    threads: Threads = 2,
    store: StorePath = RESULTS / "defaults.jsonl",
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Compare defaults, one factor at a time, with the same time for every fit."""
    plan = defaults_benchmark.Plan(_names(datasets), splits, _names(factors), size, max_time, threads)
    results = Store(store)
    if not table:
        _run(defaults_benchmark.tasks(plan), plan.datasets, results, threads, renew)
    _show(defaults_table.report(plan, results), "defaults", write)


@app.command()
def quality(
    datasets: Datasets = ALL_DATASETS,
    folds: Annotated[int, typer.Option(min=1, max=NUM_FOLDS, help="How many of the five folds.")] = NUM_FOLDS,
    part: Annotated[Parts, typer.Option(help="a: the paper's isotropic RBF; b: defaults and SVGP; ab: both.")] = "ab",
    train_share: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="Share of a fold's training rows that is used; the paper's is 0.7.")
    ] = 0.7,
    steps: Annotated[int | None, typer.Option(min=1, help="Instead of the default number, for ours and SVGP.")] = None,
    size: Size = SIZE,
    threads: Threads = 2,
    store: StorePath = RESULTS / "quality.jsonl",
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Measure quality on the paper's folds, against the paper, the targets and a fair SVGP."""
    plan = quality_benchmark.Plan(_names(datasets), folds, part, train_share, size, steps, threads)
    results = Store(store)
    if not table:
        for fold in range(folds):  # the first one tells at which rate the peer is run on the others
            _run(quality_benchmark.tasks(plan, results, [fold]), plan.datasets, results, threads, renew)
    _show(quality_table.report(plan, results), "quality", write)


def _run(tasks: Sequence[Task], datasets: Sequence[str], store: Store, threads: int, renew: bool) -> None:
    for name in datasets:
        load(name)  # a wrong name should not wait for its turn
    run_tasks(tasks, store, threads, renew=renew)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _show(text: str, place: str, page: Path | None) -> None:
    print(f"\n{text}")
    if page is not None:
        fill(page, place, text)


def main() -> None:
    """Run the command line; what the user can mend ends in a sentence, not in a traceback."""
    try:
        app(prog_name="python -m benchmarks")
    except CVGPError as error:
        typer.echo(f"Error: {error}", err=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
