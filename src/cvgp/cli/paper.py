"""`cvgp paper`: the paper's experiments, from data to tables and figures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cvgp.cli.console import note, print_table, say
from cvgp.cli.several_values import several_values

if TYPE_CHECKING:
    from cvgp.paper.board import Board
    from cvgp.paper.experiments import Experiment, Plan, Results
    from cvgp.paper.store import Key

paper = typer.Typer(no_args_is_help=True, help="Reproduce the paper: its data, tables and figures.")

SEVERAL = ("--datasets", "--methods", "--sizes")
ESTIMATED = ("predictive", "robustness")
"""The long ones, made of fits alone: their time is estimated before they start."""


SeveralValues = several_values(*SEVERAL)

ExperimentName = Annotated[str, typer.Argument(metavar="EXPERIMENT", help="One of those that `cvgp paper list` names.")]
PresetName = Annotated[
    str, typer.Option("--preset", help="paper: its own protocol; fair: equal steps within a budget; smoke: a trial.")
]
StoreFolder = Annotated[Path, typer.Option("--store", help="The folder of results.")]
Names = Annotated[str | None, typer.Option(metavar="NAME ...", help="Instead of the experiment's own.")]
DEFAULT_STORE = Path("paper-results")


@paper.command("list")
def list_experiments() -> None:
    """List the experiments."""
    from cvgp.paper.experiments import EXPERIMENTS, find_experiment

    print_table(["experiment", "what it shows"], [[name, find_experiment(name).about] for name in EXPERIMENTS])


@paper.command()
def datasets(
    download: Annotated[bool, typer.Option("--download", help="Fetch the sets that are not on this computer.")] = False,
) -> None:
    """List the data sets: size, where they are, licence and citation."""
    from cvgp.paper.datasets import REAL
    from cvgp.paper.datasets.synthetic import NUM_POINTS, SYNTHETIC, generate
    from cvgp.paper.datasets.uci import LICENCE, UCI, find, obtain

    rows = [
        [name, str(NUM_POINTS), str(generate(name, 2).x.shape[1]), "generated", "-", "the paper's appendix"]
        for name in SYNTHETIC
    ]
    for name in REAL:
        known = UCI[name]
        place = obtain(name) if download else find(name)
        where = known.address(name) if place is None else str(place)
        rows.append([name, str(known.rows), str(known.inputs), where, LICENCE, known.citation])
    for name, num_rows, inputs, where, licence, citation in rows:
        say(f"{name:<11} {num_rows:>7} x {inputs:<4} {licence:<10} {citation:<27} {where}")
    say("\nThe UCI sets come from the UCI machine learning repository; cite it where results are shown.")


@paper.command(cls=SeveralValues)
def run(
    experiment: ExperimentName,
    preset: PresetName = "fair",
    datasets: Names = None,
    methods: Names = None,
    sizes: Annotated[str | None, typer.Option(metavar="M ...", help="Numbers of inducing or pseudo-points.")] = None,
    folds: Annotated[int | None, typer.Option(min=1, max=5, help="How many of the five folds.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Tasks at a time, each in a process.")] = 1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads per task; otherwise the cores are shared.")
    ] = None,
    time_limit: Annotated[float | None, typer.Option(min=0.1, help="Seconds for one task.")] = None,
    store: StoreFolder = DEFAULT_STORE,
) -> None:
    """Run an experiment; what is in the store already is skipped, so that an interrupted run goes on."""
    from cvgp.paper.board import Board
    from cvgp.paper.experiments import find_experiment
    from cvgp.paper.runner import run_plan
    from cvgp.paper.store import Store

    chosen = find_experiment(experiment)
    plan = _plan(chosen, preset, datasets, methods, sizes, folds)
    _check_data(plan)
    results = Store(store / f"{experiment}.jsonl")
    each = threads or max((os.cpu_count() or 1) // jobs, 1)
    with Board(results, preset) as board:
        summary = run_plan(
            chosen,
            plan,
            results,
            jobs=jobs,
            threads=each,
            time_limit=time_limit or plan.preset.time_limit,
            report=board.show,
            announce=lambda keys, first: _announce(plan, keys, jobs, board, first=first),
        )
    note(f"{summary.ran} tasks run, {summary.failed} of them failed, {summary.skipped} in {results.path} already.")
    print_table(["tasks in the store", "done", "failed", "waiting", "mean seconds"], board.rows())
    if summary.failed:
        raise typer.Exit(1)


@paper.command()
def table(
    experiment: ExperimentName,
    preset: PresetName = "fair",
    store: StoreFolder = DEFAULT_STORE,
    write: Annotated[Path | None, typer.Option(help="Also put it into its place in this page.")] = None,
) -> None:
    """Print an experiment's table, in Markdown, from what is in the store."""
    from cvgp.paper.markdown import fill

    chosen, results = _results(experiment, preset, store)
    text = chosen.table(results)
    say(text)
    if write is not None:
        fill(write, experiment, text)


