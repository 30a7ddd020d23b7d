"""Tables in files of every format and in memory; and files that are not tables."""

import gzip
import os
import zipfile
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from cvgp.errors import (
    CVGPError,
    FileAccessError,
    FileFormatError,
    InvalidInputError,
    InvalidTypeError,
    MissingFileError,
)
from cvgp.tables import read
from cvgp.tables.read import open_frame, open_table
from tests.tables.helpers import damage, frame, learned, put, read_frame, write, write_parts

TEXT_ENDINGS = [".csv", ".tsv", ".csv.gz", ".tsv.gz"]
ENDINGS = [*TEXT_ENDINGS, ".parquet", ".feather", ".arrow"]
FRAME = pd.DataFrame(
    {
        "size": [1, -2, 3],
        "weight": [0.1, np.nan, 1e-300],
        "color": ["red", "light blue", 'a "quoted", cell'],
        "sold": [True, False, True],
    }
)


# Files of any format.


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_of_each_format_is_read(tmp_path: Path, ending: str) -> None:
    pd.testing.assert_frame_equal(read_frame(write(tmp_path / f"a{ending}", FRAME)), FRAME)


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1,x\n2,y",
        "a,b\r\n1,x\r\n2,y\r\n",
        "a,b\r1,x\r2,y\r",
        "\ufeffa,b\n1,x\n2,y\n",
        '"a","b"\n"1","x"\n"2","y"\n',
        "\n\na,b\n\n1,x\n2,y\n\n",
        "a;b\n1;x\n2;y\n",
        "a|b\n1|x\n2|y\n",
    ],
)
def test_dialect_of_csv_is_read(tmp_path: Path, content: str) -> None:
    expected = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    pd.testing.assert_frame_equal(read_frame(put(tmp_path, content)), expected)


@pytest.mark.parametrize("cell", ["", "NA", "nan", "null", "N/A"])
def test_words_for_nothing_are_missing_values(tmp_path: Path, cell: str) -> None:
    assert read_frame(put(tmp_path, f"a,b\n1,1\n{cell},2\n"))["a"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    "content", ["a,b\n1,2,3\n", "a,b\n1,2\n4,5,6\n", "a,b\n1,x,\n2,y,\n", "a,b\n1,2\n3\n", "  \na,b\n1,x\n"]
)
def test_a_row_that_is_not_as_long_as_the_first_line_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(FileFormatError, match="as long as the first line"):
        read_frame(put(tmp_path, content))


def test_repeated_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"must be unique.*'a' more than once \(columns 1, 3\)"):
        read_frame(put(tmp_path, "a,b,a\n1,2,3\n"))
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match=r"must be unique"):
        read_frame(tmp_path / "a.parquet")


@pytest.mark.parametrize("cell", ["", "1"])
def test_the_types_of_a_small_file_come_from_all_of_its_rows(tmp_path: Path, cell: str) -> None:
    opened = open_table(put(tmp_path, "a,y\n" + f"{cell},1\n" * 400_000 + "x,1\n1.5,1\n"))
    cells = [value for batch in opened.batches(opened.parts[0], ["a", "y"]) for value in batch["a"].to_pylist()]
    assert cells[-2:] == ["x", "1.5"]
    assert (opened.kind("a"), opened.kind("y")) == ("numeric" if cell else "categorical", "numeric")


@pytest.mark.parametrize("cell", ["oops", "inf"])
@pytest.mark.parametrize("typed_bytes", [read.BLOCK_BYTES, 10**9], ids=["first block", "whole file"])
def test_a_late_cell_that_is_not_a_number_is_a_bad_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed_bytes: int, cell: str
) -> None:
    monkeypatch.setattr(read, "TYPED_BYTES", typed_bytes)
    rows = [f"{i},1" for i in range(300_000)]
    rows[250_000], rows[3] = f"{cell},1", " 4.5 ,1"
    path = put(tmp_path, "\n".join(["a,y", *rows]))
    with pytest.raises(InvalidInputError, match=r"a\.csv, data row 250001: column 'a' is infinite or not a number"):
        learned(path)
    assert learned(path, on_bad_rows="skip").num_rows == 299_999


# Many files.


