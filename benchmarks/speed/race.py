"""Time to quality: every method on the same split, against the clock.

Sparse peers get what we give ourselves: the kernel family, the number of points, our k-means centres, and the kernel
and noise that our search for a start finds, all of which is free of charge for them. Ours pays for everything.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.ours import begin, start_of_peers
from benchmarks.peers.workers import fit_in_worker
from benchmarks.runner import Task
from cvgp.paper.protocol import PRESETS
from cvgp.paper.splits import random_split
from cvgp.paper.store import Outcome, Value
from cvgp.training.monitor import Watch

__all__ = ["BUDGETS", "Contestant", "Plan", "full", "peers", "quick", "task", "tasks"]

Array = NDArray[np.float64]

KERNEL = "matern32"
BATCH_SIZE = 512
BUDGETS = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 60.0)
EXACT_ROWS = 1000
"""With so many an exact GP takes about as long as the budget."""

SEED = 0
THREADS = 1
"""One core each: how well a method uses a second one, and whether that is free, is another question."""


@dataclass(frozen=True)
class Contestant:
    """A peer and how it is run; contestants of one name compete, and the best of them counts."""

    name: str
    worker: str
    method: str
    options: tuple[tuple[str, Value], ...] = ()
    sparse: bool = True
    """Whether it is a GP with inducing points, as ours is."""


@dataclass(frozen=True)
class Plan:
    """What to run."""

    datasets: tuple[str, ...]
    size: int
    budget: float
    budgets: tuple[float, ...]
    """Of our own fits: each has its own, since a schedule is made for the time that it has."""
    rates: tuple[float, ...] = PRESETS["fair"].learning_rates
    exact_rows: int = EXACT_ROWS
    """An exact GP gets so many of the rows."""
    threads: int = THREADS
    contestants: tuple[Contestant, ...] = field(init=False)

    def __post_init__(self) -> None:
        """The peers follow from the rest."""
        object.__setattr__(self, "contestants", peers(self.rates, self.exact_rows))


def full(datasets: tuple[str, ...], size: int, budget: float) -> Plan:
    """The comparison of the documentation."""
    shorter = [seconds for seconds in BUDGETS if seconds < budget]
    return Plan(datasets, size, budget, (*shorter, budget))


def quick() -> Plan:
    """Every method once, for a few seconds, on generated data."""
    return Plan(("waves-1200x4",), 40, 3.0, (1.0, 3.0), rates=(0.03,), exact_rows=300)


def peers(rates: tuple[float, ...], exact_rows: int) -> tuple[Contestant, ...]:
    """Those who take part; where a learning rate has to be chosen, all of them do."""

    def by_rate(name: str, worker: str, method: str) -> list[Contestant]:
        return [Contestant(name, worker, method, (("learning_rate", rate),)) for rate in rates]

    return (
        *by_rate("GPyTorch SVGP", "gpytorch", "svgp"),
        Contestant("GPflow SGPR", "gpflow", "sgpr"),
        Contestant("GPyTorch SGPR", "gpytorch", "sgpr", (("optimiser", "lbfgs"),)),
        Contestant("GPBoost Vecchia", "gpboost", "vecchia", sparse=False),
        Contestant("LightGBM", "lightgbm", "trees", sparse=False),
        Contestant("scikit-learn exact GP", "sklearn", "exact", (("rows", exact_rows),), sparse=False),
        Contestant("GPyTorch SGPR", "gpytorch", "sgpr", (("optimiser", "adam"), ("learning_rate", max(rates)))),
        *by_rate("GPyTorch PPGPR", "gpytorch", "ppgpr"),
        *by_rate("GPflow SVGP", "gpflow", "svgp"),
    )


def tasks(plan: Plan) -> list[Task]:
    """Each peer on every data set, those first that targets are about; then ours."""
    return [
        task(plan, dataset, what)
        for what in (*plan.contestants, *plan.budgets)  # the peers' results are kept, ours are renewed
        for dataset in plan.datasets
    ]


def task(plan: Plan, dataset: str, what: Contestant | float) -> Task:
    """One fit: of a peer, or of cvgp with a budget of its own."""
    if isinstance(what, Contestant):
        options: dict[str, Value] = dict(what.options)
        identity: dict[str, Value] = {"method": what.name, "budget": plan.budget, **options}
    else:
        identity = {"method": "cvgp", "budget": what}
    key: dict[str, Value] = {
        "benchmark": "race",
        "dataset": dataset,
        "kernel": KERNEL,
        "size": plan.size,
        "threads": plan.threads,
        **identity,
    }
    return Task(key, lambda: _measure(plan, dataset, what), ours=not isinstance(what, Contestant))


def _measure(plan: Plan, dataset: str, what: Contestant | float) -> Outcome:
    split = random_split(dataset, SEED)
    if not isinstance(what, Contestant):
        parameters = {"n_coreset": plan.size, "kernel": KERNEL, "max_time": what}
        settings: dict[str, Any] = {"method": "fit", "parameters": parameters}
        return fit_in_worker("cvgp", settings, split, threads=plan.threads)
    settings = {
        "method": what.method,
        "kernel": KERNEL,
        "budget": plan.budget,
        "checkpoints": BUDGETS,
        "batch_size": BATCH_SIZE,
        **dict(what.options),
    }
    return fit_in_worker(what.worker, settings, split, threads=plan.threads, extra=start(dataset, plan.size))


@cache
def start(dataset: str, size: int) -> dict[str, Array]:
    """Where sparse peers begin: what our own fit on this split begins with."""
    split = random_split(dataset, SEED)
    model = begin(split.x, split.y, Watch(), kernel=KERNEL, size=size, seed=SEED).model
    return start_of_peers(model)
