"""SIGKILL at random moments of a fit, a save and a prediction: nothing is lost, nothing is half written."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest

import cvgp
from cvgp.fitting.checkpoint import ADAM_FILE, DECISIONS_FILE, LBFGS_FILE

pytestmark = pytest.mark.slow

# Imports take most of a short command's time. They are paid for once, and each command is a fork of what has paid.
SERVER = """
import importlib, json, os, signal, sys, time
import cvgp.cli
for name in ("torch", "gpytorch", "pandas", "pyarrow.parquet", "sklearn.cluster", "scipy.optimize", "cvgp.cli",
             "cvgp.estimators.predictive", "cvgp.cli.info", "cvgp.cli.predict", "cvgp.cli.fit",
             "cvgp.estimators.regressor", "cvgp.estimators.persistence", "cvgp.tables.table",
             "cvgp.tables.write", "cvgp.plots.drawing"):
    importlib.import_module(name)
print("ready", flush=True)
for line in sys.stdin:
    arguments, kill_after = json.loads(line)
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        cvgp.cli.app(arguments, prog_name="cvgp")
    status = None
    while status is None and (kill_after is None or time.monotonic() - begin < kill_after):
        done, found = os.waitpid(child, os.WNOHANG)
        status = found if done else None
        time.sleep(0.001)
    if status is None:
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    print(json.dumps([code, time.monotonic() - begin]), flush=True)
"""


class Commands:
    """Runs commands, and kills some of them."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        self._server = server

    def finish(self, *arguments: object) -> float:
        """A command that must end well; gives the seconds that it took."""
        code, seconds = self._run(arguments, None)
        assert code == 0
        return seconds

    def kill(self, after: float, *arguments: object) -> float | None:
        """Kill a command after some seconds; gives the seconds that it took if it ended well before that."""
        code, seconds = self._run(arguments, after)
        assert code in (0, -9)
        return seconds if code == 0 else None

    def _run(self, arguments: Any, kill_after: float | None) -> tuple[int, float]:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps([[str(a) for a in arguments], kill_after]) + "\n")
        self._server.stdin.flush()
        code, seconds = json.loads(self._server.stdout.readline())
        return code, seconds


@contextmanager
def commands() -> Iterator[Commands]:
    """A place to run commands from."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield Commands(server)


def table(rows: int, path: Path) -> Path:
    """A table with text, so that encodings are at stake too."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=rows), "b": rng.normal(size=rows), "c": rng.choice(["x", "y"], rows)})
    frame["y"] = np.sin(frame["a"]) + (frame["c"] == "x") + 0.1 * rng.normal(size=rows)
    frame.to_csv(path, index=False)
    return path


