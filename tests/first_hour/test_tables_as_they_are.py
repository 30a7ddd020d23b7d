"""Gaps, missing targets, other columns and another order: tables go in as they are."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

import cvgp
from cvgp import CVGPClassifier, CVGPRegressor
from cvgp.errors import CVGPWarning, InvalidInputError, InvalidTypeError
from tests.cli.conftest import Run, flat
from tests.first_hour.conftest import QUICK, QUICK_KINDS, houses

NAMES = ["a", "b", "c"]
OPTIONS = {"n_coreset": 10, "kernel": "matern32", "input_warp": "identity", "noise": "constant", "random_state": 0}


def gappy_rows(rows: int = 80) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 3))
    y = x[:, 0] + np.sin(x[:, 1]) + 0.1 * rng.normal(size=rows)
    x[rng.uniform(size=x.shape) < 0.15] = np.nan
    return x, y


def test_arrays_with_gaps_are_learned_from_as_frames_are(tmp_path: Path) -> None:
    x, y = gappy_rows()
    of_array = CVGPRegressor(**OPTIONS, n_neighbors=0).fit(x, y)
    of_frame = CVGPRegressor(**OPTIONS, n_neighbors=0).fit(pd.DataFrame(x, columns=NAMES), y)
    np.testing.assert_allclose(of_array.predict(x), of_frame.predict(pd.DataFrame(x, columns=NAMES)))
    assert (of_array.n_features_in_, hasattr(of_array, "feature_names_in_")) == (3, False)
    of_array.save(tmp_path / "m.cvgp")
    np.testing.assert_array_equal(cvgp.load(tmp_path / "m.cvgp").predict(x.tolist()), of_array.predict(x))


def test_a_gap_in_a_column_that_was_complete_is_integrated_out() -> None:
    x, y = gappy_rows()
    complete = np.nan_to_num(x)
    model = CVGPRegressor(**OPTIONS, n_neighbors=0).fit(complete, y)
    row = np.array([[np.nan, 0.3, 0.1]])
    with pytest.warns(CVGPWarning, match="'x0' 1"):
        mean, sd = model.predict(row, return_std=True)
    assert sd[0] > model.predict([[0.0, 0.3, 0.1]], return_std=True)[1][0]
    assert np.isfinite(mean).all()


def test_a_classifier_learns_from_gaps_and_leaves_out_rows_without_a_label() -> None:
    x, y = gappy_rows()
    kind = np.where(y > 0.0, "high", "low").astype(object)
    kind[[4, 9]] = None
    with pytest.warns(CVGPWarning, match="missing in 2 of 80"):
        model = CVGPClassifier(8, kernel="matern32", random_state=0).fit(x, kind)
    assert model.score(x[y > 0.5], kind[y > 0.5]) > 0.8


@pytest.mark.parametrize("kind", ["numbers", "gaps", "text"])
def test_other_columns_and_another_order_are_fine_and_missing_columns_are_named(kind: str) -> None:
    x, y = gappy_rows()
    frame = pd.DataFrame(x if kind == "gaps" else np.nan_to_num(x), columns=NAMES)
    if kind == "text":
        frame["c"] = np.where(frame["c"] > 0.0, "up", "down")
    model = CVGPRegressor(**OPTIONS, n_neighbors=0).fit(frame.assign(price=y), "price")
    expected = model.predict(frame)
    np.testing.assert_array_equal(model.predict(frame.assign(price="sold")), expected)
    np.testing.assert_array_equal(model.predict(frame[["c", "a", "b"]]), expected)
    with pytest.warns(CVGPWarning, match="'extra'"):
        np.testing.assert_array_equal(model.predict(frame.assign(extra=1.0)), expected)
    with pytest.raises(InvalidInputError, match="b"):
        model.predict(frame.drop(columns="b"))


@pytest.mark.filterwarnings("default::cvgp.CVGPWarning")
@pytest.mark.parametrize("command", ["fit", "evaluate", "report", "predict"])
def test_rows_without_a_target_stop_no_command(run: Run, folder: Path, tmp_path: Path, command: str) -> None:
    words = {
        "fit": ("fit", folder / "train.csv", "--target", "price", "--out", tmp_path / "m", *QUICK),
        "evaluate": ("evaluate", folder / "model.cvgp", folder / "test.csv"),
        "report": ("report", folder / "model.cvgp", folder / "test.csv", "--out", tmp_path / "r.html"),
        "predict": ("predict", folder / "model.cvgp", folder / "test.csv", "--out", tmp_path / "p.csv"),
    }
    result = run(*words[command])
    assert result.exit_code == 0, result.stderr
    if command == "predict":  # a row without a target is what predictions are for
        assert len(pd.read_csv(tmp_path / "p.csv")["price_mean"].dropna()) == 60
    else:
        assert "the target is missing in 2 of" in flat(result.stderr)


def test_a_report_leaves_out_rows_without_a_target_of_arrays() -> None:
    x, y = gappy_rows()
    model = CVGPRegressor(**OPTIONS, n_neighbors=0).fit(x[:50], y[:50])
    has_y = np.arange(30) != 4
    with pytest.warns(CVGPWarning, match="missing in 1 of 30"):
        report = model.report(x[50:], np.where(has_y, y[50:], np.nan))
    assert report.scores["cvgp"] == model.report(x[50:][has_y], y[50:][has_y]).scores["cvgp"]


@pytest.mark.filterwarnings("default::cvgp.CVGPWarning")
def test_a_target_that_is_not_a_number_is_an_error_with_its_flag(run: Run, folder: Path, tmp_path: Path) -> None:
    table = houses(60, seed=1).astype({"price": object})
    table.loc[7, "price"] = "sold"
    table.to_csv(tmp_path / "a.csv", index=False)
    words = ("evaluate", folder / "model.cvgp", tmp_path / "a.csv")
    result = run(*words)
    assert (result.exit_code, "data row 8" in result.stderr, "--on-bad-rows skip" in flat(result.stderr)) == (
        1,
        True,
        True,
    )
    assert run(*words, "--on-bad-rows", "skip").exit_code == 0


@pytest.mark.filterwarnings("default::cvgp.CVGPWarning")
def test_an_empty_column_is_dropped_with_a_line(run: Run, folder: Path, tmp_path: Path) -> None:
    result = run("fit", folder / "train.csv", "--target", "price", "--out", tmp_path / "m", *QUICK)
    assert "'remark' (no values)" in flat(result.stderr)


# The target


def test_a_text_target_is_classified_by_the_command_and_python_says_so(run: Run, tmp_path: Path) -> None:
    data = load_wine(as_frame=True)
    table = data.frame.iloc[::5].assign(kind=lambda t: data.target_names[t["target"]]).drop(columns="target")
    table.to_csv(tmp_path / "w.csv", index=False)
    words = ("fit", tmp_path / "w.csv", "--target", "kind", "--out", tmp_path / "m", *QUICK_KINDS)
    assert "3 classes" in run(*words).stderr
    for given in ((table.drop(columns="kind"), table["kind"]), (table, "kind"), (tmp_path / "w.csv", "kind")):
        with pytest.raises(InvalidTypeError, match="CVGPClassifier"):
            CVGPRegressor().fit(*given)


@pytest.mark.filterwarnings("default::cvgp.CVGPWarning")
def test_the_flag_of_a_hint_suits(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    pd.DataFrame({"x": x, "y": np.where(x + 0.3 * rng.normal(size=40) > 0, 1, 0)}).to_csv(
        tmp_path / "a.csv", index=False
    )
    words = ("fit", tmp_path / "a.csv", "--target", "y", "--out", tmp_path / "m", "--n-coreset", 5)
    assert "two values, 0 and 1" in run(*words).stderr
    found = json.loads(run(*words, "--task", "classify", "--overwrite", "--json").stdout)
    assert found["classes"] == [0, 1]


# Bad input


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty: it has 0 bytes"),
        ("a,y\n", "holds no rows"),
        ("a,y\n1,2\n", "at least 2 rows"),
        ("a,y\n1,2\n1,3\n1,4\n", "the same value in all 3 rows"),
        ("a,y\n1,\n2,\n", "'y' is empty"),
        ("a,a,y\n1,2,3\n2,3,4\n", "'a' more than once"),
        ("a,b\n1,2\n2,3\n", "no column 'y'"),
        ("y\n1\n2\n", "at least one beside"),
        ("a,y\n1,2\n1,2,3\n", "Expected 2 columns, got 3"),
        ("a,y\n" + "1,2\n" * 30, "a column that varies"),
        ("a,y\n1,inf\n2,3\n", "--on-bad-rows skip"),
    ],
)
def test_a_bad_table_is_refused_with_a_reason(run: Run, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "a.csv").write_text(content)
    result = run("fit", tmp_path / "a.csv", "--target", "y", "--out", tmp_path / "m")
    assert result.exit_code in (1, 2)
    assert message in flat(result.stderr)
