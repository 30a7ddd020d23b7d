"""Progress of a fit: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cvgp.cli.console import note

if TYPE_CHECKING:
    from cvgp.training.monitor import FitEvent

Show = Callable[["FitEvent"], None]


@contextmanager
def show_progress(max_time: float | None, *, quiet: bool) -> Iterator[list[Show]]:
    """The callbacks to give to an estimator while it is fitted."""
    if quiet:
        yield []
    else:
        with (_bar if sys.stderr.isatty() else progress_lines)(max_time) as show:
            yield [show]


class Pace:
    """Speed over the last few seconds and the time that is left, by iterations or by the time limit."""

    def __init__(self, max_time: float | None) -> None:
        self.max_time = max_time
        self._phase = ""
        self._seen: deque[tuple[float, int]] = deque(maxlen=30)

    def update(self, event: FitEvent) -> None:
        """Note an iteration."""
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


@contextmanager
def progress_lines(max_time: float | None) -> Iterator[Show]:
    """Lines for a log: one at the end of each phase, and regular ones in between."""
    from cvgp.training.monitor import EventLines

    pace = Pace(max_time)

    def write(event: FitEvent) -> None:
        pace.update(event)
        note(f"{event.phase}  {event.iteration}/{event.max_iter}  {pace.describe(event)}")

    lines = EventLines(write)

    def show(event: FitEvent) -> None:
        lines(event)  # it may write of the phase before, at its pace
        pace.update(event)

    yield show
    lines.finish()


@contextmanager
def _bar(max_time: float | None) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    pace = Pace(max_time)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("preparing", total=None, state="")

        def show(event: FitEvent) -> None:
            pace.update(event)
            progress.update(
                task,
                description=event.phase,
                completed=event.iteration,
                total=event.max_iter,
                state=pace.describe(event),
            )

        yield show


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
