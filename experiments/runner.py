"""Tasks, one after another or several at a time: finished ones are skipped, failures are recorded and tried again."""

import json
import math
import multiprocessing
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import Progress

from cvgp.errors import printable
from experiments.store import Arrays, Key, Outcome, Record, Store, now, provenance

__all__ = ["Summary", "Task", "run_tasks"]

LONGEST_ERROR = 500
POLL_SECONDS = 0.02
PRELOAD = ["experiments.runner", "experiments.paper.methods", "sklearn.cluster", "torch._dynamo"]
"""Imported once, by the server that is forked for each process: these imports take longer than a small fit."""
RESULT, ARRAYS = "result.json", "arrays.npz"


class Task(NamedTuple):
    """One measurement; the key holds everything that determines its result."""

    key: Key
    run: Callable[[], Outcome]
    ours: bool = True
    """Whether cvgp is measured, rather than a peer."""

    @property
    def label(self) -> str:
        """The key in a line, without the recipe and the name of the benchmark."""
        shown = {name: value for name, value in self.key.items() if name not in ("benchmark", "experiment")}
        return " ".join(f"{name}={value}" for name, value in shown.items() if not name.startswith("recipe_"))


class Summary(NamedTuple):
    """How many tasks were run, how many of these failed, and how many were in the store already."""

    ran: int
    failed: int
    skipped: int


class _Running(NamedTuple):
    task: Task
    process: BaseProcess
    folder: "tempfile.TemporaryDirectory[str]"
    begin: float


def run_tasks(
    make: Callable[[], Sequence[Task]],
    store: Store,
    *,
    threads: int,
    renew: bool = False,
    jobs: int | None = None,
    time_limit: float = math.inf,
) -> Summary:
    """Run the tasks that the store has no result of, and those that failed earlier.

    `make` is called again when its tasks are done, since results may decide about further tasks (a learning rate).
    With `renew`, our own tasks are repeated where the code of cvgp has changed. Without `jobs` tasks run in this
    process. With `jobs` each runs in a process of its own with a time limit, and `Task.run` must be picklable.
    """
    source = provenance()["source"] if renew else None
    tried: set[str] = set()
    ran = failed = skipped = 0
    while True:
        tasks = make()
        fresh = [t for t in tasks if str(t.key) not in tried and not _is_done(t, store.finished(t.key), source)]
        if not tried:
            skipped = len(tasks) - len(fresh)
            print(f"{len(tasks)} tasks, {skipped} of them in {store.path} already", file=sys.stderr, flush=True)
        if not fresh:
            return Summary(ran, failed, skipped)
        tried.update(str(task.key) for task in fresh)
        begin = time.perf_counter()
        records = _one_by_one(fresh, threads) if jobs is None else _in_processes(fresh, threads, jobs, time_limit)
        # In a terminal a bar stays below the lines; elsewhere the lines tell the time left.
        with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as progress:
            bar = progress.add_task(store.path.stem, total=len(fresh))
            for number, (task, record, arrays) in enumerate(records, 1):
                record = replace(record, provenance=provenance() | {"date": now()} | record.provenance)
                store.append(record, arrays)
                ran, failed = ran + 1, failed + record.failed
                left = (time.perf_counter() - begin) / number * (len(fresh) - number)
                line = f"[{number}/{len(fresh)}, {left / 60:.0f} min left] {task.label}: {_outcome(record)}"
                print(printable(f"{line} ({record.seconds:.1f} s)"), file=sys.stderr, flush=True)
                progress.advance(bar)


def _is_done(task: Task, record: Record | None, source: str | None) -> bool:
    return record is not None and (source is None or not task.ours or record.provenance["source"] == source)


def _outcome(record: Record) -> str:
    """The first numbers of a record, or its error."""
    shown = [f"{name} {value:.4g}" for name, value in record.metrics.items() if value is not None][:3]
    return f"FAILED, {record.error}" if record.failed else ", ".join(shown)


