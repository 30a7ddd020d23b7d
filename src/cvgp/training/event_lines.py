"""Events of a fit as lines for people: few enough to be read."""

from collections.abc import Callable

from cvgp.training.monitor import FitEvent

LEAST_PAUSE, SHARE_OF_PAUSE = 2.0, 0.1
"""Between two lines about a phase there are at least this many seconds, and this share of the time so far."""


class EventLines:
    """A callback that shows the last event of each phase, and in between one every two seconds or, in a long fit, less.

    Parameters
    ----------
    show
        Called with each event that is worth a line. An event that went wrong and was mended always is.
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
