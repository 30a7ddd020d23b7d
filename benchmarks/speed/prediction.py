"""Predictions: rows per second and the time of one row against GPyTorch's SVGP, and how long it takes to begin."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks.peers.environments import ROOT
from benchmarks.peers.workers import Session, own_environment
from benchmarks.runner import Task
from benchmarks.speed.step import NUM_DIMS, step_data
from benchmarks.speed.turns import median_times, median_times_of
from cvgp.paper.store import Outcome, Value

__all__ = ["STARTS", "Plan", "full", "quick", "rows_task", "startup_task", "tasks"]

KERNEL = "rbf"
TRAINING_ROWS = 4000

STARTS = {
    "import cvgp": ("-c", "import cvgp"),
    "from cvgp import CVGPRegressor": ("-c", "from cvgp import CVGPRegressor"),
    "import gpytorch": ("-c", "import gpytorch"),
    "cvgp --help": ("-m", "cvgp", "--help"),
}
"""What is started, and the arguments of the interpreter."""


@dataclass(frozen=True)
class Plan:
    """What to run; `rows` of 1 is the latency."""

    size: int
    rows: tuple[int, ...]
    precisions: tuple[str, ...]
    chunks: tuple[int, ...]
    """Rows at a time that the peer is tried with; the fastest counts. Ours has its own."""
    rounds: int
    threads: int


def full(threads: int) -> Plan:
    """The comparison of the documentation."""
    return Plan(200, (100_000, 1), ("float64", "float32"), (512, 2048, 8192), rounds=9, threads=threads)


def quick(threads: int) -> Plan:
    """Fewer rows and repetitions, in one precision."""
    return Plan(200, (10_000, 1), ("float64",), (2048,), rounds=1, threads=threads)


def tasks(plan: Plan) -> list[Task]:
    """Many rows and one row, mean with and without sd, both precisions; then what is started."""
    rows = [
        rows_task(plan, rows, precision, with_sd)
        for rows in plan.rows
        for precision in plan.precisions
        for with_sd in (False, True)
    ]
    return rows + [startup_task(plan, what) for what in STARTS]


def rows_task(plan: Plan, rows: int, precision: str, with_sd: bool) -> Task:
    """Both methods on the same rows in the same precision, in turns."""
    key = _key(plan, {"what": "rows", "rows": rows, "precision": precision, "with_sd": with_sd, "size": plan.size})
    return Task(key, lambda: _measure_rows(plan, rows, precision, with_sd))


def startup_task(plan: Plan, what: str) -> Task:
    """A new interpreter that imports a library or prints a help page."""
    return Task(_key(plan, {"what": what}), lambda: _measure_start(plan, what), ours="cvgp" in what)


def _key(plan: Plan, identity: dict[str, Value]) -> dict[str, Value]:
    return {"benchmark": "prediction", **identity, "rounds": plan.rounds, "threads": plan.threads}


def _measure_rows(plan: Plan, rows: int, precision: str, with_sd: bool) -> Outcome:
    data = step_data(TRAINING_ROWS, NUM_DIMS)
    data["x_test"] = np.random.default_rng(2).standard_normal((rows, NUM_DIMS))
    parameters = {
        "n_coreset": plan.size,
        "kernel": KERNEL,
        "solver": "adam",
        "max_iter": 20,
        "dtype": "float32" if precision == "float32" else "auto",
    }
    ours = {"method": "predict", "with_sd": with_sd, "parameters": parameters}
    chunk = _best_chunk(plan, rows, precision, with_sd) if rows > 1 else 1
    with (
        Session("cvgp", ours, data, threads=plan.threads) as cvgp,
        _svgp(plan, rows, precision, with_sd)(chunk) as svgp,
    ):
        seconds, svgp_seconds = median_times([cvgp, svgp], plan.rounds)
        cvgp.finish()
        svgp.finish()
    metrics = {
        "seconds": seconds,
        "svgp_seconds": svgp_seconds,
        "ratio": svgp_seconds / seconds,
        "rows_per_second": rows / seconds,
        "svgp_rows_per_second": rows / svgp_seconds,
        "svgp_chunk_rows": float(chunk),
    }
    return Outcome(metrics)


def _svgp(plan: Plan, rows: int, precision: str, with_sd: bool) -> Callable[[int], Session]:
    rng = np.random.default_rng(3)
    arrays = {
        "x_test": np.random.default_rng(2).standard_normal((rows, NUM_DIMS)),
        "inducing": rng.standard_normal((plan.size, NUM_DIMS)),
        "lengthscales": np.full(NUM_DIMS, np.sqrt(NUM_DIMS)),
        "outputscale": np.array(1.0),
        "noise": np.array(0.1),
    }
    settings = {"method": "predict", "kernel": KERNEL, "precision": precision, "with_sd": with_sd}
    return lambda chunk: Session("gpytorch_timing", settings | {"chunk_rows": chunk}, arrays, threads=plan.threads)


def _best_chunk(plan: Plan, rows: int, precision: str, with_sd: bool) -> int:
    """The chunk at which the peer is fastest."""
    if len(plan.chunks) == 1:
        return plan.chunks[0]
    times = {}
    for chunk in plan.chunks:
        with _svgp(plan, rows, precision, with_sd)(chunk) as session:
            times[chunk] = median_times_of(session, rounds=1)
    return min(times, key=lambda chunk: times[chunk])


def _measure_start(plan: Plan, what: str) -> Outcome:
    times = []
    for _ in range(plan.rounds + 1):  # the first one reads the files from disk
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, *STARTS[what]],
            env=own_environment(plan.threads),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        times.append(time.perf_counter() - begin)
    return Outcome({"seconds": median(times[1:])})
