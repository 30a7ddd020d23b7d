import dataclasses
import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvgp.data.columns import Column
from cvgp.data.schema import Schema
from cvgp.data.tables.whole import read_table, write_table
from cvgp.errors import CVGPWarning, FileFormatError, InvalidInputError, InvalidTypeError

FRAME = pd.DataFrame(
    {
        "size": [1.5, 2.5, 3.5, 4.5],
        "price": [10, 20, 30, 40],
        "color": ["red", "blue", "red", "blue"],
        "sold": [True, False, True, True],
    }
)
MATRIX = np.array([[1.5, 0, 1, 1], [2.5, 1, 0, 0], [3.5, 0, 1, 1], [4.5, 1, 0, 1]])
HOLES = FRAME.assign(
    size=[1.5, np.nan, 3.5, 4.5],
    color=["red", None, "red", None],
    sold=pd.Series([True, False, True, None], dtype=object),
)


@pytest.fixture
def schema() -> Schema:
    return Schema.learn(FRAME, "price")


# Learning and encoding.


def test_features_are_named_in_the_order_of_the_table(schema: Schema) -> None:
    assert schema.feature_names == ("size", "color=blue", "color=red", "sold")


def test_training_table_is_encoded(schema: Schema) -> None:
    np.testing.assert_array_equal(schema.encode(FRAME), MATRIX)


def test_target_is_encoded_as_floats(schema: Schema) -> None:
    target = schema.encode_target(FRAME)
    assert (target.dtype, target.tolist()) == (np.float64, [10.0, 20.0, 30.0, 40.0])


def test_matrix_is_float64(schema: Schema) -> None:
    assert schema.encode(FRAME.astype({"size": "float32"})).dtype == np.float64


def test_features_and_target_come_together(schema: Schema) -> None:
    X, y = schema.encode_both(FRAME)
    np.testing.assert_array_equal(np.column_stack([X, y]), np.column_stack([MATRIX, FRAME["price"]]))


def test_columns_are_found_by_name_in_any_order(schema: Schema) -> None:
    np.testing.assert_array_equal(schema.encode(FRAME[["sold", "price", "color", "size"]]), MATRIX)


def test_extra_columns_are_ignored(schema: Schema) -> None:
    np.testing.assert_array_equal(schema.encode(FRAME.assign(when=pd.Timestamp("2020-01-01"))), MATRIX)


def test_target_may_be_absent_when_features_are_encoded(schema: Schema) -> None:
    np.testing.assert_array_equal(schema.encode(FRAME.drop(columns="price")), MATRIX)


def test_index_does_not_matter(schema: Schema) -> None:
    np.testing.assert_array_equal(schema.encode(FRAME.set_axis([3, 3, 1, 0])), MATRIX)


def test_table_without_rows_has_an_empty_matrix(schema: Schema) -> None:
    assert schema.encode(FRAME.iloc[:0]).shape == (0, 4)


def test_encoding_leaves_the_table_alone(schema: Schema) -> None:
    before = FRAME.copy()
    schema.encode_both(FRAME)
    pd.testing.assert_frame_equal(FRAME, before)


@pytest.mark.parametrize("ending", [".csv", ".tsv.gz", ".parquet", ".feather"])
def test_encoding_does_not_depend_on_the_kind_of_file(tmp_path: Path, ending: str) -> None:
    write_table(HOLES, tmp_path / f"a{ending}")
    read = read_table(tmp_path / f"a{ending}")
    schema = Schema.learn(HOLES, "price", "mean")
    assert Schema.learn(read, "price", "mean") == schema
    np.testing.assert_array_equal(schema.encode(read), schema.encode(HOLES))


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_encoding_does_not_depend_on_the_types_of_pandas(backend: str) -> None:
    converted = HOLES.convert_dtypes(dtype_backend=backend)
    schema = Schema.learn(HOLES, "price", "mean")
    assert Schema.learn(converted, "price", "mean") == schema
    np.testing.assert_array_equal(schema.encode(converted), schema.encode(HOLES))


def test_categorical_column_is_encoded_like_text(schema: Schema) -> None:
    np.testing.assert_array_equal(schema.encode(FRAME.astype({"color": "category"})), MATRIX)


