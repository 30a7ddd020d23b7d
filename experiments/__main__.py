"""``python -m experiments``: run measurements, and print their tables from what is stored."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from cvgp.errors import CVGPError, InvalidInputError
from experiments import ablation as ablation_study
from experiments import bayesian_optimization as optimization
from experiments import gpytorch_strategy, race_report, speed
from experiments import hard as hard_problems
from experiments import kinds as kinds_study
from experiments import merging as merging_study
from experiments import race as race_study
from experiments import tables as table_study
from experiments import world as world_suite
from experiments.data import FLIGHTS, load
from experiments.markdown import fill, markdown_table, places
from experiments.paper.command import paper
from experiments.peers.environments import ROOT, WORK_FOLDER
from experiments.runner import Task, run_tasks
from experiments.speed import headline
from experiments.splits import KINDS
from experiments.store import RESULTS, Store

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False)
app.command()(paper)

RACE_DATASETS = ",".join((*race_study.DATASETS, FLIGHTS))
Datasets = Annotated[str, typer.Option(help="Names separated by commas; waves-ROWSxINPUTS is generated.")]
Threads = Annotated[int, typer.Option(min=1)]
StorePath = Annotated[Path | None, typer.Option("--store", help="Results, if not those of experiments/results.")]
TableOnly = Annotated[bool, typer.Option("--table", help="Run nothing; print the table of what is stored.")]
Renew = Annotated[bool, typer.Option("--renew", help="Run our own fits again where cvgp's code has changed since.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes and few repetitions, in a store of their own.")]
Write = Annotated[Path | None, typer.Option(help="Also fill those tables that have a place in this page.")]


@app.command()
def race(
    datasets: Datasets = RACE_DATASETS,
    splits: Annotated[int, typer.Option(min=1, help="Splits of each kind; a fifth of the rows is scored.")] = 5,
    kinds: Annotated[str, typer.Option(help="random, grouped, or both separated by a comma.")] = ",".join(KINDS),
    peers: Annotated[str, typer.Option(help="Methods separated by commas, ours among them. [default: all]")] = "",
    budget: Annotated[
        float, typer.Option(min=1.0, help="Processor seconds of a peer, up to 50,000 rows; more rows, more seconds.")
    ] = 30.0,
    suite: Annotated[str, typer.Option(help="world: tables that no choice was made on, with fixed splits.")] = "",
    half: Annotated[str, typer.Option(help="Of the suite: first or second.")] = world_suite.HALVES[0],
    threads: Threads = 1,
    store: StorePath = None,
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Race the defaults against boosted trees and other GPs: errors, densities, intervals, seconds."""
    if suite:
        if suite != "world" or (datasets, splits, kinds) != (RACE_DATASETS, 5, ",".join(KINDS)):
            raise InvalidInputError(
                "The only suite is world. Its tables and splits are fixed: leave out --datasets, --splits and --kinds."
            )
        methods, results = world_suite.entries_of(_names(peers)), _store("race_world", store)
        plan = race_study.Plan(world_suite.names_of(half), entries=methods, budget=budget, threads=threads)
        if not table:
            for name in plan.datasets:
                world_suite.read(name)  # a table that cannot be had should not wait for its turn
            run_tasks(lambda: world_suite.tasks(plan), results, threads=threads, renew=renew)
        _show(world_suite.catalogue(), "world-tables", write)
        _show(world_suite.report(plan, results), f"world-{half}", write)
        return
    entries = race_study.choose(_names(peers)) if peers else race_study.ENTRIES
    plan = race_study.Plan(_names(datasets), splits, _kinds(kinds), entries, budget, threads)
    results = _store("race", store)
    if not table:
        _run(lambda: race_study.tasks(plan, results), results, threads, renew, plan.datasets)
    _show(race_report.counts(plan, results), "race-counts", write)
    if write is not None and "race-picture" in places(write):
        fill(write, "race-picture", race_report.draw(plan, results, write.parent / "images"))
    _show(race_report.groups(plan, results), "race-groups", write)
    for kind in plan.kinds:
        _show(race_report.summary(plan, results, kind), f"race-{kind}-summary", write)
        _show(race_report.tables(plan, results, kind), f"race-{kind}", write)


