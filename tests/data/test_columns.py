import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvgp.data.columns import MAX_CATEGORIES, Column
from cvgp.errors import FileFormatError, InvalidInputError

COLORS = pd.Series(["red", "blue", "red", "green"], name="color")
SIZES = pd.Series([1.0, 2.0, 2.0, 7.0], name="size")
FLAGS = pd.Series([True, False, True, True], name="sold")


def learned(column: pd.Series, impute: str | None = None) -> Column:
    return Column.learn(column, impute)


# Learning.


def test_categories_are_learned_in_order() -> None:
    assert learned(COLORS) == Column("color", "categorical", ("blue", "green", "red"))


def test_categories_do_not_depend_on_the_order_of_rows() -> None:
    assert learned(COLORS[::-1]) == learned(COLORS)


def test_category_that_is_declared_but_absent_is_not_learned() -> None:
    column = pd.Series(pd.Categorical(["a", "b", "a"], categories=["a", "b", "c"]), name="x")
    assert learned(column).categories == ("a", "b")


@pytest.mark.parametrize("column", [pd.Series([3, 3, 3]), pd.Series(["a", "a", "a"]), pd.Series([True] * 3)])
def test_constant_column_is_learned(column: pd.Series) -> None:
    assert len(learned(column.rename("a")).feature_names) == 1


@pytest.mark.parametrize(("impute", "fill"), [("median", 2.0), ("mean", 3.0), ("most_frequent", 2.0)])
def test_fill_of_numbers_follows_the_rule(impute: str, fill: float) -> None:
    assert learned(SIZES, impute).fill == fill


@pytest.mark.parametrize("impute", ["median", "mean", "most_frequent"])
@pytest.mark.parametrize(("column", "fill"), [(COLORS, "red"), (FLAGS, True)], ids=["text", "boolean"])
def test_fill_of_anything_else_is_the_most_frequent(column: pd.Series, fill: object, impute: str) -> None:
    assert learned(column, impute).fill == fill


@pytest.mark.parametrize(
    ("cells", "fill"), [([2.0, 1.0, 2.0, 1.0], 1.0), (["b", "a", "b", "a"], "a"), ([True, False], False)]
)
def test_fill_is_the_first_of_equally_frequent_values(cells: list, fill: object) -> None:
    assert learned(pd.Series(cells, name="a"), "most_frequent").fill == fill


def test_fill_ignores_missing_values() -> None:
    assert learned(pd.Series([1.0, np.nan, 3.0], name="a"), "mean").fill == 2.0


@pytest.mark.parametrize("impute", [None, "drop"])
@pytest.mark.parametrize("column", [SIZES, COLORS, FLAGS], ids=["numeric", "categorical", "boolean"])
def test_without_a_rule_there_is_no_fill(column: pd.Series, impute: str | None) -> None:
    assert learned(column, impute).fill is None


@pytest.mark.parametrize("dtype", ["float64", "str", object, "category", "Int64"])
def test_column_without_values_is_refused(dtype: object) -> None:
    with pytest.raises(InvalidInputError, match="Column 'a' holds no values at all; leave it out"):
        learned(pd.Series([None, None], name="a", dtype=dtype))


def test_infinite_number_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="Column 'a' holds 1 infinite"):
        learned(pd.Series([1.0, np.inf], name="a"))


def names(n: int) -> list[str]:
    return [f"name {i:03}" for i in range(n)]


