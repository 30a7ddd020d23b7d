"""Measurements of speed, of merging and inside other libraries: they run at small sizes and report what is stored."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from experiments import bayesian_optimization as optimization
from experiments import speed
from experiments.__main__ import app
from experiments.bayesian_optimization import Large, Problem
from experiments.data import schedule
from experiments.peers.environments import ROOT
from experiments.runner import run_tasks
from experiments.speed import files, prediction, quality
from experiments.store import Record, Store

ORIGIN = {"date": "2025-01-01T00:00:00", "commit": "c", "source": "s", "processor": "p"}
DATASET = "waves-150x2"


@pytest.mark.parametrize("name", speed.MEASUREMENTS)
@pytest.mark.parametrize("size", ["full", "quick"])
def test_no_two_tasks_of_a_measurement_share_a_key(name: str, size: str) -> None:
    module = speed.MEASUREMENTS[name]
    keys = [json.dumps(task.key, sort_keys=True) for task in module.tasks(getattr(module, size)(2))]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("folder", ["docs", "experiments/reports"])
def test_a_page_on_speed_holds_what_the_command_writes(folder: str, tmp_path: Path) -> None:
    page = tmp_path / "speed.md"
    text = (ROOT / folder / "speed.md").read_text()
    page.write_text(text)
    CliRunner().invoke(app, ["speed", "all", "--table", "--write", str(page)], catch_exceptions=False)
    assert page.read_text() == text
    assert (tmp_path / "images" / quality.PICTURE[0]).exists() == ("speed-quality" in text)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fit", "files"])
def test_a_quick_run_has_no_gaps(name: str, tmp_path: Path) -> None:
    common = ["--quick", "--threads", "1", "--store", str(tmp_path / "results.jsonl")]
    result = CliRunner().invoke(app, ["speed", name, *common], catch_exceptions=False)
    assert "missing" not in result.stdout
    assert "Failed" not in result.stdout


@pytest.mark.slow
def test_predictions_with_neighbors_are_timed() -> None:
    ((name, rows),) = prediction.quick(1).with_neighbors.items()
    metrics = prediction._measure_neighbors(name, rows).metrics
    assert metrics["rows_per_second"] > 1.0 / metrics["row_seconds"] > 0.0  # type: ignore[operator]


def race_records(store: Store, plan: quality.Plan, ours: list[float], svgp: float) -> None:
    for budget, value in zip(plan.budgets, ours, strict=True):
        metrics = {"log_likelihood": value, "rmse": 0.1, "seconds": budget}
        store.append(Record(quality.task(plan, "bike", 0, budget).key, metrics, ORIGIN))
    for contestant in plan.contestants:
        metrics = {"log_likelihood": svgp, "rmse": 0.1, "seconds": 60.0}
        store.append(Record(quality.task(plan, "bike", 0, contestant).key, metrics, ORIGIN, trace=[metrics]))


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        ([0.4, 0.4, 0.6, 0.6, 0.6, 0.6], 6.0),
        ([0.6, 0.4, 0.6, 0.6, 0.6, 0.6], 6.0),  # one short fit can be lucky
        ([0.4, 0.4, 0.4, 0.4, 0.4, 0.4], np.inf),
    ],
)
def test_the_first_fit_counts_from_which_on_all_are_as_good(
    values: list[float], seconds: float, tmp_path: Path
) -> None:
    store, plan = Store(tmp_path / "speed.jsonl"), quality.full()
    race_records(store, plan, values, 0.5)
    assert quality.seconds_to_reach(quality.ours(plan, store, "bike", 0), 0.5) == seconds


def test_files_hold_all_rows(tmp_path: Path) -> None:
    files.write_files(tmp_path, 100, num_files=3)
    assert len(pd.read_parquet(tmp_path)) == 100


def test_flights_are_described_by_their_schedule_alone() -> None:
    row = {"year": 2013, "month": 2, "day": 1, "sched_dep_time": 1435, "sched_arr_time": 5, "carrier": "UA"}
    table = pd.DataFrame([row | {"origin": "JFK", "distance": 100, "arr_delay": d} for d in (3.0, np.nan)])
    x, y = schedule(table.assign(dep_delay=99.0))
    assert x.tolist() == [[32.0, 4.0, 875.0, 5.0, 100.0, 1.0, 1.0]]
    assert y.tolist() == [3.0]


def test_the_comparison_inside_gpytorch_has_no_gaps(tmp_path: Path) -> None:
    arguments = ["gpytorch", "--quick", "--datasets", DATASET, "--store", str(tmp_path / "results.jsonl")]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "| - |" not in result.stdout
    assert f"| {DATASET} | 0.03 |" in result.stdout


def test_merging_is_compared_with_one_fit(tmp_path: Path) -> None:
    common = ["--datasets", "waves-300x2", "--size", "8", "--threads", "1", "--store", str(tmp_path / "results.jsonl")]
    result = CliRunner().invoke(app, ["merging", "--shards", "2", "--steps", "5", *common], catch_exceptions=False)
    rows = [line.split(" | ") for line in result.stdout.splitlines() if line.startswith("| waves-300x2")]
    assert [row[3] for row in rows] == ["8", "16", "8", "8"]


def test_both_models_of_botorch_are_run_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    branin = optimization.PROBLEMS["branin"].function
    monkeypatch.setitem(optimization.PROBLEMS, "branin", Problem(branin, 5, 2))
    monkeypatch.setattr(optimization, "SEARCH", {"num_restarts": 1, "raw_samples": 8, "options": {"maxiter": 5}})
    monkeypatch.setattr(optimization, "SUBSET", 20)
    store, large = Store(tmp_path / "botorch.jsonl"), Large(rows=60, iterations=1)
    run_tasks(lambda: optimization.tasks(["branin"], 1, large), store, threads=1)
    report = optimization.report(["branin"], 1, large, store)
    for model in optimization.MODELS:
        assert f"| branin, 5 + 2 observations | {model} | 1 |" in report
    assert report.count("| CVGPModel |") == 2
