"""Generated problems on which fits have gone wrong: the default fit beside the true function and a constant."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cvgp import CVGPRegressor
from experiments.markdown import markdown_table
from experiments.runner import Task
from experiments.store import Outcome, Record, Store

NEAR_CONSTANT = 0.95
"""A fit whose RMSE is more than this share of the constant's has learned nothing."""
LEARNABLE = 0.5
"""The share of variance that the true function must explain for that to be a failure."""

Array = NDArray[np.float64]
Function = Callable[[Array], Array]
Inputs = Callable[[np.random.Generator, int], Array]
Noise = Callable[[np.random.Generator, Array, Array], Array]


class Problem(NamedTuple):
    """Inputs, a function of them, and noise."""

    about: str
    rows: int
    inputs: Inputs
    function: Function
    noise: Noise


class Data(NamedTuple):
    """Rows to learn from and rows to score, with the true function at the latter."""

    x: Array
    y: Array
    x_test: Array
    y_test: Array
    f_test: Array


def make(name: str, seed: int = 0, test_rows: int = 1000) -> Data:
    """One draw of a problem."""
    problem = PROBLEMS[name]
    rng = np.random.default_rng([seed, *name.encode()])
    x = problem.inputs(rng, problem.rows + test_rows)
    f = problem.function(x)
    y = f + problem.noise(rng, x, f)
    n = problem.rows
    return Data(x[:n], y[:n], x[n:], y[n:], f[n:])


def _normal(columns: int) -> Inputs:
    return lambda rng, n: rng.normal(size=(n, columns))


def _uniform(columns: int) -> Inputs:
    return lambda rng, n: rng.uniform(size=(n, columns))


def _share(share: float) -> Noise:
    """Normal noise whose standard deviation is a share of the function's."""
    return lambda rng, x, f: share * f.std() * rng.normal(size=len(f))


def _four(x: Array) -> Array:
    return np.sin(2.0 * x[:, 3]) + 0.7 * x[:, 7] * x[:, 11] + 0.8 * np.cos(1.5 * x[:, 20])


def _friedman(x: Array) -> Array:
    return (
        10.0 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20.0 * (x[:, 2] - 0.5) ** 2 + 10.0 * x[:, 3] + 5.0 * x[:, 4]
    )  # Friedman (1991)


def _three(x: Array) -> Array:
    return np.sin(2.0 * x[:, 0]) + x[:, 1] + 0.5 * x[:, 2] ** 2


def _copies(rng: np.random.Generator, n: int) -> Array:
    base = rng.normal(size=(n, 4))
    return np.hstack([base, base, base + 1e-3 * rng.normal(size=(n, 4)), 5.0 * base])


def _factors(rng: np.random.Generator, n: int) -> Array:
    return rng.normal(size=(n, 3)) @ rng.normal(size=(3, 30)) + 0.1 * rng.normal(size=(n, 30))


def _indicators(levels: int) -> Inputs:
    def draw(rng: np.random.Generator, n: int) -> Array:
        return np.hstack([rng.normal(size=(n, 2)), np.eye(levels)[rng.integers(levels, size=n)]])

    return draw


def _by_level(x: Array) -> Array:
    level = x[:, 2:].argmax(1)
    return np.sin(2.0 * x[:, 0]) + np.sin(3.0 * level) * x[:, 1] + np.cos(level)


def _heavy(rng: np.random.Generator, n: int) -> Array:
    return rng.standard_t(1.5, size=(n, 6))


def _bounded(x: Array) -> Array:
    return np.tanh(x[:, 0]) + np.sin(np.arctan(x[:, 1]) * 2.0)


def _with_outliers(rng: np.random.Generator, n: int) -> Array:
    x = rng.normal(size=(n, 6))
    x[rng.random(n) < 0.01] *= 1000.0
    return x


def _grid(rng: np.random.Generator, n: int) -> Array:
    return rng.integers(1, 7, size=(n, 5)).astype(np.float64)


def _bits(rng: np.random.Generator, n: int) -> Array:
    return rng.integers(0, 2, size=(n, 20)).astype(np.float64)


def _constants(rng: np.random.Generator, n: int) -> Array:
    return np.hstack([rng.normal(size=(n, 3)), np.tile([0.0, 1.0, -3e5], (n, 1))])


def _outliers(rng: np.random.Generator, x: Array, f: Array) -> Array:
    wild = np.where(rng.random(len(f)) < 0.01, 30.0 * f.std() * rng.normal(size=len(f)), 0.0)
    return 0.2 * f.std() * rng.normal(size=len(f)) + wild


