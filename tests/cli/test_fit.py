"""`cvgp fit`: from a table to a model file, or to a message and a code."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import cvgp
from cvgp.cli.fit import likelihood_hint
from tests.cli.conftest import Run, flat

QUICK = ("--n-coreset", 8, "--max-iter", 20, "--quiet")


def fit(run: Run, table: object, out: Path, *flags: object) -> dict[str, object]:
    result = run("fit", table, "--target", "price", "--out", out, *QUICK, "--json", *flags)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def test_options_reach_the_estimator(run: Run, table: Path, tmp_path: Path) -> None:
    flags = {
        "n_coreset": 7,
        "kernel": "rbf",
        "n_neighbors": 4,
        "noise": "constant",
        "mean": "constant",
        "input_warp": "identity",
        "target_transform": "yeo-johnson",
        "max_time": 60.0,
        "device": "cpu",
        "random_state": 3,
        "training__init": "random",
        "training__solver": "adam",
        "training__bound": "tight",
        "training__dtype": "float32",
        "training__batch_size": 16,
        "training__learning_rate": 0.02,
        "training__max_iter": 10,
    }
    names = {name: f"--{name.removeprefix('training__').replace('_', '-')}" for name in flags}
    words = [word for name, value in flags.items() for word in (names[name], value)]
    fit(run, table, tmp_path / "m", *words, "--no-ard", "--early-stopping", "--no-standardize")
    found = cvgp.load(tmp_path / "m").get_params()
    flags |= {"ard": False, "training__early_stopping": True, "standardize": False}
    assert {name: found[name] for name in flags} == flags


def test_the_model_is_that_of_python_and_the_same_each_time(run: Run, table: Path, tmp_path: Path) -> None:
    for name in ("once", "again"):
        fit(run, table, tmp_path / name)
    first, second = (cvgp.load(tmp_path / name) for name in ("once", "again"))
    assert first.coreset_ == second.coreset_
    assert first.schema_["target"] == "price"
    options = cvgp.TrainingOptions(max_iter=20)
    own = cvgp.CVGPRegressor(8, random_state=0, training=options).fit(table, "price")
    np.testing.assert_allclose(own.coreset_.X, first.coreset_.X, rtol=1e-6)


def test_results_are_on_the_standard_output_and_progress_on_the_other(run: Run, table: Path, tmp_path: Path) -> None:
    words = ("fit", table, "--target", "price", "--out", tmp_path / "m", "--n-coreset", 8, "--max-iter", 20)
    result = run(*words)
    assert "lbfgs" in result.stderr
    assert "1 file, 60 rows, 3 columns as 4 features" in flat(result.stderr)
    names = {line.split("  ")[0] for line in result.stdout.splitlines()}
    assert {"solver", "coreset", "neighbors", "kernel", "noise sd", "time", "saved"} <= names
    assert run(*words, "--overwrite", "--quiet").stderr == ""
    facts = json.loads(run(*words, "--overwrite", "--json").stdout)
    assert (facts["rows"], facts["coreset_size"], facts["iterations"]) == (60, 8, 20)


@pytest.mark.parametrize(
    "flags",
    [
        ("--n-coreset", "many"),
        ("--n-neighbors", -3),
        ("--kernel", "rbff"),
        ("--solver", "newton"),
        ("--max-iter", "few"),
        ("--sep", "abc"),
    ],
    ids=str,
)
def test_a_wrong_value_is_wrong_use(run: Run, table: Path, tmp_path: Path, flags: tuple[object, ...]) -> None:
    result = run("fit", table, "--target", "price", "--out", tmp_path / "m", *flags)
    assert (result.exit_code, str(flags[0]) in result.stderr) == (2, True)


@pytest.mark.parametrize(
    "flags",
    [("--n-coreset", 0), ("--learning-rate", -1), ("--device", "abacus")],
    ids=str,
)
def test_a_value_that_the_library_refuses_is_a_failure(
    run: Run, table: Path, tmp_path: Path, flags: tuple[object, ...]
) -> None:
    result = run("fit", table, "--target", "price", "--out", tmp_path / "m", *flags)
    assert (result.exit_code, str(flags[0])[2:].replace("-", "_") in result.stderr) == (1, True)


def test_a_target_that_is_not_there_is_wrong_use_and_similar_names_are_offered(
    run: Run, table: Path, tmp_path: Path
) -> None:
    result = run("fit", table, "--target", "Prise", "--out", tmp_path / "m")
    assert result.exit_code == 2
    assert "did you mean 'price'? It has size, weight, colour, price." in flat(result.stderr)


@pytest.mark.parametrize(("out", "reason"), [("no-such-folder/model", "Cannot write"), (".", "is a folder")])
def test_a_model_that_cannot_be_written_is_refused_before_the_table_is_read(
    run: Run, tmp_path: Path, out: str, reason: str
) -> None:
    result = run("fit", tmp_path / "no-such-table.csv", "--target", "price", "--out", tmp_path / out)
    assert reason in result.stderr


def test_files_that_are_missing_or_garbage_end_with_a_code(run: Run, model: Path, tmp_path: Path) -> None:
    assert run("fit", tmp_path / "no.csv", "--target", "y", "--out", tmp_path / "m").exit_code == 2
    assert run("info", tmp_path / "no.cvgp").exit_code == 2
    (tmp_path / "folder.csv").mkdir()
    garbage = np.random.default_rng(0).bytes(2000)
    for name in ("a.csv", "a.parquet", "a.feather", "a.csv.gz", "folder.csv"):
        if name != "folder.csv":
            (tmp_path / name).write_bytes(garbage)
        assert run("fit", tmp_path / name, "--target", "y", "--out", tmp_path / "m").exit_code == 1
    for content in (garbage, model.read_bytes()[:-100]):
        (tmp_path / "model").write_bytes(content)
        result = run("info", tmp_path / "model")
        assert (result.exit_code, "is not a cvgp file" in result.stderr) == (1, True)


def test_counts_with_exposure_are_fitted_and_predicted(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(-2, 2, 120), "days": rng.uniform(1, 9, 120)})
    frame["claims"] = rng.poisson(frame["days"] * np.exp(frame["x"]))
    frame.to_csv(tmp_path / "claims.csv", index=False)
    counts = ["--likelihood", "poisson", "--exposure", "days", "--n-coreset", "8"]
    fitted = run("fit", tmp_path / "claims.csv", "--target", "claims", *counts, "--out", tmp_path / "m.cvgp", "--json")
    assert json.loads(fitted.stdout)["features"] == ["x"]
    frame.loc[3, "days"] = np.nan
    frame.to_csv(tmp_path / "new.csv", index=False)
    command = ["predict", tmp_path / "m.cvgp", tmp_path / "new.csv", "--out", tmp_path / "out.csv"]
    assert "'days' is missing" in flat(run(*command).stderr)
    assert run(*command, "--on-bad-rows", "skip").exit_code == 0
    predicted = pd.read_csv(tmp_path / "out.csv")
    expected = cvgp.load(tmp_path / "m.cvgp").predict(frame.drop(index=3))
    np.testing.assert_allclose(predicted["claims_mean"].drop(index=3), expected)
    assert np.isnan(predicted["claims_mean"][3])


@pytest.mark.parametrize(
    ("y", "flag"),
    [
        (np.random.default_rng(0).poisson(2.0, 200), "--likelihood poisson"),
        (np.random.default_rng(0).beta(2.0, 3.0, 200), "--likelihood beta"),
        (np.random.default_rng(0).lognormal(0.0, 1.0, 200), "--likelihood gamma"),
        (np.random.default_rng(0).normal(0.0, 1.0, 200), None),
        (np.random.default_rng(0).normal(50.0, 1.0, 200), None),
        (np.random.default_rng(0).poisson(500.0, 200), None),
        (np.random.default_rng(0).integers(0, 2, 200), "--task classify"),
        (np.random.default_rng(0).integers(1, 5, 200), "--task classify"),
    ],
)
def test_a_target_that_is_hardly_gaussian_gets_a_hint(y: np.ndarray, flag: str | None) -> None:
    hint = likelihood_hint(np.asarray(y, dtype=np.float64))
    assert hint is None if flag is None else flag in str(hint)
