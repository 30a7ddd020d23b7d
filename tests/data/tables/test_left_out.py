import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cvgp.data.tables.training_table import TrainingTable
from cvgp.errors import CVGPError, CVGPWarning, InvalidInputError
from tests.data.tables.tables import write

N = 40
NOTHING = {
    "id": np.arange(N),
    "name": [f"person {i}" for i in range(N)],
    "country": ["AT"] * N,
    "zero": np.zeros(N),
    "off": [False] * N,
}


def table(folder: Path, ending: str = "csv", **columns: object) -> Path:
    rng = np.random.default_rng(0)
    return write(
        folder / f"a.{ending}", pd.DataFrame({"x": rng.standard_normal(N), **columns, "y": rng.standard_normal(N)})
    )


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_that_tell_nothing_are_left_out_with_one_line(tmp_path: Path, ending: str) -> None:
    with pytest.warns(CVGPWarning) as caught:
        found = TrainingTable(table(tmp_path, ending, **NOTHING), "y")
    assert found.feature_names == ["x"]
    (warning,) = caught
    assert all(repr(name) in str(warning.message) for name in NOTHING)
    assert found.schema is not None
    assert found.load().x.shape == (N, 1)


@pytest.mark.parametrize("option", ["keep", "features"])
def test_columns_that_are_asked_for_stay(tmp_path: Path, option: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        columns = {"id": NOTHING["id"], "country": NOTHING["country"]}
        found = TrainingTable(table(tmp_path, **columns), "y", **{option: ["id", "country"]})  # type: ignore[arg-type]
    assert found.feature_names == (["x"] if option == "keep" else []) + ["id", "country=AT"]


def test_what_is_dropped_is_not_spoken_of(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TrainingTable(table(tmp_path, **NOTHING), "y", drop=list(NOTHING)).feature_names == ["x"]


def test_a_constant_with_missing_values_stays(tmp_path: Path) -> None:
    column = np.where(np.arange(N) % 2, 1.0, np.nan)
    assert TrainingTable(table(tmp_path, a=column), "y", impute="mean").feature_names == ["x", "a"]


def test_years_that_count_up_stay(tmp_path: Path) -> None:
    assert TrainingTable(table(tmp_path, year=1980 + np.arange(N)), "y").feature_names == ["x", "year"]


def test_categories_stay(tmp_path: Path) -> None:
    names = [f"level {i % 30}" for i in range(N)]
    x, a = TrainingTable(table(tmp_path, a=names), "y").schema.columns
    assert (x.name, a.name, len(a.categories)) == ("x", "a", 30)


def test_row_labels_that_pandas_wrote_into_a_csv_are_left_out(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.random.default_rng(0).standard_normal(N), "y": np.arange(N) % 7})
    frame.to_csv(tmp_path / "a.csv")
    with pytest.warns(CVGPWarning, match="'' \\(numbers the rows\\)"):
        assert TrainingTable(tmp_path / "a.csv", "y").feature_names == ["x"]


def test_nothing_left_is_an_error_with_the_flag(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", pd.DataFrame({"id": np.arange(N), "one": 1.0, "y": np.arange(N) % 3}))
    with pytest.raises(InvalidInputError, match=r"No column is left to learn from.*--keep id,one"):
        TrainingTable(tmp_path / "a.csv", "y")


def test_text_that_names_rows_alone_is_an_error_with_the_flag(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", pd.DataFrame({"name": NOTHING["name"], "y": np.arange(N) % 3}))
    with pytest.raises(InvalidInputError, match=r"No column is left to learn from.*--keep name"):
        TrainingTable(tmp_path / "a.csv", "y")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_all_columns_that_cannot_be_used_are_in_one_error(tmp_path: Path, ending: str) -> None:
    columns = {
        "empty": pd.Series([None] * N, dtype=object),
        "day": pd.date_range("2020-01-01", periods=N),
        "words": [f"word {i % 60 // 1}" if i % 2 else "other" for i in range(N)],
        "spelled": pd.Series(["2020-01-01T10", "x"] * (N // 2)),
    }
    with pytest.raises(CVGPError) as caught:
        TrainingTable(table(tmp_path, ending, **columns), "y")
    text = str(caught.value)
    assert "2 columns cannot be used" in text
    assert text.endswith("--drop empty,day (in Python: drop=['empty', 'day']).")


def test_ids_of_a_table_in_parts_are_counted_over_all(tmp_path: Path) -> None:
    names = np.array([f"id {i}" for i in range(25_000)])
    write(
        tmp_path / "a.parquet",
        pd.DataFrame({"x": np.arange(25_000) % 11, "a": names, "y": 1.0 * (np.arange(25_000) % 7)}),
    )
    with pytest.warns(CVGPWarning, match="'a' \\(a different text in nearly every row\\)"):
        assert TrainingTable(tmp_path / "a.parquet", "y").feature_names == ["x"]
