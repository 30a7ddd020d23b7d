"""Settings shared by all tests: one thread per worker, repeatable hypothesis runs, data sets by name."""

import os

# Two workers with a thread pool each would fight for two cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"

from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

hypothesis.settings.register_profile("cvgp", deadline=None, derandomize=True)
hypothesis.settings.load_profile("cvgp")

FloatArray = npt.NDArray[np.float64]


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """A Ray cluster on this machine."""
    import ray

    from cvgp.adapters.ray import connect

    os.environ.setdefault("RAY_worker_niceness", "0")  # or the workers wait for whatever else the machine does
    connect("local")
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def uci() -> Callable[[str], tuple[FloatArray, FloatArray]]:
    """Load ``(X [N, D], y [N])`` of a UCI data set by name, or skip the test where there are no data sets."""

    def load(name: str) -> tuple[FloatArray, FloatArray]:
        folder = os.environ.get("CVGP_DATA")
        if not folder:
            pytest.skip(f"data set {name!r}: set CVGP_DATA to the folder that holds uci/{name}.csv.gz")
        table = pd.read_csv(Path(folder) / "uci" / f"{name}.csv.gz", header=None).to_numpy(dtype=np.float64)
        return table[:, :-1], table[:, -1]

    return load
