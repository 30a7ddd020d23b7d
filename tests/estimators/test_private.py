"""private=True: no point equals a row, and the file tells the values of no row."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import cvgp
from cvgp import CVGPClassifier, CVGPRegressor, TrainingOptions
from cvgp.errors import InvalidInputError
from cvgp.fitting.privacy import FEWEST
from cvgp.tables import stream

Array = np.ndarray[Any, Any]
QUICK: dict[str, Any] = {"random_state": 0, "private": True}


def table(rows: int = 400, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2))
    return X, np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1] + 0.2 * rng.normal(size=rows)


def rows_of(kind: str) -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    X, y = table()
    if kind == "integers":
        X = rng.integers(0, 5, (400, 2)).astype(np.float64)
    elif kind == "indicators":
        X = np.eye(4)[rng.integers(0, 4, 400)]
    elif kind == "copies":
        X, y = np.repeat(X[:130], 3, axis=0), np.repeat(y[:130], 3)
    elif kind == "a line":
        X = X[:, :1]
    elif kind == "far rows":
        X[:3] = [[40.0, 0.0], [0.0, 60.0], [-90.0, -90.0]]
    elif kind == "few rows":
        X, y = X[:100], y[:100]
    elif kind == "a constant column":
        X = np.column_stack([X, np.full(400, 3.0)])
    return X, y


KINDS = ("plain", "integers", "indicators", "copies", "a line", "far rows", "few rows", "a constant column")


def distances(points: Array, X: Array) -> Array:
    """Between each point and each row, in the column where they differ most, in standard deviations [M, N]."""
    varies = X.std(0) > 0
    return np.abs((points[:, None, varies] - X[None, :, varies]) / X[:, varies].std(0)).max(-1)


@pytest.mark.filterwarnings("ignore:Columns with one value")
@pytest.mark.parametrize("kind", KINDS)
def test_no_point_is_a_row(kind: str) -> None:
    X, y = rows_of(kind)
    model = CVGPRegressor(**QUICK).fit(X, y)
    assert len(model.coreset_) <= len(X) // FEWEST
    assert distances(model.coreset_.X, X).min() > 1e-9
    assert not (model.coreset_.X[:, None] == X[None]).all(-1).any()


def test_without_it_points_are_rows() -> None:
    X, y = rows_of("few rows")
    points = CVGPRegressor(random_state=0, n_neighbors=0).fit(X, y).coreset_.X
    assert (points[:, None] == X[None]).all(-1).any()


def test_no_point_is_a_row_that_was_set_aside_or_held_out() -> None:
    X, y = rows_of("integers")
    X, y = np.vstack([X, X + np.array([7.0, 0.0])]), np.concatenate([y, y])
    options = TrainingOptions(early_stopping=True, max_iter=50)
    model = CVGPRegressor(n_coreset=20, training=options, **QUICK).fit(X, y)
    assert distances(model.coreset_.X, X).min() > 1e-9


def test_no_point_is_a_row_in_other_units_of_the_model() -> None:
    X, y = rows_of("integers")
    model = CVGPRegressor(standardize=False, n_coreset=10, **QUICK).fit(1000.0 * X, y)
    assert distances(model.coreset_.X, 1000.0 * X).min() > 1e-9


def found_in(path: Path, values: Array) -> list[float]:
    """The values that are in a file as numbers in double precision, or written out."""
    content = path.read_bytes()
    return [v for v in values.ravel().tolist() if any(own in content for own in (np.float64(v).tobytes(), b"%r" % v))]


def days_of(frame: pd.DataFrame) -> Array:
    """The column of dates in days, as a fit sees it."""
    days: Array = frame["day"].to_numpy().astype("datetime64[us]").astype(np.float64) / 86_400e6
    return days


def test_no_value_of_a_row_is_in_the_file(tmp_path: Path) -> None:
    X, y = table()
    X[7], y[7] = [31.41592653, -27.18281828], 99.87654321  # the ends of all columns
    model = CVGPRegressor(**QUICK).fit(pd.DataFrame(X, columns=["a", "b"]), y)
    model.save(tmp_path / "model.cvgp")
    assert found_in(tmp_path / "model.cvgp", np.column_stack([X, y])) == []


def test_without_it_values_of_rows_are_in_the_file(tmp_path: Path) -> None:
    X, y = table(60)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(
        day=pd.date_range("2024-01-01 07:08:09.1", periods=60, freq="3h")
    )
    CVGPRegressor(random_state=0, n_neighbors=0).fit(frame, y).save(tmp_path / "model.cvgp")
    assert found_in(tmp_path / "model.cvgp", days_of(frame)) != []


def test_no_value_of_a_row_with_gaps_and_dates_is_in_the_file(tmp_path: Path) -> None:
    X, y = table(401)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=y)
    frame.loc[:20, "a"] = np.nan
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.random.default_rng(2).uniform(0, 300, 401), "D")
    model = CVGPRegressor(n_coreset=20, **QUICK).fit(frame, "y")
    model.save(tmp_path / "model.cvgp")
    every = np.column_stack([frame[["a", "b", "y"]].to_numpy(), days_of(frame)])
    assert found_in(tmp_path / "model.cvgp", every[~np.isnan(every).any(axis=1)]) == []


def text_table(levels: int) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"a": rng.normal(size=300), "place": [f"place{i % levels}" for i in range(300)]})
    frame.loc[[4, 9], "place"] = "hermitage"
    return frame.assign(y=np.sin(frame["a"]) + (frame["place"] == "place1") + 0.1 * rng.normal(size=300))


@pytest.mark.parametrize("levels", [3, 14])
def test_a_text_of_few_rows_is_not_in_the_file(tmp_path: Path, levels: int) -> None:
    frame = text_table(levels)
    model = CVGPRegressor(**QUICK).fit(frame, "y")
    model.save(tmp_path / "model.cvgp")
    content = (tmp_path / "model.cvgp").read_bytes()
    assert b"hermitage" not in content
    assert b"place1" in content


def test_a_row_with_a_rare_text_can_be_predicted() -> None:
    frame = text_table(3)
    model = CVGPRegressor(**QUICK).fit(frame, "y")
    with pytest.warns(cvgp.errors.CVGPWarning, match="place"):
        predicted = model.predict(frame.iloc[[4, 5]])
    assert np.isfinite(predicted).all()


def test_residuals_are_those_of_several_rows() -> None:
    model = CVGPRegressor(n_coreset=20, kernel="matern32", **QUICK).fit(*table(600))
    calibration = model._gp.calibration
    assert calibration is not None
    assert calibration.weights.min() >= FEWEST


def test_intervals_have_their_level() -> None:
    X, y = table(1000)
    model = CVGPRegressor(n_coreset=20, kernel="matern32", **QUICK).fit(X[:300], y[:300])
    low, high = model.calibrate(X[300:600], y[300:600]).predict_interval(X[600:], level=0.8).T
    assert 0.7 < ((low <= y[600:]) & (y[600:] <= high)).mean() < 0.9


def test_accuracy_is_near_that_of_a_fit_without_neighbors() -> None:
    (X, y), errors = table(1000), []
    for private in (True, False):
        model = CVGPRegressor(n_neighbors=0, kernel="matern32", private=private, random_state=0).fit(X[:300], y[:300])
        errors.append(np.sqrt(np.mean((model.predict(X[300:]) - y[300:]) ** 2)))
    assert errors[0] < 1.1 * errors[1]


REFUSED: dict[str, Callable[[CVGPRegressor, Array, Array], object]] = {
    "grow": lambda model, X, y: model.grow(60, X, y),
    "condition": lambda model, X, y: model.condition(X[:20], y[:20]),
    "adapt": lambda model, X, y: model.partial_fit(X, y, adapt=True),
    "at least": lambda model, X, y: model.partial_fit(X[:9], y[:9]),
    "calibrated": lambda model, X, y: model.calibrate(X[:19], y[:19]),
    "equals a point": lambda model, X, y: model.partial_fit(np.vstack([X, model.coreset_.X[:1]]), np.append(y, 0.0)),
}


@pytest.fixture(scope="module")
def fitted() -> CVGPRegressor:
    return CVGPRegressor(n_coreset=20, **QUICK).fit(*table(300))


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_tell_rows_is_refused_of_a_private_model(name: str, fitted: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match=name):
        REFUSED[name](fitted, *table(100, seed=8))


REFUSED_FITS: dict[str, dict[str, Any]] = {
    "n_neighbors": {"n_neighbors": 5},
    "input_warp": {"input_warp": "rank"},
    "target_transform": {"target_transform": "yeo-johnson"},
    "noise": {"noise": "input-dependent"},
    "init": {"training": TrainingOptions(init="greedy")},
    "n_coreset=31": {"n_coreset": 31},
}


@pytest.mark.parametrize("name", REFUSED_FITS)
def test_what_would_keep_rows_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidInputError, match=name):
        CVGPRegressor(**QUICK, **REFUSED_FITS[name]).fit(*table(300))


def test_decisions_of_another_fit_are_refused(fitted: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match="decisions"):
        CVGPRegressor(**QUICK).fit(*table(300), decisions=fitted.decisions_)


def test_too_few_rows_are_refused() -> None:
    X, y = table(99)
    with pytest.raises(InvalidInputError, match="100 rows"):
        CVGPRegressor(**QUICK).fit(np.vstack([X, X[:50]]), np.concatenate([y, y[:50]]))


def test_a_column_of_few_values_is_refused() -> None:
    X, y = table(200)
    X[9:, 1] = np.nan
    with pytest.raises(InvalidInputError, match="x1"):
        CVGPRegressor(**QUICK).fit(X, y)


def test_learning_more_rows_keeps_the_points(fitted: CVGPRegressor, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.cvgp")
    model, (X, y) = cvgp.load(tmp_path / "model.cvgp"), table(100, seed=8)
    model.partial_fit(X, y)
    assert np.array_equal(model.coreset_.X, fitted.coreset_.X)
    assert distances(model.coreset_.X, np.vstack([X, table(300)[0]])).min() > 1e-9


def test_a_loaded_model_is_still_private(fitted: CVGPRegressor, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.cvgp")
    again = cvgp.load(tmp_path / "model.cvgp")
    assert np.array_equal(again.predict(table()[0]), fitted.predict(table()[0]))
    with pytest.raises(InvalidInputError, match="condition"):
        again.condition(*table(20, seed=8))


def test_private_models_can_be_merged() -> None:
    X, y = table(600)
    own = {"noise": "constant", "n_coreset": 20, **QUICK}
    merged = cvgp.merge([CVGPRegressor(**own).fit(X[rows], y[rows]) for rows in (slice(300), slice(300, 600))])
    assert distances(merged.coreset_.X, X).min() > 1e-9
    assert not merged.private  # nothing could be checked against its rows


def test_a_table_that_is_read_in_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    X, y = rows_of("integers")
    X, y = np.vstack([X, X + np.array([0.0, 9.0])]), np.concatenate([y, y])
    pd.DataFrame(X, columns=["a", "b"]).assign(y=y).to_csv(tmp_path / "rows.csv", index=False)
    monkeypatch.setattr(stream, "IN_MEMORY_BYTES", 1000)
    model = CVGPRegressor(n_coreset=20, **QUICK).fit(tmp_path / "rows.csv", "y")
    assert distances(model.coreset_.X, X).min() > 1e-9


@pytest.mark.slow
def test_no_point_of_classes_or_counts_is_a_row() -> None:
    X, y = np.round(4.0 * table()[0]), table()[1]
    classes = CVGPClassifier(n_coreset=12, **QUICK).fit(X, y > 0.3)
    counts = CVGPRegressor(n_coreset=12, likelihood="poisson", **QUICK).fit(X, np.round(np.exp(y)))
    for model in (classes, counts):
        assert distances(model.coresets_[0].X, X).min() > 1e-9
        assert not hasattr(model, "_feature_quantiles")


def test_a_private_classifier_learns_batches_but_makes_no_points_of_them() -> None:
    X, y = table(200)
    model = CVGPClassifier(n_coreset=12, **QUICK).fit(X, y > 0.0)
    before = model.coresets_[0].X
    model.partial_fit(X[:20] + 0.01, y[:20] > 0.0)
    assert np.array_equal(model.coresets_[0].X, before)
    with pytest.raises(InvalidInputError, match="adapt"):
        model.partial_fit(X[:20], y[:20] > 0.0, adapt=True)


def test_a_class_of_few_rows_is_refused() -> None:
    X, _ = table(200)
    with pytest.raises(InvalidInputError, match="each class"):
        CVGPClassifier(**QUICK).fit(X, np.where(np.arange(200) < 5, "rare", "usual"))