def test_largest_number_of_categories_is_learned() -> None:
    assert len(learned(pd.Series(names(MAX_CATEGORIES) * 2, name="a")).categories) == MAX_CATEGORIES


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (names(51) * 2, "holds 51 different texts.*at most 50.*group its values"),
        (names(10), "holds a different text in every row.*leave it out if it only names the rows"),
        ([*map(str, range(60)), "oops", "oops"], "most of it spells numbers: correct what does not, such as 'oops'"),
        ([*map(str, range(60)), "1"], "all of it spells numbers: convert the column to numbers"),
    ],
    ids=["many", "identifiers", "numbers with a word", "numbers"],
)
def test_too_many_categories_are_refused_with_advice(cells: list[str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=f"Column 'a' .*{message}"):
        learned(pd.Series(cells, name="a"))


def test_text_in_a_single_row_is_no_identifier() -> None:
    assert learned(pd.Series(["x"], name="a")).categories == ("x",)


# Encoding.


def test_numbers_are_encoded_as_they_are() -> None:
    values, _ = learned(SIZES).encode(SIZES)
    np.testing.assert_array_equal(values, SIZES.to_numpy()[:, None])


def test_truths_are_encoded_as_one_and_zero() -> None:
    values, _ = learned(FLAGS).encode(FLAGS)
    np.testing.assert_array_equal(values, [[1.0], [0.0], [1.0], [1.0]])


def test_categories_are_encoded_as_indicators() -> None:
    values, _ = learned(COLORS).encode(COLORS)
    np.testing.assert_array_equal(values, [[0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 0]])


def test_features_of_categories_have_their_names() -> None:
    assert learned(COLORS).feature_names == ("color=blue", "color=green", "color=red")


def test_unknown_category_has_no_indicator() -> None:
    values, _ = learned(COLORS).encode(pd.Series(["pink", "red"]))
    np.testing.assert_array_equal(values, [[0, 0, 0], [0, 0, 1]])


def test_unknown_categories_are_marked() -> None:
    _, unknown = learned(COLORS).encode(pd.Series(["pink", "red", "pink", "teal"]))
    assert unknown.tolist() == [True, False, True, True]


@pytest.mark.parametrize(
    ("column", "expected"),
    [(SIZES, [[7.0], [2.0]]), (COLORS, [[0, 1, 0], [0, 0, 1]]), (FLAGS, [[1.0], [1.0]])],
    ids=["numeric", "categorical", "boolean"],
)
def test_missing_value_is_filled(column: pd.Series, expected: list) -> None:
    values, unknown = learned(column, "median").encode(pd.Series([column.iloc[3], None], dtype=object))
    np.testing.assert_array_equal(values, expected)
    assert not unknown.any()


@pytest.mark.parametrize("column", [SIZES, COLORS, FLAGS], ids=["numeric", "categorical", "boolean"])
def test_missing_value_without_a_fill_is_nan(column: pd.Series) -> None:
    values, unknown = learned(column).encode(pd.Series([column.iloc[3], None], dtype=object))
    np.testing.assert_array_equal(np.isnan(values).all(axis=1), [False, True])
    assert not unknown.any()


@pytest.mark.parametrize("cells", [[1, 2], [1.0, 2.0], ["1", "2"], [1.0, 2.0, None]], ids=str)
def test_category_is_known_whatever_type_the_file_gives_it(cells: list) -> None:
    column = learned(pd.Series(["1", "2", "other", "1"], name="a"), "mean")
    assert not column.encode(pd.Series(cells))[1].any()


@given(st.lists(st.sampled_from("abcde"), min_size=1), st.lists(st.sampled_from("abcdefg")))
def test_indicators_add_up_to_the_known_cells(train: list[str], test: list[str]) -> None:
    column = learned(pd.Series([*train, *train], name="a"))
    values, unknown = column.encode(pd.Series(test, dtype="str"))
    assert values.sum() == len(test) - unknown.sum() == sum(cell in train for cell in test)


# Storing.


@pytest.mark.parametrize("impute", [None, "mean", "drop"])
@pytest.mark.parametrize("column", [SIZES, COLORS, FLAGS], ids=["numeric", "categorical", "boolean"])
def test_column_survives_json(column: pd.Series, impute: str | None) -> None:
    made = learned(column, impute)
    assert Column.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_column_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        learned(SIZES).name = "other"


GOOD = {"name": "a", "kind": "categorical", "categories": ["x", "y"], "fill": None}


@pytest.mark.parametrize(
    "change",
    [
        {"name": 1},
        {"name": None},
        {"kind": "text"},
        {"kind": ["numeric"]},
        {"kind": None},
        {"kind": "numeric"},
        {"categories": "xy"},
        {"categories": ["y", "x"]},
        {"categories": ["x", "x"]},
        {"categories": []},
        {"categories": [1, 2]},
        {"categories": [["x"]]},
        {"categories": names(51)},
        {"categories": {"x": 1}},
        {"fill": "z"},
        {"fill": 1.0},
        {"kind": "boolean", "categories": [], "fill": 1},
        {"kind": "numeric", "categories": [], "fill": True},
        {"kind": "numeric", "categories": [], "fill": float("nan")},
        {"kind": "numeric", "categories": [], "fill": float("inf")},
        {"kind": "numeric", "categories": [], "fill": 10**400},
        {"kind": "numeric", "categories": [], "fill": "1"},
        {"__class__": "os.system"},
    ],
    ids=str,
)
def test_column_that_cannot_be_is_refused(change: dict) -> None:
    with pytest.raises(FileFormatError, match="schema"):
        Column.from_json({**GOOD, **change})