def test_a_glob_is_read_in_the_order_of_names_and_a_list_in_its_own(tmp_path: Path) -> None:
    files = [write(tmp_path / f"part-{i}.parquet", frame(3, start=3 * i)) for i in (2, 0, 1)]
    assert read_frame(str(tmp_path / "part-*.parquet"))["a"].tolist() == frame(9)["a"].tolist()
    assert read_frame([files[0], files[1], files[0]])["a"].tolist() == [6.0, 7.0, 8.0, 0.0, 1.0, 2.0]


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_a_folder_is_searched_for_tables_and_partitions(tmp_path: Path, ending: str) -> None:
    for region in ("north", "south"):
        folder = tmp_path / "data" / f"region={region}"
        folder.mkdir(parents=True)
        if ending == "jsonl":
            frame(2).to_json(folder / "part.jsonl", orient="records", lines=True)
        else:
            write(folder / f"part.{ending}", frame(2))
    for hidden in ("_SUCCESS.csv", ".hidden.csv", "notes.txt"):
        (tmp_path / "data" / hidden).write_text("")
    found = read_frame(tmp_path / "data")
    assert len(found) == 4
    if ending != "jsonl":
        assert found["region"].tolist() == ["north", "north", "south", "south"]
        assert open_table(tmp_path / "data").kind("region") == "categorical"
        (one,) = (tmp_path / "data" / "region=north").iterdir()
        assert "region" not in read_frame(one)


@pytest.mark.parametrize("pattern", ["", "/*.parquet", "/part-0.parquet"])
def test_a_uri_is_read_through_its_file_system(tmp_path: Path, pattern: str) -> None:
    write_parts(tmp_path, frame(9), cuts=())
    assert len(read_frame(tmp_path.as_uri() + pattern)) == 9


def test_a_dataset_is_read_by_its_schema_and_file_system(tmp_path: Path) -> None:
    write_parts(tmp_path, frame(9), cuts=(4,))
    dataset = ds.dataset("", filesystem=pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem()), format="parquet")
    few = dataset.replace_schema(dataset.schema.remove(dataset.schema.get_field_index("b")))
    assert list(read_frame(few)) == ["a", "y"]
    with pytest.raises(InvalidInputError, match="filtered"):
        open_table(dataset.filter(ds.field("a") > 1))
    with pytest.raises(InvalidInputError, match="no rows"):
        open_table(ds.dataset([], schema=pa.schema([("a", pa.float64())])))


def test_types_of_a_column_may_differ_in_width_but_not_in_kind(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", frame(3).astype({"a": np.int16}))
    write(tmp_path / "2.parquet", frame(3).astype({"a": np.float32, "b": str}))
    write(tmp_path / "3.parquet", pd.DataFrame({"a": [None, None], "b": 1.0}))
    opened = open_table(tmp_path)
    assert opened.kind("a") == "numeric"
    with pytest.raises(InvalidTypeError, match=r"'b' changes its type: it is double in .*1\.parquet and .*2\.parquet"):
        opened.kind("b")
    with pytest.raises(InvalidInputError, match=r"3\.parquet has no column .y."):
        opened.kind("y")


# Files that cannot be read.


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.xlsx::one", "absent-*.parquet", "empty"])
def test_what_names_no_table_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileAccessError, match=r"There is no file|No file is named|holds no files"):
        open_table(f"{tmp_path}/{name}")


@pytest.mark.parametrize("uri", ["file:///absent/x.parquet", "file:///absent/*.parquet", "nosuchscheme://x"])
def test_a_uri_that_leads_nowhere_is_refused(uri: str) -> None:
    with pytest.raises(MissingFileError):
        open_table(uri)


def test_a_table_of_a_database_is_refused_with_a_remedy() -> None:
    with pytest.raises(InvalidInputError, match="load it into a DataFrame"):
        open_table("sqlite:///file.db::sales")


def test_files_of_several_or_unknown_formats_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", frame(3))
    write(tmp_path / "b.parquet", frame(3))
    with pytest.raises(InvalidInputError, match="several formats"):
        open_table(tmp_path)
    with pytest.raises(FileFormatError, match=r"no ending of a known kind of table; use one of \.csv"):
        open_table(put(tmp_path, "a\n1\n", "a.csv.zip"))


