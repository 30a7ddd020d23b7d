"""Workers in processes and environments of their own: their answers, their failures, and what they may import."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvgp import optim
from experiments.peers import environments, workers
from experiments.peers.environments import PINS, ROOT, PeerError, interpreter
from experiments.peers.protocol import one_cycle
from experiments.peers.workers import Session, fit_in_worker
from experiments.race import ENTRIES, Entry
from experiments.scores import marginal_scores
from experiments.speed.step import step_data
from experiments.splits import random_split
from experiments.world import LINE

SPLIT = random_split("waves-120x2", seed=0)
PEERS = sorted(path.stem for path in PINS.glob("*.txt") if path.stem != "flights")
FAKE_PEER = """
import numpy as np
from experiments.peers.protocol import answer_times, run

def constant(job):
    predict = lambda x: (np.zeros(len(x)), np.ones(len(x)))
    print("chatter of a library")
    job.check(predict)
    job.record(predict)
    return {"iterations": 7, "precision": "float16"}

def fail(job):
    raise ZeroDivisionError("on purpose")

def timed(job):
    answer_times(lambda: sum(range(1000)))
    return {"note": "timed"}

if __name__ == "__main__":
    run({"constant": constant, "fail": fail, "timed": timed}, {"fake": "1.0"})
"""


@pytest.fixture
def fake_peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A worker that imports nothing but NumPy; returns its name."""
    path = tmp_path / "fake.py"
    path.write_text(FAKE_PEER)
    monkeypatch.setattr(workers, "_python", lambda worker: Path(sys.executable))
    monkeypatch.setattr(workers, "_command", lambda python, worker, folder: [str(python), str(path), str(folder)])
    return "fake"


def test_predictions_at_checkpoints_and_at_the_end_are_scored_here(fake_peer: str) -> None:
    outcome = fit_in_worker(fake_peer, {"method": "constant", "budget": 9.0, "checkpoints": [0.0]}, SPLIT, threads=1)
    expected = marginal_scores(SPLIT.y_test, np.zeros_like(SPLIT.y_test), np.ones_like(SPLIT.y_test))
    assert {name: outcome.metrics[name] for name in expected} == expected
    assert len(outcome.trace) == 2
    assert outcome.origin == {"fake": "1.0", "precision": "float16"}


def test_a_failure_keeps_its_reason(fake_peer: str) -> None:
    with pytest.raises(PeerError, match="ZeroDivisionError: on purpose"):
        fit_in_worker(fake_peer, {"method": "fail"}, SPLIT, threads=1)
    with Session(fake_peer, {"method": "fail"}, {}, threads=1) as session, pytest.raises(PeerError, match="on purpose"):
        session.times(1)


def test_two_workers_take_turns(fake_peer: str) -> None:
    with (
        Session(fake_peer, {"method": "timed"}, {}, threads=1) as one,
        Session(fake_peer, {"method": "timed"}, {}, threads=1) as other,
    ):
        times = [one.times(3), other.times(2), one.times(1)]
        assert one.finish()["note"] == "timed"
    assert [len(found) for found in times] == [3, 2, 1]
    assert min(min(found) for found in times) > 0


def test_our_own_steps_are_timed_through_the_estimator() -> None:
    parameters = {"n_coreset": 8, "kernel": "rbf", "training__batch_size": 32, "training__init": "random"}
    settings = {"method": "step", "parameters": parameters}
    with Session("cvgp", settings, step_data(200, 2), threads=1) as session:
        assert len(session.times(4)) == 4
        assert session.finish()["float32_error"] < 1e-3


def test_scikit_learns_exact_gp_takes_no_more_rows_than_there_are() -> None:
    settings = {"method": "within_budget", "kernel": "matern32", "budget": 1.0}
    found = fit_in_worker("sklearn", settings, SPLIT, threads=1)
    assert found.metrics["rows"] == len(SPLIT.x)
    assert found.metrics["rmse"] < 0.5  # a constant has 1


def test_peers_have_our_learning_rate_schedule() -> None:
    progress = np.linspace(0.0, 1.2, 49)
    np.testing.assert_allclose([one_cycle(p) for p in progress], [optim.one_cycle(p) for p in progress], rtol=1e-12)


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_is_pinned_and_imports_nothing_of_cvgp(name: str) -> None:
    lines = (PINS / f"{name}.txt").read_text().splitlines()
    assert [line for line in lines if "==" not in line and not line.startswith("#")] == []
    assert not re.search(r"^(import|from) cvgp", (PINS / f"{name}.py").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("entry", [*ENTRIES, LINE], ids=lambda entry: entry.name)
def test_an_entry_of_the_race_names_a_method_of_its_worker(entry: Entry) -> None:
    text = (PINS / f"{entry.worker}.py").read_text()
    assert f'"{entry.method}"' in text[text.index("__main__") :]


def test_importing_the_protocol_imports_no_library_of_ours() -> None:
    code = "import sys, experiments.peers.protocol; sys.exit(any(m in sys.modules for m in ('torch', 'cvgp', 'scipy')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


# Environments


@pytest.fixture
def pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Write the pins of a peer named ``made_up``; environments are made in a folder of the test."""
    monkeypatch.setattr(environments, "PINS", tmp_path)
    monkeypatch.setattr(environments, "WORK_FOLDER", tmp_path / "work")
    monkeypatch.setattr(environments, "_unavailable", {})
    return lambda text: (tmp_path / "made_up.txt").write_text(text) and None


def test_this_environment_serves_where_it_has_the_versions(pins: Callable[[str], None]) -> None:
    pins(f"numpy=={np.__version__}\n")
    assert interpreter("made_up") == Path(sys.executable)


def test_an_environment_that_cannot_be_made_is_not_tried_twice(
    pins: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pins("numpy==0.0.1\n")
    tried: list[str] = []

    def fail(*_: Any, **__: Any) -> None:
        tried.append("once")
        raise PeerError("no such version")

    monkeypatch.setattr(environments, "_install", fail)
    for _ in range(2):
        with pytest.raises(PeerError, match="no such version"):
            interpreter("made_up")
    assert tried == ["once"]
