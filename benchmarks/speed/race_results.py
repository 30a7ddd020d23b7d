"""What the race says: the best of each peer, when ours had reached it, and by how much ours is ahead on the way."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from statistics import median
from typing import TypeVar

from benchmarks.speed.race import Plan, task
from cvgp.paper.store import Record, Store

__all__ = ["best_peers", "each_split", "ours", "seconds_to_reach", "smallest_lead", "spread"]

T = TypeVar("T")

LATE = 1.05
"""A peer's score counts at a moment if it was taken at most so many times later."""


def best_peers(plan: Plan, store: Store, dataset: str, split: int) -> dict[str, Record]:
    """By name, the contestant with the highest test log-likelihood at the end: hindsight, for the peer."""
    found: dict[str, Record] = {}
    for contestant in plan.contestants:
        record = store.finished(task(plan, dataset, split, contestant).key)
        if record is None:
            continue
        before = found.get(contestant.name)
        if before is None or record.metrics["log_likelihood"] > before.metrics["log_likelihood"]:
            found[contestant.name] = record
    return found


def ours(plan: Plan, store: Store, dataset: str, split: int) -> list[Record]:
    """Our finished fits, from the smallest budget to the largest."""
    records = [store.finished(task(plan, dataset, split, budget).key) for budget in plan.budgets]
    return [record for record in records if record is not None]


def each_split(plan: Plan, store: Store, dataset: str, look: Callable[[list[Record], dict[str, Record]], T]) -> list[T]:
    """What is found on each split that has all of our fits and the best of every peer."""
    names = {contestant.name for contestant in plan.contestants}
    found = []
    for split in range(plan.splits):
        mine, peers = ours(plan, store, dataset, split), best_peers(plan, store, dataset, split)
        if len(mine) == len(plan.budgets) and set(peers) == names:
            found.append(look(mine, peers))
    return found


def seconds_to_reach(records: Sequence[Record], log_likelihood: float) -> float:
    """Seconds of our shortest fit that is at least as good, as is every longer one; infinite if the longest is not.

    One short fit can be lucky, so it counts only if no longer fit falls behind the peer again.
    """
    good = list(takewhile(lambda r: r.metrics["log_likelihood"] >= log_likelihood, reversed(records)))
    return good[-1].metrics["seconds"] if good else float("inf")


def smallest_lead(mine: Sequence[Record], peers: Sequence[Record], since: float) -> float:
    """Nats per row between ours and the best that a peer has had by then, where that is least.

    `since` is a budget of ours in seconds; a fit with less does not count.
    """
    later = [record for record in mine if float(str(record.task["budget"])) >= since]
    leads = []
    for record in later:
        until = LATE * float(str(record.task["budget"]))
        had = [moment["log_likelihood"] for peer in peers for moment in peer.trace if moment["seconds"] <= until]
        if had:
            leads.append(record.metrics["log_likelihood"] - max(had))
    return min(leads, default=float("inf"))


def spread(values: Sequence[float], form: str) -> str:
    """The median, and of several values the range."""
    middle, low, high = (
        format(value, form) if value < float("inf") else "never" for value in (median(values), min(values), max(values))
    )
    return middle if len(values) == 1 else f"{middle} ({low} to {high})"
