from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvgp.data.tables.forged_sizes import check_row_groups
from cvgp.data.tables.parquet_pages import _page, pages_of
from cvgp.errors import InvalidInputError


def table(rows: int) -> pa.Table:
    rng = np.random.default_rng(0)
    words = np.array(["a", "bb", "x" * 3000])[rng.integers(0, 3, rows)]
    gaps = pa.array(rng.standard_normal(rows), mask=rng.random(rows) < 0.3)
    return pa.table({"word": words, "number": rng.standard_normal(rows), "gaps": gaps, "flag": rng.random(rows) < 0.5})


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
@pytest.mark.parametrize("use_dictionary", [False, True])
def test_pages_fill_their_column(tmp_path: Path, version: str, compression: str, use_dictionary: bool) -> None:
    """Headers and pages add up to what the header of the file declares of each column, packed and unpacked."""
    path = tmp_path / "t.parquet"
    pq.write_table(
        table(5000),
        path,
        row_group_size=2000,
        data_page_size=4096,
        write_batch_size=100,
        data_page_version=version,
        compression=compression,
        use_dictionary=use_dictionary,
        write_page_checksum=version == "1.0",
    )
    metadata = pq.ParquetFile(path).metadata
    many = 0
    with pa.OSFile(str(path)) as stream:
        for index in range(metadata.num_row_groups):
            for position in range(metadata.num_columns):
                column = metadata.row_group(index).column(position)
                pages = list(pages_of(stream, column))
                many = max(many, len(pages))
                assert sum(page.header + page.packed for page in pages) == column.total_compressed_size
                assert sum(page.header + page.unpacked for page in pages) == column.total_uncompressed_size
    assert many > 1


@given(st.binary(max_size=200))
def test_any_bytes_are_a_page_or_an_end(content: bytes) -> None:
    try:
        page = _page(content)
    except IndexError:
        return
    assert 0 < page.header <= len(content)
    assert page.packed >= 0


@pytest.mark.parametrize(
    "content",
    [
        b"\x1c" * 100_000,  # structures within structures
        b"\x15" + b"\x80" * 100_000,  # a number without an end
        b"\x19\xf5\xff\xff\xff\xff\x0f",  # a list that is longer than the file
        b"\x1b\xff\xff\xff\xff\x0f\x55",  # a map as well
    ],
)
def test_headers_without_an_end_are_left_to_arrow(content: bytes) -> None:
    with pytest.raises((IndexError, RecursionError)):
        _page(content)


def test_very_many_pages_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(table(3000), path, data_page_size=64, write_batch_size=8, use_dictionary=False)
    (fragment,) = pa.dataset.dataset(path).get_fragments()
    check_row_groups(str(path), fragment, path.stat().st_size)
    monkeypatch.setattr("cvgp.data.tables.forged_sizes.MOST_PAGES", 100)
    with pytest.raises(InvalidInputError, match="more than 100 pages"):
        check_row_groups(str(path), fragment, path.stat().st_size)


def test_a_page_that_is_cut_short_is_left_to_arrow(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(table(300), path)
    (fragment,) = pa.dataset.dataset(path).get_fragments()
    fragment.ensure_complete_metadata()
    path.write_bytes(path.read_bytes()[:100])
    check_row_groups(str(path), fragment, 100)
