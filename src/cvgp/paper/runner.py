"""Running tasks, each in a process with a time limit: those that are done are skipped, those that fail are noted."""

import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

from cvgp.paper.experiments import Experiment, Plan
from cvgp.paper.provenance import now, provenance
from cvgp.paper.store import Arrays, Key, Record, Store
from cvgp.paper.worker import ARRAYS, RESULT, run_task

POLL_SECONDS = 0.02
PRELOAD = ["cvgp.paper.worker", "cvgp.paper.baselines", "sklearn.cluster", "torch._dynamo"]
"""Imported once, by the server: what the first fit of a process would import takes longer than a small fit."""

Report = Callable[[Record, int, int], None]
"""Told each record with the numbers of tasks that are finished and that are known so far."""

Announce = Callable[[Sequence[Key], bool], None]
"""Told the tasks of each round before they run, and whether it is the first."""


@dataclass(frozen=True)
class Summary:
    """How a run ended."""

    ran: int
    failed: int
    skipped: int


@dataclass
class _Running:
    key: Key
    process: BaseProcess
    folder: tempfile.TemporaryDirectory[str]
    begin: float


def run_plan(
    experiment: Experiment,
    plan: Plan,
    store: Store,
    *,
    jobs: int,
    threads: int,
    time_limit: float,
    report: Report,
    announce: Announce = lambda keys, first: None,
) -> Summary:
    """Run what the store has no result of, up to `jobs` at a time; a task that failed earlier is tried again once.

    What a task's result decides, such as a learning rate for the next ones, comes in further rounds.
    """
    tried: set[str] = set()
    ran = failed = skipped = 0
    while True:
        keys = experiment.keys(plan, store)
        fresh = [key for key in keys if store.finished(key) is None and json.dumps(key) not in tried]
        first = not tried
        if first:
            skipped = len(keys) - len(fresh)
        if not fresh:
            return Summary(ran, failed, skipped)
        announce(fresh, first)
        tried.update(json.dumps(key) for key in fresh)
        waiting, running = list(reversed(fresh)), list[_Running]()
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    running.append(_begin(waiting.pop(), threads))
                time.sleep(POLL_SECONDS)
                for task in [t for t in running if _ended(t, time_limit)]:
                    running.remove(task)
                    record, arrays = _collect(task, time_limit)
                    store.append(record, arrays)
                    ran, failed = ran + 1, failed + record.failed
                    report(record, ran, ran + len(waiting) + len(running))
        finally:
            for task in running:
                _stop(task)


def _context() -> multiprocessing.context.BaseContext:
    """A server that has imported everything and is forked for each task, where the system has that."""
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


def _begin(key: Key, threads: int) -> _Running:
    folder = tempfile.TemporaryDirectory(prefix="cvgp-paper-")
    process = _context().Process(target=run_task, args=(key, threads, folder.name), daemon=True)  # type: ignore[attr-defined]
    process.start()
    return _Running(key, process, folder, time.perf_counter())


def _ended(task: _Running, time_limit: float) -> bool:
    return not task.process.is_alive() or time.perf_counter() - task.begin > time_limit


def _stop(task: _Running) -> None:
    task.process.kill()
    task.process.join()
    task.folder.cleanup()


def _collect(task: _Running, time_limit: float) -> tuple[Record, Arrays]:
    """The record of a task that has ended; one that is still running is late, and is ended."""
    seconds = time.perf_counter() - task.begin
    late = task.process.is_alive()
    if not late:
        task.process.join()
    folder = Path(task.folder.name)
    arrays: Arrays = {}
    if late:
        record = Record(task.key, {}, {}, error=f"TimeLimit: not done after {time_limit:g} seconds")
    elif (folder / RESULT).exists():
        record = Record(**json.loads((folder / RESULT).read_text(encoding="utf-8")))
        if record.arrays:
            with np.load(folder / ARRAYS, allow_pickle=False) as stored:
                arrays = dict(stored)
    else:
        code = task.process.exitcode
        record = Record(task.key, {}, {}, error=f"ProcessEnded: code {code}, without a result (out of memory?)")
    _stop(task)
    origin = provenance() | {"date": now()} | record.provenance
    return replace(record, seconds=round(seconds, 3), provenance=origin), arrays