@pytest.mark.parametrize("ending", [*ENDINGS, ".xlsx"])
def test_garbage_is_refused(tmp_path: Path, ending: str) -> None:
    with pytest.raises(FileFormatError, match=f"a{ending}"):
        read_frame(put(tmp_path, np.random.default_rng(0).bytes(3000), f"a{ending}"))


@pytest.mark.parametrize("fault", ["footer", "middle", "remove"])
def test_a_file_that_goes_bad_is_named(tmp_path: Path, fault: str) -> None:
    files = write_parts(tmp_path, frame(20_000), cuts=(10_000,))
    opened = open_table(tmp_path)
    if fault == "footer":
        files[1].write_bytes(files[1].read_bytes()[:-40])
        with pytest.raises(FileFormatError, match=r"part-1\.parquet could not be read"):
            open_table(tmp_path)
        return
    if fault == "middle":
        damage(files[1])
    else:
        files[1].unlink()
    with pytest.raises(CVGPError, match=r"part-1\.parquet"):
        [list(opened.batches(part, ["a", "b", "y"])) for part in opened.parts]


@pytest.mark.parametrize("ending", ENDINGS)
def test_table_without_rows_is_refused(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a{ending}", FRAME.iloc[:0])
    with pytest.raises(InvalidInputError, match=r"holds no rows|No row of the table is left|no values at all"):
        learned(path, "size")


# Pipes, links and odd names.


@pytest.mark.parametrize("place", ["{}/pipe.csv", "{}"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, place: str) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(FileAccessError, match="not a regular file"):
        open_table(place.format(tmp_path))


def test_links_to_files_and_folders_are_read(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    put(tmp_path / "real", "a\n1\n2\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "real")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real" / "a.csv")
    assert len(read_frame(tmp_path / "data")) == len(read_frame(tmp_path / "link.csv")) == 2
    (tmp_path / "data" / "b.csv").symlink_to(tmp_path / "nothing.csv")
    with pytest.raises(MissingFileError, match="no file"):
        open_table(tmp_path / "data")


@pytest.mark.parametrize("place", ["folder", "folder/**/*.csv"])
def test_a_link_to_the_folder_that_it_is_in_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder").mkdir()
    put(tmp_path / "folder", "a\n1\n")
    for name in ("first", "second"):  # two of them make more paths than can be listed
        (tmp_path / "folder" / name).symlink_to(tmp_path / "folder")
    with pytest.raises(InvalidInputError, match="would count twice"):
        open_table(tmp_path / place)


@pytest.mark.parametrize("pattern", ["{}", "*.csv", "."])
def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path, pattern: str) -> None:
    name = os.fsdecode(b"a\xff.csv")
    (tmp_path / name).write_text("a\n1\n")
    with pytest.raises(FileAccessError, match="not UTF-8"):
        open_table(f"{tmp_path}/{pattern.format(name)}")


# JSON lines.


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".ndjson", ".json"])
def test_json_lines_are_rows(tmp_path: Path, ending: str) -> None:
    content = b'{"a": 1, "b": "x", "c": true}\n\n{"b": "\xc3\xa9", "a": 2, "c": null}\n'
    path = put(tmp_path, gzip.compress(content) if ending.endswith("gz") else content, f"a{ending}")
    assert read_frame(path).to_dict("list") == {"a": [1, 2], "b": ["x", "é"], "c": [True, None]}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("[1, 2]\n", 1),
        ('{"a": 1}\n{"a": \n', 2),
        ("[" * 100_000 + "\n", 1),
        ('{"a": ' + "9" * 5000 + "}\n", 1),
        (b'{"a": "caf\xe9"}\n', 1),
    ],
)
def test_what_is_not_an_object_is_named_by_its_line(tmp_path: Path, content: str | bytes, line: int) -> None:
    with pytest.raises(FileFormatError, match=f"a\\.jsonl could not be read as JSON lines, line {line}.*one object"):
        open_table(put(tmp_path, content, "a.jsonl"))


