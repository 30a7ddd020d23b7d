from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from cvgp.data.tables.whole import read_table, write_table
from cvgp.data.tables.writer import table_writer
from tests.data.tables.tables import frame

ENDINGS = ["parquet", "csv", "csv.gz", "tsv", "feather"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_parts_make_the_table_that_they_are_parts_of(tmp_path: Path, ending: str) -> None:
    whole = frame(10).assign(text=[f"=sum({i})" for i in range(10)])
    with table_writer(tmp_path / f"parts.{ending}") as write:
        for start in (0, 4, 8):
            write(pa.Table.from_pandas(whole[start : start + 4], preserve_index=False))
    write_table(whole, tmp_path / f"whole.{ending}")
    parts, at_once = read_table(tmp_path / f"parts.{ending}"), read_table(tmp_path / f"whole.{ending}")
    pd.testing.assert_frame_equal(parts, at_once)


@pytest.mark.parametrize("ending", ENDINGS)
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
