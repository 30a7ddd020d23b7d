"""A fit on a real Ray cluster of this machine, with a worker killed in the middle."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvgp import CVGPRegressor
from cvgp.adapters import ray as on_ray
from cvgp.errors import InvalidInputError, MissingDependencyError
from cvgp.files import read_state
from tests.cli.conftest import make_table
from tests.parallel.groups import RAY_WARNINGS

SETTINGS = {
    "n_coreset": 20,
    "noise": "constant",
    "random_state": 0,
    "training__solver": "adam",
    "training__dtype": "float64",
}

pytestmark = [pytest.mark.filterwarnings(ignored) for ignored in RAY_WARNINGS]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table of 3000 rows in three files."""
    data = tmp_path / "data"
    data.mkdir()
    for number in range(3):
        make_table(1000, number).to_parquet(data / f"part-{number}.parquet")
    return data


def test_without_ray_the_error_has_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'cvgp\[ray\]'"):
        on_ray.connect()


def test_what_ray_decides_cannot_be_set() -> None:
    with pytest.raises(InvalidInputError, match="checkpoint_dir cannot be set here"):
        on_ray.fit("data", "y", storage="storage", training__checkpoint_dir="elsewhere")


def descendants(pid: int) -> Iterator[int]:
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
        parents.setdefault(parent, []).append(int(status.parent.name))
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        yield from children
        waiting += children


def train_workers() -> list[int]:
    """The processes of Ray Train's workers, which are started by this one."""
    found = []
    for pid in descendants(os.getpid()):
        try:
            name = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if name.startswith(b"ray::") and b"TrainWorker" in name:
            found.append(pid)
    return found


def fit_while(disturb: Callable[[int], None], folder: Path, storage: Path) -> tuple[CVGPRegressor, list[Any]]:
    """The model, and the history in the first checkpoint, of a fit whose last worker is disturbed at the second one."""
    seen: list[Any] = []

    def act() -> None:
        while len(stored := sorted(storage.glob("run/checkpoint_*/adam.safetensors"))) < 2:
            time.sleep(0.05)
        seen.extend(read_state(stored[0])["history"])  # the second shows that the first is whole
        time.sleep(5.0)  # Ray's controller asks its workers for news every two seconds
        workers = train_workers()
        assert len(workers) == 2
        disturb(workers[-1])

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    model = on_ray.fit(
        folder, "price", storage=storage, name="run", seconds_between=0.5, training__max_iter=8000, **SETTINGS
    )
    thread.join(timeout=10.0)
    assert not thread.is_alive()
    return model, seen


def stop_and_go(worker: int) -> None:
    for _ in range(10):
        os.kill(worker, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(worker, signal.SIGCONT)
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    "disturb",
    [lambda worker: os.kill(worker, signal.SIGKILL), lambda worker: os.kill(worker, signal.SIGSTOP), stop_and_go],
    ids=["killed", "stopped", "slowed"],
)
def test_a_lost_worker_is_replaced_and_a_slow_one_is_waited_for(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disturb: Callable[[int], None]
) -> None:
    monkeypatch.setenv("CVGP_WORKER_TIMEOUT", "10")
    model, history = fit_while(disturb, folder, tmp_path / "storage")
    # The times of the first attempt are in the history of the last: the fit did not start again.
    np.testing.assert_allclose(
        model.history_["seconds"][: len(history)], [row["seconds"] for row in history], rtol=1e-6
    )
    alone = CVGPRegressor().set_params(training__max_iter=8000, **SETTINGS).fit(folder, "price")
    points = make_table(50, 9).drop(columns="price")
    np.testing.assert_allclose(model.predict(points), alone.predict(points), atol=0.01)  # a tenth of the noise


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_bad_data_end_the_fit_at_once(folder: Path, tmp_path: Path) -> None:
    bad = make_table(1000, 3)
    bad.loc[10, "size"] = np.inf
    bad.to_parquet(folder / "part-3.parquet")
    with pytest.raises(InvalidInputError, match=r"part-3\.parquet, data row 11: column 'size'"):
        on_ray.fit(folder, "price", storage=tmp_path / "storage", training__max_iter=10, **SETTINGS)
