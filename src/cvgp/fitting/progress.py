"""How the progress of a fit is shown: a bar in a terminal or a notebook, and lines in a log."""

import shutil
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from html import escape
from typing import Any, TextIO

from cvgp.fitting.monitor import FitEvent

LEAST_PAUSE, SHARE_OF_PAUSE = 2.0, 0.1
"""Seconds between two lines about a phase, at least, and as a share of the time so far."""
BAR_WIDTH, BAR_PAUSE = 24, 0.1
"""Characters of a bar in a terminal, and seconds between two pictures of it."""


class Eta:
    """Speed over the last few seconds and the time left, by iterations or by the time limit."""

    def __init__(self, max_time: float | None) -> None:
        self.max_time = max_time
        self._phase = ""
        self._seen: deque[tuple[float, int]] = deque(maxlen=30)

    def update(self, event: FitEvent) -> None:
        """Record an iteration."""
        if event.phase != self._phase:
            self._phase = event.phase
            self._seen.clear()
        if not self._seen or event.seconds - self._seen[-1][0] >= 0.1:
            self._seen.append((event.seconds, event.iteration))

    def describe(self, event: FitEvent) -> str:
        """Bound, validation error, speed and time left in words."""
        parts = [f"bound {event.bound:.4f}"]
        if event.validation_rmse is not None:
            parts.append(f"validation RMSE {event.validation_rmse:.4f}")
        (first, start), (last, end) = self._seen[0], self._seen[-1]
        if last > first and end > start:
            speed = (end - start) / (last - first)
            left = (event.max_iter - event.iteration) / speed
            if self.max_time is not None:
                left = min(left, max(self.max_time - event.seconds, 0.0))
            parts.append(f"{speed:.3g} it/s")
            if left > 0:
                parts.append(f"{_clock(left)} left")
        return "  ".join(parts)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class EventLines:
    """A callback that shows the last event of each phase, and others every two seconds or, in a long fit, less often.

    Parameters
    ----------
    show
        Called with each event that is worth a line. Decisions and problems always are.
    """

    def __init__(self, show: Callable[[FitEvent], None]) -> None:
        self._show = show
        self._shown_at = 0.0
        self._waiting: FitEvent | None = None

    def __call__(self, event: FitEvent) -> None:
        """Take the next event of the fit."""
        waiting = self._waiting
        if waiting is not None and (event.phase != waiting.phase or event.iteration < waiting.iteration):
            self.finish()
        self._waiting = event
        pause = max(LEAST_PAUSE, SHARE_OF_PAUSE * event.seconds)
        if event.event or event.iteration == event.max_iter or event.seconds - self._shown_at >= pause:
            self.finish()

    def finish(self) -> None:
        """Show the last event, unless it has been shown."""
        if self._waiting is not None:
            self._shown_at = self._waiting.seconds
            self._show(self._waiting)
        self._waiting = None


def print_line(event: FitEvent) -> None:
    """Print an event as a plain line."""
    validation = "" if event.validation_rmse is None else f"  validation RMSE {event.validation_rmse:.4f}"
    print(
        f"{event.phase:>20}  {event.iteration:6d}/{event.max_iter}  bound {event.bound:10.4f}  "
        f"{event.seconds:7.1f} s{validation}  {event.event}".rstrip(),
        flush=True,
    )


class ProgressBar(ABC):
    """A callback that shows the present iteration, and keeps showing the last one.

    Parameters
    ----------
    max_time
        The time limit of the fit in seconds, or None.
    """

    def __init__(self, max_time: float | None) -> None:
        self._eta = Eta(max_time)
        self._last: FitEvent | None = None
        self._shown_at = -BAR_PAUSE

    def __call__(self, event: FitEvent) -> None:
        """Take the next event of the fit."""
        self._eta.update(event)
        self._last = event
        if event.seconds - self._shown_at >= BAR_PAUSE:
            self._shown_at = event.seconds
            self._show(event, self._eta.describe(event))

    def finish(self) -> None:
        """Show the last event, and leave the bar as it is."""
        if self._last is not None:
            self._show(self._last, self._eta.describe(self._last))
            self._leave()
        self._last = None

    @abstractmethod
    def _show(self, event: FitEvent, state: str) -> None: ...

    @abstractmethod
    def _leave(self) -> None: ...


class TerminalBar(ProgressBar):
    """One line of a terminal, rewritten in place."""

    def __init__(self, max_time: float | None, screen: TextIO | None = None) -> None:
        super().__init__(max_time)
        self._screen = sys.stderr if screen is None else screen

    def _show(self, event: FitEvent, state: str) -> None:
        done = round(BAR_WIDTH * min(event.iteration / max(event.max_iter, 1), 1.0))
        encoding = getattr(self._screen, "encoding", None) or "utf-8"
        full, empty = ("━", " ") if encoding.lower().startswith("utf") else ("#", "-")
        line = f"{event.phase}  {full * done}{empty * (BAR_WIDTH - done)}  {event.iteration}/{event.max_iter}  {state}"
        # A longer line would wrap, and could not be rewritten.
        width = shutil.get_terminal_size().columns - 1
        # The cursor returns to the start of the line, so that an error message begins there.
        self._screen.write(f"\x1b[K{line[:width]}\r")
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
