"""``python -m experiments paper NAME``: run a study of the paper, or print and draw what is stored."""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cvgp.errors import MissingFileError
from experiments.data import SYNTHETIC, UCI, check_name, find, obtain
from experiments.figures import save
from experiments.markdown import markdown_table
from experiments.paper import report
from experiments.paper.methods import method_class
from experiments.paper.study import STUDIES, Plan, Results, Study, find_preset, find_study, run_key
from experiments.peers.environments import ROOT, WORK_FOLDER
from experiments.runner import Task, run_tasks
from experiments.store import RESULTS, Store

Names = Annotated[str | None, typer.Option(help="Names separated by commas, instead of the study's own.")]


def paper(
    name: Annotated[str, typer.Argument(help="A study, `all` of them, `report`, `list`, or `datasets`.")],
    preset: Annotated[
        str, typer.Option(help="paper: its own protocol; fair: equal steps within a budget; smoke: a trial.")
    ] = "fair",
    datasets: Names = None,
    methods: Names = None,
    sizes: Annotated[str | None, typer.Option(help="Numbers of points, separated by commas.")] = None,
    folds: Annotated[int | None, typer.Option(min=1, max=5, help="How many of the five folds.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Tasks at a time, each in a process.")] = 1,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads per task. [default: share the cores]")] = None,
    time_limit: Annotated[float | None, typer.Option(min=0.1, help="Seconds for one task.")] = None,
    store: Annotated[
        Path | None, typer.Option(help="Folder of results. [default: experiments/results/paper; .bench for smoke]")
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="Run nothing; print the table of what is stored.")] = False,
    write: Annotated[Path | None, typer.Option(help="The root for the pages of `report`. [this clone]")] = None,
    figures: Annotated[Path | None, typer.Option(help="Also draw the figures into this folder.")] = None,
) -> None:
    """Run a study of the paper; tasks that are stored are skipped, so an interrupted run goes on where it stopped."""
    if name == "list":
        print(markdown_table(["study", "what it shows"], [[n, find_study(n).about] for n in STUDIES], num_text=2))
        return
    if name == "datasets":
        print(_datasets())
        return
    if name == "report":
        is_trial = preset == "smoke"
        results_folder = store or (WORK_FOLDER / "smoke" if is_trial else RESULTS / "paper")
        pages = write or (WORK_FOLDER / "paper" if is_trial else ROOT)
        for path in report.write(results_folder, pages, ("smoke",) if is_trial else report.SHOWN):
            print(path)
        return
    failed = 0
    folder = store or (WORK_FOLDER / "smoke" if preset == "smoke" else RESULTS / "paper")
    studies = [find_study(n) for n in (STUDIES if name == "all" else [name])]
    plans = [] if table else [_plan(study, preset, datasets, methods, sizes, folds) for study in studies]
    missing = report.not_run(folder, list(zip(studies, plans, strict=False)))
    if missing:
        print(_estimate(missing, jobs), file=sys.stderr, flush=True)
    for number, study in enumerate(studies):
        results = Store(folder / f"{study.store_name}.jsonl")
        if plans:
            plan, each = plans[number], threads or max((os.cpu_count() or 1) // jobs, 1)
            failed += _run(study, plan, results, jobs, each, time_limit or plan.preset.time_limit)
        _show(study, Results(results, find_preset(preset)), figures)
    if failed:
        raise typer.Exit(1)


def _show(study: Study, results: Results, figures: Path | None) -> None:
    if not results.records:
        command = f"python -m experiments paper {study.name} --preset {results.preset.name}"
        raise MissingFileError(f"{results.store.path} holds no finished task of this preset; run `{command}` first.")
    text = study.table(results)
    print(f"\n{text}")
    if figures is not None:
        for path in save(study.draw(results), figures):
            print(path)


def _plan(
    study: Study, preset: str, datasets: str | None, methods: str | None, sizes: str | None, folds: int | None
) -> Plan:
    settings = find_preset(preset)
    usual = study.scope(settings)
    names = usual.datasets if datasets is None else _words(datasets)
    chosen = tuple(n if n in usual.datasets else check_name(n) for n in names)
    plan = Plan(
        study.store_name,
        settings,
        chosen,
        usual.methods if methods is None else tuple(method_class(name).name for name in _words(methods)),
        usual.sizes if sizes is None else tuple(_size(word) for word in _words(sizes)),
        usual.folds if folds is None else folds,
    )
    for dataset in chosen:
        if dataset in UCI:
            obtain(dataset)  # a set that cannot be had should not wait for its turn
    return plan


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _size(word: str) -> int:
    if not word.isdecimal() or int(word) == 0:
        raise typer.BadParameter(f"{word!r} is not a number of points.", param_hint="'--sizes'")
    return int(word)


def _estimate(missing: Sequence[report.Missing], jobs: int) -> str:
    """What a run will take at most, by study and in all."""
    lines = [f"{m.study}: {m.fits} of {m.planned} fits to run, hours at most: {m.cost}" for m in missing]
    total, unknown = sum(m.hours for m in missing), sum(m.unknown for m in missing)
    pace = f", without {unknown} fits of unknown pace" if unknown else ""
    lines.append(
        f"in all: {sum(m.fits for m in missing)} fits, at most {total / jobs:.1f} hours with {jobs} at a time{pace}"
    )
    return "\n".join(lines)


def _run(study: Study, plan: Plan, store: Store, jobs: int, threads: int, time_limit: float) -> int:
    """Run what is missing; returns the number of failures."""
    return run_tasks(
        lambda: [Task(key, partial(run_key, study.name, key)) for key in study.keys(plan, store)],
        store,
        threads=threads,
        jobs=jobs,
        time_limit=time_limit,
    ).failed


def _datasets() -> str:
    rows = [[name, "1000", "generated", "the paper's appendix"] for name in SYNTHETIC]
    for name, known in UCI.items():
        place = find(name)
        where = known.address(name) if place is None else str(place)
        rows.append([name, f"{known.rows} x {known.inputs}", where, f"{known.citation}, CC BY 4.0"])
    return markdown_table(["set", "size", "place", "citation and licence"], rows, num_text=4)
