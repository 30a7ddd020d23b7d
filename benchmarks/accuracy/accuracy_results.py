"""What the stored results of the race say about a method on a data set."""

from statistics import median
from typing import NamedTuple

from benchmarks.accuracy.accuracy_race import Plan, record_of
from benchmarks.accuracy.entries import Entry
from cvgp.paper.store import Record, Store

__all__ = ["HIGHER_IS_BETTER", "Results", "best_peer", "is_better", "results_of"]

HIGHER_IS_BETTER = {"rmse": False, "log_likelihood": True, "crps": False}
"""The scores that decide who wins."""


class Results(NamedTuple):
    """The finished splits of an entry on a data set, by their number."""

    entry: Entry
    records: dict[int, Record]

    def values(self, metric: str, splits: set[int] | None = None) -> list[float]:
        """A metric on the given splits, or on all; those that do not have it are left out."""
        found = [r.number(metric) for n, r in self.records.items() if splits is None or n in splits]
        return [value for value in found if value == value]

    def median(self, metric: str, splits: set[int] | None = None) -> float | None:
        """None where no split has the metric."""
        found = self.values(metric, splits)
        return median(found) if found else None


def results_of(plan: Plan, store: Store, kind: str, dataset: str, entry: Entry) -> Results:
    """All splits that have finished."""
    found = {split: record_of(plan, store, dataset, kind, split, entry) for split in range(plan.splits)}
    return Results(entry, {split: record for split, record in found.items() if record is not None})


def best_peer(
    plan: Plan, store: Store, kind: str, dataset: str, metric: str, splits: set[int]
) -> tuple[Entry, float] | None:
    """The peer with the best median on these splits; one that has not finished all of them counts by those it has."""
    best: tuple[Entry, float] | None = None
    for entry in plan.entries:
        value = results_of(plan, store, kind, dataset, entry).median(metric, splits)
        if not entry.ours and value is not None and (best is None or is_better(metric, value, best[1])):
            best = entry, value
    return best


def is_better(metric: str, value: float, other: float) -> bool:
    """Whether the first value of a metric is better than the second."""
    return value > other if HIGHER_IS_BETTER[metric] else value < other
