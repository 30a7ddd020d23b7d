"""``python -m benchmarks neighbours``: what neighbours cost: search, statistics, one prediction and a million."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.peers.protocol import peak_memory, resident_memory
from benchmarks.peers.workers import fit_in_worker
from benchmarks.runner import Task
from benchmarks.speed.large import waves_split
from cvgp import CVGPRegressor
from cvgp.data.rows import Rows
from cvgp.gp.neighbours.decorrelated import gather_decorrelated
from cvgp.gp.neighbours.search import RowIndex
from cvgp.paper.markdown import markdown_table, origin
from cvgp.paper.store import Metrics, Outcome, Store
from cvgp.training.neighbour_rows import ordered, whitened

__all__ = ["Plan", "full", "quick", "report", "tasks"]

NUM_DIMS, COUNT, SIZE = 10, 20, 200
OURS = "cvgp"
SEARCHES = (OURS, "faiss flat", "faiss graph", "hnswlib graph")


@dataclass(frozen=True)
class Plan:
    """How many rows each measurement has."""

    searched: tuple[int, ...]
    queries: int
    statistics: int
    fitted: int
    predicted: int
    threads: int


def full(threads: int) -> Plan:
    """The measurements of the documentation."""
    return Plan((36_000, 200_000, 1_000_000), 2000, 36_000, 50_000, 1_000_000, threads)


def quick(threads: int) -> Plan:
    """Sizes that take a few seconds, without a peer."""
    return Plan((), 100, 2000, 600, 2000, threads)


def tasks(plan: Plan) -> list[Task]:
    """Statistics and predictions of ours, then the search by each library."""
    own: dict[str, tuple[int, Callable[[], Outcome]]] = {
        "statistics": (plan.statistics, lambda: _measure_statistics(plan)),
        "predictions": (plan.fitted, lambda: _measure_predictions(plan)),
    }
    found = [Task(_key(plan, what, rows), run) for what, (rows, run) in own.items()]
    return found + [_search_task(plan, rows, method) for rows in plan.searched for method in SEARCHES]


def _key(plan: Plan, what: str, rows: int, method: str = OURS) -> dict[str, str | int | float | None]:
    return {"benchmark": "neighbours", "what": what, "rows": rows, "method": method, "threads": plan.threads}


def _search_task(plan: Plan, rows: int, method: str) -> Task:
    return Task(_key(plan, "search", rows, method), lambda: _measure_search(plan, rows, method), ours=method == OURS)


def _rows(count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    split = waves_split(count, NUM_DIMS, 1)
    return split.x, split.y


def _measure_statistics(plan: Plan) -> Outcome:
    """Those of decorrelated rows, with the search for their neighbours."""
    x, y = _rows(plan.statistics)
    size = min(SIZE, len(x) // 2)
    model = CVGPRegressor(size, neighbors=0, solver="adam", max_iter=1, random_state=0).fit(x, y).model_
    rows = Rows(torch.as_tensor(x), torch.as_tensor(y)[:, None], None, None)
    begin = time.perf_counter()
    index = RowIndex(model.kernel, rows.x)
    near = index.earlier(COUNT)
    found = time.perf_counter()
    with torch.no_grad():
        gather_decorrelated(whitened(model), ordered(model, rows), near)
    end = time.perf_counter()
    return Outcome({"seconds": end - begin, "search_seconds": found - begin, "points": float(size)})


def _measure_predictions(plan: Plan) -> Outcome:
    """One row at a time, then many in one call."""
    x, y = _rows(plan.fitted)
    begin = time.perf_counter()
    model = CVGPRegressor(neighbors=COUNT, random_state=0).fit(x, y)
    fit_seconds = time.perf_counter() - begin
    new = np.random.default_rng(1).standard_normal((plan.predicted, NUM_DIMS))
    times = []
    for row in new[:200]:
        begin = time.perf_counter()
        model.predict(row[None], return_std=True)
        times.append(time.perf_counter() - begin)
    before, begin = resident_memory(), time.perf_counter()
    model.predict(new, return_std=True)
    seconds = time.perf_counter() - begin
    extra = max(peak_memory() - before, 0.0)
    return Outcome(
        {
            "fit_seconds": fit_seconds,
            "row_seconds": median(times[20:]),  # the first ones load what is loaded late
            "seconds": seconds,
            "rows_per_second": len(new) / seconds,
            "extra_memory": extra,
            "table_memory": float(new.nbytes),
        }
    )


def _measure_search(plan: Plan, rows: int, method: str) -> Outcome:
    """An index of all rows, the nearest rows of some others, and how many of the true nearest rows were found."""
    x = np.random.default_rng(0).standard_normal((rows, NUM_DIMS))
    queries = np.random.default_rng(1).standard_normal((plan.queries, NUM_DIMS))
    kernel = CVGPRegressor(2, neighbors=0, kernel="rbf", standardize=False, max_iter=1).fit(x[:100], x[:100, 0]).kernel_
    kernel.base_kernel.lengthscale = 1.0
    begin = time.perf_counter()
    index = RowIndex(kernel, torch.as_tensor(x))
    built = time.perf_counter() - begin
    begin = time.perf_counter()
    near = index.nearest(torch.as_tensor(queries), COUNT).numpy()
    seconds = time.perf_counter() - begin
    if method == OURS:
        return _of_search(plan, built, seconds, 1.0)
    settings = {"method": method, "count": COUNT}
    split = waves_split(rows, NUM_DIMS, plan.queries)._replace(x=x, x_test=queries)

    def share_found(y: NDArray[np.float64], arrays: Mapping[str, NDArray[np.float64]]) -> Metrics:
        found = arrays["near"].astype(np.int64)
        hits = [len(np.intersect1d(a, b)) for a, b in zip(found, near, strict=True)]
        return {"recall": float(np.mean(hits)) / COUNT}

    peer = fit_in_worker("nearest", settings, split, threads=plan.threads, score=share_found)
    numbers = {name: peer.metrics[name] or 0.0 for name in ("build_seconds", "search_seconds", "recall")}
    return replace(_of_search(plan, *numbers.values()), origin=peer.origin)


def _of_search(plan: Plan, built: float, seconds: float, recall: float) -> Outcome:
    return Outcome({"build_seconds": built, "query_seconds": seconds / plan.queries, "recall": recall})


def report(plan: Plan, store: Store) -> str:
    """The tables of what is stored."""
    records = [record for task in tasks(plan) if (record := store.finished(task.key)) is not None]
    measured = {(str(r.task["what"]), r.task["rows"], str(r.task["method"])): r for r in records}
    lines = []
    if found := measured.get(("statistics", plan.statistics, OURS)):
        m = {name: found.number(name) for name in ("seconds", "search_seconds", "points")}
        lines.append(
            f"Statistics of {plan.statistics} rows with {COUNT} neighbours each, M = {m['points']:.0f}: "
            f"{m['seconds']:.1f} s, of which {m['search_seconds']:.1f} s are the search. The target is 3 s."
        )
    if found := measured.get(("predictions", plan.fitted, OURS)):
        lines.append(
            f"Predictions from {plan.fitted} rows x {NUM_DIMS} columns: mean and sd of one row in "
            f"{1e3 * found.number('row_seconds'):.2f} ms (the target is 1 ms), and of {plan.predicted} rows in "
            f"{found.number('seconds'):.0f} s with {found.number('extra_memory') / 1e6:.0f} MB beside the "
            f"{found.number('table_memory') / 1e6:.0f} MB of their inputs."
        )
    rows = [
        [
            f"{task.key['rows']}",
            str(task.key["method"]),
            f"{found.number('build_seconds'):.2f}",
            f"{1e6 * found.number('query_seconds'):.0f}",
            f"{100 * found.number('recall'):.1f} %",
        ]
        for task in tasks(plan)
        if task.key["what"] == "search" and (found := store.finished(task.key)) is not None
    ]
    if rows:
        header = ("rows", "search", "seconds to build", "µs per query", f"of the {COUNT} nearest found")
        lines.append(markdown_table(header, rows, num_text=2))
    return "\n\n".join([*lines, origin(records)])
