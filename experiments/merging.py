"""Fit on shards and merge the models, against one fit on all rows: quality and bytes moved."""

import tempfile
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import cvgp
from cvgp import CVGPRegressor, TrainingOptions
from experiments.markdown import markdown_table, number, origin
from experiments.runner import Task
from experiments.scores import marginal_scores
from experiments.splits import Split, random_split
from experiments.store import Outcome, Record, Store

WHOLE, UNION = "one fit on all rows", "merge, all points"
COMPRESSED, ONE = "merge to M points", "one shard alone"
METHODS = (WHOLE, UNION, COMPRESSED, ONE)
DOUBLE = 8
"""Bytes of a number."""


@dataclass(frozen=True)
class Plan:
    """What to run."""

    datasets: tuple[str, ...]
    shards: tuple[int, ...]
    size: int
    steps: int
    sorted_shards: bool
    threads: int


def tasks(plan: Plan) -> list[Task]:
    """Every method for every number of shards; the whole fit, which has none, once."""
    keys = [(method, shards) for shards in plan.shards for method in METHODS if method != WHOLE]
    return [task(plan, dataset, method, shards) for dataset in plan.datasets for method, shards in [(WHOLE, 1), *keys]]


def task(plan: Plan, dataset: str, method: str, shards: int) -> Task:
    """One measurement."""
    key = {
        "benchmark": "federated",
        "dataset": dataset,
        "method": method,
        "shards": shards,
        "split_by": "first input" if plan.sorted_shards else "chance",
        "size": plan.size,
        "steps": plan.steps,
        "threads": plan.threads,
    }
    return Task(key, lambda: _measure(plan, dataset, method, shards))


def _measure(plan: Plan, dataset: str, method: str, shards: int) -> Outcome:
    split = random_split(dataset, 0)
    models, fit_seconds = _fitted(plan, dataset, shards)
    merged, begin = models[0], time.perf_counter()
    if method in (UNION, COMPRESSED):
        merged = cvgp.merge(models, n_coreset=plan.size if method == COMPRESSED else None)
    merge_seconds = time.perf_counter() - begin
    scores = marginal_scores(split.y_test, *merged.predict(split.x_test, return_std=True))
    own = {
        "seconds": fit_seconds + merge_seconds,  # shards one after another
        "merge_seconds": merge_seconds,
        "points": float(len(merged.coreset_)),
        "bytes": float(_bytes_moved(plan, models, method, shards)),
        "file_bytes": float(sum(_file_size(model) for model in models)),
    }
    return Outcome(scores | own)


@lru_cache(maxsize=1)  # the methods differ in what they do with the same models
def _fitted(plan: Plan, dataset: str, shards: int) -> tuple[list[CVGPRegressor], float]:
    """A model of each shard, and the seconds that all of them took."""
    split = random_split(dataset, 0)
    training = TrainingOptions(solver="adam", max_iter=plan.steps)
    begin = time.perf_counter()
    models = [
        CVGPRegressor(plan.size, random_state=0, training=training).fit(split.x[rows], split.y[rows])
        for rows in _parts(split, shards, plan.sorted_shards)
    ]
    return models, time.perf_counter() - begin


def _parts(split: Split, count: int, in_order: bool) -> list[NDArray[np.intp]]:
    order = np.argsort(split.x[:, 0]) if in_order else np.random.default_rng(0).permutation(len(split.x))
    return np.array_split(order, count)


def _bytes_moved(plan: Plan, models: list[CVGPRegressor], method: str, shards: int) -> int:
    """What merging sends: coresets, kernels and scalings, once. Of one fit: gradients of every step, by all workers.

    The whole fit is counted as if its rows were in as many shards as the most that are compared, with an all-reduce
    that sends and receives each number twice, less one part in the number of workers (a ring).
    """
    dims = models[0].n_features_in_
    parameters = plan.size * (dims + 2) + dims + 2
    if method == ONE:
        return 0
    if method == WHOLE:
        workers = max(plan.shards)
        return 2 * (workers - 1) * parameters * DOUBLE * plan.steps
    return len(models) * (parameters + 2 * (dims + 1)) * DOUBLE


def _file_size(model: CVGPRegressor) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.cvgp"
        model.save(path)
        return path.stat().st_size


def report(plan: Plan, store: Store) -> str:
    """One row per method, number of shards and data set."""
    records = [(t, store.finished(t.key)) for t in tasks(plan)]
    rows = [_row(t, record) for t, record in records]
    header = ["data", "method", "shards", "points", "RMSE", "log-likelihood", "90 % inside", "MB moved"]
    found: list[Record] = [record for _, record in records if record is not None]
    return f"{markdown_table(header, rows, num_text=2)}\n\n{origin(found)}"


def _row(task: Task, record: Record | None) -> list[str]:
    m = {} if record is None else record.metrics
    name, method, shards = (str(task.key[k]) for k in ("dataset", "method", "shards"))
    return [
        name,
        method,
        shards,
        number(m.get("points"), ".0f"),
        number(m.get("rmse")),
        number(m.get("log_likelihood")),
        number(m.get("coverage")),
        number(m.get("bytes", float("nan")) / 1e6, ".2f"),
    ]
