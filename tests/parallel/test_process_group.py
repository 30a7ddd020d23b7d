"""The same fit by two processes as by one. All of them are run once, by torchrun on gloo and alone."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock

from cvgp.errors import InvalidInputError, WorkerError
from cvgp.parallel.group import TIMEOUT_VARIABLE, current_group, process_group
from tests.parallel.distributed_program import BOUNDS, CASES, GRID, PARTS, write_tables
from tests.parallel.groups import ROOT, torchrun

PROGRAM = Path(__file__).with_name("distributed_program.py")
Found = dict[str, np.ndarray]
Results = Callable[[str], tuple[Found, Found, Found]]

pytestmark = pytest.mark.slow  # two processes make a dozen fits, and one process makes them again


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Results:
    """Look up what a case gave: alone, in the first process and in the second."""
    base = tmp_path_factory.getbasetemp()
    # The workers of pytest share one run.
    folder = (base if worker_id == "master" else base.parent) / "distributed"
    alone, together, tables = folder / "alone", folder / "together", folder / "tables"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            for name in (alone, together, tables):
                name.mkdir(parents=True)
            write_tables(tables)
            group = torchrun(PROGRAM, together, tables)
            path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
            environment = {**os.environ, "PYTHONPATH": path}
            subprocess.run([sys.executable, PROGRAM, alone, tables], check=True, env=environment)
            error = group.communicate(timeout=300)[1]
            assert group.returncode == 0, error

    def load(path: Path) -> Found:
        with np.load(path) as stored:
            return dict(stored)

    return lambda case: (
        load(alone / f"{case}-0.npz"),
        load(together / f"{case}-0.npz"),
        load(together / f"{case}-1.npz"),
    )


@pytest.mark.parametrize("case", [case for case in CASES if case not in ("exchange", "table-reading")])
def test_processes_end_with_the_same_bits(results: Results, case: str) -> None:
    _, first, second = results(case)
    for name, values in first.items():
        np.testing.assert_array_equal(second[name], values, err_msg=name)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("how", [*PARTS, "split"])
def test_bound_and_gradient_are_those_of_one_process_to_rounding(results: Results, how: str, bound: str) -> None:
    alone, first, _ = results(f"bounds-{how}-{bound}")
    for name in ("value", "full", "y_c"):
        np.testing.assert_allclose(first[name], alone[name], rtol=1e-9, atol=1e-9, err_msg=name)
    scale = np.abs(alone["gradient"]).max()
    np.testing.assert_allclose(first["gradient"], alone["gradient"], rtol=0, atol=1e-9 * scale)


@pytest.mark.parametrize("case", ["lbfgs-uneven", "lbfgs-empty", "adam-split", "adam-tiny-batch"])
def test_a_fit_is_that_of_one_process(results: Results, case: str) -> None:
    alone, first, _ = results(case)
    assert first["steps"] == alone["steps"]
    np.testing.assert_allclose(first["mean"], alone["mean"], atol=1e-4)
    np.testing.assert_allclose(first["bound"], alone["bound"], atol=1e-2)


@pytest.mark.parametrize("case", ["adam-uneven", "adam-empty"])
def test_adam_on_shards_is_as_good_as_in_one_process(results: Results, case: str) -> None:
    alone, first, _ = results(case)
    assert first["steps"] == alone["steps"]
    np.testing.assert_allclose(first["mean"], alone["mean"], atol=0.05)  # the noise has a deviation of 0.1
    np.testing.assert_allclose(first["bound"] / 301, alone["bound"] / 301, atol=0.02)


def test_early_stopping_is_decided_by_the_rows_of_all(results: Results) -> None:
    _, first, _ = results("adam-early")
    assert first["status"] == "EARLY_STOPPED"


def test_a_time_limit_ends_all_processes_at_the_same_step(results: Results) -> None:
    _, first, second = results("adam-time")
    assert first["status"] == "TIME_LIMIT"
    assert first["steps"] == second["steps"]


@pytest.mark.parametrize("case", ["neighbors-tree", "neighbors-blocks"])
def test_statistics_given_neighbors_are_those_of_one_process(results: Results, case: str) -> None:
    alone, first, _ = results(case)
    for name, values in alone.items():
        np.testing.assert_allclose(first[name], values, rtol=1e-9, atol=1e-9 * np.abs(values).max(), err_msg=name)


def test_an_estimator_consults_neighbors_in_a_group(results: Results) -> None:
    alone, first, _ = results("estimator-neighbors")
    assert alone["neighbors"] == first["neighbors"] == 5


@pytest.mark.parametrize("case", ["estimator-lbfgs", "estimator-adam", "estimator-neighbors"])
def test_an_estimator_predicts_as_one_process_does(results: Results, case: str) -> None:
    alone, first, _ = results(case)
    for name in ("mean", "sd"):
        np.testing.assert_allclose(first[name], alone[name], atol=1e-3, err_msg=name)
    assert first["rows"] == alone["rows"]


@pytest.mark.parametrize("case", ["table-parts", "table-one-part", "table-early"])
def test_a_table_in_files_is_fitted_as_well_as_by_one_process(results: Results, case: str) -> None:
    alone, first, _ = results(case)
    for found in (alone, first):  # the noise has a deviation of 0.1
        assert np.sqrt(np.mean((found["mean"] - np.sin(3.0 * GRID[:, 0].numpy())) ** 2)) < 0.05
    assert first["rows"] == alone["rows"]
    assert first["bad"] == alone["bad"]
    assert first["features"].tolist() == alone["features"].tolist() == ["a", "kind"]


@pytest.mark.parametrize(("case", "noise"), [("table-parts", 0.1), ("table-groups", np.hypot(0.1, 0.3))])
def test_intervals_of_a_table_in_files_are_as_wide_as_by_one_process(results: Results, case: str, noise: float) -> None:
    alone, first, _ = results(case)
    for found in (alone, first):
        width = np.median(found["interval"][:, 1] - found["interval"][:, 0])
        assert width == pytest.approx(2.0 * 1.645 * noise, rel=0.25)
    if case == "table-groups":
        assert first["rows"] == pytest.approx(alone["rows"], rel=0.3)
        assert first["rows"] < 450  # rows of one person count less


@pytest.mark.parametrize("case", ["counts", "counts-groups", "classes", "classes-groups"])
def test_latent_values_are_those_of_one_process(results: Results, case: str) -> None:
    alone, first, _ = results(case)
    for name in ("elbo", "rows"):
        np.testing.assert_allclose(first[name], alone[name], rtol=1e-4, err_msg=name)
    np.testing.assert_allclose(first["mean"], alone["mean"], atol=0.02)


def test_each_process_reads_its_own_parts_of_a_table(results: Results) -> None:
    alone, first, second = results("table-reading")
    assert alone["read"] == first["total"] == second["total"]
    assert first["read"] + second["read"] == alone["read"]
    assert 0 < first["read"] < second["read"]
    for name in ("mean", "scale"):
        np.testing.assert_allclose(first[name], alone[name], rtol=1e-9)
        np.testing.assert_array_equal(first[name], second[name])


def test_meetings_exchange_what_they_say(results: Results) -> None:
    for found in results("exchange")[1:]:
        assert found["sum"].tolist() == [3.0, 1.0]
        assert found["first"].tolist() == [1.0, 0.5]
        assert bytes(found["bytes"]) == b"some"
        assert found["gathered"].tolist() == [[1.0, 1.0, 1.0]] * 2
        assert (found["no_bytes"], found["gathered_none"], found["is_current"]) == (0, 0, True)


def test_processes_share_the_cores(results: Results) -> None:
    cores = len(os.sched_getaffinity(0))
    assert [int(found["threads"]) for found in results("threads")[1:]] == [max(cores // 2, 1)] * 2


def test_without_a_launcher_a_process_is_alone() -> None:
    with process_group() as group:
        assert group.world == 1
        assert current_group() is group


LAUNCH = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29999"}


def test_a_launch_whose_others_never_come_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**LAUNCH, TIMEOUT_VARIABLE: "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(WorkerError, match="Could not connect to the other workers of this fit, 1 of"), process_group():
        pass


@pytest.mark.parametrize("text", ["soon", "-1", "nan"])
def test_a_timeout_that_is_no_time_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    for name, value in {**LAUNCH, TIMEOUT_VARIABLE: text}.items():
        monkeypatch.setenv(name, value)
    message = f"CVGP_WORKER_TIMEOUT must be a number of seconds above 0; got '{text}'"
    with pytest.raises(InvalidInputError, match=message), process_group():
        pass
