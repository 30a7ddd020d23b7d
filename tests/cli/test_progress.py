import io
import sys

import pytest

from cvgp.cli.progress import Pace, progress_lines, show_progress
from cvgp.training.monitor import FitEvent


def event(iteration: int, seconds: float, validation: float | None = None, phase: str = "adam") -> FitEvent:
    return FitEvent(phase, iteration, 100, 0.5, seconds, 0.01, validation, "")


def test_speed_and_time_left_come_from_the_last_iterations() -> None:
    pace = Pace(None)
    for iteration in range(1, 51):
        pace.update(event(iteration, 0.5 * iteration))
    assert pace.describe(event(50, 25.0)) == "bound 0.5000  2 it/s  0:25 left"


def test_the_time_limit_shortens_the_time_left() -> None:
    pace = Pace(30.0)
    pace.update(event(1, 0.5))
    pace.update(event(50, 25.0))
    assert pace.describe(event(50, 25.0)).endswith("0:05 left")


def test_hours_are_shown_as_hours() -> None:
    pace = Pace(None)
    pace.update(event(1, 0.0))
    pace.update(event(2, 60.0))
    assert pace.describe(event(2, 60.0)).endswith("1:38:00 left")


def test_a_new_phase_starts_a_new_clock() -> None:
    pace = Pace(None)
    pace.update(event(1, 0.0, phase="start"))
    pace.update(event(100, 1.0, phase="start"))
    pace.update(event(1, 1.5))
    assert pace.describe(event(1, 1.5)) == "bound 0.5000"


def test_the_validation_error_is_shown_where_there_is_one() -> None:
    pace = Pace(None)
    pace.update(event(1, 0.0))
    assert pace.describe(event(1, 0.0, validation=0.25)) == "bound 0.5000  validation RMSE 0.2500"


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [" ".join(line.split()[:2]) for line in capsys.readouterr().err.splitlines()]


def test_lines_come_every_two_seconds_and_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_lines(None) as show:
        for iteration in range(1, 101):
            show(event(iteration, 0.05 * iteration))
    assert shown(capsys) == ["adam 40/100", "adam 80/100", "adam 100/100"]


def test_a_phase_that_ends_before_its_limit_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_lines(None) as show:
        for iteration in range(1, 6):
            show(event(iteration, 0.01 * iteration, phase="start"))
        show(event(1, 3.0))
        show(event(2, 3.1))
    assert shown(capsys) == ["start 5/100", "adam 1/100", "adam 2/100"]


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with show_progress(None, quiet=False) as callbacks:
        for iteration in (1, 20):
            callbacks[0](event(iteration, 0.5 * iteration))
    assert "20/100" in screen.getvalue()
    assert "━" in screen.getvalue()
