"""Predictions against GPyTorch's SVGP, and predictions with neighbors."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np

from cvgp import CVGPRegressor
from experiments.data import waves
from experiments.markdown import markdown_table
from experiments.peers.workers import Session, median_times, median_times_of
from experiments.race import start_arrays
from experiments.runner import Task
from experiments.speed.step import NUM_DIMS, step_data
from experiments.store import Outcome, Store, Value

KERNEL = "rbf"
TRAINING_ROWS = 4000
NEIGHBORS = 20
SINGLE_ROWS, UNCOUNTED_ROWS = 200, 20
"""Calls with one row, of which the first load what is loaded late."""


@dataclass(frozen=True)
class Plan:
    """What to run; `rows` of 1 is the latency."""

    size: int
    rows: tuple[int, ...]
    precisions: tuple[str, ...]
    chunks: tuple[int, ...]
    """Rows at a time that the peer is tried with; the fastest counts. Ours has its own."""
    rounds: int
    with_neighbors: tuple[int, int]
    """Rows to learn from and rows to predict."""
    threads: int


def full(threads: int) -> Plan:
    """The comparison of the documentation."""
    return Plan(200, (100_000, 1), ("float64", "float32"), (512, 2048, 8192), 9, (50_000, 10**6), threads)


def quick(threads: int) -> Plan:
    """Fewer rows and repetitions, in one precision."""
    return Plan(200, (10_000, 1), ("float64",), (2048,), 1, (600, 2000), threads)


def tasks(plan: Plan) -> list[Task]:
    """Many rows and one row, mean with and without sd, both precisions; then with neighbors."""
    rows = [
        rows_task(plan, rows, precision, with_sd)
        for rows in plan.rows
        for precision in plan.precisions
        for with_sd in (False, True)
    ]
    return [*rows, neighbors_task(plan)]


def rows_task(plan: Plan, rows: int, precision: str, with_sd: bool) -> Task:
    """Both methods on the same rows in the same precision, in turns."""
    key = _key(plan, {"what": "rows", "rows": rows, "precision": precision, "with_sd": with_sd, "size": plan.size})
    return Task(key, partial(_measure_rows, plan, rows, precision, with_sd))


def neighbors_task(plan: Plan) -> Task:
    """One row at a time, then many in one call, each with its nearest training rows."""
    key: dict[str, Value] = {"benchmark": "neighbors", "what": "predictions", "rows": plan.with_neighbors[0]}
    return Task(key | {"method": "cvgp", "threads": plan.threads}, partial(_measure_neighbors, plan))


def _key(plan: Plan, identity: dict[str, Value]) -> dict[str, Value]:
    return {"benchmark": "prediction", **identity, "rounds": plan.rounds, "threads": plan.threads}


def _measure_rows(plan: Plan, rows: int, precision: str, with_sd: bool) -> Outcome:
    data = step_data(TRAINING_ROWS, NUM_DIMS)
    data["x_test"] = np.random.default_rng(2).standard_normal((rows, NUM_DIMS))
    parameters = {
        "n_coreset": plan.size,
        "kernel": KERNEL,
        "training__solver": "adam",
        "training__max_iter": 20,
        "training__dtype": "float32" if precision == "float32" else "auto",
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
    arrays = start_arrays(rng.standard_normal((plan.size, NUM_DIMS)), np.full(NUM_DIMS, np.sqrt(NUM_DIMS)))
    arrays["x_test"] = np.random.default_rng(2).standard_normal((rows, NUM_DIMS))
    settings = {"method": "predict", "kernel": KERNEL, "precision": precision, "with_sd": with_sd}
    return lambda chunk: Session("gpytorch", settings | {"chunk_rows": chunk}, arrays, threads=plan.threads)


def _best_chunk(plan: Plan, rows: int, precision: str, with_sd: bool) -> int:
    """The chunk at which the peer is fastest."""
    if len(plan.chunks) == 1:
        return plan.chunks[0]
    times = {}
    for chunk in plan.chunks:
        with _svgp(plan, rows, precision, with_sd)(chunk) as session:
            times[chunk] = median_times_of(session, rounds=1)
    return min(times, key=lambda chunk: times[chunk])


def _measure_neighbors(plan: Plan) -> Outcome:
    trained, predicted = plan.with_neighbors
    model = CVGPRegressor(n_neighbors=NEIGHBORS, random_state=0).fit(*waves(trained, NUM_DIMS))
    new = np.random.default_rng(1).standard_normal((predicted, NUM_DIMS))
    times = []
    for row in new[:SINGLE_ROWS]:
        begin = time.perf_counter()
        model.predict(row[None], return_std=True)
        times.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    model.predict(new, return_std=True)
    seconds = time.perf_counter() - begin
    rate = len(new) / seconds
    return Outcome({"row_seconds": median(times[UNCOUNTED_ROWS:]), "seconds": seconds, "rows_per_second": rate})


def report(plan: Plan, store: Store) -> str:
    """Rows per second and microseconds per call beside SVGP's."""
    header = ("rows", "what", "precision", "cvgp, rows/s", "SVGP, rows/s", "ratio")
    header += ("cvgp, µs per call", "SVGP, µs per call")
    rows = []
    for task in tasks(plan):
        record = store.finished(task.key)
        if record is None or task.key["what"] != "rows":
            continue
        m = record.metrics
        rows.append(
            [
                str(task.key["rows"]),
                "mean + sd" if task.key["with_sd"] else "mean",
                str(task.key["precision"]),
                f"{m['rows_per_second']:.3g}",
                f"{m['svgp_rows_per_second']:.3g}",
                f"{m['ratio']:.2f}",
                f"{1e6 * m['seconds']:.0f}",
                f"{1e6 * m['svgp_seconds']:.0f}",
            ]
        )
    parts = [markdown_table(header, rows, num_text=3)]
    found = store.finished(neighbors_task(plan).key)
    if found is not None:
        parts.append(
            f"With {NEIGHBORS} neighbors of {plan.with_neighbors[0]:,} rows: mean and sd of one row in "
            f"{1e3 * found.number('row_seconds'):.2f} ms, and of {found.number('rows_per_second'):.3g} rows per second."
        )
    return "\n\n".join(parts)
