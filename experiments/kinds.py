"""Classes and counts: the default fits beside other GPs, boosted trees and linear models, on five fixed splits.

Tables come with packages, and some are generated. Of a table with more rows than `kinds.csv` says, a random part is
used. Rows are dealt into five folds by scikit-learn with seed 0, each of which is scored once; folds of classes are
stratified. Nothing is chosen because of these tables.

Our fits get a table as it is, boosted trees get codes of its levels, and GPs and linear models get indicators, the
median for gaps, and standardized columns.
"""

import time
from collections.abc import Iterable, Mapping
from csv import DictReader
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import make_moons
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler

from cvgp import CVGPClassifier, CVGPRegressor
from cvgp.errors import InvalidInputError
from experiments import world
from experiments.data import exported, waves
from experiments.markdown import markdown_table, number, origin
from experiments.peers.environments import PINS, WORK_FOLDER
from experiments.peers.workers import fit_in_worker
from experiments.race import CLOCK, RATES, SEED, SIZE, Entry, plain_start
from experiments.runner import Task
from experiments.scores import COUNT_LEVELS, calibration_error, class_scores, count_scores
from experiments.splits import FOLD_SEED, NUM_FOLDS, Split
from experiments.store import Key, Outcome, Record, Store
from experiments.tables import TableSplit, rows_for_line, rows_for_trees

Array = NDArray[np.float64]

KINDS = ("classes", "counts")
BUDGET = 30.0
"""Processor seconds of boosted trees; the other peers end by themselves."""
PATIENCE = 90.0
"""A tenth of the seconds after which a peer that ends by itself is given up."""
STEPS = 1500
"""Of Adam, for SVGP."""
MOST_ROWS_OF_GPC = 1700
"""Scikit-learn's classifier factorizes a matrix of all rows at every step."""
MOST_ROWS_OF_TABPFN = 1000
"""To learn from, as its authors advise."""
WEIGHTS = "pfns==0.3.0", "models_diff/prior_diff_real_checkpoint_n_0_epoch_42.cpkt"
"""A source distribution that carries the checkpoint of TabPFN 1, and its path there."""
LARGE = "waves-125000x8"
"""A fit to 100,000 rows, which is only timed."""

OURS = Entry("cvgp", "cvgp", "cvgp", "accuracy", ours=True)
OVERDISPERSED = Entry("cvgp-nb", "cvgp, negative binomial", "cvgp", "accuracy", ours=True)
LIGHTGBM = Entry("lightgbm", "LightGBM", "lightgbm", "kinds")
GPC = Entry("sklearn-gpc", "scikit-learn's GPC", "sklearn", "gpc")
TABPFN = Entry("tabpfn", "TabPFN 1", "tabpfn", "classes")
SVGP = Entry("svgp", "SVGP", "gpytorch", "svgp_classes", tuned=True)
ENTRIES = {
    "classes": (
        OURS,
        Entry("logistic", "logistic regression", "sklearn", "logistic"),
        LIGHTGBM,
        Entry("catboost", "CatBoost", "catboost", "classes"),
        Entry("gpboost", "GPBoost Vecchia", "gpboost", "latent"),
        Entry("gpboost-vif", "GPBoost VIF", "gpboost", "latent_vif"),
        SVGP,
        GPC,
        TABPFN,
    ),
    "counts": (
        OURS,
        OVERDISPERSED,
        Entry("poisson", "Poisson regression", "sklearn", "poisson"),
        LIGHTGBM,
        Entry("gpboost", "GPBoost Vecchia", "gpboost", "latent"),
        Entry("gpboost-vif", "GPBoost VIF", "gpboost", "latent_vif"),
    ),
}
"""Ours first, then roughly from fast to slow."""
SCORE = {"classes": "log_loss", "counts": "log_probability"}
"""By which a learning rate is chosen, and methods are compared."""
TREES = ("lightgbm", "catboost")


class Table(NamedTuple):
    """A line of kinds.csv."""

    kind: str
    source: world.Table
    exposure: str
    """A column that multiplies the expected count, or nothing."""


def _table(line: Mapping[str, str]) -> Table:
    left_out = "; ".join(
        part for part in (line["exposure"] and f"{line['exposure']}: the exposure", line["left_out"]) if part
    )
    sizes = int(line["rows"]), int(line["columns"])
    source = world.Table(line["package"], line["item"], *sizes, line["target"], (), (), left_out, "")
    return Table(line["kind"], source, line["exposure"])


with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as _file:
    TABLES = {line["name"]: _table(line) for line in DictReader(_file)}
"""By name: classes first, then counts."""