def test_data_set_of_numbers_is_encoded_as_it_is(uci: Callable) -> None:
    X, y = uci("wine")
    frame = pd.DataFrame(X).rename(columns=lambda i: f"x{i}").assign(y=y)
    np.testing.assert_array_equal(Schema.learn(frame, "y").encode(frame), X)


# Unknown categories.


def test_unknown_categories_are_counted_in_a_warning(schema: Schema) -> None:
    with pytest.warns(CVGPWarning, match="category that the training table did not have: 'color' 2;"):
        schema.encode(FRAME.assign(color=["pink", "red", "teal", "blue"]))


def test_warning_points_at_the_caller(schema: Schema) -> None:
    with pytest.warns(CVGPWarning) as caught:
        schema.encode(FRAME.assign(color="pink"))
    assert caught[0].filename == __file__


def test_unknown_categories_are_encoded_as_zeros(schema: Schema) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CVGPWarning)
        encoded = schema.encode(FRAME.assign(color="pink"))
    np.testing.assert_array_equal(encoded, MATRIX * [1, 0, 0, 1])


# Missing values.


def test_missing_values_are_counted_by_column_and_the_rules_named() -> None:
    message = r"by column: 'size' 1, 'color' 2, 'sold' 1; .*--impute median\|mean\|most_frequent\|drop"
    with pytest.raises(InvalidInputError, match=message):
        Schema.learn(HOLES, "price")


def test_missing_values_at_prediction_are_counted_and_the_rules_named(schema: Schema) -> None:
    message = r"by column: 'size' 1, 'color' 2, 'sold' 1; .*--impute median\|mean\|most_frequent\|drop"
    with pytest.raises(InvalidInputError, match=message):
        schema.encode(HOLES)


def test_missing_values_are_filled_by_the_rule() -> None:
    filled = Schema.learn(HOLES, "price", "median").encode(HOLES)
    np.testing.assert_array_equal(filled, [[1.5, 1, 1], [3.5, 1, 0], [3.5, 1, 1], [4.5, 1, 1]])


def test_fill_comes_from_the_training_table() -> None:
    schema = Schema.learn(FRAME, "price", "mean")
    assert schema.encode(FRAME.assign(size=[np.nan, 100.0, 200.0, 300.0]))[0, 0] == 3.0


def test_missing_values_in_other_columns_do_not_matter(schema: Schema) -> None:
    np.testing.assert_array_equal(schema.encode(FRAME.assign(note=np.nan, price=np.nan)), MATRIX)


@pytest.mark.parametrize("impute", [None, "median", "mean", "most_frequent"])
def test_missing_target_is_an_error_unless_rows_are_dropped(impute: str | None) -> None:
    with pytest.raises(
        InvalidInputError, match=r"target 'price' has 2 missing values, the first in data row 2; .*--impute drop"
    ):
        Schema.learn(FRAME.assign(price=[1, None, None, 4]), "price", impute)


def test_missing_target_is_an_error_at_evaluation(schema: Schema) -> None:
    with pytest.raises(InvalidInputError, match="target 'price' has 1 missing values"):
        schema.encode_target(FRAME.assign(price=[1, None, 3, 4]))


def test_dropped_rows_are_counted() -> None:
    holes = HOLES.assign(price=[None, 20, 30, 40])
    assert Schema.learn(holes, "price", "drop").n_dropped == 3


def test_dropping_leaves_the_complete_rows() -> None:
    holes = FRAME.assign(size=[np.nan, 2.5, 3.5, 4.5], price=[10, 20, None, 40])
    X, y = Schema.learn(holes, "price", "drop").encode_both(holes)
    np.testing.assert_array_equal(np.column_stack([X, y]), [[2.5, 1, 0, 20], [4.5, 1, 1, 40]])


def test_categories_of_dropped_rows_are_not_learned() -> None:
    frame = FRAME.assign(color=["red", "red", "red", "blue"], size=[1, 2, 3, None])
    assert Schema.learn(frame, "price", "drop").feature_names == ("size", "color=red", "sold")


def test_categories_of_dropped_rows_give_no_warning() -> None:
    frame = FRAME.assign(color=["red", "red", "red", "blue"], size=[1, 2, 3, None])
    X, _ = Schema.learn(frame, "price", "drop").encode_both(frame)
    np.testing.assert_array_equal(X[:, 1], [1, 1, 1])


