"""Stores, the runner, pages and splits: what every measurement relies on."""

import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvgp.errors import FileFormatError, InvalidInputError, MissingFileError
from experiments import runner
from experiments.__main__ import main
from experiments.data import load
from experiments.markdown import fill, mean_and_error
from experiments.runner import Task, run_tasks
from experiments.splits import NUM_FOLDS, fold, group_rows, held_out, near_copies, race_split, random_split, train_rows
from experiments.store import RESULTS, Outcome, Record, Store

DATASET = "waves-150x2"
ORIGIN = {"date": "2025-01-01T00:00:00", "commit": "c", "source": "older", "processor": "p"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "new" / "results.jsonl")


# Stores


def test_a_store_keeps_records_traces_and_arrays(store: Store) -> None:
    record = Record({"n": 1}, {"a": 1.0, "b": None}, ORIGIN, 0.5, arrays=True, trace=[{"seconds": 1.0}])
    store.append(record, {"values": np.arange(3)})
    again = Store(store.path)
    assert again.get({"n": 1}) == record
    assert np.isnan(record.number("b"))
    np.testing.assert_array_equal(again.arrays(record)["values"], [0, 1, 2])


def test_a_missing_array_file_is_named(store: Store) -> None:
    with pytest.raises(MissingFileError, match="run the task again"):
        store.arrays(Record({"n": 1}, {}, ORIGIN))


def test_half_a_line_of_a_killed_run_is_overwritten(store: Store) -> None:
    store.append(Record({"n": 0}, {}, ORIGIN))
    with store.path.open("a") as file:
        file.write('{"task": {"n":')
    Store(store.path).append(Record({"n": 1}, {}, ORIGIN))
    assert [r.task["n"] for r in Store(store.path)] == [0, 1]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text("nonsense\n")
    with pytest.raises(FileFormatError, match="line 1"):
        Store(tmp_path / "e.jsonl")


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.jsonl")), ids=lambda path: path.stem)
def test_every_shipped_result_can_be_read(path: Path) -> None:
    store = Store(path)
    assert len(store) == len(
        {json.dumps(json.loads(line)["task"], sort_keys=True) for line in path.read_text().splitlines()}
    )
    assert all(r.metrics or r.failed for r in store)
    for record in store:
        if record.arrays:
            store.arrays(record)


# The runner


def odd_task(kind: str) -> Outcome:
    if kind == "fails":
        raise ZeroDivisionError("on purpose")
    if kind == "dies":
        os._exit(3)
    if kind == "hangs":
        time.sleep(600)
    if kind == "nan":
        return Outcome({"score": float("nan")})
    return Outcome({"score": 2.0, "process": float(os.getpid())}, {"x": np.ones(2)}, origin={"precision": "float16"})


def odd_tasks(*kinds: str) -> list[Task]:
    return [Task({"kind": kind}, partial(odd_task, kind)) for kind in kinds]


def errors(store: Store) -> dict[str, str]:
    return {str(r.task["kind"]): r.error for r in store}


def test_failures_are_recorded_and_the_other_tasks_run(store: Store) -> None:
    summary = run_tasks(lambda: odd_tasks("fails", "nan", "works"), store, threads=1)
    assert errors(store) == {
        "fails": "ZeroDivisionError: on purpose",
        "nan": "FloatingPointError: not finite: score",
        "works": "",
    }
    assert summary == (3, 2, 0)
    works = store.finished({"kind": "works"})
    assert works is not None
    assert works.provenance["precision"] == "float16"
    assert works.provenance["torch"]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.slow
