"""`cvgp predict`, and tables of several files."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import cvgp
from tests.cli.conftest import Run, flat, make_table
from tests.tables.helpers import damage, read_frame, write, write_parts

COLUMNS = ["price_mean", "price_sd", "price_lower", "price_upper"]
QUICK = ("--n-coreset", 8, "--max-iter", 10, "--quiet")
ROWS = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The table of the shared model, in three files."""
    data = tmp_path / "data"
    data.mkdir()
    write_parts(data, make_table(ROWS), cuts=(15, 40), group=10)
    return data


def spoil(folder: Path, file: str, row: int, column: str, value: float) -> None:
    frame = read_frame(folder / file)
    frame.loc[row, column] = value
    write(folder / file, frame)


def predicted(run: Run, model: Path, table: object, out: Path, *options: object) -> pd.DataFrame:
    result = run("predict", model, table, "--out", out, *options)
    assert result.exit_code == 0, result.stderr
    return read_frame(out)


def test_predictions_of_the_model_stand_beside_the_columns(run: Run, model: Path, table: Path, tmp_path: Path) -> None:
    options = ("--level", ".5", "--quantiles", ".1", ".25", ".75")
    found, frame = predicted(run, model, table, tmp_path / "out.parquet", *options), read_frame(table)
    quantiles = [f"price_q{p}" for p in (0.1, 0.25, 0.75)]
    assert list(found.columns) == [*frame.columns, *COLUMNS, *quantiles]
    estimator, x = cvgp.load(model), frame[["size", "weight", "colour"]]
    mean, sd = estimator.predict(x, return_std=True)
    asked = estimator.predict_quantiles(x, [0.25, 0.75, 0.1, 0.25, 0.75])
    expected = np.column_stack([mean, sd, asked])
    np.testing.assert_allclose(found[[*COLUMNS, *quantiles]].to_numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("ending", [".tsv.gz", ".jsonl", ".feather"])
def test_every_ending_is_a_format_and_a_folder_becomes_one_file_in_order(
    run: Run, model: Path, folder: Path, tmp_path: Path, ending: str
) -> None:
    whole = write(tmp_path / "whole.parquet", make_table(ROWS))
    expected = predicted(run, model, whole, tmp_path / "expected.parquet")
    found = predicted(run, model, folder, tmp_path / f"out{ending}")
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--level", "95"], "between 0 and 1"),
        (["--quantiles", ".1", "1"], "between 0 and 1"),
        (["--quantiles", "low"], "between 0 and 1"),
        (["--out", "out.xlsx"], "no ending that names a format"),
    ],
)
def test_what_cannot_be_asked_for_is_wrong_use(
    run: Run, model: Path, table: Path, tmp_path: Path, options: list[str], complaint: str
) -> None:
    result = run("predict", model, table, "--out", tmp_path / "out.csv", *options)
    assert (result.exit_code, complaint in flat(result.stderr)) == (2, True)


def test_names_that_are_taken_get_a_number(run: Run, model: Path, table: Path, tmp_path: Path) -> None:
    predicted(run, model, table, tmp_path / "once.csv")
    result = run("predict", model, tmp_path / "once.csv", "--out", tmp_path / "twice.csv", "--json")
    assert json.loads(result.stdout)["columns"] == [f"{name}_2" for name in COLUMNS]


def test_the_target_need_not_be_there_and_a_missing_feature_is_named(run: Run, model: Path, tmp_path: Path) -> None:
    write(tmp_path / "new.csv", make_table(5).drop(columns="price"))
    assert len(predicted(run, model, tmp_path / "new.csv", tmp_path / "out.csv")) == 5
    write(tmp_path / "new.csv", make_table(5).drop(columns="weight"))
    result = run("predict", model, tmp_path / "new.csv", "--out", tmp_path / "other.csv")
    assert (result.exit_code, "lacks the columns ['weight']" in result.stderr) == (1, True)


def test_a_model_that_cannot_read_tables_says_so(run: Run, table: Path, tmp_path: Path) -> None:
    frame = make_table(30)
    for x, y, words in (
        (frame[["size"]].to_numpy(), frame["price"], "columns have no names"),
        (frame[["size"]], frame[["price", "weight"]], "predicts several columns"),
    ):
        cvgp.CVGPRegressor(5, random_state=0).fit(x, y).save(tmp_path / "m")
        result = run("predict", tmp_path / "m", table, "--out", tmp_path / "out.csv")
        assert (result.exit_code, words in flat(result.stderr)) == (1, True)


def test_rows_that_the_model_would_drop_keep_empty_predictions(run: Run, tmp_path: Path) -> None:
    frame = make_table(40)
    frame.loc[2, "size"] = None
    write(tmp_path / "gaps.csv", frame)
    run("fit", tmp_path / "gaps.csv", "--target", "price", "--out", tmp_path / "m", "--impute", "drop", *QUICK)
    missing = predicted(run, tmp_path / "m", tmp_path / "gaps.csv", tmp_path / "out.csv")["price_mean"].isna()
    assert list(missing[missing].index) == [2]


def test_a_bad_row_is_named_by_file_and_row_or_stays_empty(run: Run, model: Path, folder: Path, tmp_path: Path) -> None:
    spoil(folder, "part-1.parquet", 12, "weight", np.inf)
    result = run("predict", model, folder, "--out", tmp_path / "out.csv")
    assert result.exit_code == 1
    assert "part-1.parquet, data row 13: column 'weight'" in flat(result.stderr)
    assert not (tmp_path / "out.csv").exists()
    missing = predicted(run, model, folder, tmp_path / "out.csv", "--on-bad-rows", "skip")["price_mean"].isna()
    assert list(missing[missing].index) == [15 + 12]


def test_a_failure_in_the_middle_keeps_the_old_predictions(run: Run, model: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("old")
    damage(folder / "part-2.parquet", position=10, length=300)
    assert run("predict", model, folder, "--out", out, "--overwrite").exit_code == 1
    assert out.read_text() == "old"


def test_gaps_and_unknown_categories_of_all_files_are_counted_in_one_warning_each(
    run: Run, model: Path, folder: Path, tmp_path: Path
) -> None:
    for number in range(2):
        write(folder / f"part-{number}.parquet", make_table(4).assign(colour="green"))
    spoil(folder, "part-2.parquet", 3, "weight", np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = run("predict", model, folder, "--out", tmp_path / "out.csv")
    lines = [line for line in result.stderr.splitlines() if line.startswith("Warning: ")]
    assert len(lines) == 2
    assert "'colour' 8" in result.stderr
    assert "complete in the training table: 'weight' 1" in flat(result.stderr)


@pytest.mark.parametrize("place", ["data", "data/part-1.parquet"])
def test_bad_rows_are_named_or_skipped_and_counted_when_fitting(
    run: Run, folder: Path, tmp_path: Path, place: str
) -> None:
    spoil(folder, "part-1.parquet", 12, "weight", np.inf)
    spoil(folder, "part-1.parquet", 20, "price", np.nan)
    words = ("fit", tmp_path / place, "--target", "price", "--out", tmp_path / "m", *QUICK)
    result = run(*words)
    assert (result.exit_code, "part-1.parquet, data row 13" in flat(result.stderr)) == (1, True)
    result = run(*words, "--on-bad-rows", "skip", "--json")
    assert json.loads(result.stdout)["rows_skipped"] == 2
    assert "2 bad rows were left out, the first of them:" in flat(result.stderr)
