"""Tasks of this process, one after another: those that are done are skipped, those that fail are noted."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from cvgp import CVGPRegressor
from cvgp.paper.attempt import attempt, thread_limit
from cvgp.paper.board import outcome
from cvgp.paper.datasets import load
from cvgp.paper.provenance import now, provenance
from cvgp.paper.store import Key, Outcome, Record, Store

__all__ = ["Task", "run_tasks"]


class Task(NamedTuple):
    """Something to measure, and everything that decides what comes out."""

    key: Key
    run: Callable[[], Outcome]
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
    open_tasks = [task for task in tasks if not _done(task, store.finished(task.key), source)]
    print(f"{len(tasks)} tasks, {len(tasks) - len(open_tasks)} of them in {store.path} already", flush=True)
    if not open_tasks:
        return
    with thread_limit(threads):
        if warm_up:
            _warm_up()
        begin = time.perf_counter()
        for number, task in enumerate(open_tasks, 1):
            record, arrays = attempt(task.key, task.run)
            record = replace(record, provenance=origin | {"date": now()} | record.provenance)
            store.append(record, arrays)
            left = (time.perf_counter() - begin) / number * (len(open_tasks) - number)
            place = f"[{number}/{len(open_tasks)}, {left / 60:.0f} min left]"
            print(f"{place} {task.label}: {outcome(record)} ({record.seconds:.1f} s)", flush=True)


def _done(task: Task, record: Record | None, source: str | None) -> bool:
    return record is not None and (source is None or not task.ours or record.provenance["source"] == source)


def _warm_up() -> None:
    """Imports and thread pools are paid for once, by no task."""
    x, y = load("waves-200x2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        CVGPRegressor(10, solver="adam", max_iter=5, random_state=0).fit(x, y).predict(x[:5], return_std=True)
