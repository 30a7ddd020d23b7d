from typing import Any

import numpy as np
import pytest

from cvgp.errors import FileFormatError
from cvgp.files.untrusted import MAX_ARRAYS, Arrays, Members

BIG = 10**400
NAN, INFINITY = float("nan"), float("inf")


def members(**values: Any) -> Members:
    return Members(values, "thing")


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(FileFormatError, match=r"thing must be a JSON object; got \[1\]"):
        Members([1], "thing")


def test_a_missing_member_is_named() -> None:
    with pytest.raises(FileFormatError, match="thing has no member 'a'"):
        members(b=1).take("a")


def test_a_member_that_nobody_took_is_refused() -> None:
    with pytest.raises(FileFormatError, match=r"thing has unknown members \['extra'\]"):
        members(extra=1).close()


def test_an_object_whose_members_were_all_taken_is_closed() -> None:
    object_ = members(a="x", b=3, c=0.5, d=True, e=[1], f={"g": None})
    object_.members("f").optional_integer("g", 1)
    taken = (object_.text("a"), object_.integer("b", 3), object_.number("c"), object_.flag("d"), object_.items("e"))
    object_.close()
    assert taken == ("x", 3, 0.5, True, [1])


@pytest.mark.parametrize("value", [None, 1, ["x"], "other"])
def test_text_is_one_of_the_choices(value: object) -> None:
    with pytest.raises(FileFormatError, match=r"thing\.a must be"):
        members(a=value).text("a", ("x", "y"))


@pytest.mark.parametrize("value", [None, True, 0, 1.0, "1", NAN])
def test_an_integer_is_whole_and_large_enough(value: object) -> None:
    with pytest.raises(FileFormatError, match="whole number of at least 1"):
        members(a=value).integer("a", 1)


@pytest.mark.parametrize("value", [True, 0, "1"])
def test_an_optional_integer_is_an_integer_where_it_is_not_none(value: object) -> None:
    with pytest.raises(FileFormatError, match="whole number of at least 1"):
        members(a=value).optional_integer("a", 1)


@pytest.mark.parametrize("value", [None, True, 1, "1", NAN, INFINITY, BIG])
def test_a_number_is_a_finite_float(value: object) -> None:
    with pytest.raises(FileFormatError, match="finite"):
        members(a=value).number("a")


@pytest.mark.parametrize("value", [None, 0, 1, "true"])
def test_a_flag_is_true_or_false(value: object) -> None:
    with pytest.raises(FileFormatError, match="true or false"):
        members(a=value).flag("a")


@pytest.mark.parametrize("value", [None, "ab", {"a": 1}])
def test_a_list_is_a_list(value: object) -> None:
    with pytest.raises(FileFormatError, match="must be a list"):
        members(a=value).items("a")


def test_a_long_value_is_shortened_in_the_message() -> None:
    with pytest.raises(FileFormatError) as caught:
        members(a="x" * 10_000).flag("a")
    assert len(str(caught.value)) < 200


def test_an_array_of_the_right_shape_and_dtype_is_given() -> None:
    array = np.ones((2, 3))
    assert Arrays({"a": array}).take("a", (2, None)) is array


def test_one_of_several_shapes_will_do() -> None:
    array = np.ones(2)
    assert Arrays({"a": array}).take("a", (2, 3), (2,)) is array


def test_a_missing_array_is_named() -> None:
    with pytest.raises(FileFormatError, match="no array 'a'"):
        Arrays({}).take("a")


def test_an_array_is_taken_once() -> None:
    arrays = Arrays({"a": np.ones(1)})
    arrays.take("a")
    with pytest.raises(FileFormatError, match="no array 'a'"):
        arrays.take("a")


@pytest.mark.parametrize("shape", [(), (2,), (2, 3, 1), (3, 3), (0, 3), (2, 0)])
def test_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(FileFormatError, match="must be of shape"):
        Arrays({"a": np.ones(shape)}).take("a", (2, None))


@pytest.mark.parametrize("dtype", ["int64", "float16", "bool", "complex128"])
def test_another_dtype_is_refused(dtype: str) -> None:
    with pytest.raises(FileFormatError, match="must be of float64 or float32"):
        Arrays({"a": np.ones(2, dtype)}).take("a", (2,))


@pytest.mark.parametrize("value", [NAN, INFINITY])
def test_an_array_that_is_not_finite_is_refused(value: float) -> None:
    with pytest.raises(FileFormatError, match="NaN or infinite"):
        Arrays({"a": np.array([1.0, value])}).take("a", (2,))


def test_an_array_may_hold_nan_where_the_caller_says_so() -> None:
    assert np.isnan(Arrays({"a": np.array([NAN])}).take("a", (1,), finite=False)).all()


def test_an_array_that_nobody_took_is_refused() -> None:
    with pytest.raises(FileFormatError, match=r"unknown arrays \['extra'\]"):
        Arrays({"extra": np.ones(1)}).close()


def test_too_many_arrays_are_refused() -> None:
    with pytest.raises(FileFormatError, match=f"at most {MAX_ARRAYS} arrays"):
        Arrays({str(i): np.ones(1) for i in range(MAX_ARRAYS + 1)})
