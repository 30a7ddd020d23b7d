"""Folds, presets, stores, tasks and the runner."""

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvgp.errors import FileFormatError, InvalidInputError, MissingFileError
from cvgp.paper.baselines import Recipe
from cvgp.paper.board import Board
from cvgp.paper.datasets import load
from cvgp.paper.experiments import Defaults, Experiment, Plan, Results, find_experiment
from cvgp.paper.experiments.comparison import Cell, paired_table
from cvgp.paper.experiments.experiment import base_key, build, product_keys, recipe_of
from cvgp.paper.experiments.rates import chosen_records, tuned_keys
from cvgp.paper.markdown import fill, mean_and_error
from cvgp.paper.protocol import PRESETS, Preset, find_preset
from cvgp.paper.runner import run_plan
from cvgp.paper.splits import NUM_FOLDS, fold, train_rows
from cvgp.paper.store import Key, Outcome, Record, Store

ORIGIN = {"date": "2025-01-01T00:00:00", "commit": "c", "source": "s", "processor": "p"} | dict.fromkeys(
    ("torch", "gpytorch", "numpy"), "1"
)
GRID = Preset("grid", Recipe(steps=3), learning_rates=(0.01, 0.1), rows=50, time_limit=10.0)


def record(key: Key, **metrics: float) -> Record:
    return Record(key, dict(metrics), ORIGIN, 0.1)


# Folds


def test_folds_score_every_row_once() -> None:
    assert sum(len(fold("synthetic1", k).y_test) for k in range(NUM_FOLDS)) == len(load("synthetic1").y)


def test_a_fold_is_split_into_56_24_and_20_percent_without_overlap() -> None:
    split = fold("synthetic1", 2)
    parts = [split.x, split.x_validation, split.x_test]
    assert [len(part) for part in parts] == [560, 240, 200]
    assert len(np.unique(np.concatenate(parts))) == 1000  # no row twice
    assert train_rows("synthetic1") == 560


def test_only_the_training_part_is_standardised_exactly() -> None:
    split = fold("synthetic4", 0)
    columns = np.column_stack([split.x, split.y])
    np.testing.assert_allclose([columns.mean(0), columns.std(0)], [[0.0] * 3, [1.0] * 3], atol=1e-12)
    assert np.abs(split.x_test.mean(0)).max() > 1e-6
    x, _ = load("synthetic4")
    back = np.sort(split.scaling.unscale_x(np.concatenate([split.x, split.x_validation, split.x_test])), axis=0)
    np.testing.assert_allclose(back, np.sort(x, axis=0), atol=1e-12)


def test_folds_do_not_depend_on_the_run() -> None:
    first, second = fold("synthetic2", 1, rows=100), fold("synthetic2", 1, rows=100)
    np.testing.assert_array_equal(first.x, second.x)
    assert len(first.y) == 56


def test_a_fold_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="from 0 to 4"):
        fold("synthetic1", 5)


def test_the_papers_preset_is_its_protocol() -> None:
    recipe = PRESETS["paper"].recipe
    assert (recipe.learning_rate, recipe.batch_size, recipe.dtype) == (1e-3, 512, "float32")
    assert (recipe.epochs, recipe.patience, recipe.schedule) == (100_000, 3000, "constant")
    assert PRESETS["paper"].learning_rates == (1e-3,)


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="paper, fair, smoke"):
        find_preset("quick")


# Keys


def plan(methods: tuple[str, ...] = ("CVGP", "SparseGP"), folds: int = 3) -> Plan:
    return Plan("predictive", GRID, ("synthetic1",), methods, (5,), folds)


def test_a_key_holds_the_whole_recipe() -> None:
    key = product_keys(plan(), learning_rate=0.1)[0]
    assert recipe_of(key) == Recipe(steps=3, learning_rate=0.1)
    assert json.loads(json.dumps(key)) == key
    assert build(key).recipe.learning_rate == 0.1


def test_exact_gp_comes_once_whatever_the_sizes() -> None:
    many = Plan("predictive", GRID, ("synthetic1",), ("ExactGP", "CVGP"), (5, 6), 1)
    assert [(k["method"], k["size"]) for k in product_keys(many)] == [("ExactGP", None), ("CVGP", 5), ("CVGP", 6)]


def test_exact_gp_is_left_out_where_it_cannot_run() -> None:
    large = Plan("predictive", PRESETS["fair"], ("bike",), ("ExactGP", "CVGP"), (5,), 1)
    assert {k["method"] for k in tuned_keys(large, Store(Path("nowhere") / "predictive.jsonl"))} == {"CVGP"}