PROBLEMS: dict[str, Problem] = {
    "four of 32": Problem("four columns of 32 matter", 4000, _normal(32), _four, _share(0.2)),
    "friedman": Problem("Friedman's function", 2000, _uniform(5), _friedman, _share(0.2)),
    "friedman + 45": Problem("and 45 useless columns", 2000, _uniform(50), _friedman, _share(0.2)),
    "friedman + 95": Problem("and 95 useless columns", 2000, _uniform(100), _friedman, _share(0.2)),
    "three of 200": Problem("three columns of 200", 2000, _normal(200), _three, _share(0.2)),
    "three of 500": Problem("three columns of 500", 2000, _normal(500), _three, _share(0.2)),
    "line in 100": Problem(
        "a linear function of ten columns of 100", 1500, _normal(100), lambda x: x[:, :10].sum(1), _share(0.3)
    ),
    "few rows": Problem("60 rows, eight columns", 60, _normal(8), _three, _share(0.2)),
    "fewer rows than columns": Problem(
        "150 rows, 200 columns, a line in two", 150, _normal(200), lambda x: 2.0 * x[:, 0] - x[:, 5], _share(0.1)
    ),
    "copied columns": Problem("each column four times", 2000, _copies, _three, _share(0.2)),
    "correlated": Problem(
        "30 columns of three factors", 2000, _factors, lambda x: np.sin(x[:, 0] / 2.0) + 0.3 * x[:, 1], _share(0.2)
    ),
    "one-hot 30": Problem("a category of 30 levels", 3000, _indicators(30), _by_level, _share(0.2)),
    "one-hot 150": Problem("a category of 150 levels", 3000, _indicators(150), _by_level, _share(0.2)),
    "heavy-tailed inputs": Problem("Student-t inputs, 1.5 degrees", 3000, _heavy, _bounded, _share(0.2)),
    "outliers in X": Problem("1 % of the rows a thousand times as far", 3000, _with_outliers, _bounded, _share(0.2)),
    "heavy-tailed noise": Problem(
        "Student-t noise, two degrees",
        3000,
        _normal(5),
        _three,
        lambda rng, x, f: 0.15 * f.std() * rng.standard_t(2.0, size=len(f)),
    ),
    "outliers in y": Problem("1 % of y thirty deviations off", 3000, _normal(5), _three, _outliers),
    "integer grid": Problem(
        "whole numbers from 1 to 6", 3000, _grid, lambda x: np.sin(x[:, 0]) + x[:, 1] * x[:, 2] / 10.0, _share(0.2)
    ),
    "bits": Problem(
        "20 binary columns, an exclusive or",
        3000,
        _bits,
        lambda x: 2.0 * np.abs(x[:, 0] - x[:, 1]) + x[:, 2],
        _share(0.2),
    ),
    "a step": Problem(
        "a jump in one of ten columns", 3000, _normal(10), lambda x: np.where(x[:, 4] > 0.3, 1.0, -1.0), _share(0.2)
    ),
    "a fast wave": Problem(
        "sin 20 x in one of three columns", 3000, _uniform(3), lambda x: np.sin(20.0 * x[:, 1]), _share(0.2)
    ),
    "a product": Problem(
        "a product of three of ten columns", 3000, _normal(10), lambda x: x[:, 0] * x[:, 1] * x[:, 2], _share(0.2)
    ),
    "constant columns": Problem("three columns, and three that do not vary", 2000, _constants, _three, _share(0.2)),
    "odd units": Problem(
        "inputs of 1e-6, outputs of 1e8",
        2000,
        lambda rng, n: 1e-6 * rng.normal(size=(n, 5)),
        lambda x: 1e8 * _three(1e6 * x),
        _share(0.2),
    ),
    "no noise": Problem(
        "a smooth function as it is",
        2000,
        _uniform(4),
        lambda x: np.sin(3.0 * x[:, 0]) * np.cos(2.0 * x[:, 1]) + x[:, 2] * x[:, 3],
        _share(1e-4),
    ),
    "uneven noise": Problem(
        "noise that grows with a column",
        3000,
        _normal(5),
        _three,
        lambda rng, x, f: np.exp(x[:, 3]) * 0.2 * rng.normal(size=len(f)),
    ),
    "only noise": Problem(
        "nothing to learn", 2000, _normal(5), lambda x: 0.0 * x[:, 0], lambda rng, x, f: rng.normal(size=len(f))
    ),
}
"""Names in the order of the table."""


def tasks(names: Sequence[str], seeds: int) -> list[Task]:
    """One fit for each problem and seed."""
    return [
        Task({"benchmark": "hard", "problem": name, "seed": seed}, partial(_run, name, seed))
        for name in names
        for seed in range(seeds)
    ]


def _run(name: str, seed: int) -> Outcome:
    data = make(name, seed)
    begin = time.process_time()  # a busy machine makes no fit look slower
    model = CVGPRegressor(random_state=seed).fit(data.x, data.y)
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
    header = ("problem", "rows x columns", "constant", "line", "cvgp", "true function", "90 % coverage")
    header += ("points + neighbors", "processor seconds", "verdict")
    rows, everything = [], list[Record]()
    for name in names:
        found = [store.finished({"benchmark": "hard", "problem": name, "seed": seed}) for seed in range(seeds)]
        records = [record for record in found if record is not None]
        if records:
            rows.append(_row(name, records))
            everything += records
    words = f"RMSE in the units of y, medians over {seeds} seeds." if seeds > 1 else "RMSE in the units of y, one seed."
    return f"{markdown_table(header, rows, num_text=1)}\n\n{words} {_origin(everything)}"


def _origin(records: Sequence[Record]) -> str:
    """Which versions of the code the records are of."""
    commits = sorted({record.provenance["commit"] for record in records})
    if len(commits) <= 1:
        return f"All fits are by commit {''.join(commits)}."
    return f"The fits are by commits {', '.join(commits)}: run again with `--renew` to have one."


def _row(name: str, records: Sequence[Record]) -> list[str]:
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
    return [*cells, f"{median('seconds'):.0f}", verdict]


def _is_near_constant(record: Record) -> bool:
    rmse, constant = record.metrics["rmse"], record.metrics["rmse_constant"]
    return rmse is None or constant is None or rmse > NEAR_CONSTANT * constant
