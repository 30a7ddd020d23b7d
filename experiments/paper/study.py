"""What a study of the paper is: presets, tasks with keys, a function that runs one, and its table and figures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, NamedTuple

from cvgp.errors import InvalidInputError
from experiments.markdown import markdown_table, mean_and_error, origin
from experiments.paper.methods import EXACT_ROWS, METHODS, Baseline, Recipe, method_class
from experiments.splits import NUM_FOLDS, Split, fold, train_rows
from experiments.store import Key, Outcome, Record, Store

Columns = Mapping[str, tuple[str, str]]
"""By the title of a column: the metric and its format."""

STUDIES = {
    "predictive": "predictive",
    "evolution": "evolution",
    "gaps": "gaps",
    "robustness": "predictive",
    "interpolation": "interpolation",
    "posterior1d": "posterior1d",
    "density2d": "pseudo_points",
    "weights": "pseudo_points",
    "complexity": "complexity",
    "stability": "stability",
    "features": "features",
    "optimum": "optimum",
}
"""By name, the module that holds the study."""
OWN_SETTINGS = ("steps", "epochs", "schedule", "dtype")
"""What a study may change in the preset's recipe; it stands in its keys without the prefix."""
QUICK_STEPS = 1000
"""Half of the fair budget, for sets of 1000 rows with one or two inputs: chosen for time, not by measurement."""


@dataclass(frozen=True)
class Preset:
    """How long to train, and on how many rows.

    Parameters
    ----------
    recipe
        The same for every system, except for the learning rate.
    learning_rates
        Each system takes the one with the best validation log-likelihood on the first fold, for each data set and
        size. One rate means no choice.
    rows
        Most rows of a data set that are used, a random choice; None for all.
    time_limit
        Seconds for one task.
    """

    name: str
    recipe: Recipe
    learning_rates: tuple[float, ...]
    rows: int | None
    time_limit: float


_AS_IN_THE_PAPER = Recipe(
    steps=None,
    epochs=100_000,
    learning_rate=1e-3,
    schedule="constant",
    patience=3000,
    full_batch="adam",
    beta_transform="softplus",
)
_SHORT = Recipe(steps=12, batch_size=64, evaluations=6)
PRESETS = {
    preset.name: preset
    for preset in (
        Preset("paper", _AS_IN_THE_PAPER, learning_rates=(1e-3,), rows=None, time_limit=7 * 86400.0),
        Preset("fair", Recipe(steps=2000), learning_rates=(0.01, 0.03, 0.1), rows=None, time_limit=1800.0),
        Preset("smoke", _SHORT, learning_rates=(0.03,), rows=120, time_limit=60.0),
    )
}


class Scope(NamedTuple):
    """What a study covers unless told otherwise."""

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    sizes: tuple[int, ...]
    folds: int = NUM_FOLDS


@dataclass(frozen=True)
class Plan:
    """What to run."""

    experiment: str
    preset: Preset
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    sizes: tuple[int, ...]
    folds: int


class Results:
    """The finished tasks of one preset, with their arrays; those of other settings are left out."""

    def __init__(self, store: Store, preset: Preset) -> None:
        self.store = store
        self.preset = preset
        current = _recipe_key(preset)
        mine = [r for r in store if current.items() <= r.task.items()]
        self.records = [r for r in mine if not r.failed]
        self.failures = [r for r in mine if r.failed]

    def where(self, **values: Any) -> list[Record]:
        """The records whose tasks have these values, by data set and fold."""
        found = [r for r in self.records if values.items() <= r.task.items()]
        return sorted(found, key=lambda r: (str(r.task.get("dataset")), int(r.task.get("fold") or 0)))

    def values(self, name: str, records: Iterable[Record] | None = None) -> list[Any]:
        """The values that a part of the key takes, in the order in which they were first run."""
        chosen = self.records if records is None else records
        return list(dict.fromkeys(r.task[name] for r in chosen if name in r.task))

    def arrays(self, record: Record) -> dict[str, Any]:
        """The arrays of a task."""
        return self.store.arrays(record)

    def origin(self, used: Sequence[Record] | None = None) -> str:
        """A line that says where the results come from: all of them, or those that are given."""
        records = self.records if used is None else used
        failures = f", {len(self.failures)} failed" if self.failures else ""
        return origin(records, f"Preset `{self.preset.name}`: {len(records)} tasks{failures}")

    def by_method(self, columns: Columns) -> str:
        """A table with a row for each data set and system: means and standard errors over folds."""
        rows = []
        for dataset in self.values("dataset"):
            for method in METHODS:
                found = self.where(dataset=dataset, method=method)
                if found:
                    rows.append([dataset, method, *cells(found, columns)])
        return markdown_table(["set", "system", *columns], rows, num_text=2)


def cells(records: Sequence[Record], columns: Columns) -> list[str]:
    """Mean and standard error of each column's metric."""
    return [mean_and_error([r.number(name) for r in records], form) for name, form in columns.values()]


@dataclass(frozen=True)
class Study:
    """One of the paper's experiments."""

    name: str
    about: str
    full: Scope
    smoke: Scope
    keys: Callable[[Plan, Store], list[Key]]
    """All tasks that can be told from what is in the store; asked again when these are done."""
    run: Callable[[Key], Outcome]
    table: Callable[[Results], str]
    figures: Callable[[Results], Mapping[str, Any]]

    def scope(self, preset: Preset) -> Scope:
        """What a preset covers."""
        return self.smoke if preset.name == "smoke" else self.full


