import json
from pathlib import Path

import numpy as np
import pytest

from cvgp import metrics
from cvgp.cli.baselines import constant_predictions, linear_predictions
from cvgp.data.tables import read_table
from tests.cli.conftest import Run, make_table

SCORES = {"rmse", "mean_log_likelihood", "crps", "coverage_50", "coverage_90", "coverage_95"}


@pytest.fixture
def test_table(tmp_path: Path) -> Path:
    make_table(40, seed=1).to_csv(tmp_path / "test.csv", index=False)
    return tmp_path / "test.csv"


def test_all_scores_of_all_models_are_reported(run: Run, model: Path, test_table: Path) -> None:
    scores = json.loads(run("evaluate", model, test_table, "--json").stdout)["scores"]
    assert {name: set(found) for name, found in scores.items()} == dict.fromkeys(("cvgp", "linear", "constant"), SCORES)


def test_the_scores_are_those_of_the_predictions(run: Run, model: Path, test_table: Path, tmp_path: Path) -> None:
    scores = json.loads(run("evaluate", model, test_table, "--json").stdout)["scores"]["cvgp"]
    run("predict", model, test_table, "--out", tmp_path / "out.parquet")
    out = read_table(tmp_path / "out.parquet")
    pair = out["price_mean"], out["price_sd"]
    assert scores["rmse"] == pytest.approx(metrics.rmse(out["price"], pair[0]), rel=1e-9)
    assert scores["coverage_90"] == metrics.coverage(out["price"], *pair, 0.9)


def test_the_table_holds_a_row_a_score(run: Run, model: Path, test_table: Path) -> None:
    text = run("evaluate", model, test_table).stdout
    assert [line.strip().split("  ")[0] for line in text.splitlines()[4:10]] == [
        "RMSE",
        "mean log-likelihood",
        "CRPS",
        "inside 50 % intervals",
        "inside 90 % intervals",
        "inside 95 % intervals",
    ]


def test_two_rows_are_too_few_for_simple_models(run: Run, model: Path, tmp_path: Path) -> None:
    make_table(2).to_csv(tmp_path / "two.csv", index=False)
    scores = json.loads(run("evaluate", model, tmp_path / "two.csv", "--json").stdout)["scores"]
    assert (scores["linear"], scores["constant"]) == (None, None)


def test_a_table_without_target_is_a_failure(run: Run, model: Path, tmp_path: Path) -> None:
    make_table(5).drop(columns="price").to_csv(tmp_path / "new.csv", index=False)
    result = run("evaluate", model, tmp_path / "new.csv")
    assert (result.exit_code, "['price']" in result.stderr) == (1, True)


def test_the_constant_is_the_mean_of_the_other_rows() -> None:
    y = np.array([1.0, 2.0, 6.0])
    np.testing.assert_allclose(constant_predictions(y)[0], [4.0, 3.5, 1.5])


def test_the_linear_predictions_are_those_of_refitting_without_each_row() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 3)), rng.normal(size=12)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    design = np.column_stack([np.ones(12), z])
    penalty = np.diag([0.0, 1.0, 1.0, 1.0])
    expected = []
    for row in range(12):
        others = np.delete(np.arange(12), row)
        gram = design[others].T @ design[others] + penalty
        expected.append(design[row] @ np.linalg.solve(gram, design[others].T @ y[others]))
    np.testing.assert_allclose(linear_predictions(x, y)[0], expected)


def test_the_linear_model_survives_columns_that_repeat_each_other_or_never_change() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 1))
    mean, _ = linear_predictions(np.hstack([x, x, np.ones((20, 1))]), x[:, 0])
    np.testing.assert_allclose(mean, x[:, 0], atol=0.3)


def test_a_constant_target_has_a_finite_density() -> None:
    y = np.full(5, 3.0)
    assert np.isfinite(metrics.mean_log_density(y, *constant_predictions(y)))
