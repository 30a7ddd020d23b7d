"""Data frames as tables."""

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cvgp.data.tables.in_memory import column_names, dataset_of
from cvgp.errors import InvalidInputError, InvalidTypeError

FRAME = pd.DataFrame({"a": [1.5, None, 3.0], "color": ["red", None, "blue"], "when": pd.date_range("2020", periods=3)})
TABLE = pa.Table.from_pandas(FRAME, preserve_index=False)


class OnlyInterchange:
    """What a frame of another library shows."""

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> object:
        return TABLE.select(["a", "color"]).__dataframe__()


@pytest.mark.parametrize(
    "frame", [FRAME, TABLE, TABLE.to_batches()[0], pl.from_pandas(FRAME)], ids=lambda frame: type(frame).__module__
)
def test_frames_of_all_libraries_hold_the_same_cells(frame: object) -> None:
    found = dataset_of(frame).to_table()
    assert found.column_names == ["a", "color", "when"]
    assert found.to_pydict() == TABLE.to_pydict()


def test_a_frame_that_only_has_the_interchange_protocol_is_read() -> None:
    assert dataset_of(OnlyInterchange()).to_table()["color"].to_pylist() == ["red", None, "blue"]


def test_a_table_of_many_chunks_is_one_part() -> None:
    chunked = pa.concat_tables([TABLE, TABLE])
    assert len(list(dataset_of(chunked).get_fragments())) == 1
    assert dataset_of(chunked).count_rows() == 6


def test_columns_are_put_beside_a_frame() -> None:
    assert dataset_of(FRAME, {"y": [1.0, 2.0, 3.0]}).to_table()["y"].to_pylist() == [1.0, 2.0, 3.0]


def test_columns_beside_a_frame_have_its_length() -> None:
    with pytest.raises(
        InvalidInputError, match=r"inconsistent numbers of samples: the table has 3 rows, and 'y' has 2"
    ):
        dataset_of(FRAME, {"y": [1.0, 2.0]})


def test_a_column_that_mixes_types_is_refused_by_its_first_odd_rows() -> None:
    mixed = pd.DataFrame({"a": pd.Series([1.0, None, "two", 3.0, "four"], dtype=object)})
    with pytest.raises(
        InvalidTypeError, match=r"Column 'a' mixes types: .*float, but row 3 holds 'two', row 5 holds 'four'"
    ):
        dataset_of(mixed)


def test_names_that_stand_twice_are_refused() -> None:
    twice = pd.DataFrame([[1.0, 2.0, 3.0]], columns=["a", "b", "a"])
    with pytest.raises(InvalidInputError, match=r"must be unique, and \['a'\] are not"):
        dataset_of(twice)


def test_names_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidTypeError, match=r"must be text, got \[0, 1\].*astype\(str\)"):
        column_names(pd.DataFrame([["x", 2.0]]))


def test_ordered_categories_stay_ordered() -> None:
    sizes = pd.Categorical(["low", "high"], categories=["low", "high"], ordered=True)
    assert dataset_of(pd.DataFrame({"size": sizes})).schema.field("size").type.ordered
