"""How fast a fit goes, and how long it will still take."""

from collections import deque

from cvgp.training.monitor import FitEvent


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


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
