"""What the cells of an Arrow column hold."""

import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from cvgp.tables.cells import (
    days,
    labels,
    look_like_dates,
    numbers,
)

# Numbers, and true and false.


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, 3], pa.int8()),
        pa.array([1.0, None, 3.0], pa.float32()),
        pa.array([1.0, np.nan, 3.0]),
        pa.array([Decimal("1.0"), None, Decimal("3.0")]),
        pa.array([1, None, 3]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_numbers_of_any_type_are_floats(column: pa.Array) -> None:
    np.testing.assert_array_equal(numbers("a", column), [1.0, np.nan, 3.0])


# Labels.


def test_a_dictionary_with_equal_and_missing_entries_has_one_label_for_each_text() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3, None]), pa.array(["red", "blue", "red", None]))
    codes, names = labels("a", column)
    assert [None if code < 0 else names[code] for code in codes] == ["red", "blue", "red", None, None]


# Dates.


@pytest.mark.parametrize("text", ["2020-13-02", "2020-01-32", "1234-56-789", "12-01-2020", "2020-01-02 late", "2020"])
def test_text_that_only_resembles_a_date_does_not(text: str) -> None:
    assert not look_like_dates(["2020-01-02", text])


NEW_YORK = datetime.datetime(1970, 1, 2, 19, tzinfo=datetime.timezone(datetime.timedelta(hours=-5)))


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (pa.array([datetime.date(1970, 1, 3), None]), 2.0),
        (pa.array([datetime.datetime(1970, 1, 2, 12), None]), 1.5),
        (pa.array([NEW_YORK, None], pa.timestamp("ns", "America/New_York")), 2.0),
        (pa.array(["1970-01-02T19:00:00-05:00", None]), 2.0),
        (pa.array(["1970-01-03", None]).dictionary_encode(), 2.0),
    ],
    ids=["date", "time", "time with a zone", "text with an offset", "text in a dictionary"],
)
def test_days_are_counted_in_utc(column: pa.Array, found: float) -> None:
    np.testing.assert_array_equal(days("when", column), [found, np.nan])
