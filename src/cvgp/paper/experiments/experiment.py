"""What an experiment is: tasks with keys, a function that runs one, and what is drawn from the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from cvgp.paper.baselines import Baseline, Recipe, method_class
from cvgp.paper.markdown import origin
from cvgp.paper.protocol import Preset
from cvgp.paper.splits import NUM_FOLDS
from cvgp.paper.store import Key, Outcome, Record, Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OWN_SETTINGS = ("steps", "epochs", "schedule", "dtype")


@dataclass(frozen=True)
class Defaults:
    """What an experiment covers unless told otherwise."""

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
        """The records whose tasks have these values, in the order of their keys' folds."""
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


@dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments."""

    name: str
    about: str
    defaults: Callable[[Preset], Defaults]
    keys: Callable[[Plan, Store], list[Key]]
    """All tasks that can be told from what is in the store; asked again when these are done."""
    run: Callable[[Key], Outcome]
    table: Callable[[Results], str]
    figures: Callable[[Results], Mapping[str, Figure]]


def _recipe_key(preset: Preset) -> Key:
    settings = {f"recipe_{name}": value for name, value in asdict(preset.recipe).items() if name != "learning_rate"}
    return {"preset": preset.name, "rows": preset.rows, **settings}


def base_key(plan: Plan) -> Key:
    """What the tasks of a plan share: the experiment and the preset in full, so that a changed preset is another."""
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


def recipe_of(key: Key) -> Recipe:
    """The recipe that a key was made from."""
    settings: dict[str, Any] = {
        name.removeprefix("recipe_"): value for name, value in key.items() if name.startswith("recipe_")
    }
    # What an experiment changes in the preset's recipe stands in its keys without the prefix.
    settings |= {name: key[name] for name in OWN_SETTINGS if name in key}
    rate = key.get("learning_rate")
    return Recipe(**settings) if rate is None else Recipe(learning_rate=float(rate), **settings)


def rows_of(key: Key) -> int | None:
    """How many rows of its data set a task uses; None for all."""
    return None if key["rows"] is None else int(key["rows"])


def build(key: Key, **changes: Any) -> Baseline:
    """The system that a key names, ready to be fitted; the fold is its seed."""
    cls = method_class(str(key["method"]))
    size = key.get("size")
    settings: dict[str, Any] = {"recipe": recipe_of(key), "seed": int(key.get("fold") or 0), **changes}
    return cls(int(size or 1), **settings)
