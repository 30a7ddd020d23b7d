"""SIGTERM, which batch systems and containers send before they kill."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Terminated", "terminate_at_once", "terminate_between_iterations"]


class Terminated(KeyboardInterrupt):
    """The process was asked to end."""


@contextmanager
def terminate_at_once() -> Iterator[None]:
    """Raise :class:`Terminated` wherever the program is when the signal comes."""

    def end_here(number: int, frame: FrameType | None) -> None:
        raise Terminated

    with _handler(end_here):
        yield


@contextmanager
def terminate_between_iterations() -> Iterator[Callable[[object], None]]:
    """Give a callback for a fit, which raises :class:`Terminated` after the iteration in which the signal came.

    There the fit is in a state that can be stored. A second signal does not wait.
    """
    asked = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise Terminated
        asked = True

    def end_here(event: object) -> None:
        if asked:
            raise Terminated

    with _handler(remember):
        yield end_here


@contextmanager
def _handler(function: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    # Python sets handlers in the main thread only, and cannot put back a handler that is not Python's (None).
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is None:
        yield
        return
    before = signal.signal(signal.SIGTERM, function)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
