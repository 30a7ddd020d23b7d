"""``python -m benchmarks``: run measurements, and print their tables from what is stored."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from benchmarks import headline
from benchmarks.accuracy import accuracy_figure, accuracy_race, accuracy_tables, accuracy_targets, entries
from benchmarks.accuracy.race_splits import FLIGHTS, KINDS, check_dataset
from benchmarks.hosts import strategies, strategies_table
from benchmarks.optimisation import bayesian, bayesian_table
from benchmarks.peers.environments import ROOT, WORK_FOLDER
from benchmarks.quality import defaults as defaults_benchmark
from benchmarks.quality import defaults_table
from benchmarks.quality import federated as federated_benchmark
from benchmarks.quality import folds as quality_benchmark
from benchmarks.quality import folds_table as quality_table
from benchmarks.quality import hard as hard_benchmark
from benchmarks.quality import table_encodings as tables_benchmark
from benchmarks.quality.hard_problems import PROBLEMS
from benchmarks.quality.table_encodings import METHODS as ENCODINGS
from benchmarks.quality.table_problems import PROBLEMS as TABLES
from benchmarks.runner import Task, run_tasks
from benchmarks.scaling import cluster as cluster_benchmark
from benchmarks.scaling import cluster_table
from benchmarks.scaling import streaming as streaming_benchmark
from benchmarks.speed import default_fit
from benchmarks.speed import figures as speed_figures
from benchmarks.speed import nearest as nearest_benchmark
from benchmarks.speed import plans as speed
from benchmarks.speed import tables as speed_tables
from benchmarks.speed import targets as speed_targets
from cvgp.errors import CVGPError, InvalidInputError
from cvgp.paper.datasets import load
from cvgp.paper.markdown import fill
from cvgp.paper.splits import NUM_FOLDS
from cvgp.paper.store import Store

RESULTS = Path(__file__).resolve().parent / "results"
SIZE = 200
ALL_DATASETS = "energy,concrete,airfoil,wine,skillcraft,parkinsons,elevators,bike,protein,keggdirected"
"""From small to large."""
RACE_DATASETS = ",".join(speed.RACE_DATASETS)
SPEED_PAGE = ROOT / "docs" / "speed.md"
ALL_ENTRIES = ",".join(entry.name for entry in entries.ENTRIES)
ALL_FACTORS = ",".join(defaults_benchmark.FACTORS)

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)

Datasets = Annotated[str, typer.Option(help="Names separated by commas; waves-ROWSxINPUTS is generated.")]
Parts = Literal["a", "b", "ab"]
Size = Annotated[int, typer.Option("--size", min=1, help="Points of the coreset, M.")]
Threads = Annotated[int, typer.Option(min=1)]
StorePath = Annotated[Path, typer.Option("--store", help="Results; fits that are in it are not run again.")]
TableOnly = Annotated[bool, typer.Option("--table", help="Run nothing; print the table of what is stored.")]
Renew = Annotated[bool, typer.Option("--renew", help="Run our own fits again where cvgp's code has changed since.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes and few repetitions, in a store of their own.")]
SpeedStore = Annotated[
    Path | None, typer.Option("--store", help="Results; tasks that are in it are not run again. [default: speed.jsonl]")
]
ScalingStore = Annotated[
    Path | None, typer.Option("--store", help="Results. [default: scaling.jsonl, or that of --quick]")
]
Write = Annotated[Path | None, typer.Option(help="With --table: also put it into its place in this page.")]


@app.command()
def defaults(
    datasets: Datasets = ALL_DATASETS,
    splits: Annotated[int, typer.Option(min=1, help="Random 80/20 splits.")] = 5,
    factors: Annotated[str, typer.Option(help="Factors to vary, separated by commas.")] = ALL_FACTORS,
    max_time: Annotated[float, typer.Option(min=0.01, help="Seconds on one processor for each fit.")] = 3.0,
    size: Size = SIZE,
    store: StorePath = RESULTS / "defaults.jsonl",
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Compare defaults, one factor at a time, with the same time for every fit."""
    plan = defaults_benchmark.Plan(_names(datasets), splits, _names(factors), size, max_time)
    results = Store(store)
    if not table:
        _run(defaults_benchmark.tasks(plan), plan.datasets, results, defaults_benchmark.THREADS, renew)
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


def _speed_command(name: str, about: str) -> None:
    @app.command(name, help=about)
    def measure(quick: Quick = False, threads: Threads = 2, store: SpeedStore = None, renew: Renew = False) -> None:
        _measure_speed(name, _plans(quick, threads), quick, threads, store, renew)


