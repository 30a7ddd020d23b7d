from cvgp.training.monitor import FitEvent
from cvgp.training.pace import Pace


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
