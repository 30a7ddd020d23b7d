from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import cvgp
from cvgp import CVGPRegressor
from cvgp.errors import InvalidInputError
from cvgp.estimators.inputs import check_prediction
from cvgp.estimators.updating import _known_source
from cvgp.parallel.group import ALONE
from cvgp.tables import stream
from cvgp.tables.encode import Inputs
from tests.flat_options import make_regressor

N = 120
rng = np.random.default_rng(4)
X = rng.uniform(-2.0, 2.0, size=(N, 2))
Y = 10.0 + 3.0 * np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=N)
NEW = rng.uniform(-2.0, 2.0, size=(30, 2))
NEW_Y = 10.0 + 3.0 * np.sin(3.0 * NEW[:, 0]) + NEW[:, 1]
SIZE = 6


def regressor(**options: Any) -> CVGPRegressor:
    return make_regressor(**{"n_coreset": SIZE, "max_iter": 10, "noise": "constant", "random_state": 0, **options})


@pytest.fixture(scope="module")
def small() -> CVGPRegressor:
    return regressor().fit(X, Y)


@pytest.fixture
def model(small: CVGPRegressor) -> CVGPRegressor:
    return deepcopy(small)


@pytest.mark.parametrize("options", [{}, {"solver": "adam"}, {"bound": "elbo"}, {"mean": "constant"}], ids=str)
def test_bound_of_the_fit_does_not_fall(options: dict[str, Any]) -> None:
    model = regressor(**options).fit(X, Y)
    bounds = [model.elbo_]
    for size in (7, 12, 40, 100):
        model.grow(size, X, Y)
        bounds.append(model.elbo_)
    assert (np.diff(bounds) > -1e-4).all()
    assert bounds[-1] > bounds[0] + 10.0


@pytest.mark.parametrize("in_memory", [True, False], ids=["loaded", "read in parts"])
def test_table_in_files_grows_as_its_rows_do(in_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})
    frame.to_parquet(tmp_path / "table.parquet")
    model = regressor().fit(frame[["a", "b"]], Y)
    other = deepcopy(model)
    other.grow(N + SIZE, frame[["a", "b"]], Y)
    if not in_memory:
        monkeypatch.setattr(stream, "IN_MEMORY_BYTES", 0)
    model.grow(N + SIZE, tmp_path / "table.parquet", "y")
    np.testing.assert_allclose(model.predict(frame[["a", "b"]]), other.predict(frame[["a", "b"]]), atol=1e-5)


def test_grow_on_a_table_keeps_the_encoding_of_the_fit() -> None:
    rng = np.random.default_rng(0)
    city = rng.integers(30, size=400)
    rows = pd.DataFrame({"a": rng.normal(size=400), "city": [f"c{i:02}" for i in city], "color": "red"})
    rows.loc[::2, "color"] = "blue"
    rows["y"] = rows["a"] + np.sin(city) + 0.1 * rng.normal(size=400)
    model = regressor().fit(rows, "y")
    schema = model.schema_
    other = rows[rows["color"] == "red"].assign(y=lambda t: t["y"] + 5.0)  # other levels, other effects
    model.grow(SIZE + 5, other, "y")
    assert model.schema_ == schema
    source, _ = _known_source(model, other, "y", None, None, ALONE)
    expected = np.unique(model._gp.scaling.scale_x(frame_inputs_of(model, other)), axis=0)
    np.testing.assert_allclose(np.unique(source.data.x.numpy(), axis=0), expected)


def frame_inputs_of(model: CVGPRegressor, rows: pd.DataFrame) -> np.ndarray:
    found = check_prediction(model, rows.drop(columns="y"))
    return found.x if isinstance(found, Inputs) else found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SIZE, X, Y), "more than the present 6; got 6. To have fewer points, use prune"),
        ((2, X, Y), "more than the present 6"),
        ((0, X, Y), "n must be a whole number"),
        ((20.0, X, Y), "n must be a whole number"),
        ((N + SIZE + 1, X, Y), "only 120 distinct rows"),
        ((20, X[:, :1], Y), "2 features"),
        ((20, X, Y[:5]), "inconsistent numbers of samples"),
        ((20, X, np.stack([Y, Y], 1)), "the 1 outputs"),
        ((20, np.where(X > 1.9, np.inf, X), Y), "infinity"),
        ((20, X, Y, -np.ones(N)), "weights are at least 0"),
        ((20, X, Y, None, -np.ones(N)), "variances"),
    ],
)
def test_what_cannot_be_used_is_refused(model: CVGPRegressor, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        model.grow(*arguments)
    assert len(model.coreset_) == SIZE


# Quality by size


def test_bound_rises_with_the_size(small: CVGPRegressor) -> None:
    quality = cvgp.quality_by_size(small, X, Y, sizes=[50, 3, 6, 20, 3], held_out=(NEW, NEW_Y))
    assert quality["size"].tolist() == [3, 6, 20, 50]
    assert (np.diff(quality["bound_per_row"]) > 0).all()
    assert quality["rmse"][-1] < quality["rmse"][0]


def test_scores_at_the_present_size_are_those_of_the_model(small: CVGPRegressor) -> None:
    quality = cvgp.quality_by_size(small, X, Y, sizes=[SIZE], held_out=(NEW, NEW_Y))
    assert quality["rmse"][0] == pytest.approx(cvgp.metrics.rmse(NEW_Y, small.predict(NEW)), rel=1e-4)
    density = small.log_predictive_density(NEW, NEW_Y).mean()
    assert quality["mean_log_likelihood"][0] == pytest.approx(density, rel=1e-3)


def test_rows_that_are_held_out_are_the_last_fifth_and_have_no_say(small: CVGPRegressor) -> None:
    spoilt = np.where(np.arange(N) < 96, Y, 1e3)
    quality, other = (cvgp.quality_by_size(small, X, y) for y in (Y, spoilt))
    np.testing.assert_array_equal(quality["bound_per_row"], other["bound_per_row"])
    assert (other["rmse"] > 900.0).all()


def test_quality_weighs_rows_by_their_noise_as_the_fit_does() -> None:
    rng = np.random.default_rng(5)
    x = rng.uniform(-3.0, 3.0, (400, 1))
    sd = np.where(x[:, 0] < 0.0, 0.01, 1.0)
    y = np.sin(x[:, 0]) + sd * rng.normal(size=400)
    model = regressor(noise="input-dependent", n_neighbors=0, bound="elbo").fit(x, y)
    assert model._gp.weighs_rows
    quality = cvgp.quality_by_size(model, x, y, sizes=[SIZE], held_out=(x, y))
    assert quality["bound_per_row"][0] == pytest.approx(model.elbo_ / 400, abs=0.3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sizes": [0]}, "each of sizes must be a whole number"),
        ({"sizes": [1000]}, "distinct rows"),
        ({"held_out": (NEW[:, :1], NEW_Y)}, "2 features"),
    ],
)
def test_quality_refuses_what_cannot_be_used(small: CVGPRegressor, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        cvgp.quality_by_size(small, X, Y, **given)
