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
import pandas as pd
import pytest

import cvgp
from cvgp import CVGPRegressor
from cvgp.adapters import ray as on_ray
from cvgp.errors import InvalidInputError, MissingDependencyError
from cvgp.files.tensors import read_tensors
from tests.cli.conftest import make_table
from tests.parallel.groups import RAY_WARNINGS

SETTINGS = {"n_coreset": 20, "noise": "constant", "random_state": 0, "solver": "adam", "dtype": "float64"}

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
        on_ray.fit("data", "y", storage="storage", checkpoint_dir="elsewhere")


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


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_killed_worker_is_replaced_and_the_fit_goes_on_from_the_checkpoint(folder: Path, tmp_path: Path) -> None:
    seen: list[Any] = []

    def kill_one() -> None:
        # The second shows that the first is whole. Ray's controller asks its workers for news every two seconds.
        while len(stored := sorted((tmp_path / "storage" / "run").glob("checkpoint_*/state.safetensors"))) < 2:
            time.sleep(0.05)
        seen.append(read_tensors(stored[0])[1]["history"])
        time.sleep(5.0)
        workers = train_workers()
        seen.append(len(workers))
        os.kill(workers[-1], signal.SIGKILL)

    def keep_history(model: Any, table: Any) -> None:
        pd.DataFrame(model.history_).to_json(tmp_path / "history.json", orient="records")

    killer = threading.Thread(target=kill_one, daemon=True)
    killer.start()
    model = on_ray.fit(
        folder,
        "price",
        storage=tmp_path / "storage",
        name="run",
        seconds_between=0.5,
        on_fitted=keep_history,
        max_iter=8000,
        **SETTINGS,
    )
    killer.join(timeout=1.0)
    history, num_workers = seen
    assert num_workers == 2
    # The times of the first attempt are in the history of the last: it was not begun anew.
    kept = pd.read_json(tmp_path / "history.json")["seconds"][: len(history)]
    np.testing.assert_allclose(kept, [row["seconds"] for row in history], rtol=1e-6)

    alone = CVGPRegressor(max_iter=8000, **SETTINGS).fit(folder, "price")
    points = make_table(50, 9).drop(columns="price")
    np.testing.assert_allclose(model.predict(points), alone.predict(points), atol=0.01)  # a tenth of the noise


def wait_for_checkpoints(storage: Path, count: int) -> None:
    while len(list(storage.glob("run/checkpoint_*/state.safetensors"))) < count:
        time.sleep(0.05)


def fit_while(disturb: Callable[[], None], folder: Path, storage: Path) -> CVGPRegressor:
    """Fit, and disturb the workers once it has begun to store checkpoints."""

    def act() -> None:
        wait_for_checkpoints(storage, 1)
        disturb()

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    model = on_ray.fit(folder, "price", storage=storage, name="run", seconds_between=0.5, max_iter=8000, **SETTINGS)
    thread.join(timeout=10.0)
    assert not thread.is_alive()
    return model


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("is_stopped", [False, True], ids=["slowed", "stopped"])
def test_a_slowed_worker_is_waited_for_and_a_stopped_one_is_replaced(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    monkeypatch.setenv("CVGP_WORKER_TIMEOUT", "10")
    disturbed: list[int] = []

    def disturb() -> None:
        worker = train_workers()[-1]
        disturbed.append(worker)
        os.kill(worker, signal.SIGSTOP)
        for _ in range(0 if is_stopped else 10):
            time.sleep(0.3)
            os.kill(worker, signal.SIGCONT)
            time.sleep(0.05)
            os.kill(worker, signal.SIGSTOP)
        if not is_stopped:
            os.kill(worker, signal.SIGCONT)

    model = fit_while(disturb, folder, tmp_path / "storage")
    assert len(disturbed) == 1
    alone = CVGPRegressor(max_iter=8000, **SETTINGS).fit(folder, "price")
    points = make_table(50, 9).drop(columns="price")
    np.testing.assert_allclose(model.predict(points), alone.predict(points), atol=0.01)  # a tenth of the noise


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_bad_data_end_the_fit_at_once(folder: Path, tmp_path: Path) -> None:
    bad = make_table(1000, 3)
    bad.loc[10, "size"] = np.inf
    bad.to_parquet(folder / "part-3.parquet")
    with pytest.raises(InvalidInputError, match=r"part-3\.parquet, data row 11: column 'size'"):
        on_ray.fit(folder, "price", storage=tmp_path / "storage", max_iter=10, **SETTINGS)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_dataset_of_ray_is_fitted(tmp_path: Path) -> None:
    import ray

    dataset = ray.data.from_pandas(make_table(500))
    model = on_ray.fit(dataset, "price", storage=tmp_path / "storage", max_iter=100, **SETTINGS)
    assert model.n_rows_ == 500
    assert list(model.feature_names_in_) == ["size", "weight", "colour"]


def test_no_shards_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="no shard to fit"):
        on_ray.fit_and_merge([], "price")


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_shards_are_fitted_in_tasks_and_merged(folder: Path) -> None:
    shards = sorted(folder.glob("*.parquet"))
    found = on_ray.fit_and_merge(shards, "price", **SETTINGS, max_iter=300)
    here = cvgp.merge([CVGPRegressor(**SETTINGS, max_iter=300).fit(shard, "price") for shard in shards])
    assert len(found.coreset_) == len(here.coreset_) == 60
    np.testing.assert_allclose(found.coreset_.y, here.coreset_.y, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_bad_shard_is_an_error_of_its_own(folder: Path) -> None:
    spoilt = make_table(100, 7)
    spoilt.iloc[3, 0] = np.inf
    spoilt.to_parquet(folder / "spoilt.parquet")
    with pytest.raises(InvalidInputError, match="infinite or not a number"):
        on_ray.fit_and_merge([folder / "part-0.parquet", folder / "spoilt.parquet"], "price", **SETTINGS, max_iter=20)
