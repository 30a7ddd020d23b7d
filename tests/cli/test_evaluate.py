import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import cvgp
from cvgp import metrics
from cvgp.estimators.simple_models import Baselines
from cvgp.files.tensors import read_tensors, write_tensors
from tests.cli.conftest import Run, flat, make_table
from tests.data.tables.tables import read_table

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


def test_one_row_can_be_evaluated(run: Run, model: Path, tmp_path: Path) -> None:
    make_table(1).to_csv(tmp_path / "one.csv", index=False)
    scores = json.loads(run("evaluate", model, tmp_path / "one.csv", "--json").stdout)["scores"]
    assert all(np.isfinite(list(found.values())).all() for found in scores.values())


def test_simple_models_have_learned_from_the_training_table(run: Run, model: Path, test_table: Path) -> None:
    """`model` is fitted to make_table(), so its mean is what the constant predicts elsewhere."""
    scores = json.loads(run("evaluate", model, test_table, "--json").stdout)["scores"]
    trained = cvgp.load(model).baselines_["mean"]
    y = read_table(test_table)["price"].to_numpy()
    assert trained != pytest.approx(y.mean(), rel=1e-6)
    assert scores["constant"]["rmse"] == pytest.approx(np.sqrt(np.mean((y - trained) ** 2)), rel=1e-9)


def test_model_without_simple_models_is_scored_alone(run: Run, model: Path, test_table: Path, tmp_path: Path) -> None:
    bare = cvgp.load(model)
    del bare.baselines_
    bare.save(tmp_path / "bare.cvgp")
    text = run("evaluate", tmp_path / "bare.cvgp", test_table).stdout
    assert "no linear and constant model" in text


@pytest.mark.parametrize("damage", [{"slopes": [1.0]}, {"mean_sd": 0.0}, {"more": 1}, {"mean": "text"}])
def test_damaged_simple_models_are_refused(
    run: Run, model: Path, test_table: Path, tmp_path: Path, damage: dict[str, object]
) -> None:
    arrays, metadata = read_tensors(model)
    metadata["baselines"] |= damage
    write_tensors(tmp_path / "damaged.cvgp", arrays, metadata)
    result = run("evaluate", tmp_path / "damaged.cvgp", test_table)
    assert (result.exit_code, "aseline" in result.stderr) == (1, True)


def test_a_table_without_target_is_a_failure(run: Run, model: Path, tmp_path: Path) -> None:
    make_table(5).drop(columns="price").to_csv(tmp_path / "new.csv", index=False)
    result = run("evaluate", model, tmp_path / "new.csv")
    assert (result.exit_code, "['price']" in result.stderr) == (1, True)


def test_errors_are_those_of_refitting_without_each_row() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 3)), rng.normal(size=12)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    design = np.column_stack([np.ones(12), z])
    penalty = np.diag([0.0, 1.0, 1.0, 1.0])
    line, constant = [], []
    for row in range(12):
        others = np.delete(np.arange(12), row)
        gram = design[others].T @ design[others] + penalty
        line.append(y[row] - design[row] @ np.linalg.solve(gram, design[others].T @ y[others]))
        constant.append(y[row] - y[others].mean())
    simple = Baselines.learn(x, y)
    assert simple.line_sd == pytest.approx(np.sqrt(np.mean(np.square(line))), rel=1e-9)
    assert simple.mean_sd == pytest.approx(np.sqrt(np.mean(np.square(constant))), rel=1e-9)


def test_line_is_found_again_whatever_the_units() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 2)) * [1e3, 1e-3] + [5.0, 2.0]
    mean, sd = Baselines.learn(x, 3.0 + x @ [2e-3, 5e2]).linear(x[:5])
    np.testing.assert_allclose(mean, 3.0 + x[:5] @ [2e-3, 5e2], atol=0.01)
    assert sd[0] < 0.01


def test_line_survives_columns_that_repeat_each_other_or_never_change() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 1))
    repeated = np.hstack([x, x, np.ones((20, 1))])
    np.testing.assert_allclose(Baselines.learn(repeated, x[:, 0]).linear(repeated)[0], x[:, 0], atol=0.3)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_constant_target_has_a_finite_density(rows: int) -> None:
    x, y = np.arange(float(rows))[:, None], np.full(rows, 3.0)
    simple = Baselines.learn(x, y)
    assert np.isfinite(metrics.mean_log_density(y, *simple.constant(rows)))
    assert np.isfinite(metrics.mean_log_density(y, *simple.linear(x)))


def test_what_is_stored_is_what_was_learned() -> None:
    rng = np.random.default_rng(0)
    simple = Baselines.learn(rng.normal(size=(9, 2)), rng.normal(size=9))
    again = Baselines.from_json(json.loads(json.dumps(simple.to_json())), 2)
    np.testing.assert_array_equal(again.slopes, simple.slopes)
    assert again._replace(slopes=None) == simple._replace(slopes=None)


def test_periods_are_scored_in_the_order_of_a_column_of_dates(run: Run, model: Path, tmp_path: Path) -> None:
    late = np.arange(40) >= 32
    table = make_table(40, seed=1).assign(
        when=pd.date_range("2024-01-01", periods=40).strftime("%Y-%m-%d"), price=lambda t: t["price"] + 5.0 * late
    )
    table.sample(frac=1.0, random_state=0).to_csv(tmp_path / "test.csv", index=False)
    found = json.loads(run("evaluate", model, tmp_path / "test.csv", "--by-time", "when", "--json").stdout)["periods"]
    assert [p["period"] for p in found][::4] == ["2024-01-01 to 2024-01-08", "2024-02-02 to 2024-02-09"]
    assert found[-1]["rmse"] > 3.0 > max(p["rmse"] for p in found[:-1])


def test_a_column_of_times_that_is_not_there_is_named_beside_a_similar_one(
    run: Run, model: Path, tmp_path: Path
) -> None:
    make_table(10).assign(When=range(10)).to_csv(tmp_path / "test.csv", index=False)
    result = run("evaluate", model, tmp_path / "test.csv", "--by-time", "when")
    assert (result.exit_code, "Perhaps it has 'When' for 'when'" in flat(result.stderr)) == (1, True)