def test_tasks_in_processes_may_die_or_hang(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    import multiprocessing

    monkeypatch.setattr(runner, "_context", lambda: multiprocessing.get_context("fork"))  # it knows this module
    kinds = ("fails", "works", "dies", "hangs")
    summary = run_tasks(lambda: odd_tasks(*kinds), store, threads=1, jobs=2, time_limit=3.0)
    found = errors(store)
    assert found["dies"].startswith("ProcessEnded: code 3")
    assert found["hangs"] == "TimeLimit: not done after 3 seconds"
    assert (found["fails"], found["works"]) == ("ZeroDivisionError: on purpose", "")
    assert (summary.ran, summary.failed) == (4, 3)
    works = store.finished({"kind": "works"})
    assert works is not None
    assert works.number("process") != os.getpid()
    np.testing.assert_array_equal(store.arrays(works)["x"], [1.0, 1.0])


def test_finished_tasks_are_skipped_and_failed_ones_tried_again(store: Store) -> None:
    store.append(Record({"kind": "works"}, {"score": 1.0}, ORIGIN))
    store.append(Record({"kind": "nan"}, {}, ORIGIN, error="earlier"))
    assert run_tasks(lambda: odd_tasks("works", "nan"), store, threads=1) == (1, 1, 1)
    assert store.get({"kind": "works"}).metrics == {"score": 1.0}  # type: ignore[union-attr]


def test_renewing_repeats_our_own_tasks_and_no_peers(store: Store) -> None:
    for kind in ("ours", "peer"):
        store.append(Record({"kind": kind}, {"score": 1.0}, ORIGIN))
    ours, peer = odd_tasks("ours", "peer")
    assert run_tasks(lambda: [ours, peer._replace(ours=False)], store, threads=1, renew=True).ran == 1
    assert store.get({"kind": "ours"}).metrics["score"] == 2.0  # type: ignore[union-attr]


def test_results_may_decide_about_further_tasks(store: Store) -> None:
    def make() -> list[Task]:
        return odd_tasks("first") if store.get({"kind": "first"}) is None else odd_tasks("first", "second")

    assert run_tasks(make, store, threads=1).ran == 2


def test_an_unknown_name_ends_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, message in (
        (["race", "--kinds", "sorted"], "Unknown kinds of split sorted"),
        (["race", "--datasets", "nowhere"], "Unknown data set 'nowhere'"),
        (["race", "--peers", "nobody"], "Unknown peers nobody. Choose from cvgp, "),
        (["speed", "light"], "Unknown measurement 'light'"),
        (["ablation", "--variants", "nothing"], "Unknown variants nothing"),
        (["paper", "nothing"], "Unknown experiment 'nothing'"),
        (["paper", "gaps", "--preset", "nothing"], "Unknown preset 'nothing'"),
        (["paper", "gaps", "--methods", "nothing"], "Unknown method 'nothing'"),
    ):
        monkeypatch.setattr("sys.argv", ["experiments", *arguments])
        with pytest.raises(SystemExit) as exit_:
            main()
        assert (exit_.value.code, message in capsys.readouterr().err) == (1, True), arguments


# Pages


def test_a_page_is_filled_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- here:begin -->\nold\n<!-- here:end -->\nafter\n")
    fill(page, "here", "new")
    assert page.read_text() == "before\n<!-- here:begin -->\n\nnew\n\n<!-- here:end -->\nafter\n"
    with pytest.raises(FileFormatError, match="there:begin"):
        fill(page, "there", "new")


def test_mean_and_standard_error() -> None:
    assert mean_and_error([1.0, 2.0, 3.0, None]) == "2.000 ± 0.577"
    assert (mean_and_error([1.0]), mean_and_error([])) == ("1.000", "-")


# Splits


def test_a_fold_has_56_24_and_20_percent_and_all_folds_score_every_row_once() -> None:
    split = fold("synthetic1", 2)
    parts = [split.x, split.x_validation, split.x_test]
    assert [len(part) for part in parts] == [560, 240, 200]
    assert len(np.unique(np.concatenate(parts))) == 1000
    assert train_rows("synthetic1") == 560
    assert sum(len(fold("synthetic1", k).y_test) for k in range(NUM_FOLDS)) == 1000
    with pytest.raises(InvalidInputError, match="from 0 to 4"):
        fold("synthetic1", 5)


def original(split: Any, part: np.ndarray) -> set[tuple[float, ...]]:
    return {tuple(row.round(9)) for row in split.scaling.unscale_x(part)}


@pytest.mark.parametrize("kind", ["random", "grouped"])
def test_a_race_split_is_standardized_by_its_training_rows_and_scores_others(kind: str) -> None:
    split = race_split(DATASET, kind, 3)
    columns = np.column_stack([split.x, split.y])
    np.testing.assert_allclose([columns.mean(0), columns.std(0)], [[0.0] * 3, [1.0] * 3], atol=1e-12)
    assert not original(split, split.x) & original(split, split.x_test)
    assert len(split.x) + len(split.x_test) == 150
    if kind == "random":
        np.testing.assert_array_equal(split.x_test, random_split(DATASET, 3).x_test)


def test_near_copies_share_a_group_directly_or_through_rows_between_them() -> None:
    x = np.array([[0.0, 0.0], [0.01, 0.0], [1.0, 1.0], [0.0, 0.0], [-1.0, 2.0]])
    groups = near_copies(x)
    assert groups[0] == groups[1] == groups[3]
    assert len(set(groups.tolist())) == 3
    np.testing.assert_array_equal(groups, near_copies(x * [1e-3, 1e6]))
    chain = np.column_stack([np.linspace(0.0, 1.0, 50), np.zeros(50)])
    assert [len(set(near_copies(rows).tolist())) for rows in (chain, chain[::10])] == [1, 5]


@pytest.mark.parametrize(
    ("name", "count"), [("energy", 192), ("concrete", 427), ("airfoil", 106), ("parkinsons", 42), ("bike", 731)]
)
def test_a_set_has_as_many_groups_as_things_were_observed(name: str, count: int, uci: Any) -> None:
    x, _ = uci(name)
    assert len(set(group_rows(name, x).tolist())) == count


def test_whole_groups_of_a_fifth_are_held_out_and_larger_ones_are_learned_from() -> None:
    groups = np.random.default_rng(1).integers(40, size=1000)
    scored = held_out(groups, np.random.default_rng(0))
    assert not set(groups[scored]) & set(groups[~scored])
    assert 150 <= scored.sum() <= 200
    groups = np.array([0] * 60 + list(range(1, 41)))
    scored = held_out(groups, np.random.default_rng(0))
    assert (scored.sum(), scored[:60].sum()) == (20, 0)
    with pytest.raises(InvalidInputError, match="none to score"):
        held_out(np.zeros(10, dtype=np.intp), np.random.default_rng(0))


def test_waves_have_the_size_of_their_name() -> None:
    assert load("waves-30x4").x.shape == (30, 4)
