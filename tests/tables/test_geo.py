"""Places on the sphere and numbers that go round: columns whose distances are not those of their numbers."""

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from cvgp import CVGPClassifier, CVGPRegressor, TrainingOptions, load, merge, read_table
from cvgp.adapters.standalone.cvgp_predictor import Predictor
from cvgp.errors import CVGPError, FileFormatError, InvalidInputError, InvalidTypeError
from cvgp.estimators.display import model_facts
from cvgp.estimators.frames import user_columns
from cvgp.plots import plot_coreset, plot_partial_dependence
from cvgp.tables import stream
from cvgp.tables.columns import EARTH_RADIUS, Schema
from tests.tables.helpers import learned

mpl.use("Agg")
GEO = ("lat", "lon")
RNG = np.random.default_rng(0)


def stations(count: int, seed: int = 0, east: float = 0.0) -> pd.DataFrame:
    """Stations on both sides of the date line, or `east` of there, with a smooth field and a height."""
    rng = np.random.default_rng(seed)
    lat, lon, height = rng.uniform(-70.0, -40.0, count), rng.uniform(-20.0, 20.0, count), rng.normal(size=count)
    field = np.sin(lat / 8.0) + np.cos(lon / 6.0) + 0.3 * height + 0.1 * rng.normal(size=count)
    return pd.DataFrame({"lat": lat, "lon": (lon + east) % 360.0 - 180.0, "height": height, "t": field})


def features(lat: Any, lon: Any) -> np.ndarray:
    table = pd.DataFrame({"lat": lat, "lon": lon, "y": np.arange(len(lat), dtype=float)})
    return learned(table, geo=GEO).load().x


def quick(**options: Any) -> CVGPRegressor:
    known = {"n_coreset": 12, "n_neighbors": 0, "noise": "constant", "training": TrainingOptions(max_iter=20)}
    return CVGPRegressor(**known | options, random_state=0)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def model() -> CVGPRegressor:
    return CVGPRegressor(random_state=0).fit(stations(150), "t", geo=GEO)


def test_distances_between_rows_are_chords_of_the_sphere_in_km() -> None:
    lat, lon = RNG.uniform(-90.0, 90.0, 30), RNG.uniform(-180.0, 360.0, 30)
    x, (a, b) = features(lat, lon), np.radians([lat, lon])
    haversine = np.sin((a[:, None] - a) / 2) ** 2 + np.cos(a[:, None]) * np.cos(a) * np.sin((b[:, None] - b) / 2) ** 2
    distance = np.linalg.norm(x[:, None] - x, axis=2)
    np.testing.assert_allclose(distance, 2.0 * EARTH_RADIUS * np.sqrt(haversine), atol=1e-3)


@pytest.mark.parametrize(
    ("one", "other", "km"),
    [((10.0, 179.9), (10.0, -179.9), 21.9), ((89.9, 0.0), (89.9, 180.0), 22.2), ((-90.0, 5.0), (-90.0, 200.0), 0.0)],
    ids=["date line", "north pole", "south pole"],
)
def test_points_across_the_date_line_and_a_pole_are_neighbors(one: Any, other: Any, km: float) -> None:
    x = features(*np.transpose([one, other, (0.0, 0.0)]))
    assert np.linalg.norm(x[0] - x[1]) == pytest.approx(km, abs=0.1)


def test_predictions_do_not_depend_on_where_longitudes_begin(model: CVGPRegressor) -> None:
    new = stations(20, seed=1)
    np.testing.assert_allclose(model.predict(new), model.predict(new.assign(lon=new["lon"] % 360.0)), rtol=1e-9)
    turned = CVGPRegressor(random_state=0).fit(stations(150, east=90.0), "t", geo=GEO)
    np.testing.assert_allclose(model.predict(new), turned.predict(stations(20, seed=1, east=90.0)), atol=0.02)


def test_a_place_has_one_scale_and_one_lengthscale_in_km(model: CVGPRegressor) -> None:
    place, height = model.lengthscales_[1:], model.lengthscales_[0]
    np.testing.assert_allclose(place, place[0], rtol=1e-9)
    assert 200.0 < place[0] < 5000.0
    assert height < 100.0
    assert len(np.unique(model._gp.scaling.x_scale[1:])) == 1
    assert "km" in model_facts(model)["place"]


