"""One table is enough: held-out rows, cross-validation, comparison, a smaller model, and what to type next."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_iris

import cvgp
from cvgp.tables.read import open_table
from cvgp.tables.splits import split_table
from tests.cli.conftest import Run, flat
from tests.first_hour.conftest import QUICK, QUICK_KINDS, houses

pytestmark = pytest.mark.filterwarnings("default::cvgp.CVGPWarning")


def positions(frame: pd.DataFrame, target: str = "price", **how: object) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows that are fitted and scored, for each pair."""
    pairs = split_table(open_table(frame), target, **how)  # type: ignore[arg-type]
    return [tuple(np.flatnonzero(next(iter(part.chosen.values()))) for part in pair) for pair in pairs]  # type: ignore[misc]


def test_held_out_rows_are_random_whole_groups_or_the_latest() -> None:
    frame = houses(90)
    has_price = np.flatnonzero(frame["price"].notna())
    ((train, test),) = positions(frame, test_size=0.2)
    assert sorted([*train, *test]) == has_price.tolist()
    assert len(test) == 18
    ((train, test),) = positions(frame, test_size=0.2, groups="agent")
    assert not set(frame["agent"][train]) & set(frame["agent"][test])
    ((train, test),) = positions(frame.sample(frac=1.0, random_state=0), test_size=0.2, time="day")
    days = frame.sample(frac=1.0, random_state=0)["day"].to_numpy()
    assert max(days[train]) < min(days[test])


def test_folds_score_each_row_once_and_never_one_that_is_earlier_than_a_fitted_one() -> None:
    frame = houses(90)
    for how in ({}, {"groups": "agent"}):
        scored = np.concatenate([test for _, test in positions(frame, folds=4, **how)])
        assert sorted(scored) == np.flatnonzero(frame["price"].notna()).tolist()
    for train, test in positions(frame, folds=4, time="day"):
        assert frame["day"][train].max() < frame["day"][test].min()


@pytest.mark.parametrize("how", [(), ("--groups", "agent"), ("--time", "day")], ids=["random", "groups", "time"])
def test_a_fit_scores_rows_that_it_has_held_out(run: Run, folder: Path, tmp_path: Path, how: tuple[str, ...]) -> None:
    words = (
        "fit",
        folder / "train.csv",
        "--target",
        "price",
        "--out",
        tmp_path / "m",
        "--test-size",
        0.2,
        *QUICK,
        *how,
    )
    found = json.loads(run(*words, "--json").stdout)
    model, frame = cvgp.load(tmp_path / "m"), houses(90)
    groups, time = (how[1] if name in how else None for name in ("--groups", "--time"))
    ((_, test),) = positions(frame, test_size=0.2, groups=groups, time=time)
    assert found["held_out"]["rows"] == len(test)
    rmse = np.sqrt(np.mean((model.predict(frame.iloc[test]) - frame["price"].iloc[test]) ** 2))
    assert found["held_out"]["scores"]["cvgp"]["rmse"] == pytest.approx(rmse)


def test_a_packaged_table_is_fitted_and_scored_in_one_command(run: Run, tmp_path: Path) -> None:
    load_diabetes(as_frame=True, scaled=False).frame.sample(150, random_state=0).to_csv(tmp_path / "d.csv", index=False)
    words = ("fit", tmp_path / "d.csv", "--target", "target", "--test-size", ".2", "--out", tmp_path / "m", *QUICK)
    result = run(*words)
    assert result.exit_code == 0
    assert "30 rows that were held out" in result.stdout


def test_cross_validation_is_the_mean_over_fits_by_hand(run: Run, folder: Path) -> None:
    words = ("evaluate", "--cv", 3, folder / "train.csv", "--target", "price", "--drop", "day,agent", *QUICK[:-1])
    found = json.loads(run(*words, "--json").stdout)
    frame = houses(90).drop(columns=["day", "agent", "remark"])
    options = {"n_coreset": 10, "kernel": "matern32", "input_warp": "identity", "training__max_iter": 20}
    errors = []
    for train, test in positions(frame, folds=3):
        model = cvgp.CVGPRegressor(random_state=0).set_params(**options).fit(frame.iloc[train], "price")
        errors.append(np.sqrt(np.mean((model.predict(frame.iloc[test]) - frame["price"].iloc[test]) ** 2)))
    assert found["scores"]["cvgp"]["rmse"] == pytest.approx(np.mean(errors))
    assert found["standard_errors"]["cvgp"]["rmse"] == pytest.approx(np.std(errors, ddof=1) / np.sqrt(3))
    assert found["rows"] == 88


