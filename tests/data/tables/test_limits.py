import gzip
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cvgp.data.tables import limits
from cvgp.data.tables.limits import LimitedStream, check_fits, memory_left
from cvgp.data.tables.whole import read_table
from cvgp.errors import InvalidInputError


def test_some_memory_is_left() -> None:
    assert 10_000_000 < memory_left() < 2**50


def test_what_fits_is_let_through() -> None:
    check_fits("a.csv", 1000)


def test_what_does_not_fit_is_refused_with_its_size() -> None:
    with pytest.raises(InvalidInputError, match=r"a\.csv holds at least 1000000.0 GB when it is unpacked"):
        check_fits("a.csv", 10**15)


def test_a_stream_gives_what_is_in_it() -> None:
    assert io.BufferedReader(LimitedStream(io.BytesIO(b"abc" * 10_000), "a")).read() == b"abc" * 10_000


def test_a_stream_gives_up_beyond_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "memory_left", lambda: 10_000)
    with pytest.raises(InvalidInputError, match="when it is unpacked"):
        io.BufferedReader(LimitedStream(io.BytesIO(bytes(20_000)), "a")).read()


def test_a_packed_table_that_grows_beyond_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 1_000_000))
    monkeypatch.setattr(limits, "memory_left", lambda: 2_000_000)
    with pytest.raises(InvalidInputError, match="holds at least"):
        read_table(path)


def test_a_value_repeated_beyond_the_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    part = pa.table({"a": pa.array(np.zeros(1_000_000)), "b": pa.array(np.zeros(1_000_000))})
    pq.write_table(part, path, compression="zstd")
    assert path.stat().st_size < 10_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "memory_left", lambda: 1_000_000)
        with pytest.raises(InvalidInputError, match="holds at least"):
            read_table(path)


def test_a_packed_table_is_read_as_an_unpacked_one(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.5, 2.5], "é": ["x", "ü"]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    pd.testing.assert_frame_equal(read_table(tmp_path / "a.csv.gz"), read_table(tmp_path / "a.csv"))
