import datetime
import zipfile
from pathlib import Path

import openpyxl
import pytest

from cvgp.data.tables.location import open_dataset
from cvgp.data.tables.training_table import TrainingTable
from cvgp.errors import CVGPError, FileFormatError, InvalidInputError, InvalidTypeError, MissingFileError
from tests.data.tables.tables import read_table

ROWS = [["size", "city", "sold"], [1, "Wien", True], [2.5, "Köln", False], [None, "#N/A", None]]


def book(path: Path, **sheets: list[list[object]]) -> Path:
    made = openpyxl.Workbook()
    made.remove(made.active)
    for name, rows in sheets.items():
        sheet = made.create_sheet(name)
        for row in rows:
            sheet.append(row)
    made.save(path)
    return path


def test_the_first_sheet_is_read(tmp_path: Path) -> None:
    frame = read_table(book(tmp_path / "a.xlsx", one=ROWS, two=[["x"], [1]]))
    assert frame["size"].tolist()[:2] == [1.0, 2.5]
    assert frame["city"].tolist() == ["Wien", "Köln"]
    assert frame["sold"].tolist() == [True, False]


def test_a_sheet_can_be_named(tmp_path: Path) -> None:
    path = book(tmp_path / "a.xlsx", one=ROWS, two=[["x"], [1]])
    assert open_dataset(f"{path}::two").schema.names == ["x"]


def test_a_sheet_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    path = book(tmp_path / "a.xlsx", one=ROWS, two=ROWS)
    with pytest.raises(InvalidInputError, match=r"no sheet 'three'; it has one, two"):
        open_dataset(f"{path}::three")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError):
        open_dataset(f"{tmp_path / 'a.xlsx'}::one")


def test_empty_rows_and_columns_around_the_table_are_none(tmp_path: Path) -> None:
    path = book(tmp_path / "a.xlsx", one=[[], ["a", "b", None], [1, 2, None], [None, " "], [3, 4]])
    assert read_table(path).to_dict("list") == {"a": [1, 3], "b": [2, 4]}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([["a", "a"], [1, 2]], "must be unique"),
        ([["a"], [1, 2]], r"Row 1 below the names .* has 2 cells, and there are 1 names"),
        ([], "empty sheet"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, rows: list[list[object]], words: str) -> None:
    with pytest.raises(CVGPError, match=words):
        open_dataset(book(tmp_path / "a.xlsx", one=rows))


def test_dates_stay_dates(tmp_path: Path) -> None:
    day = datetime.datetime(2024, 1, 2)
    path = book(tmp_path / "a.xlsx", one=[["day", "y"], [day, 1], [day, 2]])
    assert read_table(path)["day"].tolist() == [day, day]
    with pytest.raises(InvalidTypeError, match="'day' holds dates"):
        TrainingTable(path, "y")


@pytest.mark.parametrize("content", [b"", b"PK", b"no book at all"])
def test_what_is_no_book_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.xlsx").write_bytes(content)
    with pytest.raises(FileFormatError, match=r"a\.xlsx could not be read as a \.xlsx table"):
        open_dataset(tmp_path / "a.xlsx")


def test_a_damaged_sheet_is_refused(tmp_path: Path) -> None:
    path, broken = book(tmp_path / "a.xlsx", one=ROWS), tmp_path / "b.xlsx"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(broken, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, content[: len(content) // 2] if "sheet1" in name else content)
    with pytest.raises(FileFormatError, match=r"b\.xlsx could not be read"):
        open_dataset(broken)


def test_a_book_that_unpacks_to_far_more_than_its_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CVGP_MAX_UNPACKED", "1000")
    monkeypatch.setenv("CVGP_MAX_PACKING", "1")
    with pytest.raises(InvalidInputError, match="unpacks to at least"):
        open_dataset(book(tmp_path / "a.xlsx", one=ROWS))
