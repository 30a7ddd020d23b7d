import resource
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from threadpoolctl import OpenBLASController, threadpool_limits
from typer.testing import CliRunner

from cvgp import CVGPRegressor, host
from cvgp.cli import app
from cvgp.errors import CVGPError, CVGPWarning, JitterWarning
from cvgp.gp.linalg import safe_cholesky
from cvgp.host import kept_warnings, memory_left, reused_memory, single_threaded_blas, warn_or_keep

BLOCK, ROUNDS = 4_000_000, 20
X = np.random.default_rng(0).standard_normal((80, 2))
Y = np.sin(X[:, 0])


def fit_and_predict(solver: str = "lbfgs") -> None:
    model = CVGPRegressor(n_coreset=8, solver=solver, max_iter=3, random_state=0).fit(X, Y)
    model.predict(X, return_std=True)
    model.sample_y(X[:3], random_state=0)


def fail_in_a_fit() -> None:
    def fail(event: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        CVGPRegressor(n_coreset=8, solver="lbfgs", max_iter=3, random_state=0, callbacks=[fail]).fit(X, Y)


def fit_in_two_threads() -> None:
    with ThreadPoolExecutor(2) as pool:
        for task in [pool.submit(fit_and_predict) for _ in range(4)]:
            task.result()


def blas_threads() -> list[int]:
    """Of every BLAS that has a pool of its own."""
    return [library.num_threads for library in host._blas_libraries()]


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


def test_limits_of_the_host_outlive_a_fit_in_another_thread() -> None:
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        fit_in_two_threads()
        assert blas_threads() == before


def page_faults_of_a_loop() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(ROUNDS):
        blocks = [np.empty(BLOCK, dtype=np.uint8) for _ in range(10)]
        for block in blocks:
            block.fill(1)
        del blocks, block
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(host._mallopt() is None, reason="another C library, or options from the environment")
def test_memory_that_is_freed_is_used_again() -> None:
    with reused_memory():
        page_faults_of_a_loop()  # the first round is new memory in any case
        assert page_faults_of_a_loop() < ROUNDS * 10 * BLOCK / resource.getpagesize() / 10


def test_some_memory_is_left() -> None:
    assert 10_000_000 < memory_left() < 2**50


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The calls of `mallopt`."""
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(host, "_mallopt", lambda: lambda *call: calls.append(call))
    return calls


def test_the_end_of_a_fit_sets_the_option_to_what_glibc_would_have(options: list[tuple[int, int]]) -> None:
    fit_and_predict()
    assert options == [(host.TRIM_THRESHOLD, host.KEPT), (host.TRIM_THRESHOLD, 2 * host.LARGEST_BLOCK)]


def test_a_prediction_does_not_touch_the_options_of_malloc(options: list[tuple[int, int]]) -> None:
    model = CVGPRegressor(n_coreset=8, max_iter=2, random_state=0).fit(X, Y)
    options.clear()
    model.predict(X, return_std=True)
    assert options == []


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_options_from_the_environment_are_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "glibc.malloc.trim_threshold=131072" if name == "GLIBC_TUNABLES" else "131072")
    assert host._mallopt.__wrapped__() is None


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_mallopt", lambda: None)
    with reused_memory():
        entered = True
    assert entered


@pytest.mark.parametrize("setting", [reused_memory, single_threaded_blas])
def test_error_within_passes_through(setting: Callable[[], AbstractContextManager[None]]) -> None:
    with pytest.raises(ZeroDivisionError), setting():
        raise ZeroDivisionError


# Warnings that wait.

INDEFINITE = torch.tensor([[1.0, 1.0 + 1e-9], [1.0 + 1e-9, 1.0]], dtype=torch.float64)


def test_a_warning_can_be_kept() -> None:
    with kept_warnings() as kept:
        safe_cholesky(INDEFINITE)
    assert [type(warning) for warning in kept] == [JitterWarning]


def test_a_warning_is_given_where_nobody_keeps_it() -> None:
    with pytest.warns(JitterWarning, match="was added to its diagonal"):
        safe_cholesky(INDEFINITE)


def test_an_error_ends_the_keeping_of_warnings() -> None:
    with pytest.raises(CVGPError), kept_warnings():
        raise CVGPError
    with pytest.warns(CVGPWarning, match="now"):
        warn_or_keep(CVGPWarning("now"))


def test_another_thread_does_not_keep_the_warnings_of_this_one() -> None:
    with kept_warnings() as kept, ThreadPoolExecutor(1) as pool, pytest.warns(CVGPWarning, match="elsewhere"):
        pool.submit(warn_or_keep, CVGPWarning("elsewhere")).result()
    assert kept == []
