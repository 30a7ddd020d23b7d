import gzip
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cvgp.data.tables.whole import read_table, write_table
from cvgp.errors import (
    CVGPError,
    FileAccessError,
    FileFormatError,
    InvalidInputError,
    InvalidTypeError,
    MissingFileError,
)

TEXT_ENDINGS = [".csv", ".tsv", ".csv.gz", ".tsv.gz"]
BINARY_ENDINGS = [".parquet", ".feather", ".arrow"]
ENDINGS = [*TEXT_ENDINGS, *BINARY_ENDINGS]

DICTIONARY = pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))

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


# Writing and reading back.


@pytest.mark.parametrize("ending", ENDINGS)
def test_table_is_read_as_it_was_written(tmp_path: Path, ending: str) -> None:
    write_table(FRAME, tmp_path / f"a{ending}")
    pd.testing.assert_frame_equal(read_table(tmp_path / f"a{ending}"), FRAME)


def test_ending_may_be_in_capitals(tmp_path: Path) -> None:
    write_table(FRAME, tmp_path / "A.CSV")
    pd.testing.assert_frame_equal(read_table(tmp_path / "A.CSV"), FRAME)


@pytest.mark.parametrize("ending", BINARY_ENDINGS)
@pytest.mark.parametrize(
    "column",
    [
        pd.Series([1, None], dtype="Int64"),
        pd.Series([True, None], dtype="boolean"),
        pd.Series(["x", None], dtype="category"),
        pd.Series(["x", None], dtype="string[pyarrow]"),
        pd.Series([1.5, None], dtype="double[pyarrow]"),
        pd.Series(pd.to_datetime(["2020-01-02", None])),
    ],
    ids=lambda column: str(column.dtype),
)
def test_binary_table_keeps_its_types(tmp_path: Path, ending: str, column: pd.Series) -> None:
    write_table(column.to_frame("a"), tmp_path / f"a{ending}")
    pd.testing.assert_frame_equal(read_table(tmp_path / f"a{ending}"), column.to_frame("a"))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_numbers_survive_text_with_all_digits(tmp_path: Path, values: list[float]) -> None:
    write_table(pd.DataFrame({"a": values}), tmp_path / "a.csv")
    np.testing.assert_array_equal(read_table(tmp_path / "a.csv")["a"].to_numpy(dtype=float), values)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.sampled_from('ab,;"\n\r\t ')).map(lambda text: f"x{text}x"), min_size=1))
def test_text_survives_quotes_and_line_breaks(tmp_path: Path, values: list[str]) -> None:
    write_table(pd.DataFrame({"a": values, "b": 1}), tmp_path / "a.csv")
    assert read_table(tmp_path / "a.csv")["a"].tolist() == values


@pytest.mark.parametrize("ending", ENDINGS)
def test_index_is_not_written(tmp_path: Path, ending: str) -> None:
    write_table(FRAME.set_axis([7, 7, 9]), tmp_path / f"a{ending}")
    pd.testing.assert_frame_equal(read_table(tmp_path / f"a{ending}"), FRAME)


@pytest.mark.parametrize("ending", ENDINGS)
def test_equal_tables_give_equal_files(tmp_path: Path, ending: str) -> None:
    write_table(FRAME, tmp_path / f"a{ending}")
    write_table(FRAME.copy(), tmp_path / f"b{ending}")
    assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()


def test_gzipped_text_is_gzip(tmp_path: Path) -> None:
    write_table(FRAME, tmp_path / "a.csv.gz")
    write_table(FRAME, tmp_path / "a.csv")
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()) == (tmp_path / "a.csv").read_bytes()


