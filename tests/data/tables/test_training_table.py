from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cvgp.data.scaling import learn_scaling
from cvgp.data.tables import training_table as table_module
from cvgp.data.tables.reservoir import Reservoir
from cvgp.data.tables.training_table import TrainingTable
from cvgp.errors import InvalidTypeError
from tests.data.tables.tables import frame, learn, write_parts


def mixed() -> pd.DataFrame:
    return frame(300).assign(color=["red", "blue", "green"] * 100)


def features() -> np.ndarray:
    indicators = [mixed()["color"] == color for color in ("blue", "green", "red")]
    return np.column_stack([mixed()[["a", "b"]], *indicators]).astype(float)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_parts(tmp_path, mixed(), cuts=(100, 180), group=50)
    return tmp_path


def test_rows_are_those_of_the_table_in_memory(folder: Path) -> None:
    table = TrainingTable(folder, "y")
    assert table.schema == learn(mixed(), "y")
    np.testing.assert_array_equal(table.load().x, features())
    np.testing.assert_array_equal(table.load().y[:, 0], mixed()["y"])
    np.testing.assert_array_equal(table.sample().x, features())


def test_rows_that_are_not_all_in_the_sample_are_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reservoir.__init__, "__defaults__", (100,))
    table = TrainingTable(folder, "y")
    assert len(table.sample().x) == 100
    np.testing.assert_array_equal(table.load().x, features())


def test_scaling_is_that_of_the_table_in_memory(folder: Path) -> None:
    whole_table = learn_scaling(features(), mixed()[["y"]].to_numpy())
    for mine, whole in zip(TrainingTable(folder, "y").scaling[:5], whole_table[:5], strict=True):
        np.testing.assert_allclose(mine, whole)


def test_a_source_has_the_scaling_that_it_is_given(folder: Path) -> None:
    table = TrainingTable(folder, "y")
    chunk = next(table.source(table.scaling).chunks(300))
    np.testing.assert_allclose(chunk.x.mean(0), np.zeros(5), atol=1e-12)
    np.testing.assert_allclose(chunk.x.std(0, correction=0), np.ones(5))


def test_a_schema_knows_several_targets(folder: Path) -> None:
    table = TrainingTable(folder, ["y", "a"])
    assert table.schema.targets == ("y", "a")
    assert not table.single_output
    assert table.load().y.shape == (300, 2)


def test_size_decides_whether_a_table_is_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = TrainingTable(folder, "y")
    assert table.num_bytes == 8 * 300 * 6
    for limit, is_loaded in ((table.num_bytes, True), (table.num_bytes - 1, False)):
        monkeypatch.setattr(table_module, "IN_MEMORY_BYTES", limit)
        assert table.fits_in_memory is is_loaded
        assert ("loaded" in table.describe()) is is_loaded


def test_the_description_counts_files_rows_columns_and_features(folder: Path) -> None:
    assert TrainingTable(folder, "y").describe().startswith("3 files, 300 rows, 3 columns as 5 features")


@pytest.mark.parametrize("options", [{"target": 3}, {"target": ["y", 3]}, {"target": "y", "sample_weight": [1.0]}])
def test_columns_are_given_by_name(folder: Path, options: dict[str, object]) -> None:
    with pytest.raises(InvalidTypeError, match="names of its columns"):
        TrainingTable(folder, **options)  # type: ignore[arg-type]
