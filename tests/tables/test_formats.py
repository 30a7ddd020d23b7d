"""Text tables in any form, read back as they were meant."""

import gzip
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError
from cvgp.tables.apply import load_rows
from cvgp.tables.cells import CsvOptions, check_csv, find_encoding, parse_numbers
from cvgp.tables.columns import NumberFormat, Reading
from cvgp.tables.read import open_table
from tests.tables.helpers import learned, put, read_frame

FORMS = [NumberFormat(d, t, p) for d, t, p in product(".,", ["", ",", ".", " ", "'"], [False, True]) if d != t]
FORM = st.sampled_from([form for form in FORMS if not form.percent])
ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "cp1252"]
HYPOTHESIS = {"suppress_health_check": [HealthCheck.function_scoped_fixture], "deadline": None}


def spell(value: float, how: NumberFormat) -> str:
    """As a spreadsheet of that locale writes it."""
    text = f"{value:,.17g}" if "e" not in f"{value:.17g}" else f"{value:.17g}"
    swapped = text.translate({ord(","): how.thousands, ord("."): how.decimal})
    return f"{swapped} %" if how.percent else swapped


def columns_of(path: Path, csv: CsvOptions | None = None) -> dict[str, list[Any]]:
    return read_frame(path, csv=csv).to_dict("list")


def written(columns: dict[str, list[str]], sep: str) -> str:
    rows = zip(*columns.values(), strict=True)
    quoted = [[f'"{cell}"' if sep in cell else cell for cell in row] for row in rows]
    return "\n".join(sep.join(row) for row in [list(columns), *quoted]) + "\n"


# Whole tables.


@settings(max_examples=100, **HYPOTHESIS)
@given(
    sep=st.sampled_from([",", ";", "\t", "|"]),
    form=FORM,
    encoding=st.sampled_from(ENCODINGS),
    ending=st.sampled_from(["csv", "tsv", "csv.gz"]),
    values=st.lists(st.floats(-1e9, 1e9).map(lambda value: round(value, 2)), min_size=1, max_size=6),
    share=st.integers(0, 100),
)
def test_a_table_in_any_form_is_read_as_it_was_meant(
    tmp_path: Path, sep: str, form: NumberFormat, encoding: str, ending: str, values: list[float], share: int
) -> None:
    # One cell that has one meaning only, as almost every column of real numbers has.
    numbers = [0.25, *values]
    table = {
        "größe": [spell(value, form) for value in numbers],
        "anteil": [f"{share}{form.decimal}5 %"] * len(numbers),
        "stadt": ["Köln"] * len(numbers),
    }
    content = written(table, sep).encode(encoding)
    path = put(tmp_path, gzip.compress(content) if ending.endswith("gz") else content, f"a.{ending}")
    found = columns_of(path)
    assert list(found) == list(table)
    np.testing.assert_allclose(found["größe"], numbers, rtol=1e-15)
    assert found["anteil"] == [share + 0.5] * len(numbers)
    assert found["stadt"] == table["stadt"]


@settings(max_examples=60, **HYPOTHESIS)
@given(
    sep=st.sampled_from([",", ";", "\t", "|", ":", "^"]),
    form=FORM,
    encoding=st.sampled_from([*ENCODINGS, "utf-16-le", "latin-1"]),
    values=st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=6),
)
def test_a_table_is_read_as_is_said(
    tmp_path: Path, sep: str, form: NumberFormat, encoding: str, values: list[int]
) -> None:
    content = written({"né": [spell(v, form) for v in values], "b": ["ü"] * len(values)}, sep).encode(encoding)
    said: CsvOptions = {"sep": sep, "decimal": form.decimal, "thousands": form.thousands, "encoding": encoding}
    assert columns_of(put(tmp_path, content), said) == {"né": values, "b": ["ü"] * len(values)}


@pytest.mark.parametrize(("sep", "expected"), [(";", [1.234, 5.678]), (",", [1234, 5678])])
def test_a_comma_that_can_be_both_is_a_decimal_one_beside_semicolons(
    tmp_path: Path, sep: str, expected: list[float]
) -> None:
    assert columns_of(put(tmp_path, written({"a": ["1,234", "5,678"], "b": ["1", "2"]}, sep)))["a"] == expected


@pytest.mark.parametrize("sep", ["\t", "|"])
def test_a_comma_that_can_be_both_is_asked_for_where_nothing_tells(tmp_path: Path, sep: str) -> None:
    path = put(tmp_path, written({"a": ["1,234", "5,678"], "b": ["1", "2"]}, sep))
    with pytest.raises(InvalidInputError, match=r"Column 'a' holds '1,234'.*decimal=','.*decimal='\.' \(--decimal\)"):
        open_table(path)
    assert columns_of(path, {"decimal": ","})["a"] == [1.234, 5.678]
    assert columns_of(path, {"decimal": "."})["a"] == [1234, 5678]


