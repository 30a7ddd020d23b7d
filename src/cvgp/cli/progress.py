"""Progress of a fit: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
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


@contextmanager
def progress_lines(max_time: float | None) -> Iterator[Show]:
    """Lines for a log: one at the end of each phase, and regular ones in between."""
    from cvgp.training.event_lines import EventLines
    from cvgp.training.pace import Pace

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
    from cvgp.training.progress_bar import TerminalBar

    bar = TerminalBar(max_time)
    try:
        yield bar
    finally:
        bar.finish()
