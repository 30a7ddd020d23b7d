"""What a worker says and hears: NumPy and the standard library only, so that every peer's environment can import it.

A worker is a module that ends in ``run({name: method, ...}, versions)``. It is started with a folder that holds
`data.npz` and `settings.json`, works in a process of its own, and answers in JSON, one object a line:

- ``{"versions": {...}}`` once it has imported its library;
- ``{"seconds": s, "prediction": file, "predict_seconds": t}`` for each prediction of the test rows, which is in the
  file, as a mean and mostly a standard deviation: the caller does the scoring, with one code for all;
- ``{"times": [...]}`` for each number that it reads from its standard input, where times of single calls are asked;
- ``{"done": {...}}`` at the end, with numbers that it wants to add, or ``{"error": "..."}``.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Job",
    "Method",
    "Predict",
    "PredictArrays",
    "answer_times",
    "one_cycle",
    "peak_memory",
    "resident_memory",
    "run",
]

Array = NDArray[np.float64]
Predict = Callable[[Array], tuple[Any, Any]]
"""From inputs [n, D] to mean [n] and standard deviation [n] of y."""
PredictArrays = Callable[[Array], Mapping[str, Any]]
"""From inputs [n, D] to arrays by name, for what a mean and a standard deviation do not say."""


CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
"""What a job can be timed by. The processor's time is the sum over the threads of the process."""


class Job:
    """A split, what to do with it, and a clock that stands still while predictions are made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings: dict[str, Any] = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
        with np.load(folder / "data.npz") as data:
            self.data: dict[str, Array] = {name: data[name] for name in data.files}
        self.budget: float = self.settings.get("budget", math.inf)
        # Where other work shares the machine, the processor's time is what a method has had.
        self.now: Callable[[], float] = CLOCKS[self.settings.get("clock", "wall")]
        self._open = sorted(self.settings.get("checkpoints", ()))
        self._count = 0
        self._paused = 0.0
        self.restart()

    @property
    def x(self) -> Array:
        """Training inputs [N, D]."""
        return self.data["x"]

    @property
    def y(self) -> Array:
        """Training targets [N]."""
        return self.data["y"]

    def restart(self) -> None:
        """Set the clock to zero."""
        self._begin, self._paused = self.now(), 0.0

    @property
    def seconds(self) -> float:
        """Time used, without that of predictions."""
        return self.now() - self._begin - self._paused

    @property
    def progress(self) -> float:
        """Share of the budget that is used."""
        return self.seconds / self.budget

    @property
    def is_over(self) -> bool:
        """Whether the budget is used up."""
        return self.seconds >= self.budget

    def check(self, predict: Predict) -> None:
        """Predict if a checkpoint has been passed since the last call; a budget ends in `record`."""
        passed = [at for at in self._open if at <= self.seconds]
        if passed and not self.is_over:
            self._open = self._open[len(passed) :]
            self.record(predict)

    def record(self, predict: Predict) -> None:
        """Predict the test rows and hand the result on."""
        self.record_arrays(lambda x: dict(zip(("mean", "sd"), predict(x), strict=True)))

    def record_arrays(self, predict: PredictArrays) -> None:
        """Predict the test rows and hand on whatever arrays the prediction consists of."""
        with self._pause() as seconds:
            begin = self.now()
            found = {name: np.asarray(values, np.float64) for name, values in predict(self.data["x_test"]).items()}
            took = self.now() - begin
            self._count += 1
            name = f"prediction-{self._count}.npz"
            np.savez(self.folder / name, **found)
            say({"seconds": seconds, "prediction": name, "predict_seconds": took})

    @contextmanager
    def _pause(self) -> Iterator[float]:
        begin = self.now()
        yield begin - self._begin - self._paused
        self._paused += self.now() - begin


Method = Callable[[Job], Mapping[str, float | str]]
"""One thing that a worker can do; it returns numbers, and words such as its precision, to keep with the result."""


def run(methods: Mapping[str, Method], versions: Mapping[str, str]) -> None:
    """Do what the settings name; whatever goes wrong is said in a line."""
    say({"versions": dict(versions)})
    job = Job(Path(sys.argv[1]))
    try:
        done = methods[job.settings["method"]](job)
    except Exception as error:  # a process boundary: the caller keeps the reason
        say({"error": f"{type(error).__name__}: {error}"})
        raise SystemExit(1) from error
    say({"done": {**done, "peak_memory": peak_memory()}})


def say(line: Mapping[str, Any]) -> None:
    """One line to the caller; a library's own chatter must not share it."""
    print(f"\n{json.dumps(line)}", flush=True)


def answer_times(call: Callable[[], Any]) -> None:
    """For each number n that comes in, make n calls and answer with the seconds of each; end with the input."""
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        say({"times": times})


def one_cycle(progress: float) -> float:
    """Our own learning-rate schedule, which peers are trained with too: up over a quarter, down along a cosine."""
    if progress < 0.25:
        return 0.1 + 0.9 * 0.5 * (1.0 - math.cos(math.pi * progress / 0.25))
    fraction = min((progress - 0.25) / 0.75, 1.0)
    return 1e-3 + (1.0 - 1e-3) * 0.5 * (1.0 + math.cos(math.pi * fraction))


def peak_memory() -> float:
    """Largest resident memory of this process so far, in bytes."""
    import resource  # Unix only, as is the measurement

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak if sys.platform == "darwin" else 1024 * peak)


def resident_memory() -> float:
    """Resident memory of this process now, in bytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return float(pages * os.sysconf("SC_PAGE_SIZE"))
