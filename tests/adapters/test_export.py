"""Exported models predict as the estimators do: with NumPy alone to 1e-8, and in onnxruntime to 1e-5."""

import subprocess
import sys
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from gpytorch.kernels import PiecewisePolynomialKernel, ScaleKernel

import cvgp
from cvgp.adapters.standalone.cvgp_predictor import Predictor
from cvgp.data.transforms import learn_target
from cvgp.gp.noise import Contamination, heavy

N = 90
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 2))
X_NEW = np.concatenate([RNG.normal(size=(20, 2)) * 2.0, X[:5]])
F = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1]
Y = F + 0.2 * RNG.normal(size=N)
TRAINING = cvgp.TrainingOptions(max_iter=10)
REGRESSORS: dict[str, tuple[dict[str, Any], Any]] = {
    "defaults": ({"n_neighbors": 0}, Y),
    "constant mean and few points": ({"n_coreset": 10, "mean": "constant", "noise": "constant", "n_neighbors": 0}, Y),
    "noise that depends on x": (
        {"n_coreset": 12, "noise": "input-dependent", "n_neighbors": 0},
        F + np.exp(0.8 * X[:, 0]) * 0.2 * RNG.standard_t(3, N),
    ),
    "ranks": ({"n_coreset": 12, "input_warp": "rank", "n_neighbors": 0}, Y),
    "log": ({"n_coreset": 12, "target_transform": "log", "n_neighbors": 0}, np.exp(Y)),
    "yeo-johnson": ({"n_coreset": 12, "target_transform": "yeo-johnson", "n_neighbors": 0}, np.exp(Y)),
    "several outputs": ({"n_coreset": 12, "n_neighbors": 0}, np.column_stack([Y, 3.0 - 2.0 * F])),
    "sums and products": ({"n_coreset": 12, "kernel": "rbf*periodic + linear + rq", "n_neighbors": 0}, Y),
    "quasiperiodic": ({"n_coreset": 12, "kernel": "quasiperiodic", "n_neighbors": 0}, Y),
    "poisson": ({"n_coreset": 12, "likelihood": "poisson"}, RNG.poisson(np.exp(F))),
    "negative binomial": ({"n_coreset": 12, "likelihood": "negative_binomial"}, RNG.poisson(np.exp(F))),
    "gamma": ({"n_coreset": 12, "likelihood": "gamma"}, np.exp(Y)),
    "beta": ({"n_coreset": 12, "likelihood": "beta"}, 1.0 / (1.0 + np.exp(-Y))),
    "student t": ({"n_coreset": 12, "likelihood": "student_t"}, Y),
}
CLASSIFIERS: dict[str, tuple[dict[str, Any], Any]] = {
    "two classes": ({}, np.where(Y > 0, "high", "low")),
    "probit": ({"link": "probit"}, Y > 0),
    "three classes": ({}, np.digitize(Y, [-0.5, 0.5])),
}


@cache
def regressor(name: str) -> Any:
    options, y = REGRESSORS[name]
    # Outputs share a noise after early stopping.
    plain = cvgp.TrainingOptions(max_iter=10, dtype="float64", early_stopping=name == "several outputs")
    training = plain if "likelihood" not in options else None
    return cvgp.CVGPRegressor(random_state=0, training=training, **options).fit(X, y)


@cache
def classifier(name: str) -> Any:
    options, y = CLASSIFIERS[name]
    return cvgp.CVGPClassifier(n_coreset=8, random_state=0, **options).fit(X, y)


def run_onnx(model: Any, folder: Path, inputs: dict[str, Any], **options: Any) -> dict[str, Any]:
    path = folder / "model.onnx"
    model.export_onnx(path, **options)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return dict(zip([out.name for out in session.get_outputs()], session.run(None, inputs), strict=True))


def close(found: Any, wanted: Any, tolerance: float) -> None:
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * min(scale, 1.0))


@pytest.mark.parametrize("name", REGRESSORS)
def test_numpy_predicts_as_the_regressor(name: str, tmp_path: Path) -> None:
    model = regressor(name)
    model.export_numpy(tmp_path / "model.npz")
    alone = Predictor(tmp_path / "model.npz")
    for found, wanted in zip(alone.predict(X_NEW, return_std=True), model.predict(X_NEW, return_std=True), strict=True):
        close(found, wanted, 1e-8)
    if model.likelihood_ is None:
        close(alone.predict_interval(X_NEW, level=0.8), model.predict_interval(X_NEW, level=0.8), 1e-8)


