import numpy as np
import pytest

from cvgp.data.tables.choice import (
    ColumnChoice,
    as_flag,
    left_out_line,
    names_in,
    names_rows,
    numbers_rows,
    raise_unusable,
)
from cvgp.errors import InvalidInputError, InvalidTypeError

NAMES = ["id", "tailnum", "size", "y"]


def test_all_columns_but_the_special_ones_are_features() -> None:
    assert ColumnChoice().among(NAMES, ["y"]) == ["id", "tailnum", "size"]


def test_what_is_dropped_is_no_feature() -> None:
    assert ColumnChoice.of(drop=["id", "tailnum"]).among(NAMES, ["y"]) == ["size"]


def test_only_what_is_asked_for_is_a_feature_in_the_order_of_the_table() -> None:
    assert ColumnChoice.of(features=["size", "id"]).among(NAMES, ["y"]) == ["id", "size"]


def test_one_name_may_stand_alone() -> None:
    assert ColumnChoice.of("id", "size", "size") == ColumnChoice(("id",), ("size",), ("size",))


@pytest.mark.parametrize("option", ["drop", "features", "keep"])
def test_an_unknown_name_is_refused_with_near_ones(option: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"no column 'tailnumb', which {option} names; did you mean 'tailnum'"):
        ColumnChoice.of(**{option: ["tailnumb"]}).among(NAMES, ["y"])


def test_a_name_like_no_other_is_refused_with_all() -> None:
    with pytest.raises(InvalidInputError, match=r"no column 'zzz'.*; it has id, tailnum, size, y"):
        ColumnChoice.of(drop=["zzz"]).among(NAMES, ["y"])


@pytest.mark.parametrize("option", ["features", "keep"])
def test_the_target_is_no_feature(option: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{option} names 'y', which is the target"):
        ColumnChoice.of(**{option: ["y"]}).among(NAMES, ["y"])


def test_what_is_dropped_and_asked_for_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="drop leaves out 'id', which is asked for"):
        ColumnChoice.of(drop="id", keep="id").among(NAMES, ["y"])


@pytest.mark.parametrize("given", [3, [1], {"a": 1}])
def test_what_is_no_list_of_names_is_refused(given: object) -> None:
    with pytest.raises(InvalidTypeError, match="drop is a list of names"):
        ColumnChoice.of(drop=given)  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a b", "c"], ["a,b", 'say "x"'], [" "], ["é", "it's"]])
def test_a_flag_that_is_pasted_gives_the_names(names: list[str]) -> None:
    import shlex

    (option, value) = shlex.split(as_flag("drop", names))
    assert (option, names_in(value)) == ("--drop", [name.strip() for name in names])


def test_all_problems_are_in_one_error_with_the_flag() -> None:
    problems = {"a": InvalidInputError("'a' is empty."), "b c": InvalidTypeError("'b c' holds dates.")}
    with pytest.raises(InvalidInputError) as caught:
        raise_unusable(problems)
    assert str(caught.value).splitlines() == [
        "2 columns cannot be used:",
        "- 'a' is empty.",
        "- 'b c' holds dates.",
        "To leave out what cannot be used: --drop 'a,b c' (in Python: drop=['a', 'b c']).",
    ]


def test_no_problem_is_no_error() -> None:
    raise_unusable({})


@pytest.mark.parametrize(("texts", "cells", "expected"), [(95, 100, True), (94, 100, False), (19, 19, False)])
def test_different_texts_in_nearly_every_row_name_the_rows(texts: int, cells: int, expected: bool) -> None:
    assert names_rows(texts, cells) == expected


COUNTING = np.arange(1.0, 31.0)


@pytest.mark.parametrize(
    "name",
    ["id", "ID", "Id", "index", "", "Unnamed: 0", "passenger_id", "PassengerId", "row", "row_number", "customer id"],
)
def test_different_whole_numbers_under_such_a_name_number_the_rows(name: str) -> None:
    assert numbers_rows(name, COUNTING)


@pytest.mark.parametrize("name", ["year", "rooms", "grid", "paid", "humid", "android", "distance", "noise", "keyword"])
def test_under_another_name_they_are_a_feature(name: str) -> None:
    assert not numbers_rows(name, COUNTING)


@pytest.mark.parametrize(
    "values",
    [COUNTING + 0.5, np.repeat(COUNTING, 2), np.append(COUNTING, np.nan), np.append(COUNTING, np.inf), COUNTING[:10]],
    ids=["not whole", "repeated", "missing", "infinite", "few"],
)
def test_other_numbers_are_a_feature_whatever_their_name(values: np.ndarray) -> None:
    assert not numbers_rows("id", values)


def test_the_line_says_what_was_left_out_why_and_how_to_keep_it() -> None:
    line = left_out_line({"id": "numbers the rows", "a b": "the same value in all rows", "c": "numbers the rows"})
    assert line == (
        "Left out, since they tell nothing: 'id', 'c' (numbers the rows); 'a b' (the same value in all rows). "
        "To use them all the same: --keep 'id,a b,c' (in Python: keep=['id', 'a b', 'c'])."
    )
