from pathlib import Path

import numpy as np
import pytest

from cvgp.data.columns import Column
from cvgp.data.tables.blocks import BLOCK_ROWS, Encoder, KnownPart, read_blocks
from cvgp.data.tables.location import open_dataset
from cvgp.data.tables.reader import list_parts
from tests.data.tables.tables import frame, write

KINDS = dict.fromkeys(("a", "b", "y"), "numeric")
ENCODER = Encoder((Column("b", "numeric"), Column("a", "numeric")), ("y",), None, "a", KINDS)
NUM_ROWS = 2 * BLOCK_ROWS + 100


def known(tmp_path: Path, excluded: list[int], ending: str = "parquet") -> KnownPart:
    path = write(tmp_path / f"table.{ending}", frame(NUM_ROWS), group=10**6)
    return KnownPart(list_parts(open_dataset(path))[0], NUM_ROWS, np.array(excluded, dtype=np.int64), None)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_blocks_are_regular_however_the_file_is_cut(tmp_path: Path, ending: str) -> None:
    blocks = list(read_blocks(known(tmp_path, [], ending), ENCODER))
    assert [len(block.x) for block in blocks] == [BLOCK_ROWS, BLOCK_ROWS, 100]
    assert np.concatenate([block.x[:, 1] for block in blocks]).tolist() == frame(NUM_ROWS)["a"].tolist()


def test_blocks_hold_features_targets_and_noise_of_the_same_rows(tmp_path: Path) -> None:
    for block in read_blocks(known(tmp_path, []), ENCODER):
        a = block.x[:, 1]
        assert (block.x[:, 0] == -2.0 * a).all()
        assert (block.y[:, 0] == a / 2.0).all()
        assert block.noise_variance is not None
        assert (block.noise_variance == a).all()


@pytest.mark.parametrize("first", [1, 2])
def test_reading_from_a_block_on_skips_those_before(tmp_path: Path, first: int) -> None:
    blocks = list(read_blocks(known(tmp_path, [BLOCK_ROWS + 5]), ENCODER, first))
    whole = list(read_blocks(known(tmp_path, [BLOCK_ROWS + 5]), ENCODER))
    assert all((mine.x == all_.x).all() for mine, all_ in zip(blocks, whole[first:], strict=True))


def test_excluded_rows_are_left_out(tmp_path: Path) -> None:
    part = known(tmp_path, [0, BLOCK_ROWS - 1, BLOCK_ROWS, NUM_ROWS - 1])
    blocks = list(read_blocks(part, ENCODER))
    rows = np.concatenate([block.x[:, 1] for block in blocks])
    assert sorted(set(range(NUM_ROWS)) - set(rows.astype(int))) == part.excluded.tolist()
    assert [len(block.x) for block in blocks] == part.block_sizes().tolist()


def test_only_needed_columns_are_named_once() -> None:
    assert ENCODER.names == ["b", "a", "y"]
