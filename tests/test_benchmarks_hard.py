from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality import hard
from benchmarks.quality.hard_problems import PROBLEMS, make
from benchmarks.runner import run_tasks
from cvgp.paper.store import Store


def test_there_are_at_least_twenty_problems() -> None:
    assert len(PROBLEMS) >= 20


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_is_finite_and_the_same_each_time(name: str) -> None:
    first, second = make(name), make(name)
    assert len(first.x) == PROBLEMS[name].rows
    assert all(np.isfinite(values).all() for values in first)
    np.testing.assert_array_equal(first.y, second.y)


@pytest.mark.parametrize("name", sorted(set(PROBLEMS) - {"only noise", "outliers in y", "heavy-tailed noise"}))
def test_the_true_function_explains_half_of_the_variance(name: str) -> None:
    data = make(name)
    assert np.var(data.y_test - data.f_test) < 0.5 * np.var(data.y_test)


def test_a_run_is_stored_and_judged(tmp_path: Path) -> None:
    store = Store(tmp_path / "hard.jsonl")
    run_tasks(hard.tasks(["few rows"], 1), store, 1, warm_up=False)
    report = hard.report(["few rows"], 1, store)
    assert "| few rows: 60 rows, eight columns | 60 x 8 |" in report
    assert report.count("learned |") == 1


def test_a_fit_that_learned_nothing_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path / "hard.jsonl")
    run_tasks(hard.tasks(["few rows"], 1), store, 1, warm_up=False)
    (record,) = [store.finished({"benchmark": "hard", "problem": "few rows", "seed": 0})]
    record.metrics["rmse"] = record.metrics["rmse_constant"]
    assert "1 of 1 learned nothing" in hard._row("few rows", [record])


def test_the_table_says_which_commits_its_records_are_of(tmp_path: Path) -> None:
    store = Store(tmp_path / "hard.jsonl")
    run_tasks(hard.tasks(["few rows"], 1), store, 1, warm_up=False)
    (record,) = [store.finished({"benchmark": "hard", "problem": "few rows", "seed": 0})]
    old = replace(record, provenance=record.provenance | {"commit": "0123456789"})
    assert hard._origin([old, old]) == "All fits are by commit 0123456789."
    assert "--renew" in hard._origin([old, record])
