import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import cvgp
from cvgp.cli.model_files import free_names
from cvgp.data.tables.location import WRITTEN_ENDINGS
from tests.cli.conftest import Run, flat, make_table
from tests.data.tables.tables import read_table

COLUMNS = ["price_mean", "price_sd", "price_lower", "price_upper"]


def test_predictions_stand_beside_the_columns_of_the_table(run: Run, model: Path, table: Path, tmp_path: Path) -> None:
    run("predict", model, table, "--out", tmp_path / "out.csv")
    assert list(read_table(tmp_path / "out.csv").columns) == [*read_table(table).columns, *COLUMNS]


def test_predictions_are_those_of_the_model(run: Run, model: Path, table: Path, tmp_path: Path) -> None:
    run("predict", model, table, "--out", tmp_path / "out.parquet")
    found, frame, estimator = read_table(tmp_path / "out.parquet"), read_table(table), cvgp.load(model)
    x = frame[["size", "weight", "colour"]]
    lower, upper = estimator.predict_quantiles(x, [0.025, 0.975]).T
    mean, sd = estimator.predict(x, return_std=True)
    np.testing.assert_allclose(found[COLUMNS].to_numpy(), np.column_stack([mean, sd, lower, upper]), rtol=1e-9)


@pytest.mark.parametrize("ending", WRITTEN_ENDINGS)
def test_every_ending_is_a_format(run: Run, model: Path, table: Path, tmp_path: Path, ending: str) -> None:
    run("predict", model, table, "--out", tmp_path / f"out{ending}")
    assert len(read_table(tmp_path / f"out{ending}")) == 60


def test_an_unknown_ending_is_wrong_use(run: Run, model: Path, table: Path, tmp_path: Path) -> None:
    assert run("predict", model, table, "--out", tmp_path / "out.xlsx").exit_code == 2


def test_the_target_need_not_be_there(run: Run, model: Path, tmp_path: Path) -> None:
    make_table(5).drop(columns="price").to_csv(tmp_path / "new.csv", index=False)
    assert run("predict", model, tmp_path / "new.csv", "--out", tmp_path / "out.csv").exit_code == 0


def test_names_that_are_taken_get_a_number(run: Run, model: Path, table: Path, tmp_path: Path) -> None:
    run("predict", model, table, "--out", tmp_path / "once.csv")
    result = run("predict", model, tmp_path / "once.csv", "--out", tmp_path / "twice.csv", "--json")
    assert json.loads(result.stdout)["columns"] == [f"{name}_2" for name in COLUMNS]


def test_numbers_go_on_until_a_name_is_free() -> None:
    assert free_names(["a", "b"], ["b", "a_2"]) == ["a_3", "b_3"]


def test_rows_that_the_model_would_drop_keep_empty_predictions(run: Run, tmp_path: Path) -> None:
    frame = make_table(40)
    frame.loc[2, "size"] = None
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    out = tmp_path / "model"
    quick = ("--coreset", 8, "--max-iter", 10, "--quiet")
    run("fit", tmp_path / "gaps.csv", "--target", "price", "--out", out, "--impute", "drop", *quick)
    run("predict", out, tmp_path / "gaps.csv", "--out", tmp_path / "out.csv")
    missing = read_table(tmp_path / "out.csv")["price_mean"].isna()
    assert list(missing[missing].index) == [2]


def test_a_missing_column_is_a_failure_that_names_it(run: Run, model: Path, tmp_path: Path) -> None:
    make_table(5).drop(columns="weight").to_csv(tmp_path / "new.csv", index=False)
    result = run("predict", model, tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    assert (result.exit_code, "lacks the columns ['weight']" in result.stderr) == (1, True)


def test_a_model_that_knows_no_table_cannot_read_one(run: Run, table: Path, tmp_path: Path) -> None:
    frame = make_table(30)
    x, y = frame[["size"]].to_numpy(), frame["price"]
    cvgp.CVGPRegressor(5, max_iter=5, random_state=0).fit(x, y).save(tmp_path / "m")
    result = run("predict", tmp_path / "m", table, "--out", tmp_path / "out.csv")
    assert (result.exit_code, "columns have no names" in flat(result.stderr)) == (1, True)


def predicted(run: Run, model: Path, table: Path, out: Path, *options: object) -> pd.DataFrame:
    result = run("predict", model, table, "--out", out, *options)
    assert result.exit_code == 0, result.stderr
    return read_table(out)


def test_an_interval_has_the_level_that_was_asked_for(run: Run, model: Path, table: Path, tmp_path: Path) -> None:
    found = predicted(run, model, table, tmp_path / "out.parquet", "--level", ".5", "--quantiles", ".25", ".75")
    ends = found[["price_lower", "price_upper"]].to_numpy()
    np.testing.assert_array_equal(ends, found[["price_q0.25", "price_q0.75"]].to_numpy())


@pytest.mark.parametrize("spelling", [[".1", ".5", ".9"], [".1,.5,.9"]])
def test_quantiles_have_columns_of_their_own(
    run: Run, model: Path, table: Path, tmp_path: Path, spelling: list[str]
) -> None:
    found = predicted(run, model, table, tmp_path / "out.parquet", "--quantiles", *spelling)
    names = ["price_q0.1", "price_q0.5", "price_q0.9"]
    assert list(found.columns[-7:]) == [*COLUMNS, *names]
    estimator, frame = cvgp.load(model), read_table(table)
    x = frame[["size", "weight", "colour"]]
    np.testing.assert_allclose(found[names].to_numpy(), estimator.predict_quantiles(x, [0.1, 0.5, 0.9]), rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--level", "95"], "95 is not between 0 and 1"),
        (["--quantiles", ".1", "1"], "1 is not between 0 and 1"),
        (["--quantiles", "low"], "'low' are not numbers"),
        (["--quantiles", ".1", ".1"], "names one twice"),
    ],
)
def test_levels_that_cannot_be_are_wrong_use(
    run: Run, model: Path, table: Path, tmp_path: Path, options: list[str], complaint: str
) -> None:
    result = run("predict", model, table, "--out", tmp_path / "out.csv", *options)
    assert (result.exit_code, complaint in flat(result.stderr)) == (2, True)


def test_a_model_of_several_targets_is_for_python(run: Run, table: Path, tmp_path: Path) -> None:
    frame = make_table(30)
    model = cvgp.CVGPRegressor(5, max_iter=5, random_state=0).fit(frame[["size"]], frame[["price", "weight"]])
    model.save(tmp_path / "m")
    result = run("predict", tmp_path / "m", table, "--out", tmp_path / "out.csv")
    assert (result.exit_code, "predicts several columns" in flat(result.stderr)) == (1, True)