@pytest.mark.parametrize("options", [{"kernel": "rbf+linear"}, {"n_neighbors": 10}, {"ard": False}])
def test_the_lengthscale_is_one_in_every_kernel(options: dict[str, Any]) -> None:
    model = quick(**options).fit(stations(120), "t", geo=GEO)
    parts = [part for part in model.kernel_.modules() if getattr(part, "has_lengthscale", False)]
    for part in parts:
        own = part.lengthscale.detach().numpy()[0, -3:]
        np.testing.assert_allclose(own, own[0], rtol=1e-9)


def test_a_place_is_never_warped() -> None:
    model = quick(input_warp="rank").fit(stations(100), "t", geo=GEO)
    assert model._gp.scaling.warp.warped.tolist() == [True, False, False, False]


def test_both_columns_have_one_importance_and_one_picture(model: CVGPRegressor) -> None:
    assert [column.name for column in user_columns(model)] == ["height", "lat, lon"]
    assert model.feature_importances_.shape == (2,)
    low, high = plot_partial_dependence(model, "lat, lon").get_xlim()
    assert -75.0 < low < high < -35.0
    plot_coreset(model, ["height", "lat, lon"])


def test_a_saved_model_predicts_the_same(model: CVGPRegressor, tmp_path: Path) -> None:
    model.save(tmp_path / "m.cvgp")
    again, new = load(tmp_path / "m.cvgp"), stations(20, seed=1)
    np.testing.assert_allclose(again.predict(new), model.predict(new), rtol=1e-10)
    np.testing.assert_allclose(again.lengthscales_, model.lengthscales_, rtol=1e-10)
    repeated = CVGPRegressor(random_state=0).fit(stations(150), "t", geo=GEO, decisions=again.decisions_)
    np.testing.assert_allclose(repeated.predict(new), model.predict(new), atol=1e-3)


def test_merged_models_have_one_scale_too() -> None:
    shards = [quick().fit(stations(120, seed), "t", geo=GEO) for seed in (0, 1)]
    merged, new = merge(shards, random_state=0), stations(20, seed=2)
    np.testing.assert_allclose(merged.lengthscales_[1:], merged.lengthscales_[1], rtol=1e-9)
    np.testing.assert_allclose(merged.predict(new), merged.predict(new.assign(lon=new["lon"] % 360.0)), rtol=1e-9)


def test_a_model_without_torch_reads_places_and_cycles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cvgp_table", raising=False)
    table = stations(150).assign(hour=np.random.default_rng(2).uniform(0.0, 24.0, 150))
    read = read_table(table, "t", geo=GEO, periods={"hour": 24})
    model = quick().fit(read)
    model.export_numpy(tmp_path / "m.npz")
    new = table.drop(columns="t").iloc[:20]
    found = Predictor(tmp_path / "m.npz").predict({name: new[name].to_numpy() for name in new.columns})
    np.testing.assert_allclose(found, model.predict(new), rtol=1e-8)


def test_a_classifier_knows_places() -> None:
    table = stations(80)
    table["t"] = np.where(table["t"] > table["t"].median(), "warm", "cold")
    model = CVGPClassifier(random_state=0).fit(table, "t", geo=GEO)
    new = table.assign(lon=table["lon"] % 360.0)
    np.testing.assert_allclose(model.predict_proba(new), model.predict_proba(table), rtol=1e-9)


def test_tables_larger_than_memory_have_the_same_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stations(400).to_csv(tmp_path / "a.csv", index=False)
    whole = learned(tmp_path / "a.csv", "t", geo=GEO)
    monkeypatch.setattr(stream, "IN_MEMORY_BYTES", 0)
    monkeypatch.setattr(stream, "BLOCK_ROWS", 64)
    parts = learned(tmp_path / "a.csv", "t", geo=GEO)
    np.testing.assert_allclose(parts.moments.means, whole.moments.means, rtol=1e-9)
    model = quick().fit(tmp_path / "a.csv", "t", geo=GEO)
    assert len(np.unique(model._gp.scaling.x_scale[1:])) == 1


