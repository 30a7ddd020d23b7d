"""Threads of torch within a fit: several where products are large, one elsewhere, and none that waits by spinning.

A step on small matrices is a hundred operations of a few microseconds each. Several threads then mostly wait for each
other, and by default they wait by spinning: two fits at once on two cores took fifteen times as long as one alone. So
the number of threads follows from the size of a computation, and threads that wait sleep. The number depends on sizes
and limits alone, not on the load of the machine: a fit gives the same result beside other work as alone.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import numpy as np
import torch
from threadpoolctl import LibController, ThreadpoolController

from cvgp.errors import InvalidInputError, InvalidTypeError

WORK_OF_A_THREAD = 5e7
"""Multiply-adds that each thread is to have: a computation of less than twice as many is left to one."""

_LIMIT: ContextVar[int | None] = ContextVar("cvgp_thread_limit", default=None)
"""How many threads :func:`threads_for` may use; None where the number is not to be changed."""


def check_n_jobs(n_jobs: object) -> int | None:
    """The parameter `n_jobs`, if it is one that scikit-learn would take."""
    if n_jobs is None:
        return None
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int | np.integer):
        raise InvalidTypeError(f"n_jobs must be a whole number or None; got {n_jobs!r}.")
    if n_jobs == 0:
        raise InvalidInputError(
            "n_jobs must not be 0: give a number of threads, -1 for all, or None to choose it by the size of the work."
        )
    return int(n_jobs)


@contextmanager
def limited_threads(n_jobs: int | None) -> Iterator[None]:
    """Give a fit so many threads, as scikit-learn counts them, and torch its own number back in the end.

    None leaves the number to :func:`threads_for`. No fit has more threads than torch has here: that number is the
    user's limit (``torch.set_num_threads``), and it follows OMP_NUM_THREADS, by which joblib and Ray divide a machine
    among their workers.
    """
    with _TORCH.borrowed() as limit:
        asked = limit if n_jobs is None else min(n_jobs, limit) if n_jobs > 0 else max(limit + 1 + n_jobs, 1)
        torch.set_num_threads(1 if n_jobs is None else asked)
        token = _LIMIT.set(asked if n_jobs is None else None)
        try:
            with _openmp_limit(torch.get_num_threads()), _sleeping_threads(asked):
                yield
        finally:
            _LIMIT.reset(token)


@contextmanager
def threads_for(work: float) -> Iterator[None]:
    """As many threads as a computation of `work` multiply-adds is worth, within the limits of its fit."""
    limit = _LIMIT.get()
    if limit is None or limit == 1:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(int(min(max(work / WORK_OF_A_THREAD, 1), limit)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _TorchThreads:
    """The number of torch's threads that the user wants.

    Each thread has a number of its own. A new thread begins with the number that any thread set last. So a thread that
    comes while fits in others have changed the number must not take theirs for the user's.
    """

    def __init__(self) -> None:
        self._forget_others()
        self._of_user = 1
        # A thread that is not forked cannot leave, nor open the lock.
        os.register_at_fork(after_in_child=self._forget_others)

    def _forget_others(self) -> None:
        self._lock = threading.Lock()
        self._num_inside = 0

    @contextmanager
    def borrowed(self) -> Iterator[int]:
        """The user's number, which is set again in the end."""
        with self._lock:
            if self._num_inside == 0:
                self._of_user = torch.get_num_threads()
            self._num_inside += 1
            of_user = self._of_user
        try:
            yield of_user
        finally:
            with self._lock:
                self._num_inside -= 1
                torch.set_num_threads(of_user)


_TORCH = _TorchThreads()


@contextmanager
def _openmp_limit(count: int) -> Iterator[None]:
    """Limit every OpenMP for this thread of Python: torch's, and the one of scikit-learn, which does k-means."""
    libraries = _openmp()
    before = [library.num_threads for library in libraries]
    for library in libraries:
        library.set_num_threads(count)
    try:
        yield
    finally:
        for library, num_threads in zip(libraries, before, strict=True):
            library.set_num_threads(num_threads)


@contextmanager
def _sleeping_threads(count: int) -> Iterator[None]:
    """Have the threads of a team of `count` sleep when they wait for each other.

    GNU's OpenMP has threads spin for milliseconds, which beside other work are taken from it and from the team itself.
    Only where a process has more threads than there are processors do they sleep almost at once. The environment can
    ask for the same (OMP_WAIT_POLICY), but only before torch is imported. So a second team, which sleeps all the time,
    brings the process beyond the processors for as long as the fit takes. Another OpenMP is left alone.
    """
    libraries = _gnu_openmp()
    if count == 1 or not libraries:
        yield
        return
    done, ready = threading.Event(), threading.Event()

    def hold_teams() -> None:
        for library in libraries:
            # What the team does is to free nothing. It belongs to this thread, and ends with it.
            library.GOMP_parallel(library.free, None, max(library.omp_get_num_procs() + 2 - count, 2), 0)
        ready.set()
        done.wait()

    holder = threading.Thread(target=hold_teams, name="cvgp-sleeping-team", daemon=True)
    holder.start()
    ready.wait()
    try:
        yield
    finally:
        done.set()
        holder.join()


@cache
def _openmp() -> list[LibController]:
    """Every OpenMP of the process: wheels bring a copy each."""
    return list(ThreadpoolController().select(user_api="openmp").lib_controllers)


def _gnu_openmp() -> list[Any]:
    """Those that are GNU's, as libraries of C."""
    return [library.dynlib for library in _openmp() if library.prefix == "libgomp"]
