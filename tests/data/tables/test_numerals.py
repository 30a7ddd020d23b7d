import math
from itertools import product

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvgp.data.reading import CsvOptions, Numerals
from cvgp.data.tables.numerals import Evidence, allowed_forms, choose_numerals, spelled_numbers

FORMS = [Numerals(d, t, p) for d, t, p in product(".,", ["", ",", ".", " ", "'"], [False, True]) if d != t]


def spell(value: float, numerals: Numerals) -> str:
    """As a spreadsheet of that locale writes it."""
    text = f"{value:,.17g}" if "e" not in f"{value:.17g}" else f"{value:.17g}"
    swapped = text.translate({ord(","): numerals.thousands, ord("."): numerals.decimal})
    return f"{swapped} %" if numerals.percent else swapped


def seen(columns: dict[str, list[str | None]], options: CsvOptions | None = None) -> dict[str, Evidence]:
    found = {name: Evidence() for name in columns}
    for name, cells in columns.items():
        found[name].add(pa.array(cells, pa.string()), allowed_forms(options or {}))
    return {name: evidence for name, evidence in found.items() if evidence.decimal() is not None}


def chosen(columns: dict[str, list[str | None]], default: str = ".") -> dict[str, Numerals]:
    return choose_numerals(seen(columns), default, None)


@given(st.sampled_from(FORMS), st.lists(st.floats(-1e15, 1e15, allow_subnormal=False), min_size=1, max_size=8))
def test_numbers_in_any_form_are_read_as_they_were_written(numerals: Numerals, values: list[float]) -> None:
    cells = pa.array([spell(value, numerals) for value in values])
    assert spelled_numbers(cells, numerals).to_pylist() == values


@pytest.mark.parametrize(
    ("cell", "numerals", "expected"),
    [
        ("1,234", Numerals(".", ","), 1234.0),
        ("1,234,567.5", Numerals(".", ","), 1234567.5),
        ("-1,234", Numerals(".", ","), -1234.0),
        ("+1", Numerals(".", ","), 1.0),
        ("\u22125", Numerals(".", ","), -5.0),
        ("1.234,5", Numerals(",", "."), 1234.5),
        ("1 234", Numerals(".", " "), 1234.0),
        ("1\u00a0234,5", Numerals(",", " "), 1234.5),
        ("1\u202f234,5", Numerals(",", " "), 1234.5),
        ("1'234", Numerals(".", "'"), 1234.0),
        ("12 %", Numerals(percent=True), 12.0),
        ("12%", Numerals(percent=True), 12.0),
        (" 12 ", Numerals(percent=True), 12.0),
        ("1,5e3", Numerals(",", ""), 1500.0),
    ],
)
def test_a_number_is_read(cell: str, numerals: Numerals, expected: float) -> None:
    assert spelled_numbers(pa.array([cell]), numerals).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("cell", "numerals"),
    [
        ("1,23", Numerals(".", ",")),
        ("12,34,567", Numerals(".", ",")),
        ("0,123", Numerals(".", ",")),
        ("1.5", Numerals(",", "")),
        ("1,2,3", Numerals(",", "")),
        ("12 %", Numerals(".", ",")),
        ("12 %%", Numerals(percent=True)),
        ("", Numerals(".", ",")),
        ("-", Numerals(".", ",")),
        ("1 2", Numerals(".", " ")),
        ("x", Numerals(".", ",")),
        ("1" * 50 + "x", Numerals(".", ",")),
    ],
)
def test_what_is_no_number_in_its_form_is_missing(cell: str, numerals: Numerals) -> None:
    assert spelled_numbers(pa.array([cell]), numerals).to_pylist() == [None]


def test_a_number_beyond_all_bounds_is_infinite() -> None:
    assert spelled_numbers(pa.array(["1,5e999"]), Numerals(",", "")).to_pylist() in ([math.inf], [None])


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1,234", "0.5"], Numerals(".", ",")),
        (["1.234,5", "7"], Numerals(",", ".")),
        (["0,5", "7"], Numerals(",", "")),
        (["1 234", "7"], Numerals(".", " ")),
        (["1 234,5", "7"], Numerals(",", " ")),
        (["1'234.5", "7"], Numerals(".", "'")),
        (["12 %", "7.5 %"], Numerals(".", "", True)),
        (["12 %", None], Numerals(".", "", True)),
        (["1", "2.5"], Numerals()),
    ],
)
def test_the_form_of_numbers_is_recognised(cells: list[str | None], expected: Numerals) -> None:
    assert chosen({"a": cells}) == {"a": expected}


@pytest.mark.parametrize("cells", [["red", "1,234"], ["1,23,4", "x"], ["2020-01-01"], ["01.02.2020"], [None]])
def test_what_is_mostly_no_number_is_text(cells: list[str | None]) -> None:
    assert chosen({"a": cells}) == {}


@pytest.mark.parametrize(("wrong", "is_number"), [(2, True), (3, False)])
def test_two_cells_of_a_hundred_may_be_wrong(wrong: int, is_number: bool) -> None:
    cells: list[str | None] = ["1,234.5"] * (100 - wrong) + ["?"] * wrong
    assert bool(chosen({"a": cells})) == is_number


@pytest.mark.parametrize(("default", "expected"), [(".", Numerals(".", ",")), (",", Numerals(",", ""))])
def test_what_has_two_meanings_gets_the_usual_one(default: str, expected: Numerals) -> None:
    assert chosen({"a": ["1,234", "5,678"]}, default) == {"a": expected}


@pytest.mark.parametrize(
    ("other", "expected"), [("0,5", Numerals(",", "")), ("0.5", Numerals(".", ","))], ids=["comma", "point"]
)
def test_what_has_two_meanings_follows_the_other_columns(other: str, expected: Numerals) -> None:
    for default in ".,":
        assert chosen({"a": ["1,234"], "b": [other]}, default)["a"] == expected


def test_each_column_that_tells_is_read_by_itself() -> None:
    assert chosen({"a": ["0,5"], "b": ["0.5"]}) == {"a": Numerals(",", ""), "b": Numerals()}


def test_what_has_two_meanings_is_read_as_the_model_has_read_it() -> None:
    found = seen({"a": ["1,234"], "b": ["1.234"]})
    known = {"a": Numerals(",", "")}
    assert choose_numerals(found, ".", known) == {"a": Numerals(",", ""), "b": Numerals()}


def test_a_table_that_differs_from_the_models_is_read_by_itself() -> None:
    found = seen({"a": ["1,234"], "b": ["0,5"]})
    known = {"a": Numerals(".", ","), "b": Numerals()}
    assert choose_numerals(found, ".", known) == {"a": Numerals(",", ""), "b": Numerals(",", "")}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"decimal": ","}, Numerals(",", "")),
        ({"decimal": "."}, Numerals(".", ",")),
        ({"thousands": ","}, Numerals(".", ",")),
        ({"thousands": ""}, Numerals(",", "")),
    ],
)
def test_what_is_said_decides(options: CsvOptions, expected: Numerals) -> None:
    assert choose_numerals(seen({"a": ["1,234"]}, options), ".", None) == {"a": expected}
