"""The progress that a verbose fit prints."""

import pytest

from cvgp.fitting.monitor import FitEvent, ProgressLines


def test_the_last_line_of_each_phase_is_printed_and_few_others(capsys: pytest.CaptureFixture[str]) -> None:
    show = ProgressLines()
    for phase in ("adam", "lbfgs"):
        for iteration in range(1, 8):
            show(FitEvent(phase, iteration, 7, 0.5, 0.01 * iteration, 0.01, None, ""))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["adam", "7/7"], ["lbfgs", "7/7"]]
