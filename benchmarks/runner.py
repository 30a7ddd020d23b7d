"""Running tasks one after another: those that are done are skipped, those that fail are noted."""

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from threadpoolctl import threadpool_limits

from benchmarks.datasets import load
from benchmarks.scores import Metrics, Outcome
from benchmarks.store import Record, Store, Value
from cvgp import CVGPRegressor
from cvgp.paper.provenance import now, provenance

__all__ = ["Task", "run_tasks"]


class Task(NamedTuple):
    """Something to measure, and everything that decides what comes out."""

    key: dict[str, Value]
    run: Callable[[], Metrics | Outcome]
    ours: bool = True
    """Whether it is cvgp that is measured, rather than a peer."""

    @property
    def label(self) -> str:
        """The key in a line, without the name of the benchmark."""
        return " ".join(f"{name}={value}" for name, value in self.key.items() if name != "benchmark")


def run_tasks(tasks: Sequence[Task], store: Store, threads: int, *, renew: bool = False, warm_up: bool = True) -> None:
    """Run what the store has no result of; a failed task is tried again.

    With `renew`, so are our own fits that another state of cvgp's code made. Tasks that are measured in processes of
    their own have no use for a warm-up of this one.
    """
    origin = provenance()
    source = origin["source"] if renew else None
    open_tasks = [task for task in tasks if not _done(task, store.get(task.key), source)]
    print(f"{len(tasks)} tasks, {len(tasks) - len(open_tasks)} of them in {store.path} already", flush=True)
    if not open_tasks:
        return
    with _threads(threads):
        if warm_up:
            _warm_up()
        begin = time.perf_counter()
        for number, task in enumerate(open_tasks, 1):
            record = _run(task, origin | {"date": now()})
            store.append(record)
            left = (time.perf_counter() - begin) / number * (len(open_tasks) - number)
            print(
                f"[{number}/{len(open_tasks)}, {left / 60:.0f} min left] {task.label}: {_summary(record)}", flush=True
            )


def _done(task: Task, record: Record | None, source: str | None) -> bool:
    if record is None or record.failed:
        return False
    return source is None or not task.ours or record.provenance["source"] == source


def _run(task: Task, origin: dict[str, str]) -> Record:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = Outcome({}, [], {})
        error = ""
        try:
            answer = task.run()
            found = answer if isinstance(answer, Outcome) else Outcome(answer, [], {})
            _check_finite(found.metrics)
        except Exception as failure:  # whatever a method throws, the others still have to be measured
            error = f"{type(failure).__name__}: {failure}"
            found = Outcome({}, [], {})
    messages = sorted({f"{w.category.__name__}: {w.message}" for w in caught})
    return Record(task.key, found.metrics, origin | found.origin, error, messages, found.trace)


def _check_finite(metrics: Metrics) -> None:
    wrong = [name for name, value in metrics.items() if not math.isfinite(value)]
    if wrong:
        raise FloatingPointError(f"not finite: {', '.join(wrong)}")


def _summary(record: Record) -> str:
    if record.failed:
        return f"FAILED, {record.error}"
    titles = {"rmse": "RMSE", "log_likelihood": "log-likelihood", "coverage": "coverage", "seconds": "seconds"}
    if "rmse" not in record.metrics:
        titles = {name: name.replace("_", " ") for name in record.metrics}
    return ", ".join(f"{title} {record.metrics[name]:.4g}" for name, title in titles.items())


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)


def _warm_up() -> None:
    """Imports and thread pools are paid for once, by no task."""
    x, y = load("waves-200x2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        CVGPRegressor(10, solver="adam", max_iter=5, random_state=0).fit(x, y).predict(x[:5], return_std=True)
