"""Interrupting a fit and going on with it, by real processes and signals."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cvgp.estimators.regressor import CVGPRegressor
from cvgp.files import read_state
from tests.cli.conftest import Run, make_table

# A shell without job control starts its background commands with SIGINT ignored, and children inherit that.
START = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from cvgp.__main__ import main
main()
"""
FIT = ("--target", "price", "--n-coreset", "100", "--solver", "lbfgs", "--max-iter", "100", "--json")


@pytest.fixture
def train(tmp_path: Path) -> Path:
    make_table(1500).to_csv(tmp_path / "train.csv", index=False)
    return tmp_path / "train.csv"


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", START, *(str(argument) for argument in arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})


def wait_until_larger(path: Path, size: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 300.0
    while not (path.exists() and path.stat().st_size > size):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.slow
def test_ctrl_c_keeps_progress_and_resume_ends_where_an_uninterrupted_fit_does(
    run: Run, train: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    arguments = ("fit", train, "--out", tmp_path / "m", *FIT, "--checkpoint-dir", folder)
    process = start(*arguments)
    wait_until_larger(folder / "lbfgs.safetensors", 0, process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=300)
    assert (process.returncode, output) == (130, "")
    assert "Traceback" not in errors
    assert errors.strip().endswith(f"The same command continues from the progress in {folder}.")

    resumed = json.loads(run(*arguments).stdout)
    whole = json.loads(run("fit", train, "--out", tmp_path / "m2", *FIT).stdout)
    assert resumed["elbo_per_row"] == pytest.approx(whole["elbo_per_row"], abs=0.02)


@pytest.mark.slow
def test_termination_without_a_checkpoint_says_which_flag_would_keep_progress(train: Path, tmp_path: Path) -> None:
    process = start("fit", train, "--out", tmp_path / "m", *FIT)
    assert process.stderr is not None
    while not process.stderr.readline().lstrip().startswith("choose"):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=300)
    assert (process.returncode, "--checkpoint-dir FOLDER keeps it the next time" in errors) == (143, True)


@pytest.mark.slow
def test_termination_stores_the_last_step_and_resume_ends_where_an_uninterrupted_fit_does(
    run: Run, train: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    solver = ("--solver", "adam", "--max-iter", 5000, "--n-neighbors", 0)
    settings = ("--target", "price", "--n-coreset", 20, *solver, "--json")
    arguments = ("fit", train, "--out", tmp_path / "m", *settings, "--checkpoint-dir", folder)
    process = start(*arguments)
    # The steps begin once the start is stored. Without neighbours, nothing lies between.
    wait_until_larger(folder / "decisions.safetensors", 0, process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=300)
    assert (process.returncode, "The same command continues" in errors) == (143, True)
    assert 0 < read_state(folder / "adam.safetensors")["step"] < 5000

    resumed = json.loads(run(*arguments).stdout)
    whole = json.loads(run("fit", train, "--out", tmp_path / "m2", *settings).stdout)
    assert (resumed["elbo"], resumed["iterations"]) == (whole["elbo"], whole["iterations"])


def test_an_interrupt_while_the_model_is_stored_says_how_to_go_on(
    run: Run, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: CVGPRegressor, path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CVGPRegressor, "save", interrupted)
    quick = ("--n-coreset", 5, "--max-iter", 5, "--quiet", "--checkpoint-dir", tmp_path / "c")
    result = run("fit", table, "--target", "price", "--out", tmp_path / "m", *quick)
    assert (result.exit_code, "The same command continues" in result.stderr) == (130, True)
