"""Seconds of whole fits: the default by rows and columns, beside peers, and with memory up to ten million rows."""

import math
import time
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvgp import CVGPRegressor
from experiments.data import waves
from experiments.markdown import markdown_table
from experiments.peers.workers import fit_in_worker
from experiments.runner import Task
from experiments.splits import standardized
from experiments.store import Outcome, Store

Array = NDArray[np.float64]

NOISE = 0.3
NUM_TEST, NUM_TEST_LARGE = 5000, 10_000
BEST = -0.5 * math.log(2.0 * math.pi * math.e * NOISE**2)
"""The mean log-likelihood under the true function and noise."""
SIZES = (
    *((500, 5), (2000, 10), (8000, 12), (20_000, 10), (20_000, 30)),
    *((100_000, 10), (300_000, 10), (1_000_000, 10)),
)
"""Rows and columns of the default fits."""
LARGE_COLUMNS = 10
PEER_ROWS = (1000, 3000, 10_000, 30_000, 100_000)
"""Beside peers, of ten columns."""
PEERS = {
    "cvgp": ("cvgp", {"method": "fit", "parameters": {}}),
    "LightGBM, five folds": ("lightgbm", {"method": "density"}),
    "scikit-learn, exact GP": ("sklearn", {"method": "exact", "kernel": "matern32"}),
}
MOST_ROWS_OF_EXACT = 1000


class Plan(NamedTuple):
    """What to run."""

    sizes: tuple[tuple[int, int], ...]
    large_rows: tuple[int, ...]
    points: int
    """Of the large fits."""
    threads: int
    peer_rows: tuple[int, ...]


def full(threads: int) -> Plan:
    """The measurements of the documentation."""
    return Plan(SIZES, (10**5, 10**6, 10**7), 500, threads, PEER_ROWS)


def quick(threads: int) -> Plan:
    """Sizes that take a few seconds."""
    return Plan(SIZES[:2], (3000, 30_000), 30, threads, PEER_ROWS[:1])


def tasks(plan: Plan) -> list[Task]:
    """A default fit for each size, those beside peers in turn, then the large ones."""
    beside = [peer_task(plan, name, rows) for rows in plan.peer_rows for name in peers_for(rows)]
    large = [large_task(plan, rows) for rows in plan.large_rows]
    return [*(default_task(plan, *size) for size in plan.sizes), *beside, *large]


def peers_for(rows: int) -> list[str]:
    """Those that can take so many rows."""
    return [name for name in PEERS if rows <= MOST_ROWS_OF_EXACT or not name.startswith("scikit")]


def peer_task(plan: Plan, name: str, rows: int) -> Task:
    """One default fit of cvgp or a peer, in a process of its own, on the same rows and threads."""
    key = {"benchmark": "beside peers", "rows": rows, "method": name, "threads": plan.threads}
    return Task(key, partial(_measure_peer, plan, name, rows), ours=name == "cvgp")


def default_task(plan: Plan, rows: int, columns: int) -> Task:
    """One fit with all defaults."""
    key = {"benchmark": "seconds", "rows": rows, "columns": columns, "threads": plan.threads}
    return Task(key, partial(_measure_default, rows, columns))


def large_task(plan: Plan, rows: int) -> Task:
    """One fit with a fixed number of points, in a process of its own, whose memory is measured."""
    data = {"benchmark": "large", "dataset": f"waves-{rows}x{LARGE_COLUMNS}", "rows": rows, "method": "cvgp"}
    return Task(data | {"size": plan.points, "threads": plan.threads}, partial(_measure_large, plan, rows))


def _measure_default(rows: int, columns: int) -> Outcome:
    rng = np.random.default_rng(0)
    x, y = _draw(rows, columns, rng)
    x_test, y_test = _draw(NUM_TEST, columns, rng)
    CVGPRegressor(5, random_state=0).fit(x[:50], y[:50])  # imports are not counted
    begin = time.perf_counter()
    model = CVGPRegressor(random_state=0).fit(x, y)
    seconds = time.perf_counter() - begin
    lower, upper = model.predict_interval(x_test, level=0.9).T
    return Outcome(
        {
            "seconds": seconds,
            "rmse": float(np.sqrt(np.mean((y_test - model.predict(x_test)) ** 2))),
            "log_likelihood": float(np.mean(model.log_predictive_density(x_test, y_test))),
            "coverage": float(np.mean((lower <= y_test) & (y_test <= upper))),
            "points": float(len(model.coreset_)),
            "neighbors": float(model.n_neighbors_),
        }
    )


