from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cvgp.tables.files import table_writer, write_table
from tests.tables.helpers import frame, read_frame

PART_ENDINGS = ["parquet", "csv", "csv.gz", "tsv", "feather"]
BINARY_ENDINGS = [".parquet", ".feather", ".arrow"]
ENDINGS = [".csv", ".tsv", ".csv.gz", ".tsv.gz", *BINARY_ENDINGS]

DICTIONARY = pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))

FRAME = pd.DataFrame(
    {
        "size": [1, -2, 3],
        "weight": [0.1, np.nan, 1e-300],
        "color": ["red", "light blue", 'a "quoted", cell'],
        "sold": [True, False, True],
    }
)


def store(table: pd.DataFrame, path: Path) -> None:
    write_table(pa.Table.from_pandas(table, preserve_index=False), path)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_numbers_survive_text_with_all_digits(tmp_path: Path, values: list[float]) -> None:
    store(pd.DataFrame({"a": values}), tmp_path / "a.csv")
    np.testing.assert_array_equal(read_frame(tmp_path / "a.csv")["a"].to_numpy(dtype=float), values)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.sampled_from('ab,;"\n\r\t ')).map(lambda text: f"x{text}x"), min_size=1))
def test_text_survives_quotes_and_line_breaks(tmp_path: Path, values: list[str]) -> None:
    store(pd.DataFrame({"a": values, "b": 1}), tmp_path / "a.csv")
    assert read_frame(tmp_path / "a.csv")["a"].tolist() == values


@pytest.mark.parametrize("ending", ENDINGS)
def test_equal_tables_give_equal_files(tmp_path: Path, ending: str) -> None:
    store(FRAME, tmp_path / f"a{ending}")
    store(FRAME.copy(), tmp_path / f"b{ending}")
    assert (tmp_path / f"a{ending}").read_bytes() == (tmp_path / f"b{ending}").read_bytes()


# In parts.


@pytest.mark.parametrize("ending", PART_ENDINGS)
def test_parts_make_the_table_that_they_are_parts_of(tmp_path: Path, ending: str) -> None:
    whole = frame(10).assign(text=[f"=sum({i})" for i in range(10)])
    with table_writer(tmp_path / f"parts.{ending}") as write:
        for start in (0, 4, 8):
            write(pa.Table.from_pandas(whole[start : start + 4], preserve_index=False))
    store(whole, tmp_path / f"whole.{ending}")
    parts, at_once = read_frame(tmp_path / f"parts.{ending}"), read_frame(tmp_path / f"whole.{ending}")
    pd.testing.assert_frame_equal(parts, at_once)


@pytest.mark.parametrize("ending", PART_ENDINGS)
def test_a_failure_leaves_the_old_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"table.{ending}"
    path.write_text("old")

    def fail() -> None:
        with table_writer(path) as write:
            write(pa.Table.from_pandas(frame(3)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


# Writing safely.


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
@pytest.mark.parametrize("dtype", ["str", "category", DICTIONARY])
def test_text_that_a_spreadsheet_would_run_gets_an_apostrophe(tmp_path: Path, start: str, dtype: object) -> None:
    store(pd.DataFrame({"a": pd.Series([f"{start}1+1", "safe"], dtype=dtype)}), tmp_path / "a.csv")
    assert read_frame(tmp_path / "a.csv")["a"].tolist() == [f"'{start}1+1", "safe"]


@pytest.mark.parametrize("dtype", ["float64", "Float64", "double[pyarrow]", object])
def test_negative_number_gets_no_apostrophe(tmp_path: Path, dtype: object) -> None:
    store(pd.DataFrame({"a": pd.Series([-1.5], dtype=dtype)}), tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "a\n-1.5\n"
