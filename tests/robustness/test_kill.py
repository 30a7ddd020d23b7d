"""SIGKILL at random moments of a fit, a save and a prediction: nothing is lost, nothing is half written."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import pytest

import cvgp
from cvgp.fitting.checkpoint import ADAM_FILE, DECISIONS_FILE, LBFGS_FILE
from tests.cli.shell import Shell, shell

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with shell(tmp_path_factory.mktemp("shell")) as opened:
        yield opened


def finish(commands: Shell, *arguments: object) -> float:
    """Run a command that must end well; gives the seconds that it took."""
    ended = commands.run(*arguments)
    assert ended.code == 0, ended.err
    return ended.seconds


def kill(commands: Shell, after: float, *arguments: object) -> float | None:
    """Kill a command after some seconds; gives the seconds that it took if it ended well before that."""
    ended = commands.run(*arguments, kill_after=after)
    assert ended.code in (0, -9), ended.err
    return ended.seconds if ended.code == 0 else None


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


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_a_fit_killed_at_ten_random_moments_ends_where_an_uninterrupted_one_does(
    commands: Shell, solver: str, tmp_path: Path
) -> None:
    steps, file = {"adam": (1500, ADAM_FILE), "lbfgs": (100, LBFGS_FILE)}[solver]
    data, folder, out = table(1500, tmp_path / "train.csv"), tmp_path / "run", tmp_path / "model.cvgp"
    settings = ("--target", "y", "--n-coreset", 50, "--solver", solver, "--max-iter", steps, "--quiet")
    arguments = ("fit", data, "--out", out, "--overwrite", *settings, "--checkpoint-dir", folder)
    moments, killed, stored = Random(solver), 0, 0
    life = finish(commands, "fit", data, "--out", tmp_path / "whole.cvgp", *settings)
    for _ in range(TRIES_PER_KILL * 10):
        ended = kill(commands, moments.uniform(0.02, 0.98) * life, *arguments)
        assert not folder.exists() or set(leftovers(folder)) <= {file, DECISIONS_FILE}
        killed, stored = killed + (ended is None), stored + (folder / file).exists()
        if killed >= 10 and stored:
            break
        if out.exists():  # it ended before its moment: the machine has become faster, or little was left to do
            cvgp.load(out)  # raises if it were half a file
            out.unlink()
            shutil.rmtree(folder)
            life = min(life, ended or life)
        elif not stored:  # a machine that has become busy gets to its first checkpoint later
            life *= 1.2
    finish(commands, *arguments)
    assert killed >= 10
    assert stored > 0
    resumed, whole = cvgp.load(out), cvgp.load(tmp_path / "whole.cvgp")
    if solver == "adam":
        assert (resumed.elbo_, resumed.n_iter_) == (whole.elbo_, whole.n_iter_)
    else:  # a resumed search takes another course to an optimum that is as good
        assert resumed.elbo_ > whole.elbo_ - 0.01 * whole.n_rows_


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_predictions_killed_at_twenty_random_moments_are_the_old_ones_or_the_new_ones(
    commands: Shell, ending: str, tmp_path: Path
) -> None:
    data, model, out = table(300, tmp_path / "train.csv"), tmp_path / "model.cvgp", tmp_path / f"out{ending}"
    large, whole, moments, killed = table(20_000, tmp_path / "large.csv"), tmp_path / f"whole{ending}", Random(0), 0
    finish(commands, "fit", data, "--target", "y", "--out", model, "--n-coreset", 10, "--max-iter", 10, "--quiet")
    life = finish(commands, "predict", model, large, "--out", whole)
    again = ("predict", model, large, "--out", out, "--overwrite")
    new = whole.read_bytes()
    for _ in range(TRIES_PER_KILL * 20):
        out.write_text("old")
        ended = kill(commands, moments.uniform(0.02, 0.98) * life, *again)
        assert out.read_bytes() in ((b"old", new) if ended is None else (new,))
        killed, life = killed + (ended is None), ended or life
        if killed == 20:
            break
    assert killed == 20
    finish(commands, *again)
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


def test_a_save_killed_at_twenty_random_moments_leaves_one_whole_model(tmp_path: Path) -> None:
    first, second = _saved(tmp_path, "first.cvgp", 5), _saved(tmp_path, "second.cvgp", 10)
    (tmp_path / "target").mkdir()
    target = tmp_path / "target" / "model.cvgp"
    command = [sys.executable, "-c", SAVER, first, second, target, "20"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    possible = {str(cvgp.load(path).elbo_) for path in (first, second)}
    assert len(found) == 20
    assert set(found) <= possible
    assert leftovers(target.parent) == ["model.cvgp"]
