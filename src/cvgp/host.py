"""Memory that one step frees and the next one needs.

The C library gives large blocks back to the system when they are freed. Every matrix of a training step then is new
memory, whose pages the system has to map and to clear: with 500 points that took a third of the step's time.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

__all__ = ["reused_memory"]

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""The numbers by which glibc's `mallopt` knows its parameters."""

LARGEST_BLOCK = 1 << 25
"""Blocks up to this size come from the heap; no version of glibc takes more."""

KEPT, USUALLY_KEPT = 1 << 30, 1 << 26
"""Bytes at the end of the heap that are kept for later, within a fit and otherwise."""


@contextmanager
def reused_memory() -> Iterator[None]:
    """Keep what is freed for what comes next, up to a gigabyte; where the C library is another, change nothing."""
    set_option = _mallopt()
    if set_option is None:
        yield
        return
    set_option(MMAP_THRESHOLD, LARGEST_BLOCK)
    set_option(TRIM_THRESHOLD, KEPT)
    try:
        yield
    finally:
        set_option(TRIM_THRESHOLD, USUALLY_KEPT)


@cache
def _mallopt() -> "ctypes._NamedFuncPointer | None":
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "mallopt", None)
