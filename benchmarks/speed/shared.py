"""One, two and four fits at once, each in a process of its own: what a fit loses when it has to share the machine.

With c processors and k fits, a fit that loses no more than its share takes max(1, k / c) times as long as alone, if
alone it uses one processor, and k times as long if it uses all of them.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

import numpy as np

from benchmarks.peers.workers import Session
from benchmarks.runner import Task
from benchmarks.speed.step import step_data
from cvgp.paper.store import Outcome

__all__ = ["METHODS", "Case", "Plan", "full", "quick", "task", "tasks"]

KERNEL = "matern32"
METHODS = ("cvgp", "GPyTorch SVGP")


@dataclass(frozen=True)
class Case:
    """The size of a fit: points, rows of a batch, and steps of Adam."""

    size: int
    batch: int
    steps: int


@dataclass(frozen=True)
class Plan:
    """Which fits, and how many of them at once."""

    cases: tuple[Case, ...]
    fits: tuple[int, ...]
    rows: int
    dims: int
    rounds: int
    threads: int


def full(threads: int) -> Plan:
    """The fits of the documentation: small steps, and steps that are worth several threads."""
    return Plan((Case(200, 512, 500), Case(500, 1024, 100)), (1, 2, 4), rows=3300, dims=22, rounds=3, threads=threads)


def quick(threads: int) -> Plan:
    """A small fit, alone and beside another."""
    return Plan((Case(20, 128, 20),), (1, 2), rows=300, dims=3, rounds=1, threads=threads)


def tasks(plan: Plan) -> list[Task]:
    """Each method and size with each number of fits."""
    return [task(plan, case, method, fits) for case in plan.cases for method in METHODS for fits in plan.fits]


def task(plan: Plan, case: Case, method: str, fits: int) -> Task:
    """So many fits that begin together."""
    key = {
        "benchmark": "shared",
        "method": method,
        "kernel": KERNEL,
        "size": case.size,
        "batch": case.batch,
        "steps": case.steps,
        "rows": plan.rows,
        "dims": plan.dims,
        "fits": fits,
        "rounds": plan.rounds,
        "threads": plan.threads,
    }
    return Task(key, lambda: _measure(plan, case, method, fits), ours=method == "cvgp")


def _measure(plan: Plan, case: Case, method: str, fits: int) -> Outcome:
    """The mean over the fits, of which each is the median over the rounds."""
    with ExitStack() as stack, ThreadPoolExecutor(fits) as pool:
        sessions = [stack.enter_context(_session(plan, case, method)) for _ in range(fits)]
        calls = 1 if method == "cvgp" else case.steps  # ours times whole fits, the peer its steps

        def seconds_of(session: Session) -> float:
            return sum(session.times(calls))

        for session in sessions:
            session.times(0)  # it has imported its library
        rounds: Sequence[list[float]] = [list(pool.map(seconds_of, sessions)) for _ in range(plan.rounds)]
        for session in sessions:
            session.finish()
    seconds = [median(times) for times in zip(*rounds, strict=True)]
    return Outcome({"seconds": mean(seconds), "slowest": max(seconds)})


def _session(plan: Plan, case: Case, method: str) -> Session:
    data = step_data(plan.rows, plan.dims)
    if method == "cvgp":
        parameters: dict[str, Any] = {
            "n_coreset": case.size,
            "kernel": KERNEL,
            "solver": "adam",
            "max_iter": case.steps,
            "batch_size": case.batch,
        }
        return Session("cvgp", {"method": "fits", "parameters": parameters}, data, threads=plan.threads)
    start = {
        "inducing": data["x"][: case.size],
        "lengthscales": np.full(plan.dims, np.sqrt(plan.dims)),
        "outputscale": np.array(1.0),
        "noise": np.array(0.1),
    }
    settings = {"method": "step", "kernel": KERNEL, "batch_size": case.batch, "precision": "float32"}
    return Session("gpytorch_timing", settings, data | start, threads=plan.threads)