def test_writing_leaves_the_frame_alone(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": ["=1"]})
    write_table(frame, tmp_path / "a.csv")
    assert frame["a"].tolist() == ["=1"]


# Choosing columns.


@pytest.mark.parametrize("ending", ENDINGS)
def test_columns_are_returned_in_the_order_asked_for(tmp_path: Path, ending: str) -> None:
    write_table(FRAME, tmp_path / f"a{ending}")
    pd.testing.assert_frame_equal(read_table(tmp_path / f"a{ending}", ["sold", "size"]), FRAME[["sold", "size"]])


@pytest.mark.parametrize("ending", ENDINGS)
def test_column_that_does_not_exist_is_named_beside_those_that_do(tmp_path: Path, ending: str) -> None:
    write_table(FRAME, tmp_path / f"a{ending}")
    with pytest.raises(InvalidInputError, match=r"no columns \['colour'\]; choose from \['size', 'weight', 'color'"):
        read_table(tmp_path / f"a{ending}", ["size", "colour"])


@pytest.mark.parametrize(
    "index", [pd.Index([5, 6, 7], name="id"), pd.RangeIndex(3, name="id")], ids=["stored", "noted"]
)
@pytest.mark.parametrize("columns", [None, ["id", "size"]])
def test_named_index_in_a_parquet_file_is_a_column(tmp_path: Path, index: pd.Index, columns: list[str] | None) -> None:
    FRAME.set_axis(index).to_parquet(tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet", columns)["id"].tolist() == list(index)


def test_unnamed_index_in_a_parquet_file_is_left_out(tmp_path: Path) -> None:
    FRAME.set_axis([7, 8, 9]).to_parquet(tmp_path / "a.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "a.parquet"), FRAME)


def test_folder_name_adds_no_column(tmp_path: Path) -> None:
    (tmp_path / "year=2020").mkdir()
    write_table(FRAME, tmp_path / "year=2020" / "a.parquet")
    assert list(read_table(tmp_path / "year=2020" / "a.parquet")) == list(FRAME)


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
        "  \na,b\n1,x\n2,y\n",
        "a,b\n1,x,\n2,y,\n",
    ],
    ids=[
        "unix",
        "no last line end",
        "windows",
        "old mac",
        "byte order mark",
        "quoted",
        "blank lines",
        "spaces",
        "commas",
    ],
)
def test_dialect_of_csv_is_read(tmp_path: Path, content: str) -> None:
    expected = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    pd.testing.assert_frame_equal(read_table(put(tmp_path, content)), expected)


@pytest.mark.parametrize("cell", ["", "NA", "nan", "null", "N/A"])
def test_words_for_nothing_are_missing_values(tmp_path: Path, cell: str) -> None:
    frame = read_table(put(tmp_path, f"a,b\n1,1\n{cell},2\n"))
    assert frame["a"].isna().tolist() == [False, True]


@pytest.mark.parametrize("content", ["a,b\n1,2,3\n", "a,b\n1,2\n4,5,6\n", "a,b\n1,2,3\n4,5,6\n"])
def test_row_longer_than_the_first_line_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(FileFormatError, match="every row as long as the first line"):
        read_table(put(tmp_path, content))


def test_repeated_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"must be unique.*more than once: \['a'\]"):
        read_table(put(tmp_path, "a,b,a\n1,2,3\n"))


def test_repeated_name_in_a_parquet_file_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match=r"must be unique.*more than once: \['a'\]"):
        read_table(tmp_path / "a.parquet")


def test_column_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"Column 1 of .* has no name.*index=False"):
        read_table(put(tmp_path, FRAME.to_csv()))


@pytest.mark.parametrize(
    ("content", "name"), [("a;b\n1;2\n", "a.csv"), ("a\tb\n1\t2\n", "a.csv"), ("a,b\n1,2\n", "a.tsv")]
)
def test_other_separator_is_recognised(tmp_path: Path, content: str, name: str) -> None:
    with pytest.raises(FileFormatError, match=r"seem to be separated by .*write it again with that separator"):
        read_table(put(tmp_path, content, name))


def test_quoted_name_with_a_separator_is_one_name(tmp_path: Path) -> None:
    assert list(read_table(put(tmp_path, '"height, cm"\n1\n'))) == ["height, cm"]


# Files that cannot be read.


@pytest.mark.parametrize("ending", ENDINGS)
def test_missing_file_is_reported(tmp_path: Path, ending: str) -> None:
    with pytest.raises(MissingFileError, match=r"There is no file .*check its name"):
        read_table(tmp_path / f"a{ending}")


def test_missing_file_is_also_the_built_in_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_table(tmp_path / "a.csv")


def test_folder_in_place_of_a_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match="cannot be read"):
        read_table(tmp_path)


def test_file_without_permission_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(FileAccessError, match=r"cannot be read \(Permission denied\)"):
        read_table(tmp_path / "a.csv")


@pytest.mark.parametrize("name", ["a.xlsx", "a", "csv", "a.gz", "a.csv.zip"])
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
    write_table(FRAME, path)
    with pytest.raises(FileFormatError, match="could not be read"):
        read_table(put(tmp_path, path.read_bytes()[:-20], path.name))


