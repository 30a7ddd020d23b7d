import numpy as np
import pandas as pd
import pytest

from cvgp.data.calendar import date_features, varying_parts

EVERY = ("trend", "season", "weekday", "hour")


def days(*times: str) -> np.ndarray:
    return pd.DatetimeIndex(times).to_numpy("datetime64[s]").astype(np.int64) / 86400.0


def test_the_trend_is_in_days() -> None:
    assert date_features(days("1970-01-02 12:00"), ("trend",)).tolist() == [[1.5]]


@pytest.mark.parametrize(
    ("part", "first", "second"),
    [
        ("season", "2021-03-01", "2025-03-01"),
        ("weekday", "2024-05-06 01:00", "2024-05-13 23:00"),
        ("hour", "2020-02-03 17:30", "2023-08-09 17:30"),
    ],
)
def test_a_part_is_the_same_a_turn_later(part: str, first: str, second: str) -> None:
    one, other = date_features(days(first, second), (part,))
    np.testing.assert_allclose(one, other, atol=0.02)  # leap years move a season by less than a day


def test_weekdays_are_seven_places_on_a_circle_that_begins_with_monday() -> None:
    week = date_features(days(*(f"2024-05-{day:02}" for day in range(6, 13))), ("weekday",))
    np.testing.assert_allclose(np.hypot(*week.T), np.ones(7))
    np.testing.assert_allclose(week[0], [0.0, 1.0], atol=1e-12)
    assert len(np.unique(week.round(6), axis=0)) == 7


@pytest.mark.parametrize(
    ("times", "parts"),
    [
        (["2020-01-01"], ("trend",)),
        (["2020-01-01", "2020-01-03"], ("trend",)),
        (["2020-01-01", "2020-01-14"], ("trend", "weekday")),
        (["2020-01-01 10:00", "2020-01-01 12:00"], ("trend", "hour")),
        (["2020-01-01", "2021-01-03 05:00"], EVERY),
    ],
)
def test_parts_that_do_not_vary_are_left_out(times: list[str], parts: tuple[str, ...]) -> None:
    assert varying_parts(days(*times)) == parts
