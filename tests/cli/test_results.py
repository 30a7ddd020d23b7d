"""coreset, info, plot and demo: what can be had from a model file."""

import json
from copy import deepcopy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.image import imread

import cvgp
import cvgp.plots
from cvgp.gp.tails import Tails
from tests.cli.conftest import Run, flat, make_table
from tests.data.tables.tables import read_table


@pytest.fixture(scope="session")
def python_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of two outputs that was saved from Python, without a schema."""
    frame = make_table(30)
    path = tmp_path_factory.mktemp("python") / "m.cvgp"
    x, y = frame[["size", "weight"]].to_numpy(), frame[["price", "size"]].to_numpy()
    cvgp.CVGPRegressor(5, max_iter=5, random_state=0).fit(x, y).save(path)
    return path


def test_the_coreset_is_a_table_in_the_units_of_the_data(run: Run, model: Path, tmp_path: Path) -> None:
    run("coreset", model, "--out", tmp_path / "coreset.parquet")
    found, coreset = read_table(tmp_path / "coreset.parquet"), cvgp.load(model).coreset_
    order = np.argsort(-coreset.beta)
    expected = np.column_stack([coreset.X, coreset.y, coreset.beta])[order]
    assert list(found.columns) == ["size", "weight", "colour=blue", "colour=red", "price", "beta"]
    np.testing.assert_array_equal(found.to_numpy(), expected)


def test_the_coreset_of_several_outputs_has_a_column_for_each(run: Run, python_model: Path, tmp_path: Path) -> None:
    result = run("coreset", python_model, "--out", tmp_path / "coreset.csv", "--json")
    assert json.loads(result.stdout)["columns"] == ["x0", "x1", "y0", "y1", "beta"]


def test_info_describes_the_table_and_the_fit(run: Run, model: Path) -> None:
    text = run("info", model).stdout
    assert "colour (text: blue, red)" in text
    assert "10 points for 60 rows" in text


def test_info_says_how_much_predictions_need_each_column(run: Run, model: Path) -> None:
    facts = json.loads(run("info", model, "--json").stdout)
    found = cvgp.load(model).sobol_indices()
    assert facts["feature_importances"] == dict(zip(["size", "weight", "colour"], found.total.tolist(), strict=True))
    assert list(facts["feature_importances_sd"].values()) == found.total_uncertainty.tolist()
    assert list(facts["first_order_importances"].values()) == found.first_order.tolist()
    assert f"size {found.total[0]:.2f} ± {found.total_uncertainty[0]:.2f}" in run("info", model).stdout


def test_info_as_json_holds_the_schema(run: Run, model: Path) -> None:
    facts = json.loads(run("info", model, "--json").stdout)
    assert facts["schema"] == cvgp.load(model).schema_


def test_info_describes_a_model_that_knows_no_table(run: Run, python_model: Path) -> None:
    facts = json.loads(run("info", python_model, "--json").stdout)
    assert (facts["schema"], len(facts["noise_sd"])) == (None, 2)


@pytest.fixture(scope="module")
def noisy_model() -> cvgp.CVGPRegressor:
    """A model whose noise depends on x."""
    frame = make_table(60)
    model = cvgp.CVGPRegressor(5, max_iter=5, neighbors=0, noise="input-dependent", random_state=0)
    return model.fit(frame[["size", "weight"]].to_numpy(), frame["price"].to_numpy())


@pytest.mark.parametrize(("weighs", "said"), [(False, "of equal noise"), (True, "weighed by their own noise")])
def test_info_says_whether_rows_are_weighed(
    run: Run, noisy_model: cvgp.CVGPRegressor, tmp_path: Path, weighs: bool, said: str
) -> None:
    model = deepcopy(noisy_model)
    assert model.gp_.noise is not None
    base = model.model_.noise.detach() if weighs else torch.zeros((), dtype=torch.float64)
    model.gp_.noise = model.gp_.noise._replace(base=base)
    model.save(tmp_path / "m")
    assert said in run("info", tmp_path / "m").stdout
    assert json.loads(run("info", tmp_path / "m", "--json").stdout)["weighs_rows_by_noise"] is weighs


@pytest.mark.parametrize("heavy", [False, True])
def test_info_says_whether_tails_are_heavier_than_normal(
    run: Run, noisy_model: cvgp.CVGPRegressor, tmp_path: Path, heavy: bool
) -> None:
    model = deepcopy(noisy_model)
    assert model.gp_.noise is not None
    numbers = ([0.5, 5.5], [0.9, 0.1]) if heavy else ([1.0], [1.0])
    shape = Tails(*(torch.tensor(values, dtype=torch.float64) for values in numbers))
    model.gp_.noise = model.gp_.noise._replace(multipliers=shape.multipliers, weights=shape.weights)
    model.save(tmp_path / "m")
    said = f"1 in 1000 observations is more than {shape.quantiles(0.9995):.1f} sd off"
    assert (said in run("info", tmp_path / "m").stdout) is heavy
    assert json.loads(run("info", tmp_path / "m", "--json").stdout)["heavy_tails"] is heavy


def test_info_says_whether_the_noise_depends_on_the_features(
    run: Run, noisy_model: cvgp.CVGPRegressor, python_model: Path, tmp_path: Path
) -> None:
    noisy_model.save(tmp_path / "m")
    assert "it depends on the features" in run("info", tmp_path / "m").stdout
    assert "it depends on the features" not in run("info", python_model).stdout


def test_info_names_the_kernel_as_fit_takes_it(run: Run, table: Path, tmp_path: Path) -> None:
    quick = ("--coreset", 5, "--max-iter", 5, "--quiet")
    for kernel in ("rbf", "matern12", "matern52", "rq", "linear", "periodic"):
        run("fit", table, "--target", "price", "--out", tmp_path / "m", "--kernel", kernel, *quick)
        assert json.loads(run("info", tmp_path / "m", "--json").stdout)["kernel"] == kernel


def test_plot_without_data_shows_the_model(run: Run, model: Path, tmp_path: Path) -> None:
    result = run("plot", model, "--out", tmp_path / "p.png", "--json")
    columns = cvgp.plots.columns_by_importance(cvgp.load(model))
    assert sorted(columns) == ["colour", "size", "weight"]
    expected = ["relevance", *(f"dependence on {name}" for name in columns), "coreset", "weights", "training"]
    assert json.loads(result.stdout)["pictures"] == expected


def test_plot_with_data_shows_the_predictions_as_well(run: Run, model: Path, table: Path, tmp_path: Path) -> None:
    result = run("plot", model, "--out", tmp_path / "p.png", "--data", table, "--json")
    assert json.loads(result.stdout)["pictures"][-2:] == ["predictions", "calibration"]


def test_plot_with_the_training_table_shows_quality_by_size_and_its_numbers(
    run: Run, model: Path, table: Path, tmp_path: Path
) -> None:
    result = run("plot", model, "--out", tmp_path / "p.png", "--train", table, "--json")
    found = json.loads(result.stdout)
    assert found["pictures"][-1] == "quality by size"
    assert found["quality_by_size"]["size"] == [1, 2, 4, 8, 16]
    assert np.diff(found["quality_by_size"]["bound_per_row"]).min() > 0


def test_quality_by_size_is_printed_as_a_table(run: Run, model: Path, table: Path, tmp_path: Path) -> None:
    result = run("plot", model, "--out", tmp_path / "p.png", "--train", table, "--data", table)
    assert "mean log-likelihood" in result.stdout
    assert [line.split()[0] for line in result.stdout.splitlines() if line.strip()][-5:] == ["1", "2", "4", "8", "16"]


def test_plot_writes_a_picture_that_is_not_blank(run: Run, model: Path, tmp_path: Path) -> None:
    run("plot", model, "--out", tmp_path / "p.png")
    assert imread(tmp_path / "p.png")[..., :3].std() > 0.05


@pytest.mark.parametrize(("ending", "start"), [(".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_plot_writes_the_format_of_the_ending(run: Run, model: Path, tmp_path: Path, ending: str, start: bytes) -> None:
    run("plot", model, "--out", tmp_path / f"p{ending}")
    assert (tmp_path / f"p{ending}").read_bytes().startswith(start)


def test_plot_of_several_outputs_is_a_failure(run: Run, python_model: Path, tmp_path: Path) -> None:
    result = run("plot", python_model, "--out", tmp_path / "p.png")
    assert (result.exit_code, "the model has 2" in result.stderr) == (1, True)


def test_plot_to_an_unknown_ending_is_wrong_use(run: Run, model: Path, tmp_path: Path) -> None:
    assert run("plot", model, "--out", tmp_path / "p.bmp").exit_code == 2


def test_the_demo_writes_all_its_files(run: Run, tmp_path: Path) -> None:
    result = run("demo", "--out", tmp_path / "demo")
    assert result.exit_code == 0
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == [
        "coreset.csv",
        "model.cvgp",
        "pictures.png",
        "predictions.csv",
        "test.csv",
        "train.csv",
    ]


def test_the_demo_stops_with_the_code_of_a_command_that_fails(run: Run, tmp_path: Path) -> None:
    (tmp_path / "demo" / "model.cvgp").mkdir(parents=True)
    assert run("demo", "--out", tmp_path / "demo").exit_code == 1


def test_info_counts_what_was_missing_in_each_column(run: Run, tmp_path: Path) -> None:
    table = make_table(40)
    table.loc[:4, "size"] = None
    table["city"] = [f"city {i % 13}" for i in range(40)]
    table["when"] = pd.date_range("2024-01-01", periods=40).strftime("%Y-%m-%d")
    table.to_csv(tmp_path / "t.csv", index=False)
    quick = ("--coreset", 8, "--max-iter", 5, "--quiet", "--dates", "expand")
    run("fit", tmp_path / "t.csv", "--target", "price", "--out", tmp_path / "m", *quick)
    text = flat(run("info", tmp_path / "m").stdout)
    assert "size (number, 5 missing)" in text
    assert "city (text of 13 levels)" in text
    assert "when (date: trend, weekday)" in text
