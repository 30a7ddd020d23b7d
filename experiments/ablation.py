"""The default fit with one choice switched off or fixed at a time: what each choice is worth.

The rows are inner splits of the race's training rows (never its test rows), the generated hard problems, and tables
with levels and dates. A variant is a line of `VARIANTS`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvgp import CVGPRegressor, Heuristics
from cvgp.errors import InvalidInputError
from cvgp.fitting.decisions import Choice
from experiments import hard, race, tables
from experiments.markdown import markdown_table, origin
from experiments.runner import Task
from experiments.splits import race_split
from experiments.store import Key, Outcome, Record, Store

Array = NDArray[np.float64]
Taken = Mapping[str, str]
"""What the default has decided, by choice."""
Acts = Callable[[Taken], bool]

DEFAULT = "default"
MOST_TRAINED, MOST_SCORED = 12_000, 4000
"""Rows of an inner split."""
HELD_SHARE = 4
"""One row in four of the race's training rows is scored."""
TABLE_ROWS, TABLE_SCORED = 6000, 2000
TIME_LIMIT = 600.0
"""Seconds of one fit."""
WORST_SHARE = 100
"""The rows with the lowest densities, one in a hundred, have a mean of their own."""


@dataclass(frozen=True)
class Variant:
    """The default with one change."""

    about: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Of the estimator, as `set_params` takes them: those of its training options begin with ``training__``."""
    fit: Mapping[str, Any] = field(default_factory=dict)
    """Keywords of `fit`, such as a part of the decisions."""
    acts: Acts = lambda taken: True
    """Whether it can change a fit with these decisions; where it cannot, it is the default, and is not run."""


def _constants(about: str, acts: Acts = lambda taken: True, **values: Any) -> Variant:
    """The default with other constants."""
    return Variant(about, {"training__heuristics": Heuristics(**values)}, acts=acts)


def _noise(about: str, tails: str, *, discounts_variance: bool) -> Variant:
    """The default with a noise map whose shape is not chosen, and no re-weighting."""
    recipe = {"tails": tails, "discounts_variance": discounts_variance, "rounds": 0}
    return Variant(about, fit={"decisions": {"noise": Choice("fixed", recipe)}})


def _is(choice: str, value: str) -> Acts:
    return lambda taken: taken[choice] == value


def _is_not(choice: str, value: str) -> Acts:
    return lambda taken: taken[choice] != value


def _is_reweighted(taken: Taken) -> bool:
    return "re-weighted" in taken["noise"]


def _is_exact(taken: Taken) -> bool:
    return taken["n_coreset"].startswith("all rows")


def _is_trained(taken: Taken) -> bool:
    return taken["n_neighbors"] == "none" and not _is_exact(taken)


VARIANTS: dict[str, Variant] = {
    DEFAULT: Variant("nothing changed"),
    "no outliers": Variant(
        "no search for outliers", fit={"decisions": {"outliers": Choice("none")}}, acts=_is_not("outliers", "none")
    ),
    "identity target": Variant(
        "y is not transformed", {"target_transform": "identity"}, acts=_is_not("target_transform", "identity")
    ),
    "identity inputs": Variant(
        "inputs are not warped", {"input_warp": "identity"}, acts=_is_not("input_warp", "identity")
    ),
    "matern32": Variant(
        "the default kernel by name, no rough part", {"kernel": "matern32"}, acts=_is_not("kernel", "matern32")
    ),
    "kernel auto": Variant("more kernels are tried", {"kernel": "auto"}),
    "no priors": _constants("no priors on lengthscales", few_rows_per_column=0.0, very_few_rows_per_column=0.0),
    "own lengthscales": _constants(
        "never one lengthscale for all columns",
        lambda taken: "one lengthscale" in taken["kernel"],
        fewest_rows_to_share=10**9,
    ),
    "no floor": _constants("no floor on lengthscales", least_lengthscale=0.0),
    "one start": _constants("one lengthscale to start from", start_factors=(1.0,)),
    "no noise ladder": _constants(
        "the first coreset keeps the noise of the exact GP", lambda taken: not _is_exact(taken), noise_ladder=()
    ),
    "no exact GP": _constants("never a point per row", _is_exact, exact_seconds=0.0),
    "400 points": Variant("the size is not chosen", {"n_coreset": 400}, acts=lambda taken: not _is_exact(taken)),
    "no neighbors": Variant("the coreset alone", {"n_neighbors": 0}, acts=_is_not("n_neighbors", "none")),
    "20 neighbors": Variant("neighbors always", {"n_neighbors": 20}, acts=_is("n_neighbors", "none")),
    "no scale limit": _constants(
        "no limit on the outputscale", _is_not("n_neighbors", "none"), largest_outputscale=1e9
    ),
    "not brief": _constants(
        "long training where neighbors did not help", _is_trained, brief_rows=3000, brief_seconds=8.0
    ),
    "elbo": Variant("the paper's bound", {"training__bound": "elbo"}, acts=_is_trained),
    "random start": Variant("pseudo-inputs start at random", {"training__init": "random"}, acts=_is_trained),
    "constant noise": Variant("one noise level, no outliers", {"noise": "constant"}),
    "noise(x)": Variant(
        "never a constant noise, no outliers", {"noise": "input-dependent"}, acts=_is("noise", "constant")
    ),
    "normal tails": _noise("noise(x), normal tails", "normal", discounts_variance=False),
    "learned tails": _noise("noise(x), learned tails", "learned", discounts_variance=False),
    "full noise": _noise("noise(x), learned tails, variance discounted", "learned", discounts_variance=True),
    "no re-weighting": _constants("rows are not weighted by their noise", _is_reweighted, reweighting_rounds=0),
    "two rounds": _constants("rows are weighted by their noise twice", _is_reweighted, reweighting_rounds=2),
}
"""By name. Parts of `Decisions` belong into `fit`, and fields of `Heuristics` into `parameters`.