def leftovers(folder: Path) -> list[str]:
    """Files that a killed process may not leave: all but the temporary ones."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(".cvgp-"))


TRIES_PER_KILL = 4
"""A command may end before the moment at which it was to be killed."""


def kill_fits(solver: str, kills: int, place: Path, seed: int = 0) -> int:
    """Kill a fit, and go on with it each time; returns how often its progress was found stored."""
    steps, file = {"adam": (1500, ADAM_FILE), "lbfgs": (100, LBFGS_FILE)}[solver]
    data, folder, out = table(1500, place / "train.csv"), place / "run", place / "model.cvgp"
    settings = ("--target", "y", "--n-coreset", 50, "--solver", solver, "--max-iter", steps, "--quiet")
    arguments = ("fit", data, "--out", out, *settings, "--checkpoint-dir", folder)
    moments, killed, stored = Random(f"{solver}{seed}"), 0, 0
    with commands() as run:
        life = run.finish("fit", data, "--out", place / "whole.cvgp", *settings)
        for _ in range(TRIES_PER_KILL * kills):
            ended = run.kill(moments.uniform(0.02, 0.98) * life, *arguments)
            assert not folder.exists() or set(leftovers(folder)) <= {file, DECISIONS_FILE}
            killed, stored = killed + (ended is None), stored + (folder / file).exists()
            if killed == kills:
                break
            if out.exists():  # it ended before its moment: the machine has become faster, or little was left to do
                cvgp.load(out)  # raises if it were half a file
                out.unlink()
                shutil.rmtree(folder)
                life = min(life, ended or life)
        run.finish(*arguments)
    assert killed == kills
    resumed, whole = cvgp.load(out), cvgp.load(place / "whole.cvgp")
    if solver == "adam":
        assert (resumed.elbo_, resumed.n_iter_) == (whole.elbo_, whole.n_iter_)
    else:  # a resumed search takes another course to an optimum that is as good
        assert resumed.elbo_ > whole.elbo_ - 0.01 * whole.n_rows_
    return stored


def kill_predictions(ending: str, kills: int, place: Path, seed: int = 0) -> None:
    """Kill a prediction: the old table or the new one is there, whole."""
    data, model, out = table(300, place / "train.csv"), place / "model.cvgp", place / f"out{ending}"
    large, moments = table(20_000, place / "large.csv"), Random(seed)
    whole = place / f"whole{ending}"
    with commands() as run:
        run.finish("fit", data, "--target", "y", "--out", model, "--n-coreset", 10, "--max-iter", 10, "--quiet")
        life = run.finish("predict", model, large, "--out", whole)
        new = whole.read_bytes()
        killed = 0
        for _ in range(TRIES_PER_KILL * kills):
            out.write_text("old")
            ended = run.kill(moments.uniform(0.02, 0.98) * life, "predict", model, large, "--out", out, "--overwrite")
            assert out.read_bytes() in ((b"old", new) if ended is None else (new,))
            killed, life = killed + (ended is None), ended or life
            if killed == kills:
                break
        run.finish("predict", model, large, "--out", out, "--overwrite")
    assert killed == kills
    assert out.read_bytes() == new


SAVER = """
import os, random, signal, sys, time
import cvgp
path, kills = sys.argv[3], int(sys.argv[4])
models = [cvgp.load(sys.argv[1]), cvgp.load(sys.argv[2])]
models[0].save(path)
begin = time.monotonic()
models[0].save(path)
seconds = time.monotonic() - begin
moments = random.Random(0)
for _ in range(kills):
    child = os.fork()
    if child == 0:
        while True:
            for model in models[::-1]:
                model.save(path)
    time.sleep(moments.uniform(0.0, 5.0) * seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(cvgp.load(path).elbo_, flush=True)
"""


def _saved(folder: Path, name: str, steps: int) -> Path:
    x = np.linspace(0.0, 6.0, 400)[:, None]
    model = cvgp.CVGPRegressor(100, random_state=0, training=cvgp.TrainingOptions(solver="lbfgs", max_iter=steps)).fit(
        x, np.sin(x[:, 0])
    )
    model.save(folder / name)
    return folder / name


def kill_saves(kills: int, place: Path) -> None:
    """Kill a process that saves two models in turn: one of them is there, whole."""
    first, second = _saved(place, "first.cvgp", 5), _saved(place, "second.cvgp", 10)
    (place / "target").mkdir()
    target = place / "target" / "model.cvgp"
    command = [sys.executable, "-c", SAVER, first, second, target, str(kills)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    possible = {str(cvgp.load(path).elbo_) for path in (first, second)}
    assert len(found) == kills
    assert set(found) <= possible
    assert leftovers(target.parent) == ["model.cvgp"]


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_a_fit_killed_at_ten_random_moments_ends_where_an_uninterrupted_one_does(solver: str, tmp_path: Path) -> None:
    assert kill_fits(solver, 10, tmp_path) > 0  # of progress that was stored


def test_a_save_killed_at_twenty_random_moments_leaves_one_whole_model(tmp_path: Path) -> None:
    kill_saves(20, tmp_path)


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_predictions_killed_at_twenty_random_moments_are_the_old_ones_or_the_new_ones(
    ending: str, tmp_path: Path
) -> None:
    kill_predictions(ending, 20, tmp_path)
