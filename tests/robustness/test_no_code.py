"""cvgp runs no code that comes from a file."""

import pickle
import warnings
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from cvgp.errors import CVGPError
from tests.tables.helpers import read_frame


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.path), "w")


@pytest.mark.parametrize("ending", [".parquet", ".feather"])
@pytest.mark.parametrize("name", ["arrow.py_extension_type", "pandas.period", "pandas.interval", "arrow.opaque"])
def test_a_pickle_in_the_type_of_a_column_is_not_opened(tmp_path: Path, ending: str, name: str) -> None:
    payload = pickle.dumps(Bomb(tmp_path / "exploded"))
    field = pa.field("a", pa.int64(), metadata={"ARROW:extension:name": name, "ARROW:extension:metadata": payload})
    table = pa.table([pa.array([1, 2])], schema=pa.schema([field]))
    path = tmp_path / f"bomb{ending}"
    pq.write_table(table, path) if ending == ".parquet" else feather.write_feather(table, path)
    with warnings.catch_warnings(), suppress(CVGPError):
        warnings.simplefilter("ignore")
        read_frame(path)
    assert not (tmp_path / "exploded").exists()


def test_the_bomb_of_these_tests_would_explode(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(tmp_path / "exploded"))).close()
    assert (tmp_path / "exploded").exists()
