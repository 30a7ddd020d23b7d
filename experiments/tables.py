"""Tables with levels, dates and gaps as they are, beside other encodings of their levels and LightGBM's own."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder

from cvgp import CVGPRegressor
from cvgp.data.scaling import learn_scaling
from cvgp.tables.columns import date_features
from experiments.data import flights_file
from experiments.markdown import markdown_table, origin
from experiments.peers.workers import fit_in_worker
from experiments.runner import Task
from experiments.scores import LEVELS, predictive_scores
from experiments.splits import Split
from experiments.store import Outcome, Record, Store

Array = NDArray[np.float64]
MOST_INDICATORS = 200
"""Columns of more levels are left out of one-hot encoding: the exact GP of thousands of inputs takes hours."""
DATES = ("trend", "season", "weekday", "hour")
FLIGHT_COLUMNS = ["time_hour", "sched_dep_time", "sched_arr_time", "distance", "carrier", "origin", "dest", "tailnum"]
"""What is known when the schedule is made."""


class TableSplit(NamedTuple):
    """Rows to learn from and rows to score, as tables, with the sd of the noise where it is known."""

    train: pd.DataFrame
    y: Array
    test: pd.DataFrame
    y_test: Array
    noise_sd: float | None


def make(name: str, rows: int, scored: int, seed: int) -> TableSplit:
    """One split of a problem."""
    frame, y, noise_sd = PROBLEMS[name](rows + scored, seed)
    return TableSplit(
        frame[scored:].reset_index(drop=True), y[scored:], frame[:scored].reset_index(drop=True), y[:scored], noise_sd
    )


def _flights(count: int, seed: int) -> tuple[pd.DataFrame, Array, float | None]:
    table = pd.read_csv(flights_file())
    table = table[table["arr_delay"].notna()]
    chosen = table.iloc[np.random.default_rng(seed).permutation(len(table))[:count]]
    return chosen[FLIGHT_COLUMNS].reset_index(drop=True), chosen["arr_delay"].to_numpy(dtype=np.float64), None


def _many_levels(count: int, seed: int) -> tuple[pd.DataFrame, Array, float]:
    """Three thousand levels of very different frequencies, with effects of their own."""
    rng = np.random.default_rng([1, seed])
    frequency = 1.0 / np.arange(1, 3001) ** 0.7
    code = rng.choice(3000, count, p=frequency / frequency.sum())
    x = rng.uniform(-2.0, 2.0, (count, 3))
    f = np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1] + rng.normal(size=3000)[code]
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(level=[f"l{i}" for i in code])
    return frame, f + 0.7 * rng.normal(size=count), 0.7


def _slopes(count: int, seed: int) -> tuple[pd.DataFrame, Array, float]:
    """Sixty levels that change both the height and a slope."""
    rng = np.random.default_rng([2, seed])
    code = rng.integers(60, size=count)
    x = rng.uniform(-2.0, 2.0, (count, 3))
    f = np.sin(2.0 * x[:, 0]) + rng.normal(size=60)[code] + rng.normal(size=60)[code] * x[:, 1]
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(level=[f"l{i}" for i in code])
    return frame, f + 0.5 * rng.normal(size=count), 0.5


def _mixed(count: int, seed: int) -> tuple[pd.DataFrame, Array, float]:
    """Numbers, a season, a hundred cities, three colors, and gaps in a tenth of a number that matters."""
    rng = np.random.default_rng([3, seed])
    city = rng.integers(100, size=count)
    color = rng.integers(3, size=count)
    day = rng.integers(0, 730, size=count)
    a, b = rng.normal(size=(2, count))
    season = np.sin(2.0 * np.pi * day / 365.2425)
    f = np.tanh(a) * 1.5 + 0.5 * b**2 + rng.normal(size=100)[city] + season + np.array([0.0, 0.5, -0.5])[color] * b
    frame = pd.DataFrame(
        {
            "a": np.where(rng.random(count) < 0.1, np.nan, a),
            "b": b,
            "city": [f"city {i}" for i in city],
            "color": np.array(["blue", "green", "red"])[color],
            "when": (pd.Timestamp("2022-01-01") + pd.to_timedelta(day, "D")).strftime("%Y-%m-%d"),
        }
    )
    return frame, f + 0.5 * rng.normal(size=count), 0.5


PROBLEMS: dict[str, Callable[[int, int], tuple[pd.DataFrame, Array, float | None]]] = {
    "flights": _flights,
    "many-levels": _many_levels,
    "slopes": _slopes,
    "mixed": _mixed,
}


# Methods


@dataclass(frozen=True)
class Plan:
    """What to run."""

    problems: tuple[str, ...]
    methods: tuple[str, ...]
    rows: int
    scored: int
    seeds: int
    budget: float
    threads: int


def tasks(plan: Plan) -> list[Task]:
    """Every method on every problem."""
    return [
        Task(_key(plan, problem, method, seed), partial(_run, plan, problem, method, seed), _is_ours(method))
        for seed in range(plan.seeds)
        for problem in plan.problems
        for method in plan.methods
    ]


def _key(plan: Plan, problem: str, method: str, seed: int) -> dict[str, str | int | float]:
    size = {"rows": plan.rows, "scored": plan.scored, "seed": seed, "threads": plan.threads}
    budget = {} if _is_ours(method) else {"budget": plan.budget}
    return {"benchmark": "tables", "problem": problem, "method": method, **size, **budget}


def _is_ours(method: str) -> bool:
    return method != "LightGBM"


def _run(plan: Plan, problem: str, method: str, seed: int) -> Outcome:
    return METHODS[method](plan, make(problem, plan.rows, plan.scored, seed))


def _as_they_are(plan: Plan, split: TableSplit) -> Outcome:
    begin = time.process_time()  # a busy machine makes no fit look slower
    model = CVGPRegressor(random_state=0).fit(split.train, split.y)
    return _scored(model, split.test, split.y_test, time.process_time() - begin)


def _one_hot(plan: Plan, split: TableSplit) -> Outcome:
    return _encoded(split, _indicators)


def _target_encoding(plan: Plan, split: TableSplit) -> Outcome:
    return _encoded(split, _by_target)


def _encoded(split: TableSplit, encode: Callable[[TableSplit, list[str]], tuple[Array, Array]]) -> Outcome:
    """A fit to arrays: numbers with their median for gaps, parts of dates, and some encoding of text."""
    begin = time.process_time()
    numbers, numbers_test = _numbers(split)
    levels, levels_test = encode(split, _text_columns(split))
    model = CVGPRegressor(random_state=0).fit(np.hstack([numbers, levels]), split.y)
    return _scored(model, np.hstack([numbers_test, levels_test]), split.y_test, time.process_time() - begin)


def _scored(model: CVGPRegressor, x: Any, y: Array, seconds: float) -> Outcome:
    scores = predictive_scores(y, predictive(model, x, y))
    return Outcome(
        {name: scores[name] for name in ("rmse", "log_likelihood", "crps", "coverage")} | {"seconds": seconds}
    )


def predictive(model: CVGPRegressor, x: Any, y: Array) -> dict[str, Array]:
    """What `predictive_scores` takes of a prediction that need not be Gaussian."""
    density = model.log_predictive_density(x, y)
    quantiles = model.predict_quantiles(x, LEVELS).T
    return {"mean": model.predict(x), "log_density": density, "levels": np.asarray(LEVELS), "quantiles": quantiles}


def _lightgbm(plan: Plan, split: TableSplit) -> Outcome:
    """LightGBM's own categories, with a mean and a standard deviation of each row (`peers/lightgbm.py`)."""
    rows, places = rows_for_trees(split)
    settings = {"method": "density", "budget": plan.budget, "clock": "processor", "categorical": places}
    found = fit_in_worker("lightgbm", settings, rows, threads=plan.threads)
    metrics, scale = dict(found.metrics), float(rows.scaling.y_scale[0])
    for name in ("rmse", "crps"):
        metrics[name] = float(metrics[name] or np.nan) * scale
    metrics["log_likelihood"] = float(metrics["log_likelihood"] or np.nan) - float(np.log(scale))
    return replace(found, metrics=metrics, trace=[])


