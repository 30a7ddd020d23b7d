import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from threadpoolctl import OpenBLASController, threadpool_limits
from typer.testing import CliRunner

from cvgp import CVGPRegressor, TrainingOptions, runtime
from cvgp.cli import app
from cvgp.errors import InvalidTypeError, JitterWarning
from cvgp.gp.linalg import safe_cholesky
from cvgp.runtime import (
    WORK_OF_A_THREAD,
    check_n_jobs,
    kept_warnings,
    limited_threads,
    single_threaded_blas,
    threads_for,
)

X = np.random.default_rng(0).standard_normal((80, 2))
Y = np.sin(X[:, 0])


def fit_and_predict(solver: str = "lbfgs") -> None:
    model = CVGPRegressor(n_coreset=8, random_state=0, training=TrainingOptions(solver=solver, max_iter=3)).fit(X, Y)
    model.predict(X, return_std=True)
    model.sample_y(X[:3], random_state=0)


def fail_in_a_fit() -> None:
    def fail(event: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        CVGPRegressor(
            n_coreset=8, random_state=0, training=TrainingOptions(solver="lbfgs", max_iter=3, callbacks=[fail])
        ).fit(X, Y)


def fit_in_two_threads() -> None:
    with ThreadPoolExecutor(2) as pool:
        for task in [pool.submit(fit_and_predict) for _ in range(4)]:
            task.result()


def blas_threads() -> list[int]:
    """Of every BLAS that has a pool of its own."""
    return [library.num_threads for library in runtime._blas_libraries()]


@contextmanager
def two_blas_threads() -> Iterator[None]:
    """A process whose BLAS has two threads, and in which no thread has a right to that number."""
    release = getattr(OpenBLASController, "clear_controlling_thread", lambda: None)
    limits = threadpool_limits(2, user_api="blas")
    release()
    try:
        yield
    finally:
        limits.restore_original_limits()
        release()


# What a process has before a fit, it has after it.

STATES: dict[str, Callable[[], Any]] = {
    "torch's random numbers": lambda: torch.get_rng_state().tolist(),
    "NumPy's random numbers": lambda: [np.asarray(part).tolist() for part in np.random.get_state()],  # noqa: NPY002
    "default dtype": torch.get_default_dtype,
    "gradients": torch.is_grad_enabled,
    "warnings filters": lambda: list(warnings.filters),
    "how warnings are shown": lambda: (warnings.showwarning, warnings._showwarnmsg_impl),  # type: ignore[attr-defined]
    "torch's threads": lambda: (torch.get_num_threads(), torch.get_num_interop_threads()),
    "threads of BLAS": blas_threads,
    "NumPy's errors": np.geterr,
    "handlers of signals": lambda: [signal.getsignal(number) for number in signal.valid_signals()],
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
}
WORKS = {
    "lbfgs": fit_and_predict,
    "adam": lambda: fit_and_predict("adam"),
    "an error in a fit": fail_in_a_fit,
    "fits in two threads": fit_in_two_threads,
}


@pytest.fixture(scope="module")
def states() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Every state before and after each kind of work, in a process whose BLAS has two threads."""
    found = {}
    with two_blas_threads():
        for work, run in WORKS.items():
            before = {name: read() for name, read in STATES.items()}
            run()
            found[work] = before, {name: read() for name, read in STATES.items()}
    return found


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("state", STATES)
def test_a_fit_leaves_the_process_as_it_was(
    state: str, work: str, states: dict[str, tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    before, after = states[work]
    assert after[state] == before[state]


@pytest.mark.parametrize(
    "arguments",
    [["--target", "y"], ["--target", "no such column"]],
    ids=["done", "failed"],
)
def test_a_command_leaves_signals_and_warnings_as_they_were(arguments: list[str], tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    pd.DataFrame({"x": X[:, 0], "y": Y}).to_csv(table, index=False)
    names = ("handlers of signals", "warnings filters", "how warnings are shown", "threads of BLAS", "torch's threads")
    before = [STATES[name]() for name in names]
    CliRunner().invoke(app, ["fit", str(table), "--out", str(tmp_path / "m.cvgp"), "--max-iter", "2", *arguments])
    assert [STATES[name]() for name in names] == before


# Settings that several threads share.


@pytest.mark.parametrize("first_to_leave", [0, 1])
def test_blas_has_its_threads_back_when_the_last_thread_has_left(first_to_leave: int) -> None:
    entered = [threading.Event(), threading.Event()]
    may_leave = [threading.Event(), threading.Event()]

    def work(number: int) -> None:
        with single_threaded_blas():
            entered[number].set()
            may_leave[number].wait(30)

    with two_blas_threads():
        before = blas_threads()
        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for thread, event in zip(threads, entered, strict=True):
            thread.start()
            event.wait(30)
        for number in (first_to_leave, 1 - first_to_leave):
            assert set(blas_threads()) <= {1}
            may_leave[number].set()
            threads[number].join(30)
        assert blas_threads() == before


# Warnings that wait.

INDEFINITE = torch.tensor([[1.0, 1.0 + 1e-9], [1.0 + 1e-9, 1.0]], dtype=torch.float64)


def test_a_warning_can_be_kept() -> None:
    with kept_warnings() as kept:
        safe_cholesky(INDEFINITE)
    assert [type(warning) for warning in kept] == [JitterWarning]


LONG_X = np.random.default_rng(0).standard_normal((120, 2))
LONG_Y = np.sin(LONG_X[:, 0]) + 0.3 * np.random.default_rng(1).standard_normal(120)


@pytest.fixture
def four_threads() -> Iterator[None]:
    """A process whose user has set torch to four threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("n_jobs", "count"), [(None, 1), (1, 1), (3, 3), (9, 4), (-1, 4), (-2, 3), (-9, 1)])
