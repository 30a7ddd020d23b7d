"""What data cannot teach is said, and does no harm."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from gpytorch.kernels import RBFKernel, ScaleKernel
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning

import cvgp
from cvgp import CVGPRegressor, plots
from cvgp.data.scaling import bulk_of, learn_scaling
from cvgp.data.tables import training_table as table_module
from cvgp.errors import CVGPWarning, InvalidInputError

rng = np.random.default_rng(4)
X = rng.normal(size=(40, 2))
Y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=40)
VALUE = 7.3
CONSTANT = np.insert(X, 1, VALUE, axis=1)


def regressor(**options: object) -> CVGPRegressor:
    return CVGPRegressor(**({"max_iter": 15, "random_state": 0} | options))


def said(action: object, *arguments: object, **options: object) -> tuple[CVGPRegressor, list[str]]:
    """What a call returns, and the warnings of cvgp."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = action(*arguments, **options)  # type: ignore[operator]
    return result, [str(w.message) for w in caught if issubclass(w.category, CVGPWarning)]


def fitted(x: object = CONSTANT, y: object = Y, **options: object) -> CVGPRegressor:
    return said(regressor(**options).fit, x, y)[0]


@pytest.fixture(scope="module")
def model() -> CVGPRegressor:
    return fitted()


@pytest.mark.parametrize("n_coreset", ["auto", 20])
@pytest.mark.filterwarnings("ignore:The sample weights of")
def test_rows_of_small_weight_teach_what_so_few_rows_can(n_coreset: object) -> None:
    generator = np.random.default_rng(1)
    x = generator.uniform(-3.0, 3.0, size=(80, 1))
    y = np.sin(1.5 * x[:, 0]) + 0.05 * generator.normal(size=80)
    model = regressor(n_coreset=n_coreset, max_iter=None).fit(x, y, sample_weight=np.full(80, 0.2))
    assert np.sqrt(np.mean((model.predict(x) - np.sin(1.5 * x[:, 0])) ** 2)) < 0.05


# Constant columns


def test_a_constant_column_is_named_once() -> None:
    _, messages = said(regressor().fit, CONSTANT, Y)
    assert len(messages) == 1
    assert "'x1' (1 of 3)" in messages[0]


def test_a_constant_column_has_no_importance(model: CVGPRegressor) -> None:
    assert model.feature_importances_[1] == 0.0
    assert model.feature_importances_.sum() > 0.9


def test_the_lengthscale_of_a_constant_column_is_infinite(model: CVGPRegressor) -> None:
    np.testing.assert_array_equal(np.isinf(model.lengthscales_), [False, True, False])


KERNELS = {
    "named": "matern32",
    "one lengthscale": "rbf",
    "linear": "linear",
    "own": ScaleKernel(RBFKernel(ard_num_dims=3)),
}


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("standardize", [True, False])
def test_predictions_do_not_depend_on_a_constant_column(kind: str, standardize: bool) -> None:
    model = fitted(kernel=KERNELS[kind], ard=kind != "one lengthscale", standardize=standardize)
    elsewhere = CONSTANT + np.array([0.0, 100.0, 0.0])
    np.testing.assert_array_equal(model.predict(elsewhere), model.predict(CONSTANT))


@pytest.mark.parametrize("options", [{}, {"n_coreset": 10}, {"standardize": False}, {"ard": False}], ids=str)
def test_a_fit_is_that_without_the_constant_column(options: dict[str, object]) -> None:
    np.testing.assert_allclose(fitted(**options).predict(CONSTANT), fitted(X, **options).predict(X), atol=1e-2)


def test_random_points_have_the_value_of_a_constant_column() -> None:
    assert (fitted(init="random", n_coreset=8).coreset_.X[:, 1] == VALUE).all()


def test_a_coreset_as_a_table_has_the_value_of_a_constant_column_under_its_name() -> None:
    model = fitted(pd.DataFrame(CONSTANT, columns=["a", "b", "c"]))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert (model.coreset_.to_frame(["a", "b", "c"])["b"] == VALUE).all()


def test_a_loaded_model_knows_its_constant_column(model: CVGPRegressor, tmp_path: Path) -> None:
    model.save(tmp_path / "m.cvgp")
    loaded = cvgp.load(tmp_path / "m.cvgp")
    np.testing.assert_array_equal(loaded.feature_importances_, model.feature_importances_)
    np.testing.assert_array_equal(loaded.predict(CONSTANT + np.array([0.0, 9.0, 0.0])), model.predict(CONSTANT))


def test_a_pruned_model_keeps_its_constant_column() -> None:
    model = fitted(n_coreset=20)
    assert model.prune(0.5) > 0
    assert (model.coreset_.X[:, 1] == VALUE).all()


def shards(values: Sequence[float]) -> list[CVGPRegressor]:
    return [fitted(np.insert(X[i::2], 1, value, axis=1), Y[i::2], n_coreset=8) for i, value in enumerate(values)]


def test_a_column_that_is_constant_in_all_shards_is_constant_in_the_merged_model() -> None:
    merged = cvgp.merge(shards([VALUE, VALUE]))
    assert merged.feature_importances_[1] == 0.0
    assert (merged.coreset_.X[:, 1] == VALUE).all()


