"""``python -m experiments paper report``: the pages about the paper, written from the store alone."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from experiments.figures import save
from experiments.markdown import markdown_table, number, origin
from experiments.paper import paper_map
from experiments.paper.claims import Finding, verdicts
from experiments.paper.methods import Recipe, method_class
from experiments.paper.study import PRESETS, STUDIES, VALIDATION, Plan, Preset, Results, Study, find_study, recipe_of
from experiments.splits import train_rows
from experiments.store import Key, Record, Store

SHOWN = ("paper", "fair")
"""The presets that the pages compare."""
PAGE, APPENDIX, MAP, IMAGES = "paper.md", "paper_tables.md", "paper_map.md", "images/paper"
CHANGED = ("steps", "epochs", "batch_size", "schedule", "dtype", "patience", "full_batch", "evaluations")

_INTRODUCTION = """# The paper's experiments

This page is written by `python -m experiments paper report` from the results in `experiments/results/paper`. It
says which claims of the paper (Ketenci, Perotte, Elhadad and Urteaga, 2025) hold here, under two protocols: `paper`,
which is the authors' own, and `fair`, in which every method has a tuned learning rate and the same number of steps. To
reproduce one table and one figure:

```
python -m experiments paper predictive --preset fair --datasets wine
python -m experiments paper posterior1d --preset fair --figures figures
```

