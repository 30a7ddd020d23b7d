"""A fit that was killed or stopped goes on to the result of one that was not."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cvgp import CVGPRegressor
from cvgp.errors import CVGPError, InvalidInputError
from cvgp.files.tensors import read_tensors
from cvgp.objectives.full_batch import TitsiasObjective
from cvgp.training import maximise, minibatches
from cvgp.training.checkpoint import JOURNAL_FILE, START_FILE, STATE_FILE
from cvgp.training.monitor import FitEvent

rng = np.random.default_rng(6)
X = rng.uniform(-3.0, 3.0, size=(40, 1))
Y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)

SETTINGS: dict[str, dict[str, Any]] = {
    "adam": {"solver": "adam", "max_iter": 120, "batch_size": 10},
    "early stopping": {
        "solver": "adam",
        "max_iter": 120,
        "batch_size": 10,
        "early_stopping": True,
        "n_iter_no_change": 1000,
    },
    "lbfgs": {"solver": "lbfgs", "max_iter": 40, "tol": 0.0},
}
# What the child process runs: the same fit, slow enough to be killed on the way, and storing whenever it may.
SCRIPT = """
import sys, time
import numpy as np
from cvgp import CVGPRegressor
from cvgp.training import checkpoint
checkpoint.SECONDS_BETWEEN = 0.0
data = np.load(sys.argv[1])

def slow_down(event):
    if not event.phase.startswith("start"):
        time.sleep(0.02)

