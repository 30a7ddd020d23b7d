"""A long run: fit, save, load and predict again and again, looking for memory that grows and answers that change."""

import contextlib
import ctypes
import gc
import os
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import cvgp
from cvgp import CVGPRegressor
from cvgp.errors import InvalidInputError
from cvgp.paper.datasets.waves import waves
from cvgp.paper.markdown import markdown_table
from cvgp.paper.provenance import now, provenance

__all__ = ["MAX_SLOPE", "Report", "origin", "run"]

Array = NDArray[np.float64]

MAX_SLOPE = 0.1
"""Megabytes per round by which resident memory may grow after the warm-up, by a straight line through all rounds."""
WARM_UP = 0.2
"""Share of the rounds that fill caches and the allocator's pools."""
ROWS = 4000


class Report(NamedTuple):
    """What came of a run."""

    rounds: int
    seconds: float
    memory: list[float]
    """Resident megabytes after each round."""
    failures: list[str]
    descriptors: tuple[int, int] = (0, 0)
    """Open ones after the first round, and at the end."""

    @property
    def slope(self) -> float:
        """Megabytes per round, after the warm-up."""
        settled = np.array(self.memory[int(WARM_UP * len(self.memory)) :])
        return float(np.polyfit(np.arange(len(settled)), settled, 1)[0]) if len(settled) > 2 else 0.0

    @property
    def passed(self) -> bool:
        """Whether every answer was right and memory stayed."""
        return not self.failures and self.slope <= MAX_SLOPE and self.descriptors[1] <= self.descriptors[0]

    def table(self) -> str:
        """The numbers, one per row."""
        settled = self.memory[int(WARM_UP * len(self.memory)) :]
        rows = [
            ["rounds (each fits, saves, loads and predicts with every setting)", str(self.rounds)],
            ["minutes", f"{self.seconds / 60:.1f}"],
            ["settings per round", ", ".join(SETTINGS)],
            ["memory after the warm-up, MB", f"{settled[0]:.0f}"],
            ["memory at the end, MB", f"{settled[-1]:.0f}"],
            ["largest, MB", f"{max(self.memory):.0f}"],
            ["growth, MB per round", f"{self.slope:+.4f} (at most {MAX_SLOPE})"],
            ["open descriptors after the first round, and at the end", "{}, {}".format(*self.descriptors)],
            ["answers that changed", str(len(self.failures))],
        ]
        return markdown_table(["what", "value"], rows, num_text=1)


def origin() -> str:
    """A line that says where the numbers come from."""
    found = provenance()
    versions = ", ".join(f"{name} {found[name]}" for name in ("torch", "gpytorch", "numpy"))
    threads = torch.get_num_threads()
    return f"{now()[:10]}, on {found['processor']} with {threads} threads; commit {found['commit']}; {versions}."


def _data() -> tuple[Array, Array]:
    return waves(ROWS, 4)


def _adam() -> CVGPRegressor:
    return CVGPRegressor(40, solver="adam", max_iter=150, random_state=0).fit(*_data())


def _lbfgs() -> CVGPRegressor:
    x, y = _data()
    return CVGPRegressor(30, solver="lbfgs", max_iter=20, random_state=0).fit(x[:1000], y[:1000])


def _float32() -> CVGPRegressor:
    return CVGPRegressor(40, kernel="rbf", solver="adam", max_iter=100, dtype="float32", random_state=0).fit(*_data())


def _two_outputs() -> CVGPRegressor:
    x, y = _data()
    both = np.column_stack([y, y**2])
    return CVGPRegressor(30, solver="adam", max_iter=60, random_state=0).fit(x[:2000], both[:2000])


def _merged() -> CVGPRegressor:
    x, y = _data()
    shards = [
        CVGPRegressor(20, solver="lbfgs", max_iter=10, random_state=0).fit(x[i:800:2], y[i:800:2]) for i in (0, 1)
    ]
    return cvgp.merge(shards, n_coreset=25)


SETTINGS: dict[str, Callable[[], CVGPRegressor]] = {
    "adam": _adam,
    "lbfgs": _lbfgs,
    "float32": _float32,
    "two outputs": _two_outputs,
    "merged": _merged,
}


def run(minutes: float, say: Callable[[str], None] = print) -> Report:
    """Rounds for as long as told, at least two: the first tells what the others must repeat."""
    if not minutes > 0:
        raise InvalidInputError(f"minutes must be positive; got {minutes}.")
    begin = time.monotonic()
    expected: dict[str, Any] = {}
    memory: list[float] = []
    failures: list[str] = []
    descriptors: list[int] = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while len(memory) < 2 or time.monotonic() - begin < 60.0 * minutes:
            for name, fit in SETTINGS.items():
                failures += _round(name, fit(), Path(folder) / "model.cvgp", expected, len(memory))
            gc.collect()
            memory.append(_resident())
            descriptors.append(len(os.listdir("/proc/self/fd")))
            if len(memory) % 10 == 1:
                say(f"round {len(memory)}, {time.monotonic() - begin:.0f} s, {memory[-1]:.0f} MB")
    return Report(len(memory), time.monotonic() - begin, memory, failures, (descriptors[0], descriptors[-1]))


def _round(name: str, model: CVGPRegressor, path: Path, expected: dict[str, Any], number: int) -> list[str]:
    """Save, load and predict; what went wrong."""
    x = _data()[0][:500]
    answer = np.stack(model.predict(x, return_std=True))
    model.save(path)
    content = path.read_bytes()
    loaded = np.stack(cvgp.load(path).predict(x, return_std=True))
    first_answer, first_size = expected.setdefault(name, (answer, len(content)))
    wrong = {
        "predictions after loading differ": not np.array_equal(loaded, answer),
        "predictions differ from the first round's": not np.array_equal(answer, first_answer),
        "the file has another size": abs(len(content) - first_size) > 1000,  # seconds have more or fewer digits
        "files were left behind": len(list(path.parent.iterdir())) != 1,
    }
    return [f"round {number}, {name}: {what}" for what, happened in wrong.items() if happened]


def _resident() -> float:
    """Megabytes that the process holds, once the C library has given back what is free: gaps in it are no leak."""
    with contextlib.suppress(OSError, AttributeError):  # where the C library is not GNU's
        ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6
