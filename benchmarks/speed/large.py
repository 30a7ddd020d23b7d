"""Large data: seconds and memory of a whole fit against the number of rows, each in a process of its own."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.peers.workers import fit_in_worker
from benchmarks.runner import Task
from benchmarks.speed.flights import flights_split
from cvgp.paper.datasets.waves import waves
from cvgp.paper.splits import Split, standardised
from cvgp.paper.store import Outcome

__all__ = ["FLIGHTS", "METHODS", "NUM_DIMS", "Plan", "full", "quick", "task", "tasks", "waves_split"]

FLIGHTS = "flights"
NUM_DIMS = 10
NUM_TEST = 10_000
METHODS = ("cvgp", "LightGBM")


@dataclass(frozen=True)
class Plan:
    """What to run."""

    rows: tuple[int, ...]
    """Of generated data."""
    flights: bool
    size: int
    threads: int


def full(threads: int) -> Plan:
    """The comparison of the documentation."""
    return Plan((10**5, 10**6, 10**7), flights=True, size=500, threads=threads)


def quick(threads: int) -> Plan:
    """Sizes that take a few seconds."""
    return Plan((3000, 30_000), flights=False, size=30, threads=threads)


def tasks(plan: Plan) -> list[Task]:
    """Flights with trees for comparison, and generated data of growing length."""
    flights = [task(plan, FLIGHTS, method) for method in METHODS] if plan.flights else []
    return flights + [task(plan, f"waves-{rows}x{NUM_DIMS}", "cvgp", rows) for rows in plan.rows]


def task(plan: Plan, dataset: str, method: str, rows: int | None = None) -> Task:
    """One fit."""
    key = {
        "benchmark": "large",
        "dataset": dataset,
        "rows": rows,
        "method": method,
        "size": plan.size,
        "threads": plan.threads,
    }
    return Task(key, lambda: _measure(plan, method, rows), ours=method == "cvgp")


def _measure(plan: Plan, method: str, rows: int | None) -> Outcome:
    split = flights_split(0, NUM_TEST) if rows is None else waves_split(rows, NUM_DIMS, NUM_TEST)
    ours: dict[str, Any] = {"method": "fit", "parameters": {"n_coreset": plan.size}}
    worker, settings = ("cvgp", ours) if method == "cvgp" else ("lightgbm", {"method": "trees"})
    outcome = fit_in_worker(worker, settings, split, threads=plan.threads)
    data = {"rows": float(len(split.x)), "data_memory": float(split.x.nbytes + split.y.nbytes)}
    return replace(outcome, metrics=outcome.metrics | data)


def waves_split(num_rows: int, num_dims: int, num_test: int) -> Split:
    """Waves of any length to learn from, with a few rows more to score; not kept in memory."""
    x, y = waves(num_rows + num_test, num_dims)
    rows = np.arange(len(x))
    return standardised(x, y, rows[:num_rows], rows[num_rows:])
