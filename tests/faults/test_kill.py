"""SIGKILL at twenty random moments of a fit, a save and a prediction: nothing is lost, nothing is half written."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import cvgp
from cvgp.training.checkpoint import JOURNAL_FILE, STATE_FILE
from tests.faults.programs import finish, kill_after, leftovers, start, table

KILLS = 20

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("solver", "steps", "file"), [("adam", 3000, STATE_FILE), ("lbfgs", 150, JOURNAL_FILE)], ids=["adam", "lbfgs"]
)
def test_a_fit_killed_at_ten_random_moments_ends_where_an_uninterrupted_one_does(
    solver: str, steps: int, file: str, tmp_path: Path
) -> None:
    data = table(1500, tmp_path / "train.csv")
    settings = ("--target", "y", "--coreset", 60, "--solver", solver, "--max-iter", steps, "--quiet", "--json")
    begin = time.monotonic()
    whole = json.loads(finish("fit", data, "--out", tmp_path / "whole.cvgp", *settings))
    seconds = time.monotonic() - begin
    folder, out = tmp_path / "run", tmp_path / "model.cvgp"
    arguments = ("fit", data, "--out", out, *settings, "--checkpoint-dir", folder)
    moments = random.Random(solver)
    killed = 0
    for _ in range(KILLS // 2):
        resume = ["--resume"] if (folder / file).exists() else []
        killed += kill_after(start(*arguments, *resume), moments.uniform(0.3, 1.0) * seconds)
        assert not folder.exists() or set(leftovers(folder)) <= {file}
        if out.exists():
            cvgp.load(out)  # raises if it were half a file
    assert killed > 0
    resume = ["--resume"] if (folder / file).exists() else []
    resumed = json.loads(finish(*arguments, *resume))
    assert (resumed["elbo"], resumed["iterations"]) == (whole["elbo"], whole["iterations"])


SAVER = """
import os, random, signal, sys, time
import cvgp
path, kills = sys.argv[3], int(sys.argv[4])
models = [cvgp.load(sys.argv[1]), cvgp.load(sys.argv[2])]
moments = random.Random(0)
for _ in range(kills):
    child = os.fork()
    if child == 0:
        while True:
            for model in models:
                model.save(path)
    time.sleep(moments.uniform(0.0, 0.2))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = cvgp.load(path).elbo_ if os.path.exists(path) else None
    print(found, flush=True)
"""


def saved(folder: Path, name: str, steps: int) -> Path:
    x = np.linspace(0.0, 6.0, 400)[:, None]
    model = cvgp.CVGPRegressor(100, solver="adam", max_iter=steps, random_state=0).fit(x, np.sin(x[:, 0]))
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
    assert set(found) <= possible | {"None"}
    assert leftovers(target.parent) == ["model.cvgp"]


def test_predictions_killed_at_twenty_random_moments_are_the_old_ones_or_the_new_ones(tmp_path: Path) -> None:
    data, model, out = table(300, tmp_path / "train.csv"), tmp_path / "model.cvgp", tmp_path / "out.csv"
    finish("fit", data, "--target", "y", "--out", model, "--coreset", 10, "--max-iter", 10, "--quiet")
    large = table(40_000, tmp_path / "large.csv")
    begin = time.monotonic()
    finish("predict", model, large, "--out", tmp_path / "whole.csv")
    seconds = time.monotonic() - begin
    new, moments = (tmp_path / "whole.csv").read_bytes(), random.Random(0)
    killed = 0
    for _ in range(KILLS):
        out.write_text("old")
        # Most of the time goes by before the first byte is written, so most moments are chosen towards the end.
        killed += kill_after(start("predict", model, large, "--out", out), moments.uniform(0.5, 1.1) * seconds)
        assert out.read_bytes() in (b"old", new)
    finish("predict", model, large, "--out", out)
    assert killed > 0
    pd.testing.assert_frame_equal(pd.read_csv(out), pd.read_csv(tmp_path / "whole.csv"))
