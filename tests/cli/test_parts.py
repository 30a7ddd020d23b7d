"""Tables of several files: fitted and predicted part by part."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import cvgp
from cvgp.data.tables import training_table as table_module
from tests.cli.conftest import Run, flat, make_table
from tests.data.tables.tables import damage, read_table, write, write_parts

QUICK = ("--coreset", 8, "--max-iter", 10, "--quiet")
ROWS = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The table of the shared model, in three files."""
    data = tmp_path / "data"
    data.mkdir()
    write_parts(data, make_table(ROWS), cuts=(15, 40), group=10)
    return data


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "IN_MEMORY_BYTES", 0)


def spoil(folder: Path, file: str, row: int, column: str, value: float) -> None:
    frame = read_table(folder / file)
    frame.loc[row, column] = value
    write(folder / file, frame)


def test_a_small_table_in_several_files_is_the_same_model_as_in_one(
    run: Run, model: Path, folder: Path, tmp_path: Path
) -> None:
    flags = ("--target", "price", "--out", tmp_path / "m", "--coreset", 10, "--max-iter", 20)
    result = run("fit", f"{folder}/*.parquet", *flags)
    assert "3 files, 60 rows, 3 columns as 4 features (loaded" in flat(result.stderr)
    x = cvgp.load(model).coreset_.X
    np.testing.assert_allclose(cvgp.load(tmp_path / "m").coreset_.X, x, rtol=1e-6)


def test_one_small_file_is_said_to_be_loaded(run: Run, table: Path, tmp_path: Path) -> None:
    result = run("fit", table, "--target", "price", "--out", tmp_path / "m", "--coreset", 8, "--max-iter", 5)
    assert "1 file, 60 rows, 3 columns as 4 features (loaded, 0 MB)" in flat(result.stderr)


@pytest.mark.usefixtures("nothing_is_small")
@pytest.mark.parametrize("place", ["data", "data/*.parquet", "data/part-0.parquet"])
def test_a_large_table_is_read_in_parts(run: Run, folder: Path, tmp_path: Path, place: str) -> None:
    flags = ("--target", "price", "--out", tmp_path / "m", "--coreset", 8, "--max-iter", 5, "--solver", "adam")
    result = run("fit", tmp_path / place, *flags)
    assert result.exit_code == 0
    assert "is more than 0 MB" in flat(result.stderr)
    assert cvgp.load(tmp_path / "m").baselines_ is not None


