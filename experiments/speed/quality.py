"""Time to quality of sparse GPs: every method on the same splits, against the clock.

Peers have our kernel family and our number of points. They begin at k-means centers, which are free of charge for them,
with broad lengthscales. Ours pays for everything. It is the coreset alone, with one noise level and without neighbors,
so that all methods fit the same kind of model.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import takewhile
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.figures import grid, plain_ticks
from experiments.markdown import markdown_table
from experiments.peers.workers import fit_in_worker
from experiments.race import RATES, plain_start
from experiments.runner import Task
from experiments.splits import random_split
from experiments.store import Outcome, Record, Store, Value

Array = NDArray[np.float64]

DATASETS = ("bike", "parkinsons", "protein", "elevators", "keggdirected")
KERNEL = "matern32"
BATCH_SIZE = 512
BUDGETS = (2.0, 5.0, 6.0, 10.0, 20.0, 60.0)
SEED = 0
SAME_AS_PEERS: dict[str, Any] = {"n_neighbors": 0, "noise": "constant", "input_warp": "identity"}
"""The coreset alone, with one noise level and inputs as they are: the model that sparse peers have."""
THREADS = 1
"""One core each: how well a method uses a second one, and whether that is free, is another question."""
CLOCK = "processor"
"""So that other work on the machine takes nothing from a peer. Our own limit is on real time."""
PICTURE = ("speed_quality.png", "Test log-likelihood against seconds, one panel for each data set")
STYLES = {"SVGP": ("#D55E00", "s", "--"), "SGPR": ("#56B4E9", "<", "-.")}
"""Colour, marker and line of each peer."""
OURS = ("cvgp", "#0072B2", "o", "-")
PICTURED = 0
"""The split that is drawn."""
ROOM_BELOW = 0.35
"""How far below the worst final quality the axis goes, as a share of the range above; starts may be far worse."""


@dataclass(frozen=True)
class Contestant:
    """A peer and how it is run; contestants of one name compete, and the best of them counts."""

    name: str
    worker: str
    method: str
    options: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True)
class Plan:
    """What to run."""

    datasets: tuple[str, ...]
    size: int
    budget: float
    budgets: tuple[float, ...]
    """Of our own fits: each has its own, since a schedule is made for the time that it has."""
    splits: int
    rates: tuple[float, ...] = RATES
    threads: int = THREADS
    contestants: tuple[Contestant, ...] = field(init=False)

    def __post_init__(self) -> None:
        """The peers follow from the rest."""
        object.__setattr__(self, "contestants", peers(self.rates))


def full(threads: int = THREADS) -> Plan:
    """The comparison of the documentation."""
    return Plan(DATASETS, 200, BUDGETS[-1], BUDGETS, splits=5)


def quick(threads: int = THREADS) -> Plan:
    """Every method once, for a few seconds, on generated data."""
    return Plan(("waves-1200x4",), 40, 3.0, (1.0, 3.0), 1, rates=(0.03,))


def peers(rates: tuple[float, ...]) -> tuple[Contestant, ...]:
    """Those who take part; where a learning rate has to be chosen, all of them do."""
    return (
        *(Contestant("SVGP", "gpytorch", "svgp", (("learning_rate", rate),)) for rate in rates),
        Contestant("SGPR", "gpflow", "sgpr", (("optimizer", "L-BFGS"),)),
        Contestant("SGPR", "gpytorch", "sgpr", (("optimizer", "Adam"), ("learning_rate", max(rates)))),
    )


def tasks(plan: Plan) -> list[Task]:
    """Split by split: each peer on every data set, then ours."""
    return [
        task(plan, dataset, split, what)
        for split in range(plan.splits)
        for what in (*plan.contestants, *plan.budgets)  # the peers' results are kept, ours are renewed
        for dataset in plan.datasets
    ]


def task(plan: Plan, dataset: str, split: int, what: Contestant | float) -> Task:
    """One fit: of a peer, or of cvgp with a budget of its own."""
    if isinstance(what, Contestant):
        options: dict[str, Value] = dict(what.options)
        identity: dict[str, Value] = {"method": what.name, "budget": plan.budget, "start": "plain", **options}
    else:
        identity = {"method": "cvgp", "budget": what, "neighbors": 0, "noise": "constant", "inputs": "identity"}
    key: dict[str, Value] = {
        "benchmark": "race",
        "dataset": dataset,
        "split": split,
        "kernel": KERNEL,
        "size": plan.size,
        "threads": plan.threads,
        "clock": CLOCK,
        **identity,
    }
    return Task(key, partial(_measure, plan, dataset, split, what), ours=not isinstance(what, Contestant))


def _measure(plan: Plan, dataset: str, number: int, what: Contestant | float) -> Outcome:
    split = random_split(dataset, number)
    if not isinstance(what, Contestant):
        parameters = {"n_coreset": plan.size, "kernel": KERNEL, "max_time": what, **SAME_AS_PEERS}
        settings: dict[str, Any] = {"method": "fit", "parameters": parameters, "clock": CLOCK}
        return fit_in_worker("cvgp", settings, split, threads=plan.threads)
    settings = {
        "method": what.method,
        "kernel": KERNEL,
        "budget": plan.budget,
        "checkpoints": BUDGETS,
        "batch_size": BATCH_SIZE,
        "clock": CLOCK,
        **dict(what.options),
    }
    return fit_in_worker(what.worker, settings, split, threads=plan.threads, extra=_start(dataset, plan.size, number))


@lru_cache(maxsize=8)
def _start(dataset: str, size: int, number: int) -> dict[str, Array]:
    return plain_start(random_split(dataset, number).x, size, SEED)


# What is stored


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


def seconds_to_peer(plan: Plan, store: Store, dataset: str, name: str) -> list[float]:
    """Seconds until ours is as good as a peer at its end, on each split that has all of our fits and the peer."""
    found = []
    for split in range(plan.splits):
        mine, peers = ours(plan, store, dataset, split), best_peers(plan, store, dataset, split)
        if len(mine) == len(plan.budgets) and name in peers:
            found.append(seconds_to_reach(mine, peers[name].number("log_likelihood")))
    return found


def seconds_to_reach(records: Sequence[Record], log_likelihood: float) -> float:
    """Seconds of our shortest fit that is at least as good, as is every longer one; infinite if the longest is not.

    One short fit can be lucky, so it counts only if no longer fit falls behind the peer again.
    """
    good = list(takewhile(lambda r: r.metrics["log_likelihood"] >= log_likelihood, reversed(records)))
    return good[-1].metrics["seconds"] if good else float("inf")


def spread(values: Sequence[float], form: str) -> str:
    """The median, and of several values the range."""
    middle, low, high = (
        format(value, form) if value < float("inf") else "never" for value in (median(values), min(values), max(values))
    )
    return middle if len(values) == 1 else f"{middle} ({low} to {high})"


def report(plan: Plan, store: Store) -> str:
    """Scores of our fits by budget, and of the peers at the end."""
    rows = []
    for dataset in plan.datasets:
        mine = [ours(plan, store, dataset, split) for split in range(plan.splits)]
        for number, budget in enumerate(plan.budgets):
            rows += _race_row(dataset, f"cvgp, {budget:g} s", [found[number] for found in mine if len(found) > number])
        peers = [best_peers(plan, store, dataset, split) for split in range(plan.splits)]
        for name in dict.fromkeys(contestant.name for contestant in plan.contestants):
            rows += _race_row(dataset, name, [best[name] for best in peers if name in best])
    header = ("set", "method", "chosen", "seconds", "RMSE", "mean log-likelihood", "splits")
    return f"Medians over splits, with their range:\n\n{markdown_table(header, rows, num_text=3)}"


COLUMNS = (("seconds", 2), ("rmse", 4), ("log_likelihood", 4))


def _race_row(dataset: str, name: str, records: list[Record]) -> list[list[str]]:
    if not records:
        return []
    chosen = {" ".join(str(r.task[k]) for k in ("optimizer", "learning_rate") if k in r.task) for r in records}
    numbers = [spread([r.metrics[k] for r in records], f".{n}f") for k, n in COLUMNS]
    return [[dataset, name, " or ".join(sorted(chosen)) or "-", *numbers, str(len(records))]]


def figure(plan: Plan, store: Store) -> Any:
    """Test log-likelihood against seconds, one panel for each data set; None without results."""
    datasets = [name for name in plan.datasets if ours(plan, store, name, PICTURED)]
    if not datasets:
        return None
    columns = min(3, len(datasets) + 1)
    rows = -(-(len(datasets) + 1) // columns)  # one place for the legend
    figure, axes = grid(rows, columns, (4.2, 3.5))
    handles = {}
    for dataset, ax in zip(datasets, axes.flat, strict=False):
        handles |= _quality_panel(ax, plan, store, dataset)
    for ax in axes.flat[len(datasets) :]:
        ax.axis("off")
    axes.flat[len(datasets)].legend(handles.values(), handles.keys(), loc="center", frameon=False)
    for row in axes:
        row[0].set_ylabel("test log-likelihood, nats per row")
    return figure


def _quality_panel(ax: Any, plan: Plan, store: Store, dataset: str) -> dict[str, object]:
    handles: dict[str, object] = {}
    ends = []
    label, color, marker, line = OURS
    mine = ours(plan, store, dataset, PICTURED)
    points = sorted((r.metrics["seconds"], r.metrics["log_likelihood"]) for r in mine)
    (handles[label],) = ax.plot(*zip(*points, strict=True), line, color=color, marker=marker, lw=2.2, ms=6, zorder=5)
    ends += [value for _, value in points]
    for name, best in best_peers(plan, store, dataset, PICTURED).items():
        color, marker, line = STYLES[name]
        trace = [(t["seconds"], t["log_likelihood"]) for t in best.trace]
        (handles[name],) = ax.plot(*zip(*trace, strict=True), line, color=color, marker=marker, lw=1.3, ms=5)
        ends.append(best.metrics["log_likelihood"])
    low, high = min(ends), max(ends)
    room = max(high - low, 0.02)
    ax.set(xscale="log", xlabel="seconds", title=dataset, ylim=(low - ROOM_BELOW * room, high + 0.08 * room))
    ax.grid(alpha=0.3)
    plain_ticks(ax)
    return handles
