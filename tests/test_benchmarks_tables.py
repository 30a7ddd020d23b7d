from pathlib import Path

import pandas as pd
import pytest

from benchmarks.quality import table_encodings
from benchmarks.quality.table_problems import PROBLEMS, make
from benchmarks.runner import run_tasks
from cvgp.paper.store import Store

GENERATED = sorted(set(PROBLEMS) - {"flights"})
OURS = tuple(method for method in table_encodings.METHODS if method != "LightGBM")


@pytest.mark.parametrize("name", GENERATED)
def test_a_table_is_the_same_each_time_and_no_row_is_in_both_parts(name: str) -> None:
    first, second = make(name, 200, 100, 3), make(name, 200, 100, 3)
    pd.testing.assert_frame_equal(first.train, second.train)
    assert (len(first.train), len(first.test)) == (200, 100)
    assert not set(first.y) & set(first.y_test)


def test_every_encoding_is_scored_and_stands_in_the_report(tmp_path: Path) -> None:
    plan = table_encodings.Plan(("mixed",), OURS, 150, 60, 1, 1.0, 1)
    store = Store(tmp_path / "tables.jsonl")
    run_tasks(table_encodings.tasks(plan), store, 1, warm_up=False)
    report = table_encodings.report(plan, store)
    assert [f"| mixed | 150 | {method} |" in report for method in OURS] == [True] * len(OURS)