def test_the_first_fold_chooses_the_rate_of_the_others_by_validation_rows_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "predictive.jsonl")
    first = tuned_keys(plan(), store)
    assert [(k["method"], k["fold"], k["learning_rate"]) for k in first] == [
        ("CVGP", 0, 0.01),
        ("SparseGP", 0, None),
        ("CVGP", 0, 0.1),
        ("SparseGP", 1, None),
        ("SparseGP", 2, None),
    ]
    # The better validation score decides, although the other rate has the better test score.
    scores = {0.01: (-1.0, 0.0), 0.1: (-0.5, -9.0), None: (0.0, 0.0)}
    for key in first:
        validation, test = scores[key["learning_rate"]]  # type: ignore[index]
        store.append(record(key, validation_log_likelihood=validation, log_likelihood=test), {})
    second = [k for k in tuned_keys(plan(), store) if store.finished(k) is None]
    assert [(k["method"], k["fold"], k["learning_rate"]) for k in second] == [("CVGP", 1, 0.1), ("CVGP", 2, 0.1)]
    for key in second:
        store.append(record(key, log_likelihood=-9.0), {})
    found = chosen_records(Results(store, GRID), "synthetic1", "CVGP", 5)
    assert [(r.task["fold"], r.task["learning_rate"]) for r in found] == [(0, 0.1), (1, 0.1), (2, 0.1)]


def test_results_of_a_changed_preset_are_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path / "predictive.jsonl")
    store.append(record(product_keys(plan())[0], rmse=1.0), {})
    changed = Preset("grid", Recipe(steps=4), GRID.learning_rates, GRID.rows, GRID.time_limit)
    assert (len(Results(store, GRID).records), len(Results(store, changed).records)) == (1, 0)


# The store


def test_a_store_keeps_records_and_their_arrays(tmp_path: Path) -> None:
    key: Key = {"experiment": "e", "n": 1}
    store = Store(tmp_path / "new" / "e.jsonl")
    store.append(Record(key, {"a": 1.0, "b": None}, ORIGIN, 0.5, arrays=True), {"values": np.arange(3)})
    again = Store(tmp_path / "new" / "e.jsonl")
    found = again.get(key)
    assert found is not None
    assert (found.number("a"), np.isnan(found.number("b"))) == (1.0, True)
    np.testing.assert_array_equal(again.arrays(found)["values"], [0, 1, 2])


def test_a_missing_array_file_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path / "e.jsonl")
    with pytest.raises(MissingFileError, match="run the task again"):
        store.arrays(record({"n": 1}))


def test_half_a_line_of_a_killed_run_is_overwritten(tmp_path: Path) -> None:
    Store(tmp_path / "e.jsonl").append(record({"n": 0}), {})
    with (tmp_path / "e.jsonl").open("a") as file:
        file.write('{"task": {"n":')
    Store(tmp_path / "e.jsonl").append(record({"n": 1}), {})
    assert [r.task["n"] for r in Store(tmp_path / "e.jsonl")] == [0, 1]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text("nonsense\n")
    with pytest.raises(FileFormatError, match="line 1"):
        Store(tmp_path / "e.jsonl")


STORED = sorted((Path(__file__).parents[2] / "benchmarks" / "results").rglob("*.jsonl"))


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_every_stored_result_can_be_read(path: Path) -> None:
    records = list(Store(path))
    assert {json.dumps(r.task, sort_keys=True) for r in records} == {
        json.dumps(json.loads(line)["task"], sort_keys=True) for line in path.read_text().splitlines()
    }
    assert all(r.metrics or r.failed for r in records)


# The runner: tasks of an experiment that is made of their own keys