def rows_for_trees(split: TableSplit) -> tuple[Split, list[int]]:
    """Numbers with their gaps, parts of dates and codes of categories, and which columns are such codes."""
    numbers, numbers_test = _numbers(split, fill=False)
    codes, codes_test = [], []
    for name in _text_columns(split):
        known = pd.Index(split.train[name].dropna().unique())
        for found, frame in ((codes, split.train), (codes_test, split.test)):
            position = known.get_indexer(frame[name]).astype(np.float64)
            found.append(np.where(position < 0, np.nan, position))
    x, x_test = (np.column_stack([n, *c]) for n, c in ((numbers, codes), (numbers_test, codes_test)))
    return _standardized_target(split, x, x_test), list(range(numbers.shape[1], x.shape[1]))


def rows_for_line(split: TableSplit) -> Split:
    """Numbers with their median for gaps, parts of dates, and indicators of levels, or target encoding of many."""
    text = _text_columns(split)
    many = [name for name in text if split.train[name].nunique() > MOST_INDICATORS]
    parts = (_numbers(split), _indicators(split, text), _by_target(split, many))
    x, x_test = (np.hstack(found) for found in zip(*parts, strict=True))
    return _standardized_target(split, x, x_test)


def _standardized_target(split: TableSplit, x: Array, x_test: Array) -> Split:
    scaling = learn_scaling(np.nan_to_num(x), split.y[:, None])
    y, y_test = (scaling.scale_y(values[:, None])[:, 0] for values in (split.y, split.y_test))
    return Split(x, y, x[:0], y[:0], x_test, y_test, scaling)


