import datetime
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from cvgp.data.schema import Schema
from cvgp.data.tables.arrow_columns import column_labels, column_numbers, encode_columns, kind_of_type
from cvgp.errors import FileFormatError, InvalidTypeError

FRAME = pd.DataFrame(
    {
        "size": [1.5, 2.0, np.nan, 4.0],
        "count": pd.array([1, None, 3, 4], dtype="Int64"),
        "is_new": pd.array([True, False, None, True], dtype="boolean"),
        "color": ["red", None, "blue", "red"],
        "group": pd.Categorical(["x", "y", "x", None]),
        "price": [1.0, 2.0, 3.0, 4.0],
    }
)


@pytest.mark.parametrize("impute", ["mean", "median", "most_frequent"])
def test_columns_are_encoded_as_those_of_a_table_in_memory(impute: str) -> None:
    schema = Schema.learn(FRAME, "price", impute)  # type: ignore[arg-type]
    batch = pa.RecordBatch.from_pandas(FRAME)
    np.testing.assert_array_equal(encode_columns(batch, schema.columns), schema.encode(FRAME))


def test_a_category_that_comes_later_is_refused() -> None:
    schema = Schema.learn(FRAME.dropna(), "price")
    later = pa.RecordBatch.from_pandas(FRAME.assign(color="green"))
    with pytest.raises(FileFormatError, match="'color' holds text that was not there"):
        encode_columns(later, schema.columns)


def test_missing_cells_without_a_fill_are_nan() -> None:
    columns = [replace(column, fill=None) for column in Schema.learn(FRAME, "price", "mean").columns]
    encoded = encode_columns(pa.RecordBatch.from_pandas(FRAME), columns)
    complete = FRAME.notna().all(axis=1)
    np.testing.assert_array_equal(np.isfinite(encoded).all(axis=1), complete)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, 3], pa.int8()),
        pa.array([1.0, None, 3.0], pa.float32()),
        pa.array([Decimal("1.0"), None, Decimal("3.0")]),
    ],
)
def test_numbers_of_any_type_are_floats(column: pa.Array) -> None:
    np.testing.assert_array_equal(column_numbers(column), [1.0, np.nan, 3.0])


def test_truths_are_one_and_zero() -> None:
    np.testing.assert_array_equal(column_numbers(pa.array([True, None, False])), [1.0, np.nan, 0.0])


def test_a_column_without_values_is_all_missing() -> None:
    empty = pa.nulls(2)
    assert np.isnan(column_numbers(empty)).all()
    assert column_labels(empty)[0].tolist() == [-1, -1]


def test_a_dictionary_with_equal_and_missing_entries_has_one_label_for_each_text() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3, None]), pa.array(["red", "blue", "red", None]))
    codes, names = column_labels(column)
    assert [None if code < 0 else names[code] for code in codes] == ["red", "blue", "red", None, None]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (datetime.datetime(2020, 1, 1), "dates"),
        (datetime.date(2020, 1, 1), "dates"),
        (datetime.timedelta(1), "durations"),
        (datetime.time(1), "times of day"),
        ([1.0], "only numbers"),
    ],
)
def test_times_and_lists_are_refused(value: object, words: str) -> None:
    with pytest.raises(InvalidTypeError, match=f"'when' holds.*{words}"):
        kind_of_type("when", pa.array([value]).type)


@pytest.mark.parametrize(
    ("arrow_type", "kind"),
    [
        (pa.int32(), "numeric"),
        (pa.float16(), "numeric"),
        (pa.decimal128(9, 2), "numeric"),
        (pa.bool_(), "boolean"),
        (pa.string(), "categorical"),
        (pa.large_string(), "categorical"),
        (pa.dictionary(pa.int8(), pa.int64()), "categorical"),
        (pa.null(), "null"),
    ],
)
def test_types_have_the_kind_of_their_cells(arrow_type: pa.DataType, kind: str) -> None:
    assert kind_of_type("x", arrow_type) == kind
