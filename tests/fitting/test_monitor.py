"""The progress that a verbose fit shows."""

import io
import sys

import pytest

from cvgp.fitting.monitor import FitEvent, ProgressDisplay


def event(iteration: int, seconds: float, phase: str = "adam") -> FitEvent:
    return FitEvent(phase, iteration, 100, 0.5, seconds, 0.01, None, "")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def make_screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    found = Screen()
    monkeypatch.setattr(sys, "stderr", found)
    return found


def test_a_bar_is_redrawn_from_time_to_time_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = make_screen(monkeypatch)
    show = ProgressDisplay(None)
    for iteration in range(1, 8):
        show(event(iteration, 0.01 * iteration))
    assert screen.getvalue().count("/100") == 1
    show.finish()
    assert "7/100" in screen.getvalue()
    assert screen.getvalue().endswith("\n")


def test_a_bar_is_never_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = make_screen(monkeypatch)
    monkeypatch.setenv("COLUMNS", "30")
    ProgressDisplay(None)(event(50, 1.0, phase="a long name of a phase"))
    assert len(screen.getvalue().strip("\r").removeprefix("\x1b[K")) == 29


def test_a_log_gets_the_last_line_of_each_phase(capsys: pytest.CaptureFixture[str]) -> None:
    show = ProgressDisplay(None)
    for phase in ("adam", "lbfgs"):
        for iteration in range(1, 8):
            show(event(iteration, 0.01 * iteration, phase))
    show.finish()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "7/100" in line] == ["adam", "lbfgs"]
    assert len(lines) < 5
