from typing import Any

import pytest

from cvgp.data.reading import Numerals, Reading, check_csv
from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError

READING = Reading(";", "cp1252", {"price": Numerals(",", "."), "share": Numerals(",", "", True)})


def test_a_reading_survives_json() -> None:
    assert Reading.from_json(READING.to_json()) == READING


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"sep": 1, "encoding": None, "numerals": {}},
        {"sep": ",", "encoding": [], "numerals": {}},
        {"sep": ",", "encoding": None, "numerals": []},
        {"sep": ",", "encoding": None, "numerals": {"a": [".", ","]}},
        {"sep": ",", "encoding": None, "numerals": {"a": [".", ".", False]}},
        {"sep": ",", "encoding": None, "numerals": {"a": [[], {}, 3]}},
        {"sep": ",", "encoding": None, "numerals": {"a": [".", "x", False]}},
    ],
)
def test_what_is_no_reading_is_refused(data: Any) -> None:
    with pytest.raises(FileFormatError):
        Reading.from_json(data)


def test_the_line_says_everything_that_was_found() -> None:
    assert READING.describe() == (
        "columns separated by semicolons, encoding cp1252, decimal comma, thousands '.' in 'price', "
        "decimal comma, percent in 'share'"
    )


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        (Reading(), True),
        (Reading(",", "utf-8"), True),
        (Reading("\t", "utf-8", {"a": Numerals()}), True),
        (Reading(";", "utf-8"), False),
        (Reading(",", "cp1252"), False),
        (Reading(",", "utf-8", {"a": Numerals(".", ",")}), False),
    ],
)
def test_only_what_could_surprise_is_not_plain(reading: Reading, expected: bool) -> None:
    assert reading.is_plain == expected


def test_many_columns_are_counted_in_the_line() -> None:
    line = Reading(",", "utf-8", {f"c{i}": Numerals(".", ",") for i in range(9)}).describe()
    assert line.endswith("'c5' and 3 more columns")


@pytest.mark.parametrize(("given", "expected"), [("\\t", "\t"), ("tab", "\t"), (";", ";"), (":", ":")])
def test_a_separator_may_be_spelled(given: str, expected: str) -> None:
    assert check_csv({"sep": given})["sep"] == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sep": ";;"}, "sep is one character"),
        ({"sep": ""}, "sep is one character"),
        ({"sep": "a"}, "sep is one character"),
        ({"sep": '"'}, "sep is one character"),
        ({"decimal": ";"}, "decimal is '.' or ','"),
        ({"thousands": "x"}, "thousands is one of"),
        ({"decimal": ",", "thousands": ","}, "thousands is one of"),
        ({"encoding": "nonsense"}, "encoding must name"),
        ({"encoding": "zip"}, "encoding must name"),
        ({"encoding": "rot13"}, "encoding must name"),
    ],
)
def test_what_cannot_be_said_of_a_text_table_is_refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        check_csv(given)


@pytest.mark.parametrize("given", [";", {"separator": ";"}, {"sep": 3}, [("sep", ";")]])
def test_what_is_no_dictionary_of_known_names_is_refused(given: Any) -> None:
    with pytest.raises(InvalidTypeError, match=r"csv is a dictionary|sep is text"):
        check_csv(given)


def test_what_is_none_is_not_given() -> None:
    assert check_csv({"sep": None, "decimal": ","}) == {"decimal": ","}
