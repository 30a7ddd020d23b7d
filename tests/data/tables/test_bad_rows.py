from pathlib import Path

import numpy as np
import pytest

from cvgp.data.columns import Column
from cvgp.data.rows import Array, Rows
from cvgp.data.tables.bad_rows import BadRows
from cvgp.data.tables.blocks import Encoder
from cvgp.data.tables.location import open_dataset
from cvgp.data.tables.reader import Part, list_parts
from cvgp.errors import InvalidInputError
from tests.data.tables.tables import frame, write

ENCODER = Encoder((Column("a", "numeric"), Column("b", "numeric")), ("y",), "w", None, {})
X = np.array([[1.0, 1.0], [np.inf, 1.0], [np.nan, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]])
Y = np.array([[1.0], [1.0], [1.0], [np.nan], [1.0], [1.0]])
WEIGHT = np.array([1.0, 1.0, 1.0, 1.0, -1.0, 0.0])


@pytest.fixture
def part(tmp_path: Path) -> Part:
    return list_parts(open_dataset(write(tmp_path / "t.parquet", frame(100))))[0]


def rows() -> Rows[Array]:
    return Rows(X, Y, WEIGHT, None)


@pytest.mark.parametrize(
    ("impute", "kept", "skipped", "dropped"),
    [(None, [0, 2], 3, 0), ("mean", [0, 2], 3, 0), ("median", [0, 2], 3, 0), ("drop", [0], 2, 2)],
)
def test_rows_count_by_the_rule(part: Part, impute: str | None, kept: list[int], skipped: int, dropped: int) -> None:
    bad = BadRows(ENCODER, impute, "skip")
    assert np.flatnonzero(bad.find(rows(), part, 0)).tolist() == kept
    assert (bad.skipped, bad.dropped) == (skipped, dropped)


def test_the_first_bad_row_is_named_with_its_cause_and_the_advice(part: Part) -> None:
    bad = BadRows(ENCODER, None, "error", advice="Do something.")
    with pytest.raises(
        InvalidInputError,
        match=r"data row 12: column 'a' is infinite or not a number\. Do something\.$",
    ):
        bad.find(rows(), part, 10)


@pytest.mark.parametrize(
    ("row", "words"), [(1, "'a' is infinite or not a number"), (3, "'y' is missing"), (4, "'w' is negative")]
)
def test_the_cause_is_said(part: Part, row: int, words: str) -> None:
    with pytest.raises(InvalidInputError, match=f"data row 1: column {words}"):
        BadRows(ENCODER, None, "error").find(rows().take(slice(row, None)), part, 0)


def test_a_gap_is_bad_where_nothing_is_known_of_its_column(part: Part) -> None:
    bad = BadRows(ENCODER, None, "skip", gaps=[False, True])
    assert bad.find(rows().take([0, 2]), part, 0).tolist() == [True, False]


def test_good_rows_are_kept_without_a_word(part: Part) -> None:
    bad = BadRows(ENCODER, None, "error")
    assert bad.find(rows().take(slice(0, 1)), part, 0).all()
    assert bad.summary() == ""
