"""`cvgp evaluate`, `cvgp report` and `cvgp plot`."""

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

import cvgp
import cvgp.plots
from cvgp import metrics
from tests.cli.conftest import Run, make_table
from tests.tables.helpers import read_frame

SCORES = {"rmse", "mean_log_likelihood", "crps", "coverage_50", "coverage_90", "coverage_95"}


@pytest.fixture
def unseen(tmp_path: Path) -> Path:
    make_table(40, seed=1).to_csv(tmp_path / "test.csv", index=False)
    return tmp_path / "test.csv"


def test_the_scores_are_those_of_the_predictions_and_of_simple_models(
    run: Run, model: Path, unseen: Path, tmp_path: Path
) -> None:
    scores = json.loads(run("evaluate", model, unseen, "--json").stdout)["scores"]
    expected_names = dict.fromkeys(("linear", "constant"), SCORES) | {"cvgp": SCORES | {"coverage_90_model"}}
    assert {name: set(found) for name, found in scores.items()} == expected_names
    run("predict", model, unseen, "--out", tmp_path / "out.parquet")
    out = read_frame(tmp_path / "out.parquet")
    pair = out["price_mean"], out["price_sd"]
    assert scores["cvgp"]["rmse"] == pytest.approx(metrics.rmse(out["price"], pair[0]), rel=1e-9)
    assert scores["cvgp"]["coverage_90"] == metrics.coverage(out["price"], *pair, 0.9)
    trained = make_table(60)["price"].mean()  # the constant has learned from the rows of the fit
    expected = np.sqrt(np.mean((out["price"] - trained) ** 2))
    assert scores["constant"]["rmse"] == pytest.approx(expected, rel=1e-9)
    text = run("evaluate", model, unseen).stdout
    assert all(name in text for name in ("RMSE", "mean log-likelihood", "CRPS", "inside 90 % intervals"))


def test_a_table_without_target_is_a_failure_and_one_row_is_enough(run: Run, model: Path, tmp_path: Path) -> None:
    make_table(5).drop(columns="price").to_csv(tmp_path / "new.csv", index=False)
    result = run("evaluate", model, tmp_path / "new.csv")
    assert (result.exit_code, "['price']" in result.stderr) == (1, True)
    make_table(1).to_csv(tmp_path / "new.csv", index=False)
    scores = json.loads(run("evaluate", model, tmp_path / "new.csv", "--json").stdout)["scores"]
    assert all(np.isfinite(list(found.values())).all() for found in scores.values())


def test_report_writes_a_page_with_the_scores_of_evaluate(run: Run, model: Path, unseen: Path, tmp_path: Path) -> None:
    result = run("report", model, unseen, "--out", tmp_path / "report.html")
    assert result.exit_code == 0, result.stderr
    assert "this model" in result.stdout
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    arguments = ("--train", model.with_name("train.csv"), "--out", tmp_path / "r.html", "--json")
    found = json.loads(run("report", model, unseen, *arguments).stdout)["scores"]
    expected = json.loads(run("evaluate", model, unseen, "--json").stdout)["scores"]
    assert {name: found[name] for name in expected} == expected
    assert set(found) - set(expected) == {"boosting"}


def test_plot_shows_the_model_and_with_a_table_its_predictions(
    run: Run, model: Path, table: Path, tmp_path: Path
) -> None:
    found = json.loads(run("plot", model, "--out", tmp_path / "p.png", "--json").stdout)["pictures"]
    columns = cvgp.plots.columns_by_importance(cvgp.load(model))
    expected = ["relevance", *(f"dependence on {name}" for name in columns), "coreset", "weights", "training"]
    assert found == expected
    assert imread(tmp_path / "p.png")[..., :3].std() > 0.05
    found = json.loads(run("plot", model, "--out", tmp_path / "q.png", "--data", table, "--json").stdout)["pictures"]
    assert found == [*expected, "predictions", "calibration"]


@pytest.mark.parametrize(("ending", "start"), [(".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_plot_writes_the_format_of_the_ending(run: Run, model: Path, tmp_path: Path, ending: str, start: bytes) -> None:
    run("plot", model, "--out", tmp_path / f"p{ending}")
    assert (tmp_path / f"p{ending}").read_bytes().startswith(start)


@pytest.mark.parametrize(("command", "name"), [("plot", "p.bmp"), ("report", "r.txt")])
def test_an_unknown_ending_is_wrong_use(run: Run, model: Path, unseen: Path, command: str, name: str) -> None:
    data = [unseen] if command == "report" else []
    assert run(command, model, *data, "--out", unseen.with_name(name)).exit_code == 2
