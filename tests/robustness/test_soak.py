"""A long run: fit, save, load and predict repeatedly. Memory must not grow, and answers must not change.

``CVGP_SOAK_MINUTES=60 pytest -m slow tests/robustness/test_soak.py`` runs for an hour.
"""

import contextlib
import ctypes
import gc
import os
import resource
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cvgp
from tests.flat_options import make_regressor

MINUTES = float(os.environ.get("CVGP_SOAK_MINUTES", "1"))
MAX_SLOPE = 0.1
"""Megabytes per round by which resident memory may grow after the first fifth of the rounds."""
RNG = np.random.default_rng(0)
X = RNG.normal(size=(2000, 4))
Y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * RNG.normal(size=2000)


BOTH = np.column_stack([Y, Y**2])


def merged() -> cvgp.CVGPRegressor:
    parts = [
        make_regressor(20, random_state=0, solver="lbfgs", max_iter=10).fit(X[i:800:2], Y[i:800:2]) for i in (0, 1)
    ]
    return cvgp.merge(parts, n_coreset=25)


SETTINGS: dict[str, Callable[[], cvgp.CVGPRegressor]] = {
    "adam": lambda: make_regressor(40, random_state=0, solver="adam", max_iter=100).fit(X, Y),
    "lbfgs": lambda: make_regressor(30, random_state=0, solver="lbfgs", max_iter=20).fit(X[:1000], Y[:1000]),
    "float32": lambda: make_regressor(40, random_state=0, solver="adam", max_iter=60, dtype="float32").fit(X, Y),
    "two outputs": lambda: make_regressor(30, random_state=0, max_iter=30).fit(
        X[:500], np.column_stack([Y, Y**2])[:500]
    ),
    "merged": merged,
}


def resident() -> float:
    """Megabytes that the process holds, once the C library has given back what is free."""
    with contextlib.suppress(OSError, AttributeError):  # where the C library is not GNU's
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


@pytest.mark.slow
def test_memory_descriptors_and_answers_stay_the_same(tmp_path: Path) -> None:
    begin, path = time.monotonic(), tmp_path / "model.cvgp"
    expected: dict[str, np.ndarray] = {}
    memory: list[float] = []
    descriptors: list[int] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while len(memory) < 5 or time.monotonic() - begin < 60.0 * MINUTES:
            for name, fit in SETTINGS.items():
                model = fit()
                answer = np.stack(model.predict(X[:500], return_std=True))
                model.save(path)
                loaded = np.stack(cvgp.load(path).predict(X[:500], return_std=True))
                assert np.array_equal(loaded, answer), f"{name}: predictions after loading differ"
                assert np.array_equal(expected.setdefault(name, answer), answer), f"{name}: predictions changed"
            gc.collect()
            memory.append(resident())
            descriptors.append(len(os.listdir("/proc/self/fd")))
    settled = memory[len(memory) // 5 :]
    slope = np.polyfit(np.arange(len(settled)), settled, 1)[0]
    assert descriptors[-1] <= descriptors[0]
    assert [file.name for file in tmp_path.iterdir()] == ["model.cvgp"]
    assert len(memory) < 20 or slope <= MAX_SLOPE  # a few rounds say little of the growth
