"""What long commands say while they work: a bar on a terminal, lines in a log, nothing if quiet."""

import io
import itertools

import pytest

from cvgp.cli import console
from cvgp.progress import tell


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, seconds: float, **options: bool) -> str:
    """What is printed of ten steps, each of which takes some seconds."""
    clock = itertools.count(0.0, seconds / 2.0)
    monkeypatch.setattr(console.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr("sys.stderr", stream)
    with console.progress(**options):
        for step in range(10):
            tell("predict", step + 1, 10)
    return stream.getvalue()


def test_a_log_has_lines_with_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, io.StringIO(), 10.0).splitlines()
    assert lines
    assert lines[0] == "predict: 1 of 10, about 45 s left"


def test_a_terminal_has_a_bar_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = shown(monkeypatch, Terminal(), 10.0)
    assert "predict" in text
    assert "\n" not in text.replace("\r", "")[-1:]


@pytest.mark.parametrize(("seconds", "quiet"), [(10.0, True), (0.01, False)], ids=["quiet", "short"])
def test_quiet_and_short_work_say_nothing(monkeypatch: pytest.MonkeyPatch, seconds: float, quiet: bool) -> None:
    assert shown(monkeypatch, io.StringIO(), seconds, quiet=quiet) == ""


def test_nothing_is_told_outside_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    tell("predict", 1, 2)
    assert capsys.readouterr() == ("", "")
