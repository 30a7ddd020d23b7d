"""How time grows: exponents fitted to steps against M, B and D, and to passes over all data against N."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.peers.workers import Session
from benchmarks.runner import Task
from benchmarks.speed.step import step_data
from benchmarks.speed.turns import median_times_of
from cvgp.paper.store import Outcome

__all__ = ["Case", "Plan", "cases", "exponent", "full", "quick", "task", "tasks", "value_of"]

KERNEL = "rbf"
STEP_ROWS = 20_000


@dataclass(frozen=True)
class Case:
    """One measurement; `rows` of None is a step on a batch, a number is a pass over so many rows."""

    size: int = 200
    batch: int | None = 2048
    dims: int = 10
    rows: int | None = None


@dataclass(frozen=True)
class Plan:
    """Which values each variable takes, with the others at their defaults."""

    sizes: tuple[int, ...]
    batches: tuple[int, ...]
    dims: tuple[int, ...]
    rows: tuple[int, ...]
    rounds: int
    threads: int


def full(threads: int) -> Plan:
    """The fits of the documentation."""
    return Plan(
        sizes=(50, 100, 200, 400, 800, 1600),
        batches=(256, 512, 1024, 2048, 4096, 8192),
        dims=(2, 5, 10, 20, 50, 100),
        rows=(4000, 8000, 16_000, 32_000, 64_000, 128_000),
        rounds=5,
        threads=threads,
    )


def quick(threads: int) -> Plan:
    """Two or three values each."""
    return Plan((50, 100, 200), (512, 2048), (5, 20), (2000, 8000), rounds=1, threads=threads)


def cases(plan: Plan) -> dict[str, list[Case]]:
    """For each variable, the cases that its exponent is fitted to."""
    step, full_pass = Case(), Case(batch=None)
    return {
        "M": [replace(step, size=size) for size in plan.sizes],
        "B": [replace(step, batch=batch) for batch in plan.batches],
        "D": [replace(step, dims=dims) for dims in plan.dims],
        "N": [replace(full_pass, rows=rows) for rows in plan.rows],
    }


def tasks(plan: Plan) -> list[Task]:
    """Each case once, however many variables share it."""
    found = dict.fromkeys(case for group in cases(plan).values() for case in group)
    return [task(plan, case) for case in found]


def task(plan: Plan, case: Case) -> Task:
    """The median time of a step or of a pass."""
    key = {
        "benchmark": "growth",
        "kernel": KERNEL,
        "size": case.size,
        "batch": case.batch,
        "dims": case.dims,
        "rows": case.rows,
        "rounds": plan.rounds,
        "threads": plan.threads,
    }
    return Task(key, lambda: _measure(plan, case))


def value_of(variable: str, case: Case) -> float:
    """What the variable is in a case."""
    values = {"M": case.size, "B": case.batch, "D": case.dims, "N": case.rows}
    return float(values[variable] or 0)


def exponent(values: Sequence[float], times: Sequence[float]) -> float:
    """The slope of a line through log time against log value, by least squares."""
    slope, _ = np.polyfit(np.log(values), np.log(times), 1)
    return float(slope)


def _measure(plan: Plan, case: Case) -> Outcome:
    parameters: dict[str, Any] = {"n_coreset": case.size, "kernel": KERNEL, "init": "random"}
    if case.rows is None:
        parameters |= {"batch_size": case.batch, "bound": "elbo"}
    settings = {"method": "step" if case.rows is None else "pass", "parameters": parameters}
    data = step_data(case.rows or STEP_ROWS, case.dims)
    with Session("cvgp", settings, data, threads=plan.threads) as session:
        seconds = median_times_of(session, plan.rounds)
    return Outcome({"seconds": seconds})
