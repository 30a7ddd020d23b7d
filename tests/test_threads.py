import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from cvgp import CVGPRegressor, threads
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.threads import WORK_OF_A_THREAD, check_n_jobs, limited_threads, threads_for

X = np.random.default_rng(0).standard_normal((120, 2))
Y = np.sin(X[:, 0]) + 0.3 * np.random.default_rng(1).standard_normal(120)


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


@pytest.mark.parametrize("n_jobs", [2, -1])
def test_a_number_that_was_asked_for_holds_whatever_the_size(n_jobs: int, four_threads: None) -> None:
    with limited_threads(n_jobs):
        before = torch.get_num_threads()
        with threads_for(0.0):
            assert torch.get_num_threads() == before


def openmp_threads() -> list[int]:
    return [library.num_threads for library in threads._openmp()]


def test_every_openmp_has_the_limit_within_a_fit_and_its_own_number_after_it(four_threads: None) -> None:
    before = openmp_threads()
    with limited_threads(3):
        assert set(openmp_threads()) == {3}
    assert openmp_threads() == before


def test_outside_of_a_fit_the_number_is_left_alone(four_threads: None) -> None:
    with threads_for(0.0):
        assert torch.get_num_threads() == 4


def test_zero_threads_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="n_jobs must not be 0"):
        CVGPRegressor(n_jobs=0).fit(X, Y)


@pytest.mark.parametrize("value", [True, 1.5, "all"])
def test_n_jobs_must_be_a_whole_number(value: object) -> None:
    with pytest.raises(InvalidTypeError, match="n_jobs must be a whole number or None"):
        check_n_jobs(value)


def test_torch_has_its_threads_back_after_an_error(four_threads: None) -> None:
    with pytest.raises(ZeroDivisionError), limited_threads(None), threads_for(2 * WORK_OF_A_THREAD):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 4


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
        return CVGPRegressor(8, n_jobs=n_jobs, max_iter=3, random_state=0, callbacks=callbacks).fit(X, Y)

    assert record_threads(fit) == {count}
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_threads_change_a_fit_by_no_more_than_rounding(
    solver: str, four_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "WORK_OF_A_THREAD", 1e4)  # so that the rule, too, takes several
    models = [
        CVGPRegressor(20, solver=solver, dtype="float64", n_jobs=n, max_iter=15, random_state=0).fit(X, Y)
        for n in (1, 2, None)
    ]
    for model in models[1:]:
        np.testing.assert_allclose(model.predict(X), models[0].predict(X), rtol=1e-4, atol=1e-5)
        assert model.elbo_ == pytest.approx(models[0].elbo_, rel=1e-6)


def processor_time_beside_sleep(rounds: int = 20) -> float:
    """What a team of two takes while its owner sleeps after each of its computations."""
    values = torch.ones(200_000)
    begin = time.process_time()
    for _ in range(rounds):
        values.add_(1.0)
        time.sleep(0.01)
    return time.process_time() - begin


@pytest.mark.skipif(
    not threads._gnu_openmp() or "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ,
    reason="another OpenMP, or a way to wait from the environment",
)
def test_threads_that_wait_in_a_fit_do_not_spin(four_threads: None) -> None:
    torch.set_num_threads(2)
    taken = {}
    for name, context in {"usual": nullcontext(), "fit": limited_threads(2)}.items():
        with context:
            torch.ones(200_000).add_(1.0)  # makes the team
            taken[name] = processor_time_beside_sleep()
    if threads._gnu_openmp()[0].omp_get_num_procs() > 1:  # on one processor nothing spins anyway
        assert taken["fit"] < 0.5 * taken["usual"]


def test_the_team_that_sleeps_ends_with_the_fit(four_threads: None) -> None:
    with limited_threads(2):
        names = {thread.name for thread in threading.enumerate()}
    assert ("cvgp-sleeping-team" in names) == bool(threads._gnu_openmp())
    assert "cvgp-sleeping-team" not in {thread.name for thread in threading.enumerate()}