class Plan(NamedTuple):
    """What to run."""

    datasets: tuple[str, ...] = tuple(TABLES)
    splits: int = NUM_FOLDS
    peers: tuple[str, ...] = ()
    """All, where there are none."""
    large: bool = True
    """Whether the fit to 100,000 rows is timed too."""

    def entries_of(self, name: str) -> tuple[Entry, ...]:
        """The methods that can be fitted to a table."""
        kind = TABLES[name].kind
        return tuple(e for e in ENTRIES[kind] if (not self.peers or e.name in self.peers) and _applies(e, name))


def plan_of(datasets: Iterable[str], splits: int, peers: Iterable[str], *, large: bool = True) -> Plan:
    """A plan with known names only; all of them where there are none."""
    plan = Plan(tuple(datasets) or tuple(TABLES), splits, tuple(peers), large)
    known = {entry.name for entries in ENTRIES.values() for entry in entries}
    for what, names, choice in (("tables", plan.datasets, set(TABLES)), ("peers", plan.peers, known)):
        if unknown := [name for name in names if name not in choice]:
            raise InvalidInputError(f"Unknown {what} {', '.join(unknown)}. Choose from {', '.join(sorted(choice))}.")
    if not 1 <= splits <= NUM_FOLDS:
        raise InvalidInputError(f"splits is from 1 to {NUM_FOLDS}; got {splits}.")
    return plan


def _applies(entry: Entry, name: str) -> bool:
    if entry == GPC:
        return TABLES[name].source.rows <= MOST_ROWS_OF_GPC
    if entry == TABPFN:
        return TABLES[name].source.rows * (1.0 - 1.0 / NUM_FOLDS) <= MOST_ROWS_OF_TABPFN
    return entry.worker != "gpboost" or TABLES[name].kind == "counts" or num_classes(name) == 2


def num_classes(name: str) -> int:
    """Of a table of classes."""
    return len(np.unique(read(name)[TABLES[name].source.target]))


# Rows


@lru_cache(maxsize=4)
def read(name: str) -> pd.DataFrame:
    """All columns of the rows that are used, with the target, which may be a condition on a column."""
    source = TABLES[name].source
    if source.package == "generated":
        return GENERATED[source.item](source.rows, source.columns)
    arguments = "-P", str(PINS / "world.py"), source.package, source.item  # -P: peers have names of libraries
    frame = pd.read_csv(exported(WORK_FOLDER / "kinds" / f"{name}.csv.gz", "world", *arguments), low_memory=False)
    frame = frame[frame[source.target.split()[0]].notna()]
    if len(frame) > source.rows:
        frame = frame.iloc[np.random.default_rng(SEED).permutation(len(frame))[: source.rows]]
    frame = frame.reset_index(drop=True)
    return frame if source.target in frame else frame.assign(**{source.target: frame.eval(source.target)})


def _moons(rows: int, columns: int) -> pd.DataFrame:
    x, y = make_moons(rows, noise=0.3, random_state=SEED)
    return pd.DataFrame(x, columns=[f"x{i}" for i in range(columns)]).assign(y=y)


def _waves(rows: int, columns: int) -> pd.DataFrame:
    """Classes whose log-odds are four times a smooth function of half of the columns."""
    x, f = waves(rows, columns)
    p = 1.0 / (1.0 + np.exp(-4.0 * f))
    y = np.random.default_rng(SEED).random(rows) < p
    return pd.DataFrame(x, columns=[f"x{i}" for i in range(columns)]).assign(y=y.astype(int))


def _rates(rows: int, columns: int) -> pd.DataFrame:
    """Counts whose log-rate is a smooth function of half of the columns, in times that vary."""
    x, f = waves(rows, columns)
    rng = np.random.default_rng(SEED)
    exposure = rng.uniform(0.2, 5.0, rows)
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(columns)])
    return frame.assign(time=exposure, y=rng.poisson(exposure * np.exp(f)))


GENERATED = {"moons": _moons, "waves": _waves, "rates": _rates}


class KindSplit(NamedTuple):
    """Rows to learn from and rows to score; classes are whole numbers from 0 on."""

    rows: TableSplit
    exposure: Array
    exposure_test: Array


def make(name: str, split: int) -> KindSplit:
    """One of five folds."""
    table, frame = TABLES[name], read(name)
    x, target = world.inputs(table.source, frame), frame[table.source.target].to_numpy()
    y = np.unique(target, return_inverse=True)[1] if table.kind == "classes" else target
    exposure = frame[table.exposure].to_numpy(np.float64) if table.exposure else np.ones(len(frame))
    folds = (StratifiedKFold if table.kind == "classes" else KFold)(NUM_FOLDS, shuffle=True, random_state=FOLD_SEED)
    train, test = list(folds.split(x, y))[split]
    x_train, x_test = (x.iloc[rows].reset_index(drop=True) for rows in (train, test))
    y = y.astype(np.float64)
    return KindSplit(TableSplit(x_train, y[train], x_test, y[test], None), exposure[train], exposure[test])


