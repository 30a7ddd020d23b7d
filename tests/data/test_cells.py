import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from cvgp.data.cells import is_missing, kind_of, labels, numbers, truths
from cvgp.errors import InvalidInputError, InvalidTypeError

DICTIONARY = pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))

NUMERIC = {
    "int64": pd.Series([1, 2], dtype="int64"),
    "uint8": pd.Series([1, 2], dtype="uint8"),
    "float32": pd.Series([1, 2], dtype="float32"),
    "Int64": pd.Series([1, 2], dtype="Int64"),
    "Float32": pd.Series([1, 2], dtype="Float32"),
    "int8[pyarrow]": pd.Series([1, 2], dtype="int8[pyarrow]"),
    "double[pyarrow]": pd.Series([1, 2], dtype="double[pyarrow]"),
    "decimal[pyarrow]": pd.Series([Decimal(1), Decimal(2)], dtype=pd.ArrowDtype(pa.decimal128(5, 2))),
    "object of int": pd.Series([1, 2], dtype=object),
    "object of int and float": pd.Series([1, 2.0], dtype=object),
    "object of Decimal": pd.Series([Decimal(1), Decimal(2)], dtype=object),
}
BOOLEAN = {
    "bool": pd.Series([True, False]),
    "boolean": pd.Series([True, False], dtype="boolean"),
    "bool[pyarrow]": pd.Series([True, False], dtype="bool[pyarrow]"),
    "object": pd.Series([True, False], dtype=object),
    "object of NumPy": pd.Series([np.True_, np.False_], dtype=object),
}
TEXT = {
    "str": pd.Series(["b", "a"], dtype="str"),
    "object": pd.Series(["b", "a"], dtype=object),
    "string": pd.Series(["b", "a"], dtype="string"),
    "string[pyarrow]": pd.Series(["b", "a"], dtype="string[pyarrow]"),
    "ArrowDtype string": pd.Series(["b", "a"], dtype=pd.ArrowDtype(pa.string())),
    "category": pd.Series(["b", "a"], dtype="category"),
    "dictionary[pyarrow]": pd.Series(["b", "a"], dtype=DICTIONARY),
}


def by_name(columns: dict[str, pd.Series]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("column", list(columns.values()), ids=list(columns))


@by_name(NUMERIC)
def test_column_of_numbers_is_numeric(column: pd.Series) -> None:
    assert kind_of(column) == "numeric"


@by_name(BOOLEAN)
def test_column_of_true_and_false_is_boolean(column: pd.Series) -> None:
    assert kind_of(column) == "boolean"


@by_name(TEXT)
def test_column_of_text_is_categorical(column: pd.Series) -> None:
    assert kind_of(column) == "categorical"


@by_name({"category": pd.Series([1, 2], dtype="category"), "bool": pd.Series([True, False], dtype="category")})
def test_column_declared_as_categories_is_categorical(column: pd.Series) -> None:
    assert kind_of(column) == "categorical"


@pytest.mark.parametrize(
    ("column", "advice"),
    [
        (pd.Series(pd.to_datetime(["2020-01-02"])), "dates.*days since"),
        (pd.Series(pd.to_datetime(["2020-01-02"], utc=True)), "dates.*days since"),
        (pd.Series(pd.to_datetime(["2020-01-02"])).astype("timestamp[us][pyarrow]"), "dates.*days since"),
        (pd.Series([datetime.date(2020, 1, 2)], dtype=pd.ArrowDtype(pa.date32())), "dates.*days since"),
        (pd.Series([datetime.date(2020, 1, 2)]), "dates.*days since"),
        (pd.Series([datetime.datetime(2020, 1, 2)], dtype=object), "dates.*days since"),
        (pd.Series(pd.to_datetime(["2020-01-02"])).astype("category"), "dates.*days since"),
        (pd.Series(pd.period_range("2020", periods=1)), "periods.*days since"),
        (pd.Series([datetime.time(12)]), "times of day.*seconds since midnight"),
        (pd.Series(pd.to_timedelta([1], unit="s")), "durations.*total seconds"),
        (pd.Series(pd.to_timedelta([1], unit="s")).astype("duration[s][pyarrow]"), "durations.*total seconds"),
        (pd.Series(["2020-01-02", "2020-12-31"]), "text that looks like dates.*days since"),
        (pd.Series(["2020-01-02"], dtype="category"), "text that looks like dates.*days since"),
        (pd.Series(["2020-01-02T03:04:05.678Z"]), "text that looks like dates.*days since"),
        (pd.Series(["2020-01-02 03:04+01:00"]), "text that looks like dates.*days since"),
    ],
)
def test_dates_and_durations_are_refused_with_advice(column: pd.Series, advice: str) -> None:
    with pytest.raises(InvalidTypeError, match=f"Column 'when' holds {advice}"):
        kind_of(column.rename("when"))


@pytest.mark.parametrize("text", ["2020-13-02", "2020-01-32", "1234-56-789", "12-01-2020", "2020-01-02 late", "2020"])
def test_text_that_only_resembles_a_date_is_categorical(text: str) -> None:
    assert kind_of(pd.Series([text])) == "categorical"


@pytest.mark.parametrize(
    "cells", [[1, "a"], [b"a"], [1j], [[1], [2]], [{}], [pd.Interval(0, 1)]], ids=lambda cells: type(cells[-1]).__name__
)
def test_column_of_anything_else_is_refused(cells: list) -> None:
    with pytest.raises(InvalidTypeError, match=r"Column 'a' holds .* values .*convert it to one of these"):
        kind_of(pd.Series(cells, name="a", dtype=object))


# Missing values.


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1.0, np.nan]),
        pd.Series([1, None], dtype="Int64"),
        pd.Series([1.0, np.nan], dtype="Float64"),
        pd.Series(pd.array(pa.array([1.0, np.nan]), dtype="double[pyarrow]")),
        pd.Series([1.0, None], dtype="double[pyarrow]"),
        pd.Series(["a", None]),
        pd.Series(["a", None], dtype=object),
        pd.Series(["a", pd.NA], dtype="string"),
        pd.Series(["a", None], dtype="category"),
        pd.Series(["a", None], dtype=DICTIONARY),
        pd.Series([True, None], dtype="boolean"),
        pd.Series([True, None], dtype=object),
    ],
    ids=lambda column: str(column.dtype),
)
def test_missing_value_is_found_in_every_type(column: pd.Series) -> None:
    assert is_missing(column).tolist() == [False, True]


