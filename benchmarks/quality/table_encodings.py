"""``python -m benchmarks tables``: tables as they are, beside other encodings of their levels and LightGBM's own."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.preprocessing import TargetEncoder

from benchmarks.peers.workers import fit_in_worker
from benchmarks.quality.table_problems import TableSplit, make
from benchmarks.runner import Task
from cvgp import CVGPRegressor
from cvgp.data.calendar import date_features
from cvgp.data.scaling import learn_scaling
from cvgp.estimators.inputs import check_prediction
from cvgp.estimators.new_observations import Predictive
from cvgp.paper.markdown import markdown_table, origin
from cvgp.paper.splits import Split
from cvgp.paper.store import Outcome, Record, Store

__all__ = ["METHODS", "Plan", "report", "tasks"]

Array = NDArray[np.float64]
MOST_INDICATORS = 200
"""Columns of more levels are left out of one-hot encoding: the exact GP of thousands of inputs takes hours."""
DATES = ("trend", "season", "weekday", "hour")


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
    model = CVGPRegressor(dates="features", random_state=0).fit(split.train, split.y)
    seconds = time.process_time() - begin
    low, high = model.predict_quantiles(split.test, [0.05, 0.95]).T
    mean = model.predict(split.test)
    inside = (low <= split.y_test) & (split.y_test <= high)
    return Outcome(
        {
            "rmse": float(np.sqrt(np.mean((mean - split.y_test) ** 2))),
            "log_likelihood": float(model.log_predictive_density(split.test, split.y_test).mean()),
            "crps": _crps(model, split.test, split.y_test),
            "coverage": float(inside.mean()),
            "seconds": seconds,
        }
    )


def _one_hot(plan: Plan, split: TableSplit) -> Outcome:
    return _encoded(split, _indicators)


def _target_encoding(plan: Plan, split: TableSplit) -> Outcome:
    return _encoded(split, _by_target)


def _encoded(split: TableSplit, encode: Callable[[TableSplit, list[str]], tuple[Array, Array]]) -> Outcome:
    """A fit to arrays: numbers with their median for gaps, parts of dates, and some encoding of text."""
    begin = time.process_time()
    numbers, numbers_test = _numbers(split)
    text = [name for name in split.train.columns if _is_text(split.train[name])]
    levels, levels_test = encode(split, text)
    model = CVGPRegressor(random_state=0).fit(np.hstack([numbers, levels]), split.y)
    seconds = time.process_time() - begin
    x = np.hstack([numbers_test, levels_test])
    low, high = model.predict_quantiles(x, [0.05, 0.95]).T
    return Outcome(
        {
            "rmse": float(np.sqrt(np.mean((model.predict(x) - split.y_test) ** 2))),
            "log_likelihood": float(model.log_predictive_density(x, split.y_test).mean()),
            "crps": _crps(model, x, split.y_test),
            "coverage": float(((low <= split.y_test) & (split.y_test <= high)).mean()),
            "seconds": seconds,
        }
    )


def _lightgbm(plan: Plan, split: TableSplit) -> Outcome:
    """LightGBM's own categories, with a mean and a standard deviation of each row (`work_lightgbm_density`)."""
    numbers, numbers_test = _numbers(split, fill=False)
    text = [name for name in split.train.columns if _is_text(split.train[name])]
    codes, codes_test = [], []
    for name in text:
        known = pd.Index(split.train[name].dropna().unique())
        for found, frame in ((codes, split.train), (codes_test, split.test)):
            position = known.get_indexer(frame[name]).astype(np.float64)
            found.append(np.where(position < 0, np.nan, position))
    x, x_test = (np.column_stack([n, *c]) for n, c in ((numbers, codes), (numbers_test, codes_test)))
    scaling = learn_scaling(np.nan_to_num(x), split.y[:, None])
    middle, scale = float(scaling.y_mean[0]), float(scaling.y_scale[0])
    y, y_test = (split.y - middle) / scale, (split.y_test - middle) / scale
    rows = Split(x, y, x[:0], y[:0], x_test, y_test, scaling)
    places = list(range(numbers.shape[1], x.shape[1]))
    settings = {"method": "density", "budget": plan.budget, "clock": "processor", "categorical": places}
    found = fit_in_worker("lightgbm_density", settings, rows, threads=plan.threads)
    metrics = dict(found.metrics)
    for name in ("rmse", "crps"):
        metrics[name] = float(metrics[name] or np.nan) * scale
    metrics["log_likelihood"] = float(metrics["log_likelihood"] or np.nan) - float(np.log(scale))
    return replace(found, metrics=metrics, trace=[])


METHODS: dict[str, Callable[[Plan, TableSplit], Outcome]] = {
    "cvgp, as they are": _as_they_are,
    "cvgp, one-hot": _one_hot,
    "cvgp, target encoding": _target_encoding,
    "LightGBM": _lightgbm,
}


def _crps(model: CVGPRegressor, x: object, y: Array) -> float:
    return float(Predictive.at(model.gp_, check_prediction(model, x)).crps(y[:, None]).mean())


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
    """Numbers and parts of dates of both tables."""
    found: tuple[list[Array], list[Array]] = ([], [])
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
    encoder = TargetEncoder(target_type="continuous", random_state=0)
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