_speed_command("step", "Time one training step against GPyTorch's SVGP, and against plain matrix products.")
_speed_command("prediction", "Time predictions against GPyTorch's SVGP, and imports.")
_speed_command("growth", "Fit exponents to the time against M, B, D and N.")
_speed_command("small", "Fit 500 rows with the defaults and with scikit-learn's exact GP.")
_speed_command("large", "Measure seconds and memory of fits on up to ten million rows.")
_speed_command("shared", "Time one, two and four fits at once, beside GPyTorch's SVGP.")


@app.command()
def race(
    datasets: Datasets = RACE_DATASETS,
    size: Size = speed.RACE_SIZE,
    budget: Annotated[float, typer.Option(min=1.0, help="Seconds of each peer.")] = speed.RACE_BUDGET,
    splits: Annotated[
        int, typer.Option(min=1, help="Random splits; a fifth of the rows is scored.")
    ] = speed.RACE_SPLITS,
    quick: Quick = False,
    threads: Threads = 2,
    store: SpeedStore = None,
    renew: Renew = False,
) -> None:
    """Measure quality against seconds, of the coreset alone and of other sparse GPs."""
    plans = _plans(quick, threads) if quick else speed.full(threads, _names(datasets), size, budget, splits)
    _measure_speed("race", plans, quick, threads, store, renew)


