from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from cvgp.data.tables import text_files
from cvgp.data.tables.location import open_dataset
from cvgp.data.tables.reader import column_kinds, list_parts, read_batches
from cvgp.errors import FileFormatError, InvalidInputError, InvalidTypeError, MissingFileError
from tests.data.tables.tables import damage, frame, write, write_parts

KINDS = {"a": "numeric", "b": "numeric", "y": "numeric"}


def read(dataset: ds.Dataset, names: list[str], kinds: dict[str, str] = KINDS) -> list[pa.RecordBatch]:
    return [batch for part in list_parts(dataset) for batch in read_batches(part, names, kinds)]


def test_row_groups_are_parts_that_know_where_they_begin(tmp_path: Path) -> None:
    write_parts(tmp_path, frame(25), cuts=(20,), group=8)
    parts = list_parts(open_dataset(tmp_path))
    assert [(Path(p.file).name, p.first_row, p.num_rows) for p in parts] == [
        ("part-0.parquet", 0, 8),
        ("part-0.parquet", 8, 8),
        ("part-0.parquet", 16, 4),
        ("part-1.parquet", 0, 5),
    ]


@pytest.mark.parametrize("ending", ["parquet", "csv", "feather"])
def test_only_the_columns_that_are_named_are_read_in_order(tmp_path: Path, ending: str) -> None:
    write(tmp_path / f"table.{ending}", frame(30), group=7)
    batches = read(open_dataset(tmp_path), ["y", "a"])
    assert all(batch.schema.names == ["y", "a"] for batch in batches)
    assert np.concatenate([batch["a"].to_numpy() for batch in batches]).tolist() == frame(30)["a"].tolist()


def test_numbers_of_a_text_file_may_begin_as_whole_ones(tmp_path: Path) -> None:
    rows = "\n".join("1" for _ in range(600_000))  # more than the first block, by which types are guessed
    (tmp_path / "table.csv").write_text(f"a\n{rows}\n1.5\n")
    batches = read(open_dataset(tmp_path), ["a"])
    assert batches[-1]["a"][-1].as_py() == 1.5


@pytest.mark.parametrize(
    ("num_rows", "expected"), [(10, "int64"), (600_000, "double")], ids=["seen as a whole", "seen in part"]
)
def test_whole_numbers_of_a_text_file_stay_whole_where_all_of_it_was_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_rows: int, expected: str
) -> None:
    monkeypatch.setattr(text_files, "TYPED_BYTES", 0)
    (tmp_path / "table.csv").write_text("a\n" + "1\n" * num_rows)
    assert {str(batch["a"].type) for batch in read(open_dataset(tmp_path), ["a"])} == {expected}


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_partitions_are_columns(tmp_path: Path, ending: str) -> None:
    for name in ("north", "south"):
        (tmp_path / f"region={name}").mkdir()
        write(tmp_path / f"region={name}" / f"part.{ending}", frame(2))
    dataset = open_dataset(tmp_path)
    kinds = column_kinds(dataset, ["a", "region"])
    assert kinds == {"a": "numeric", "region": "categorical"}
    regions = [value.as_py() for batch in read(dataset, ["a", "region"], kinds) for value in batch["region"]]
    assert regions == ["north", "north", "south", "south"]


def test_a_table_in_memory_is_read_too() -> None:
    dataset = ds.dataset(pa.Table.from_pandas(frame(5)))
    assert sum(len(batch) for batch in read(dataset, ["a"])) == 5


def test_a_column_that_changes_its_type_in_one_file_is_named_with_both(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", frame(3))
    write(tmp_path / "2.parquet", frame(3))
    write(tmp_path / "3.parquet", frame(3).astype({"b": str}))
    with pytest.raises(InvalidTypeError, match=r"'b' changes its type: it is double in .*1\.parquet and .*3\.parquet"):
        column_kinds(open_dataset(tmp_path), ["a", "b"])


def test_numbers_of_other_width_are_the_same_kind(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", frame(3).astype({"a": np.int16}))
    write(tmp_path / "2.parquet", frame(3).astype({"a": np.float32}))
    dataset = open_dataset(tmp_path)
    assert column_kinds(dataset, ["a"]) == {"a": "numeric"}
    assert [value for batch in read(dataset, ["a"]) for value in batch["a"].to_pylist()] == [0, 1, 2, 0.0, 1.0, 2.0]


def test_a_column_without_values_in_one_file_has_the_kind_of_the_others(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", pd.DataFrame({"a": [None, None]}))
    write(tmp_path / "2.parquet", frame(3)[["a"]])
    assert column_kinds(open_dataset(tmp_path), ["a"]) == {"a": "numeric"}


def test_a_file_without_a_column_is_named(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", frame(3))
    write(tmp_path / "2.parquet", frame(3).drop(columns="b"))
    with pytest.raises(InvalidInputError, match=r"2\.parquet has the column 'b' not at all"):
        column_kinds(open_dataset(tmp_path), ["a", "b"])


def test_a_damaged_footer_is_named(tmp_path: Path) -> None:
    files = write_parts(tmp_path, frame(30), cuts=(10,))
    dataset = open_dataset(tmp_path)
    files[1].write_bytes(files[1].read_bytes()[:-40])
    with pytest.raises(FileFormatError, match=r"part-1\.parquet could not be read"):
        list_parts(dataset)


def test_a_damaged_middle_is_named(tmp_path: Path) -> None:
    files = write_parts(tmp_path, frame(20_000), cuts=(10_000,))
    damage(files[1])
    with pytest.raises(FileFormatError, match=r"part-1\.parquet could not be read"):
        read(open_dataset(tmp_path), ["a", "b", "y"])


def test_a_text_file_with_a_short_row_is_named(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(FileFormatError, match=r"table\.csv could not be read.*Expected 2 columns, got 1"):
        read(open_dataset(tmp_path), ["a"])


def test_a_file_that_vanishes_is_named(tmp_path: Path) -> None:
    files = write_parts(tmp_path, frame(30), cuts=(10,))
    parts = list_parts(open_dataset(tmp_path))
    files[1].unlink()
    with pytest.raises(MissingFileError, match=r"part-1\.parquet is not there"):
        list(read_batches(parts[-1], ["a"], KINDS))


@pytest.mark.parametrize("rows", [10, 25])
def test_a_file_that_is_written_anew_is_named(tmp_path: Path, rows: int) -> None:
    file = write(tmp_path / "table.parquet", frame(10))
    part = list_parts(open_dataset(tmp_path))[0]
    write(file, frame(rows, start=1000))
    with pytest.raises(FileFormatError, match=r"table\.parquet has changed"):
        list(read_batches(part, ["a"], KINDS))


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "table.csv", frame(10))
    part = list_parts(open_dataset(tmp_path))[0]
    batches = read_batches(part, ["a"], KINDS)
    next(batches)
    with file.open("a") as stream:
        stream.write("1,2,3\n")
    with pytest.raises(FileFormatError, match=r"table\.csv has changed"):
        list(batches)


def test_a_table_without_rows_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="no rows"):
        list_parts(ds.dataset([], schema=pa.schema([("a", pa.float64())])))
