"""Small data: the defaults against scikit-learn's exact GP with an ARD kernel, on 500 rows."""

from dataclasses import dataclass
from typing import Any

from benchmarks.peers.workers import fit_in_worker
from benchmarks.runner import Task
from cvgp.paper.splits import subset_split
from cvgp.paper.store import Outcome

__all__ = ["METHODS", "Plan", "full", "quick", "task", "tasks"]

KERNEL = "matern32"
METHODS = ("cvgp", "scikit-learn exact GP")


@dataclass(frozen=True)
class Plan:
    """What to run."""

    datasets: tuple[str, ...]
    splits: int
    rows: int
    threads: int


def full(threads: int) -> Plan:
    """The comparison of the documentation."""
    return Plan(("energy", "concrete", "airfoil", "wine", "waves-2500x6"), splits=3, rows=500, threads=threads)


def quick(threads: int) -> Plan:
    """Generated data, once."""
    return Plan(("waves-400x3",), splits=1, rows=200, threads=threads)


def tasks(plan: Plan) -> list[Task]:
    """Both methods on each split."""
    return [
        task(plan, dataset, split, method)
        for dataset in plan.datasets
        for split in range(plan.splits)
        for method in METHODS
    ]


def task(plan: Plan, dataset: str, split: int, method: str) -> Task:
    """One fit."""
    key = {
        "benchmark": "small",
        "dataset": dataset,
        "split": split,
        "rows": plan.rows,
        "method": method,
        "threads": plan.threads,
    }
    return Task(key, lambda: _measure(plan, dataset, split, method), ours=method == "cvgp")


def _measure(plan: Plan, dataset: str, split: int, method: str) -> Outcome:
    rows = subset_split(dataset, split, plan.rows)
    ours: dict[str, Any] = {"method": "fit", "parameters": {}}
    theirs = {"method": "exact", "kernel": KERNEL, "rows": plan.rows}
    worker, settings = ("cvgp", ours) if method == "cvgp" else ("sklearn", theirs)
    return fit_in_worker(worker, settings, rows, threads=plan.threads)
