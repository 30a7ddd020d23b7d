"""From exceptions, warnings and signals to messages and exit codes: no traceback for what a user can cause."""

import errno
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from cvgp.errors import CVGPError, MissingFileError
from cvgp.extras import optional_packages
from cvgp.parallel.launcher import launched
from cvgp.printable import printable_lines

FAILURE, WRONG_USE = 1, 2
INTERRUPTED, TERMINATED = 130, 143
"""By convention 128 and the number of the signal: SIGINT is 2, SIGTERM 15."""


WRONG_WORDS: Any = typer.BadParameter.__base__
"""Every error of typer about a command line, such as an option that does not exist."""


class Terminated(KeyboardInterrupt):
    """The process was asked to end, by the SIGTERM that batch systems and containers send before they kill."""


class GuardedGroup(TyperGroup):
    """A group of commands whose failures end in one line on the standard error and an exit code."""

    def make_context(self, *given: Any, **options: Any) -> Any:
        """Look at what stands before the command; a page of help is printed here."""
        with _messages():
            return super().make_context(*given, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        with _handler(_terminate_at_once), _plain_warnings(), _messages(), optional_packages():
            return super().invoke(ctx)


@contextmanager
def _messages() -> Iterator[None]:
    """Turn what a user can cause into a message and an exit code."""
    try:
        yield
    except KeyboardInterrupt as stop:
        terminated = isinstance(stop, Terminated)
        _complain("Terminated." if terminated else "Interrupted.", *stop.args)
        raise typer.Exit(TERMINATED if terminated else INTERRUPTED) from stop
    except CVGPError as error:
        _complain("Error:", error)
        # A name on the command line that stands for nothing is a mistake in the command.
        raise typer.Exit(WRONG_USE if isinstance(error, MissingFileError) else FAILURE) from error
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader of our output has left, as `head` does
            raise
        _complain("Error:", f"the system refused: {error}. Check the disk's free space and the permissions.")
        raise typer.Exit(FAILURE) from error
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        _complain("Error:", "there is not enough memory; use fewer rows, or a smaller --coreset.")
        raise typer.Exit(FAILURE) from error
    except WRONG_WORDS as error:
        # Typer prints these, with words of the command line and names of columns in them.
        error.message = printable_lines(error.message)
        raise


def _is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    # torch has no class of its own for memory that the system refuses.
    return isinstance(error, MemoryError) or "allocate" in str(error) or "out of memory" in str(error)


def _complain(*parts: object) -> None:
    """One message, after the number of the worker that gives it if that is not the first."""
    worker = launched().rank
    # In one piece, so that the lines of several workers do not mix.
    text = " ".join(map(str, (*([f"[worker {worker}]"] if worker else []), *parts)))
    sys.stderr.write(f"{printable_lines(text)}\n")
    sys.stderr.flush()


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show a warning as one line, without the line of code that gave it."""

    def show(message: Warning | str, *where: Any, **more: Any) -> None:
        _complain("Warning:", message)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _terminate_at_once(number: int, frame: FrameType | None) -> None:
    raise Terminated  # wherever the program is when the signal comes


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
