"""The race: every method on the same splits of the same sets, with the same processor seconds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.means import ZeroMean
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans

from cvgp.data.source import MemorySource
from cvgp.errors import InvalidInputError
from cvgp.fitting.kernel import choose_kernel, starting_kernel
from cvgp.fitting.monitor import Run
from cvgp.fitting.size import begin_model
from experiments.peers.workers import fit_in_worker
from experiments.runner import Task
from experiments.scores import LEVELS, predictive_scores
from experiments.splits import group_rows, race_split
from experiments.store import Key, Outcome, Record, Store, Value

Array = NDArray[np.float64]

DATASETS = (
    *("energy", "concrete", "airfoil", "wine", "skillcraft"),
    *("parkinsons", "elevators", "bike", "protein", "keggdirected"),
)
"""The development sets, from small to large."""
KERNEL = "matern32"
SIZE = 200
"""Inducing points of the sparse peers."""
BATCH_SIZE = 512
ROWS_OF_BUDGET = 50_000
"""Beyond these the seconds grow in proportion."""
SEED = 0
CLOCK = "processor"
"""So that other work on the machine takes nothing from a method that has a budget."""
RATES = (0.01, 0.03, 0.1)
"""Of peers that are trained by steps of Adam."""
PLAIN, BOTH = ("plain",), ("plain", "ours")
HIGHER_IS_BETTER = {"rmse": False, "log_likelihood": True, "crps": False}
"""The scores that decide who wins."""
CLOSE = 1.02
"""An RMSE of at most so many times the best counts as equal."""


@dataclass(frozen=True)
class Entry:
    """A method and how it is run."""

    name: str
    """On the command line."""
    title: str
    """In the tables."""
    worker: str
    method: str
    options: tuple[tuple[str, Value], ...] = ()
    ours: bool = False
    starts: tuple[str, ...] = ()
    """Where it begins, free of charge: plainly, or where our own search for a start ends. The better one counts."""
    tuned: bool = False
    """Whether the first split chooses its learning rate."""
    grouped: bool = False
    """Whether it is told the groups of the training rows; it then runs on grouped splits only."""


_MOST_ROWS = ("most_rows", 50_000)
_VIF = ("approximation", "full_scale_vecchia")
OURS = Entry("cvgp", "cvgp", "cvgp", "accuracy", ours=True)
ENTRIES = (
    OURS,
    Entry("cvgp-coreset", "cvgp, n_neighbors=0", "cvgp", "accuracy", (("n_neighbors", 0),), ours=True),
    Entry("cvgp-groups", "cvgp, groups=", "cvgp", "accuracy", ours=True, grouped=True),
    Entry("lightgbm", "LightGBM", "lightgbm", "density"),
    Entry("catboost", "CatBoost", "catboost", "uncertain"),
    Entry("sgpr", "SGPR", "gpflow", "sgpr", starts=PLAIN),
    Entry("gpboost-vecchia", "GPBoost Vecchia", "gpboost", "vecchia", (_MOST_ROWS,), starts=BOTH),
    Entry("gpboost-vif", "GPBoost VIF", "gpboost", "vecchia", (_VIF, _MOST_ROWS), starts=BOTH),
    Entry("ngboost", "NGBoost", "ngboost", "normal"),
    Entry("sklearn-exact", "exact GP on a sample", "sklearn", "within_budget"),
    Entry("svgp", "SVGP", "gpytorch", "svgp", starts=PLAIN, tuned=True),
    Entry("ppgpr", "PPGPR", "gpytorch", "ppgpr", starts=PLAIN, tuned=True),
)
"""Ours first, then roughly from fast to slow, so that a run that is cut short has most of them."""


def choose(names: Iterable[str]) -> tuple[Entry, ...]:
    """The entries of these names, in the order in which they run."""
    known, wanted = {entry.name: entry for entry in ENTRIES}, list(names)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise InvalidInputError(f"Unknown peers {', '.join(unknown)}. Choose from {', '.join(known)}.")
    return tuple(entry for entry in ENTRIES if entry.name in wanted)


@dataclass(frozen=True)
class Plan:
    """What to run."""

    datasets: tuple[str, ...]
    splits: int = 5
    kinds: tuple[str, ...] = ("random", "grouped")
    entries: tuple[Entry, ...] = ENTRIES
    budget: float = 30.0
    """Processor seconds for a fit on up to 50,000 rows. Ours has no limit: its seconds are measured."""
    threads: int = 1

    def entries_of(self, kind: str) -> tuple[Entry, ...]:
        """Those that run on splits of a kind."""
        return tuple(entry for entry in self.entries if kind == "grouped" or not entry.grouped)


def tasks(plan: Plan, store: Store) -> list[Task]:
    """All fits: split by split, kind by kind, set by set, method by method.

    A peer whose learning rate has to be chosen is run at every rate on the first split. On the others it has the rate
    with the highest log-likelihood of the rows that were scored there: hindsight, in the peer's favour.
    """
    return [
        Task(key, partial(_measure, plan, entry, key), ours=entry.ours)
        for split in range(plan.splits)
        for kind in plan.kinds
        for dataset in plan.datasets
        for entry in plan.entries_of(kind)
        if _is_ready(plan, store, dataset, kind, split, entry)
        for key in candidates(plan, store, dataset, kind, split, entry)
    ]


def candidates(plan: Plan, store: Store, dataset: str, kind: str, split: int, entry: Entry) -> list[Key]:
    """The tasks of an entry on a split; the best of several counts."""
    key: Key = {"benchmark": "accuracy", "dataset": dataset, "kind": kind, "split": split, "method": entry.name}
    key |= dict(entry.options) | ({} if entry.ours else {"budget": plan.budget}) | {"threads": plan.threads}
    keys = [key | {"start": start} for start in entry.starts] or [key]
    if not entry.tuned:
        return keys
    if split == 0:
        return [key | {"learning_rate": rate} for key in keys for rate in RATES]
    best = record_of(plan, store, dataset, kind, 0, entry)
    rate = RATES[len(RATES) // 2] if best is None else best.task["learning_rate"]
    return [key | {"learning_rate": rate} for key in keys]


def _is_ready(plan: Plan, store: Store, dataset: str, kind: str, split: int, entry: Entry) -> bool:
    """Whether the learning rate is known: every rate has been tried on the first split."""
    first = candidates(plan, store, dataset, kind, 0, entry)
    return split == 0 or not entry.tuned or all(store.get(key) is not None for key in first)


def record_of(plan: Plan, store: Store, dataset: str, kind: str, split: int, entry: Entry) -> Record | None:
    """The best finished result of an entry on a split, or None."""
    found = [store.finished(key) for key in candidates(plan, store, dataset, kind, split, entry)]
    records = [record for record in found if record is not None]
    return max(records, key=lambda record: record.number("log_likelihood"), default=None)


def seconds_allowed(budget: float, rows: int) -> float:
    """The budget, and more in proportion for more rows than it is meant for."""
    return budget * max(1.0, rows / ROWS_OF_BUDGET)


def plain_start(x: Array, size: int, seed: int) -> dict[str, Array]:
    """Where users of GPs commonly begin with standardized data: k-means centers and broad lengthscales."""
    D = x.shape[1]
    centers = MiniBatchKMeans(min(size, len(x) // 2), n_init=3, random_state=seed).fit(x).cluster_centers_
    return start_arrays(centers, np.full(D, D**0.5), 1.0, 0.1)


def start_arrays(
    inducing: Array, lengthscales: Array, outputscale: float = 1.0, noise: float = 0.1
) -> dict[str, Array]:
    """A start as the workers of sparse GPs take it."""
    values = {"outputscale": np.array(outputscale), "noise": np.array(noise)}
    return {"inducing": inducing, "lengthscales": lengthscales, **values}


def _our_start(x: Array, y: Array) -> dict[str, Array]:
    """What our own search for a start finds."""
    source, run = MemorySource(torch.as_tensor(x), torch.as_tensor(y)), Run.alone(seed=SEED)
    start = choose_kernel(starting_kernel(KERNEL, x.shape[1], ard=True), ZeroMean(), source, run).start
    model = begin_model(start, source, min(SIZE, len(x) // 2), run)
    lengthscales = model.kernel.base_kernel.lengthscale.detach().numpy().reshape(-1)
    return start_arrays(model.coreset.X, lengthscales, model.kernel.outputscale.item(), model.noise.item())


def _measure(plan: Plan, entry: Entry, key: Key) -> Outcome:
    split = race_split(str(key["dataset"]), str(key["kind"]), int(key["split"] or 0))
    settings: dict[str, Any] = {"clock": CLOCK, "method": entry.method}
    extra: dict[str, Array] = {}
    if entry.ours:
        settings |= {"parameters": dict(entry.options), "levels": LEVELS}
        extra = {"y_test": split.y_test}  # for the density, which its own method gives
        if entry.grouped:
            extra["groups"] = group_rows(str(key["dataset"]), split.x).astype(np.float64)
    else:
        budget = seconds_allowed(plan.budget, len(split.x))
        settings |= {"kernel": KERNEL, "batch_size": BATCH_SIZE, "budget": budget, **dict(entry.options)}
        if entry.tuned:
            settings["learning_rate"] = key["learning_rate"]
        if key.get("start") == "plain":
            extra = plain_start(split.x, SIZE, SEED)
        elif key.get("start") == "ours":
            extra = _our_start(split.x, split.y)
    found = fit_in_worker(entry.worker, settings, split, threads=plan.threads, extra=extra, score=predictive_scores)
    per_row = (found.metrics["predict_seconds"] or 0.0) / len(split.x_test)
    sizes = {"rows_trained": float(len(split.x)), "rows_scored": float(len(split.x_test)), "seconds_per_row": per_row}
    return replace(found, metrics=found.metrics | sizes, trace=[])


# What is stored


class Results(NamedTuple):
    """The finished splits of an entry on a data set, by their number."""

    entry: Entry
    records: dict[int, Record]

    def values(self, metric: str, splits: Iterable[int] | None = None) -> list[float]:
        """A metric on the given splits, or on all; those that do not have it are left out."""
        found = [r.number(metric) for n, r in self.records.items() if splits is None or n in splits]
        return [value for value in found if value == value]

    def median(self, metric: str, splits: Iterable[int] | None = None) -> float | None:
        """None where no split has the metric."""
        found = self.values(metric, splits)
        return median(found) if found else None


def results_of(plan: Plan, store: Store, kind: str, dataset: str) -> list[Results]:
    """All finished splits of each entry."""
    found = []
    for entry in plan.entries_of(kind):
        records = {n: record_of(plan, store, dataset, kind, n, entry) for n in range(plan.splits)}
        found.append(Results(entry, {n: record for n, record in records.items() if record is not None}))
    return found


def shared_splits(results: Sequence[Results]) -> set[int]:
    """The splits that every method with a result has finished: only these compare the methods on the same rows."""
    finished = [set(r.records) for r in results if r.records]
    return set.intersection(*finished) if finished else set()


class Count(NamedTuple):
    """On how many sets ours is ahead of every peer (or close), and who is ahead on the others."""

    good: int
    compared: int
    behind: list[str]


def count_ahead(plan: Plan, store: Store, kind: str, metric: str, *, close: float = 1.0) -> Count:
    """Compare the medians over shared splits, set by set; a value up to `close` times the best counts as level."""
    behind, compared = [], 0
    for dataset in plan.datasets:
        results = results_of(plan, store, kind, dataset)
        splits = shared_splits(results)
        medians = {r.entry.title: r.median(metric, splits) for r in results if not r.entry.ours}
        theirs = {title: value for title, value in medians.items() if value is not None}
        own = next((r.median(metric, splits) for r in results if r.entry == OURS), None)
        if own is None or not theirs:
            continue
        compared += 1
        best = (max if HIGHER_IS_BETTER[metric] else min)(theirs, key=lambda title: theirs[title])
        level = own > theirs[best] if HIGHER_IS_BETTER[metric] else own <= close * theirs[best]
        if close == 1.0 and own == theirs[best]:
            level = False
        if not level:
            behind.append(f"{dataset} ({best})")
    return Count(compared - len(behind), compared, behind)
