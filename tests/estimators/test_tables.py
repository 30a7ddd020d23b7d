"""Fitting to tables in files."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pytest
from gpytorch.kernels import RBFKernel
from typer.testing import CliRunner

import cvgp
from cvgp import CVGPRegressor, TrainingOptions, read_table
from cvgp.cli import app
from cvgp.data.rows import Rows
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.fitting.decide import Fit
from cvgp.fitting.monitor import FitEvent
from cvgp.tables import stream
from tests.flat_options import make_regressor
from tests.tables.helpers import damage, write, write_parts

NUM_ROWS = 6000
OPTIONS = {"n_coreset": 15, "random_state": 0, "max_iter": 150, "solver": "adam"}


def rows(num_rows: int = NUM_ROWS) -> pd.DataFrame:
    """A sine of a, a step for each color, and noise of sd 0.1."""
    rng = np.random.default_rng(0)
    a, color = rng.uniform(-2.0, 2.0, num_rows), rng.choice(["blue", "red"], num_rows)
    y = 10.0 + 5.0 * (np.sin(2.0 * a) + (color == "red") + 0.1 * rng.normal(size=num_rows))
    return pd.DataFrame({"a": a, "color": color, "y": y})


def encoded(table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {"a": table["a"], "color=blue": table["color"] == "blue", "color=red": table["color"] == "red"}
    ).astype(float)


def rmse(model: CVGPRegressor, table: pd.DataFrame) -> float:
    return float(np.sqrt(np.mean((model.predict(table) - table["y"]) ** 2)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    write_parts(data, rows(), cuts=(1000, 2500), group=700)
    return data


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No table is small enough to be loaded, and none is one window."""
    monkeypatch.setattr(stream, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(stream, "WINDOW_BYTES", 1)
    monkeypatch.setattr(stream, "BLOCK_ROWS", 500)


def test_arrays_are_fitted_without_what_reads_files() -> None:
    code = (
        "import sys, numpy as np\n"
        "from cvgp import CVGPRegressor, TrainingOptions, TrainingOptions\n"
        "x = np.linspace(0, 1, 20)[:, None]\n"
        "CVGPRegressor(3, random_state=0, training=TrainingOptions(solver='adam', max_iter=2)).fit(x, x[:, 0])\n"
        "assert 'cvgp.tables.table' not in sys.modules\n"
        "assert 'pyarrow.dataset' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def fit(place: object, **options: object) -> CVGPRegressor:
    return make_regressor(**OPTIONS, **options).fit(place, "y")


def test_a_small_table_in_files_is_the_same_fit_as_its_rows(folder: Path) -> None:
    model = fit(str(folder / "*.parquet"))
    same = make_regressor(**OPTIONS).fit(encoded(rows()), rows()["y"])
    np.testing.assert_array_equal(model.predict(rows()), same.predict(encoded(rows())))
    assert model.elbo_ == same.elbo_


@pytest.mark.parametrize("kind", [str, ds.Dataset])
@pytest.mark.slow
def test_a_table_in_parts_is_learned_as_well_as_in_memory(folder: Path, kind: type, in_parts: None) -> None:
    model = fit(ds.dataset(folder) if kind is ds.Dataset else f"{folder}/part-*.parquet")
    assert rmse(model, rows()) < 1.05 * 0.5
    assert model.n_rows_ == NUM_ROWS


@pytest.mark.slow
def test_lbfgs_passes_over_parts_find_the_optimum_of_memory(folder: Path, in_parts: None) -> None:
    options = {"n_coreset": 10, "solver": "lbfgs", "max_iter": 30, "random_state": 0, "init": "greedy"}
    streamed = make_regressor(**options).fit(folder, "y")
    loaded = make_regressor(**options).fit(encoded(rows()), rows()["y"])
    assert streamed.elbo_ == pytest.approx(loaded.elbo_, rel=2e-2)


def test_names_and_schema_of_the_table_are_kept(folder: Path, in_parts: None, tmp_path: Path) -> None:
    model = fit(folder)
    assert (model.n_features_in_, model.feature_names_in_.tolist()) == (2, ["a", "color"])
    model.save(tmp_path / "m.cvgp")
    again = cvgp.load(tmp_path / "m.cvgp")
    assert again.schema_["target"] == "y"
    np.testing.assert_array_equal(again.predict(rows()), model.predict(rows()))


@pytest.mark.parametrize("ending", ["tsv.gz", "feather"])
@pytest.mark.parametrize("impute", [None, "median", "drop"])
@pytest.mark.slow
def test_the_command_line_learns_the_same_from_the_same_file(tmp_path: Path, ending: str, impute: str | None) -> None:
    table = rows(200)
    table["flag"] = pd.array(table["a"] > 0, dtype="boolean")
    if impute is not None:
        table.loc[::7, "a"] = np.nan
        table.loc[::11, "color"] = None
        table.loc[::13, "flag"] = pd.NA
    path = write(tmp_path / f"table.{ending}", table)
    options = [
        "--n-coreset",
        "8",
        "--max-iter",
        "5",
        "--random-state",
        "3",
        "--quiet",
        *(["--impute", impute] if impute else []),
    ]
    command = ["fit", str(path), "--target", "y", "--out", str(tmp_path / "m.cvgp"), *options]
    assert CliRunner().invoke(app, command).exit_code == 0
    by_command = cvgp.load(tmp_path / "m.cvgp")
    model = CVGPRegressor(8, random_state=3, training=TrainingOptions(max_iter=5)).fit(
        read_table(str(path), "y", impute=impute)
    )
    assert by_command.schema_ == model.schema_
    assert by_command.n_rows_ == model.n_rows_
    assert by_command.coreset_ == model.coreset_
    assert by_command.elbo_ == model.elbo_


def test_a_schema_does_not_outlive_a_fit_to_arrays(folder: Path) -> None:
    model = fit(folder)
    model.fit(rows()[["a"]].to_numpy()[:300], rows()["y"][:300])
    assert not hasattr(model, "schema_")


@pytest.mark.slow
def test_an_interrupted_fit_goes_on_to_the_same_model(
    folder: Path, in_parts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(event: FitEvent) -> None:
        if event.phase == "adam" and event.iteration == 101:
            raise KeyboardInterrupt

    whole = fit(folder)
    monkeypatch.setattr("cvgp.fitting.checkpoint.SECONDS_BETWEEN", 0.0)
    with pytest.raises(KeyboardInterrupt):
        fit(folder, checkpoint_dir=tmp_path / "run", callbacks=[stop])
    steps: list[int] = []
    resumed = fit(folder, checkpoint_dir=tmp_path / "run", callbacks=[lambda e: steps.append(e.iteration)])
    assert 102 in steps
    assert 50 not in steps
    np.testing.assert_array_equal(resumed.predict(rows()), whole.predict(rows()))


def test_early_stopping_holds_rows_out(folder: Path, in_parts: None) -> None:
    model = fit(folder, early_stopping=True)
    assert model.n_rows_ == 0.81 * NUM_ROWS  # a tenth is for the audit, and a tenth of the others is watched
    assert np.isfinite(model.history_["validation_rmse"]).any()
    assert rmse(model, rows()) < 0.7


def test_unseen_rows_of_a_table_in_parts_calibrate_and_then_join_the_model(folder: Path, in_parts: None) -> None:
    model = fit(folder)
    assert model.n_rows_ == NUM_ROWS
    assert model.decisions_.audit.taken == "passed"
    assert f"{NUM_ROWS // 20} unseen rows" in model.decisions_.audit.reason  # half of a tenth
    new = rows(2 * NUM_ROWS)[NUM_ROWS:]
    low, high = model.predict_interval(new, level=0.9).T
    assert 0.87 < np.mean((low <= new["y"]) & (new["y"] <= high)) < 0.93


def test_few_rows_of_many_columns_are_an_exact_gp_with_the_rows_of_the_audit(tmp_path: Path, in_parts: None) -> None:
    X = np.random.default_rng(0).normal(size=(600, 6))
    table = pd.DataFrame(X, columns=list("abcdef")).assign(y=np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2])
    write_parts(tmp_path, table, cuts=(250,))
    model = CVGPRegressor(kernel="matern32", noise="constant", random_state=0).fit(tmp_path, "y")
    assert model.solver_ == "exact"
    assert model.n_rows_ == len(model.coreset_) == 600


class Audited(Exception):  # noqa: N818 - a signal, not an error
    """Ends a fit where its audit begins."""


def test_rows_of_the_audit_have_no_part_in_what_comes_before_it(
    tmp_path: Path, in_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def until_audit(table: pd.DataFrame) -> tuple[list[np.ndarray], np.ndarray]:
        """The parameters and decisions of a fit before its audit, and the column `a` of the rows that are set aside."""
        found = []

        def end(request: object, fit: Fit, rows: Rows, dtype: object) -> None:
            state = [value.numpy() for value in fit.result.solution.model.state_dict().values()]
            found.extend([[*state, fit.decisions.seed, str(fit.decisions.input_warp)[:20]], rows.x[:, 0]])
            raise Audited

        monkeypatch.setattr("cvgp.estimators.regressor.audit", end)
        write_parts(tmp_path, table, cuts=(250,))
        with pytest.raises(Audited):
            make_regressor(**OPTIONS | {"max_iter": 20}).fit(tmp_path, "y")
        return found[0], found[1]

    table = rows(600).assign(t=pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(600), "h"))
    before, apart = until_audit(table)
    assert len(apart) == 60
    is_apart = table["a"].isin(apart)
    again, _ = until_audit(table.assign(y=table["y"] + 100.0 * is_apart))
    for one, other in zip(before, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_weights_and_known_noise_are_columns(tmp_path: Path, in_parts: None) -> None:
    table = rows().drop(columns="color").assign(w=2.0, v=0.01)
    write_parts(tmp_path, table, cuts=(3000,))
    model = make_regressor(**OPTIONS).fit(tmp_path, "y", sample_weight="w", noise_variance="v")
    assert model.n_features_in_ == 1
    assert model.n_rows_ == 2 * NUM_ROWS


def test_bad_rows_are_skipped_on_request_and_counted(tmp_path: Path, in_parts: None) -> None:
    table = rows()
    table.loc[100:199, "y"] = np.inf
    write_parts(tmp_path, table, cuts=(3000,))
    with pytest.raises(InvalidInputError, match=r"part-0\.parquet, data row 101: column 'y' is infinite.*on_bad_rows"):
        fit(tmp_path)
    model = make_regressor(**OPTIONS).fit(read_table(tmp_path, "y", on_bad_rows="skip"))
    assert model.n_bad_rows_ == 100
    assert model.n_rows_ == NUM_ROWS - 100


@pytest.mark.parametrize("fault", ["damage", "remove", "rewrite"])
def test_a_file_that_goes_bad_during_the_fit_does_not_matter(folder: Path, in_parts: None, fault: str) -> None:
    file, expected = folder / "part-2.parquet", fit(folder).elbo_

    def spoil(event: FitEvent) -> None:
        if event.phase == "adam" and event.iteration == 20:
            if fault == "remove":
                os.remove(file)
            elif fault == "damage":
                damage(file, position=200, length=6000)
            else:
                write(file, rows(100))

    assert fit(folder, callbacks=[spoil]).elbo_ == expected


@pytest.mark.parametrize(("y", "options"), [(np.ones(3), {}), ("y", {"sample_weight": np.ones(3)}), (3, {})])
def test_columns_of_a_table_in_files_are_given_by_name(folder: Path, y: object, options: dict[str, object]) -> None:
    with pytest.raises(InvalidTypeError, match=r"names of its columns|target of a table"):
        CVGPRegressor().fit(folder, y, **options)


def test_single_precision_that_overflowed_in_the_file_is_a_bad_row(tmp_path: Path, in_parts: None) -> None:
    with np.errstate(over="ignore"):
        table = rows().astype({"a": np.float32})
        table.loc[2999, "a"] = np.float32(1e30) * np.float32(1e30)
    write_parts(tmp_path, table, cuts=(3000,))
    with pytest.raises(InvalidInputError, match=r"part-0\.parquet, data row 3000: column 'a' is infinite"):
        fit(tmp_path)


def test_unscaled_values_beyond_single_precision_are_kept_in_double_or_refused(tmp_path: Path, in_parts: None) -> None:
    table = rows().drop(columns="color")
    table["a"] *= 1e39
    write_parts(tmp_path, table, cuts=(3000,))
    assert np.isfinite(fit(tmp_path, kernel=RBFKernel(), standardize=False).elbo_)
    with pytest.raises(InvalidInputError, match="beyond the range of float32"):
        fit(tmp_path, kernel=RBFKernel(), standardize=False, dtype="float32")