def _measure_peer(plan: Plan, name: str, rows: int) -> Outcome:
    x, y = _draw(rows + NUM_TEST, LARGE_COLUMNS, np.random.default_rng(0))
    split = standardized(x, y, np.arange(rows), np.arange(rows, len(x)))
    worker, settings = PEERS[name]
    outcome = fit_in_worker(worker, settings, split, threads=plan.threads)
    return replace(outcome, trace=[])


def _draw(num_rows: int, num_columns: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Rows of a function of the first four columns; the others are irrelevant."""
    x = rng.normal(size=(num_rows, num_columns))
    f = np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + np.exp(-(x[:, 3] ** 2))
    return x, f + NOISE * rng.normal(size=num_rows)


def _measure_large(plan: Plan, rows: int) -> Outcome:
    x, y = waves(rows + NUM_TEST_LARGE, LARGE_COLUMNS)  # not by `load`, which would keep them in memory
    split = standardized(x, y, np.arange(rows), np.arange(rows, len(x)))
    settings = {"method": "fit", "parameters": {"n_coreset": plan.points}}
    outcome = fit_in_worker("cvgp", settings, split, threads=plan.threads)
    data = {"rows": float(rows), "data_memory": float(split.x.nbytes + split.y.nbytes)}
    return replace(outcome, metrics=outcome.metrics | data)


def report(plan: Plan, store: Store) -> str:
    """A row per fit that was measured."""
    small = []
    for size in plan.sizes:
        record = store.finished(default_task(plan, *size).key)
        if record is not None:
            forms = {"seconds": ".1f", "rmse": ".4f", "log_likelihood": ".3f", "coverage": ".2f"}
            points = f"{record.number('points'):.0f} + {record.number('neighbors'):.0f}"
            scores = [format(record.number(name), form) for name, form in forms.items()]
            small.append([f"{size[0]:,} x {size[1]}", *scores, points])
    beside = []
    for rows in plan.peer_rows:
        own = store.finished(peer_task(plan, "cvgp", rows).key)
        for name in peers_for(rows):
            record = store.finished(peer_task(plan, name, rows).key)
            if record is not None and own is not None:
                ratio = record.number("seconds") / own.number("seconds")
                scores = [
                    format(record.number(score), form) for score, form in (("rmse", ".4f"), ("log_likelihood", ".3f"))
                ]
                beside.append([f"{rows:,}", name, f"{record.number('seconds'):.1f}", f"{ratio:.2f}", *scores])
    large = []
    for rows in plan.large_rows:
        record = store.finished(large_task(plan, rows).key)
        if record is not None:
            m = record.metrics
            memory = (m["data_memory"], m["peak_memory"] - m["memory_before"], m["peak_memory"])
            scores = [f"{m['seconds']:.1f}", f"{m['rmse']:.4f}", f"{m['log_likelihood']:.4f}"]
            large.append([f"{rows:,} x {LARGE_COLUMNS}", *scores, *(f"{value / 1e6:.0f}" for value in memory)])
    header = ("rows x columns", "seconds", "RMSE", "log-likelihood")
    return "\n\n".join(
        [
            markdown_table((*header, "90 % coverage", "points + neighbors"), small, num_text=1),
            f"The true function has an RMSE of {NOISE} and a log-likelihood of {BEST:.3f}.",
            f"Default fits of {LARGE_COLUMNS} columns beside peers, in units of the standard deviation of y:",
            markdown_table(("rows", "library", "seconds", "over cvgp's", *header[2:]), beside, num_text=2),
            f"Waves, with {plan.points} points:",
            markdown_table((*header, "data, MB", "beyond, MB", "peak, MB"), large, num_text=1),
        ]
    )
