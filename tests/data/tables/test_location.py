from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from cvgp.data.tables.location import open_dataset
from cvgp.errors import FileAccessError, FileFormatError, InvalidInputError, InvalidTypeError, MissingFileError
from tests.data.tables.tables import frame, write, write_parts


def rows_of(dataset: ds.Dataset) -> list[float]:
    return dataset.to_table(columns=["a"])["a"].to_pylist()


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv", "csv.gz", "feather", "arrow"])
def test_a_file_of_each_format_is_opened(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"table.{ending}", frame(50))
    assert rows_of(open_dataset(path)) == frame(50)["a"].tolist()


def test_a_glob_opens_its_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    for number in (2, 0, 1):
        write(tmp_path / f"part-{number}.parquet", frame(3, start=3 * number))
    assert rows_of(open_dataset(str(tmp_path / "part-*.parquet"))) == frame(9)["a"].tolist()


def test_a_list_keeps_its_order(tmp_path: Path) -> None:
    files = write_parts(tmp_path, frame(9), cuts=(3, 6))
    assert rows_of(open_dataset([files[2], files[0]]))[:3] == [6.0, 7.0, 8.0]


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    files = write_parts(tmp_path, frame(9), cuts=(3, 6))
    assert len(rows_of(open_dataset([files[0], files[0]]))) == 3


def test_a_folder_is_searched_for_tables_and_partitions(tmp_path: Path) -> None:
    for year in (2020, 2021):
        folder = tmp_path / "data" / f"year={year}"
        folder.mkdir(parents=True)
        write(folder / "part.parquet", frame(4))
    (tmp_path / "data" / "_SUCCESS.csv").write_text("")
    (tmp_path / "data" / ".hidden.csv").write_text("")
    (tmp_path / "data" / "notes.txt").write_text("no table")
    table = open_dataset(tmp_path / "data").to_table()
    assert table["year"].to_pylist() == [2020] * 4 + [2021] * 4


@pytest.mark.parametrize("pattern", ["", "/*.parquet", "/part-0.parquet"])
def test_a_uri_is_read_through_its_file_system(tmp_path: Path, pattern: str) -> None:
    write_parts(tmp_path, frame(9), cuts=())
    assert len(rows_of(open_dataset(tmp_path.as_uri() + pattern))) == 9


def test_a_dataset_stays_as_it_is(tmp_path: Path) -> None:
    dataset = ds.dataset(write(tmp_path / "table.parquet", frame(4)))
    assert open_dataset(dataset) is dataset


def test_a_filtered_dataset_is_refused(tmp_path: Path) -> None:
    dataset = ds.dataset(write(tmp_path / "table.parquet", frame(4)))
    with pytest.raises(InvalidInputError, match="filtered"):
        open_dataset(dataset.filter(ds.field("a") > 1))


@pytest.mark.parametrize("name", ["absent.parquet", "absent-*.parquet", "empty"])
def test_what_names_no_table_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileAccessError, match=r"absent|holds no files"):
        open_dataset(tmp_path / name)


@pytest.mark.parametrize("uri", ["file:///absent/x.parquet", "file:///absent/*.parquet", "nosuchscheme://x"])
def test_a_uri_that_leads_nowhere_is_refused(uri: str) -> None:
    with pytest.raises(MissingFileError):
        open_dataset(uri)


def test_files_of_several_formats_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", frame(3))
    write(tmp_path / "b.parquet", frame(3))
    with pytest.raises(InvalidInputError, match="several formats"):
        open_dataset(tmp_path)


def test_a_file_of_no_known_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table.xls").write_bytes(b"PK")
    with pytest.raises(FileFormatError, match="ending"):
        open_dataset(tmp_path / "table.xls")


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    (tmp_path / "table.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(FileFormatError, match=r"table\.parquet"):
        open_dataset(tmp_path / "table.parquet")


@pytest.mark.parametrize("value", [3, [1.0, 2.0], []])
def test_what_is_no_place_is_refused(value: object) -> None:
    with pytest.raises(InvalidTypeError, match="a path, a glob"):
        open_dataset(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("notes", ["1.5", '{"index_columns": 3}', "{", "[" * 100_000, '{"index_columns": [{}, 1]}'])
def test_notes_of_pandas_may_hold_anything(tmp_path: Path, notes: str) -> None:
    table = pa.Table.from_pandas(frame(9)).replace_schema_metadata({b"pandas": notes.encode()})
    pq.write_table(table, tmp_path / "table.parquet")
    try:
        outcome = open_dataset(tmp_path).schema.names
    except FileFormatError as error:
        outcome = error
    assert isinstance(outcome, FileFormatError) or outcome == ["a", "b", "y"]


@pytest.mark.parametrize("name", [None, "id"])
def test_row_labels_of_pandas_are_no_column(tmp_path: Path, name: str | None) -> None:
    table = frame(9).sample(frac=1.0, random_state=0)
    table.rename_axis(name).to_parquet(tmp_path / "table.parquet")
    opened = open_dataset(tmp_path)
    assert opened.schema.names == list(table.columns)
    assert rows_of(opened) == table["a"].tolist()