The store also holds ablations of earlier defaults, with whose scores those of today cannot be compared. The parameters
in their keys are the commit: ``72b5f48`` for the previous design, whose variants were patches of code that is gone, and
``b42db6a`` for the defaults without a transform of y and without similar lengthscales.
"""


class Rows(NamedTuple):
    """Rows to learn from and rows to score, as arrays or frames."""

    x: Any
    y: Array
    x_test: Any
    y_test: Array


@dataclass(frozen=True)
class Plan:
    """What to run; problems are named ``uci:NAME``, ``hard:NAME`` and ``table:NAME``."""

    problems: tuple[str, ...]
    variants: tuple[str, ...] = tuple(VARIANTS)
    seeds: int = 3
    threads: int = 1


PROBLEMS = (
    *(f"uci:{name}" for name in race.DATASETS),
    *(f"hard:{name}" for name in hard.PROBLEMS),
    *(f"table:{name}" for name in tables.PROBLEMS),
)


def check(plan: Plan) -> Plan:
    """Return the plan, or raise if it names something unknown."""
    for what, names, known in (("problems", plan.problems, PROBLEMS), ("variants", plan.variants, VARIANTS)):
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InvalidInputError(f"Unknown {what} {', '.join(unknown)}. Choose from {', '.join(known)}.")
    return plan


def tasks(plan: Plan, store: Store) -> list[Task]:
    """The default of every problem and seed, and then the variants that can change it, seed by seed."""
    places = [(problem, seed) for seed in range(plan.seeds) for problem in plan.problems]
    wanted = [(DEFAULT, *place) for place in places]
    for problem, seed in places:
        base = store.finished(_key(plan, problem, DEFAULT, seed))
        if base is not None:
            variants = (name for name in plan.variants if name != DEFAULT and VARIANTS[name].acts(_taken(base)))
            wanted += [(name, problem, seed) for name in variants]
    return [
        Task(_key(plan, problem, name, seed), partial(_measure, problem, name, seed)) for name, problem, seed in wanted
    ]


def _taken(record: Record) -> Taken:
    """What a fit has decided."""
    prefix = "decided "
    return {name.removeprefix(prefix): v for name, v in record.provenance.items() if name.startswith(prefix)}


def _key(plan: Plan, problem: str, variant: str, seed: int) -> Key:
    return {
        "benchmark": "ablation",
        "problem": problem,
        "variant": variant,
        "parameters": _shown(VARIANTS[variant]),
        "seed": seed,
        "threads": plan.threads,
    }


def _shown(variant: Variant) -> str:
    """What a variant changes, of constants only those that differ."""
    values = variant.parameters | variant.fit
    constants = values.get("training__heuristics")
    if constants is not None:
        usual = asdict(Heuristics())
        changed = {name: value for name, value in asdict(constants).items() if value != usual[name]}
        values = values | {"training__heuristics": changed}
    return repr(sorted(values.items()))


@lru_cache(maxsize=2)
def rows_of(problem: str, seed: int) -> Rows:
    """The rows of a problem."""
    kind, _, name = problem.partition(":")
    if kind == "uci":
        split = race_split(name, "random", seed)
        order = np.random.default_rng([seed, 25]).permutation(len(split.x))
        held = len(order) // HELD_SHARE
        scored, used = order[:held][:MOST_SCORED], order[held:][:MOST_TRAINED]
        return Rows(split.x[used], split.y[used], split.x[scored], split.y[scored])
    if kind == "hard":
        made = hard.make(name, seed)
        return Rows(made.x, made.y, made.x_test, made.y_test)
    table = tables.make(name, TABLE_ROWS, TABLE_SCORED, seed)
    return Rows(table.train, table.y, table.test, table.y_test)


def _measure(problem: str, name: str, seed: int) -> Outcome:
    rows, variant = rows_of(problem, seed), VARIANTS[name]
    begin = time.process_time()
    model = CVGPRegressor(random_state=seed).set_params(**variant.parameters)
    model.fit(rows.x, rows.y, **variant.fit)
    seconds = time.process_time() - begin
    mean_, density = model.predict(rows.x_test), model.log_predictive_density(rows.x_test, rows.y_test)
    low, high = np.asarray(model.predict_interval(rows.x_test, level=0.9)).T
    worst = np.sort(density)[: max(len(density) // WORST_SHARE, 1)]
    return Outcome(
        {
            "log_likelihood": float(density.mean()),
            "worst_percent": float(worst.mean()),
            "rmse": float(np.sqrt(np.mean((mean_ - rows.y_test) ** 2))),
            "coverage": float(np.mean((low <= rows.y_test) & (rows.y_test <= high))),
            "seconds": seconds,
        },
        origin={f"decided {choice}": made.taken for choice, made in model.decisions_},
    )


# Tables


class Change(NamedTuple):
    """What a variant changes on a problem: means over seeds, with no change where it cannot act."""

    problem: str
    acting: int
    """The seeds in which it could change anything."""
    nats: float
    rmse: float
    """Relative."""
    coverage: float
    """Of the variant."""
    seconds: float
    """As a multiple of the default's."""


