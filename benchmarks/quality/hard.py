"""``python -m benchmarks hard``: the default fit on generated problems, beside the true function and a constant."""

import time
from collections.abc import Sequence

import numpy as np

from benchmarks.quality.hard_problems import PROBLEMS, Data, make
from benchmarks.runner import Task
from cvgp import CVGPRegressor
from cvgp.paper.store import Outcome, Record, Store

__all__ = ["report", "tasks"]

NEAR_CONSTANT = 0.95
"""A fit whose RMSE is more than this share of the constant's has learned nothing."""
LEARNABLE = 0.5
"""The share of variance that the true function must explain for that to be a failure."""


def tasks(names: Sequence[str], seeds: int) -> list[Task]:
    """One fit for each problem and seed."""
    return [
        Task({"benchmark": "hard", "problem": name, "seed": seed}, lambda name=name, seed=seed: _run(name, seed))
        for name in names
        for seed in range(seeds)
    ]


def _run(name: str, seed: int) -> Outcome:
    data = make(name, seed)
    begin = time.process_time()  # a busy machine makes no fit look slower
    model = CVGPRegressor(neighbors="auto", random_state=seed).fit(data.x, data.y)
    seconds = time.process_time() - begin
    mean, sd = model.predict(data.x_test, return_std=True)
    error = data.y_test - data.f_test
    return Outcome(
        {
            "rmse": _rms(data.y_test - mean),
            "density": float(np.mean(model.log_predictive_density(data.x_test, data.y_test))),
            "coverage": float(np.mean(np.abs(data.y_test - mean) <= 1.6449 * sd)),
            "rmse_true": _rms(error),
            "rmse_constant": _rms(data.y_test - data.y.mean()),
            "rmse_line": _rms(data.y_test - _line(data)),
            "explained": 1.0 - float(np.var(error) / np.var(data.y_test)),
            "points": float(len(model.coreset_)),
            "neighbors": float(model.n_neighbors_),
            "converged": float(model.converged_),
            "seconds": seconds,
        }
    )


def _line(data: Data) -> np.ndarray:
    ones = np.ones((len(data.x), 1)), np.ones((len(data.x_test), 1))
    slopes, *_ = np.linalg.lstsq(np.hstack([ones[0], data.x]), data.y, rcond=None)
    return np.hstack([ones[1], data.x_test]) @ slopes


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def report(names: Sequence[str], seeds: int, store: Store) -> str:
    """A row per problem: medians over seeds, and in how many of them the fit learned something."""
    lines = [
        "| problem | rows x columns | constant | line | cvgp | true function | 90 % coverage | points + neighbours "
        "| processor seconds | verdict |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    everything: list[Record] = []
    for name in names:
        keys = [{"benchmark": "hard", "problem": name, "seed": seed} for seed in range(seeds)]
        records = [record for record in (store.finished(key) for key in keys) if record is not None]
        if records:
            lines.append(_row(name, records))
            everything += records
    lines.append("")
    lines.append(f"RMSE in the units of y, medians over seeds. {_origin(everything)}")
    return "\n".join(lines)


def _origin(records: Sequence[Record]) -> str:
    """Which versions of the code the records are of."""
    commits = sorted({record.provenance["commit"] for record in records})
    if len(commits) <= 1:
        return f"All fits are by commit {''.join(commits)}."
    return f"The fits are by commits {', '.join(commits)}: run again with `--renew` to have one."


def _row(name: str, records: Sequence[Record]) -> str:
    def median(metric: str) -> float:
        return float(np.median([record.metrics[metric] for record in records]))  # type: ignore[misc]

    shape = f"{PROBLEMS[name].rows} x {make(name).x.shape[1]}"
    rmse = [f"{median(metric):.4g}" for metric in ("rmse_constant", "rmse_line", "rmse", "rmse_true")]
    verdict = "mostly noise"
    if median("explained") >= LEARNABLE:
        bad = sum(_is_near_constant(record) for record in records)
        verdict = f"{bad} of {len(records)} learned nothing" if bad else "learned"
    size = f"{median('points'):.0f} + {median('neighbors'):.0f}"
    cells = [f"{name}: {PROBLEMS[name].about}", shape, *rmse, f"{median('coverage'):.2f}", size]
    return "| " + " | ".join([*cells, f"{median('seconds'):.0f}", verdict]) + " |"


def _is_near_constant(record: Record) -> bool:
    rmse, constant = record.metrics["rmse"], record.metrics["rmse_constant"]
    return rmse is None or constant is None or rmse > NEAR_CONSTANT * constant
