import io
import sys
from types import ModuleType, SimpleNamespace

import pytest

from cvgp.fitting.monitor import FitEvent
from cvgp.fitting.progress import EventLines, NotebookBar, TerminalBar, progress_of_fit


def event(iteration: int, seconds: float, phase: str = "adam") -> FitEvent:
    return FitEvent(phase, iteration, 100, 0.5, seconds, 0.01, None, "")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


class Ascii(Screen):
    encoding = "ascii"


class Notebook:
    """What a notebook has shown, with the modules of IPython as far as they are used."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pictures: list[str] = []
        package, display = ModuleType("IPython"), ModuleType("IPython.display")
        package.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
        display.HTML = str  # type: ignore[attr-defined]
        display.display = self.display  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", package)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, picture: str, display_id: bool) -> SimpleNamespace:
        assert display_id
        self.pictures.append(picture)
        return SimpleNamespace(update=self.pictures.append)


def test_a_bar_is_as_full_as_the_phase_is_done() -> None:
    screen = Screen()
    TerminalBar(None, screen)(event(50, 1.0))
    assert "adam  " + 12 * "━" + 12 * " " + "  50/100" in screen.getvalue()


def test_a_terminal_without_unicode_gets_a_bar_of_ascii() -> None:
    screen = Ascii()
    TerminalBar(None, screen)(event(50, 1.0))
    assert screen.getvalue().isascii()


def test_iterations_that_follow_at_once_are_not_shown_but_the_last_one_is() -> None:
    screen = Screen()
    bar = TerminalBar(None, screen)
    for iteration in range(1, 8):
        bar(event(iteration, 0.01 * iteration))
    assert screen.getvalue().count("/100") == 1
    bar.finish()
    assert "7/100" in screen.getvalue()
    assert screen.getvalue().endswith("\n")


def test_a_line_is_never_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    screen = Screen()
    TerminalBar(None, screen)(event(50, 1.0, phase="a long name of a phase"))
    assert len(screen.getvalue().strip("\r").removeprefix("\x1b[K")) == 29


def test_a_notebook_shows_one_bar_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = Notebook(monkeypatch)
    bar = progress_of_fit(None)
    assert isinstance(bar, NotebookBar)
    bar(event(1, 0.0))
    bar(event(60, 1.0, phase="<b>"))
    bar.finish()
    assert [picture.count("<progress") for picture in notebook.pictures] == [1, 1, 1]
    assert "value='60' max='100'" in notebook.pictures[-1]
    assert "&lt;b&gt;" in notebook.pictures[-1]


def test_a_terminal_gets_a_bar_and_a_log_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(progress_of_fit(None), EventLines)
    monkeypatch.setattr(sys, "stderr", Screen())
    assert isinstance(progress_of_fit(None), TerminalBar)
