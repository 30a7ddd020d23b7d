"""`explain`: effects that add up and agree with brute force and with SHAP, and what the mean is made of."""

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.inspection import PartialDependenceDisplay, partial_dependence

import cvgp
from cvgp.errors import InvalidInputError
from cvgp.estimators import explaining
from tests.flat_options import make_regressor

Array = NDArray[np.float64]

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (80, 3))
Y = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.05 * RNG.standard_normal(80)
ROW = np.array([0.6, -0.5, 0.9])

MODELS: dict[str, dict[str, Any]] = {
    "coreset": {},
    "neighbors": {"n_neighbors": 8, "n_coreset": 5},
    "warp": {"input_warp": "rank"},
    "log": {"target_transform": "log"},
    "yeo-johnson": {"target_transform": "yeo-johnson"},
    "all of them": {"n_neighbors": 8, "n_coreset": 5, "input_warp": "rank", "target_transform": "log"},
    "constant mean": {"mean": "constant"},
    "uneven noise": {"noise": "input-dependent"},
    "float32": {"dtype": "float32"},
}


def regressor(**options: Any) -> cvgp.CVGPRegressor:
    quick = {"n_coreset": 20, "max_iter": 15, "n_neighbors": 0, "noise": "constant", "random_state": 0}
    plain = {"target_transform": "identity", "input_warp": "identity"}
    return make_regressor(**{**quick, **plain, **options})


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> cvgp.CVGPRegressor:
    return regressor(**MODELS[request.param]).fit(X, np.exp(Y))


@pytest.fixture(scope="module")
def plain() -> cvgp.CVGPRegressor:
    return regressor().fit(X, Y)


def shapley_values(predict: Any, x: Array, background: Array) -> Array:
    """By their definition: the mean change of the prediction over all orders of the columns and rows."""
    found = np.zeros(len(x))
    orders = list(permutations(range(len(x))))
    for row in background:
        for order in orders:
            point = row.copy()
            for j in order:
                before = predict(point[None])[0]
                point[j] = x[j]
                found[j] += predict(point[None])[0] - before
    return found / (len(orders) * len(background))


def test_effects_add_up_to_the_prediction_minus_the_baseline(model: cvgp.CVGPRegressor) -> None:
    found = model.explain(ROW, background=X)
    expected = model.predict(ROW[None])[0] - model.predict(X).mean()
    assert abs(found.effects.sum() - expected) < 1e-8
    assert abs(found.prediction - found.baseline - expected) < 1e-8


def test_effects_add_up_over_the_rows_that_the_model_holds(model: cvgp.CVGPRegressor) -> None:
    found = model.explain(ROW)
    assert abs(found.effects.sum() - (found.prediction - found.baseline)) < 1e-8
    assert model.predict(X).min() <= found.baseline <= model.predict(X).max()


def test_effects_are_shapley_values(model: cvgp.CVGPRegressor) -> None:
    expected = shapley_values(model.predict, ROW, X[:6])
    tolerance = 1e-5 if model.get_params()["training__dtype"] == "float32" else 1e-9
    np.testing.assert_allclose(model.explain(ROW, background=X[:6]).effects, expected, atol=tolerance)


def test_weights_give_the_prediction_before_y_is_transformed_back(model: cvgp.CVGPRegressor) -> None:
    found, values = model.explain(ROW), model._gp.mean(ROW[None])[0]
    mean = found.support.prior + found.support.weight @ found.support.residual
    assert np.abs(mean - values).max() < (1e-4 if model.get_params()["training__dtype"] == "float32" else 1e-8)


def test_with_an_identity_transform_weights_give_the_prediction_from_y(plain: cvgp.CVGPRegressor) -> None:
    support = plain.explain(ROW).support
    prediction = support.prior[0] + support.weight @ (support.y[:, 0] - support.prior[0])
    assert abs(prediction - plain.predict(ROW[None])[0]) < 1e-8


