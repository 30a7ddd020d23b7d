"""One training step, ours against GPyTorch's SVGP, in turns."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from experiments.data import waves
from experiments.markdown import markdown_table
from experiments.peers.workers import Session, median_times
from experiments.race import start_arrays
from experiments.runner import Task
from experiments.store import Outcome, Store

Array = NDArray[np.float64]

KERNEL = "rbf"
NUM_DIMS = 10
NUM_ROWS = 20_000
NOISE = 0.5
"""Standard deviation that is added: with it the default precision of the data side stays float32."""


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
    """Each size."""
    return [task(plan, size, batch) for size in plan.sizes for batch in plan.batches]


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
    return Task(key, partial(_measure, plan, size, batch))


def step_data(num_rows: int, dims: int) -> dict[str, Array]:
    """Standardized data with moderate noise."""
    x, y = waves(num_rows, dims)
    y = y + NOISE * np.random.default_rng(1).standard_normal(num_rows)
    return {"x": x, "y": (y - y.mean()) / y.std()}


def _measure(plan: Plan, size: int, batch: int) -> Outcome:
    data = step_data(NUM_ROWS, NUM_DIMS)
    start = start_arrays(data["x"][:size], np.full(NUM_DIMS, np.sqrt(NUM_DIMS)))
    parameters = {"n_coreset": size, "kernel": KERNEL, "training__batch_size": batch}
    parameters |= {"training__init": "random", "training__bound": "elbo"}
    ours = {"method": "step", "parameters": parameters}
    theirs = {"method": "step", "kernel": KERNEL, "batch_size": batch, "precision": "float32"}
    with (
        Session("cvgp", ours, data, threads=plan.threads) as cvgp,
        Session("gpytorch", theirs, data | start, threads=plan.threads) as svgp,
    ):
        seconds, svgp_seconds = median_times([cvgp, svgp], plan.rounds)
        error = cvgp.finish()["float32_error"]
        svgp.finish()
    metrics = {
        "seconds": seconds,
        "svgp_seconds": svgp_seconds,
        "ratio": svgp_seconds / seconds,
        "float32_error": error,
    }
    return Outcome(metrics, origin={"svgp_precision": "float32"})


def report(plan: Plan, store: Store) -> str:
    """Milliseconds of a step beside SVGP's, and how far float32 is from float64."""
    rows = []
    for size in plan.sizes:
        for batch in plan.batches:
            record = store.finished(task(plan, size, batch).key)
            if record is not None:
                m = record.metrics
                times = [f"{1e3 * m['seconds']:.2f}", f"{1e3 * m['svgp_seconds']:.2f}", f"{m['ratio']:.2f}"]
                rows.append([str(size), str(batch), *times, f"{m['float32_error']:.0e}"])
    return markdown_table(("M", "batch", "cvgp, ms", "SVGP, ms", "ratio", "float32 off by"), rows, num_text=0)
