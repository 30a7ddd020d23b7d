"""Predictions against GPyTorch's SVGP, and predictions with neighbors."""

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import torch

from cvgp import CVGPRegressor
from experiments.data import Sample, load, waves
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
MANY_ROWS, LEARNED_SHARE = 10_000, 0.9
"""Rows that are predicted in one call, at most, and the share of a data set that is learned from."""
WIDE = "wide"
"""Rows of 60 columns: ten with a large effect, ten with none, and 40 with small ones."""
WIDE_COLUMNS, WIDE_POINTS = 60, 200


@dataclass(frozen=True)
class Plan:
    """What to run; `rows` of 1 is the latency."""

    size: int
    rows: tuple[int, ...]
    precisions: tuple[str, ...]
    chunks: tuple[int, ...]
    """Rows at a time that the peer is tried with; the fastest counts. Ours has its own."""
    rounds: int
    with_neighbors: dict[str, int]
    """Data sets for predictions with neighbors, and how many rows are learned from at most."""
    threads: int


WITH_NEIGHBORS = {"waves-60000x10": 50_000, "protein": 40_000, "bike": 40_000, WIDE: 300_000}


def full(threads: int) -> Plan:
    """The comparison of the documentation."""
    return Plan(200, (100_000, 1), ("float64", "float32"), (512, 2048, 8192), 9, WITH_NEIGHBORS, threads)


def quick(threads: int) -> Plan:
    """Fewer rows and repetitions, in one precision."""
    return Plan(200, (10_000, 1), ("float64",), (2048,), 1, {"waves-700x10": 600}, threads)


def tasks(plan: Plan) -> list[Task]:
    """Many rows and one row, mean with and without sd, both precisions; then with neighbors."""
    rows = [
        rows_task(plan, rows, precision, with_sd)
        for rows in plan.rows
        for precision in plan.precisions
        for with_sd in (False, True)
    ]
    return [*rows, *(neighbors_task(plan, name) for name in plan.with_neighbors)]


def rows_task(plan: Plan, rows: int, precision: str, with_sd: bool) -> Task:
    """Both methods on the same rows in the same precision, in turns."""
    key = _key(plan, {"what": "rows", "rows": rows, "precision": precision, "with_sd": with_sd, "size": plan.size})
    return Task(key, partial(_measure_rows, plan, rows, precision, with_sd))


def neighbors_task(plan: Plan, name: str) -> Task:
    """One row at a time, then many in one call, each with its nearest training rows, on one thread."""
    key: dict[str, Value] = {"benchmark": "neighbors", "what": "predictions", "dataset": name}
    key |= {"rows": plan.with_neighbors[name], "method": "cvgp", "threads": 1}
    return Task(key, partial(_measure_neighbors, name, plan.with_neighbors[name]))


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


def _wide(num_rows: int) -> Sample:
    x, y = waves(num_rows, 20)
    weak = np.random.default_rng(3).standard_normal((num_rows, WIDE_COLUMNS - 20))
    return Sample(np.hstack([x, weak]), y + 0.02 * weak.sum(axis=1))


def _measure_neighbors(name: str, most_rows: int) -> Outcome:
    x, y = _wide(round(most_rows / LEARNED_SHARE)) if name == WIDE else load(name)
    order = np.random.default_rng(1).permutation(len(x))
    count = min(most_rows, round(LEARNED_SHARE * len(x)))
    learned, new = order[:count], x[order[count:]][:MANY_ROWS]
    # A search for the size and the noise would take minutes with 300,000 rows, and is not what is measured.
    options = {"n_coreset": WIDE_POINTS, "noise": "constant"} if name == WIDE else {}
    frame = pd.DataFrame(x, columns=[f"column {d}" for d in range(x.shape[1])])
    by_name = CVGPRegressor(n_neighbors=NEIGHBORS, random_state=0, **options).fit(frame.iloc[learned], y[learned])
    model = deepcopy(by_name)
    del model.feature_names_in_, model.schema_
    frames = [frame.iloc[[i]] for i in order[count:][:SINGLE_ROWS]]
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        (first,) = _seconds(model, [new[:1]])
        row = median(_seconds(model, [row[None] for row in new[:SINGLE_ROWS]])[UNCOUNTED_ROWS:])
        row_of_frame = median(_seconds(by_name, frames)[UNCOUNTED_ROWS:])
        (many,) = _seconds(model, [new])
    finally:
        torch.set_num_threads(before)
    metrics = {"rows": count, "columns": x.shape[1], "points": len(model.coreset_), "first_seconds": first}
    return Outcome(metrics | {"row_seconds": row, "frame_seconds": row_of_frame, "rows_per_second": len(new) / many})


def _seconds(model: CVGPRegressor, inputs: Sequence[Any]) -> list[float]:
    """Of the processor, for mean and sd of each of the inputs."""
    times = []
    for x in inputs:
        begin = time.process_time()
        model.predict(x, return_std=True)
        times.append(time.process_time() - begin)
    return times


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
    header = ("data", "rows x columns", "points", "first call, s", "one row, ms", "one row of a frame, ms", "rows/s")
    rows = []
    for name in plan.with_neighbors:
        record = store.finished(neighbors_task(plan, name).key)
        if record is not None:
            number = record.number
            size = f"{number('rows'):,.0f} x {number('columns'):.0f}"
            ms = [f"{1e3 * number(what):.2f}" for what in ("row_seconds", "frame_seconds")]
            shown = [f"{number('points'):.0f}", f"{number('first_seconds'):.2g}", *ms]
            rows.append([name, size, *shown, f"{number('rows_per_second'):,.0f}"])
    if rows:
        parts.append(f"With {NEIGHBORS} neighbors, on one thread, in seconds of the processor:")
        parts.append(markdown_table(header, rows, num_text=2))
    return "\n\n".join(parts)
