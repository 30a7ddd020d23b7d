"""Reading tables by the schema of a model."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cvgp.errors import CVGPWarning, InvalidInputError
from cvgp.tables import apply
from cvgp.tables.apply import load_rows, schema_reader
from cvgp.tables.columns import Column, Schema
from cvgp.tables.read import open_table
from tests.tables.helpers import learn, put, write

FRAME = pd.DataFrame(
    {
        "size": [1.5, 2.5, 3.5, 4.5],
        "price": [10, 20, 30, 40],
        "color": ["red", "blue", "red", "blue"],
        "sold": [True, False, True, True],
    }
)
MATRIX = np.array([[1.5, 0, 1, 1], [2.5, 1, 0, 0], [3.5, 0, 1, 1], [4.5, 1, 0, 1]])
HOLES = FRAME.assign(
    size=[1.5, np.nan, 3.5, 4.5],
    color=["red", None, "red", None],
    sold=pd.Series([True, False, True, None], dtype="boolean"),
)
SCHEMA = learn(FRAME, "price")


def encode(frame: pd.DataFrame, schema: Schema = SCHEMA) -> np.ndarray:
    return load_rows(frame.assign(price=1.0), schema)[0].x


@pytest.mark.parametrize("convert", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
def test_columns_are_found_by_name_in_any_order(convert: Callable[[pd.DataFrame], object]) -> None:
    reordered = convert(FRAME[["sold", "price", "color", "size"]])
    np.testing.assert_array_equal(load_rows(reordered, SCHEMA)[0].x, MATRIX)


def test_extra_columns_are_ignored_whatever_they_hold() -> None:
    extra = FRAME.assign(when=pd.Timestamp("2020-01-01"), note=np.nan)
    np.testing.assert_array_equal(encode(extra), MATRIX)


@pytest.mark.parametrize("cells", ["1\n2\n", "1.0\n2\n", '"1"\n"2"\n', "1\n2\n\n"], ids=repr)
def test_the_cells_of_a_text_file_are_read_as_the_schema_says(tmp_path: Path, cells: str) -> None:
    """A column of text may hold numbers only in another file."""
    (tmp_path / "a.csv").write_text("a,y\n" + "".join(f"{cell},1\n" for cell in cells.split()))
    schema = Schema("y", (Column("a", "categorical", ("1", "1.0", "2")),))
    assert load_rows(tmp_path / "a.csv", schema)[0].x.sum() == 2


@pytest.mark.parametrize("cells", [pd.Series([1, 2]), pd.Series([1.0, 2.0]), pd.Series([1, 2], dtype="category")])
def test_a_category_is_known_whatever_type_the_file_gives_it(cells: pd.Series) -> None:
    schema = Schema("y", (Column("a", "categorical", ("1", "2")),))
    inputs, _ = load_rows(pd.DataFrame({"a": cells, "y": 1.0}), schema)
    np.testing.assert_array_equal(inputs.x, [[1, 0], [0, 1]])


# Unknown categories.


def test_an_unknown_category_is_each_known_one_as_often_as_in_the_training_table() -> None:
    with pytest.warns(CVGPWarning, match="integrated out"):
        inputs, _ = load_rows(FRAME.assign(color=["pink", "red", "red", "blue"]), SCHEMA)
    assert inputs.uncertain_rows.tolist() == [0]
    np.testing.assert_array_equal(inputs.take(np.array([0])).draws()[0].mean(axis=0), [1.5, 0.5, 0.5, 1.0])


# Missing and bad values.


def test_cells_that_were_never_missing_are_integrated_out_and_counted() -> None:
    with pytest.warns(CVGPWarning, match=r"that were complete .*: 'size' 1 \(.*\), 'color' 2 \(.*\), 'sold' 1 \("):
        inputs, _ = load_rows(HOLES, SCHEMA)
    assert inputs.uncertain_rows.tolist() == [1, 3]
    assert inputs.take(np.array([1])).draws()[0, :, 0].mean() == pytest.approx(FRAME["size"].mean())


def test_a_missing_value_is_named_by_row_and_column_where_the_file_knows_no_distribution() -> None:
    columns = tuple(replace(column, typical=()) for column in SCHEMA.columns)
    with pytest.raises(InvalidInputError, match=r"data row 2: column 'size' is missing.*Correct it"):
        encode(HOLES, Schema("price", columns))


def test_incomplete_rows_are_left_out_where_the_rule_is_to_drop_them() -> None:
    holes = FRAME.assign(size=[np.nan, 2.5, 3.5, 4.5], price=[10, 20, None, 40])
    inputs, y = load_rows(holes, learn(FRAME, "price", "drop"))
    np.testing.assert_array_equal(np.column_stack([inputs.x, y]), [[2.5, 1, 0, 0, 20], [4.5, 1, 0, 1, 40]])


def test_text_in_a_numeric_column_of_a_text_file_is_refused_by_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", FRAME.assign(size=["1", "2", "big", "4"]))
    with pytest.raises(InvalidInputError, match=r"a\.csv, data row 3: column 'size' is infinite or not a number"):
        load_rows(path, SCHEMA)


def test_a_renamed_column_is_suggested() -> None:
    with pytest.raises(InvalidInputError, match=r"lacks the columns \['size'\].*Perhaps it has 'Size ' for 'size'"):
        load_rows(FRAME.rename(columns={"size": "Size "}), SCHEMA)


def test_rows_beyond_the_memory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"a": np.zeros(100_000), "y": np.zeros(100_000)})
    path = write(tmp_path / "bomb.parquet", frame)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(apply, "memory_left", lambda: 500_000)
    with pytest.raises(InvalidInputError, match=r"bomb\.parquet holds at least 0.0 GB when it is unpacked"):
        load_rows(path, Schema("y", (Column("a", "numeric"),)))


def test_cells_of_columns_that_the_model_does_not_know_stay_as_they_are(tmp_path: Path) -> None:
    rows = "".join(f"{i},{'x' if i == 50 else i},00{i},1,234\n" for i in range(100))
    opened = open_table(put(tmp_path, f"size,note,code,y,z\n{rows}"))
    reader = schema_reader(opened, Schema("y", (Column("size", "numeric"),)))
    (piece,) = reader.pieces(opened.parts, opened.names)
    assert piece.batch.column("note")[50].as_py() == "x"
    assert piece.rows.x[:, 0].tolist() == list(range(100))
