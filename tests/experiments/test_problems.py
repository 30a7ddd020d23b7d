"""Hard problems, tables and the ablation: what is generated, and what is stored and shown."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments import ablation, hard, tables
from experiments.ablation import DEFAULT, Plan, Variant
from experiments.runner import run_tasks
from experiments.splits import race_split
from experiments.store import Record, Store

ORIGIN = {"date": "2025-01-01T00:00:00", "commit": "c", "source": "s", "processor": "p"}
OURS = tuple(method for method in tables.METHODS if method != "LightGBM")
MOSTLY_NOISE = {"only noise", "outliers in y", "heavy-tailed noise"}


@pytest.mark.parametrize("name", hard.PROBLEMS)
def test_a_problem_is_finite_the_same_each_time_and_mostly_learnable(name: str) -> None:
    first, second = hard.make(name), hard.make(name)
    assert len(first.x) == hard.PROBLEMS[name].rows
    assert all(np.isfinite(values).all() for values in first)
    np.testing.assert_array_equal(first.y, second.y)
    if name not in MOSTLY_NOISE:
        assert np.var(first.y_test - first.f_test) < 0.5 * np.var(first.y_test)


def test_a_run_is_stored_and_judged_and_a_fit_that_learned_nothing_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path / "hard.jsonl")
    run_tasks(lambda: hard.tasks(["few rows"], 1), store, threads=1)
    assert hard.report(["few rows"], 1, store).count("| learned |") == 1
    (record,) = store
    record.metrics["rmse"] = record.metrics["rmse_constant"]
    assert "1 of 1 learned nothing" in hard.report(["few rows"], 1, store)


@pytest.mark.parametrize("name", sorted(set(tables.PROBLEMS) - {"flights"}))
def test_a_table_is_the_same_each_time_and_no_row_is_in_both_parts(name: str) -> None:
    first, second = tables.make(name, 200, 100, 3), tables.make(name, 200, 100, 3)
    pd.testing.assert_frame_equal(first.train, second.train)
    assert (len(first.train), len(first.test)) == (200, 100)
    assert not set(first.y) & set(first.y_test)


def test_every_encoding_is_scored_and_shown(tmp_path: Path) -> None:
    plan, store = tables.Plan(("mixed",), OURS, 150, 60, 1, 1.0, 1), Store(tmp_path / "tables.jsonl")
    run_tasks(lambda: tables.tasks(plan), store, threads=1)
    report = tables.report(plan, store)
    assert [f"| mixed | 150 | {method} |" in report for method in OURS] == [True] * len(OURS)


# The ablation


@pytest.mark.parametrize("seed", [0, 2])
def test_the_ablation_sees_no_row_that_the_race_scores(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    split, rows = race_split("waves-150x2", "random", seed), ablation.rows_of("uci:waves-150x2", seed)
    seen = {tuple(row) for part in (rows.x, rows.x_test) for row in part}
    assert seen == {tuple(row) for row in split.x}
    assert len(rows.x) + len(rows.x_test) == len(split.x)


def test_a_variant_is_fitted_beside_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ablation.VARIANTS, "two steps", Variant("less training", {"training__max_iter": 2}))
    plan, store = Plan(("hard:few rows",), ("two steps",), seeds=1), Store(tmp_path / "ablation.jsonl")
    run_tasks(lambda: ablation.tasks(plan, store), store, threads=1)
    assert [(r.task["variant"], r.error) for r in store] == [(DEFAULT, ""), ("two steps", "")]
    assert "| two steps | less training |" in ablation.report(plan, store)


def test_changes_are_means_over_seeds_and_zero_where_a_variant_cannot_act(tmp_path: Path) -> None:
    plan, store = Plan(("uci:wine", "uci:bike"), ("no neighbors",), seeds=2), Store(tmp_path / "ablation.jsonl")

    def store_default(problem: str, seed: int, value: float, neighbors: str) -> None:
        metrics = {"log_likelihood": value, "rmse": 1.0, "coverage": 0.9, "seconds": 2.0}
        origin = ORIGIN | {"decided n_neighbors": neighbors}
        store.append(Record(ablation._key(plan, problem, DEFAULT, seed), metrics, origin))

    def store_variant(problem: str, seed: int, value: float) -> None:
        metrics = {"log_likelihood": value, "rmse": 1.0, "coverage": 0.9, "seconds": 2.0}
        store.append(Record(ablation._key(plan, problem, "no neighbors", seed), metrics, ORIGIN))

    store_default("uci:wine", 0, 1.0, "20")
    store_variant("uci:wine", 0, 0.4)
    store_default("uci:wine", 1, 2.0, "none")  # the variant cannot act
    store_default("uci:bike", 0, 3.0, "20")
    store_variant("uci:bike", 0, 3.2)
    store_default("uci:bike", 1, 3.0, "20")
    store.append(Record(ablation._key(plan, "uci:bike", "no neighbors", 1), {}, ORIGIN, error="failed"))
    found, failures = ablation.changes(plan, store, "no neighbors")
    assert [(c.problem, c.acting, round(c.nats, 9)) for c in found] == [("uci:wine", 1, -0.3), ("uci:bike", 1, 0.2)]
    assert failures == 1
    wanted = {(task.key["variant"], task.key["problem"], task.key["seed"]) for task in ablation.tasks(plan, store)}
    assert ("no neighbors", "uci:wine", 1) not in wanted
    assert ("no neighbors", "uci:wine", 0) in wanted