def changes(plan: Plan, store: Store, variant: str) -> tuple[list[Change], int]:
    """The changes on each problem, and the number of fits that failed."""
    found, failures = [], 0
    for problem in plan.problems:
        pairs = []
        for seed in range(plan.seeds):
            base = store.finished(_key(plan, problem, DEFAULT, seed))
            if base is None:
                continue
            acts = VARIANTS[variant].acts(_taken(base))
            other = store.get(_key(plan, problem, variant, seed)) if acts else base
            failures += other is not None and other.failed
            if other is not None and not other.failed:
                pairs.append((base, other))
        if pairs:
            found.append(_change(problem, pairs))
    return found, failures


def _change(problem: str, pairs: Sequence[tuple[Record, Record]]) -> Change:
    return Change(
        problem,
        sum(base is not other for base, other in pairs),
        mean(o.number("log_likelihood") - b.number("log_likelihood") for b, o in pairs),
        mean(o.number("rmse") / b.number("rmse") - 1.0 for b, o in pairs),
        mean(o.number("coverage") for _, o in pairs),
        sum(o.number("seconds") for _, o in pairs) / sum(b.number("seconds") for b, _ in pairs),
    )


def report(plan: Plan, store: Store) -> str:
    """A row per variant: mean and worst change against the default, over problems."""
    header = ("variant", "what changes", "log-likelihood, nats", "worst", "best", "RMSE, %", "worst")
    header += ("90 % coverage, lowest", "seconds, times", "problems (acting)", "failures")
    rows = []
    for name in plan.variants:
        found, failures = changes(plan, store, name)
        if name == DEFAULT or not (found or failures):
            continue
        count = f"{len(found)} ({sum(change.acting > 0 for change in found)})"
        rows.append([name, VARIANTS[name].about, *_cells(found), count, str(failures)])
    records = [record for task in tasks(plan, store) if (record := store.finished(task.key)) is not None]
    words = (
        "Changes against the default, means over seeds and then over problems; below 0 nats the default is better. "
        "Where a variant cannot change the fit, it was not run and counts as no change; in brackets are the problems "
        "on which it acts."
    )
    return f"{markdown_table(header, rows, num_text=2)}\n\n{words} {origin(records)}"


def summary(plan: Plan, store: Store) -> str:
    """The mean and the worst change of each variant, for readers in a hurry; the worst mean comes first."""
    lines = []
    for name in plan.variants:
        found, _ = changes(plan, store, name)
        if name != DEFAULT and found:
            worst = min(found, key=lambda change: change.nats)
            fits = sum(change.acting for change in found)
            cells = [VARIANTS[name].about, f"{mean(change.nats for change in found):+.3f}"]
            lines.append((float(cells[1]), [*cells, f"{worst.nats:+.3f} {worst.problem.partition(':')[2]}", str(fits)]))
    header = ("the default, but", "nats per row, mean", "worst problem", "fits that change")
    return markdown_table(header, [cells for _, cells in sorted(lines)], num_text=1)


def _cells(found: Sequence[Change]) -> list[str]:
    if not found:
        return ["-"] * 7
    lowest, highest = (choose(found, key=lambda change: change.nats) for choose in (min, max))
    worst, least = max(found, key=lambda change: change.rmse), min(found, key=lambda change: change.coverage)
    return [
        f"{mean(change.nats for change in found):+.4f}",
        f"{lowest.nats:+.3f} ({lowest.problem})",
        f"{highest.nats:+.3f} ({highest.problem})",
        f"{100 * mean(change.rmse for change in found):+.2f}",
        f"{100 * worst.rmse:+.1f} ({worst.problem})",
        f"{least.coverage:.2f} ({least.problem})",
        f"{mean(change.seconds for change in found):.2f}",
    ]
