"""Killing commands at random moments: fits with both solvers, saves, and predictions to two formats.

Each function kills so many times, checks after each kill that nothing is half written, and in the end that what was
gone on with is what an uninterrupted command gives.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np

import cvgp
from cvgp.training.checkpoint import JOURNAL_FILE, START_FILE, STATE_FILE
from tests.robustness.programs import commands, leftovers, table

__all__ = ["KINDS", "kill_fits", "kill_predictions", "kill_saves"]

TRIES_PER_KILL = 4
"""A command may end before the moment at which it was to be killed."""


def resume(folder: Path) -> list[str]:
    """How to go on with what a killed fit has stored: its start, which comes first, or more."""
    return ["--resume"] if folder.exists() and leftovers(folder) else []


def kill_fits(solver: str, kills: int, place: Path, seed: int = 0) -> int:
    """Kill a fit, and go on with it each time; returns how often its progress was found stored."""
    steps, file = {"adam": (1500, STATE_FILE), "lbfgs": (100, JOURNAL_FILE)}[solver]
    data, folder, out = table(1500, place / "train.csv"), place / "run", place / "model.cvgp"
    settings = ("--target", "y", "--coreset", 50, "--solver", solver, "--max-iter", steps, "--quiet")
    arguments = ("fit", data, "--out", out, *settings, "--checkpoint-dir", folder)
    moments, killed, stored = Random(f"{solver}{seed}"), 0, 0
    with commands() as run:
        life = run.finish("fit", data, "--out", place / "whole.cvgp", *settings)
        for _ in range(TRIES_PER_KILL * kills):
            ended = run.kill(moments.uniform(0.02, 0.98) * life, *arguments, *resume(folder))
            assert not folder.exists() or set(leftovers(folder)) <= {file, START_FILE}
            killed, stored = killed + (ended is None), stored + (folder / file).exists()
            if killed == kills:
                break
            if out.exists():  # it ended before its moment: the machine has become faster, or little was left to do
                cvgp.load(out)  # raises if it were half a file
                out.unlink()
                shutil.rmtree(folder)
                life = min(life, ended or life)
        run.finish(*arguments, *resume(folder))
    assert killed == kills
    resumed, whole = cvgp.load(out), cvgp.load(place / "whole.cvgp")
    assert (resumed.elbo_, resumed.n_iter_) == (whole.elbo_, whole.n_iter_)
    return stored


def kill_predictions(ending: str, kills: int, place: Path, seed: int = 0) -> None:
    """Kill a prediction: the old table or the new one is there, whole."""
    data, model, out = table(300, place / "train.csv"), place / "model.cvgp", place / f"out{ending}"
    large, moments = table(20_000, place / "large.csv"), Random(seed)
    whole = place / f"whole{ending}"
    with commands() as run:
        run.finish("fit", data, "--target", "y", "--out", model, "--coreset", 10, "--max-iter", 10, "--quiet")
        life = run.finish("predict", model, large, "--out", whole)
        new = whole.read_bytes()
        killed = 0
        for _ in range(TRIES_PER_KILL * kills):
            out.write_text("old")
            ended = run.kill(moments.uniform(0.02, 0.98) * life, "predict", model, large, "--out", out)
            assert out.read_bytes() in ((b"old", new) if ended is None else (new,))
            killed, life = killed + (ended is None), ended or life
            if killed == kills:
                break
        run.finish("predict", model, large, "--out", out)
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
    model = cvgp.CVGPRegressor(100, solver="lbfgs", max_iter=steps, random_state=0).fit(x, np.sin(x[:, 0]))
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


KINDS: dict[str, Callable[[int, Path], object]] = {
    "fit, Adam": lambda kills, place: kill_fits("adam", kills, place),
    "fit, L-BFGS": lambda kills, place: kill_fits("lbfgs", kills, place),
    "predict to CSV": lambda kills, place: kill_predictions(".csv", kills, place),
    "predict to Parquet": lambda kills, place: kill_predictions(".parquet", kills, place),
    "save": kill_saves,
}