@pytest.mark.parametrize("ending", ENDINGS)
def test_damaged_file_gives_a_table_or_an_error_of_the_tree(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    write_table(FRAME, path)
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


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="save it as UTF-8"):
        read_table(put(tmp_path, "name,b\ncafé,1\n".encode("latin-1")))


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_file_without_content_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(InvalidInputError, match="is empty; it must hold column names"):
        read_table(put(tmp_path, content))


@pytest.mark.parametrize("ending", ENDINGS)
def test_table_without_rows_is_refused(tmp_path: Path, ending: str) -> None:
    write_table(FRAME.iloc[:0], tmp_path / f"a{ending}")
    with pytest.raises(InvalidInputError, match=r"empty table.*at least one column and one row"):
        read_table(tmp_path / f"a{ending}")


# Writing safely.


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
@pytest.mark.parametrize("dtype", ["str", object, "category", "string[pyarrow]", DICTIONARY])
def test_text_that_a_spreadsheet_would_run_gets_an_apostrophe(tmp_path: Path, start: str, dtype: object) -> None:
    write_table(pd.DataFrame({"a": pd.Series([f"{start}1+1", "safe"], dtype=dtype)}), tmp_path / "a.csv")
    assert read_table(tmp_path / "a.csv")["a"].tolist() == [f"'{start}1+1", "safe"]


def test_name_that_a_spreadsheet_would_run_gets_an_apostrophe(tmp_path: Path) -> None:
    write_table(pd.DataFrame({"=1+1": [1]}), tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "'=1+1\n1\n"


@pytest.mark.parametrize("dtype", ["float64", "Float64", "double[pyarrow]", object])
def test_negative_number_gets_no_apostrophe(tmp_path: Path, dtype: object) -> None:
    write_table(pd.DataFrame({"a": pd.Series([-1.5], dtype=dtype)}), tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "a\n-1.5\n"


@pytest.mark.parametrize("ending", BINARY_ENDINGS)
def test_binary_table_keeps_its_text_as_it_is(tmp_path: Path, ending: str) -> None:
    write_table(pd.DataFrame({"a": ["=1+1"]}), tmp_path / f"a{ending}")
    assert read_table(tmp_path / f"a{ending}")["a"].tolist() == ["=1+1"]


@pytest.mark.parametrize("name", ["a.xlsx", "a"])
def test_unknown_ending_is_refused_at_writing(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileFormatError, match="no ending of a known kind of table"):
        write_table(FRAME, tmp_path / name)


@pytest.mark.parametrize("ending", ENDINGS)
def test_missing_folder_is_reported_at_writing(tmp_path: Path, ending: str) -> None:
    with pytest.raises(MissingFileError, match="folder does not exist"):
        write_table(FRAME, tmp_path / "no" / f"a{ending}")


def test_repeated_names_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="must be unique"):
        write_table(FRAME.set_axis(["a", "a", "b", "c"], axis=1), tmp_path / "a.csv")


def test_names_that_are_not_text_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidTypeError, match="must be text"):
        write_table(FRAME.set_axis([0, 1, 2, 3], axis=1), tmp_path / "a.csv")


@pytest.mark.parametrize("ending", BINARY_ENDINGS)
def test_column_of_mixed_types_is_not_written(tmp_path: Path, ending: str) -> None:
    with pytest.raises(InvalidInputError, match=r"cannot be stored.*values of one type"):
        write_table(pd.DataFrame({"a": [1, "x", None]}), tmp_path / f"a{ending}")


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet", ".feather"])
def test_full_disk_keeps_the_old_table_and_says_so(tmp_path: Path, ending: str) -> None:
    # A limit on the size of files makes the system refuse the write half-way, as a full disk does.
    code = (
        "import sys\n"
        "import numpy as np, pandas as pd\n"
        "from cvgp.data.tables.whole import write_table\n"
        "from cvgp.errors import FileAccessError\n"
        "try:\n"
        "    write_table(pd.DataFrame({'a': np.random.default_rng(0).normal(size=20_000)}), sys.argv[1])\n"
        "except FileAccessError as error:\n"
        "    sys.exit(3 if 'check the free space' in str(error) else 4)\n"
    )
    path = put(tmp_path, "old", f"a{ending}")
    finished = subprocess.run(
        [sys.executable, "-c", code, path],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
        check=False,
    )
    assert (finished.returncode, {file.name: file.read_text() for file in tmp_path.iterdir()}) == (
        3,
        {path.name: "old"},
    )