model = CVGPRegressor(5, random_state=1, checkpoint_dir=sys.argv[2], callbacks=[slow_down], **eval(sys.argv[3]))
model.fit(data["x"], data["y"])
"""


def estimator(solver: str, folder: Path | None = None, **options: Any) -> CVGPRegressor:
    return CVGPRegressor(5, random_state=1, checkpoint_dir=folder, **{**SETTINGS[solver], **options})


def progress(folder: Path) -> int:
    """Bytes that a run has stored."""
    return sum((folder / name).stat().st_size for name in (STATE_FILE, JOURNAL_FILE) if (folder / name).exists())


def run_and_kill(solver: str, folder: Path, delay: float) -> int:
    """Start the fit in a process of its own and kill it `delay` seconds after it has stored a few evaluations."""
    data = folder.with_suffix(".npz")
    np.savez(data, x=X, y=Y)
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(data), str(folder), repr(SETTINGS[solver])]
    before = progress(folder)
    child = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())})
    deadline = time.monotonic() + 300.0
    while progress(folder) < before + 600 and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(delay)
    child.send_signal(signal.SIGKILL)
    return child.wait()


@pytest.fixture(scope="module")
def uninterrupted() -> dict[str, CVGPRegressor]:
    return {solver: estimator(solver).fit(X, Y) for solver in SETTINGS}


@pytest.fixture(scope="module", params=["adam", "lbfgs"])
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The folder of a run that was killed at a random moment."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    assert run_and_kill(request.param, folder, random.uniform(0.0, 0.3)) == -signal.SIGKILL
    return request.param, folder


def test_killed_run_goes_on_to_the_same_predictions(
    killed: tuple[str, Path], uninterrupted: dict[str, CVGPRegressor], tmp_path: Path
) -> None:
    solver, folder = killed
    copy = shutil.copytree(folder, tmp_path / "copy")
    resumed = estimator(solver, copy).fit(X, Y)
    for found, expected in zip(
        resumed.predict(X, return_std=True), uninterrupted[solver].predict(X, return_std=True), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


def test_killed_run_leaves_nothing_half_written(killed: tuple[str, Path]) -> None:
    solver, folder = killed
    stored = {path.name for path in folder.iterdir() if not path.name.startswith(".cvgp-")}
    assert stored == {START_FILE, STATE_FILE if solver == "adam" else JOURNAL_FILE}
    if solver == "adam":
        assert read_tensors(folder / STATE_FILE)[1]["step"] > 0


def test_killed_run_does_not_begin_again(
    killed: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solver, folder = killed
    copy = shutil.copytree(folder, tmp_path / "copy")
    evaluations: list[FitEvent] = []
    steps: list[int] = []
    evaluate = TitsiasObjective.value_and_backward

    def counted(self: TitsiasObjective, scale: float = 1.0) -> float:
        steps.append(1)
        return evaluate(self, scale)

    monkeypatch.setattr(TitsiasObjective, "value_and_backward", counted)
    resumed = estimator(solver, copy, callbacks=[evaluations.append]).fit(X, Y)
    if solver == "adam":
        assert next(event.iteration for event in evaluations if event.phase == "adam") > 50
    else:
        starts = sum(event.phase != "lbfgs" for event in evaluations)
        assert len(steps) < starts + resumed.n_iter_


@pytest.mark.slow
@pytest.mark.parametrize("solver", SETTINGS)
def test_run_that_is_killed_again_and_again_ends_the_same(
    solver: str, uninterrupted: dict[str, CVGPRegressor], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    for _ in range(4):
        run_and_kill(solver, folder, random.uniform(0.0, 0.5))
    resumed = estimator(solver, folder).fit(X, Y)
    np.testing.assert_array_equal(resumed.predict(X), uninterrupted[solver].predict(X))


@pytest.mark.parametrize("solver", SETTINGS)
def test_run_that_a_callback_stopped_goes_on_to_the_same_predictions(
    solver: str, uninterrupted: dict[str, CVGPRegressor], tmp_path: Path
) -> None:
    def stop(event: FitEvent) -> bool:
        return event.phase == SETTINGS[solver]["solver"] and event.iteration == 17

    estimator(solver, tmp_path, callbacks=[stop]).fit(X, Y)
    resumed = estimator(solver, tmp_path).fit(X, Y)
    np.testing.assert_array_equal(resumed.predict(X), uninterrupted[solver].predict(X))


@pytest.mark.parametrize("stop_at", [5, 8, 17, 39])
def test_search_in_stretches_goes_on_to_the_same_predictions(
    stop_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maximise, "stretch_length", lambda size: 8)
    whole = estimator("lbfgs").fit(X, Y)
    stop = lambda event: event.phase == "lbfgs" and event.iteration == stop_at  # noqa: E731
    estimator("lbfgs", tmp_path, callbacks=[stop]).fit(X, Y)
    resumed = estimator("lbfgs", tmp_path).fit(X, Y)
    assert whole.n_iter_ == resumed.n_iter_ == 40
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))
    parameters = 5 + 3  # pseudo-inputs, lengthscale, outputscale, noise
    assert (tmp_path / JOURNAL_FILE).stat().st_size < 300 + 9 * (8 * parameters + 60)


@pytest.mark.parametrize("solver", SETTINGS)
def test_finished_run_is_found_again(solver: str, uninterrupted: dict[str, CVGPRegressor], tmp_path: Path) -> None:
    estimator(solver, tmp_path).fit(X, Y)
    again = estimator(solver, tmp_path).fit(X, Y)
    np.testing.assert_array_equal(again.predict(X), uninterrupted[solver].predict(X))


def test_run_that_stopped_early_takes_no_further_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minibatches, "STEPS_BETWEEN_CHECKS", 1)
    options = {"n_iter_no_change": 2, "learning_rate": 0.5}
    first = estimator("early stopping", tmp_path, **options).fit(X, Y)
    again = estimator("early stopping", tmp_path, **options).fit(X, Y)
    assert first.converged_
    assert again.n_iter_ == first.n_iter_


def test_precision_that_had_grown_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(())

    def grow_at_the_second_look(self: object) -> bool:
        return next(answers, False)

    monkeypatch.setattr(minibatches.Precision, "_too_large", grow_at_the_second_look)
    answers = iter((False, True))
    whole = estimator("adam").fit(X, Y)
    answers = iter((False, True))
    estimator("adam", tmp_path, callbacks=[lambda e: e.phase == "adam" and e.iteration == 73]).fit(X, Y)
    resumed = estimator("adam", tmp_path).fit(X, Y)
    np.testing.assert_array_equal(resumed.predict(X), whole.predict(X))


def test_history_of_a_resumed_run_is_whole(tmp_path: Path) -> None:
    estimator("adam", tmp_path, callbacks=[lambda e: e.phase == "adam" and e.iteration == 73]).fit(X, Y)
    history = estimator("adam", tmp_path).fit(X, Y).history_
    assert history["iteration"][history["phase"] == "adam"].tolist() == list(range(1, 121))


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
@pytest.mark.parametrize("change", ["data", "parameters"])
def test_checkpoint_of_another_fit_is_refused_with_advice(solver: str, change: str, tmp_path: Path) -> None:
    estimator(solver, tmp_path, max_iter=3).fit(X, Y)
    other = estimator(solver, tmp_path, max_iter=3 if change == "data" else 4)
    with pytest.raises(InvalidInputError, match="Choose another folder, or remove this one"):
        other.fit(X, Y + 0.1 * X[:, 0] if change == "data" else Y)


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_checkpoint_of_another_power_is_refused(solver: str, tmp_path: Path) -> None:
    estimator(solver, tmp_path, max_iter=40, bound="power", power=0.5).fit(X, Y)
    with pytest.raises(InvalidInputError, match="belongs to another fit"):
        estimator(solver, tmp_path, max_iter=40, bound="power", power=0.6).fit(X, Y)


@pytest.mark.parametrize(("solver", "name"), [("adam", STATE_FILE), ("lbfgs", JOURNAL_FILE)])
def test_damaged_checkpoint_is_refused(solver: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\xfe\xdc" * 300)
    with pytest.raises(CVGPError, match=name):
        estimator(solver, tmp_path, max_iter=3).fit(X, Y)