def test_a_column_that_differs_only_between_shards_varies_in_the_merged_model() -> None:
    merged = cvgp.merge(shards([1.0, 2.0]))
    np.testing.assert_allclose(np.unique(merged.coreset_.X[:, 1]), [1.0, 2.0])
    assert np.isfinite(merged.predict(CONSTANT)).all()


def test_a_merged_lengthscale_is_that_of_the_shards_in_which_its_column_varies() -> None:
    constant, varying = fitted(np.insert(X[::2], 1, 0.0, axis=1), Y[::2]), fitted(np.insert(X, 1, Y, axis=1), Y)
    merged = cvgp.merge([constant, varying])
    assert merged.lengthscales_[1] == pytest.approx(varying.lengthscales_[1], rel=1e-6)


def test_plots_leave_a_constant_column_out(model: CVGPRegressor) -> None:
    assert "x1" not in plots.columns_by_importance(model)
    assert len(plots.plot_relevance(model, Figure().subplots()).patches) == 2
    with pytest.raises(InvalidInputError, match="'x1' had one value in all rows"):
        plots.plot_partial_dependence(model, "x1", Figure().subplots())


@pytest.mark.parametrize("limit", [10**9, 0], ids=["loaded", "in parts"])
def test_a_constant_column_of_a_table_in_files_is_named(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_module, "IN_MEMORY_BYTES", limit)
    pd.DataFrame(np.column_stack([CONSTANT, Y]), columns=["a", "b", "c", "y"]).to_parquet(tmp_path / "t.parquet")
    model, messages = said(regressor(n_coreset=8).fit, tmp_path / "t.parquet", "y", keep="b")
    assert ["'b' (1 of 3)" in message for message in messages] == [True]
    assert model.feature_importances_[1] == 0.0


def test_where_all_columns_are_constant_the_mean_is_predicted() -> None:
    model, messages = said(regressor().fit, np.full((40, 2), VALUE), Y)
    assert "the model predicts one value" in messages[0]
    assert model.predict([[0.0, 1.0]]) == pytest.approx(Y.mean(), abs=0.05)
    assert (model.feature_importances_ == 0.0).all()


# Weights


@pytest.mark.parametrize("total", [1.0, 1e-3])
def test_weights_that_leave_nothing_to_learn_are_explained(total: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        _, messages = said(regressor().fit, X, Y, sample_weight=np.full(40, total / 40))
    assert len(messages) == 1
    assert f"add up to {total:g}. A row of weight w counts as w rows" in messages[0]


@pytest.mark.parametrize("weight", [1.0, 0.8, 100.0])
def test_weights_that_leave_enough_to_learn_are_no_concern(weight: float) -> None:
    assert said(regressor().fit, X, Y, sample_weight=np.full(40, weight))[1] == []


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_a_total_weight_below_one_can_be_fitted_with_a_constant_mean(solver: str) -> None:
    model, _ = said(regressor(mean="constant", solver=solver, n_coreset=5).fit, X, Y, sample_weight=np.full(40, 0.01))
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("size", ["auto", 10])
def test_a_weight_of_100_is_100_copies(size: object) -> None:
    weighted = regressor(n_coreset=size).fit(X, Y, sample_weight=np.full(40, 100.0))
    repeated = regressor(n_coreset=size).fit(X.repeat(100, axis=0), Y.repeat(100))
    for found, expected in zip(*(m.predict(X, return_std=True) for m in (weighted, repeated)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


# Outputs without spread


@pytest.mark.parametrize("unit", [1.0, 1e-9, -1e6])
@pytest.mark.parametrize("rows", [1, 2, 40])
def test_the_spread_of_one_value_is_its_size_over_the_rows(unit: float, rows: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model, messages = said(CVGPRegressor(random_state=0).fit, X[:rows], np.full(rows, 5.0 * unit))
    mean, sd = model.predict(X + 3.0, return_std=True)
    np.testing.assert_allclose(mean, 5.0 * unit, rtol=1e-6)
    np.testing.assert_allclose(sd, 5.0 * abs(unit) / rows, rtol=1e-3)
    assert len(messages) == 1
    assert "says nothing of its spread" in messages[0]


def test_the_spread_of_one_output_among_others_has_its_unit() -> None:
    _, sd = fitted(X, np.column_stack([Y, np.full(40, 8e6)])).predict(X, return_std=True)
    assert sd[:, 1].max() < 8e6 / 40


# Outliers in tables


@pytest.mark.parametrize("weight", [None, "w"])
def test_a_table_in_parts_with_outliers_is_scaled_as_in_memory(weight: str | None, tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(w=1.0 + np.arange(40) % 3, y=Y)
    frame.loc[7, "a"] = 1e9
    frame.drop(columns=[] if weight else ["w"]).to_parquet(tmp_path / "t.parquet")
    table = table_module.TrainingTable(tmp_path / "t.parquet", "y", sample_weight=weight)
    weights = None if weight is None else frame["w"].to_numpy()
    x = frame[["a", "b"]].to_numpy()
    expected = learn_scaling(x, Y[:, None], weights, bulk_of(x, weights))
    for found, value in zip(table.scaling._replace(warp=None), expected._replace(warp=None), strict=True):
        if value is not None:
            np.testing.assert_allclose(found, value, rtol=1e-9)
