"""`cvgp info`, `cvgp coreset`, `cvgp merge` and `cvgp demo`."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import cvgp
from cvgp.gp.noise import Tails
from tests.cli.conftest import Run, flat, make_table
from tests.tables.helpers import read_frame

QUICK = ("--n-coreset", 5, "--max-iter", 5, "--quiet")


@pytest.fixture(scope="session")
def python_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two outputs that was saved from Python, without a schema."""
    frame = make_table(30)
    path = tmp_path_factory.mktemp("python") / "m.cvgp"
    x, y = frame[["size", "weight"]].to_numpy(), frame[["price", "size"]].to_numpy()
    training = cvgp.TrainingOptions(max_iter=5)
    cvgp.CVGPRegressor(5, random_state=0, training=training).fit(x, y).save(path)
    return path


def test_the_coreset_is_a_table_in_the_units_of_the_data(run: Run, model: Path, tmp_path: Path) -> None:
    run("coreset", model, "--out", tmp_path / "coreset.parquet")
    found, coreset = read_frame(tmp_path / "coreset.parquet"), cvgp.load(model).coreset_
    order = np.argsort(-coreset.beta)
    expected = np.column_stack([coreset.X, coreset.y, coreset.beta])[order]
    assert list(found.columns) == ["size", "weight", "colour=blue", "colour=red", "price", "beta"]
    np.testing.assert_array_equal(found.to_numpy(), expected)


def test_info_describes_the_table_the_fit_and_the_importance_of_columns(run: Run, model: Path) -> None:
    text, facts = run("info", model).stdout, json.loads(run("info", model, "--json").stdout)
    assert "colour (text: blue, red)" in text
    assert "10 points for 60 rows" in text
    loaded = cvgp.load(model)
    found = loaded.sobol_indices()
    assert facts["feature_importances"] == dict(zip(["size", "weight", "colour"], found.total.tolist(), strict=True))
    assert f"size {found.total[0]:.2f} ± {found.total_uncertainty[0]:.2f}" in text
    assert facts["schema"] == loaded.schema_


def test_info_and_coreset_of_a_model_that_knows_no_table(run: Run, python_model: Path, tmp_path: Path) -> None:
    facts = json.loads(run("info", python_model, "--json").stdout)
    assert (facts["schema"], len(facts["noise_sd"])) == (None, 2)
    result = run("coreset", python_model, "--out", tmp_path / "coreset.csv", "--json")
    assert json.loads(result.stdout)["columns"] == ["x0", "x1", "y0", "y1", "beta"]
    result = run("plot", python_model, "--out", tmp_path / "p.png")
    assert (result.exit_code, "the model has 2" in result.stderr) == (1, True)


def test_info_shows_the_decisions_of_the_fit(run: Run, model: Path) -> None:
    decisions = cvgp.load(model).decisions_
    assert "n_neighbors" in run("info", model).stdout
    assert json.loads(run("info", model, "--json").stdout)["decisions"].keys() == decisions.to_json().keys()


@pytest.mark.parametrize("heavy", [False, True])
def test_info_describes_noise_that_depends_on_x(run: Run, tmp_path: Path, heavy: bool) -> None:
    frame = make_table(60)
    model = cvgp.CVGPRegressor(5, n_neighbors=0, noise="input-dependent", random_state=0)
    model.set_params(training__max_iter=5).fit(frame[["size", "weight"]].to_numpy(), frame["price"].to_numpy())
    assert model._gp.noise is not None
    numbers = ([0.5, 5.5], [0.9, 0.1]) if heavy else ([1.0], [1.0])
    shape = Tails(*(torch.tensor(values, dtype=torch.float64) for values in numbers))
    base = torch.as_tensor(float(heavy), dtype=torch.float64)
    changed = {"multipliers": shape.multipliers, "weights": shape.weights, "base": base}
    model._gp.noise = model._gp.noise._replace(**changed)
    model.save(tmp_path / "m")
    text, facts = run("info", tmp_path / "m").stdout, json.loads(run("info", tmp_path / "m", "--json").stdout)
    assert "it depends on the features" in text
    assert ("observations is more than" in text) is heavy
    assert ("weighted by their own noise" in text) is heavy
    assert (facts["heavy_tails"], facts["weighs_rows_by_noise"]) == (heavy, heavy)


@pytest.mark.parametrize(
    ("flags", "name", "value", "said"),
    [
        (["--n-neighbors", 0], "n_neighbors", 0, "has no training rows"),
        (["--n-neighbors", 3], "n_neighbors", 3, "has all training rows"),
        (["--input-warp", "rank"], "input_warp", "rank", "features mixed with their ranks"),
        (["--kernel", "rbf+linear"], "kernel", "rbf+linear", "one lengthscale per feature"),
        (["--kernel", "matern52", "--no-ard"], "kernel", "matern52", "matern52, one lengthscale "),
    ],
)
def test_info_says_what_was_fitted(
    run: Run, table: Path, tmp_path: Path, flags: list[object], name: str, value: object, said: str
) -> None:
    run("fit", table, "--target", "price", "--out", tmp_path / "m", *QUICK, *flags)
    assert said in flat(run("info", tmp_path / "m").stdout)
    assert json.loads(run("info", tmp_path / "m", "--json").stdout)[name] == value


def test_info_counts_missing_cells_and_names_levels_and_parts_of_dates(run: Run, tmp_path: Path) -> None:
    table = make_table(40)
    table.loc[:4, "size"] = None
    table["city"] = [f"city {i % 13}" for i in range(40)]
    table["when"] = pd.date_range("2024-01-01", periods=40).strftime("%Y-%m-%d")
    table.to_csv(tmp_path / "t.csv", index=False)
    run("fit", tmp_path / "t.csv", "--target", "price", "--out", tmp_path / "m", *QUICK)
    text = flat(run("info", tmp_path / "m").stdout)
    for words in ("size (number, 5 missing)", "city (text of 13 levels)", "when (date: trend, weekday)"):
        assert words in text


def test_merge_makes_the_model_that_python_makes(run: Run, tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for number, path in enumerate(paths):
        make_table(40, seed=number).to_csv(tmp_path / "t.csv", index=False)
        run("fit", tmp_path / "t.csv", "--target", "price", "--out", path, "--n-neighbors", 0, *QUICK)
    result = run("merge", *paths, "--out", tmp_path / "m", "--n-coreset", 7, "--json")
    assert json.loads(result.stdout)["coreset_size"] == 7
    expected = cvgp.merge([cvgp.load(path) for path in paths], n_coreset=7, random_state=0)
    x = make_table(5)[["size", "weight", "colour"]]
    np.testing.assert_array_equal(cvgp.load(tmp_path / "m").predict(x), expected.predict(x))
    assert "10 points" in run("merge", *paths, "--out", tmp_path / "m").stdout


def test_the_demo_writes_all_its_files_and_stops_at_a_failure(run: Run, tmp_path: Path) -> None:
    for _ in range(2):  # it may be run again
        assert run("demo", "--out", tmp_path / "demo").exit_code == 0
    written = sorted(path.name for path in (tmp_path / "demo").iterdir())
    assert written == ["coreset.csv", "model.cvgp", "pictures.png", "predictions.csv", "test.csv", "train.csv"]
    (tmp_path / "other" / "model.cvgp").mkdir(parents=True)
    assert run("demo", "--out", tmp_path / "other").exit_code == 1
    result = run("demo", "--out", tmp_path / "demo" / "train.csv")
    assert (result.exit_code, "Could not make the folder" in result.stderr) == (1, True)