@app.command()
def accuracy(
    datasets: Datasets = f"{ALL_DATASETS},{FLIGHTS}",
    splits: Annotated[int, typer.Option(min=1, help="Splits of each kind; a fifth of the rows is scored.")] = 5,
    kinds: Annotated[str, typer.Option(help="random, grouped, or both separated by a comma.")] = ",".join(KINDS),
    peers: Annotated[str, typer.Option(help="Methods separated by commas, ours among them.")] = ALL_ENTRIES,
    budget: Annotated[
        float, typer.Option(min=1.0, help="Processor seconds of a peer, up to 50,000 rows; more rows, more seconds.")
    ] = 30.0,
    threads: Threads = 1,
    store: StorePath = RESULTS / "accuracy.jsonl",
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Race the defaults against boosted trees and other GPs: errors, densities, intervals, seconds."""
    plan = accuracy_race.Plan(_names(datasets), splits, _kinds(kinds), entries.choose(_names(peers)), budget, threads)
    results = Store(store)
    if not table:
        for name in plan.datasets:
            check_dataset(name)
        for split in range(splits):  # a run that is cut short has whole splits of everything
            run_tasks(accuracy_race.tasks(plan, results, split), results, threads, renew=renew, warm_up=False)
    _show(accuracy_targets.report(plan, results), "accuracy-targets", write)
    picture = accuracy_figure.draw(plan, results, write.parent / "images") if write is not None else ""
    for kind in plan.kinds:
        _show(accuracy_tables.report(plan, results, kind), f"accuracy-{kind}", write)
    if write is not None:
        fill(write, "accuracy-picture", picture)


@app.command()
def streaming(
    quick: Quick = False,
    threads: Threads = 2,
    store: ScalingStore = None,
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Measure fits to ten million rows in files, beside the same rows in memory."""
    plan = streaming_benchmark.quick(threads) if quick else streaming_benchmark.full(threads)
    results = _store("scaling", quick, store)
    if not table:
        run_tasks(streaming_benchmark.tasks(plan), results, threads, renew=renew, warm_up=False)
    _show(streaming_benchmark.report(plan, results), "scaling-streaming", write)


@app.command()
def cluster(
    quick: Quick = False,
    store: ScalingStore = None,
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Measure one worker and two, and say from that what a thousand would do."""
    plan = cluster_benchmark.quick() if quick else cluster_benchmark.full()
    results = _store("scaling", quick, store)
    if not table:
        run_tasks(cluster_benchmark.tasks(plan), results, 1, renew=renew, warm_up=False)
    _show(cluster_table.report(plan, results), "scaling-cluster", write)


@app.command()
def figures(
    quick: Quick = False,
    threads: Threads = 2,
    store: SpeedStore = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where to. [default: docs/images, or .bench with --quick]")
    ] = None,
) -> None:
    """Draw quality against seconds, and seconds against N, M and D, from what is stored."""
    results = _store("speed", quick, store)
    folder = folder or (WORK_FOLDER if quick else ROOT / "docs" / "images")
    for path in speed_figures.draw(_plans(quick, threads), results, folder):
        print(path)


@app.command()
def report(
    quick: Quick = False,
    threads: Threads = 2,
    store: SpeedStore = None,
    write: Annotated[
        Path | None, typer.Option(help="The page to fill. [default: docs/speed.md, or none with --quick]")
    ] = None,
) -> None:
    """Print the targets and tables of what is stored, and put them into the documentation."""
    plans, results = _plans(quick, threads), _store("speed", quick, store)
    page = write or (None if quick else SPEED_PAGE)
    _show(speed_targets.report(plans, results), "speed-targets", page)
    for command in speed.COMMANDS:
        text = speed_tables.report(plans, results, command)
        _show(text + _picture(command, page), f"speed-{command}", page)


@app.command()
def readme(
    threads: Annotated[int, typer.Option(min=1, help="Of the stored race of accuracy.")] = 1,
    speed_threads: Annotated[int, typer.Option(min=1, help="Of the stored measurements of speed.")] = 2,
    write: Annotated[Path, typer.Option(help="The page to fill.")] = ROOT / "README.md",
) -> None:
    """Run nothing; put the table of accuracy and the headline figures of what is stored into README.md."""
    race, measured = Store(RESULTS / "accuracy.jsonl"), Store(RESULTS / "speed.jsonl")
    plan = accuracy_race.Plan(_names(ALL_DATASETS), 5, KINDS, entries.ENTRIES, 30.0, threads)
    _show(headline.accuracy_table(plan, race), "readme-accuracy", write)
    _show(headline.figures_table(plan, race, _plans(False, speed_threads), measured), "readme-figures", write)


@app.command()
def federated(
    datasets: Datasets = "waves-20000x6,bike,protein",
    shards: Annotated[str, typer.Option(help="Numbers of shards, separated by commas.")] = "8",
    steps: Annotated[int, typer.Option(min=1, help="Of Adam, in each fit.")] = 800,
    by_region: Annotated[
        bool, typer.Option("--by-region", help="Cut by the first input instead of by chance.")
    ] = False,
    size: Size = 100,
    threads: Threads = 2,
    store: StorePath = RESULTS / "federated.jsonl",
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Fit on shards and merge, against one fit on all rows."""
    counts = tuple(int(count) for count in _names(shards))
    plan = federated_benchmark.Plan(_names(datasets), counts, size, steps, by_region, threads)
    results = Store(store)
    if not table:
        _run(federated_benchmark.tasks(plan), plan.datasets, results, threads, renew)
    _show(federated_benchmark.report(plan, results), "federated", write)


@app.command()
def hard(
    problems: Annotated[str, typer.Option(help="Names separated by commas. [default: all]")] = ",".join(PROBLEMS),
    seeds: Annotated[int, typer.Option(min=1, help="Draws of each problem.")] = 1,
    threads: Threads = 2,
    store: StorePath = RESULTS / "hard.jsonl",
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Fit generated problems on which fits have gone wrong, beside a constant, a line and the true function."""
    names, results = _names(problems), Store(store)
    if not table:
        run_tasks(hard_benchmark.tasks(names, seeds), results, threads, renew=renew)
    _show(hard_benchmark.report(names, seeds, results), "hard", write)


@app.command()
def seconds(
    quick: Quick = False,
    threads: Threads = 2,
    store: SpeedStore = None,
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Time the default fit by rows and columns, up to a million rows."""
    sizes, results = default_fit.SIZES[: 2 if quick else None], _store("speed", quick, store)
    if not table:
        run_tasks(default_fit.tasks(sizes, threads), results, threads, renew=renew, warm_up=False)
    _show(default_fit.report(sizes, threads, results), "seconds", write)


@app.command()
def neighbours(
    quick: Quick = False,
    threads: Threads = 2,
    store: SpeedStore = None,
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Measure what neighbours cost: the search beside faiss and hnswlib, the statistics, one prediction, a million."""
    plan = nearest_benchmark.quick(threads) if quick else nearest_benchmark.full(threads)
    results = _store("speed", quick, store)
    if not table:
        run_tasks(nearest_benchmark.tasks(plan), results, threads, renew=renew, warm_up=False)
    _show(nearest_benchmark.report(plan, results), "neighbours", write)


@app.command()
def optimisation(
    problems: Annotated[str, typer.Option(help="Names separated by commas.")] = ",".join(bayesian.PROBLEMS),
    seeds: Annotated[int, typer.Option(min=1, help="Random starts of each problem.")] = 10,
    large: Annotated[bool, typer.Option(help="Also begin with 5000 observations.")] = True,
    threads: Threads = 1,
    store: StorePath = RESULTS / "optimisation.jsonl",
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Optimise test functions with CVGPModel and with BoTorch's SingleTaskGP: regret and seconds."""
    names, results, many = _names(problems), Store(store), bayesian.LARGE_START if large else None
    if not table:
        run_tasks(bayesian.tasks(names, seeds, many), results, threads, renew=renew)
    _show(bayesian_table.report(names, seeds, many, results), "optimisation", write)


@app.command()
def gpytorch(
    datasets: Datasets = "elevators,bike,protein,parkinsons,keggdirected",
    quick: Quick = False,
    store: StorePath = RESULTS / "gpytorch.jsonl",
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Compare our strategy inside GPyTorch with SVGP: seconds of a step, and the bound after equal steps."""
    plan = (strategies.quick if quick else strategies.full)(_names(datasets))
    results = Store(store)
    if not table:
        _run(strategies.tasks(plan), plan.datasets, results, plan.threads, renew)
    _show(strategies_table.report(plan, results), "gpytorch", write)


@app.command()
def tables(
    problems: Annotated[str, typer.Option(help="Names separated by commas. [default: all]")] = ",".join(TABLES),
    methods: Annotated[str, typer.Option(help="Names separated by semicolons. [default: all]")] = ";".join(ENCODINGS),
    rows: Annotated[int, typer.Option(min=100, help="Rows to learn from.")] = 20_000,
    scored: Annotated[int, typer.Option(min=100, help="Rows to score.")] = 10_000,
    seeds: Annotated[int, typer.Option(min=1, help="Draws of each table.")] = 1,
    budget: Annotated[float, typer.Option(min=1.0, help="Seconds of LightGBM.")] = 60.0,
    threads: Threads = 2,
    store: StorePath = RESULTS / "tables.jsonl",
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Fit tables as they are, beside one-hot and target encoding and LightGBM with categories of its own."""
    chosen = tuple(name.strip() for name in methods.split(";"))
    plan = tables_benchmark.Plan(_names(problems), chosen, rows, scored, seeds, budget, threads)
    results = Store(store)
    if not table:
        run_tasks(tables_benchmark.tasks(plan), results, threads, renew=renew)
    _show(tables_benchmark.report(plan, results), "tables", write)


@app.command(name="all")
def everything(quick: Quick = False, threads: Threads = 2, store: SpeedStore = None, renew: Renew = False) -> None:
    """Run all measurements of speed, draw the figures and fill the tables; an interrupted run goes on where it was."""
    plans, results = _plans(quick, threads), _store("speed", quick, store)
    for name in (*plans.small.datasets, *plans.race.datasets):
        load(name)  # missing data should not wait for their turn
    for command in speed.COMMANDS:
        run_tasks(speed.tasks(plans, command), results, threads, renew=renew, warm_up=False)
    figures(quick=quick, threads=threads, store=store)
    report(quick=quick, threads=threads, store=store)


def _picture(command: str, page: Path | None) -> str:
    """A reference to the command's picture, if it is there: a page must not refer to what is missing."""
    name, description = speed_figures.PICTURES.get(command, ("", ""))
    if page is None or not name or not (page.parent / "images" / name).exists():
        return ""
    return f"\n\n![{description}](images/{name})"


def _plans(quick: bool, threads: int) -> speed.Plans:
    return speed.quick(threads) if quick else speed.full(threads)


def _store(name: str, quick: bool, path: Path | None) -> Store:
    return Store(path or (WORK_FOLDER / "quick.jsonl" if quick else RESULTS / f"{name}.jsonl"))


def _measure_speed(
    command: str, plans: speed.Plans, quick: bool, threads: int, store: Path | None, renew: bool
) -> None:
    results = _store("speed", quick, store)
    tasks = speed.tasks(plans, command)
    for name in {str(task.key["dataset"]) for task in tasks if command in ("small", "race")}:
        load(name)  # a wrong name should not wait for its turn
    run_tasks(tasks, results, threads, renew=renew, warm_up=False)
    print(f"\n{speed_tables.report(plans, results, command)}")


def _run(tasks: Sequence[Task], datasets: Sequence[str], store: Store, threads: int, renew: bool) -> None:
    for name in datasets:
        load(name)  # a wrong name should not wait for its turn
    run_tasks(tasks, store, threads, renew=renew)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _kinds(text: str) -> tuple[str, ...]:
    kinds = _names(text)
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise InvalidInputError(f"Unknown kinds of split {', '.join(unknown)}. Choose from {', '.join(KINDS)}.")
    return kinds


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
