"""The measurements run, resume and report; what they find is not tested here."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app, main
from benchmarks.ours import estimator, through_layers
from benchmarks.quality import defaults, defaults_table
from benchmarks.quality import folds as quality
from benchmarks.quality import folds_table as quality_table
from benchmarks.runner import Task, run_tasks
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.paper.datasets import load
from cvgp.paper.markdown import fill
from cvgp.paper.splits import fold, random_split, validation_split
from cvgp.paper.store import Metrics, Outcome, Record, Store

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


def test_the_comparison_inside_gpytorch_prints_a_table_without_gaps(tmp_path: Path) -> None:
    arguments = ["gpytorch", "--quick", "--datasets", DATASET, "--store", str(tmp_path / "results.jsonl")]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "FAILED" not in result.stdout
    assert "| - |" not in result.stdout
    assert f"| {DATASET} | 0.03 |" in result.stdout


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


def test_a_fold_learns_from_the_share_that_it_is_told() -> None:
    assert len(fold(DATASET, 0, train_share=0.7).x) == round(0.7 * 0.8 * 150)
    assert len(fold(DATASET, 0, train_share=1.0).x) == 120


# Methods


def test_the_fit_through_the_layers_is_the_estimators_fit() -> None:
    split = random_split(DATASET, seed=0)
    settings: dict[str, Any] = {"kernel": "rbf", "init": "kmeans", "solver": "adam", "max_iter": 5}
    layers, expected = (fit(10, 7, **settings)(split.x, split.y) for fit in (through_layers, estimator))
    np.testing.assert_array_equal(layers.predict(split.x_test).mean, expected.predict(split.x_test).mean)
    np.testing.assert_array_equal(layers.predict(split.x_test).y_sd, expected.predict(split.x_test).y_sd)


def test_a_fit_ends_by_the_clock_that_it_is_given() -> None:
    split = random_split(DATASET, seed=0)
    ticks = itertools.count()
    fit = through_layers(10, 7, kernel="rbf", solver="adam", max_iter=10**6, max_time=200.0, clock=lambda: next(ticks))
    assert 0 < fit(split.x, split.y).num_steps < 200


# Tasks and their store


def test_a_failed_task_is_recorded_and_the_rest_go_on(store: Store) -> None:
    def fail() -> Outcome:
        raise ZeroDivisionError("on purpose")

    run_tasks([Task({"n": 0}, fail), Task({"n": 1}, lambda: Outcome(metrics()))], store, threads=1)
    records = [store.get({"n": 0}), store.get({"n": 1})]
    assert [r.error for r in records if r is not None] == ["ZeroDivisionError: on purpose", ""]


def test_a_score_that_is_not_finite_is_a_failure(store: Store) -> None:
    run_tasks([Task({"n": 0}, lambda: Outcome(metrics(-np.inf)))], store, threads=1)
    record = store.get({"n": 0})
    assert record is not None
    assert record.error == "FloatingPointError: not finite: log_likelihood"


def test_a_finished_task_is_not_run_again(store: Store) -> None:
    store.append(Record({"n": 0}, metrics(1.0), ORIGIN))
    run_tasks([Task({"n": 0}, lambda: Outcome(metrics(2.0)))], Store(store.path), threads=1)
    assert len(store.path.read_text().splitlines()) == 1


def test_renewing_runs_our_own_fits_again_and_no_peers(store: Store) -> None:
    store.append(Record({"n": "ours"}, metrics(), ORIGIN | {"source": "older"}))
    store.append(Record({"n": "peer"}, metrics(), ORIGIN | {"source": "older"}))
    ran: list[str] = []

    def run(name: str) -> Outcome:
        ran.append(name)
        return Outcome(metrics())

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
    assert [row[2:5] for row in rows] == [["1.0000", "-", "-"], ["2.0000", "-1.0000", "0 of 1"]]


def test_the_error_of_a_choice_is_over_sets(store: Store) -> None:
    """Splits of one set are not independent, so that more of them do not make a choice more certain."""
    plan = defaults.Plan(("waves-60x2", "waves-70x2", "waves-80x2"), 2, ("beta",), size=10, max_time=1.0)
    log, softplus = defaults.choices(["beta"], plan.size)
    for dataset, value in zip(plan.datasets, (0.0, 1.0, 5.0), strict=True):
        for split in range(2):
            for choice, result in ((log, value + split), (softplus, 0.0)):
                key = defaults.task(plan, dataset, split, choice.config).key
                store.append(Record(key, metrics(result), ORIGIN))
    row = defaults_table.report(plan, store).splitlines()[3].split(" | ")
    assert row[3:5] == [f"+2.5000 ± {np.std([0.5, 1.5, 5.5], ddof=1) / 3**0.5:.4f}", "3 of 3"]


def test_defaults_are_chosen_by_rows_that_the_split_does_not_score() -> None:
    x, _ = load(DATASET)
    scored, inner = random_split(DATASET, 2), validation_split(DATASET, 2)
    original = {tuple(row.round(9)) for row in scored.scaling.unscale_x(scored.x_test)}
    seen = {tuple(row.round(9)) for part in (inner.x, inner.x_test) for row in inner.scaling.unscale_x(part)}
    assert not original & seen
    assert len(original) + len(seen) == len(x)


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


# Shards


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
