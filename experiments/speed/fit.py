"""Seconds of whole fits: the default by rows and columns, and time and memory up to ten million rows."""

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


class Plan(NamedTuple):
    """What to run."""

    sizes: tuple[tuple[int, int], ...]
    large_rows: tuple[int, ...]
    points: int
    """Of the large fits."""
    threads: int


def full(threads: int) -> Plan:
    """The measurements of the documentation."""
    return Plan(SIZES, (10**5, 10**6, 10**7), 500, threads)


def quick(threads: int) -> Plan:
    """Sizes that take a few seconds."""
    return Plan(SIZES[:2], (3000, 30_000), 30, threads)


def tasks(plan: Plan) -> list[Task]:
    """A default fit for each size, then the large ones."""
    return [*(default_task(plan, *size) for size in plan.sizes), *(large_task(plan, rows) for rows in plan.large_rows)]


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
            f"Waves, with {plan.points} points:",
            markdown_table((*header, "data, MB", "beyond, MB", "peak, MB"), large, num_text=1),
        ]
    )