def test_nearest_rows_are_training_rows_in_the_units_of_the_user() -> None:
    y = np.exp(Y)
    options = MODELS["all of them"]
    found = regressor(**options).fit(X, y).explain(ROW).support
    rows, values = found.X[found.num_points :], found.y[found.num_points :, 0]
    assert len(rows) == options["n_neighbors"]
    distance = np.abs(rows[:, None] - X).max(axis=2)
    np.testing.assert_allclose(distance.min(axis=1), 0.0, atol=1e-9)
    np.testing.assert_allclose(values, y[distance.argmin(axis=1)])


def test_drawn_orders_agree_with_all_sets_of_columns_within_their_sampling_error(
    plain: cvgp.CVGPRegressor, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = plain.explain(ROW, background=X)
    monkeypatch.setattr(explaining, "MOST_PREDICTIONS", 1)
    drawn = plain.explain(ROW, background=X)
    assert not exact.sampling_error.any()
    assert (np.abs(drawn.effects - exact.effects) <= 4.0 * drawn.sampling_error + 1e-9).all()
    assert 0.0 < drawn.sampling_error.max() < 0.05
    assert abs(drawn.effects.sum() - exact.effects.sum()) < 1e-8


def test_many_columns_are_explained_by_drawn_orders() -> None:
    x = np.random.default_rng(1).standard_normal((60, 14))
    fitted = regressor(kernel="linear").fit(x, x[:, 0] - 2.0 * x[:, 3])
    found = fitted.explain(x[0], background=x)
    slopes = fitted.predict(np.eye(14)) - fitted.predict(np.zeros((1, 14)))
    np.testing.assert_allclose(found.effects, slopes * (x[0] - x.mean(axis=0)), atol=1e-8)
    np.testing.assert_allclose(found.sampling_error, 0.0, atol=1e-8)  # a sum has the same effects in every order


def test_a_column_that_the_function_does_not_use_has_no_effect() -> None:
    fitted = regressor(kernel="rbf", max_iter=60).fit(X, np.sin(2.0 * X[:, 0]))
    found = fitted.explain(ROW, background=X)
    np.testing.assert_allclose(found.effects[1:], 0.0, atol=0.02)
    assert found.effects[0] > 0.5


@pytest.mark.parametrize("options", ["coreset", "neighbors", "log"])
def test_the_covariance_is_that_of_a_linear_function_of_the_posterior(options: str) -> None:
    fitted = regressor(**MODELS[options]).fit(X[:, :2], np.exp(Y))
    x, rows = ROW[:2], X[:10, :2]
    # Half of the change by the first column before the other one, and half of that after it.
    first, second = rows.copy(), rows.copy()
    first[:, 0], second[:, 1] = x
    points = np.vstack([x[None], rows, first, second])
    share = 0.1 * np.ones((10, 1))
    A = np.vstack([[[0.5, 0.5]], -0.5 * share * [[1, 1]], 0.5 * share * [[1, -1]], 0.5 * share * [[-1, 1]]])
    cov = fitted.predict(points, return_cov=True, include_noise=False)[1]
    found = fitted.explain(x, background=rows)
    np.testing.assert_allclose(found.covariance, A.T @ cov @ A, atol=1e-9)
    np.testing.assert_allclose(found.sd, np.sqrt(np.diag(A.T @ cov @ A)), atol=1e-9)


def houses(rows: int = 120) -> pd.DataFrame:
    """Text of few and of many levels, dates, true and false, and numbers with gaps."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "area": rng.lognormal(4.0, 0.3, rows),
            "city": [f"City {i}" for i in rng.integers(0, 15, rows)],
            "style": rng.choice(["flat", "house", "villa"], rows),
            "sold": pd.Timestamp("2022-01-01") + pd.to_timedelta(rng.integers(0, 700, rows), "D"),
            "garden": rng.random(rows) < 0.5,
            "rooms": rng.integers(1, 8, rows).astype(float),
        }
    )
    frame["price"] = frame["area"] + 20.0 * (frame["style"] == "villa") + 5.0 * frame["garden"]
    frame["price"] += rng.normal(0.0, 2.0, rows)
    frame.loc[::9, "rooms"] = np.nan
    return frame


@pytest.fixture(scope="module", params=["identity", "log"])
def of_table(request: pytest.FixtureRequest) -> cvgp.CVGPRegressor:
    return regressor(target_transform=request.param, max_iter=5).fit(houses(), "price")


@pytest.mark.parametrize("row", [1, 9], ids=["complete", "with a gap"])
def test_effects_of_the_columns_of_a_table_add_up(of_table: cvgp.CVGPRegressor, row: int) -> None:
    frame = houses().drop(columns="price")
    found = of_table.explain(frame.iloc[[row]], background=frame[:30])
    assert found.columns == tuple(frame.columns)
    expected = of_table.predict(frame.iloc[[row]])[0]
    assert abs(found.prediction - expected) < 1e-8
    assert abs(found.effects.sum() - (found.prediction - found.baseline)) < 1e-8


@pytest.mark.filterwarnings("ignore:Cells with:cvgp.CVGPWarning")
def test_cells_that_are_not_known_are_integrated_out_as_in_a_prediction(of_table: cvgp.CVGPRegressor) -> None:
    row = houses().drop(columns="price").iloc[[1]].assign(area=np.nan, style="castle")
    found = of_table.explain(row)
    assert abs(found.prediction - of_table.predict(row)[0]) < 1e-8
    assert abs(found.effects.sum() - (found.prediction - found.baseline)) < 1e-8
    assert (found.values[0], found.values[2]) == ("missing", "castle")


def test_values_are_in_the_units_of_the_table(of_table: cvgp.CVGPRegressor) -> None:
    frame = houses().drop(columns="price")
    found = of_table.explain(frame.iloc[[9]])
    said = dict(zip(found.columns, found.values, strict=True))
    assert (said["city"], said["style"], said["rooms"]) == (frame["city"][9], frame["style"][9], "missing")
    assert said["garden"] == str(frame["garden"][9]).lower()
    columns = found.heaviest[0]["columns"]
    assert columns.keys() == said.keys()
    assert columns["style"] in {"flat", "house", "villa"}
    assert columns["garden"] in {"true", "false"}
    weights = [abs(own["weight"]) for own in found.heaviest]
    assert weights == sorted(weights, reverse=True)


def test_one_of_several_outputs_is_explained() -> None:
    fitted = regressor().fit(X, np.column_stack([Y, -3.0 * Y]))
    first, second = fitted.explain(ROW), fitted.explain(ROW, output=1)
    np.testing.assert_allclose(second.effects, -3.0 * first.effects, rtol=1e-6)
    np.testing.assert_allclose(second.sd, 3.0 * first.sd, rtol=1e-6)
    assert second.prediction == pytest.approx(fitted.predict(ROW[None])[0, 1])


def test_counts_are_explained_for_the_exposure_of_the_row() -> None:
    counts = np.random.default_rng(0).poisson(2.0 * np.exp(Y))
    fitted = cvgp.CVGPRegressor(10, likelihood="poisson", random_state=0).fit(X, counts, exposure=2.0)
    found = fitted.explain(ROW, background=X, exposure=3.0)
    expected = fitted.predict(ROW[None], exposure=3.0)[0] - fitted.predict(X, exposure=3.0).mean()
    assert abs(found.effects.sum() - expected) < 1e-8
    with pytest.raises(InvalidInputError, match="predictions need them too"):
        fitted.explain(ROW)


def test_a_classifier_explains_the_log_odds_of_the_second_of_two_classes() -> None:
    fitted = cvgp.CVGPClassifier(15, random_state=0).fit(X, np.where(Y > 0.0, "up", "down"))
    found = fitted.explain(ROW, background=X)
    support = found.support
    assert (found.prediction > 0.0) == (fitted.predict(ROW[None])[0] == "up")
    assert abs(found.effects.sum() - (found.prediction - found.baseline)) < 1e-8
    assert abs(support.prior[0] + support.weight @ support.residual[:, 0] - found.prediction) < 1e-8


def test_a_classifier_of_several_classes_explains_the_most_probable_one_or_another() -> None:
    fitted = cvgp.CVGPClassifier(15, random_state=0).fit(X, np.digitize(Y, [-0.5, 0.5]))
    best = fitted.predict(ROW[None])[0]
    assert str(best) in fitted.explain(ROW).target
    latent = [fitted.explain(ROW, output=label).prediction for label in fitted.classes_]
    assert fitted.explain(ROW).prediction == latent[list(fitted.classes_).index(best)]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"X": X[:2]}, "one row; got 2"),
        ({"X": ROW, "output": 1}, r"one of \[0\]"),
        ({"X": ROW, "exposure": 2.0}, "for a model of counts"),
        ({"X": ROW[:2]}, "3 features"),
        ({"X": ROW, "background": X[:, :2]}, "3 features"),
    ],
    ids=lambda given: "" if isinstance(given, dict) else given,
)
def test_what_cannot_be_explained_is_refused(plain: cvgp.CVGPRegressor, given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidInputError, match=complaint):
        plain.explain(**given)


def test_a_saved_model_gives_the_same_explanation(tmp_path: Path) -> None:
    fitted = regressor(**MODELS["all of them"]).fit(X, np.exp(Y))
    fitted.save(tmp_path / "model.cvgp")
    found, again = fitted.explain(ROW), cvgp.load(tmp_path / "model.cvgp").explain(ROW)
    np.testing.assert_allclose(again.effects, found.effects, rtol=1e-9)
    np.testing.assert_allclose(again.support.weight, found.support.weight, atol=1e-12)


def test_an_explanation_is_read_as_a_table(plain: cvgp.CVGPRegressor) -> None:
    text = str(plain.explain(ROW))
    assert all(name in text for name in ("x0", "x1", "x2", "effect", "pseudo-point"))


@pytest.mark.slow  # SHAP takes seconds to import
@pytest.mark.parametrize("options", ["neighbors", "log"])
def test_shap_explains_the_model_and_agrees(options: str) -> None:
    shap = pytest.importorskip("shap")
    fitted = regressor(**MODELS[options]).fit(X, np.exp(Y))
    found = fitted.explain(ROW, background=X[:20])
    exact = shap.explainers.Exact(fitted.predict, shap.maskers.Independent(X[:20]))(ROW[None])
    drawn = shap.explainers.Permutation(fitted.predict, shap.maskers.Independent(X[:20]), seed=0)(ROW[None])
    np.testing.assert_allclose(found.effects, exact.values[0], atol=1e-8)
    np.testing.assert_allclose(found.effects, drawn.values[0], atol=0.1)
    assert found.baseline == pytest.approx(exact.base_values[0])


def test_inspection_of_scikit_learn_works(plain: cvgp.CVGPRegressor) -> None:
    """For permutation importance there are tests in test_importance.py."""
    found = partial_dependence(plain, X, [0], kind="both", grid_resolution=5)
    point = X.copy()
    point[:, 0] = found["grid_values"][0][2]
    assert found["average"][0, 2] == pytest.approx(plain.predict(point).mean())
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    shown = PartialDependenceDisplay.from_estimator(plain, X, [0, (1, 2)], grid_resolution=5, ax=Figure().subplots())
    assert shown.axes_.size == 2


def test_places_and_values_that_go_round_are_named_as_in_the_table() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"lat": rng.uniform(40, 60, 80), "lon": rng.uniform(170, 190, 80) % 360 - 180})
    frame["hour"] = rng.uniform(0, 24, 80)
    frame["y"] = 0.1 * frame["lat"] + np.sin(frame["hour"] * np.pi / 12) + 0.1 * rng.normal(size=80)
    table = cvgp.read_table(frame, "y", geo=("lat", "lon"), periods={"hour": 24})
    model = cvgp.CVGPRegressor(random_state=0).fit(table)
    found = model.explain(frame[:1])
    values = dict(zip(found.columns, found.values, strict=True))
    assert abs(found.effects.sum() - (found.prediction - found.baseline)) < 1e-8
    lat, lon = map(float, values["lat, lon"].split(", "))
    assert (lat, lon) == pytest.approx((frame["lat"][0], frame["lon"][0]), rel=1e-3)
    assert float(values["hour"]) == pytest.approx(frame["hour"][0], rel=1e-2)
