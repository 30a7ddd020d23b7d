"""Tables with levels, dates and gaps: the flights of 2013, and generated ones whose truth is known."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.speed.flights import flights_file

__all__ = ["PROBLEMS", "TableSplit", "make"]

Array = NDArray[np.float64]
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
    """Numbers, a season, a hundred cities, three colours, and gaps in a tenth of a number that matters."""
    rng = np.random.default_rng([3, seed])
    city = rng.integers(100, size=count)
    colour = rng.integers(3, size=count)
    day = rng.integers(0, 730, size=count)
    a, b = rng.normal(size=(2, count))
    season = np.sin(2.0 * np.pi * day / 365.2425)
    f = np.tanh(a) * 1.5 + 0.5 * b**2 + rng.normal(size=100)[city] + season + np.array([0.0, 0.5, -0.5])[colour] * b
    frame = pd.DataFrame(
        {
            "a": np.where(rng.random(count) < 0.1, np.nan, a),
            "b": b,
            "city": [f"city {i}" for i in city],
            "colour": np.array(["blue", "green", "red"])[colour],
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
