"""Time to quality of sparse GPs: every method on the same splits, against the clock.

Peers have our kernel family and our number of points. They begin at k-means centres, which are free of charge for them,
with broad lengthscales. Ours pays for everything. It is the coreset alone, with one noise level and without neighbours,
so that all methods fit the same kind of model.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.ours import SAME_AS_PEERS, plain_start
from benchmarks.peers.workers import fit_in_worker
from benchmarks.runner import Task
from cvgp.paper.protocol import PRESETS
from cvgp.paper.splits import random_split
from cvgp.paper.store import Outcome, Value

__all__ = ["BUDGETS", "Contestant", "Plan", "full", "peers", "quick", "task", "tasks"]

Array = NDArray[np.float64]

KERNEL = "matern32"
BATCH_SIZE = 512
BUDGETS = (2.0, 5.0, 6.0, 10.0, 20.0, 60.0)
SEED = 0
THREADS = 1
"""One core each: how well a method uses a second one, and whether that is free, is another question."""
CLOCK = "processor"
"""So that other work on the machine takes nothing from a peer. Our own limit is on real time."""


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
    rates: tuple[float, ...] = PRESETS["fair"].learning_rates
    threads: int = THREADS
    contestants: tuple[Contestant, ...] = field(init=False)

    def __post_init__(self) -> None:
        """The peers follow from the rest."""
        object.__setattr__(self, "contestants", peers(self.rates))


def full(datasets: tuple[str, ...], size: int, budget: float, splits: int) -> Plan:
    """The comparison of the documentation."""
    shorter = [seconds for seconds in BUDGETS if seconds < budget]
    return Plan(datasets, size, budget, (*shorter, budget), splits)


def quick() -> Plan:
    """Every method once, for a few seconds, on generated data."""
    return Plan(("waves-1200x4",), 40, 3.0, (1.0, 3.0), 1, rates=(0.03,))


def peers(rates: tuple[float, ...]) -> tuple[Contestant, ...]:
    """Those who take part; where a learning rate has to be chosen, all of them do."""
    return (
        *(Contestant("SVGP", "gpytorch", "svgp", (("learning_rate", rate),)) for rate in rates),
        Contestant("SGPR", "gpflow", "sgpr", (("optimiser", "L-BFGS"),)),
        Contestant("SGPR", "gpytorch", "sgpr", (("optimiser", "Adam"), ("learning_rate", max(rates)))),
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
        identity = {"method": "cvgp", "budget": what, **SAME_AS_PEERS}
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
    return Task(key, lambda: _measure(plan, dataset, split, what), ours=not isinstance(what, Contestant))


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
