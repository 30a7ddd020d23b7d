"""What a study of the paper is: presets, tasks with keys, a function that runs one, and its table and figures."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, NamedTuple

from cvgp.errors import InvalidInputError
from experiments.figures import PRINT
from experiments.markdown import markdown_table, mean_and_error, origin
from experiments.paper.methods import EXACT_ROWS, METHODS, Baseline, Recipe, method_class
from experiments.scores import score
from experiments.splits import NUM_FOLDS, Split, fold, train_rows
from experiments.store import Key, Metrics, Outcome, Record, Store

Columns = Mapping[str, tuple[str, str]]
"""By the title of a column: the metric and its format."""

STUDIES = {
    "predictive": "predictive",
    "evolution": "evolution",
    "gaps": "gaps",
    "robustness": "predictive",
    "interpolation": "interpolation",
    "posterior1d": "synthetic",
    "density2d": "synthetic",
    "weights": "synthetic",
    "complexity": "complexity",
    "features": "features",
    "optimum": "optimum",
    "compression": "compression",
}
"""By name, the module that holds the study."""
VALIDATION = "validation_log_likelihood"
"""The score that chooses a learning rate."""


@dataclass(frozen=True)
class Preset:
    """How every study trains, and on how many rows; no study changes it.

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
)
# In float64, since a coreset's M x M algebra always is: no system should lose by rounding.
_SAME_STEPS = Recipe(steps=2000, dtype="float64")
_SHORT = Recipe(steps=12, batch_size=64, evaluations=6)
PRESETS = {
    preset.name: preset
    for preset in (
        Preset("paper", _AS_IN_THE_PAPER, learning_rates=(1e-3,), rows=None, time_limit=7 * 86400.0),
        Preset("fair", _SAME_STEPS, learning_rates=(0.01, 0.03, 0.1), rows=None, time_limit=7200.0),
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

    def by_method(self, columns: Columns, datasets: Sequence[str] = (), methods: Sequence[str] = ()) -> str:
        """A table with a row for each data set and system: means and standard errors over folds."""
        rows = []
        for dataset in [name for name in self.values("dataset") if not datasets or name in datasets]:
            for method in methods or METHODS:
                found = chosen_records(self, dataset=dataset, method=method)
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
    caption: str
    """What to see in the figure that has the study's name."""
    store: str = ""
    """Whose results it reads and adds to, if not its own: figures that draw the same fits share them."""

    @property
    def store_name(self) -> str:
        """The file of its results."""
        return self.store or self.name

    def draw(self, results: Results) -> Mapping[str, Any]:
        """Its figures by name, with fonts for print."""
        from matplotlib import rc_context

        with rc_context(PRINT):
            return self.figures(results)

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


def run_key(study: str, key: Key) -> Outcome:
    """Run the task of a study that a key describes."""
    return find_study(study).run(key)


# Keys


def _recipe_key(preset: Preset) -> Key:
    settings = {f"recipe_{name}": value for name, value in asdict(preset.recipe).items() if name != "learning_rate"}
    return {"preset": preset.name, "rows": preset.rows, **settings}


def base_key(plan: Plan) -> Key:
    """What the tasks of a plan share: the study and the preset in full, so that a changed preset is another."""
    return {"experiment": plan.experiment, **_recipe_key(plan.preset)}


def product_keys(plan: Plan) -> list[Key]:
    """A task for each data set, size, method and fold, still without a learning rate."""
    return [
        {
            **base_key(plan),
            "dataset": dataset,
            "method": method,
            "size": size if method != "ExactGP" else None,
            "fold": fold,
            "learning_rate": None,
        }
        for fold in range(plan.folds)
        for dataset in plan.datasets
        for size in plan.sizes
        for method in plan.methods
        if method != "ExactGP" or size == plan.sizes[0]
    ]


def tuned_keys(plan: Plan, store: Store) -> list[Key]:
    """Every data set, size, method and fold, each with the learning rate that suits it."""
    return with_rates(plan, store, product_keys(plan))


def with_rates(plan: Plan, store: Store, keys: Sequence[Key], by: str = VALIDATION) -> list[Key]:
    """Fold 0 with every rate of the preset; once it is done, the other folds with the rate that scored best there."""
    found = []
    for key in sorted(keys, key=lambda k: int(k["fold"] or 0)):
        if key["method"] == "ExactGP" and not exact_is_possible(str(key["dataset"]), plan.preset.rows):
            continue
        if not method_class(str(key["method"])).stochastic:
            found.append(key)
            continue
        tuning = [key | {"fold": 0, "learning_rate": rate} for rate in plan.preset.learning_rates]
        if key["fold"] == 0:
            found += tuning
            continue
        records = [store.get(k) for k in tuning]
        known = [r for r in records if r is not None]
        rate = best_rate(known, by) if len(known) == len(tuning) else None
        if rate is not None:
            found.append(key | {"learning_rate": rate})
    return found


def best_rate(records: Sequence[Record], by: str = VALIDATION) -> float | None:
    """The rate with the highest score; None where every rate failed."""
    finished = [r for r in records if not r.failed]
    best = max(finished, key=lambda r: r.number(by), default=None)
    return None if best is None else float(best.task["learning_rate"] or 0.0)


def chosen_records(results: Results, by: str = VALIDATION, **where: Any) -> list[Record]:
    """All folds of one system, with the rate that was best on the first one."""
    first = results.where(**where, fold=0)
    if first and first[0].task.get("learning_rate") is not None:
        where["learning_rate"] = best_rate(first, by)
    return results.where(**where)


def recipe_of(key: Key) -> Recipe:
    """The recipe that a key was made from."""
    settings: dict[str, Any] = {
        name.removeprefix("recipe_"): value for name, value in key.items() if name.startswith("recipe_")
    }
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


def fold_scores(model: Baseline, split: Split, *, joint: bool = False) -> Metrics:
    """Scores of the test rows, and of the validation rows, which choose the learning rate."""
    validation = score(model, *split.validation)
    return {
        **score(model, split.x_test, split.y_test, joint=joint),
        **{f"validation_{name}": value for name, value in validation.items()},
    }


def exact_is_possible(dataset: str, rows: int | None = None) -> bool:
    """Whether an exact GP can be computed on a fold."""
    return train_rows(dataset, rows) <= EXACT_ROWS