METHODS: dict[str, Callable[[Plan, TableSplit], Outcome]] = {
    "cvgp, as they are": _as_they_are,
    "cvgp, one-hot": _one_hot,
    "cvgp, target encoding": _target_encoding,
    "LightGBM": _lightgbm,
}


def _text_columns(split: TableSplit) -> list[str]:
    return [name for name in split.train.columns if _is_text(split.train[name])]


def _is_text(column: "pd.Series[object]") -> bool:
    return column.dtype.kind not in "biufM" and _dates(column) is None


def _dates(column: "pd.Series[object]") -> Array | None:
    """Days, of a column of ISO dates."""
    if column.dtype.kind in "biuf":
        return None
    try:
        found = pd.to_datetime(column, format="ISO8601", utc=True)
    except ValueError:
        return None
    return np.asarray(found.to_numpy(dtype="datetime64[s]").astype(np.int64) / 86400.0)


def _numbers(split: TableSplit, *, fill: bool = True) -> tuple[Array, Array]:
    """Numbers and parts of dates of both tables; no column where there is neither."""
    found: tuple[list[Array], list[Array]] = ([np.empty((len(split.y), 0))], [np.empty((len(split.y_test), 0))])
    for name in split.train.columns:
        if _is_text(split.train[name]):
            continue
        for part, frame in zip(found, (split.train, split.test), strict=True):
            days = _dates(frame[name])
            if days is not None:
                part.append(date_features(days, DATES))
            else:
                values = frame[name].to_numpy(dtype=np.float64)
                middle = float(np.nanmedian(split.train[name].to_numpy(dtype=np.float64)))
                part.append((np.where(np.isnan(values), middle, values) if fill else values)[:, None])
    return np.hstack(found[0]), np.hstack(found[1])


def _indicators(split: TableSplit, text: list[str]) -> tuple[Array, Array]:
    both: tuple[list[Array], list[Array]] = ([np.empty((len(split.y), 0))], [np.empty((len(split.y_test), 0))])
    for name in text:
        levels = sorted(split.train[name].dropna().unique())
        if len(levels) <= MOST_INDICATORS:
            for part, frame in zip(both, (split.train, split.test), strict=True):
                part += [(frame[name] == level).to_numpy(dtype=np.float64)[:, None] for level in levels]
    return np.hstack(both[0]), np.hstack(both[1])


def _by_target(split: TableSplit, text: list[str]) -> tuple[Array, Array]:
    if not text:
        return np.empty((len(split.y), 0)), np.empty((len(split.y_test), 0))
    encoder = TargetEncoder(target_type="continuous", cv=KFold(5, shuffle=True, random_state=0))
    train, test = (frame[text].fillna("missing") for frame in (split.train, split.test))
    return np.asarray(encoder.fit_transform(train, split.y)), np.asarray(encoder.transform(test))


def report(plan: Plan, store: Store) -> str:
    """A row for each problem, size and method that is stored: medians over seeds."""
    records = [record for record in store if record.task["benchmark"] == "tables" and not record.failed]
    rows, shown = [], []
    for problem in plan.problems:
        mine = [record for record in records if record.task["problem"] == problem]
        sizes = sorted({(int(str(record.task["rows"])), int(str(record.task["scored"]))) for record in mine})
        for size in sizes:
            for method in plan.methods:
                key = {"rows": size[0], "scored": size[1], "method": method}
                found = [record for record in mine if record.task | key == record.task]
                if found:
                    shown += found
                    rows.append([problem, f"{size[0]:,}", method, *_cells(found), str(len(found))])
    header = [
        "table",
        "rows",
        "method",
        "RMSE",
        "log-likelihood",
        "CRPS",
        "90 % coverage",
        "processor seconds",
        "draws",
    ]
    return "\n".join([markdown_table(header, rows, num_text=3), "", origin(shown)]) if rows else origin([])


def _cells(records: Sequence[Record]) -> list[str]:
    def median(name: str) -> float:
        values = [record.metrics.get(name) for record in records]
        known = [value for value in values if value is not None]
        return float(np.median(known)) if known else float("nan")

    scores = [f"{median(name):.4g}" for name in ("rmse", "log_likelihood", "crps")]
    return [*scores, f"{median('coverage'):.2f}", f"{median('seconds'):.0f}"]
