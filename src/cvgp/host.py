"""What cvgp borrows from the process that it runs in: threads of BLAS, memory, and the moment of a warning.

Each setting holds for the whole process. It is made when the first thread needs it and ends when the last thread is
done, so that fits in several threads leave the process as they found it.
"""

import ctypes
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import TracebackType

import numpy as np
from threadpoolctl import LibController, OpenBLASController, ThreadpoolController

TRIM_THRESHOLD = -1
"""The number by which glibc's `mallopt` knows how much free memory at the end of the heap it keeps."""

LARGEST_BLOCK = 1 << 25
"""Blocks above this size never come from the heap: the upper limit of glibc's own rule."""

KEPT, USUALLY_KEPT = 1 << 30, 2 * LARGEST_BLOCK
"""Bytes at the end of the heap that are kept within a fit, and those that glibc's own rule keeps."""


class _Shared(ContextDecorator):
    """A context of the process: the first thread to enter opens it, the last one to leave closes it."""

    def __init__(self, make: Callable[[], AbstractContextManager[None]]) -> None:
        self._make = make
        self._forget_others()
        # A thread that is not forked cannot leave, nor open the lock.
        os.register_at_fork(after_in_child=self._forget_others)
        self._context: AbstractContextManager[None]

    def _forget_others(self) -> None:
        self._lock = threading.Lock()
        self._num_inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._num_inside == 0:
                self._context = self._make()
                self._context.__enter__()
            self._num_inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._num_inside -= 1
            if self._num_inside == 0:
                self._context.__exit__(None, None, None)


@cache
def _blas_libraries() -> list[LibController]:
    """Those with a pool of their own; a BLAS on OpenMP has threads for each caller, which torch may share."""
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    return [library for library in libraries if getattr(library, "threading_layer", "") != "openmp"]


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    libraries = _blas_libraries()
    before = [library.num_threads for library in libraries]
    for library in libraries:
        library.set_num_threads(1)
    try:
        yield
    finally:
        # Newer versions of threadpoolctl obey only the thread that came first, and the last one may be another.
        release = getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)
        release(force=True)
        for library, num_threads in zip(libraries, before, strict=True):
            library.set_num_threads(num_threads)
        release(force=True)


@contextmanager
def _kept_memory() -> Iterator[None]:
    set_option = _mallopt()
    if set_option is None:
        yield
        return
    # A freed block of this size brings glibc's own rule to its upper limits, where the rule changes nothing any more.
    np.empty(LARGEST_BLOCK - (1 << 16), dtype=np.uint8)
    set_option(TRIM_THRESHOLD, KEPT)
    try:
        yield
    finally:
        set_option(TRIM_THRESHOLD, USUALLY_KEPT)


_ONE_BLAS_THREAD, _KEPT_MEMORY = _Shared(_one_blas_thread), _Shared(_kept_memory)


def single_threaded_blas() -> _Shared:
    """Keep NumPy's and SciPy's own BLAS to one thread, for optimisers that call back into torch.

    The worker threads of that BLAS spin between calls and take the cores from torch: on two cores a fit ran four times
    slower.
    """
    return _ONE_BLAS_THREAD


def reused_memory() -> _Shared:
    """Keep memory that one training step frees for the next step, up to a gigabyte.

    The C library gives large freed blocks back to the system. Every matrix of a step then is new memory, whose pages
    the system has to map and to clear: with 500 points that took a third of the step's time. Predictions do not need
    this: 100 000 rows took the same time without it.

    glibc cannot be asked for its options, so they cannot be put back as such. What a fit leaves is the state of any
    process that has freed one block of 32 MB: glibc's own rule then takes blocks up to 32 MB from the heap and keeps up
    to 64 MB at its end. Another C library is left alone. So is a glibc whose options the environment sets.
    """
    return _KEPT_MEMORY


def memory_left() -> int:
    """Bytes that the system could give without taking them from others."""
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


class _OneAtATime(ContextDecorator):
    """A lock that a thread may take again, and that a forked child finds open."""

    def __init__(self) -> None:
        self._open()
        os.register_at_fork(after_in_child=self._open)

    def _open(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


_SKLEARN = _OneAtATime()


def sklearn_alone() -> _OneAtATime:
    """Let one thread at a time call scikit-learn, whose checks change the filters of warnings and put them back.

    Two threads that do so at once put back each other's filters, and leave the process with those of a check.
    """
    return _SKLEARN


_KEPT: ContextVar[list[Warning] | None] = ContextVar("cvgp_kept_warnings", default=None)


@contextmanager
def kept_warnings() -> Iterator[list[Warning]]:
    """Collect what :func:`warn_or_keep` is given by this thread, for a caller that decides later what matters.

    Python's own ``catch_warnings`` changes the filters of all threads, and two threads can leave them changed.
    """
    kept: list[Warning] = []
    token = _KEPT.set(kept)
    try:
        yield kept
    finally:
        _KEPT.reset(token)


def warn_or_keep(warning: Warning) -> None:
    """Give a warning, or leave it to the caller who collects them."""
    kept = _KEPT.get()
    if kept is None:
        warnings.warn(warning, stacklevel=3)
    else:
        kept.append(warning)