def test_incomplete_rows_are_not_predicted_where_the_rule_is_to_drop_them() -> None:
    schema = Schema.learn(FRAME, "price", "drop")
    with pytest.raises(InvalidInputError, match=r"by column: 'size' 1, .*drop such rows, so remove them"):
        schema.encode(HOLES)


@pytest.mark.parametrize(("with_target", "expected"), [(False, [True, False, True]), (True, [True, False, False])])
def test_complete_rows_are_marked(with_target: bool, expected: list[bool]) -> None:
    schema = Schema.learn(FRAME, "price", "drop")
    holes = HOLES.assign(price=[10, 20, None, 40]).iloc[:3]
    assert schema.complete_rows(holes, with_target).tolist() == expected


def test_bad_cell_is_found_by_its_row_though_rows_are_dropped() -> None:
    schema = Schema.learn(FRAME, "price", "drop")
    with pytest.raises(InvalidTypeError, match="Column 'size' must hold numbers, but data row 3 holds 'oops'"):
        schema.encode_both(FRAME.assign(size=[None, "2", "oops", "4"]))


def test_table_without_a_complete_row_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"Every row has a missing value.*'size' 2, 'price' 2"):
        Schema.learn(FRAME.assign(size=[1, None, None, 2], price=[None, 1, 2, None]), "price", "drop")


def test_unknown_rule_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"must be one of \('median', .*got 'zero'"):
        Schema.learn(FRAME, "price", "zero")


# Tables that cannot be used.


def test_target_that_does_not_exist_is_named_beside_the_columns() -> None:
    with pytest.raises(InvalidInputError, match=r"no column 'cost' for the target; choose from \['size', 'price'"):
        Schema.learn(FRAME, "cost")


@pytest.mark.parametrize("frame", [FRAME[["price"]], FRAME.iloc[:0]], ids=["no features", "no rows"])
def test_table_without_features_or_rows_is_refused(frame: pd.DataFrame) -> None:
    with pytest.raises(InvalidInputError, match="needs rows and at least one column beside the target"):
        Schema.learn(frame, "price")


def test_text_target_is_refused_by_row() -> None:
    with pytest.raises(InvalidTypeError, match="Column 'price' must hold numbers, but data row 2 holds 'cheap'"):
        Schema.learn(FRAME.assign(price=["1", "cheap", "3", "4"]), "price")


@pytest.mark.parametrize("column", ["size", "price"])
def test_infinite_value_is_refused_by_column(column: str) -> None:
    with pytest.raises(InvalidInputError, match=f"Column '{column}' holds 2 infinite"):
        Schema.learn(FRAME.assign(**{column: [1, np.inf, -np.inf, 2]}), "price")


def test_infinite_value_is_refused_at_prediction(schema: Schema) -> None:
    with pytest.raises(InvalidInputError, match="Column 'size' holds 1 infinite"):
        schema.encode(FRAME.assign(size=[1, np.inf, 2, 3]))


def test_dates_are_refused() -> None:
    with pytest.raises(InvalidTypeError, match=r"Column 'when' holds dates.*days since"):
        Schema.learn(FRAME.assign(when=pd.date_range("2020", periods=4)), "price")


def test_dates_in_a_text_file_are_refused(tmp_path: Path) -> None:
    write_table(FRAME.assign(when=pd.date_range("2020", periods=4)), tmp_path / "a.csv")
    with pytest.raises(InvalidTypeError, match=r"Column 'when' holds text that looks like dates.*days since"):
        Schema.learn(read_table(tmp_path / "a.csv"), "price")


def test_text_in_a_numeric_column_is_refused_by_row_at_prediction(tmp_path: Path, schema: Schema) -> None:
    write_table(FRAME.assign(size=["1", "2", "big", "4"]), tmp_path / "a.csv")
    with pytest.raises(InvalidTypeError, match="Column 'size' must hold numbers, but data row 3 holds 'big'"):
        schema.encode(read_table(tmp_path / "a.csv"))


def test_missing_columns_are_named(schema: Schema) -> None:
    with pytest.raises(InvalidInputError, match=r"lacks the columns \['size', 'sold'\].*it has \['price', 'color'\]"):
        schema.encode(FRAME[["price", "color"]])