def test_cells_of_json_may_be_nested_mixed_or_huge(tmp_path: Path) -> None:
    path = put(tmp_path, "".join(f'{{"a": {i}, "n": [1], "y": {i}}}\n' for i in range(5)), "a.jsonl")
    with pytest.raises(InvalidTypeError, match=r"'n' holds values of type list(.|\n)*--drop n"):
        learned(path)
    assert learned(path, drop="n").feature_names == ["a"]
    mixed = ['{"a": 1, "y": 1}', '{"a": "x", "y": 2}', '{"a": true, "y": 3}', '{"a": 1.0, "y": 3}']
    assert learned(put(tmp_path, "\n".join(mixed), "a.jsonl")).feature_names == ["a=1", "a=true", "a=x"]
    mostly = [f'{{"a": {i}, "y": 1}}' for i in range(99)] + ['{"a": "x", "y": 2}']
    with pytest.raises(InvalidInputError, match=r"a\.jsonl, data row 100: column 'a' is infinite or not a number"):
        learned(put(tmp_path, "\n".join(mostly), "a.jsonl"))
    odd = '{"a": 100000000000000000000, "b": "\\ud800"}\n{"a": 1, "b": ""}\n'
    assert read_frame(put(tmp_path, odd, "a.jsonl")).to_dict("list") == {"a": [1e20, 1.0], "b": ["?", ""]}


def test_a_file_that_would_have_to_be_loaded_and_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cvgp.tables.files.memory_left", lambda: 10)
    with pytest.raises(InvalidInputError, match="write it as Parquet"):
        open_table(put(tmp_path, '{"a": 1}\n', "a.jsonl"))


# Excel.

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


def test_the_first_sheet_is_read_unless_one_is_named(tmp_path: Path) -> None:
    path = book(tmp_path / "a.xlsx", one=ROWS, two=[["x"], [1]])
    found = read_frame(path)
    assert found.to_dict("list") == {"size": [1.0, 2.5], "city": ["Wien", "Köln"], "sold": [True, False]}
    assert open_table(f"{path}::two").names == ["x"]
    with pytest.raises(InvalidInputError, match=r"no sheet 'three'; it has one, two"):
        open_table(f"{path}::three")


def test_empty_rows_and_columns_around_the_table_do_not_count(tmp_path: Path) -> None:
    path = book(tmp_path / "a.xlsx", one=[[], ["a", "b", None], [1, 2, None], [None, " "], [3, 4]])
    assert read_frame(path).to_dict("list") == {"a": [1, 3], "b": [2, 4]}


def test_a_damaged_sheet_or_one_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, broken = book(tmp_path / "a.xlsx", one=ROWS), tmp_path / "b.xlsx"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(broken, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, content[: len(content) // 2] if "sheet1" in name else content)
    with pytest.raises(FileFormatError, match=r"b\.xlsx could not be read"):
        open_table(broken)
    monkeypatch.setattr("cvgp.files.MOST_UNPACKED", 1000)
    monkeypatch.setattr("cvgp.files.MOST_PACKING", 1)
    with pytest.raises(InvalidInputError, match="unpacks to at least"):
        open_table(path)


# Frames.

CELLS = pd.DataFrame({"a": [1.5, None, 3.0], "color": ["red", None, "blue"], "when": pd.date_range("2020", periods=3)})
TABLE = pa.Table.from_pandas(CELLS, preserve_index=False)


class OnlyInterchange:
    """What a frame of another library shows."""

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> object:
        return TABLE.__dataframe__()


@pytest.mark.parametrize(
    "given",
    [CELLS, TABLE, TABLE.to_batches()[0], pl.from_pandas(CELLS), OnlyInterchange()],
    ids=lambda given: type(given).__module__,
)
def test_frames_of_all_libraries_hold_the_same_cells(given: object) -> None:
    opened = open_frame(given, {"y": [1.0, 2.0, 3.0]})
    (batch,) = opened.batches(opened.parts[0], ["a", "color", "when", "y"])
    assert batch.drop_columns("y").to_pydict() == TABLE.to_pydict()
    assert batch.column("y").to_pylist() == [1.0, 2.0, 3.0]


def test_a_column_that_mixes_types_is_refused_by_its_first_odd_rows() -> None:
    mixed = pd.DataFrame({"a": pd.Series([1.0, None, "two", 3.0, "four"], dtype=object)})
    with pytest.raises(InvalidTypeError, match=r"'a' mixes types: .*float, but row 3 holds 'two', row 5 holds 'four'"):
        open_frame(mixed)