def test_rows_without_a_place_are_refused_or_dropped(model: CVGPRegressor) -> None:
    table = stations(60)
    table.loc[3, "lon"] = np.nan
    with pytest.raises(InvalidInputError, match="'lon' is missing"):
        CVGPRegressor().fit(table, "t", geo=GEO)
    with pytest.raises(InvalidInputError, match="'lon' is missing"):
        model.predict(table)
    assert learned(table, "t", geo=GEO, impute="drop").num_rows == 59


@pytest.mark.parametrize(
    ("change", "geo", "message"),
    [
        ({"lat": 200.0}, GEO, "from -90 to 90, but it holds 200"),
        ({"lon": 361.0}, GEO, "from -180 to 360, but it holds 361"),
        ({"lat": "north"}, GEO, "'lat', which must hold numbers"),
        ({"lat": pd.Timestamp("2024-05-06")}, GEO, "'lat', which must hold numbers"),
        ({}, ("latitude", "lon"), "no column 'latitude', which geo names"),
        ({}, ("lat", "t"), "geo or periods names .'t'., which is the target"),
        ({}, ("lat", "lat"), "two columns"),
        ({}, ("lat",), "two columns"),
        ({}, "lat", "two columns"),
        ({}, (1, 2), "names of columns"),
    ],
)
def test_columns_that_are_no_place_are_refused(change: dict[str, Any], geo: Any, message: str) -> None:
    with pytest.raises(CVGPError, match=message):
        CVGPRegressor().fit(stations(40).assign(**change), "t", geo=geo)


def test_an_array_has_no_columns_to_name() -> None:
    with pytest.raises(InvalidInputError, match="Give a DataFrame"):
        CVGPRegressor().fit(np.ones((30, 2)), np.ones(30), geo=GEO)


def test_a_damaged_schema_is_refused() -> None:
    stored = learned(stations(40), "t", geo=GEO).schema.to_json()
    for change in ({"kind": "numeric"}, {"kind": "cyclic"}, {"period": 3.0}):
        columns = [*stored["columns"][:-1], stored["columns"][-1] | change]
        with pytest.raises(FileFormatError):
            Schema.from_json(stored | {"columns": columns})


def test_the_end_of_a_cycle_is_next_to_its_beginning() -> None:
    table = pd.DataFrame({"hour": [23.9, 0.1, 12.0, np.nan], "y": np.arange(4.0)})
    x = learned(table, periods={"hour": 24}).load().x
    assert np.linalg.norm(x[0] - x[1]) < 0.1
    assert np.linalg.norm(x[0] - x[2]) > 1.9
    np.testing.assert_array_equal(x[3], [0.0, 0.0, 1.0])  # the center of the circle, and `is missing`


def test_a_cycle_is_learned_across_its_end(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    hour = rng.uniform(1.0, 23.0, 150)
    table = pd.DataFrame({"hour": hour, "y": np.cos(2.0 * np.pi * hour / 24.0) + 0.1 * rng.normal(size=150)})
    model = quick().fit(read_table(table, "y", periods={"hour": 24}))
    model.save(tmp_path / "m.cvgp")
    again = load(tmp_path / "m.cvgp")
    np.testing.assert_allclose(again.predict(pd.DataFrame({"hour": [0.0, 24.0, 48.0]})), 1.0, atol=0.15)
    assert plot_partial_dependence(again).get_xlim()[1] == pytest.approx(24.0, abs=2.0)


@pytest.mark.parametrize(
    ("periods", "error", "message"),
    [
        ({"hour": 0}, InvalidInputError, "above 0"),
        ({"hour": "day"}, InvalidInputError, "above 0"),
        ({"day": 7}, InvalidInputError, "no column 'day', which periods names"),
        ({"name": 7}, InvalidTypeError, "must hold numbers"),
        (["hour"], InvalidTypeError, "maps columns to numbers"),
    ],
)
def test_periods_that_cannot_be_used_are_refused(periods: Any, error: type[Exception], message: str) -> None:
    table = pd.DataFrame({"hour": np.arange(6.0), "name": ["a", "b"] * 3, "y": np.arange(6.0)})
    with pytest.raises(error, match=message):
        read_table(table, "y", periods=periods).learn()
