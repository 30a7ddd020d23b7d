"""From exceptions, warnings and signals to messages and exit codes: no traceback for what a user can cause."""

import errno
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

import typer
from typer.core import TyperGroup

from cvgp.errors import CVGPError, MissingFileError
from cvgp.launcher import launched

__all__ = ["FAILURE", "INTERRUPTED", "WRONG_USE", "GuardedGroup"]

FAILURE, WRONG_USE, INTERRUPTED = 1, 2, 130


class GuardedGroup(TyperGroup):
    """A group of commands whose failures end in one line on the standard error and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        with _termination_as_interrupt(), _plain_warnings():
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt as stop:
                _complain("Interrupted.", *stop.args)
                raise typer.Exit(INTERRUPTED) from stop
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


def _is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    # torch has no class of its own for memory that the system refuses.
    return isinstance(error, MemoryError) or "allocate" in str(error) or "out of memory" in str(error)


def _complain(*parts: object) -> None:
    """One message, after the number of the worker that gives it if that is not the first."""
    worker = launched().rank
    # In one piece, so that the lines of several workers do not mix.
    text = " ".join(map(str, (*([f"[worker {worker}]"] if worker else []), *parts)))
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Let SIGTERM, which batch systems send before they kill, end a command as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # Python allows handlers only there
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show a warning as one line, without the line of code that gave it."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        _complain("Warning:", message)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