@paper.command()
def figure(
    experiment: ExperimentName,
    preset: PresetName = "fair",
    store: StoreFolder = DEFAULT_STORE,
    out: Annotated[Path, typer.Option(help="The folder for the pictures.")] = Path("paper-figures"),
) -> None:
    """Draw an experiment's figures, as PNG and PDF, from what is in the store."""
    from cvgp.paper.figures import save

    chosen, results = _results(experiment, preset, store)
    for path in save(chosen.figures(results), out):
        say(str(path))


def _results(experiment: str, preset: str, store: Path) -> tuple[Experiment, Results]:
    from cvgp.errors import MissingFileError
    from cvgp.paper.experiments import Results, find_experiment
    from cvgp.paper.protocol import find_preset
    from cvgp.paper.store import Store

    chosen = find_experiment(experiment)
    results = Results(Store(store / f"{experiment}.jsonl"), find_preset(preset))
    if not results.records:
        raise MissingFileError(
            f"{store / experiment}.jsonl holds no finished task of the preset {preset} as it is now; run "
            f"`cvgp paper run {experiment} --preset {preset} --store {store}` first."
        )
    return chosen, results


def _plan(
    chosen: Experiment, preset: str, datasets: str | None, methods: str | None, sizes: str | None, folds: int | None
) -> Plan:
    from cvgp.paper.baselines import method_class
    from cvgp.paper.experiments import Plan
    from cvgp.paper.protocol import find_preset

    settings = find_preset(preset)
    usual = chosen.defaults(settings)
    return Plan(
        chosen.name,
        settings,
        usual.datasets if datasets is None else tuple(_dataset(name, usual.datasets) for name in _words(datasets)),
        usual.methods if methods is None else tuple(method_class(name).name for name in _words(methods)),
        usual.sizes if sizes is None else tuple(_whole(word) for word in _words(sizes)),
        usual.folds if folds is None else folds,
    )


def _dataset(name: str, usual: tuple[str, ...]) -> str:
    """A data set of the paper, or one that the experiment makes itself."""
    from cvgp.paper.datasets import check_name

    return name if name in usual else check_name(name)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _whole(word: str) -> int:
    if not word.isdecimal() or int(word) == 0:
        raise typer.BadParameter(f"{word!r} is not a number of points.", param_hint="'--sizes'")
    return int(word)


def _check_data(plan: Plan) -> None:
    """A set that cannot be had should not wait for its turn."""
    from cvgp.paper.datasets.uci import UCI, obtain

    for name in plan.datasets:
        if name in UCI:
            obtain(name)


def _announce(plan: Plan, keys: Sequence[Key], jobs: int, board: Board, *, first: bool) -> None:
    from cvgp.paper.estimate import estimate_seconds

    if first:
        note(f"{plan.experiment}, preset {plan.preset.name}: {len(keys)} tasks to begin with, {jobs} at a time.")
        if plan.experiment in ESTIMATED and plan.preset.name != "smoke" and keys:
            minutes = estimate_seconds(plan, keys) / jobs / 60
            note(f"By the time that a few steps of each system take here, about {minutes:.0f} minutes.")
    board.expect(keys)
