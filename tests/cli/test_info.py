"""`cvgp info`, `cvgp coreset`, `cvgp merge` and `cvgp demo`."""

import json
from pathlib import Path

import numpy as np
import pytest

import cvgp
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
    assert facts["schema"] == loaded.schema_
    assert facts["decisions"].keys() == loaded.decisions_.to_json().keys()


def test_the_decision_says_how_many_points_an_exact_gp_kept(run: Run, table: Path, tmp_path: Path) -> None:
    run("fit", table, "--target", "price", "--features", "size", "--out", tmp_path / "m", "--quiet")
    model = cvgp.load(tmp_path / "m")
    assert len(model.coreset_) < model.n_rows_
    taken = model.decisions_.n_coreset.taken
    assert taken == f"all rows, then {len(model.coreset_)} points kept"
    assert taken in flat(run("info", tmp_path / "m").stdout)


@pytest.mark.parametrize(("count", "said"), [(0, False), (3, True)])
def test_info_says_whether_the_file_has_training_rows(
    run: Run, table: Path, tmp_path: Path, count: int, said: bool
) -> None:
    run("fit", table, "--target", "price", "--out", tmp_path / "m", *QUICK, "--n-neighbors", count)
    assert ("holds all training rows" in flat(run("info", tmp_path / "m").stdout)) is said
    assert json.loads(run("info", tmp_path / "m", "--json").stdout)["n_neighbors"] == count


def test_info_and_coreset_of_a_model_that_knows_no_table(run: Run, python_model: Path, tmp_path: Path) -> None:
    facts = json.loads(run("info", python_model, "--json").stdout)
    assert (facts["schema"], len(facts["noise_sd"])) == (None, 2)
    result = run("coreset", python_model, "--out", tmp_path / "coreset.csv", "--json")
    assert json.loads(result.stdout)["columns"] == ["x0", "x1", "y0", "y1", "beta"]
    result = run("plot", python_model, "--out", tmp_path / "p.png")
    assert (result.exit_code, "the model has 2" in result.stderr) == (1, True)


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
    assert "10 points" in run("merge", *paths, "--out", tmp_path / "all").stdout


@pytest.mark.slow
def test_the_demo_writes_all_its_files_and_stops_at_a_failure(run: Run, tmp_path: Path) -> None:
    for _ in range(2):  # it may be run again
        assert run("demo", "--out", tmp_path / "demo").exit_code == 0
    written = sorted(path.name for path in (tmp_path / "demo").iterdir())
    assert written == ["coreset.csv", "model.cvgp", "pictures.png", "predictions.csv", "test.csv", "train.csv"]
    (tmp_path / "other" / "model.cvgp").mkdir(parents=True)
    assert run("demo", "--out", tmp_path / "other").exit_code == 1
    result = run("demo", "--out", tmp_path / "demo" / "train.csv")
    assert (result.exit_code, "Could not make the folder" in result.stderr) == (1, True)
