"""What `fit` can be told about a table in files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvgp
from cvgp import CVGPRegressor, TrainingOptions, read_table
from cvgp.errors import CVGPWarning
from cvgp.tables.columns import Schema

N = 60


@pytest.fixture
def messy(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = [
        f"{i};{rng.uniform(1, 9):.2f};{rng.choice(['Köln', 'Wien'])};{rng.uniform(1000, 9000):.1f}".replace(".", ",")
        for i in range(N)
    ]
    (tmp_path / "a.csv").write_bytes("\r\n".join(["id;a;stadt;y", *rows]).encode("cp1252"))
    return tmp_path / "a.csv"


def fitted(path: Path, **options: Any) -> CVGPRegressor:
    return CVGPRegressor(8, n_neighbors=0, random_state=0, training=TrainingOptions(max_iter=2)).fit(
        read_table(path, "y", **options)
    )


def test_what_is_found_and_what_is_said_give_the_same_model(messy: Path) -> None:
    said = fitted(messy, drop="id", sep=";", decimal=",", encoding="cp1252")
    found = fitted(messy, drop="id")
    assert found.elbo_ == said.elbo_
    assert list(found.feature_names_in_) == ["a", "stadt"]


def test_an_id_is_left_out_with_a_warning_and_kept_on_request(messy: Path) -> None:
    with pytest.warns(CVGPWarning, match="'id' \\(numbers the rows\\)"):
        assert "id" not in fitted(messy).feature_names_in_
    assert "id" in fitted(messy, always_keep="id").feature_names_in_


def test_how_the_table_was_read_is_stored(messy: Path, tmp_path: Path) -> None:
    fitted(messy, drop="id").save(tmp_path / "m.cvgp")
    reading = Schema.from_json(cvgp.load(tmp_path / "m.cvgp").schema_).reading
    assert (reading.sep, reading.encoding, set(reading.numbers)) == (";", "cp1252", {"a", "y"})


def test_growing_reads_the_columns_of_the_fit(messy: Path) -> None:
    model = fitted(messy, features=["a"])
    assert model.grow(12, messy, "y") == 4