@pytest.mark.parametrize("ending", ["parquet", "csv", "tsv.gz", "feather"])
def test_a_folder_is_predicted_into_one_file_in_order(
    run: Run, model: Path, folder: Path, tmp_path: Path, ending: str
) -> None:
    whole = write(tmp_path / "whole.parquet", make_table(ROWS))
    run("predict", model, whole, "--out", tmp_path / "expected.parquet")
    result = run("predict", model, folder, "--out", tmp_path / f"out.{ending}", "--json")
    assert json.loads(result.stdout)["predicted"] == ROWS
    expected = read_table(tmp_path / "expected.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / f"out.{ending}"), expected, check_dtype=False)


def test_text_files_are_predicted_in_parts(run: Run, model: Path, tmp_path: Path) -> None:
    for number in range(2):
        write(tmp_path / f"new-{number}.csv", make_table(5, seed=number))
    run("predict", model, tmp_path / "new-*.csv", "--out", tmp_path / "out.csv")
    found = read_table(tmp_path / "out.csv")
    np.testing.assert_allclose(found["size"], np.append(make_table(5)["size"], make_table(5, seed=1)["size"]))


def test_files_with_numbers_of_other_types_are_predicted_together(run: Run, model: Path, tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", make_table(5))
    write(tmp_path / "2.parquet", make_table(5).astype({"size": np.float32}))
    assert run("predict", model, tmp_path / "[12].parquet", "--out", tmp_path / "out.parquet").exit_code == 0


def test_a_row_that_cannot_be_predicted_is_named_by_file_and_row(
    run: Run, model: Path, folder: Path, tmp_path: Path
) -> None:
    spoil(folder, "part-1.parquet", 12, "weight", np.inf)
    result = run("predict", model, folder, "--out", tmp_path / "out.csv")
    assert result.exit_code == 1
    assert "part-1.parquet, data row 13: column 'weight'" in flat(result.stderr)
    assert not (tmp_path / "out.csv").exists()


def test_gaps_that_the_training_table_did_not_have_are_counted_in_one_warning(
    run: Run, model: Path, folder: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    for row in (3, 12):
        spoil(folder, "part-1.parquet", row, "weight", np.nan)
    result = run("predict", model, folder, "--out", tmp_path / "out.csv", "--json")
    assert json.loads(result.stdout)["predicted"] == ROWS
    assert "complete in the training table: 'weight' 2" in flat(result.stderr)
    sd = read_table(tmp_path / "out.csv")["price_sd"]
    assert sd[15 + 12] > 1.5 * sd.median()


def test_a_row_that_cannot_be_predicted_stays_empty_on_request(
    run: Run, model: Path, folder: Path, tmp_path: Path
) -> None:
    spoil(folder, "part-1.parquet", 12, "weight", np.inf)
    result = run("predict", model, folder, "--out", tmp_path / "out.csv", "--on-bad-rows", "skip", "--json")
    assert json.loads(result.stdout)["predicted"] == ROWS - 1
    missing = read_table(tmp_path / "out.csv")["price_mean"].isna()
    assert list(missing[missing].index) == [15 + 12]


def test_nothing_to_predict_is_a_failure(run: Run, model: Path, tmp_path: Path) -> None:
    write(tmp_path / "bad.csv", make_table(3).assign(weight=np.inf))
    result = run("predict", model, tmp_path / "bad.csv", "--out", tmp_path / "out.csv", "--on-bad-rows", "skip")
    assert (result.exit_code, "not a single row" in result.stderr) == (1, True)


def test_a_failure_in_the_middle_keeps_the_old_predictions(run: Run, model: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("old")
    damage(folder / "part-2.parquet", position=10, length=300)
    assert run("predict", model, folder, "--out", out).exit_code == 1
    assert out.read_text() == "old"


def test_unknown_categories_of_all_files_are_counted_in_one_warning(
    run: Run, model: Path, folder: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    for number in range(2):
        write(folder / f"part-{number}.parquet", make_table(4).assign(colour="green"))
    result = run("predict", model, folder, "--out", tmp_path / "out.csv")
    assert result.stderr.count("'colour' 8") == 1


@pytest.mark.parametrize("place", ["data", "data/part-1.parquet"])
def test_a_bad_row_is_named_by_file_and_row_when_fitting(run: Run, folder: Path, tmp_path: Path, place: str) -> None:
    spoil(folder, "part-1.parquet", 12, "weight", np.inf)
    result = run("fit", tmp_path / place, "--target", "price", "--out", tmp_path / "m", *QUICK)
    assert result.exit_code == 1
    assert "part-1.parquet" in flat(result.stderr)
    assert "data row 13" in flat(result.stderr)


@pytest.mark.parametrize("place", ["data", "data/part-1.parquet"])
def test_bad_rows_are_skipped_and_counted_when_fitting(run: Run, folder: Path, tmp_path: Path, place: str) -> None:
    spoil(folder, "part-1.parquet", 12, "weight", np.inf)
    spoil(folder, "part-1.parquet", 20, "size", np.inf)
    flags = ("--target", "price", "--out", tmp_path / "m", "--on-bad-rows", "skip", "--json", *QUICK)
    result = run("fit", tmp_path / place, *flags)
    assert json.loads(result.stdout)["rows_skipped"] == 2
    assert "2 bad rows were left out, the first of them:" in flat(result.stderr)
    assert "data row 13" in flat(result.stderr)


def test_a_row_without_target_is_bad_whatever_the_rule(run: Run, folder: Path, tmp_path: Path) -> None:
    spoil(folder, "part-0.parquet", 3, "price", np.nan)
    spoil(folder, "part-0.parquet", 5, "size", np.nan)
    flags = ("--target", "price", "--out", tmp_path / "m", "--on-bad-rows", "skip", "--impute", "mean", "--json")
    result = run("fit", folder / "part-0.parquet", *flags, *QUICK)
    assert json.loads(result.stdout)["rows_skipped"] == 1


@pytest.mark.parametrize("place", ["data", "data/part-1.parquet"])
def test_a_table_of_bad_rows_is_a_failure(run: Run, folder: Path, tmp_path: Path, place: str) -> None:
    for file in folder.iterdir():
        write(file, make_table(4).assign(weight=np.inf))
    flags = ("--target", "price", "--out", tmp_path / "m", "--on-bad-rows", "skip", *QUICK)
    result = run("fit", tmp_path / place, *flags)
    assert (result.exit_code, "No row of the table is left" in flat(result.stderr)) == (1, True)


def test_a_target_that_no_file_has_is_wrong_use(run: Run, folder: Path, tmp_path: Path) -> None:
    result = run("fit", folder, "--target", "prices", "--out", tmp_path / "m")
    assert (result.exit_code, "did you mean 'price'?" in flat(result.stderr)) == (2, True)


def test_a_column_that_changes_its_type_in_one_file_is_a_failure(run: Run, folder: Path, tmp_path: Path) -> None:
    write(folder / "part-2.parquet", make_table(5).astype({"weight": str}))
    result = run("fit", folder, "--target", "price", "--out", tmp_path / "m", *QUICK)
    assert result.exit_code == 1
    assert "'weight' changes its type" in flat(result.stderr)


@pytest.mark.slow
def test_a_batch_of_infinity_in_a_million_rows_is_named_or_counted(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(10**6, 21)), columns=[*(f"x{i}" for i in range(20)), "y"])
    frame.loc[612_345:612_856, "x3"] = np.inf
    (tmp_path / "data").mkdir()
    write_parts(tmp_path / "data", frame, cuts=(400_000, 600_000), group=100_000)
    flags = ("--target", "y", "--out", tmp_path / "m", "--solver", "adam", *QUICK)
    result = run("fit", tmp_path / "data", *flags)
    assert result.exit_code == 1
    assert "part-2.parquet, data row 12346: column 'x3' is infinite or not a number" in flat(result.stderr)
    result = run("fit", tmp_path / "data", *flags, "--on-bad-rows", "skip", "--json")
    assert json.loads(result.stdout)["rows_skipped"] == 512
    assert json.loads(result.stdout)["rows"] == 10**6 - 512
