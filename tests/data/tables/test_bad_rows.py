import numpy as np
import pandas as pd
import pytest

from cvgp.data.tables.bad_rows import bad_cells

FRAME = pd.DataFrame(
    {
        "size": [1.0, np.inf, 3.0, np.nan, 5.0],
        "count": pd.array([1, 2, None, 4, 5], dtype="Int64"),
        "color": ["red", "red", "red", None, "red"],
    }
)


@pytest.mark.parametrize(
    ("missing_is_bad", "rows"), [(True, [1, 2, 3]), (False, [1])], ids=["without a rule", "with a rule"]
)
def test_infinite_cells_and_those_that_no_rule_fills_are_bad(missing_is_bad: bool, rows: list[int]) -> None:
    bad, column = bad_cells(FRAME, list(FRAME), missing_is_bad=missing_is_bad)
    assert np.flatnonzero(bad).tolist() == rows
    assert column == "size"


def test_only_the_columns_that_are_named_count() -> None:
    bad, column = bad_cells(FRAME, ["color"], missing_is_bad=True)
    assert (np.flatnonzero(bad).tolist(), column) == ([3], "color")


def test_a_table_without_bad_cells_has_no_bad_row() -> None:
    bad, column = bad_cells(FRAME[:1], list(FRAME), missing_is_bad=True)
    assert (bad.any(), column) == (False, "")