def _attempt(task: Task, threads: int) -> tuple[Record, Arrays]:
    """Run a task; whatever it raises becomes a record."""
    found, error = Outcome({}), ""
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught, _thread_limit(threads):
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", DeprecationWarning)  # about interfaces of libraries, not about results
        try:
            found = task.run()
            wrong = [name for name, value in found.metrics.items() if value is not None and not math.isfinite(value)]
            if wrong:
                raise FloatingPointError(f"not finite: {', '.join(wrong)}")
        except Exception as failure:  # the other tasks still have to be run
            found, error = Outcome({}), f"{type(failure).__name__}: {failure}"[:LONGEST_ERROR]
    record = Record(
        task.key,
        {name: None if value is None else float(value) for name, value in found.metrics.items()},
        found.origin,
        seconds=round(time.perf_counter() - begin, 3),
        error=error,
        warnings=sorted({f"{w.category.__name__}: {w.message}" for w in caught}),
        arrays=bool(found.arrays),
        trace=found.trace,
    )
    return record, found.arrays


@contextmanager
def _thread_limit(count: int) -> Iterator[None]:
    """Limit the threads of torch and of the BLAS libraries."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)


def _one_by_one(tasks: Sequence[Task], threads: int) -> Iterator[tuple[Task, Record, Arrays]]:
    for task in tasks:
        yield task, *_attempt(task, threads)


def _in_processes(
    tasks: Sequence[Task], threads: int, jobs: int, time_limit: float
) -> Iterator[tuple[Task, Record, Arrays]]:
    waiting, running = list(reversed(tasks)), list[_Running]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_begin(waiting.pop(), threads))
            time.sleep(POLL_SECONDS)
            for one in list(running):
                if not one.process.is_alive() or time.perf_counter() - one.begin > time_limit:
                    running.remove(one)
                    yield one.task, *_collect(one, time_limit)
    finally:
        for one in running:
            _stop(one)


def _context() -> multiprocessing.context.BaseContext:
    """A server that has imported everything and is forked for each task, where the system has that."""
    if sys.platform == "win32":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    return context


def _begin(task: Task, threads: int) -> _Running:
    folder = tempfile.TemporaryDirectory(prefix="cvgp-experiments-")
    process = _context().Process(target=_work, args=(task, threads, folder.name), daemon=True)  # type: ignore[attr-defined]
    process.start()
    return _Running(task, process, folder, time.perf_counter())


def _work(task: Task, threads: int, folder: str) -> None:
    """Run a task in this process; the record and the arrays go to a folder, where the runner finds them."""
    record, arrays = _attempt(task, threads)
    if arrays:
        np.savez(Path(folder) / ARRAYS, allow_pickle=False, **arrays)
    (Path(folder) / RESULT).write_text(json.dumps(vars(record), allow_nan=False), encoding="utf-8")


def _stop(one: _Running) -> None:
    one.process.kill()
    one.process.join()
    one.folder.cleanup()


def _collect(one: _Running, time_limit: float) -> tuple[Record, Arrays]:
    """The record of a process that has ended; one that still runs is late, and is ended."""
    seconds = round(time.perf_counter() - one.begin, 3)
    late, folder, arrays = one.process.is_alive(), Path(one.folder.name), Arrays()
    if late:
        record = Record(one.task.key, {}, {}, error=f"TimeLimit: not done after {time_limit:g} seconds")
    elif (folder / RESULT).exists():
        record = Record(**json.loads((folder / RESULT).read_text(encoding="utf-8")))
        if record.arrays:
            with np.load(folder / ARRAYS, allow_pickle=False) as stored:
                arrays = dict(stored)
    else:
        one.process.join()
        code = one.process.exitcode
        record = Record(one.task.key, {}, {}, error=f"ProcessEnded: code {code}, without a result (out of memory?)")
    _stop(one)
    return replace(record, seconds=seconds), arrays
