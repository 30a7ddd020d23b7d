import pytest

from cvgp.optim.stopping import NoImprovement, Plateau


def test_plateau_needs_a_full_window() -> None:
    plateau = Plateau(tol=1.0, window=3)
    assert [plateau.update(5.0) for _ in range(3)] == [False, False, False]


def test_plateau_is_reached_when_the_window_brings_less_than_tol() -> None:
    plateau = Plateau(tol=1.0, window=3)
    assert [plateau.update(value) for value in (9.0, 5.0, 4.9, 4.8, 4.7)] == [False, False, False, False, True]


def test_plateau_is_not_reached_while_the_window_brings_more_than_tol() -> None:
    plateau = Plateau(tol=1.0, window=3)
    assert not any(plateau.update(10.0 - 0.5 * i) for i in range(20))


def test_plateau_measures_from_the_best_value_and_not_from_a_worse_one() -> None:
    plateau = Plateau(tol=0.5, window=2)
    assert [plateau.update(value) for value in (1.0, 100.0, 0.9)] == [False, False, True]


def test_plateau_of_tolerance_zero_never_stops() -> None:
    plateau = Plateau(tol=0.0, window=2)
    assert not any(plateau.update(1.0) for _ in range(10))


def test_no_improvement_reports_a_better_score() -> None:
    patience = NoImprovement(2)
    assert [patience.update(score) for score in (3.0, 4.0, 2.0, 2.0)] == [True, False, True, False]


def test_no_improvement_keeps_the_best_score() -> None:
    patience = NoImprovement(2)
    for score in (3.0, 1.5, 2.0):
        patience.update(score)
    assert patience.best == 1.5


@pytest.mark.parametrize(
    ("scores", "exhausted"), [((1.0, 2.0), False), ((1.0, 2.0, 1.0), True), ((3.0, 4.0, 2.0), False)]
)
def test_patience_is_exhausted_by_checks_in_a_row(scores: tuple[float, ...], exhausted: bool) -> None:
    patience = NoImprovement(2)
    for score in scores:
        patience.update(score)
    assert patience.exhausted is exhausted


def test_a_score_that_is_not_a_number_is_no_improvement() -> None:
    assert NoImprovement(2).update(float("nan")) is False
