"""`cvgp fit` under torchrun: one answer, one voice; and what is left when a worker is lost."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import cvgp
from tests.cli.conftest import Run, make_table
from tests.parallel.groups import torchrun, worker_pids


def finish(process: "subprocess.Popen[str]", seconds: float = 300.0) -> tuple[int, str, str]:
    output, error = process.communicate(timeout=seconds)
    return process.returncode, output, error


def predictions(path: Path) -> tuple[np.ndarray, np.ndarray]:
    model = cvgp.load(path)
    mean, sd = model.predict(make_table(50, seed=5), return_std=True)
    return mean, sd


@pytest.mark.slow
def test_two_workers_give_one_answer_which_is_that_of_one(run: Run, tmp_path: Path) -> None:
    make_table(200).to_csv(tmp_path / "table.csv", index=False)
    # One noise level: of two kinds that are as good, rounding may decide for either.
    arguments = ["fit", tmp_path / "table.csv", "--target", "price", "--n-coreset", 10, "--noise", "constant", "--json"]
    together = torchrun("-m", "cvgp", *arguments, "--out", tmp_path / "two.cvgp")
    alone = json.loads(run(*arguments, "--out", tmp_path / "one.cvgp").stdout)
    code, output, error = finish(together)
    assert code == 0, error
    facts = json.loads(output)  # of the first worker, and of no other
    # L-BFGS magnifies rounding: another size of chunks in one process differs as much.
    assert facts["elbo_per_row"] == pytest.approx(alone["elbo_per_row"], abs=0.005)
    for two, one in zip(predictions(tmp_path / "two.cvgp"), predictions(tmp_path / "one.cvgp"), strict=True):
        np.testing.assert_allclose(two, one, atol=0.1 * alone["noise_sd"])
    assert error.count("200 rows, 3 columns as 4 features (loaded, 0 MB), 2 workers") == 1


LONG = ["--target", "price", "--n-coreset", "40", "--random-state", "3", "--quiet"]
SOLVERS = {
    "adam": ["--solver", "adam", "--max-iter", "1500"],
    "lbfgs": ["--solver", "lbfgs", "--max-iter", "300", "--tol", "0", "--n-coreset", "100"],
}


def start_long(folder: Path, solver: str, *more: str, **environment: str) -> "subprocess.Popen[str]":
    table = folder / "table.csv"
    if not table.exists():
        make_table(6000).to_csv(table, index=False)
    stored = ["--out", folder / "model.cvgp", "--checkpoint-dir", folder / "progress"]
    return torchrun("-m", "cvgp", "fit", table, *LONG, *SOLVERS[solver], *stored, *more, **environment)


def wait_for_progress(folder: Path, seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not any(file.stat().st_size > 5000 for file in (folder / "progress").glob("[al]*")):
        assert time.monotonic() < deadline, "no progress was stored"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("solver", "rank"), [("adam", 1), ("lbfgs", 0)])
def test_a_killed_worker_ends_the_others_and_a_restart_goes_on(tmp_path: Path, solver: str, rank: int) -> None:
    running = start_long(tmp_path, solver)
    wait_for_progress(tmp_path)
    os.kill(worker_pids(running.pid, 2)[rank], signal.SIGKILL)
    code, output, error = finish(running, 30.0)
    assert code != 0
    assert output == ""
    assert "Another worker of this fit has ended or no longer answers" in error
    assert "The same command continues from the progress in" in error
    assert not (tmp_path / "model.cvgp").exists()

    code, _, error = finish(start_long(tmp_path, solver))
    assert code == 0, error
    resumed = predictions(tmp_path / "model.cvgp")
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    assert finish(start_long(fresh, solver))[0] == 0
    whole = predictions(fresh / "model.cvgp")
    if solver == "adam":
        np.testing.assert_array_equal(resumed, whole)
    else:  # a resumed search has no memory of curvature, and takes another course to an optimum as good
        assert np.abs(resumed[0] - whole[0]).mean() < 0.5 * whole[1].mean()


@pytest.mark.slow
def test_a_stopped_worker_is_given_up_after_the_timeout(tmp_path: Path) -> None:
    running = start_long(tmp_path, "adam", CVGP_WORKER_TIMEOUT="20")
    wait_for_progress(tmp_path)
    os.kill(worker_pids(running.pid, 2)[1], signal.SIGSTOP)
    begin = time.monotonic()
    code, _, error = finish(running)
    assert code != 0
    assert "Another worker of this fit has ended or no longer answers" in error
    assert time.monotonic() - begin < 300.0


@pytest.mark.slow
def test_a_signal_to_end_stores_the_progress_of_all(tmp_path: Path) -> None:
    running = start_long(tmp_path, "adam")
    wait_for_progress(tmp_path)
    running.terminate()  # torchrun passes it on to every worker
    code, _, error = finish(running, 60.0)
    assert code != 0
    assert "Terminated. The same command continues from the progress in" in error
    assert "Another worker of this fit has ended" not in error
    code, _, error = finish(start_long(tmp_path, "adam"))
    assert code == 0, error