def find_study(name: str) -> Study:
    """A study by its name; its module is imported only now."""
    if name not in STUDIES:
        raise InvalidInputError(f"Unknown experiment {name!r}. Choose from {', '.join(STUDIES)}.")
    module = import_module(f"experiments.paper.studies.{STUDIES[name]}")
    found: Study = next(study for study in module.STUDIES if study.name == name)
    return found


def find_preset(name: str) -> Preset:
    """A preset by its name."""
    if name not in PRESETS:
        raise InvalidInputError(f"Unknown preset {name!r}. Choose from {', '.join(PRESETS)}.")
    return PRESETS[name]


def run_key(key: Key) -> Outcome:
    """Run the task that a key describes."""
    return find_study(str(key["experiment"])).run(key)


# Keys


def _recipe_key(preset: Preset) -> Key:
    settings = {f"recipe_{name}": value for name, value in asdict(preset.recipe).items() if name != "learning_rate"}
    return {"preset": preset.name, "rows": preset.rows, **settings}


def base_key(plan: Plan) -> Key:
    """What the tasks of a plan share: the study and the preset in full, so that a changed preset is another."""
    return {"experiment": plan.experiment, **_recipe_key(plan.preset)}


def product_keys(plan: Plan, *, learning_rate: float | None = None) -> list[Key]:
    """A task for each data set, size, method and fold; a fold is finished before the next begins."""
    rate = plan.preset.recipe.learning_rate if learning_rate is None else learning_rate
    return [
        {
            **base_key(plan),
            "dataset": dataset,
            "method": method,
            "size": size if method != "ExactGP" else None,
            "fold": fold,
            "learning_rate": rate if method_class(method).stochastic else None,
        }
        for fold in range(plan.folds)
        for dataset in plan.datasets
        for size in plan.sizes
        for method in plan.methods
        if method != "ExactGP" or size == plan.sizes[0]
    ]


def quick_keys(plan: Plan, store: Store) -> list[Key]:
    """Every data set, method and fold, with fewer steps where the preset counts in steps."""
    steps = plan.preset.recipe.steps
    own: Key = {} if steps is None else {"steps": min(steps, QUICK_STEPS)}
    return [key | own for key in product_keys(plan)]


def tuned_keys(plan: Plan, store: Store) -> list[Key]:
    """Fold 0 with every rate; the other folds, once fold 0 is done, with the best one for the data set and size."""
    everything = [
        key
        for rate in plan.preset.learning_rates
        for key in product_keys(plan, learning_rate=rate)
        if key["method"] != "ExactGP" or exact_is_possible(str(key["dataset"]), plan.preset.rows)
    ]
    everything = list({str(key): key for key in everything}.values())  # systems without a rate come once
    tuning = [key for key in everything if key["fold"] == 0]
    keys = list(tuning)
    for key in everything:
        if key["fold"] == 0:
            continue
        rivals = [k for k in tuning if all(k[name] == key[name] for name in ("dataset", "method", "size"))]
        records = [store.get(k) for k in rivals]
        known = [r for r in records if r is not None]
        if len(rivals) == 1 or (len(known) == len(rivals) and key["learning_rate"] == _best_rate(known)):
            keys.append(key)
    return sorted(keys, key=lambda k: int(k["fold"] or 0))


def _best_rate(records: Sequence[Record]) -> object:
    """The rate with the best validation log-likelihood; None where every rate failed."""
    finished = [r for r in records if not r.failed]
    best = max(finished, key=lambda r: r.number("validation_log_likelihood"), default=None)
    return None if best is None else best.task["learning_rate"]


def chosen_records(results: Results, dataset: object, method: object, size: object) -> list[Record]:
    """All folds with the chosen rate; systems that are not stochastic have none."""
    first = results.where(dataset=dataset, method=method, size=size, fold=0)
    rate = _best_rate(first) if method_class(str(method)).stochastic else None
    return results.where(dataset=dataset, method=method, size=size, learning_rate=rate)


def recipe_of(key: Key) -> Recipe:
    """The recipe that a key was made from."""
    settings: dict[str, Any] = {
        name.removeprefix("recipe_"): value for name, value in key.items() if name.startswith("recipe_")
    }
    settings |= {name: key[name] for name in OWN_SETTINGS if name in key}
    rate = key.get("learning_rate")
    return Recipe(**settings) if rate is None else Recipe(learning_rate=float(rate), **settings)


def rows_of(key: Key) -> int | None:
    """How many rows of its data set a task uses; None for all."""
    return None if key["rows"] is None else int(key["rows"])


def split_of(key: Key) -> Split:
    """The fold that a task uses."""
    return fold(str(key["dataset"]), int(key["fold"] or 0), rows_of(key))


def build(key: Key, **changes: Any) -> Baseline:
    """The system that a key names, ready to be fitted; the fold is its seed."""
    cls = method_class(str(key["method"]))
    settings: dict[str, Any] = {"recipe": recipe_of(key), "seed": int(key.get("fold") or 0), **changes}
    return cls(int(key.get("size") or 1), **settings)


def exact_is_possible(dataset: str, rows: int | None = None) -> bool:
    """Whether an exact GP can be computed on a fold."""
    return train_rows(dataset, rows) <= EXACT_ROWS
