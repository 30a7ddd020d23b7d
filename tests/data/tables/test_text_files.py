"""Tables as people write them, and files that are no tables."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cvgp.data.tables import location, text_files
from cvgp.data.tables.training_table import TrainingTable
from cvgp.errors import CVGPError, FileAccessError, FileFormatError, InvalidInputError, MissingFileError
from tests.data.tables.tables import read_table, write

TEXT_ENDINGS = [".csv", ".tsv", ".csv.gz", ".tsv.gz"]
BINARY_ENDINGS = [".parquet", ".feather", ".arrow"]
ENDINGS = [*TEXT_ENDINGS, *BINARY_ENDINGS]

FRAME = pd.DataFrame(
    {
        "size": [1, -2, 3],
        "weight": [0.1, np.nan, 1e-300],
        "color": ["red", "light blue", 'a "quoted", cell'],
        "sold": [True, False, True],
    }
)


def put(folder: Path, content: str | bytes, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# Names.


def test_row_labels_of_pandas_are_left_out(tmp_path: Path) -> None:
    FRAME.set_axis([7, 8, 9]).to_parquet(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "a.parquet"), FRAME)


def test_folder_name_of_one_file_adds_no_column(tmp_path: Path) -> None:
    (tmp_path / "year=2020").mkdir()
    path = write(tmp_path / "year=2020" / "a.parquet", FRAME)
    assert list(read_table(path)) == list(FRAME)


# Text as people write it.


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1,x\n2,y\n",
        "a,b\n1,x\n2,y",
        "a,b\r\n1,x\r\n2,y\r\n",
        "a,b\r1,x\r2,y\r",
        "\ufeffa,b\n1,x\n2,y\n",
        '"a","b"\n"1","x"\n"2","y"\n',
        "\n\na,b\n\n1,x\n2,y\n\n",
    ],
    ids=[
        "unix",
        "no last line end",
        "windows",
        "old mac",
        "byte order mark",
        "quoted",
        "blank lines",
    ],
)
def test_dialect_of_csv_is_read(tmp_path: Path, content: str) -> None:
    expected = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    pd.testing.assert_frame_equal(read_table(put(tmp_path, content)), expected)


@pytest.mark.parametrize("cell", ["", "NA", "nan", "null", "N/A"])
def test_words_for_nothing_are_missing_values(tmp_path: Path, cell: str) -> None:
    frame = read_table(put(tmp_path, f"a,b\n1,1\n{cell},2\n"))
    assert frame["a"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    "content", ["a,b\n1,2,3\n", "a,b\n1,2\n4,5,6\n", "a,b\n1,x,\n2,y,\n", "a,b\n1,2\n3\n", "  \na,b\n1,x\n"]
)
def test_a_row_that_is_not_as_long_as_the_first_line_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(FileFormatError, match="every row as long as the first line"):
        read_table(put(tmp_path, content))


def test_repeated_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"must be unique.*'a' more than once \(columns 1, 3\)"):
        read_table(put(tmp_path, "a,b,a\n1,2,3\n"))


def test_repeated_name_in_a_parquet_file_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match=r"must be unique.*duplicate field names"):
        read_table(tmp_path / "a.parquet")


def test_column_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"has no name.*index=False"):
        TrainingTable(put(tmp_path, ",size\n1.5,1\n2,2\n"), "size")


@pytest.mark.parametrize(
    ("content", "name"),
    [("a;b\n1;2\n", "a.csv"), ("a\tb\n1\t2\n", "a.csv"), ("a|b\n1|2\n", "a.csv"), ("a,b\n1,2\n", "a.tsv")],
)
def test_other_separator_is_recognised(tmp_path: Path, content: str, name: str) -> None:
    assert read_table(put(tmp_path, content, name)).to_dict("list") == {"a": [1], "b": [2]}


def test_quoted_name_with_a_separator_is_one_name(tmp_path: Path) -> None:
    assert list(read_table(put(tmp_path, '"height, cm"\n1\n'))) == ["height, cm"]


# Files that cannot be read.


@pytest.mark.parametrize("ending", ENDINGS)
def test_missing_file_is_reported(tmp_path: Path, ending: str) -> None:
    with pytest.raises(MissingFileError, match=r"There is no file .*Check the path"):
        read_table(tmp_path / f"a{ending}")


def test_missing_file_is_also_the_built_in_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_table(tmp_path / "a.csv")


def test_folder_in_place_of_a_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match="cannot be read"):
        read_table(tmp_path)


def test_file_without_permission_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(location.ds, "dataset", refuse)
    with pytest.raises(FileAccessError, match=r"cannot be read .*Permission denied"):
        read_table(put(tmp_path, "a\n1\n"))


@pytest.mark.parametrize("name", ["a.xls", "a", "csv", "a.gz", "a.csv.zip"])
def test_unknown_ending_is_refused_at_reading(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileFormatError, match=r"no ending of a known kind of table; use one of \.csv"):
        read_table(put(tmp_path, "a\n1\n", name))


@pytest.mark.parametrize("ending", ENDINGS)
def test_garbage_is_refused(tmp_path: Path, ending: str) -> None:
    garbage = np.random.default_rng(0).bytes(3000)
    with pytest.raises(FileFormatError, match=f"could not be read as a {ending} table.*damaged or of another kind"):
        read_table(put(tmp_path, garbage, f"a{ending}"))


@pytest.mark.parametrize("ending", [".csv.gz", *BINARY_ENDINGS])
def test_truncated_file_is_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    write(path, FRAME)
    with pytest.raises(FileFormatError, match="could not be read"):
        read_table(put(tmp_path, path.read_bytes()[:-20], path.name))


@pytest.mark.parametrize("ending", ENDINGS)
def test_damaged_file_gives_a_table_or_an_error_of_the_tree(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    write(path, FRAME)
    content, rng = path.read_bytes(), np.random.default_rng(1)
    for _ in range(200):
        damaged = bytearray(content)
        start = rng.integers(len(content))
        damaged[start : start + 4] = rng.bytes(4)
        path.write_bytes(damaged)
        try:
            outcome = read_table(path)
        except CVGPError as error:
            outcome = error
        assert isinstance(outcome, pd.DataFrame | CVGPError)


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_file_without_content_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(FileFormatError, match="Empty CSV file"):
        read_table(put(tmp_path, content))


@pytest.mark.parametrize("ending", ENDINGS)
def test_table_without_rows_is_refused(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a{ending}", FRAME.iloc[:0])
    with pytest.raises(InvalidInputError, match=r"holds no rows|No row of the table is left|no values at all"):
        TrainingTable(path, "size")


def test_a_packed_table_is_read_as_an_unpacked_one(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1.5, 2.5], "é": ["x", "ü"]}).to_csv(tmp_path / "a.csv", index=False)
    put(tmp_path, gzip.compress((tmp_path / "a.csv").read_bytes()), "a.csv.gz")
    pd.testing.assert_frame_equal(read_table(tmp_path / "a.csv.gz"), read_table(tmp_path / "a.csv"))


# Types of columns.


def late(column: str) -> str:
    """A file of more than one block, whose last rows tell more of its column than the first ones."""
    return "a,y\n" + "".join(f"{cell},1\n" for cell in [column] * 400_000 + ["x", "1.5"])


@pytest.mark.parametrize("cell", ["", "1"])
def test_the_types_of_a_small_file_come_from_all_of_its_rows(tmp_path: Path, cell: str) -> None:
    found = read_table(put(tmp_path, late(cell)))["a"]
    assert found.iloc[-2:].tolist() == ["x", "1.5"]


def test_the_types_of_a_large_file_come_from_its_first_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "TYPED_BYTES", 0)
    with pytest.raises(InvalidInputError, match="data row 400001: column 'a' is infinite or not a number"):
        TrainingTable(put(tmp_path, late("1")), "y")


@pytest.mark.parametrize(("ending", "is_packed"), [(".csv", False), (".csv.gz", True)])
def test_whole_numbers_stay_whole(tmp_path: Path, ending: str, is_packed: bool) -> None:
    content = b"a,b\n1,2\n3,\n"
    found = read_table(put(tmp_path, gzip.compress(content) if is_packed else content, f"a{ending}"))
    assert found["a"].tolist() == [1, 3]
    assert found["a"].dtype == np.int64