@pytest.mark.parametrize("name", REGRESSORS)
def test_onnx_predicts_as_the_regressor(name: str, tmp_path: Path) -> None:
    model = regressor(name)
    level = 0.8 if model.likelihood_ is None else None
    found = run_onnx(model, tmp_path, {"x": X_NEW}, level=level)
    mean, sd = model.predict(X_NEW, return_std=True)
    close(found["mean"], mean, 1e-5)
    close(found["sd"], sd, 1e-5)
    if level is not None:
        both = np.stack([found["lower"], found["upper"]], axis=-1)
        close(both, model.predict_interval(X_NEW, level=level), 1e-5)


def with_parts(name: str) -> Any:
    """A fitted model that also has what only larger tables have."""
    if name == "calibration":
        x = np.random.default_rng(2).normal(size=(60, 2))
        return copy(regressor("yeo-johnson")).calibrate(x, np.exp(x[:, 0]))
    model = copy(regressor("noise that depends on x" if name == "tails" else "several outputs"))
    if name == "outliers":
        parts: dict[str, Any] = {"outliers": Contamination(0.1, np.array([30.0, 90.0]))}
    else:
        multipliers, weights = heavy(torch.zeros(1))
        parts = {"noise": model._gp.noise._replace(multipliers=multipliers, weights=weights)}
        parts["target"] = learn_target("yeo-johnson", np.exp(Y)[:, None]).with_limits(np.exp(Y)[:, None])
    model._gp = replace(model._gp, **parts)
    return model


@pytest.mark.parametrize("name", ["tails", "outliers", "calibration"])
def test_intervals_are_those_of_the_regressor(name: str, tmp_path: Path) -> None:
    model = with_parts(name)
    model.export_numpy(tmp_path / "model.npz")
    alone = Predictor(tmp_path / "model.npz")
    for level in (0.01, 0.5, 0.9, 0.999):
        close(alone.predict_interval(X_NEW, level=level), model.predict_interval(X_NEW, level=level), 1e-8)
    close(alone.predict(X_NEW, return_std=True)[1], model.predict(X_NEW, return_std=True)[1], 1e-8)
    found = run_onnx(model, tmp_path, {"x": X_NEW}, level=0.9)
    close(np.stack([found["lower"], found["upper"]], axis=-1), model.predict_interval(X_NEW), 1e-5)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classes_have_the_same_probabilities(name: str, tmp_path: Path) -> None:
    model = classifier(name)
    model.export_numpy(tmp_path / "model.npz")
    alone, wanted = Predictor(tmp_path / "model.npz"), model.predict_proba(X_NEW)
    close(alone.predict_proba(X_NEW), wanted, 1e-8)
    assert alone.predict(X_NEW).tolist() == model.predict(X_NEW).tolist()
    for opset in (13, 18):
        close(run_onnx(model, tmp_path, {"x": X_NEW}, opset=opset, overwrite=True)["probabilities"], wanted, 1e-5)


