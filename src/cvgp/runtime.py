"""What cvgp borrows from the process that it runs in: threads, BLAS, memory, torch modes, and the time of warnings.

Threads that wait for each other spin by default: two fits at once on two cores took fifteen times as long as one. So
their number follows from the size of a computation, and they sleep. Process-wide settings end with the last user.
"""

import ctypes
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, ExitStack, contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import LibController, OpenBLASController, ThreadpoolController

from cvgp.errors import InvalidInputError, InvalidTypeError

WORK_OF_A_THREAD = 5e7  # fewest multiply-adds per thread: a smaller computation runs on one thread

_LIMIT: ContextVar[int | None] = ContextVar("cvgp_thread_limit", default=None)


def check_n_jobs(n_jobs: object) -> int | None:
    """Return `n_jobs` if scikit-learn would accept it; otherwise raise."""
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
    """Set the number of threads of a fit, counted as in scikit-learn; None leaves it to :func:`threads_for`."""
    with _TORCH.borrowed() as limit:
        asked = limit if n_jobs is None else min(n_jobs, limit) if n_jobs > 0 else max(limit + 1 + n_jobs, 1)
        torch.set_num_threads(1 if n_jobs is None else asked)
        token = _LIMIT.set(asked if n_jobs is None else None)
        try:
            # OpenMP is torch's, and the one of scikit-learn, which does k-means.
            with _limited(_openmp(), torch.get_num_threads()), _sleeping_threads(asked):
                yield
        finally:
            _LIMIT.reset(token)


@contextmanager
def threads_for(work: float) -> Iterator[None]:
    """Use the number of threads that `work` multiply-adds justify, within the limits of the fit."""
    limit = _LIMIT.get()
    if limit is None or limit == 1:
        yield
        return
    with _torch_threads(int(min(max(work / WORK_OF_A_THREAD, 1), limit))):
        yield


@contextmanager
def _torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _Lock:
    """A lock with a count of the threads inside; both are new in a forked child, where the other threads are gone."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()
        self._num_inside = 0


class _TorchThreads(_Lock):
    """The number of torch's threads that the user has set; a new Python thread would start with that of a fit."""

    _of_user = 1

    @contextmanager
    def borrowed(self) -> Iterator[int]:
        """The user's number, which is restored at the end."""
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
def _limited(libraries: list[LibController], count: int) -> Iterator[None]:
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
    """Make the threads of a team of `count` sleep while they wait for each other.

    Threads of GNU's OpenMP spin unless the process has more of them than processors, so a second, sleeping team is
    added.
    """
    libraries: list[Any] = [library.dynlib for library in _openmp() if library.prefix == "libgomp"]
    if count == 1 or not libraries:
        yield
        return
    done, ready = threading.Event(), threading.Event()

    def hold_teams() -> None:
        for library in libraries:
            # The team runs free(NULL). It belongs to this thread, and ends with it.
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
    """All OpenMP libraries of the process: each wheel brings its own copy."""
    return list(ThreadpoolController().select(user_api="openmp").lib_controllers)


TRIM_THRESHOLD = -1  # M_TRIM_THRESHOLD of glibc's `mallopt`: how much free memory it keeps at the end of the heap
LARGEST_BLOCK = 1 << 25  # above it blocks never come from the heap: the upper limit of glibc's own rule
KEPT, USUALLY_KEPT = 1 << 30, 2 * LARGEST_BLOCK  # bytes kept during a fit, and by glibc's own rule


class _Shared(_Lock, ContextDecorator):
    """A context of the process: the first thread to enter opens it, the last one to leave closes it."""

    def __init__(self, make: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__()
        self._make = make
        self._context: AbstractContextManager[None]

    def __enter__(self) -> None:
        with self._lock:
            if self._num_inside == 0:
                self._context = self._make()
                self._context.__enter__()
            self._num_inside += 1

    def __exit__(self, *failure: object) -> None:
        with self._lock:
            self._num_inside -= 1
            if self._num_inside == 0:
                self._context.__exit__(None, None, None)


@cache
def _blas_libraries() -> list[LibController]:
    """BLAS libraries with their own threads; a BLAS on OpenMP may share its threads with torch."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library for library in libraries if getattr(library, "threading_layer", "") != "openmp"]


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    # Newer versions of threadpoolctl obey only the first thread, and the last one may be another.
    release = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)
    with ExitStack() as stack:
        stack.callback(release, force=True)
        stack.enter_context(_limited(_blas_libraries(), 1))
        stack.callback(release, force=True)
        yield


@contextmanager
def _kept_memory() -> Iterator[None]:
    set_option = _mallopt()
    if set_option is None:
        yield
        return
    # Freeing a block of this size brings glibc's adaptive thresholds to their upper limits, where they stay.
    np.empty(LARGEST_BLOCK - (1 << 16), dtype=np.uint8)
    set_option(TRIM_THRESHOLD, KEPT)
    try:
        yield
    finally:
        set_option(TRIM_THRESHOLD, USUALLY_KEPT)


_ONE_BLAS_THREAD, _KEPT_MEMORY = _Shared(_one_blas_thread), _Shared(_kept_memory)


def single_threaded_blas() -> _Shared:
    """Keep NumPy's and SciPy's own BLAS to one thread: its threads spin between calls and take the cores from torch."""
    return _ONE_BLAS_THREAD


def reused_memory() -> _Shared:
    """Keep memory that one training step frees for the next step, up to a gigabyte.

    Mapping and clearing new pages took a third of a step's time with 500 points. glibc's options cannot be read, so a
    fit leaves them as in any process that has freed one block of 32 MB.
    """
    return _KEPT_MEMORY


def memory_left() -> int:
    """Bytes of memory available to new allocations."""
    facts = Path("/proc/meminfo")
    if facts.exists():
        for line in facts.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@cache
def _mallopt() -> "ctypes._NamedFuncPointer | None":
    if not sys.platform.startswith("linux"):
        return None
    if any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return None
    return getattr(ctypes.CDLL(None), "mallopt", None)


_SKLEARN = _Lock()


@contextmanager
def sklearn_alone() -> Iterator[None]:
    """Let one thread at a time call scikit-learn, whose checks change the warning filters of all threads."""
    with _SKLEARN._lock:
        yield


_KEPT: ContextVar[list[Warning] | None] = ContextVar("cvgp_kept_warnings", default=None)


@contextmanager
def kept_warnings() -> Iterator[list[Warning]]:
    """Collect the warnings that this thread passes to :func:`warn_or_keep`; ``catch_warnings`` changes all threads."""
    kept: list[Warning] = []
    token = _KEPT.set(kept)
    try:
        yield kept
    finally:
        _KEPT.reset(token)


def warn_or_keep(warning: Warning) -> None:
    """Issue a warning, or pass it to :func:`kept_warnings`."""
    kept = _KEPT.get()
    if kept is None:
        warnings.warn(warning, stacklevel=3)
    else:
        kept.append(warning)


_HOME = os.getpid()  # the process that imported cvgp; any other one is a fork of it


@contextmanager
def clean_torch_state() -> Iterator[None]:
    """Torch as at the start of a process: no inference mode, no other default device, no autocast.

    A forked child gets one thread: the threads of GNU's OpenMP are not forked, and it would wait for them forever.
    """
    with ExitStack() as stack:
        if os.getpid() != _HOME:
            stack.enter_context(_torch_threads(1))
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if torch.is_autocast_enabled("cpu"):
            stack.enter_context(torch.autocast("cpu", enabled=False))
        yield
