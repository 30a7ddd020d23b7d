"""What a user sees: results on the standard output, everything else on the standard error, and exit codes.

Errors, warnings and signals become one message each; a traceback is for programming errors alone.
"""

import errno
import json
import math
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from cvgp.errors import CVGPError, MissingFileError, optional_packages, printable_json, printable_lines
from cvgp.parallel import launched
from cvgp.progress import listening

FAILURE, WRONG_USE = 1, 2
INTERRUPTED, TERMINATED = 130, 143  # by convention 128 and the number of the signal: SIGINT is 2, SIGTERM 15
WRONG_WORDS: Any = typer.BadParameter.__base__  # every error of typer about a command line


def note(text: str) -> None:
    """Print a message about the work to the standard error; in a group only the first process does."""
    if launched().rank == 0:
        print(printable_lines(text), file=sys.stderr, flush=True)


def note_reading(data: str, reading: Any) -> None:
    """Print how a table was read, if it could have been read otherwise."""
    if not reading.is_plain:
        note(f"{data}: {reading.describe()}")


def say(text: str) -> None:
    """Print a result; at once, so that a reader who has left is noticed here."""
    print(printable_lines(text), flush=True)


def print_result(as_json: bool, value: Mapping[str, Any], text: str | Mapping[str, str]) -> None:
    """Print the result of a command for programs, or for people: a line, or names and values in two columns."""
    if as_json:
        print_json(value)
    elif isinstance(text, str):
        say(text)
    else:
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold")
        grid.add_column(overflow="fold")
        _print_rows(grid, text.items())


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object; numbers that JSON cannot express become null."""
    is_utf = (sys.stdout.encoding or "").lower().startswith("utf")
    print(printable_json(json.dumps(_finite(value), indent=2, ensure_ascii=not is_utf)), flush=True)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table whose first column has names and whose others have numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for position, name in enumerate(columns):
        table.add_column(printable_lines(name), justify="right" if position else "left")
    _print_rows(table, rows)


def _print_rows(table: Any, rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console

    for row in rows:
        table.add_row(*map(printable_lines, row))
    # In a log or a pipe there is no screen whose width would matter. A name such as "[red]" or ":cat:" is not markup.
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 120, markup=False, emoji=False).print(table)
    sys.stdout.flush()


SOON = 2.0  # seconds until progress is shown


class _Shown:
    """Progress as a bar on a terminal, which goes when the work is done, or as lines in a log."""

    def __init__(self, limit: float | None) -> None:
        self.limit, self.start = limit, time.perf_counter()
        self.work, self.done, self.begun, self.last, self.next = "", 0, self.start, self.start, self.start + SOON
        self.bar: Any = None

    def __call__(self, work: str, done: int, total: int) -> None:
        now = time.perf_counter()
        if work != self.work or done < self.done:
            self.work, self.begun = work, self.last
        self.done, self.last = done, now
        if now < self.next:
            return
        left = self.left(now, done, total) if 0 < done < total else ""
        if is_terminal():
            self.next = now + 0.1
            self.move_bar(work, done, total, left)
        elif left:
            self.next = now + 10.0
            note(f"{work}: {done} of {total}, {left}")

    def left(self, now: float, done: int, total: int) -> str:
        """The time left, in words."""
        seconds = (now - self.begun) * (total - done) / done
        if self.limit is not None:
            seconds = min(seconds, max(self.limit - (now - self.start), 0.0))
        return f"about {seconds:.0f} s left" if seconds >= 1.0 else "nearly done"

    def move_bar(self, work: str, done: int, total: int, left: str) -> None:
        """Draw the bar of the present work."""
        if self.bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            about, at_end = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[left]}"))
            columns = (SpinnerColumn(), about, BarColumn(), TimeElapsedColumn(), at_end)
            self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self.bar.add_task(work, left="")
            self.bar.start()
        self.bar.update(0, description=work, left=left, completed=done, total=total if total > 1 else None)


@contextmanager
def progress(*, quiet: bool = False, limit: float | None = None) -> Iterator[None]:
    """Show how far long work has come, and the time that it needs, on the standard error; `limit` is in seconds."""
    if quiet or launched().rank:
        with listening(None):
            yield
        return
    shown = _Shown(limit)
    try:
        with listening(shown):
            yield
    finally:
        if shown.bar is not None:
            shown.bar.stop()


def is_terminal() -> bool:
    """Whether somebody watches the standard error."""
    return sys.stderr.isatty()


class Terminated(KeyboardInterrupt):
    """The process was asked to end, by the SIGTERM that batch systems and containers send before they kill."""


class GuardedGroup(TyperGroup):
    """A group of commands whose failures end in one line on the standard error and an exit code."""

    def make_context(self, *given: Any, **options: Any) -> Any:
        """Parse what stands before the command; a page of help is printed here."""
        with _messages():
            return super().make_context(*given, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        with _on_termination(_terminate), warnings.catch_warnings(), _messages(), optional_packages(), progress():
            warnings.showwarning = lambda message, *where, **more: _complain("Warning:", message)
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
        # A path on the command line that does not exist is a mistake in the command.
        raise typer.Exit(WRONG_USE if isinstance(error, MissingFileError) else FAILURE) from error
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader of our output has left, as `head` does
            raise
        _complain("Error:", f"the system refused: {error}. Check the disk's free space and the permissions.")
        raise typer.Exit(FAILURE) from error
    except (MemoryError, RuntimeError) as error:
        # torch has no class of its own for memory that the system refuses.
        if not (isinstance(error, MemoryError) or "allocate" in str(error) or "out of memory" in str(error)):
            raise
        _complain("Error:", "there is not enough memory; use fewer rows, or a smaller --n-coreset.")
        raise typer.Exit(FAILURE) from error
    except WRONG_WORDS as error:
        # Typer prints these, with words of the command line and names of columns in them.
        error.message = printable_lines(error.message)
        raise


def _complain(*parts: object) -> None:
    """Print one message in one piece, so that the lines of several workers do not mix."""
    worker = launched().rank
    text = " ".join(map(str, ([f"[worker {worker}]", *parts] if worker else parts)))
    sys.stderr.write(f"{printable_lines(text)}\n")
    sys.stderr.flush()


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated  # wherever the program is when the signal comes


@contextmanager
def terminate_between_iterations() -> Iterator[Callable[[object], None]]:
    """Give a callback that raises :class:`Terminated` after the iteration in which a signal came, or at the second."""
    asked = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise Terminated
        asked = True

    def end_here(event: object) -> None:
        if asked:
            raise Terminated

    with _on_termination(remember):
        yield end_here


@contextmanager
def _on_termination(function: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    # Python sets handlers in the main thread only, and cannot restore a handler that is not Python's (None).
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is None:
        yield
        return
    before = signal.signal(signal.SIGTERM, function)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
