import pytest

from cvgp.optim import NoImprovement, Plateau


def test_plateau_is_reached_when_the_window_brings_less_than_tol() -> None:
    plateau = Plateau(tol=1.0, window=3)
    assert [plateau.update(value) for value in (9.0, 5.0, 4.9, 4.8, 4.7)] == [False, False, False, False, True]


def test_plateau_measures_from_the_best_value_and_not_from_a_worse_one() -> None:
    plateau = Plateau(tol=0.5, window=2)
    assert [plateau.update(value) for value in (1.0, 100.0, 0.9)] == [False, False, True]


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
