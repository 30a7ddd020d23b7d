"""A long run notices memory that grows and answers that change."""

import pytest

from tests.robustness import soak


def test_two_rounds_of_a_long_run_give_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "SETTINGS", {"lbfgs": soak.SETTINGS["lbfgs"]})
    monkeypatch.setattr(soak, "ROWS", 200)
    report = soak.run(minutes=1e-6, say=lambda line: None)
    assert (report.rounds, report.failures) == (2, [])


def test_memory_that_grows_fails_a_long_run() -> None:
    growing = soak.Report(100, 1.0, [100.0 + round for round in range(100)], [])
    assert growing.slope == pytest.approx(1.0)
    assert not growing.passed


def test_descriptors_that_stay_open_fail_a_long_run() -> None:
    assert soak.Report(10, 1.0, [100.0] * 10, [], (5, 5)).passed
    assert not soak.Report(10, 1.0, [100.0] * 10, [], (5, 6)).passed


def test_an_answer_that_changes_fails_a_long_run() -> None:
    assert not soak.Report(10, 1.0, [100.0] * 10, ["round 3, adam: predictions differ"]).passed
