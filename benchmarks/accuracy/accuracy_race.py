"""The race of accuracy: every method on the same splits, with the same seconds of the processor."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.entries import RATES, Entry
from benchmarks.accuracy.predictive_scores import LEVELS, predictive_scores
from benchmarks.accuracy.race_splits import race_split
from benchmarks.ours import begin, plain_start, start_of_peers
from benchmarks.peers.workers import fit_in_worker
from benchmarks.runner import Task
from cvgp.paper.store import Key, Outcome, Record, Store
from cvgp.training.monitor import Watch

__all__ = ["Plan", "candidates", "record_of", "seconds_allowed", "tasks"]

Array = NDArray[np.float64]

KERNEL = "matern32"
SIZE = 200
"""Inducing points of the sparse peers."""
BATCH_SIZE = 512
ROWS_OF_BUDGET = 50_000
"""Beyond these the seconds grow in proportion."""
SEED = 0
CLOCK = "processor"
"""So that other work on the machine takes nothing from a method that has a budget."""


@dataclass(frozen=True)
class Plan:
    """What to run."""

    datasets: tuple[str, ...]
    splits: int
    kinds: tuple[str, ...]
    entries: tuple[Entry, ...]
    budget: float
    """Seconds of the processor for a fit on up to 50,000 rows. Ours has no limit: its seconds are measured."""
    threads: int


def tasks(plan: Plan, store: Store, split: int) -> list[Task]:
    """All fits on the splits of one number: kind by kind, set by set, method by method.

    A peer whose learning rate has to be chosen is run at every rate on the first split. On the others it has the rate
    with the highest log-likelihood of the rows that were scored there: hindsight, in the peer's favour.
    """
    return [
        Task(key, lambda key=key, entry=entry: _measure(plan, entry, key), ours=entry.ours)  # type: ignore[misc]
        for kind in plan.kinds
        for dataset in plan.datasets
        for entry in plan.entries
        for key in candidates(plan, store, dataset, kind, split, entry)
    ]


def candidates(plan: Plan, store: Store, dataset: str, kind: str, split: int, entry: Entry) -> list[Key]:
    """The tasks of an entry on a split; of several the best counts."""
    key = _key(plan, dataset, kind, split, entry)
    keys = [key | {"start": start} for start in entry.starts] or [key]
    if not entry.tuned:
        return keys
    if split > 0:
        best = record_of(plan, store, dataset, kind, 0, entry)
        rate = RATES[len(RATES) // 2] if best is None else best.task["learning_rate"]
        return [key | {"learning_rate": rate} for key in keys]
    return [key | {"learning_rate": rate} for key in keys for rate in RATES]


def record_of(plan: Plan, store: Store, dataset: str, kind: str, split: int, entry: Entry) -> Record | None:
    """The best finished result of an entry on a split, or None."""
    found = [store.finished(key) for key in candidates(plan, store, dataset, kind, split, entry)]
    records = [record for record in found if record is not None]
    return max(records, key=lambda record: record.number("log_likelihood")) if records else None


def seconds_allowed(budget: float, rows: int) -> float:
    """The budget, and more in proportion for more rows than it is meant for."""
    return budget * max(1.0, rows / ROWS_OF_BUDGET)


def _key(plan: Plan, dataset: str, kind: str, split: int, entry: Entry) -> Key:
    key: Key = {"benchmark": "accuracy", "dataset": dataset, "kind": kind, "split": split, "method": entry.name}
    limit: Key = {} if entry.ours else {"budget": plan.budget}
    return key | dict(entry.options) | limit | {"threads": plan.threads}


def _measure(plan: Plan, entry: Entry, key: Key) -> Outcome:
    place = str(key["dataset"]), str(key["kind"]), int(key["split"] or 0)
    split = race_split(*place)
    settings: dict[str, Any] = {"clock": CLOCK}
    extra: dict[str, Array] = {}
    if entry.ours:
        settings |= {"method": entry.method, "parameters": dict(entry.options), "levels": LEVELS}
        extra = {"y_test": split.y_test}  # for the density, which its own method gives
    else:
        settings |= {
            "method": entry.method,
            "kernel": KERNEL,
            "batch_size": BATCH_SIZE,
            "budget": seconds_allowed(plan.budget, len(split.x)),
            **dict(entry.options),
        }
        if entry.tuned:
            settings["learning_rate"] = key["learning_rate"]
        if key.get("start") == "plain":
            extra = plain_start(split.x, SIZE, SEED)
        elif key.get("start") == "ours":
            extra = _our_start(*place)
    found = fit_in_worker(entry.worker, settings, split, threads=plan.threads, extra=extra, score=predictive_scores)
    per_row = (found.metrics["predict_seconds"] or 0.0) / len(split.x_test)
    sizes = {"rows_trained": float(len(split.x)), "rows_scored": float(len(split.x_test)), "seconds_per_row": per_row}
    return replace(found, metrics=found.metrics | sizes, trace=[])


@lru_cache(maxsize=1)
def _our_start(dataset: str, kind: str, number: int) -> dict[str, Array]:
    """What our own search for a start finds on this split."""
    split = race_split(dataset, kind, number)
    size = min(SIZE, len(split.x) // 2)
    model = begin(split.x, split.y, Watch(), kernel=KERNEL, size=size, seed=SEED).model
    return start_of_peers(model)