# Measurements


def tasks(plan: Plan, store: Store) -> list[Task]:
    """All fits of a method before those of the next, so that a run that is cut short has the fast ones."""
    order = dict.fromkeys(entry for kind in KINDS for entry in ENTRIES[kind])
    found = [
        Task(key, partial(_measure, entry, name, split, key), ours=entry.ours)
        for entry in order
        for split in range(plan.splits)
        for name in plan.datasets
        if entry in plan.entries_of(name) and _is_ready(store, name, split, entry)
        for key in candidates(store, name, split, entry)
    ]
    return [*found, Task(LARGE_KEY, _measure_large)] if plan.large else found


def candidates(store: Store, name: str, split: int, entry: Entry) -> list[Key]:
    """The tasks of a method on a split; the first split chooses a learning rate, in hindsight, for the others."""
    key: Key = {"benchmark": "kinds", "dataset": name, "split": split, "method": entry.name, "threads": 1}
    if not entry.tuned:
        return [key]
    if split == 0:
        return [key | {"learning_rate": rate} for rate in RATES]
    best = record_of(store, name, 0, entry)
    return [key | {"learning_rate": RATES[len(RATES) // 2] if best is None else best.task["learning_rate"]}]


def _is_ready(store: Store, name: str, split: int, entry: Entry) -> bool:
    tried = candidates(store, name, 0, entry)
    return split == 0 or not entry.tuned or all(store.get(key) is not None for key in tried)


def record_of(store: Store, name: str, split: int, entry: Entry) -> Record | None:
    """The best finished result of a method on a split, or None."""
    found = [store.finished(key) for key in candidates(store, name, split, entry)]
    score = SCORE[TABLES[name].kind]
    sign = 1.0 if score == "log_probability" else -1.0
    return max((r for r in found if r is not None), key=lambda r: sign * r.number(score), default=None)


def _measure(entry: Entry, name: str, number: int, key: Key) -> Outcome:
    split, kind = make(name, number), TABLES[name].kind
    if not entry.ours:
        found = _peer(entry, kind, split, key)
    else:
        found = _our_classes(split) if kind == "classes" else _our_counts(entry, split)
    scored = len(split.rows.y_test)
    per_row = (found.metrics["predict_seconds"] or 0.0) / scored
    sizes = {"rows_trained": float(len(split.rows.y)), "rows_scored": float(scored), "seconds_per_row": per_row}
    return replace(found, metrics=found.metrics | sizes, trace=[])


def _our_classes(split: KindSplit) -> Outcome:
    """The default fit to the table as it is."""
    begin = time.process_time()
    model = CVGPClassifier(random_state=0).fit(split.rows.train, split.rows.y)
    fitted = time.process_time()
    scores = class_scores(split.rows.y_test, {"probabilities": model.predict_proba(split.rows.test)})
    seconds = {"seconds": fitted - begin, "predict_seconds": time.process_time() - fitted}
    return Outcome(scores | seconds | {"points": float(len(model.coresets_[0].X))})


def _our_counts(entry: Entry, split: KindSplit) -> Outcome:
    begin = time.process_time()
    likelihood = "negative_binomial" if entry == OVERDISPERSED else "poisson"
    model = CVGPRegressor(likelihood=likelihood, random_state=0)
    model.fit(split.rows.train, split.rows.y, exposure=split.exposure)
    fitted = time.process_time()
    rows, y, exposure = split.rows.test, split.rows.y_test, split.exposure_test
    found = {
        "mean": model.predict(rows, exposure=exposure),
        "log_probability": model.log_predictive_density(rows, y, exposure=exposure),
        "quantiles": model.predict_quantiles(rows, COUNT_LEVELS, exposure=exposure),
    }
    seconds = {"seconds": fitted - begin, "predict_seconds": time.process_time() - fitted}
    return Outcome(count_scores(y, found) | seconds | {"points": float(len(model.coreset_))})


def _peer(entry: Entry, kind: str, split: KindSplit, key: Key) -> Outcome:
    settings: dict[str, Any] = {"clock": CLOCK, "method": entry.method, "kind": kind, "seed": SEED}
    extra = {"log_exposure": np.log(split.exposure), "log_exposure_test": np.log(split.exposure_test)}
    if entry.worker in TREES:
        rows, settings["categorical"] = rows_for_trees(split.rows)
        settings["budget"] = BUDGET
    else:
        rows = _standardized(rows_for_line(split.rows))
        settings["budget"] = PATIENCE
    rows = rows._replace(y=split.rows.y, y_test=split.rows.y_test)
    if entry == SVGP:
        settings |= {"learning_rate": key["learning_rate"], "steps": STEPS, "kernel": "matern32"}
        start = plain_start(rows.x, SIZE, SEED)
        extra |= {"inducing": start["inducing"], "lengthscales": start["lengthscales"]}
    if entry == TABPFN:
        requirement, place = WEIGHTS
        arguments = "-P", str(PINS / "checkpoint.py"), requirement, place
        settings["weights"] = str(exported(WORK_FOLDER / "tabpfn" / place, "tabpfn", *arguments))
    extra["num_classes"] = np.array(split.rows.y.max() + 1.0)
    score = class_scores if kind == "classes" else count_scores
    return fit_in_worker(entry.worker, settings, rows, threads=1, extra=extra, score=score)


def _standardized(rows: Split) -> Split:
    scaler = StandardScaler().fit(rows.x)
    return rows._replace(x=scaler.transform(rows.x), x_test=scaler.transform(rows.x_test))


LARGE_KEY: Key = {"benchmark": "kinds", "dataset": LARGE, "split": 0, "method": OURS.name, "threads": 1}


def _measure_large() -> Outcome:
    """100,000 rows to learn from, by both clocks."""
    frame = _waves(125_000, 8)
    x, y = frame.drop(columns="y").to_numpy(), frame["y"].to_numpy()
    begin, wall = time.process_time(), time.perf_counter()
    model = CVGPClassifier(random_state=0).fit(x[:100_000], y[:100_000])
    seconds = {"seconds": time.process_time() - begin, "wall_seconds": time.perf_counter() - wall}
    scores = class_scores(y[100_000:].astype(np.float64), {"probabilities": model.predict_proba(x[100_000:])})
    return Outcome(scores | seconds | {"rows_trained": 100_000.0, "rows_scored": 25_000.0})


# Reports

SHOWN = {
    "classes": {
        **{"log_loss": "log loss", "brier": "Brier", "accuracy": "accuracy", "auc": "AUC"},
        **{"calibration": "calibration error", "chance": "by chance"},
    },
    "counts": {
        **{"log_probability": "log probability", "absolute_error": "absolute error", "rmse": "RMSE"},
        "coverage_90": "in 90 %",
    },
}
MOST_ERROR = 0.03
"""Of calibration."""
SHARE_OF_GPC = 0.1
"""Of its seconds, that ours may take."""
LARGE_SECONDS = 60.0


def reports(plan: Plan, store: Store) -> dict[str, str]:
    """By the name of their place in a page: the tables, targets, comparisons, and all scores."""
    names = {kind: [n for n in plan.datasets if TABLES[n].kind == kind] for kind in KINDS}
    found = {"tables": catalogue(), "targets": targets(plan, store)}
    for kind in KINDS:
        found[kind] = _comparison(plan, store, kind, names[kind])
        found[f"{kind}-scores"] = _all_scores(plan, store, kind, names[kind])
    return found


def catalogue() -> str:
    """Where each table comes from."""
    rows = []
    for name, (kind, source, exposure) in TABLES.items():
        what = f"{num_classes(name)} classes" if kind == "classes" else f"counts{exposure and f' per {exposure}'}"
        words = [f"{source.package} {source.item}", source.target, what, source.left_out or "-"]
        rows.append([name, *words, f"{source.rows:,}", str(source.columns)])
    return markdown_table(["table", "source", "target", "what", "left out", "rows", "columns"], rows, num_text=5)


def _records(plan: Plan, store: Store, name: str, entry: Entry) -> dict[int, Record]:
    """The finished splits, by number."""
    found = {split: record_of(store, name, split, entry) for split in range(plan.splits)}
    return {split: record for split, record in found.items() if record is not None}


def _gain(plan: Plan, store: Store, name: str, peer: Entry) -> float | None:
    """How far ours is ahead, in nats per row, on the splits that both have finished."""
    score = SCORE[TABLES[name].kind]
    sign = 1.0 if score == "log_probability" else -1.0
    ours, theirs = (_records(plan, store, name, entry) for entry in (OURS, peer))
    shared = sorted(set(ours) & set(theirs))
    pairs = [sign * (ours[split].number(score) - theirs[split].number(score)) for split in shared]
    return float(np.mean(pairs)) if pairs else None


def _comparison(plan: Plan, store: Store, kind: str, names: Iterable[str]) -> str:
    rows = []
    for name in names:
        if ours := _records(plan, store, name, OURS):
            own = np.mean([record.number(SCORE[kind]) for record in ours.values()])
            gains = [_gain(plan, store, name, entry) for entry in ENTRIES[kind][1:]]
            seconds = np.mean([record.number("seconds") for record in ours.values()])
            rows.append([name, number(float(own)), number(float(seconds), ".1f"), *(number(g, "+.3f") for g in gains)])
    if not rows:
        return "No results yet."
    titles = [entry.title for entry in ENTRIES[kind][1:]]
    words = (
        f"The mean {SHOWN[kind][SCORE[kind]]} of cvgp, the seconds of its fit, and how many nats per row it is "
        "ahead of each other method, on the splits that both have finished. Where a number is negative, cvgp is behind."
    )
    return f"{words}\n\n{markdown_table(['table', 'cvgp', 'seconds', *titles], rows, num_text=1)}"


def _all_scores(plan: Plan, store: Store, kind: str, names: Iterable[str]) -> str:
    rows, used, failed = [], list[Record](), []
    for name in names:
        for entry in plan.entries_of(name):
            records = list(_records(plan, store, name, entry).values())
            stored = [store.get(key) for split in range(plan.splits) for key in candidates(store, name, split, entry)]
            failed += [f"- {entry.title} on {name}: {r.error}" for r in stored if r is not None and r.failed]
            if records:
                used += records
                means = {s: float(np.mean([r.number(s) for r in records])) for s in SHOWN[kind]}
                if kind == "classes":
                    means["calibration"], means["chance"] = calibration_error([r.metrics for r in records])
                seconds = float(np.mean([r.number("seconds") for r in records]))
                cells = [number(means[score]) for score in SHOWN[kind]]
                rows.append([name, entry.title, *cells, number(seconds, ".1f"), str(len(records))])
    if not rows:
        return "No results yet."
    header = ["table", "method", *SHOWN[kind].values(), "seconds", "splits"]
    parts = [markdown_table(header, rows, num_text=2), origin(used)]
    return "\n\n".join(parts + (["Fits that failed:\n\n" + "\n".join(dict.fromkeys(failed))] if failed else []))


def targets(plan: Plan, store: Store) -> str:
    """On how many tables of classes each target holds, and where it does not."""
    names = [name for name in plan.datasets if TABLES[name].kind == "classes"]
    ours = {name: records for name in names if (records := _records(plan, store, name, OURS))}

    def ahead(peer: Entry, share: float) -> dict[str, str]:
        """By table: nothing where the target holds, or how far it is missed."""
        found = {}
        for name in ours:
            theirs = _records(plan, store, name, peer)
            if shared := set(ours[name]) & set(theirs):
                gain = _gain(plan, store, name, peer) or 0.0
                mine, other = (sum(r[s].number("seconds") for s in shared) for r in (ours[name], theirs))
                slow = f"{mine / other:.2f} of its time" if mine > share * other else ""
                found[name] = ", ".join(word for word in (f"{gain:+.3f}" if gain <= 0.0 else "", slow) if word)
        return found

    errors = {name: calibration_error([r.metrics for r in records.values()]) for name, records in ours.items()}
    checks = {
        "log loss ahead of SVGP, in no more time": ahead(SVGP, 1.0),
        "log loss ahead of scikit-learn's GPC, in a tenth of its time": ahead(GPC, SHARE_OF_GPC),
        "log loss ahead of LightGBM": ahead(LIGHTGBM, np.inf),
        f"expected calibration error of at most {MOST_ERROR:g}": {
            name: f"{error:.3f}, by chance {chance:.3f}" if error > MOST_ERROR else ""
            for name, (error, chance) in errors.items()
        },
    }
    large = store.finished(LARGE_KEY)
    if large is not None:
        seconds = large.number("seconds")
        text = f"{seconds:.0f} s of the processor, {large.number('wall_seconds'):.0f} s on the clock"
        checks[f"100,000 rows x 8 in {LARGE_SECONDS:g} s: {text}"] = {
            LARGE: "" if seconds <= LARGE_SECONDS else "missed"
        }
    rows = [
        [
            what,
            f"{sum(not missed for missed in found.values())} of {len(found)}",
            ", ".join(f"{name} ({missed})" for name, missed in found.items() if missed) or "-",
        ]
        for what, found in checks.items()
    ]
    return markdown_table(["target", "met on", "missed on"], rows, num_text=3)