@pytest.mark.parametrize(("other", "expected"), [("0,5", [1.234, 5.678]), ("12,345,678", [1234, 5678])])
def test_a_comma_that_can_be_both_in_a_file_with_tabs_follows_cells_that_tell(
    tmp_path: Path, other: str, expected: list[float]
) -> None:
    table = {"a": ["1,234", "5,678"], "b": [other, "1,5" if other == "0,5" else "1,500"]}
    assert columns_of(put(tmp_path, written(table, "\t"), "a.tsv"))["a"] == expected
    whole = {"a": ["1,234", other], "b": ["1", "2"]}
    assert columns_of(put(tmp_path, written(whole, "\t"), "a.tsv"))["a"][0] == expected[0]


def test_points_between_thousands_follow_a_decimal_comma_elsewhere(tmp_path: Path) -> None:
    assert columns_of(put(tmp_path, "a;b\n1.234;0,5\n5.678;1\n")) == {"a": [1234.0, 5678.0], "b": [0.5, 1.0]}


def test_a_short_table_is_read_as_the_models_was(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": ["1.234,5", "0,5", "7"] * 10, "y": [str(i) for i in range(30)]})
    trained = learned(put(tmp_path, frame.to_csv(index=False, sep=";"), "train.csv")).schema
    inputs, _ = load_rows(put(tmp_path, "a;y\n1.234;5\n", "new.csv"), trained)
    assert inputs.x.tolist() == [[1234.0]]


def test_one_wrong_cell_does_not_make_text_of_numbers(tmp_path: Path) -> None:
    rows = "".join(f"{month % 12 + 1},{month}\n" for month in range(100))
    with pytest.raises(InvalidInputError, match=r"data row 101: column 'month' .* it holds 'x'"):
        learned(put(tmp_path, f"month,y\n{rows}x,1\n"))


def test_each_file_has_its_own_separator_and_encoding(tmp_path: Path) -> None:
    for number, content in enumerate(["a,b\nx,1\n", "a;b\né;2\n".encode("cp1252"), "a\tb\ny\t3\n".encode("utf-16")]):
        put(tmp_path, content, f"{number}.csv")
    assert columns_of(tmp_path) == {"a": ["x", "é", "y"], "b": [1, 2, 3]}


def test_a_text_that_stops_to_fit_is_named_with_the_remedy(tmp_path: Path) -> None:
    path = put(tmp_path, b"a,y\n" + b"x,1\n" * 600_000 + "é,2\n".encode("cp1252"))
    with pytest.raises(FileFormatError, match=r"a\.csv holds text that does not fit .*--encoding cp1252"):
        columns_of(path)


@pytest.mark.parametrize("sep", [",", "|"], ids=["rows of other lengths", "one column"])
def test_a_separator_that_is_wrong_is_named_as_a_cause(tmp_path: Path, sep: str) -> None:
    with pytest.raises((FileFormatError, InvalidInputError), match="--sep"):
        learned(put(tmp_path, "a;b;y\n1,5;2;3\n1;2;3\n"), sep=sep)


def test_what_is_said_of_text_is_refused_for_other_formats(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match=r"sep can be said of text tables .* this is \.parquet"):
        open_table(tmp_path / "a.parquet", {"sep": ";"})


# Numbers in frames and other formats with types.

SALES = pd.DataFrame(
    {"amount": ["1,234", "950", "12,000", None], "share": ["12 %", "7 %", "3.5 %", "0 %"], "y": [1.0, 2.0, 3.0, 4.0]}
)


@pytest.mark.parametrize(
    "frame", [SALES, pl.from_pandas(SALES), pa.Table.from_pandas(SALES)], ids=["pandas", "polars", "Arrow"]
)
def test_thousands_and_percent_in_a_frame_are_numbers(frame: object) -> None:
    table = learned(frame)
    expected = [[1234.0, 0.0, 12.0], [950.0, 0.0, 7.0], [12000.0, 0.0, 3.5], [1234.0, 1.0, 0.0]]
    assert table.load().x.tolist() == expected
    assert table.schema.reading.numbers == {"amount": NumberFormat(".", ","), "share": NumberFormat(".", "", True)}


def test_digits_alone_stay_text_since_they_may_be_codes() -> None:
    codes = pd.DataFrame({"postcode": ["04109", "10115"] * 3, "y": range(6)})
    assert learned(codes).schema.columns[0].categories == ("04109", "10115")


def test_a_frame_of_numbers_is_read_by_a_model_of_text_and_the_other_way_round() -> None:
    schema = learned(SALES).schema
    plain = SALES.assign(amount=[1234.0, 950.0, 12000.0, None], share=[12.0, 7.0, 3.5, 0.0])
    spelled = load_rows(SALES, schema)[0].x.tolist()
    assert load_rows(plain, schema)[0].x.tolist() == spelled
    assert load_rows(SALES, learned(plain).schema)[0].x.tolist() == spelled


def test_cells_with_two_meanings_are_read_as_the_model_has_read_them() -> None:
    few = pd.DataFrame({"amount": ["1.234"]})
    german = Reading(numbers={"amount": NumberFormat(",", ".")})
    assert open_table(few, known=german).reading.numbers["amount"] == NumberFormat(",", ".")
    assert open_table(few, known=Reading()).reading.numbers["amount"] == NumberFormat()


# Number formats.


@given(st.sampled_from(FORMS), st.lists(st.floats(-1e15, 1e15, allow_subnormal=False), min_size=1, max_size=8))
def test_numbers_in_any_form_are_read_as_they_were_written(how: NumberFormat, values: list[float]) -> None:
    assert parse_numbers(pa.array([spell(value, how) for value in values]), how).to_pylist() == values


@pytest.mark.parametrize(
    ("cell", "how", "expected"),
    [
        ("1,234,567.5", NumberFormat(".", ","), 1234567.5),
        ("\u22125", NumberFormat(".", ","), -5.0),
        ("1\u00a0234,5", NumberFormat(",", " "), 1234.5),
        (" 12% ", NumberFormat(percent=True), 12.0),
        ("1,5e3", NumberFormat(",", ""), 1500.0),
        ("1,23", NumberFormat(".", ","), np.inf),
        ("0,123", NumberFormat(".", ","), np.inf),
        ("1.5", NumberFormat(",", ""), np.inf),
        ("1 2", NumberFormat(".", " "), np.inf),
        ("x", NumberFormat(), np.inf),
    ],
)
def test_a_cell_is_a_number_or_infinite(cell: str, how: NumberFormat, expected: float) -> None:
    assert parse_numbers(pa.array([cell]), how).to_pylist() == [expected]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1,234", "0.5"], NumberFormat(".", ",")),
        (["1.234,5", "7"], NumberFormat(",", ".")),
        (["1 234,5", "7"], NumberFormat(",", " ")),
        (["12 %", None], NumberFormat(".", "", True)),
        (["1,234.5"] * 98 + ["?"] * 2, NumberFormat(".", ",")),
        (["1,234.5"] * 97 + ["?"] * 3, None),
        (["red", "1,234"], None),
        (["01.02.2020"], None),
    ],
)
def test_the_form_of_numbers_is_recognized(cells: list[str | None], expected: NumberFormat | None) -> None:
    assert open_table(pd.DataFrame({"a": cells})).reading.numbers.get("a") == expected


