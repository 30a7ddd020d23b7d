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
from cvgp.files.tensors import read_tensors
from tests.cli.conftest import Run, flat, make_table

# A shell without job control starts its background commands with SIGINT ignored, and children inherit that.
START = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from cvgp.__main__ import main
main()
"""
FIT = ("--target", "price", "--coreset", "100", "--solver", "lbfgs", "--max-iter", "100", "--json")


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
    wait_until_larger(folder / "journal.bin", 50_000, process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=300)
    assert (process.returncode, output) == (130, "")
    assert "Traceback" not in errors
    command = " ".join(["cvgp", *(str(argument) for argument in arguments), "--resume"])
    assert errors.strip().endswith(f"Progress is kept in {folder}. Go on with:\n  {command}")

    resumed = json.loads(run(*arguments, "--resume").stdout)
    whole = json.loads(run("fit", train, "--out", tmp_path / "m2", *FIT).stdout)
    assert (resumed["elbo"], resumed["iterations"]) == (whole["elbo"], whole["iterations"])


def test_termination_without_a_checkpoint_says_which_flag_would_keep_progress(train: Path, tmp_path: Path) -> None:
    process = start("fit", train, "--out", tmp_path / "m", *FIT)
    assert process.stderr is not None
    while not process.stderr.readline().startswith("start"):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=300)
    assert (process.returncode, "--checkpoint-dir FOLDER keeps it the next time" in errors) == (143, True)


@pytest.mark.slow
def test_termination_stores_the_last_step_and_resume_ends_where_an_uninterrupted_fit_does(
    run: Run, train: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    solver = ("--solver", "adam", "--max-iter", 5000, "--neighbors", 0)
    settings = ("--target", "price", "--coreset", 20, *solver, "--json")
    arguments = ("fit", train, "--out", tmp_path / "m", *settings, "--checkpoint-dir", folder)
    process = start(*arguments)
    # The steps begin once the start is stored. Without neighbours, nothing lies between.
    wait_until_larger(folder / "start.safetensors", 0, process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=300)
    assert (process.returncode, "Go on with" in errors) == (143, True)
    assert 0 < read_tensors(folder / "state.safetensors")[1]["step"] < 5000

    resumed = json.loads(run(*arguments, "--resume").stdout)
    whole = json.loads(run("fit", train, "--out", tmp_path / "m2", *settings).stdout)
    assert (resumed["elbo"], resumed["iterations"]) == (whole["elbo"], whole["iterations"])


def test_an_interrupt_while_the_model_is_stored_says_how_to_go_on(
    run: Run, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: CVGPRegressor, path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CVGPRegressor, "save", interrupted)
    quick = ("--coreset", 5, "--max-iter", 5, "--quiet", "--checkpoint-dir", tmp_path / "c")
    result = run("fit", table, "--target", "price", "--out", tmp_path / "m", *quick)
    assert (result.exit_code, "Go on with" in result.stderr) == (130, True)


def test_resume_needs_a_folder(run: Run, table: Path, tmp_path: Path) -> None:
    result = run("fit", table, "--target", "price", "--out", tmp_path / "m", "--resume")
    assert (result.exit_code, "--checkpoint-dir" in result.stderr) == (2, True)


def test_resume_needs_a_stored_run(run: Run, table: Path, tmp_path: Path) -> None:
    arguments = ("--checkpoint-dir", tmp_path / "empty", "--resume")
    result = run("fit", table, "--target", "price", "--out", tmp_path / "m", *arguments)
    assert (result.exit_code, "there is no stored run" in flat(result.stderr)) == (2, True)


def test_an_earlier_run_is_neither_overwritten_nor_gone_on_with_unasked(run: Run, table: Path, tmp_path: Path) -> None:
    quick = ("--coreset", 5, "--max-iter", 5, "--quiet", "--checkpoint-dir", tmp_path / "c")
    arguments = ("fit", table, "--target", "price", "--out", tmp_path / "m", *quick)
    run(*arguments)
    result = run(*arguments)
    assert result.exit_code == 2
    assert "add --resume to go on with it, or name another folder" in flat(result.stderr)


def test_less_time_does_not_replace_a_finished_model_by_a_worse_one(run: Run, table: Path, tmp_path: Path) -> None:
    arguments = ("fit", table, "--target", "price", "--out", tmp_path / "m", "--coreset", 5, "--json")
    folder = ("--checkpoint-dir", tmp_path / "c")
    first = json.loads(run(*arguments, *folder).stdout)
    again = json.loads(run(*arguments, *folder, "--resume", "--max-time", 0.001).stdout)
    assert (again["elbo"], again["iterations"]) == (first["elbo"], first["iterations"])


def test_a_run_of_another_table_is_not_gone_on_with(run: Run, table: Path, tmp_path: Path) -> None:
    quick = ("--coreset", 5, "--max-iter", 5, "--quiet", "--checkpoint-dir", tmp_path / "c")
    run("fit", table, "--target", "price", "--out", tmp_path / "m", *quick)
    make_table(60, seed=1).to_csv(table, index=False)
    result = run("fit", table, "--target", "price", "--out", tmp_path / "m", *quick, "--resume")
    assert (result.exit_code, "belongs to another fit" in flat(result.stderr)) == (1, True)


def test_a_checkpoint_folder_that_cannot_be_made_is_refused_before_the_table_is_read(run: Run, table: Path) -> None:
    arguments = ("--target", "price", "--out", table.with_name("m"), "--checkpoint-dir", table / "folder")
    result = run("fit", table.with_name("no-such-table.csv"), *arguments)
    assert (result.exit_code, "Could not make" in result.stderr) == (1, True)