@app.command()
def ablation(
    problems: Annotated[str, typer.Option(help="uci:NAME, hard:NAME, table:NAME. [default: all]")] = "",
    variants: Annotated[str, typer.Option(help="Names separated by commas. [default: all]")] = "",
    seeds: Annotated[int, typer.Option(min=1)] = 3,
    jobs: Annotated[int, typer.Option(min=1, help="Fits at a time, each in a process.")] = 1,
    threads: Threads = 1,
    store: StorePath = None,
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Switch off or fix one choice of the default fit at a time."""
    chosen = _names(problems) or ablation_study.PROBLEMS, _names(variants) or tuple(ablation_study.VARIANTS)
    plan = ablation_study.check(ablation_study.Plan(*chosen, seeds, threads))
    results, limit = _store("ablation", store), ablation_study.TIME_LIMIT
    if not table:
        make = lambda: ablation_study.tasks(plan, results)  # noqa: E731
        run_tasks(make, results, threads=threads, renew=renew, jobs=jobs, time_limit=limit)
    _show(ablation_study.summary(plan, results), "ablation-summary", write)
    _show(ablation_study.report(plan, results), "ablation", write)


@app.command()
def hard(
    problems: Annotated[str, typer.Option(help="Names separated by commas. [default: all]")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="Draws of each problem.")] = 1,
    threads: Threads = 1,
    store: StorePath = None,
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Fit generated problems on which fits have gone wrong, beside a constant, a line and the true function."""
    names, results = _names(problems) or tuple(hard_problems.PROBLEMS), _store("hard", store)
    if not table:
        _run(lambda: hard_problems.tasks(names, seeds), results, threads, renew)
    _show(hard_problems.report(names, seeds, results), "hard", write)


@app.command()
def tables(
    problems: Annotated[str, typer.Option(help="Names separated by commas. [default: all]")] = "",
    methods: Annotated[str, typer.Option(help="Names separated by semicolons. [default: all]")] = "",
    rows: Annotated[int, typer.Option(min=100, help="Rows to learn from.")] = 20_000,
    scored: Annotated[int, typer.Option(min=100, help="Rows to score.")] = 10_000,
    seeds: Annotated[int, typer.Option(min=1, help="Draws of each table.")] = 1,
    budget: Annotated[float, typer.Option(min=1.0, help="Seconds of LightGBM.")] = 60.0,
    threads: Threads = 2,
    store: StorePath = None,
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Fit tables as they are, beside one-hot and target encoding and LightGBM with categories of its own."""
    chosen = tuple(name.strip() for name in methods.split(";") if name.strip()) or tuple(table_study.METHODS)
    names, results = _names(problems) or tuple(table_study.PROBLEMS), _store("tables", store)
    plan = table_study.Plan(names, chosen, rows, scored, seeds, budget, threads)
    if not table:
        _run(lambda: table_study.tasks(plan), results, threads, renew)
    _show(table_study.report(plan, results), "tables", write)


@app.command()
def kinds(
    datasets: Annotated[str, typer.Option(help="Tables separated by commas. [default: all]")] = "",
    splits: Annotated[int, typer.Option(min=1, help="Of five; a fifth of the rows is scored.")] = 5,
    peers: Annotated[str, typer.Option(help="Methods separated by commas, ours among them. [default: all]")] = "",
    store: StorePath = None,
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Fit classes and counts beside other GPs, boosted trees and linear models, with one thread each."""
    chosen = not (datasets or peers)  # the fit to 100,000 rows belongs to all
    plan = kinds_study.plan_of(_names(datasets), splits, _names(peers), large=chosen)
    results = _store("kinds", store)
    if not table:
        for name in plan.datasets:
            kinds_study.read(name)  # a table that cannot be had should not wait for its turn
        run_tasks(lambda: kinds_study.tasks(plan, results), results, threads=1, renew=renew)
    for place, text in kinds_study.reports(plan, results).items():
        _show(text, f"kinds-{place}", write)


@app.command(name="speed")
def measure_speed(
    what: Annotated[str, typer.Argument(help=f"{', '.join(speed.MEASUREMENTS)}, or all.")],
    quick: Quick = False,
    threads: Threads = 2,
    store: StorePath = None,
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Time steps, predictions and fits, beside other libraries; `quality` is quality against seconds of sparse GPs."""
    if what not in (*speed.MEASUREMENTS, "all"):
        raise InvalidInputError(f"Unknown measurement {what!r}. Choose from {', '.join(speed.MEASUREMENTS)}, or all.")
    results = _store("speed", store, quick)
    for name in speed.MEASUREMENTS if what == "all" else (what,):
        module = speed.MEASUREMENTS[name]
        plan = (module.quick if quick else module.full)(threads)
        if not table:
            _run(lambda module=module, plan=plan: module.tasks(plan), results, threads, renew)  # type: ignore[misc]
        text = speed.report(name, plan, results)
        if write is not None and f"speed-{name}" in places(write) and hasattr(module, "PICTURE"):
            text += _picture(module.figure(plan, results), write.parent / "images", *module.PICTURE)
        _show(text, f"speed-{name}", write)


@app.command()
def merging(
    datasets: Datasets = "waves-20000x6,bike,protein",
    shards: Annotated[str, typer.Option(help="Numbers of shards, separated by commas.")] = "8",
    steps: Annotated[int, typer.Option(min=1, help="Of Adam, in each fit.")] = 800,
    by_region: Annotated[bool, typer.Option("--by-region", help="Cut by the first input, not at random.")] = False,
    size: Annotated[int, typer.Option(min=1, help="Points of a coreset.")] = 100,
    threads: Threads = 1,
    store: StorePath = None,
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Fit on shards and merge, against one fit on all rows."""
    counts = tuple(int(count) for count in _names(shards))
    plan = merging_study.Plan(_names(datasets), counts, size, steps, by_region, threads)
    results = _store("merging", store)
    if not table:
        _run(lambda: merging_study.tasks(plan), results, threads, renew, plan.datasets)
    _show(merging_study.report(plan, results), "federated", write)


@app.command()
def botorch(
    problems: Annotated[str, typer.Option(help="Names separated by commas.")] = ",".join(optimization.PROBLEMS),
    seeds: Annotated[int, typer.Option(min=1, help="Random starts of each problem.")] = 10,
    threads: Threads = 1,
    store: StorePath = None,
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Optimize test functions with CVGPModel and with BoTorch's SingleTaskGP: regret and seconds."""
    names, results, large = _names(problems), _store("botorch", store), optimization.LARGE_START
    if not table:
        _run(lambda: optimization.tasks(names, seeds, large), results, threads, renew)
    _show(optimization.report(names, seeds, large, results), "optimization", write)


@app.command()
def gpytorch(
    datasets: Datasets = "elevators,bike,protein,parkinsons,keggdirected",
    quick: Quick = False,
    store: StorePath = None,
    table: TableOnly = False,
    renew: Renew = False,
    write: Write = None,
) -> None:
    """Compare our strategy inside GPyTorch with SVGP: seconds of a step, and the bound after equal steps."""
    plan = (gpytorch_strategy.quick if quick else gpytorch_strategy.full)(_names(datasets))
    results = _store("gpytorch", store, quick)
    if not table:
        _run(lambda: gpytorch_strategy.tasks(plan), results, plan.threads, renew, plan.datasets)
    _show(gpytorch_strategy.report(plan, results), "gpytorch", write)


@app.command()
def readme(write: Annotated[Path, typer.Option(help="The page to fill.")] = ROOT / "README.md") -> None:
    """Run nothing; put the table of accuracy and the headline figures of what is stored into README.md."""
    results, plan = _store("race", None), race_study.Plan(race_study.DATASETS)
    lines = [*race_report.readme_counts(plan, results), *headline.figures(_store("speed", None))]
    _show(markdown_table(["what", "measured", "command"], lines, num_text=3), "readme-figures", write)
    _show(race_report.summary(plan, results, "random"), "readme-accuracy", write)


def _picture(figure: object, folder: Path, name: str, description: str) -> str:
    """Save a figure, if there is one; returns the reference to it."""
    if figure is None:
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / name, dpi=race_report.DPI)  # type: ignore[attr-defined]
    return f"\n\n![{description}](images/{name})"


def _store(name: str, path: Path | None, quick: bool = False) -> Store:
    return Store(path or (WORK_FOLDER / "quick.jsonl" if quick else RESULTS / f"{name}.jsonl"))


def _run(
    make: Callable[[], Sequence[Task]], store: Store, threads: int, renew: bool, datasets: Sequence[str] = ()
) -> None:
    for name in datasets:
        load(name)  # a wrong name should not wait for its turn
    run_tasks(make, store, threads=threads, renew=renew)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _kinds(text: str) -> tuple[str, ...]:
    kinds = _names(text)
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise InvalidInputError(f"Unknown kinds of split {', '.join(unknown)}. Choose from {', '.join(KINDS)}.")
    return kinds


def _show(text: str, place: str, page: Path | None) -> None:
    """Print a table, and fill its place in a page; a page that has other places only is left as it is."""
    print(f"\n{text}")
    if page is not None and (place in (found := places(page)) or not found):
        fill(page, place, text)


def main() -> None:
    """Run the command line; what the user can mend ends in a sentence, not in a traceback."""
    try:
        app(prog_name="python -m experiments")
    except CVGPError as error:
        typer.echo(f"Error: {error}", err=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