def test_nan_beside_a_null_is_missing_as_well() -> None:
    column = pd.Series(pd.array(pa.array([1.0, np.nan, None]), dtype="double[pyarrow]"))
    assert is_missing(column).tolist() == [False, True, True]


# Numbers.


@by_name(NUMERIC)
def test_numbers_of_every_type_become_floats(column: pd.Series) -> None:
    np.testing.assert_array_equal(numbers(column), [1.0, 2.0])


@by_name({"category": pd.Series([1, 2], dtype="category"), "float": pd.Series([1.0, 2.0], dtype="category")})
def test_numbers_in_categories_become_floats(column: pd.Series) -> None:
    np.testing.assert_array_equal(numbers(column), [1.0, 2.0])


@pytest.mark.parametrize("dtype", ["Int64", "double[pyarrow]", object])
def test_missing_number_becomes_nan(dtype: object) -> None:
    np.testing.assert_array_equal(numbers(pd.Series([1, None], dtype=dtype)), [1.0, np.nan])


@by_name(BOOLEAN)
def test_true_and_false_count_as_numbers(column: pd.Series) -> None:
    np.testing.assert_array_equal(numbers(column), [1.0, 0.0])


@pytest.mark.parametrize(
    ("cells", "row", "cell"),
    [
        (["1", "2", "oops", "?"], 3, "'oops'"),
        (["1", None, "?"], 3, r"'\?'"),
        (["1", "2"], 1, "'1'"),
        ([1.0, "2"], 2, "'2'"),
        ([1j, 2j], 1, "1j"),
        ([1.0, [2]], 2, r"\[2\]"),
    ],
)
def test_text_among_numbers_is_refused_by_row(cells: list, row: int, cell: str) -> None:
    with pytest.raises(
        InvalidTypeError, match=f"Column 'a' must hold numbers, but data row {row} holds {cell}; correct"
    ):
        numbers(pd.Series(cells, name="a"))


def test_rows_are_counted_from_one_whatever_the_index() -> None:
    with pytest.raises(InvalidTypeError, match="data row 2 holds 'x'"):
        numbers(pd.Series(["1", "x"], index=[70, 80]))


@pytest.mark.parametrize("dtype", ["float64", "Float64", "double[pyarrow]", object])
def test_infinite_numbers_are_refused_and_counted(dtype: object) -> None:
    with pytest.raises(InvalidInputError, match="Column 'a' holds 2 infinite"):
        numbers(pd.Series([1.0, np.inf, -np.inf], name="a", dtype=dtype))


def test_integer_beyond_the_range_of_floats_counts_as_infinite() -> None:
    with pytest.raises(InvalidInputError, match="Column 'a' holds 1 infinite or overflowing"):
        numbers(pd.Series([10**400, 1], name="a", dtype=object))


# True and false.


@by_name({**BOOLEAN, "int": pd.Series([1, 0]), "float": pd.Series([1.0, 0.0])})
def test_truths_of_every_type_become_one_and_zero(column: pd.Series) -> None:
    np.testing.assert_array_equal(truths(column), [1.0, 0.0])


@pytest.mark.parametrize("dtype", ["boolean", "bool[pyarrow]", "float64", object])
def test_missing_truth_becomes_nan(dtype: object) -> None:
    np.testing.assert_array_equal(truths(pd.Series([True, None], dtype=dtype)), [1.0, np.nan])


@pytest.mark.parametrize(
    ("cells", "row", "cell"), [(["True", "maybe"], 2, "'maybe'"), ([0, 1, 2], 3, "2"), (["True", "False"], 1, "'True'")]
)
def test_anything_but_truths_is_refused_by_row(cells: list, row: int, cell: str) -> None:
    with pytest.raises(
        InvalidTypeError, match=f"Column 'a' must hold true and false, but data row {row} holds {cell};"
    ):
        truths(pd.Series(cells, name="a"))


# Labels.


@by_name(TEXT)
def test_labels_of_every_type_are_the_text(column: pd.Series) -> None:
    codes, names = labels(column)
    assert [names[code] for code in codes] == ["b", "a"]


@pytest.mark.parametrize("dtype", ["str", object, "category", "string", DICTIONARY])
def test_missing_label_has_the_code_minus_one(dtype: object) -> None:
    codes, _ = labels(pd.Series(["a", None], dtype=dtype))
    assert codes.tolist() == [0, -1]


@pytest.mark.parametrize("dtype", ["int64", "float64", "Int64", "double[pyarrow]", "category", object])
def test_whole_number_has_the_same_label_in_every_type(dtype: object) -> None:
    assert labels(pd.Series([1, 20], dtype=dtype))[1] == ["1", "20"]


@by_name(BOOLEAN)
def test_truth_has_the_same_label_in_every_type(column: pd.Series) -> None:
    assert labels(column)[1] == ["True", "False"]


def test_cells_without_a_label_are_refused() -> None:
    with pytest.raises(InvalidTypeError, match="Column 'a' must hold text"):
        labels(pd.Series([[1], [2]], name="a"))
