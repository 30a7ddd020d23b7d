"""Measuring in another process: a worker gets a split and settings, and what it predicts is scored here."""

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import cvgp
from experiments.peers.environments import ROOT, WORK_FOLDER, PeerError, interpreter
from experiments.scores import marginal_scores
from experiments.splits import Split
from experiments.store import Metrics, Outcome

__all__ = ["Session", "fit_in_worker", "median_times", "median_times_of"]

Arrays = Mapping[str, NDArray[np.float64]]
Settings = Mapping[str, Any]
Score = Callable[[NDArray[np.float64], Arrays], Metrics]
"""From the observations and the arrays of a prediction to its scores."""

OWN = "cvgp"
"""The worker that runs in this very environment; each of the others, ``peers/NAME.py``, has one of its own."""

PATIENCE = 1800.0
"""Seconds after which a worker without a budget is given up."""
BUDGETS_OF_PATIENCE = 10.0
LEAST_PATIENCE = 300.0
"""One with a budget may overrun it, since some cannot be stopped, but not without end."""
BLOCK_SECONDS = 0.4
"""How long one worker is timed before it is the other's turn: a slow spell of the machine then affects both."""

WARM_UP_CALLS = 3


def _mean_and_sd(y: NDArray[np.float64], found: Arrays) -> Metrics:
    return marginal_scores(y, found["mean"], found["sd"])


def fit_in_worker(
    worker: str,
    settings: Settings,
    split: Split,
    *,
    threads: int,
    extra: Arrays | None = None,
    score: Score = _mean_and_sd,
) -> Outcome:
    """Fit in a process of its own; everything that it predicted on the way is scored."""
    python = _python(worker)
    patience = PATIENCE
    if "budget" in settings:
        patience = max(LEAST_PATIENCE, BUDGETS_OF_PATIENCE * settings["budget"])
    arrays = {"x": split.x, "y": split.y, "x_test": split.x_test, **(extra or {})}
    with _folder(settings, arrays, threads) as folder:
        try:
            done = subprocess.run(
                _command(python, worker, folder),
                env=_environment(worker, threads),
                capture_output=True,
                text=True,
                timeout=patience,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise PeerError(f"{worker} had no result after {patience:g} seconds") from error
        said = list(_parse(done.stdout.splitlines()))
        end = _end(worker, said, done.stderr)
        trace = [_scored(line, folder, split.y_test, score) for line in said if "prediction" in line]
    if not trace:
        raise PeerError(f"{worker} ended without a prediction")
    numbers = {name: float(value) for name, value in end.items() if not isinstance(value, str)}
    return Outcome(trace[-1] | numbers, trace=trace, origin=_versions(said) | _words(end))


class Session:
    """A worker that makes calls and times them whenever it is asked, so that two can take turns."""

    def __init__(self, worker: str, settings: Settings, arrays: Arrays, *, threads: int) -> None:
        self.worker = worker
        python = _python(worker)  # may fail, so it comes before there is anything to clean up
        self._closing = ExitStack()
        folder = self._closing.enter_context(_folder(settings, arrays, threads))
        self._errors = self._closing.enter_context((folder / "errors.txt").open("w+", encoding="utf-8"))
        self._process = self._closing.enter_context(
            subprocess.Popen(
                _command(python, worker, folder),
                env=_environment(worker, threads),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
            )
        )
        self._closing.callback(self._process.kill)  # this very process, which may be waiting for a number
        self._said: list[dict[str, Any]] = []

    def times(self, count: int) -> list[float]:
        """Seconds of each of `count` calls."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{count}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; its last words say why
        times = self._until("times")
        if not isinstance(times, list):
            raise PeerError(f"{self.worker} ended before it had been asked to")
        return times

    def finish(self) -> dict[str, Any]:
        """End the worker; returns what it wanted to add, with its versions and other words as text."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return dict(self._until("done")) | _versions(self._said)

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    def _until(self, name: str) -> Any:
        assert self._process.stdout is not None
        for line in _parse(self._process.stdout):
            self._said.append(line)
            if name in line:
                return line[name]
            if "error" in line:
                break
        self._process.wait()
        self._errors.seek(0)
        return _end(self.worker, self._said, self._errors.read())


def median_times(sessions: Sequence[Session], rounds: int) -> list[float]:
    """Median seconds of a call of each worker."""
    blocks = [_block_size(session) for session in sessions]
    times: list[list[float]] = [[] for _ in sessions]
    for _ in range(rounds):
        for session, block, found in zip(sessions, blocks, times, strict=True):
            found += session.times(block)
    return [median(found) for found in times]


def median_times_of(session: Session, rounds: int) -> float:
    """The same for one worker by itself."""
    return median_times([session], rounds)[0]


def _block_size(session: Session) -> int:
    session.times(WARM_UP_CALLS)
    each = median(session.times(WARM_UP_CALLS))
    return max(1, math.ceil(BLOCK_SECONDS / each))


@contextmanager
def _folder(settings: Settings, arrays: Arrays, threads: int) -> Iterator[Path]:
    WORK_FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK_FOLDER) as name:
        folder = Path(name)
        np.savez(folder / "data.npz", **arrays)
        (folder / "settings.json").write_text(json.dumps({**settings, "threads": threads}), encoding="utf-8")
        yield folder


def _python(worker: str) -> Path:
    return Path(sys.executable) if worker == OWN else interpreter(worker)


def _command(python: Path, worker: str, folder: Path) -> Sequence[str]:
    return [str(python), "-m", f"experiments.peers.{worker}", str(folder)]


def _environment(worker: str, threads: int) -> dict[str, str]:
    paths = [str(ROOT)] + ([str(Path(cvgp.__file__).parent.parent)] if worker == OWN else [])
    counts = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return os.environ | dict.fromkeys(counts, str(threads)) | {"PYTHONPATH": os.pathsep.join(paths)}


def _parse(lines: Any) -> Iterator[dict[str, Any]]:
    """The worker's own lines, among whatever its library prints."""
    for line in lines:
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue


def _end(worker: str, said: Sequence[dict[str, Any]], errors: str) -> dict[str, Any]:
    for line in said:
        if "error" in line:
            raise PeerError(f"{worker}: {line['error']}")
        if "done" in line:
            return dict(line["done"])
    last = errors.strip().splitlines()[-1:]
    raise PeerError(f"{worker} died: {' '.join(last) or 'it left no message'}")


def _scored(line: dict[str, Any], folder: Path, y: NDArray[np.float64], score: Score) -> Metrics:
    with np.load(folder / line["prediction"]) as found:
        return score(y, dict(found)) | {name: line[name] for name in ("seconds", "predict_seconds")}


def _versions(said: Sequence[dict[str, Any]]) -> dict[str, str]:
    return dict(next((line["versions"] for line in said if "versions" in line), {}))


def _words(end: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in end.items() if isinstance(value, str)}