# Encodings and separators.


@pytest.mark.parametrize(
    ("content", "given", "words"),
    [
        (b"name\ncaf\xe9\n", "ascii", r"a\.csv is not text in .*0xe9.*--encoding cp1252"),
        (b"\xff\xfea\0b", None, "not text in the encoding utf-16"),
        (b"a\0b", None, "zero bytes"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_remedy(content: bytes, given: str | None, words: str) -> None:
    with pytest.raises(FileFormatError, match=words):
        find_encoding("a.csv", content, True, given)


# Readings and options as values.

READING = Reading(";", "cp1252", {"price": NumberFormat(",", "."), "share": NumberFormat(",", "", True)})


def test_a_reading_survives_json_and_says_what_was_found() -> None:
    assert Reading.from_json(READING.to_json()) == READING
    assert READING.describe().endswith("decimal comma, thousands '.' in 'price', decimal comma, percent in 'share'")
    assert not READING.is_plain
    assert Reading(",", "utf-8", {"a": NumberFormat()}).is_plain


@pytest.mark.parametrize(
    "data",
    [
        None,
        {"sep": 1, "encoding": None, "numbers": {}},
        {"sep": ",", "encoding": None, "numbers": []},
        {"sep": ",", "encoding": None, "numbers": {"a": [".", ".", False]}},
        {"sep": ",", "encoding": None, "numbers": {"a": [[], {}, 3]}},
    ],
)
def test_what_is_not_a_reading_is_refused(data: Any) -> None:
    with pytest.raises(FileFormatError):
        Reading.from_json(data)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sep": ";;"}, "sep is one character"),
        ({"sep": "a"}, "sep is one character"),
        ({"decimal": ";"}, "decimal is '.' or ','"),
        ({"decimal": ",", "thousands": ","}, "thousands is one of"),
        ({"encoding": "rot13"}, "encoding must name"),
        ({"sep": 3}, "sep is text"),
    ],
)
def test_what_cannot_be_said_of_a_text_table_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises((InvalidInputError, InvalidTypeError), match=words):
        check_csv(given)