@pytest.mark.parametrize("act", [Schema.encode_target, Schema.encode_both], ids=["target", "both"])
def test_absent_target_is_named(schema: Schema, act: Callable) -> None:
    with pytest.raises(InvalidInputError, match=r"lacks the columns \['price'\]"):
        act(schema, FRAME.drop(columns="price"))


def test_repeated_names_are_refused(schema: Schema) -> None:
    with pytest.raises(InvalidInputError, match="Column names must be unique"):
        schema.encode(pd.concat([FRAME, FRAME[["size"]]], axis=1))


def test_names_that_are_not_text_are_refused() -> None:
    with pytest.raises(InvalidTypeError, match="Column names must be text"):
        Schema.learn(pd.DataFrame([[1.0, 2.0]]), 1)


def test_what_is_no_table_is_refused(schema: Schema) -> None:
    with pytest.raises(InvalidTypeError, match="Expected a pandas DataFrame, got ndarray"):
        schema.encode(MATRIX)


def test_features_of_the_same_name_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="two features the same name"):
        Schema.learn(FRAME.assign(**{"color=red": 1.0}), "price")


# Storing.


def test_schema_is_frozen(schema: Schema) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        schema.target = "size"


@pytest.mark.parametrize("impute", ["median", "mean", "most_frequent", "drop"])
def test_schema_survives_json(impute: str) -> None:
    schema = Schema.learn(HOLES, "price", impute)
    restored = Schema.from_json(json.loads(json.dumps(schema.to_json(), allow_nan=False)))
    assert (restored, restored.n_dropped) == (schema, schema.n_dropped)


@given(
    st.dictionaries(
        st.text(min_size=1),
        st.one_of(
            st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=4, max_size=4),
            st.lists(st.booleans(), min_size=4, max_size=4),
            st.tuples(st.text(), st.text()).map(lambda pair: [f"{text} x" for text in pair] * 2),
        ),
        min_size=2,
        max_size=5,
    )
)
def test_schema_of_any_table_survives_json(table: dict[str, list]) -> None:
    frame = pd.DataFrame(table).assign(target=[1, 2, 3, 4])
    schema = Schema.learn(frame, "target", "most_frequent")
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


GOOD = Schema.learn(HOLES, "price", "mean").to_json()
SIZE = Column("size", "numeric").to_json()


@pytest.mark.parametrize(
    "change",
    [
        {"target": None},
        {"target": "size"},
        {"columns": []},
        {"columns": None},
        {"columns": {"name": "a"}},
        {"columns": ["size"]},
        {"columns": GOOD["columns"] * 2},
        {"columns": [SIZE]},
        {"impute": None},
        {"impute": "drop"},
        {"impute": "zero"},
        {"impute": ["mean"]},
        {"n_dropped": -1},
        {"n_dropped": True},
        {"n_dropped": 1.0},
        {"n_dropped": "1"},
        {"extra": 1},
    ],
    ids=str,
)
def test_schema_that_cannot_be_is_refused(change: dict) -> None:
    with pytest.raises(FileFormatError, match="schema"):
        Schema.from_json({**GOOD, **change})


@pytest.mark.parametrize("key", list(GOOD))
def test_schema_without_a_field_is_refused(key: str) -> None:
    with pytest.raises(FileFormatError, match="must have exactly"):
        Schema.from_json({name: value for name, value in GOOD.items() if name != key})


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
anything = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)


@given(anything)
def test_any_json_in_place_of_a_schema_is_refused(data: object) -> None:
    with pytest.raises(FileFormatError, match="schema"):
        Schema.from_json(data)


@given(st.sampled_from(["name", "kind", "categories", "fill"]), anything)
def test_any_json_in_a_column_gives_a_valid_schema_or_is_refused(key: str, value: object) -> None:
    columns = [{**GOOD["columns"][1], key: value}, *GOOD["columns"][2:]]
    try:
        outcome = Schema.from_json({**GOOD, "columns": columns})
    except FileFormatError as error:
        outcome = error
    assert isinstance(outcome, FileFormatError) or outcome.to_json()["columns"][0][key] == value


def test_deeply_nested_json_is_refused() -> None:
    nested: list = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(FileFormatError, match="schema"):
        Schema.from_json({**GOOD, "target": nested})
