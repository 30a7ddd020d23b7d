"""Text tables in any form, read back as they were meant."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cvgp.data.reading import CsvOptions, Numerals, Reading
from cvgp.data.tables import text_files
from cvgp.data.tables.by_schema import load_rows
from cvgp.data.tables.location import open_dataset
from cvgp.data.tables.notes import notes_of
from cvgp.data.tables.reader import column_kinds, list_parts, read_batches
from cvgp.data.tables.training_table import TrainingTable
from cvgp.errors import FileFormatError, InvalidInputError
from tests.data.tables.test_numerals import FORMS, spell
from tests.data.tables.test_text_files import put

ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "cp1252"]


def columns_of(path: Path, csv: CsvOptions | None = None, known: Reading | None = None) -> dict[str, list[Any]]:
    """The columns as a fit reads them."""
    dataset = open_dataset(path, csv, known)
    kinds = column_kinds(dataset, dataset.schema.names)
    batches = [batch for part in list_parts(dataset) for batch in read_batches(part, list(kinds), kinds)]
    return {name: [cell for batch in batches for cell in batch.column(name).to_pylist()] for name in kinds}


def reading_of(path: Path, csv: CsvOptions | None = None) -> Reading:
    return notes_of(open_dataset(path, csv)).reading


def written(columns: dict[str, list[str]], sep: str) -> str:
    rows = zip(*columns.values(), strict=True)
    quoted = [[f'"{cell}"' if sep in cell else cell for cell in row] for row in rows]
    return "\n".join(sep.join(row) for row in [list(columns), *quoted]) + "\n"


FORM = st.sampled_from([form for form in FORMS if not form.percent])


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    sep=st.sampled_from([",", ";", "\t", "|"]),
    form=FORM,
    encoding=st.sampled_from(ENCODINGS),
    ending=st.sampled_from(["csv", "tsv", "csv.gz"]),
    values=st.lists(st.floats(-1e9, 1e9).map(lambda value: round(value, 2)), min_size=1, max_size=6),
    share=st.integers(0, 100),
)
def test_a_table_in_any_form_is_read_as_it_was_meant(
    tmp_path: Path, sep: str, form: Numerals, encoding: str, ending: str, values: list[float], share: int
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


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    sep=st.sampled_from([",", ";", "\t", "|", ":", "^"]),
    form=FORM,
    encoding=st.sampled_from([*ENCODINGS, "utf-16-le", "latin-1"]),
    values=st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=6),
)
def test_a_table_is_read_as_is_said(tmp_path: Path, sep: str, form: Numerals, encoding: str, values: list[int]) -> None:
    content = written({"né": [spell(v, form) for v in values], "b": ["ü"] * len(values)}, sep).encode(encoding)
    said: CsvOptions = {"sep": sep, "decimal": form.decimal, "thousands": form.thousands, "encoding": encoding}
    assert columns_of(put(tmp_path, content), said) == {"né": values, "b": ["ü"] * len(values)}


def test_what_was_found_is_noted(tmp_path: Path) -> None:
    path = put(tmp_path, "a;b;c\n1.234,5;12 %;é\n0,5;3 %;x\n".encode("cp1252"))
    assert reading_of(path) == Reading(";", "cp1252", {"a": Numerals(",", "."), "b": Numerals(",", "", True)})


@pytest.mark.parametrize(("sep", "expected"), [(";", [1.234, 5.678]), ("\t", [1234, 5678]), (",", [1234, 5678])])
def test_a_comma_that_can_be_both_is_a_decimal_one_beside_semicolons(
    tmp_path: Path, sep: str, expected: list[float]
) -> None:
    assert columns_of(put(tmp_path, written({"a": ["1,234", "5,678"], "b": ["1", "2"]}, sep)))["a"] == expected


def test_points_that_can_be_both_stay_decimal_ones(tmp_path: Path) -> None:
    assert columns_of(put(tmp_path, "a;b\n1.234;x\n5.678;y\n"))["a"] == [1.234, 5.678]


def test_points_between_thousands_follow_a_decimal_comma_elsewhere(tmp_path: Path) -> None:
    assert columns_of(put(tmp_path, "a;b\n1.234;0,5\n5.678;1\n")) == {"a": [1234.0, 5678.0], "b": [0.5, 1.0]}


def test_columns_that_no_model_knows_have_their_thousands_too(tmp_path: Path) -> None:
    dataset = open_dataset(put(tmp_path, "a;b\n1.234;0,5\n5.678;1\n"))
    kinds = {"a": "", "b": "numeric"}
    (batch,) = [batch for part in list_parts(dataset) for batch in read_batches(part, list(kinds), kinds)]
    assert batch.column("a").to_pylist() == [1234.0, 5678.0]


def test_a_short_table_is_read_as_the_models_was(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": ["1.234,5", "0,5", "7"] * 10, "y": [str(i) for i in range(30)]})
    trained = TrainingTable(put(tmp_path, frame.to_csv(index=False, sep=";"), "train.csv"), "y").schema
    inputs, _ = load_rows(put(tmp_path, "a;y\n1.234;5\n", "new.csv"), trained)
    assert inputs.x.tolist() == [[1234.0]]


def test_one_wrong_cell_does_not_make_text_of_numbers(tmp_path: Path) -> None:
    rows = "".join(f"{month % 12 + 1},{month}\n" for month in range(100))
    with pytest.raises(InvalidInputError, match=r"data row 101: column 'month' .* it holds 'x'"):
        TrainingTable(put(tmp_path, f"month,y\n{rows}x,1\n"), "y")


def test_wrong_cells_are_left_out_on_request(tmp_path: Path) -> None:
    rows = "".join(f'"{i},000.5",{i}\n' for i in range(1, 101))
    table = TrainingTable(put(tmp_path, f"a,y\n{rows}?,1\n"), "y", on_bad_rows="skip")
    assert (table.num_rows, table.survey.bad.skipped) == (100, 1)


def test_files_with_different_separators_are_refused(tmp_path: Path) -> None:
    put(tmp_path, "a,b\n1,2\n", "1.csv")
    put(tmp_path, "a;b\n1;2\n", "2.csv")
    with pytest.raises(InvalidInputError, match=r"1\.csv are separated by commas and those of .*2\.csv by semicolons"):
        open_dataset(tmp_path)


def test_files_with_different_encodings_are_refused(tmp_path: Path) -> None:
    put(tmp_path, "a,b\né,2\n".encode(), "1.csv")
    put(tmp_path, "a,b\né,2\n".encode("cp1252"), "2.csv")
    with pytest.raises(InvalidInputError, match=r"1\.csv is utf-8 and .*2\.csv is cp1252"):
        open_dataset(tmp_path)


def test_files_of_plain_letters_go_with_any_encoding(tmp_path: Path) -> None:
    for number, content in enumerate(["a,b\nx,1\n", "a,b\né,2\n", "a,b\ny,3\n"]):
        put(tmp_path, content.encode("cp1252"), f"{number}.csv")
    assert columns_of(tmp_path)["a"] == ["x", "é", "y"]


def test_a_text_that_stops_to_fit_is_named_with_the_remedy(tmp_path: Path) -> None:
    rows = "x,1\n" * 600_000
    path = put(tmp_path, f"a,y\n{rows}".encode() + "é,2\n".encode("cp1252"))
    with pytest.raises(FileFormatError, match=r"a\.csv, data row 600001: column 'a' .*--encoding cp1252"):
        columns_of(path)


@pytest.mark.parametrize(
    ("sep", "words"), [(",", "--sep"), ("|", "--sep")], ids=["rows of other lengths", "one column"]
)
def test_a_separator_that_is_wrong_is_named_as_a_cause(tmp_path: Path, sep: str, words: str) -> None:
    path = put(tmp_path, "a;b;y\n1,5;2;3\n1;2;3\n")
    with pytest.raises((FileFormatError, InvalidInputError), match=words):
        TrainingTable(path, "y", csv={"sep": sep})


def test_what_is_said_of_text_is_refused_for_other_formats(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match=r"sep can be said of text tables .* this is \.parquet"):
        open_dataset(tmp_path / "a.parquet", {"sep": ";"})


def test_a_line_longer_than_a_block_of_a_large_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "TYPED_BYTES", 0)
    long = "x" * (3 << 20)
    path = put(tmp_path, f"a,y\n{'1,1' + chr(10)}{long},2\n")
    with pytest.raises(FileFormatError, match=r"a\.csv"):
        TrainingTable(path, "y")


def test_a_packed_file_of_one_endless_line_is_refused_after_a_megabyte(tmp_path: Path) -> None:
    path = put(tmp_path, gzip.compress(b"x" * (20 << 20), compresslevel=1), "a.csv.gz")
    with pytest.raises(FileFormatError, match=r"first line of .* is longer than 1048576 bytes"):
        open_dataset(path)


@pytest.mark.parametrize(("is_long", "expected"), [(False, int), (True, float)])
def test_whole_numbers_of_a_packed_file_stay_whole_where_all_of_it_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_long: bool, expected: type
) -> None:
    monkeypatch.setattr(text_files, "TYPED_BYTES", 0)
    rows = 600_000 if is_long else 10
    found = columns_of(put(tmp_path, gzip.compress(b"a\n" + b"1\n" * rows), "a.csv.gz"))["a"]
    assert {type(cell) for cell in found} == {expected}
