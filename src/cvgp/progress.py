"""How far long work has come: loops tell it, and a command line may listen."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str, int, int], object]  # of the work, the steps that are done, and all steps

_LISTENER: ContextVar[Listener | None] = ContextVar("cvgp_listener", default=None)


def tell(work: str, done: int, total: int) -> None:
    """Say how many steps of some work are done."""
    if (listener := _LISTENER.get()) is not None:
        listener(work, done, total)


@contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Pass what :func:`tell` is told to a listener, or to none."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
