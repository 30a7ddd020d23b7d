import io
import sys

import pytest

from cvgp.cli.progress import progress_lines, show_progress
from cvgp.training.monitor import FitEvent


def event(iteration: int, seconds: float, validation: float | None = None, phase: str = "adam") -> FitEvent:
    return FitEvent(phase, iteration, 100, 0.5, seconds, 0.01, validation, "")


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
