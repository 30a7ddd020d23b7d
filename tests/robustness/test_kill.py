"""SIGKILL at twenty random moments of a fit, a save and a prediction: nothing is lost, nothing is half written."""

import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest

import cvgp
from cvgp.training.checkpoint import JOURNAL_FILE, START_FILE, STATE_FILE
from tests.robustness.programs import commands, leftovers, table

KILLS = 20
MOST_TRIES = 60
"""A command may end before the moment at which it was to be killed."""

pytestmark = pytest.mark.slow


def resume(folder: Path) -> list[str]:
    """How to go on with what a killed fit has stored: its start, which comes first, or more."""
    return ["--resume"] if folder.exists() and leftovers(folder) else []


@pytest.mark.parametrize(
    ("solver", "steps", "file"), [("adam", 1500, STATE_FILE), ("lbfgs", 100, JOURNAL_FILE)], ids=["adam", "lbfgs"]
)
def test_a_fit_killed_at_ten_random_moments_ends_where_an_uninterrupted_one_does(
    solver: str, steps: int, file: str, tmp_path: Path
) -> None:
    data, folder, out = table(1500, tmp_path / "train.csv"), tmp_path / "run", tmp_path / "model.cvgp"
    settings = ("--target", "y", "--coreset", 50, "--solver", solver, "--max-iter", steps, "--quiet")
    arguments = ("fit", data, "--out", out, *settings, "--checkpoint-dir", folder)
    moments, killed, stored = Random(solver), 0, 0
    with commands() as run:
        life = run.finish("fit", data, "--out", tmp_path / "whole.cvgp", *settings)
        for _ in range(MOST_TRIES):
            ended = run.kill(moments.uniform(0.02, 0.98) * life, *arguments, *resume(folder))
            assert not folder.exists() or set(leftovers(folder)) <= {file, START_FILE}
            killed, stored = killed + (ended is None), stored + (folder / file).exists()
            if killed == KILLS // 2:
                break
            if out.exists():  # it ended before its moment: the machine has become faster, or little was left to do
                cvgp.load(out)  # raises if it were half a file
                out.unlink()
                shutil.rmtree(folder)
                life = min(life, ended or life)
        run.finish(*arguments, *resume(folder))
    assert killed == KILLS // 2
    assert stored > 0
    resumed, whole = cvgp.load(out), cvgp.load(tmp_path / "whole.cvgp")
    assert (resumed.elbo_, resumed.n_iter_) == (whole.elbo_, whole.n_iter_)


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


def saved(folder: Path, name: str, steps: int) -> Path:
    x = np.linspace(0.0, 6.0, 400)[:, None]
    model = cvgp.CVGPRegressor(100, solver="lbfgs", max_iter=steps, random_state=0).fit(x, np.sin(x[:, 0]))
    model.save(folder / name)
    return folder / name


def test_a_save_killed_at_twenty_random_moments_leaves_one_whole_model(tmp_path: Path) -> None:
    first, second = saved(tmp_path, "first.cvgp", 5), saved(tmp_path, "second.cvgp", 10)
    (tmp_path / "target").mkdir()
    target = tmp_path / "target" / "model.cvgp"
    command = [sys.executable, "-c", SAVER, first, second, target, str(KILLS)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    possible = {str(cvgp.load(path).elbo_) for path in (first, second)}
    assert len(found) == KILLS
    assert set(found) <= possible
    assert leftovers(target.parent) == ["model.cvgp"]


def test_predictions_killed_at_twenty_random_moments_are_the_old_ones_or_the_new_ones(tmp_path: Path) -> None:
    data, model, out = table(300, tmp_path / "train.csv"), tmp_path / "model.cvgp", tmp_path / "out.csv"
    large, moments = table(20_000, tmp_path / "large.csv"), Random(0)
    with commands() as run:
        run.finish("fit", data, "--target", "y", "--out", model, "--coreset", 10, "--max-iter", 10, "--quiet")
        life = run.finish("predict", model, large, "--out", tmp_path / "whole.csv")
        new = (tmp_path / "whole.csv").read_bytes()
        killed = 0
        for _ in range(MOST_TRIES):
            out.write_text("old")
            ended = run.kill(moments.uniform(0.02, 0.98) * life, "predict", model, large, "--out", out)
            assert out.read_bytes() in ((b"old", new) if ended is None else (new,))
            killed, life = killed + (ended is None), ended or life
            if killed == KILLS:
                break
        run.finish("predict", model, large, "--out", out)
    assert killed == KILLS
    assert out.read_bytes() == new
