from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cvgp.data.scaling import learn_scaling
from cvgp.data.schema import Schema
from cvgp.data.tables import training_table as table_module
from cvgp.data.tables.training_table import TrainingTable, is_small_file
from cvgp.errors import InvalidTypeError
from tests.data.tables.tables import frame, write, write_parts


def mixed() -> pd.DataFrame:
    return frame(300).assign(color=["red", "blue", "green"] * 100)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_parts(tmp_path, mixed(), cuts=(100, 180), group=50)
    return tmp_path


def test_rows_are_those_of_the_table_in_memory(folder: Path) -> None:
    table, schema = TrainingTable(folder, "y"), Schema.learn(mixed(), "y")
    assert table.schema == schema
    x, y = schema.encode_both(mixed())
    np.testing.assert_array_equal(table.load().x, x)
    np.testing.assert_array_equal(table.load().y[:, 0], y)
    np.testing.assert_array_equal(table.sample().x, x)


def test_scaling_is_that_of_the_table_in_memory(folder: Path) -> None:
    x, y = Schema.learn(mixed(), "y").encode_both(mixed())
    for mine, whole in zip(TrainingTable(folder, "y").scaling, learn_scaling(x, y[:, None]), strict=True):
        np.testing.assert_allclose(mine, whole)


def test_a_source_has_the_scaling_that_it_is_given(folder: Path) -> None:
    table = TrainingTable(folder, "y")
    chunk = next(table.source(table.scaling).chunks(300))
    np.testing.assert_allclose(chunk.x.mean(0), np.zeros(5), atol=1e-12)
    np.testing.assert_allclose(chunk.x.std(0, correction=0), np.ones(5))


def test_several_targets_have_no_schema(folder: Path) -> None:
    table = TrainingTable(folder, ["y", "a"])
    assert table.schema is None
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


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_one_file_is_small_up_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    path = write(tmp_path / f"table.{ending}", frame(1000))
    assert is_small_file(path)
    monkeypatch.setattr(table_module, "IN_MEMORY_BYTES", 1000)
    assert not is_small_file(path)


@pytest.mark.parametrize("name", ["", "*.parquet", "part-?.parquet"])
def test_folders_and_globs_are_not_one_small_file(folder: Path, name: str) -> None:
    assert not is_small_file(folder / name)


def test_an_address_is_not_one_small_file(folder: Path) -> None:
    assert not is_small_file((folder / "part-0.parquet").as_uri())


@pytest.mark.parametrize("name", ["absent.csv", "garbage.parquet"])
def test_a_file_that_cannot_be_read_is_left_to_its_reader(tmp_path: Path, name: str) -> None:
    (tmp_path / "garbage.parquet").write_bytes(b"no parquet")
    assert is_small_file(tmp_path / name)


def test_a_file_with_the_name_of_a_glob_is_one_file(tmp_path: Path) -> None:
    assert is_small_file(write(tmp_path / "table[1].csv", frame(3)))
