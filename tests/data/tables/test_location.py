from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pytest

from cvgp.data.tables.location import is_location
from tests.data.tables.tables import frame, write


def test_paths_lists_of_them_and_datasets_are_places(tmp_path: Path) -> None:
    path = write(tmp_path / "table.parquet", frame(4))
    assert all(map(is_location, (path, str(path), [path, str(path)], ds.dataset(path))))


@pytest.mark.parametrize("value", [3, [1.0, 2.0], [], np.ones((2, 2)), pd.DataFrame({"a": ["b"]}), ["a", 1.0]])
def test_tables_themselves_are_not(value: object) -> None:
    assert not is_location(value)