def _odd_task(key: Key) -> Outcome:
    kind = key["kind"]
    if kind == "fails":
        raise ZeroDivisionError("on purpose")
    if kind == "dies":
        os._exit(3)
    if kind == "hangs":
        time.sleep(600)
    if kind == "nan":
        return Outcome({"score": float("nan")})
    return Outcome({"score": 2.0, "process": float(os.getpid())}, {"x": np.ones(2)})


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An experiment of odd tasks, run in processes forked from this one, which know it."""
    import multiprocessing

    from cvgp.paper import runner, worker

    kinds = ("fails", "works", "dies", "hangs", "nan")
    experiment = Experiment(
        "odd",
        "",
        lambda preset: Defaults((), (), ()),
        lambda plan, store: [{"experiment": "odd", "kind": kind} for kind in kinds],
        _odd_task,
        lambda results: "",
        lambda results: {},
    )
    monkeypatch.setattr(worker, "find_experiment", lambda name: experiment)
    monkeypatch.setattr(runner, "_context", lambda: multiprocessing.get_context("fork"))
    return experiment


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_failures_are_recorded_and_the_rest_go_on(odd: Any, tmp_path: Path) -> None:
    store = Store(tmp_path / "odd.jsonl")
    seen: list[Record] = []
    summary = run_plan(
        odd, plan(), store, jobs=2, threads=1, time_limit=3.0, report=lambda r, done, known: seen.append(r)
    )
    errors = {str(r.task["kind"]): r.error for r in store}
    assert errors["fails"] == "ZeroDivisionError: on purpose"
    assert errors["works"] == ""
    assert errors["dies"].startswith("ProcessEnded: code 3")
    assert errors["hangs"] == "TimeLimit: not done after 3 seconds"
    assert errors["nan"] == "FloatingPointError: not finite: score"
    assert (summary.ran, summary.failed, len(seen)) == (5, 4, 5)
    works = store.get({"experiment": "odd", "kind": "works"})
    assert works is not None
    assert works.number("process") != os.getpid()  # a process of its own
    assert works.provenance["torch"]
    np.testing.assert_array_equal(store.arrays(works)["x"], [1.0, 1.0])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_finished_task_is_skipped_and_a_failed_one_tried_again(odd: Any, tmp_path: Path) -> None:
    store = Store(tmp_path / "odd.jsonl")
    for kind in ("works", "dies", "hangs", "nan"):
        store.append(record({"experiment": "odd", "kind": kind}), {})
    store.append(Record({"experiment": "odd", "kind": "fails"}, {}, ORIGIN, 0.0, error="earlier"), {})
    summary = run_plan(odd, plan(), store, jobs=1, threads=1, time_limit=20.0, report=lambda *a: None)
    assert (summary.ran, summary.failed, summary.skipped) == (1, 1, 4)


# Reports


def test_the_board_counts_finished_failed_and_waiting_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path / "predictive.jsonl")
    board = Board(store, "grid")
    keys = product_keys(plan(("CVGP",)))
    with board:
        board.expect(keys)
        for number, (key, error) in enumerate(zip(keys, ("", "ValueError: no", None), strict=True), 1):
            if error is not None:
                store.append(Record(key, {"rmse": 0.5}, ORIGIN, 2.0, error=error), {})
                board.show(Record(key, {"rmse": 0.5}, ORIGIN, 2.0, error=error), number, len(keys))
    assert board.rows() == [["synthetic1 CVGP", "1", "1", "1", "2.0"]]
    assert board.table("title").row_count == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("[1/3, ")
    assert lines[0].endswith("synthetic1 CVGP 5 0: rmse 0.5 (2.0 s)")
    assert "FAILED, ValueError: no" in lines[1]


def test_mean_and_standard_error() -> None:
    assert mean_and_error([1.0, 2.0, 3.0, None]) == "2.000 ± 0.577"
    assert (mean_and_error([1.0]), mean_and_error([])) == ("1.000", "-")


def test_the_paired_test_allows_for_shared_training_rows() -> None:
    def cell(method: str, values: list[float]) -> Cell:
        key = base_key(plan()) | {"dataset": "d", "method": method, "size": 5}
        return Cell(
            "d", method, 5, None, [record(key | {"fold": k}, rmse=v, log_likelihood=v) for k, v in enumerate(values)]
        )

    table = paired_table(
        [cell("CVGP", [1.0, 2.0, 3.1, 4.0, 5.0]), cell("SVGP", [1.1, 2.3, 3.2, 4.2, 5.4])], "CVGP", "SVGP"
    )
    differences = np.array([-0.1, -0.3, -0.1, -0.2, -0.4])
    spread = np.sqrt((1 / 5 + 1 / 2.8) * differences.var(ddof=1))
    from scipy.stats import t

    p = 2 * t.sf(abs(differences.mean()) / spread, 4)
    assert f"| -0.2200 | {p:.3f} |" in table


def test_a_page_is_filled_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- here:begin -->\nold\n<!-- here:end -->\nafter\n")
    fill(page, "here", "new")
    assert page.read_text() == "before\n<!-- here:begin -->\n\nnew\n\n<!-- here:end -->\nafter\n"
    with pytest.raises(FileFormatError, match="there:begin"):
        fill(page, "there", "new")


def test_an_unknown_experiment_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="predictive, evolution"):
        find_experiment("everything")
