"""One training step, ours against GPyTorch's SVGP, in turns; and how near it comes to the speed of plain products."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.workers import Session
from benchmarks.runner import Task
from benchmarks.speed.flops import step_flops
from benchmarks.speed.turns import median_times, median_times_of
from cvgp.paper.datasets.waves import waves
from cvgp.paper.store import Outcome

__all__ = ["NUM_DIMS", "Plan", "full", "gemm_task", "quick", "step_data", "task", "tasks"]

Array = NDArray[np.float64]

KERNEL = "rbf"
NUM_DIMS = 10
NUM_ROWS = 20_000
NOISE = 0.5
"""Standard deviation that is added: with it the default precision of the data side stays float32."""

GEMM_SIZE = 2000
PRECISIONS = ("float32", "float64")


@dataclass(frozen=True)
class Plan:
    """What to run."""

    sizes: tuple[int, ...]
    batches: tuple[int, ...]
    rounds: int
    threads: int


def full(threads: int) -> Plan:
    """The comparison of the documentation."""
    return Plan((50, 100, 200, 500, 1000), (512, 2048), rounds=9, threads=threads)


def quick(threads: int) -> Plan:
    """Two sizes, few repetitions."""
    return Plan((50, 200), (512,), rounds=2, threads=threads)


def tasks(plan: Plan) -> list[Task]:
    """The speed of plain products, then each size."""
    gemm = [gemm_task(plan, precision) for precision in PRECISIONS]
    return gemm + [task(plan, size, batch) for size in plan.sizes for batch in plan.batches]


def gemm_task(plan: Plan, precision: str) -> Task:
    """Operations per second of a product of square matrices; no part of cvgp, so that it is not renewed with it."""
    key = {"benchmark": "step", "what": "gemm", "precision": precision, "size": GEMM_SIZE, "threads": plan.threads}
    return Task(key, lambda: _measure_gemm(plan, precision), ours=False)


def task(plan: Plan, size: int, batch: int) -> Task:
    """Both methods at one size."""
    key = {
        "benchmark": "step",
        "what": "step",
        "kernel": KERNEL,
        "dims": NUM_DIMS,
        "size": size,
        "batch": batch,
        "rounds": plan.rounds,
        "threads": plan.threads,
    }
    return Task(key, lambda: _measure(plan, size, batch))


def step_data(num_rows: int, dims: int) -> dict[str, Array]:
    """Standardised data with moderate noise."""
    x, y = waves(num_rows, dims)
    y = y + NOISE * np.random.default_rng(1).standard_normal(num_rows)
    return {"x": x, "y": (y - y.mean()) / y.std()}


def _measure_gemm(plan: Plan, precision: str) -> Outcome:
    settings = {"method": "gemm", "size": GEMM_SIZE, "precision": precision}
    with Session("cvgp", settings, {}, threads=plan.threads) as session:
        seconds = median_times_of(session, plan.rounds)
        session.finish()
    return Outcome({"seconds": seconds, "flops_per_second": 2.0 * GEMM_SIZE**3 / seconds})


def _measure(plan: Plan, size: int, batch: int) -> Outcome:
    data = step_data(NUM_ROWS, NUM_DIMS)
    start = {
        "inducing": data["x"][:size],
        "lengthscales": np.full(NUM_DIMS, np.sqrt(NUM_DIMS)),
        "outputscale": np.array(1.0),
        "noise": np.array(0.1),
    }
    parameters = {"n_coreset": size, "kernel": KERNEL, "batch_size": batch, "init": "random", "bound": "elbo"}
    ours = {"method": "step", "parameters": parameters}
    theirs = {"method": "step", "kernel": KERNEL, "batch_size": batch, "precision": "float32"}
    with (
        Session("cvgp", ours, data, threads=plan.threads) as cvgp,
        Session("gpytorch_timing", theirs, data | start, threads=plan.threads) as svgp,
    ):
        seconds, svgp_seconds = median_times([cvgp, svgp], plan.rounds)
        error = cvgp.finish()["float32_error"]
        svgp.finish()
    metrics = {
        "seconds": seconds,
        "svgp_seconds": svgp_seconds,
        "ratio": svgp_seconds / seconds,
        "flops": step_flops(size, batch, NUM_DIMS).total,
        "float32_error": error,
    }
    return Outcome(metrics, origin={"svgp_precision": "float32"})