`make paper` runs every experiment in small. The long tables are in [the appendix](paper_tables.md), and
[the map](paper_map.md) leads from each section, equation, table and figure of the paper to the code."""

_METHOD = """Effects are means over data sets of the difference, fold by fold, with a 95 % interval. Folds share
training rows, so their variance is corrected (Nadeau and Bengio, 2003); p-values are corrected over claims by Holm's
method. A claim holds if its p-value is below 0.05. `slice` and `song`, the two largest data sets of the paper, cannot
be had here."""


class Missing(NamedTuple):
    """Tasks of a study that have not been run."""

    study: str
    preset: str
    dataset: str
    done: int
    planned: int
    hours: float | None
    """At most: early stopping usually ends a run sooner."""


class _Finished(Store):
    """A store in which every task is done, which asks a study for all of its folds."""

    def __init__(self) -> None:
        self._latest: dict[str, Record] = {}

    def get(self, task: Key) -> Record:
        return Record(task, {VALIDATION: 0.0, "objective": 0.0}, {})


def results_of(folder: Path, preset: Preset) -> dict[str, Results]:
    """The results of a preset by study, where there are any."""
    found = {name: Results(Store(folder / f"{find_study(name).store_name}.jsonl"), preset) for name in STUDIES}
    return {name: results for name, results in found.items() if _has(find_study(name), results)}


def _has(study: Study, results: Results) -> bool:
    scope = study.scope(results.preset)
    return any(r.task.get("dataset") in scope.datasets for r in results.records)


def page(folder: Path, presets: Sequence[str] = SHOWN) -> str:
    """The page with the verdicts, the figures and what was not run."""
    stores = {name: results_of(folder, PRESETS[name]) for name in presets}
    parts = [_INTRODUCTION, "## Two protocols", _protocols(presets), "## Verdicts", _METHOD, _verdicts(stores)]
    drawn = [(preset, name) for preset in presets for name in stores[preset]]
    if drawn:
        parts += ["## Figures", *(_figure_links(preset, name) for preset, name in drawn)]
    missing = not_run(folder, presets)
    parts += ["## What was not run", _missing_table(missing)]
    records = [r for found in stores.values() for results in found.values() for r in results.records]
    parts.append(origin(records, f"{len(records)} fits") if records else "No results are stored yet.")
    return "\n\n".join(parts) + "\n"


def appendix(folder: Path, presets: Sequence[str] = SHOWN) -> str:
    """Every table of every study, under both protocols."""
    parts = [
        "# The paper's tables",
        "Written by `python -m experiments paper report`; [the page](paper.md) explains them.",
    ]
    stores = {name: results_of(folder, PRESETS[name]) for name in presets}
    for name in STUDIES:
        found = [(preset, stores[preset][name]) for preset in presets if name in stores[preset]]
        if found:
            parts += [f"## {name}: {find_study(name).about}"]
        for preset, results in found:
            parts += [f"### Preset `{preset}`", find_study(name).table(results)]
    return "\n\n".join(parts) + "\n"


def map_page(folder: Path, presets: Sequence[str] = SHOWN) -> str:
    """The map from the paper to the code, with links to the results of the presets."""
    stores = {name: results_of(folder, PRESETS[name]) for name in presets}
    stored = {study: [name for name in presets if study in stores[name]] for study in STUDIES}
    return paper_map.page({study: names for study, names in stored.items() if names}, IMAGES)


def write(folder: Path, docs: Path, presets: Sequence[str] = SHOWN) -> list[Path]:
    """Write the pages and the figures; returns the files."""
    docs.mkdir(parents=True, exist_ok=True)
    written = [docs / PAGE, docs / APPENDIX, docs / MAP]
    texts = (make(folder, presets) for make in (page, appendix, map_page))
    for path, text in zip(written, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    for preset in presets:
        for name, results in results_of(folder, PRESETS[preset]).items():
            made = {f"{title}_{preset}": figure for title, figure in find_study(name).figures(results).items()}
            written += save(made, docs / IMAGES)
    return written


def _protocols(presets: Sequence[str]) -> str:
    rows = []
    for name in CHANGED:
        values = [asdict(PRESETS[preset].recipe)[name] for preset in presets]
        rows.append([name.replace("_", " "), *("-" if value is None else str(value) for value in values)])
    rates = [", ".join(f"{rate:g}" for rate in PRESETS[preset].learning_rates) for preset in presets]
    return markdown_table(
        ["setting", *(f"`{preset}`" for preset in presets)],
        [["learning rates", *rates], *rows],
        num_text=1 + len(presets),
    )


def _verdicts(stores: dict[str, dict[str, Results]]) -> str:
    presets = list(stores)
    by_preset = {preset: verdicts(stores[preset]) for preset in presets}
    rows = []
    for i, (claim, _) in enumerate(by_preset[presets[0]]):
        cells = [_finding(by_preset[preset][i][1]) for preset in presets]
        rows.append([claim.text, claim.unit, *cells])
    return markdown_table(
        ["claim", "effect in", *(f"`{preset}`" for preset in presets)], rows, num_text=2 + len(presets)
    )


def _finding(found: Finding) -> str:
    words = f"**{found.verdict}**"
    if found.effect == found.effect:
        words += f": {found.effect:+.3g} [{found.low:+.3g}, {found.high:+.3g}]"
    if found.p == found.p:
        words += f", p = {found.p:.2g}"
    details = "; ".join(part for part in (found.count, found.note) if part)
    return f"{words} ({details})" if details else words


def _figure_links(preset: str, name: str) -> str:
    return f"![{find_study(name).about}, preset {preset}]({IMAGES}/{name}_{preset}.png)"


# What was not run


def not_run(folder: Path, presets: Sequence[str] = SHOWN) -> list[Missing]:
    """Folds that no learning rate has been run for, by study, preset and data set."""
    everything = [r for name in STUDIES for r in Store(folder / f"{find_study(name).store_name}.jsonl")]
    found = []
    for preset in (PRESETS[name] for name in presets):
        pace = _pace(r for r in everything if r.task.get("preset") == preset.name)
        for study in map(find_study, STUDIES):
            scope = study.scope(preset)
            one_rate = replace(preset, learning_rates=preset.learning_rates[:1])
            plan = Plan(study.store_name, one_rate, *scope[:3], scope.folds)
            keys = study.keys(plan, _Finished())
            results = Results(Store(folder / f"{study.store_name}.jsonl"), preset)
            done = {_without_rate(r.task) for r in results.records}
            planned = Counter(str(key["dataset"]) for key in keys)
            left = [key for key in keys if _without_rate(key) not in done]
            for dataset, total in planned.items():
                ours = [key for key in left if key["dataset"] == dataset]
                if ours:
                    hours = _hours(ours, preset, pace)
                    found.append(Missing(study.name, preset.name, dataset, total - len(ours), total, hours))
    return found


def _without_rate(key: Key) -> str:
    return str(sorted((name, str(value)) for name, value in key.items() if name != "learning_rate"))


def _pace(records: Iterable[Record]) -> dict[tuple[Any, Any], float]:
    """Seconds of a step by method and size, where they are known."""
    seconds: dict[tuple[Any, Any], list[float]] = {}
    for r in records:
        if r.metrics.get("steps"):
            seconds.setdefault((r.task.get("method"), r.task.get("size")), []).append(r.seconds / r.number("steps"))
    return {place: median(values) for place, values in seconds.items()}


def hours_of(keys: Sequence[Key], preset: Preset, store: Store) -> float | None:
    """Hours of some tasks of one core to their last step, by the pace of stored fits; None where it is unknown."""
    return _hours(keys, replace(preset, learning_rates=preset.learning_rates[:1]), _pace(store))


def _hours(keys: Sequence[Key], preset: Preset, pace: dict[tuple[Any, Any], float]) -> float | None:
    """Hours of all rates to the last step; None where the pace of a system is unknown."""
    total = 0.0
    for key in keys:
        step = pace.get((key.get("method"), key.get("size")))
        if step is None or not str(key.get("fold", "")).isdigit():
            return None
        stochastic = method_class(str(key["method"])).stochastic
        recipe: Recipe = recipe_of(key)
        rows = train_rows(str(key["dataset"]), preset.rows)
        steps = recipe.num_steps(rows) if stochastic else _full_steps(recipe)
        total += step * steps * (len(preset.learning_rates) if stochastic and key["fold"] == 0 else 1)
    return total / 3600


def _full_steps(recipe: Recipe) -> int:
    return recipe.evaluations if recipe.full_batch == "lbfgs" else recipe.num_full_steps()


def _missing_table(found: Sequence[Missing]) -> str:
    if not found:
        return "Everything was run."
    rows = [[f"`{m.preset}`", m.study, m.dataset, f"{m.done} of {m.planned}", number(m.hours, ".1f")] for m in found]
    words = (
        "Fits are counted without repetitions at other learning rates. Hours are those of one core to the last step, "
        "by the pace of fits that are stored; early stopping usually ends a run sooner. The same command goes on from "
        "the store: `python -m experiments paper STUDY --preset PRESET --datasets SET`."
    )
    return f"{markdown_table(['preset', 'study', 'set', 'fits stored', 'hours at most'], rows, num_text=4)}\n\n{words}"
