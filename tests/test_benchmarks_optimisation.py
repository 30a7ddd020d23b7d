from pathlib import Path

import pytest

from benchmarks.optimisation import bayesian, bayesian_table
from benchmarks.optimisation.bayesian import Large, Problem
from benchmarks.runner import run_tasks
from cvgp.paper.store import Store


def test_both_models_are_run_stored_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    branin = bayesian.PROBLEMS["branin"].function
    monkeypatch.setitem(bayesian.PROBLEMS, "branin", Problem(branin, 5, 2))
    monkeypatch.setattr(bayesian, "SEARCH", {"num_restarts": 1, "raw_samples": 8, "options": {"maxiter": 5}})
    monkeypatch.setattr(bayesian, "SUBSET", 20)
    store, large = Store(tmp_path / "optimisation.jsonl"), Large(rows=60, iterations=1)
    run_tasks(bayesian.tasks(["branin"], 1, large), store, 1, warm_up=False)
    report = bayesian_table.report(["branin"], 1, large, store)
    for model in bayesian.MODELS:
        assert f"| branin, 5 + 2 observations | {model} | 1 |" in report
    assert "60 noisy observations" in report
    assert report.count("| CVGPModel |") == 2


def test_a_task_that_has_not_run_has_no_row(tmp_path: Path) -> None:
    report = bayesian_table.report(["branin"], 1, None, Store(tmp_path / "empty.jsonl"))
    assert "CVGPModel" not in report
