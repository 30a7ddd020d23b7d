import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from cvgp.data.tables import arrow_cells
from cvgp.data.tables.arrow_cells import (
    check_categories,
    days,
    kind_of_type,
    labels,
    look_like_dates,
    numbers,
    refuse_dates,
    truths,
)
from cvgp.errors import InvalidInputError, InvalidTypeError

# Kinds.


@pytest.mark.parametrize(
    ("arrow_type", "kind"),
    [
        (pa.int32(), "numeric"),
        (pa.uint8(), "numeric"),
        (pa.float16(), "numeric"),
        (pa.decimal128(9, 2), "numeric"),
        (pa.bool_(), "boolean"),
        (pa.string(), "categorical"),
        (pa.large_string(), "categorical"),
        (pa.string_view(), "categorical"),
        (pa.dictionary(pa.int8(), pa.string()), "categorical"),
        (pa.dictionary(pa.int8(), pa.int64()), "categorical"),
        (pa.dictionary(pa.int8(), pa.bool_()), "categorical"),
        (pa.dictionary(pa.int8(), pa.string(), ordered=True), "ordered"),
        (pa.dictionary(pa.int8(), pa.date32()), "date"),
        (pa.date32(), "date"),
        (pa.timestamp("ns", "UTC"), "date"),
        (pa.null(), "null"),
    ],
)
def test_types_have_the_kind_of_their_cells(arrow_type: pa.DataType, kind: str) -> None:
    assert kind_of_type("x", arrow_type) == kind


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (datetime.timedelta(1), "durations.*total seconds"),
        (datetime.time(1), "times of day.*seconds since midnight"),
        ([1.0], "only numbers"),
        ({"a": 1}, "only numbers"),
        (b"a", "only numbers.*--encoding"),
    ],
)
def test_times_and_what_is_neither_number_nor_text_are_refused(value: object, words: str) -> None:
    with pytest.raises(InvalidTypeError, match=f"'when' holds.*{words}"):
        kind_of_type("when", pa.array([value]).type)


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


@pytest.mark.parametrize("read", [numbers, truths])
def test_truths_are_one_and_zero(read: object) -> None:
    np.testing.assert_array_equal(read("a", pa.array([True, None, False])), [1.0, np.nan, 0.0])


@pytest.mark.parametrize("arrow_type", [pa.int64(), pa.float64()])
def test_the_numbers_one_and_zero_are_truths(arrow_type: pa.DataType) -> None:
    np.testing.assert_array_equal(truths("a", pa.array([1, None, 0], arrow_type)), [1.0, np.nan, 0.0])


def test_other_numbers_are_no_truths() -> None:
    with pytest.raises(InvalidTypeError, match="'a' must hold true and false, but it holds 2"):
        truths("a", pa.array([0, 1, 2]))


@pytest.mark.parametrize("column", [pa.array(["1"]), pa.array([[1]]), pa.array([datetime.date(2020, 1, 1)])])
def test_what_is_stored_otherwise_is_no_number(column: pa.Array) -> None:
    with pytest.raises(InvalidTypeError, match="'a' must hold numbers, but it is stored as"):
        numbers("a", column)


def test_a_column_without_values_is_all_missing() -> None:
    empty = pa.nulls(2)
    assert np.isnan(numbers("a", empty)).all()
    assert labels("a", empty)[0].tolist() == [-1, -1]


# Labels.


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["b", "a", None]),
        pa.array(["b", "a", None], pa.large_string()),
        pa.array(["b", "a", None], pa.string()),
    ],
)
@pytest.mark.parametrize("encoded", [False, True])
def test_labels_of_every_type_are_the_text(column: pa.Array, encoded: bool) -> None:
    codes, names = labels("a", column.dictionary_encode() if encoded else column)
    assert [None if code < 0 else names[code] for code in codes] == ["b", "a", None]


def test_a_dictionary_with_equal_and_missing_entries_has_one_label_for_each_text() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3, None]), pa.array(["red", "blue", "red", None]))
    codes, names = labels("a", column)
    assert [None if code < 0 else names[code] for code in codes] == ["red", "blue", "red", None, None]


@pytest.mark.parametrize("arrow_type", [pa.int64(), pa.float64(), pa.float32(), pa.string()])
def test_a_whole_number_has_the_same_label_in_every_type(arrow_type: pa.DataType) -> None:
    cells = ["1", "20", None] if arrow_type == pa.string() else [1, 20, None]
    codes, names = labels("a", pa.array(cells, arrow_type))
    assert (codes.tolist(), names) == ([0, 1, -1], ["1", "20"])


def test_nan_has_no_label() -> None:
    assert labels("a", pa.array([1.0, np.nan]))[0].tolist() == [0, -1]


def test_truths_have_labels() -> None:
    assert labels("a", pa.array([True, False]))[1] == ["True", "False"]


def test_cells_without_a_label_are_refused() -> None:
    with pytest.raises(InvalidTypeError, match="Column 'a' holds values of type list"):
        labels("a", pa.array([[1], [2]]))


# Text that is no category.


def names(count: int) -> list[str]:
    return [f"name {i:03}" for i in range(count)]


@pytest.mark.parametrize("texts", [names(5000), ["a", "b"], [*map(str, range(60))]])
def test_text_that_repeats_is_categories(texts: list[str]) -> None:
    check_categories("a", texts, 2 * len(texts), is_text_file=False)


def test_text_in_a_single_row_is_no_identifier() -> None:
    check_categories("a", ["x"], 1, is_text_file=False)


@pytest.mark.parametrize(
    ("texts", "cells", "message"),
    [
        (names(51), 102, "holds more than 50 different texts, such as 'name 000'.*group its values"),
        (names(10), 10, "holds a different text in every row.*leave it out if it only names the rows"),
        ([*map(str, range(60)), "oops"], 99, "most of it spells numbers: correct what does not, such as 'oops'"),
        ([*map(str, range(60))], 99, "all of it spells numbers: convert the column to numbers"),
        ([], 0, "holds no values at all; leave it out"),
    ],
    ids=["many", "identifiers", "numbers with a word", "numbers", "nothing"],
)
def test_other_text_is_refused_with_advice(
    texts: list[str], cells: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_cells, "MOST_TEXTS", 50)
    with pytest.raises(InvalidInputError, match=f"Column 'a' .*{message}"):
        check_categories("a", texts, cells, is_text_file=False)


# Dates.


@pytest.mark.parametrize(
    "texts",
    [["2020-01-02", "2020-12-31"], ["2020-01-02T03:04:05.678Z"], ["2020-01-02 03:04+01:00"]],
)
def test_text_that_spells_dates_looks_like_dates(texts: list[str]) -> None:
    assert look_like_dates(texts)


@pytest.mark.parametrize("text", ["2020-13-02", "2020-01-32", "1234-56-789", "12-01-2020", "2020-01-02 late", "2020"])
def test_text_that_only_resembles_a_date_does_not(text: str) -> None:
    assert not look_like_dates(["2020-01-02", text])


def test_dates_are_refused_with_the_way_to_expand_them() -> None:
    with pytest.raises(
        InvalidTypeError, match=r"Column 'when' holds dates.*dates='features', --dates expand.*days since"
    ):
        refuse_dates("when")


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


def test_text_that_is_no_date_is_infinitely_far() -> None:
    assert days("when", pa.array(["1970-01-03", "soon"])).tolist() == [2.0, np.inf]


def test_numbers_are_no_dates() -> None:
    with pytest.raises(InvalidTypeError, match="'when' must hold dates, but it is stored as int64"):
        days("when", pa.array([1]))