def test_n_jobs_counts_as_scikit_learn_does_up_to_the_limit_of_torch(
    n_jobs: int | None, count: int, four_threads: None
) -> None:
    with limited_threads(n_jobs):
        assert torch.get_num_threads() == count
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize(("work", "count"), [(0.0, 1), (1.9, 1), (2.0, 2), (3.5, 3), (100.0, 4)])
def test_each_thread_has_enough_to_do(work: float, count: int, four_threads: None) -> None:
    with limited_threads(None):
        with threads_for(work * WORK_OF_A_THREAD):
            assert torch.get_num_threads() == count
        assert torch.get_num_threads() == 1


def openmp_threads() -> list[int]:
    return [library.num_threads for library in runtime._openmp()]


def test_every_openmp_has_the_limit_within_a_fit_and_its_own_number_after_it(four_threads: None) -> None:
    before = openmp_threads()
    with limited_threads(3):
        assert set(openmp_threads()) == {3}
    assert openmp_threads() == before


@pytest.mark.parametrize("value", [True, 1.5, "all"])
def test_n_jobs_must_be_a_whole_number(value: object) -> None:
    with pytest.raises(InvalidTypeError, match="n_jobs must be a whole number or None"):
        check_n_jobs(value)


def test_a_thread_that_comes_during_a_fit_takes_the_number_of_the_user(four_threads: None) -> None:
    entered, may_leave, found = threading.Event(), threading.Event(), []

    def come_later() -> None:
        with limited_threads(-1):
            found.append(torch.get_num_threads())
            entered.set()
            may_leave.wait(30)
        found.append(torch.get_num_threads())

    other = threading.Thread(target=come_later)
    with limited_threads(1):
        other.start()
        entered.wait(30)
    may_leave.set()
    other.join(30)
    with ThreadPoolExecutor(1) as pool:  # a new thread has what was set last in any
        assert pool.submit(torch.get_num_threads).result() == 4
    assert found == [4, 4]
    assert torch.get_num_threads() == 4


def record_threads(fit: Callable[..., CVGPRegressor]) -> set[int]:
    """The numbers of threads that torch had at the ends of iterations."""
    found: set[int] = set()
    fit(callbacks=[lambda event: found.add(torch.get_num_threads())])
    return found


@pytest.mark.parametrize(("n_jobs", "count"), [(None, 1), (2, 2), (-1, 4)])
def test_a_fit_has_the_threads_that_n_jobs_says(n_jobs: int | None, count: int, four_threads: None) -> None:
    def fit(callbacks: list[Callable[..., object]]) -> CVGPRegressor:
        training = TrainingOptions(max_iter=3, callbacks=callbacks)
        return CVGPRegressor(8, n_jobs=n_jobs, random_state=0, training=training).fit(LONG_X, LONG_Y)

    assert record_threads(fit) == {count}
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_threads_change_a_fit_by_no_more_than_rounding(
    solver: str, four_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "WORK_OF_A_THREAD", 1e4)  # so that the rule, too, takes several
    models = [
        CVGPRegressor(
            20, n_jobs=n, random_state=0, training=TrainingOptions(solver=solver, dtype="float64", max_iter=15)
        ).fit(LONG_X, LONG_Y)
        for n in (1, 2, None)
    ]
    for model in models[1:]:
        np.testing.assert_allclose(model.predict(LONG_X), models[0].predict(LONG_X), rtol=1e-4, atol=1e-5)
        assert model.elbo_ == pytest.approx(models[0].elbo_, rel=1e-6)
