"""The measurements run, resume and report; what they find is not tested here."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks import defaults, defaults_table, fuzz, quality, quality_table, soak
from benchmarks.__main__ import app, main
from benchmarks.datasets import NUM_FOLDS, fold_split, load, random_split
from benchmarks.fuzz_targets import seeded
from benchmarks.ours import estimator, with_beta_transform
from benchmarks.peers.svgp import svgp
from benchmarks.runner import Task, run_tasks
from benchmarks.scores import Metrics
from benchmarks.store import Record, Store
from cvgp.errors import FileFormatError, InvalidInputError, MissingFileError
from cvgp.paper.markdown import fill

DATASET = "waves-150x2"
ORIGIN = {"date": "2025-01-01T00:00:00", "commit": "c", "source": "s", "processor": "p"} | dict.fromkeys(
    ("torch", "gpytorch", "numpy"), "1"
)


def metrics(log_likelihood: float = 0.0) -> Metrics:
    return {
        "rmse": 0.5,
        "log_likelihood": log_likelihood,
        "coverage": 0.9,
        "constant_log_likelihood": -1.4,
        "seconds": 1.0,
    }


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results.jsonl")


# Commands


@pytest.mark.parametrize(
    "arguments",
    [
        ["defaults", "--splits", "1", "--factors", "beta", "--max-time", "0.3"],
        ["quality", "--folds", "1", "--part", "b", "--steps", "5"],
    ],
    ids=["defaults", "quality"],
)
def test_a_command_measures_and_prints_a_table_without_gaps(arguments: list[str], tmp_path: Path) -> None:
    common = ["--datasets", DATASET, "--size", "10", "--threads", "1", "--store", str(tmp_path / "results.jsonl")]
    result = CliRunner().invoke(app, arguments + common, catch_exceptions=False)
    assert "| - |" not in result.stdout
    assert "missing" not in result.stdout
    assert "FAILED" not in result.stdout


def test_an_unknown_data_set_ends_with_a_sentence_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "defaults", "--datasets", "nowhere"])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert (exit_.value.code, "Unknown data set 'nowhere'" in capsys.readouterr().err) == (1, True)


# Data


def test_training_rows_are_standardised() -> None:
    split = random_split(DATASET, seed=3)
    columns = np.column_stack([split.x, split.y])
    np.testing.assert_allclose([columns.mean(axis=0), columns.std(axis=0)], [[0.0] * 3, [1.0] * 3], atol=1e-12)


def test_folds_score_every_row_once() -> None:
    x, y = load(DATASET)
    scored = 0
    for fold in range(NUM_FOLDS):
        scored += len(fold_split(DATASET, fold, 0.7).y_test)
    assert scored == len(x) == len(y)


def test_a_fold_learns_from_the_share_that_it_is_told() -> None:
    assert len(fold_split(DATASET, 0, 0.7).x) == round(0.7 * 0.8 * 150)


def test_a_data_set_without_its_folder_says_which_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CVGP_DATA", raising=False)
    with pytest.raises(MissingFileError, match="CVGP_DATA"):
        load.__wrapped__("wine")


# Methods


def test_the_fit_through_the_layers_is_the_estimators_fit() -> None:
    split = random_split(DATASET, seed=0)
    settings = {"solver": "adam", "max_iter": 5}
    through_layers = with_beta_transform("log", 10, 7, kernel="rbf", init="kmeans", settings=settings)
    expected = estimator(10, 7, kernel="rbf", init="kmeans", **settings)(split.x, split.y).predict(split.x_test)
    np.testing.assert_array_equal(through_layers(split.x, split.y).predict(split.x_test), expected)


def test_svgp_learns_the_waves() -> None:
    split = random_split("waves-400x2", seed=0)
    fitted = svgp(30, 0, kernel="rbf", ard=True, learning_rate=0.1, steps=150)(split.x, split.y)
    mean, _ = fitted.predict(split.x_test)
    assert np.sqrt(np.mean((mean - split.y_test) ** 2)) < 0.3  # a constant has 1, the noise alone about 0.1


# Tasks and their store


def test_a_failed_task_is_recorded_and_the_rest_go_on(store: Store) -> None:
    def fail() -> Metrics:
        raise ZeroDivisionError("on purpose")

    run_tasks([Task({"n": 0}, fail), Task({"n": 1}, metrics)], store, threads=1)
    records = [store.get({"n": 0}), store.get({"n": 1})]
    assert [r.error for r in records if r is not None] == ["ZeroDivisionError: on purpose", ""]


def test_a_score_that_is_not_finite_is_a_failure(store: Store) -> None:
    run_tasks([Task({"n": 0}, lambda: metrics(-np.inf))], store, threads=1)
    record = store.get({"n": 0})
    assert record is not None
    assert record.error == "FloatingPointError: not finite: log_likelihood"


def test_a_finished_task_is_not_run_again(store: Store) -> None:
    store.append(Record({"n": 0}, metrics(1.0), ORIGIN))
    run_tasks([Task({"n": 0}, lambda: metrics(2.0))], Store(store.path), threads=1)
    assert len(store.path.read_text().splitlines()) == 1


def test_renewing_runs_our_own_fits_again_and_no_peers(store: Store) -> None:
    store.append(Record({"n": "ours"}, metrics(), ORIGIN | {"source": "older"}))
    store.append(Record({"n": "peer"}, metrics(), ORIGIN | {"source": "older"}))
    ran: list[str] = []

    def run(name: str) -> Metrics:
        ran.append(name)
        return metrics()

    tasks = [Task({"n": "ours"}, lambda: run("ours")), Task({"n": "peer"}, lambda: run("peer"), ours=False)]
    run_tasks(tasks, store, threads=1, renew=True)
    assert ran == ["ours"]


def test_half_a_line_of_a_killed_run_is_overwritten(store: Store) -> None:
    store.append(Record({"n": 0}, metrics(), ORIGIN))
    with store.path.open("a") as file:
        file.write('{"task": {"n":')
    Store(store.path).append(Record({"n": 1}, metrics(), ORIGIN))
    assert Store(store.path).get({"n": 1}) is not None


def test_a_damaged_line_is_named(store: Store) -> None:
    store.path.write_text("nonsense\n")
    with pytest.raises(FileFormatError, match="line 1"):
        Store(store.path)


# Tables


def defaults_plan(splits: int) -> defaults.Plan:
    return defaults.Plan((DATASET,), splits, ("bound",), size=10, max_time=1.0)


def test_each_factor_has_one_default() -> None:
    found = defaults.choices(tuple(defaults.FACTORS), size=200)
    assert [c.factor for c in found if c.is_default] == list(defaults.FACTORS)


def test_an_unknown_factor_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="Unknown factors colour"):
        defaults.choices(["colour"], size=200)


def test_a_split_on_which_one_value_failed_counts_for_none(store: Store) -> None:
    plan = replace(defaults_plan(splits=2), factors=("beta",))
    log, softplus = defaults.choices(["beta"], plan.size)
    for split, choice, value in [(0, log, 1.0), (0, softplus, 2.0), (1, log, 9.0)]:
        store.append(Record(defaults.task(plan, DATASET, split, choice.config).key, metrics(value), ORIGIN))
    store.append(Record(defaults.task(plan, DATASET, 1, softplus.config).key, {}, ORIGIN, error="failed"))
    rows = [line.split(" | ") for line in defaults_table.report(plan, store).splitlines()[2:4]]
    assert [(row[2], row[3]) for row in rows] == [("1.0000", "0"), ("2.0000", "1")]


def quality_plan() -> quality.Plan:
    return quality.Plan(("wine",), folds=1, parts="ab", train_share=0.7, size=10, steps=5, threads=1)


def test_the_peer_is_shown_at_its_best_learning_rate(store: Store) -> None:
    plan = quality_plan()
    store.append(Record(quality.task(plan, "wine", 0, quality.OURS).key, metrics(), ORIGIN))
    for method, value in zip(quality.PEERS, (-3.0, -1.0, -2.0), strict=True):
        store.append(Record(quality.task(plan, "wine", 0, method).key, metrics(value), ORIGIN))
    assert "SVGP, rate 0.03" in quality_table.report(plan, store)


def test_a_target_that_is_missed_says_so(store: Store) -> None:
    plan = quality_plan()
    store.append(Record(quality.task(plan, "wine", 0, quality.ISOTROPIC).key, metrics(), ORIGIN))
    assert "| wine | isotropic RBF | RMSE | 0.5000 | <= 0.46 the paper's | FAIL |" in quality_table.report(plan, store)


def test_a_table_replaces_the_one_before_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- x:begin -->\nold\n<!-- x:end -->\nbelow\n")
    fill(page, "x", "new")
    assert page.read_text() == "above\n<!-- x:begin -->\n\nnew\n\n<!-- x:end -->\nbelow\n"


def test_a_page_without_the_place_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here\n")
    with pytest.raises(FileFormatError, match="x:begin"):
        fill(page, "x", "new")


@pytest.mark.parametrize("place", ["defaults", "quality"])
def test_the_documentation_has_a_place_for_each_table(place: str, tmp_path: Path) -> None:
    page = tmp_path / "defaults.md"
    page.write_text((Path(__file__).parent.parent / "docs" / "defaults.md").read_text())
    fill(page, place, "a table")
    assert "a table" in page.read_text()


# Shards, spoilt files, long runs


def test_merging_is_compared_with_one_fit(tmp_path: Path) -> None:
    common = ["--datasets", "waves-300x2", "--size", "8", "--threads", "1", "--store", str(tmp_path / "results.jsonl")]
    result = CliRunner().invoke(app, ["federated", "--shards", "2", "--steps", "5", *common], catch_exceptions=False)
    rows = [line.split(" | ") for line in result.stdout.splitlines() if line.startswith("| waves-300x2")]
    assert [(row[1], row[3]) for row in rows] == [
        ("one fit on all rows", "8"),
        ("merge, all points", "16"),
        ("merge, refit=True", "16"),
        ("merge to M points", "8"),
        ("one shard alone", "8"),
    ]
    assert "- |" not in " | ".join(rows[0] + rows[1])


def test_two_rounds_of_a_long_run_give_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "SETTINGS", {"lbfgs": soak.SETTINGS["lbfgs"]})
    monkeypatch.setattr(soak, "ROWS", 200)
    report = soak.run(minutes=1e-6, say=lambda line: None)
    assert (report.rounds, report.failures) == (2, [])


def test_memory_that_grows_fails_a_long_run() -> None:
    growing = soak.Report(100, 1.0, [100.0 + round for round in range(100)], [])
    assert growing.slope == pytest.approx(1.0)
    assert not growing.passed


def test_an_answer_that_changes_fails_a_long_run() -> None:
    assert not soak.Report(10, 1.0, [100.0] * 10, ["round 3, adam: predictions differ"]).passed


def test_a_case_is_repeated_by_its_number() -> None:
    assert [seeded(7)[1].random() for _ in range(2)] == [seeded(7)[1].random()] * 2


def test_a_worker_that_dies_is_a_failure_of_the_case_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import os; print('start 5 table', flush=True); os.abort()"
    monkeypatch.setattr(fuzz, "_command", lambda seed, seconds: [sys.executable, "-c", script])
    report = fuzz.Report({}, [], 0)
    assert fuzz._run_worker(5, 1.0, report) == 6
    assert report.failures == ["case 5 (table) FAILED: the process ended with code -6"]
