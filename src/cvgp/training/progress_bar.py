"""A bar that moves while a fit runs: in a terminal, or under the cell of a notebook."""

import shutil
import sys
from abc import ABC, abstractmethod
from html import escape
from typing import Any, TextIO

from cvgp.training.event_lines import EventLines, print_line
from cvgp.training.monitor import FitEvent
from cvgp.training.pace import Pace

WIDTH = 24
"""Characters of a bar in a terminal."""
PAUSE = 0.1
"""Seconds between two pictures of the bar."""


class ProgressBar(ABC):
    """A callback that shows the present iteration, and goes on showing the last one.

    Parameters
    ----------
    max_time
        The time limit of the fit in seconds, or None.
    """

    def __init__(self, max_time: float | None) -> None:
        self._pace = Pace(max_time)
        self._last: FitEvent | None = None
        self._shown_at = -PAUSE

    def __call__(self, event: FitEvent) -> None:
        """Take the next event of the fit."""
        self._pace.update(event)
        self._last = event
        if event.seconds - self._shown_at >= PAUSE:
            self._shown_at = event.seconds
            self._show(event, self._pace.describe(event))

    def finish(self) -> None:
        """Show the last event, and leave the bar as it is."""
        if self._last is not None:
            self._show(self._last, self._pace.describe(self._last))
            self._leave()
        self._last = None

    @abstractmethod
    def _show(self, event: FitEvent, state: str) -> None: ...

    @abstractmethod
    def _leave(self) -> None: ...


class TerminalBar(ProgressBar):
    """One line of a terminal, written again and again."""

    def __init__(self, max_time: float | None, screen: TextIO | None = None) -> None:
        super().__init__(max_time)
        self._screen = sys.stderr if screen is None else screen

    def _show(self, event: FitEvent, state: str) -> None:
        done = round(WIDTH * min(event.iteration / max(event.max_iter, 1), 1.0))
        encoding = getattr(self._screen, "encoding", None) or "utf-8"
        full, empty = ("━", " ") if encoding.lower().startswith("utf") else ("#", "-")
        line = f"{event.phase}  {full * done}{empty * (WIDTH - done)}  {event.iteration}/{event.max_iter}  {state}"
        # A longer line would begin another one, and could not be written again.
        room = shutil.get_terminal_size().columns - 1
        # The cursor returns to the start of the line, so that the message of an error begins there.
        self._screen.write(f"\x1b[K{line[:room]}\r")
        self._screen.flush()

    def _leave(self) -> None:
        self._screen.write("\n")
        self._screen.flush()


class NotebookBar(ProgressBar):
    """An element of HTML under the cell that runs the fit."""

    def __init__(self, max_time: float | None) -> None:
        super().__init__(max_time)
        self._handle: Any = None

    def _show(self, event: FitEvent, state: str) -> None:
        display = sys.modules["IPython.display"]
        bar = display.HTML(
            f"<div><progress value='{event.iteration}' max='{event.max_iter}' aria-label='fit'></progress> "
            f"{escape(event.phase)} {event.iteration}/{event.max_iter} <small>{escape(state)}</small></div>"
        )
        if self._handle is None:
            self._handle = display.display(bar, display_id=True)
        else:
            self._handle.update(bar)

    def _leave(self) -> None:
        pass  # the cell keeps its output


def progress_of_fit(max_time: float | None) -> ProgressBar | EventLines:
    """What shows a fit where it runs: a bar in a notebook and in a terminal, and lines in a log."""
    if _is_notebook():
        return NotebookBar(max_time)
    return TerminalBar(max_time) if sys.stderr.isatty() else EventLines(print_line)


def _is_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which has imported IPython then."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None and "IPython.display" in sys.modules
