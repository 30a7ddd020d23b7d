from pathlib import Path

import pytest

from benchmarks.runner import run_tasks
from benchmarks.speed import nearest
from cvgp.paper.store import Store


@pytest.mark.slow
def test_a_quick_run_reports_statistics_and_predictions(tmp_path: Path) -> None:
    plan, store = nearest.quick(1), Store(tmp_path / "speed.jsonl")
    run_tasks(nearest.tasks(plan), store, 1, warm_up=False)
    report = nearest.report(plan, store)
    assert "Statistics of 2000 rows with 20 neighbours each, M = 200" in report
    assert "Predictions from 600 rows x 10 columns: mean and sd of one row in" in report


def test_every_search_has_a_task_per_number_of_rows() -> None:
    plan = nearest.full(1)
    searches = [task.key for task in nearest.tasks(plan) if task.key["what"] == "search"]
    assert len(searches) == len(plan.searched) * len(nearest.SEARCHES)
    assert {task["method"] for task in searches} == set(nearest.SEARCHES)
