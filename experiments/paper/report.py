"""``python -m experiments paper report``: the pages about the paper, written from the store alone."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from experiments.data import SYNTHETIC, UCI
from experiments.figures import save
from experiments.markdown import markdown_table, origin
from experiments.paper import paper_map
from experiments.paper.claims import DOES_NOT, HOLDS, NOT_RUN, UNTESTED, Finding, verdicts
from experiments.paper.methods import Recipe, method_class
from experiments.paper.study import (
    PRESETS,
    STUDIES,
    VALIDATION,
    Plan,
    Preset,
    Results,
    Study,
    find_study,
    recipe_of,
    rows_of,
)
from experiments.splits import train_rows
from experiments.store import Key, Record, Store

SHOWN = ("paper", "fair")
"""The presets that the pages compare."""
PAGE, IMAGES = Path("docs/paper.md"), Path("docs/images/paper")
"""What is for users, in the clone."""
APPENDIX, MAP = Path("experiments/reports/paper_tables.md"), Path("experiments/reports/paper_map.md")
"""What is too long for the site."""
GENERATED_ROWS = 1000
"""Of a data set that a study makes itself."""
SHORT_HOURS = 30 / 3600
"""Of a measurement without folds (`complexity`), which takes a few steps."""
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

`make paper` runs every experiment in small. In the repository, `experiments/reports/paper_tables.md` has the long
tables, and `experiments/reports/paper_map.md` leads from each section, equation, table and figure of the paper to the
code."""

_METHOD = """Effects are means over data sets of the difference, fold by fold, with a 95 % interval. Folds share
training rows, so their variance is corrected (Nadeau and Bengio, 2003); p-values are corrected over claims by Holm's
method. A claim holds if its p-value is below 0.05. Where it does not, the cell says whether the interval shows the
opposite or the difference is not significant. `slice` and `song`, the two largest data sets of the paper, cannot be had
here."""


class Missing(NamedTuple):
    """Fits of a study that have not been run, without those that an earlier study shares."""

    study: str
    preset: str
    datasets: tuple[str, ...]
    fits: int
    planned: int
    hours: float
    """Of one core at most, of the fits whose pace is known: early stopping usually ends a run sooner."""
    unknown: int
    """Fits whose pace is not known."""

    @property
    def cost(self) -> str:
        """The hours in words."""
        if self.unknown == self.fits:
            return "unknown"
        return f"{self.hours:.1f}" + (f", and {self.unknown} fits of unknown pace" if self.unknown else "")


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
    parts = [_INTRODUCTION, "## Verdicts", _verdicts(stores), _METHOD]
    drawn = {name: [preset for preset in presets if name in stores[preset]] for name in STUDIES}
    if any(drawn.values()):
        parts += ["## Figures", *(_figure(name, under) for name, under in drawn.items() if under)]
    parts += ["## Two protocols", _protocols(presets)]
    missing = [left for preset in presets for left in not_run(folder, _plans(PRESETS[preset]))]
    parts += ["## What was not run", _missing_table(missing)]
    everything = [r for found in stores.values() for results in found.values() for r in results.records]
    records = list({str(r.task): r for r in everything}.values())  # studies share some
    parts.append(origin(records, f"{len(records)} fits") if records else "No results are stored yet.")
    return "\n\n".join(parts) + "\n"