@pytest.mark.parametrize("kernel", ["matern32", "rbf + linear"])
def test_numpy_predicts_with_neighbors(kernel: str, tmp_path: Path) -> None:
    model = cvgp.CVGPRegressor(10, kernel=kernel, n_neighbors=8, random_state=0, training=TRAINING).fit(X, Y)
    model.export_numpy(tmp_path / "model.npz")
    alone = Predictor(tmp_path / "model.npz")
    for found, wanted in zip(alone.predict(X_NEW, return_std=True), model.predict(X_NEW, return_std=True), strict=True):
        close(found, wanted, 1e-8)
    close(alone.predict_interval(X_NEW), model.predict_interval(X_NEW), 1e-8)
    with pytest.raises(cvgp.CVGPError, match="neighbors"):
        model.export_onnx(tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_columns_of_a_table_are_read_from_a_dictionary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    n = 160
    table = pd.DataFrame(
        {
            "size": np.where(rng.uniform(size=n) < 0.1, np.nan, rng.normal(size=n)),
            "full": rng.normal(size=n),
            "color": rng.choice(["red", "green", "blue"], n),
            "gap": np.where(rng.uniform(size=n) < 0.1, None, rng.choice(["a", "b"], n)),
            "town": rng.choice([f"town {i}" for i in range(15)], n),
            "is_new": rng.uniform(size=n) < 0.5,
            "day": np.datetime64("2021-01-01T06:00", "us") + rng.integers(0, 900, n).astype("timedelta64[D]"),
        }
    )
    target = table["full"] + (table["color"] == "red") + table["is_new"] + 0.2 * rng.normal(size=n)
    options: dict[str, Any] = {"n_neighbors": 0, "random_state": 0, "training": TRAINING}
    model = cvgp.CVGPRegressor(12, **options).fit(table, target.to_numpy())
    new = table.iloc[:12].copy()
    new.loc[new.index[0], "color"] = "violet"
    new.loc[new.index[1], ["size", "gap"]] = None
    new.loc[new.index[2], "full"] = np.nan
    new.loc[new.index[3], "town"] = "another town"
    new.loc[new.index[4], "town"] = None
    monkeypatch.syspath_prepend(tmp_path)
    model.export_numpy(tmp_path / "model.npz")
    alone = Predictor(tmp_path / "model.npz")
    columns = {name: new[name].to_numpy() for name in new.columns}
    with pytest.warns(cvgp.CVGPWarning):
        wanted = model.predict(new, return_std=True)
    for found, own in zip(alone.predict(columns, return_std=True), wanted, strict=True):
        close(found, own, 1e-8)
    with pytest.warns(cvgp.CVGPWarning):
        close(alone.predict_interval(columns), model.predict_interval(new), 1e-8)
    with pytest.raises(ValueError, match="day"):
        alone.predict({name: columns[name] for name in ("size", "full")})
    with pytest.raises(ValueError, match="columns"):
        alone.predict([[1.0] * 7])
    with pytest.raises(cvgp.CVGPError, match="columns that are not numbers"):
        model.export_onnx(tmp_path / "model.onnx")


def test_counts_need_their_exposures(tmp_path: Path) -> None:
    exposure = np.linspace(0.5, 4.0, N)
    counts = np.random.default_rng(1).poisson(exposure * np.exp(F))
    model = cvgp.CVGPRegressor(10, likelihood="poisson", random_state=0).fit(X, counts, exposure=exposure)
    model.export_numpy(tmp_path / "model.npz")
    alone, years = Predictor(tmp_path / "model.npz"), np.full(len(X_NEW), 2.0)
    wanted = model.predict(X_NEW, exposure=years)
    close(alone.predict(X_NEW, exposure=years), wanted, 1e-8)
    close(run_onnx(model, tmp_path, {"x": X_NEW, "exposure": years[:, None]}, level=None)["mean"], wanted, 1e-5)
    with pytest.raises(ValueError, match="exposure"):
        alone.predict(X_NEW)
    with pytest.raises(ValueError, match="poisson"):
        alone.predict_interval(X_NEW, exposure=years)


ALONE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "scipy", "sklearn", "pandas", "cvgp", "gpytorch"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
from cvgp_predictor import Predictor
model = Predictor("model.npz")
rows = {"a": [0.5, None], "b": ["x", "y"]}
mean, sd = model.predict(rows, return_std=True)
low, high = model.predict_interval(rows, level=0.9).T
assert (low < mean).all() and (mean < high).all() and (sd > 0.0).all()
print("torch" in sys.modules)
"""


def test_the_exported_files_need_numpy_alone(tmp_path: Path) -> None:
    table = pd.DataFrame({"a": [*X[:-1, 0], None], "b": np.where(X[:, 1] > 0, "x", "y")})
    cvgp.CVGPRegressor(8, n_neighbors=0, random_state=0).fit(table, Y).export_numpy(tmp_path / "model.npz")
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, '.'){ALONE}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"
    lines = (tmp_path / "cvgp_predictor.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) < 200


def test_existing_files_are_kept(tmp_path: Path) -> None:
    model = regressor("defaults")
    for write, path in ((model.export_numpy, tmp_path / "a.npz"), (model.export_onnx, tmp_path / "a.onnx")):
        path.write_bytes(b"mine")
        with pytest.raises(cvgp.CVGPError, match="overwrite"):
            write(path)
        assert path.read_bytes() == b"mine"
        write(path, overwrite=True)
        assert path.read_bytes() != b"mine"
    model.export_numpy(tmp_path / "second.npz")  # shares the predictor
    (tmp_path / "cvgp_predictor.py").write_text("mine", encoding="utf-8")
    with pytest.raises(cvgp.CVGPError, match="cvgp_predictor"):
        model.export_numpy(tmp_path / "third.npz")
    assert not (tmp_path / "third.npz").exists()


@pytest.mark.parametrize("opset", [12, 9999, "17", True])
def test_an_unusable_opset_is_an_error(opset: Any, tmp_path: Path) -> None:
    with pytest.raises(cvgp.CVGPError, match="opset"):
        regressor("defaults").export_onnx(tmp_path / "model.onnx", opset=opset)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_exported_is_named(tmp_path: Path) -> None:
    model = cvgp.CVGPRegressor(
        8, kernel=ScaleKernel(PiecewisePolynomialKernel()), n_neighbors=0, training=TRAINING
    ).fit(X, Y)
    for write in (model.export_numpy, model.export_onnx):
        with pytest.raises(cvgp.CVGPError, match="PiecewisePolynomialKernel"):
            write(tmp_path / "model.npz")
    with pytest.raises(cvgp.CVGPError, match="gamma"):
        regressor("gamma").export_onnx(tmp_path / "model.onnx")
    with pytest.raises(cvgp.CVGPError, match="npz"):
        regressor("gamma").export_numpy(tmp_path / "model.txt")
    assert not list(tmp_path.iterdir())
