"""UCI sets, the paper's and those of the benchmarks: what is known of them, and where they are found."""

import gzip
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from cvgp.errors import FileFormatError, MissingFileError
from cvgp.paper.datasets.fetch import DownloadError, check_recorded, fetch
from cvgp.paper.datasets.synthetic import Sample

COLLECTION = "https://raw.githubusercontent.com/treforevans/uci_datasets/master/uci_datasets"
"""Trefor Evans' collection (MIT), which the paper's authors use: the last column is the target, columns are centred."""

LICENCE = "CC BY 4.0"
"""Of the UCI machine learning repository."""


class UCISet(NamedTuple):
    """A data set and what it must look like."""

    rows: int
    inputs: int
    citation: str
    of_the_paper: bool = True
    sha256: str | None = None
    """Of the compressed file, where it is known; otherwise that of the first download is recorded and checked later."""

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
        fetch(address, target, UCI[name].sha256)
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
    check_recorded(path)
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