def appendix(folder: Path, presets: Sequence[str] = SHOWN) -> str:
    """Every table of every study, under both protocols."""
    parts = [
        "# The paper's tables",
        f"Written by `python -m experiments paper report`; [the page](../../{PAGE}) explains them.",
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
    return paper_map.page({study: names for study, names in stored.items() if names}, f"../../{IMAGES}")


def write(folder: Path, root: Path, presets: Sequence[str] = SHOWN) -> list[Path]:
    """Write the pages and the figures to their places below a folder; returns the files."""
    written = [root / name for name in (PAGE, APPENDIX, MAP)]
    texts = (make(folder, presets) for make in (page, appendix, map_page))
    for path, text in zip(written, texts, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for preset in presets:
        for name, results in results_of(folder, PRESETS[preset]).items():
            made = {f"{title}_{preset}": figure for title, figure in find_study(name).draw(results).items()}
            written += save(made, root / IMAGES)
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
    table = markdown_table(
        ["claim", "effect in", *(f"`{preset}`" for preset in presets)], rows, num_text=2 + len(presets)
    )
    return "\n\n".join([_count(by_preset), table])


def _count(by_preset: Mapping[str, Sequence[tuple[Any, Finding]]]) -> str:
    """How many claims have which verdict."""
    sentences = []
    for preset, found in by_preset.items():
        counts = Counter(finding.verdict for _, finding in found)
        words = [f"{name}: {counts[name]}" for name in (HOLDS, DOES_NOT, UNTESTED, NOT_RUN) if counts[name]]
        sentences.append(f"Verdicts under `{preset}`: {', '.join(words)}.")
    return " ".join(sentences)


def _finding(found: Finding) -> str:
    words = f"**{found.verdict}**"
    if found.verdict == DOES_NOT and found.p == found.p:
        words += ", the opposite was found" if found.opposite else ", not significant"
    if found.effect == found.effect:
        words += f": {found.effect:+.3g}"
    if found.low < found.high:
        words += f" [{found.low:+.3g}, {found.high:+.3g}]"
    if found.p == found.p:
        words += f", p = {found.p:.2g}"
    details = "; ".join(part for part in (found.count, found.note) if part)
    return f"{words} ({details})" if details else words


def _figure(name: str, presets: Sequence[str]) -> str:
    """The figure of a study under each preset, with one caption."""
    images = IMAGES.relative_to(PAGE.parent)
    study, paths = find_study(name), {preset: f"{images}/{name}_{preset}" for preset in presets}
    shown = [f"![{study.about}, preset {preset}]({path}.png)" for preset, path in paths.items()]
    links = ", ".join(f"[`{preset}`]({path}.pdf)" for preset, path in paths.items())
    return "\n\n".join([*shown, f"*{name}.* {study.caption} As PDF: {links}."])


# What was not run


def _plans(preset: Preset) -> list[tuple[Study, Plan]]:
    """Every study in full."""
    studies = [find_study(name) for name in STUDIES]
    return [(study, Plan(study.store_name, preset, *study.scope(preset))) for study in studies]


def not_run(folder: Path, plans: Sequence[tuple[Study, Plan]]) -> list[Missing]:
    """What is missing from the plans of one preset, and how long it takes; fits that studies share count once."""
    names = {find_study(name).store_name for name in STUDIES}
    everything = [r for name in names for r in Store(folder / f"{name}.jsonl")]
    found, seen = [], set[str]()
    for study, plan in plans:
        # The pace under this preset or, where it is unknown, under any.
        pace = _pace(everything) | _pace(r for r in everything if r.task.get("preset") == plan.preset.name)
        one_rate = replace(plan, preset=replace(plan.preset, learning_rates=plan.preset.learning_rates[:1]))
        keys = {_without_rate(key): key for key in study.keys(one_rate, _Finished())}
        keys = {name: key for name, key in keys.items() if name not in seen}
        seen |= keys.keys()
        results = Results(Store(folder / f"{study.store_name}.jsonl"), plan.preset)
        done = {_without_rate(r.task) for r in results.records}
        left = [key for name, key in keys.items() if name not in done]
        if left:
            hours = [_hours(key, plan.preset, pace) for key in left]
            known = [value for value in hours if value is not None]
            datasets = tuple(dict.fromkeys(str(key["dataset"]) for key in left))
            unknown = len(left) - len(known)
            found.append(Missing(study.name, plan.preset.name, datasets, len(left), len(keys), sum(known), unknown))
    return found


def _without_rate(key: Key) -> str:
    return str(sorted((name, str(value)) for name, value in key.items() if name != "learning_rate"))


def _pace(records: Iterable[Record]) -> dict[tuple[Any, ...], float]:
    """Seconds of a step, where they are known."""
    seconds: dict[tuple[Any, ...], list[float]] = {}
    for r in records:
        patient = r.task.get("recipe_patience") is not None
        if not r.failed and "fold" in r.task and (r.metrics.get("steps") or not patient):
            steps = r.metrics.get("steps") or _steps(r.task)
            seconds.setdefault(_place(r.task), []).append(r.seconds / steps)
    return {place: median(values) for place, values in seconds.items()}


def _place(key: Key) -> tuple[Any, ...]:
    """What the time of a step depends on: a minibatch has the same size in every data set, a full batch has not."""
    stochastic = method_class(str(key["method"])).stochastic
    return key["method"], key.get("size"), None if stochastic else key["dataset"]


def _steps(key: Key) -> int:
    """Steps of a fit to its end."""
    recipe: Recipe = recipe_of(key)
    if not method_class(str(key["method"])).stochastic:
        return recipe.evaluations if recipe.full_batch == "lbfgs" else recipe.num_full_steps()
    dataset = str(key["dataset"])
    return recipe.num_steps(train_rows(dataset, rows_of(key)) if dataset in (*UCI, *SYNTHETIC) else GENERATED_ROWS)


def _hours(key: Key, preset: Preset, pace: Mapping[tuple[Any, ...], float]) -> float | None:
    """Hours of a fit to its last step, with every learning rate on the first fold; None where its pace is unknown."""
    if "fold" not in key:
        return SHORT_HOURS
    step = pace.get(_place(key))
    if step is None:
        return None
    tuned = key["fold"] == 0 and method_class(str(key["method"])).stochastic
    return step * _steps(key) * (len(preset.learning_rates) if tuned else 1) / 3600


def _missing_table(found: Sequence[Missing]) -> str:
    if not found:
        return "Everything was run."
    rows = [[f"`{m.preset}`", m.study, ", ".join(m.datasets), f"{m.fits} of {m.planned}", m.cost] for m in found]
    words = (
        "A fit that two studies share is listed with the first, and learning rates are not counted apart. Hours are "
        "those of one core to the last step, by the pace of stored fits; early stopping usually ends a run sooner. To "
        "go on from the store: `python -m experiments paper STUDY --preset PRESET --datasets SET`."
    )
    table = markdown_table(["preset", "study", "sets", "fits not run", "hours at most"], rows, num_text=5)
    totals = [
        f"{sum(m.fits for m in found if m.preset == preset)} fits of `{preset}`"
        f" ({sum(m.hours for m in found if m.preset == preset):.0f} hours at most, where the pace is known)"
        for preset in dict.fromkeys(m.preset for m in found)
    ]
    return f"In all {' and '.join(totals)} were not run.\n\n{table}\n\n{words}"