@pytest.mark.parametrize(
    ("target", "options", "score"),
    [("kind", (), "log_loss"), ("count", ("--likelihood", "poisson", "--drop", "kind"), "crps")],
)
def test_classes_and_counts_are_cross_validated(
    run: Run, tmp_path: Path, target: str, options: tuple[str, ...], score: str
) -> None:
    data = load_iris(as_frame=True)
    table = data.frame.rename(columns={"target": "kind"}).sample(40, random_state=0)
    table["kind"] = data.target_names[table["kind"]]
    table["count"] = np.random.default_rng(0).poisson(table.iloc[:, 2])
    table.to_csv(tmp_path / "a.csv", index=False)
    words = ("evaluate", "--cv", 2, tmp_path / "a.csv", "--target", target, "--json", *QUICK_KINDS, *options)
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    assert np.isfinite(json.loads(result.stdout)["standard_errors"]["cvgp"][score])


def test_two_models_are_compared_by_the_same_rows(run: Run, folder: Path) -> None:
    test = folder / "test.csv"
    found = json.loads(run("compare", folder / "model.cvgp", folder / "line.cvgp", test, "--json").stdout)
    swapped = json.loads(run("compare", folder / "line.cvgp", folder / "model.cvgp", test, "--json").stdout)
    frame = houses(60, seed=1).dropna(subset="price")
    a, b = (cvgp.load(folder / f"{name}.cvgp") for name in ("model", "line"))
    y = frame["price"].to_numpy()
    squares = (b.predict(frame) - y) ** 2 - (a.predict(frame) - y) ** 2
    ahead = found["A_ahead_by"]["squared_error"]
    assert ahead["mean"] == pytest.approx(squares.mean())
    assert ahead["standard_error"] == pytest.approx(squares.std() / np.sqrt(len(y)))
    assert swapped["A_ahead_by"]["log_density"]["mean"] == pytest.approx(-found["A_ahead_by"]["log_density"]["mean"])
    assert "No clear difference" in run("compare", folder / "line.cvgp", folder / "line.cvgp", test).stdout


def test_a_pruned_model_is_smaller_and_predicts(run: Run, folder: Path, tmp_path: Path) -> None:
    words = ("prune", folder / "model.cvgp", "--out", tmp_path / "small.cvgp", "--tolerance", 0.5, "--json")
    found = json.loads(run(*words).stdout)
    small, whole = cvgp.load(tmp_path / "small.cvgp"), cvgp.load(folder / "model.cvgp")
    assert len(small.coreset_) == found["points"] == len(whole.coreset_) - found["left_out"] < len(whole.coreset_)


def test_the_command_alone_says_what_to_type_next(run: Run) -> None:
    result = run()
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) <= 6
    assert "cvgp fit" in result.stdout


def test_help_shows_few_options_and_all_on_request(run: Run) -> None:
    short, long = (run("fit", flag).stdout for flag in ("--help", "--help-all"))
    assert "--test-size" in short
    assert "--learning-rate" not in short
    assert "--learning-rate" in long
    assert len(short.splitlines()) < 55


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fit", "train.csv", "--target", "price", "--out", "x", "--test-size", 20), "between 0 and 1"),
        (("fit", "train.csv", "--target", "price", "--out", "x", "--time", "city"), "date"),
        (("fit", "train.csv", "--target", "price", "--out", "x", "--test-size", ".2", "--time", "city"), "date"),
        (("evaluate", "train.csv"), "--cv 5"),
        (("evaluate", "--cv", 5, "train.csv"), "--target"),
        (("evaluate", "--cv", 1, "train.csv", "--target", "price"), "at least 2 folds"),
        (("evaluate", "--cv", 5, "train.csv", "--target", "price", "--groups", "city"), "3 groups"),
        (("evaluate", "--cv", 5, "train.csv", "--target", "prize"), "did you mean 'price'"),
        (("evaluate", "model.cvgp", "test.csv", "--kernel", "rbf"), "--cv 5"),
        (("compare", "model.cvgp", "train.csv", "test.csv"), "is not a cvgp file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_request_says_what_to_type(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...], message: str
) -> None:
    monkeypatch.chdir(folder)
    result = run(*words)
    assert result.exit_code in (1, 2)
    assert message in flat(result.stderr)
    assert not Path("x").exists()
