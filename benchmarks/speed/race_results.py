"""What the race says: the best of each peer, and when ours had reached it."""

from itertools import takewhile
from typing import NamedTuple

from benchmarks.speed.race import Plan, task
from cvgp.paper.store import Record, Store

__all__ = ["Best", "best_peers", "ours", "seconds_to_reach"]


class Best(NamedTuple):
    """The contestant of a name with the highest test log-likelihood at the end: hindsight, for the peer."""

    name: str
    sparse: bool
    record: Record


def best_peers(plan: Plan, store: Store, dataset: str) -> dict[str, Best]:
    """By name, those that have finished."""
    found: dict[str, Best] = {}
    for contestant in plan.contestants:
        record = store.finished(task(plan, dataset, contestant).key)
        if record is None:
            continue
        before = found.get(contestant.name)
        if before is None or record.metrics["log_likelihood"] > before.record.metrics["log_likelihood"]:
            found[contestant.name] = Best(contestant.name, contestant.sparse, record)
    return found


def ours(plan: Plan, store: Store, dataset: str) -> list[Record]:
    """Our finished fits, from the smallest budget to the largest."""
    records = [store.finished(task(plan, dataset, budget).key) for budget in plan.budgets]
    return [record for record in records if record is not None]


def seconds_to_reach(records: list[Record], log_likelihood: float) -> float | None:
    """Seconds of our shortest fit that is at least as good, as is every longer one; None if the longest is not.

    One short fit can be lucky, so it counts only if no longer fit falls behind the peer again.
    """
    good = list(takewhile(lambda r: r.metrics["log_likelihood"] >= log_likelihood, reversed(records)))
    return good[-1].metrics["seconds"] if good else None
