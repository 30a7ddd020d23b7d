"""Columns, weights and outputs that leave nothing to learn: the fit warns, and the model stays sensible."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpytorch.kernels import RBFKernel, ScaleKernel
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning

import cvgp
from cvgp import CVGPRegressor, plots
from cvgp.errors import CVGPWarning, InvalidInputError
from tests.flat_options import make_regressor

rng = np.random.default_rng(4)
X = rng.normal(size=(40, 2))
Y = np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=40)
VALUE = 7.3
CONSTANT = np.insert(X, 1, VALUE, axis=1)


def fit(x: Any = CONSTANT, y: Any = Y, weight: Any = None, **options: Any) -> tuple[CVGPRegressor, list[str]]:
    """The model, and the warnings of cvgp."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = make_regressor(**({"max_iter": 15, "random_state": 0} | options)).fit(x, y, weight)
    return model, [str(w.message) for w in caught if issubclass(w.category, CVGPWarning)]


def test_a_constant_column_is_named_and_has_no_part(tmp_path: Path) -> None:
    model, messages = fit()
    assert len(messages) == 1
    assert "'x1' (1 of 3)" in messages[0]
    assert model.feature_importances_[1] == 0.0
    np.testing.assert_array_equal(np.isinf(model.lengthscales_), [False, True, False])
    model.save(tmp_path / "m.cvgp")
    loaded = cvgp.load(tmp_path / "m.cvgp")
    np.testing.assert_array_equal(loaded.predict(CONSTANT + np.array([0.0, 9.0, 0.0])), model.predict(CONSTANT))
    assert "x1" not in plots.columns_by_importance(model)
    with pytest.raises(InvalidInputError, match="'x1' had one value in all rows"):
        plots.plot_partial_dependence(model, "x1", Figure().subplots())


@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "matern32"},
        {"kernel": "rbf", "ard": False},
        {"kernel": "linear"},
        {"kernel": ScaleKernel(RBFKernel(ard_num_dims=3))},
    ],
    ids=str,
)
@pytest.mark.parametrize("standardize", [True, False])
def test_predictions_do_not_depend_on_a_constant_column(options: dict[str, Any], standardize: bool) -> None:
    model, _ = fit(standardize=standardize, **options)
    elsewhere = CONSTANT + np.array([0.0, 100.0, 0.0])
    np.testing.assert_array_equal(model.predict(elsewhere), model.predict(CONSTANT))


def test_a_column_that_is_constant_in_shards_is_merged() -> None:
    def shards(*values: float) -> list[CVGPRegressor]:
        return [fit(np.insert(X[i::2], 1, v, axis=1), Y[i::2], n_coreset=8)[0] for i, v in enumerate(values)]

    same, other = cvgp.merge(shards(VALUE, VALUE)), cvgp.merge(shards(1.0, 2.0))
    assert same.feature_importances_[1] == 0.0
    assert (same.coreset_.X[:, 1] == VALUE).all()
    np.testing.assert_allclose(np.unique(other.coreset_.X[:, 1]), [1.0, 2.0])
    assert np.isfinite(other.predict(CONSTANT)).all()
    constant, varying = fit(np.insert(X[::2], 1, 0.0, axis=1), Y[::2])[0], fit(np.insert(X, 1, Y, axis=1))[0]
    merged = cvgp.merge([constant, varying])
    assert merged.lengthscales_[1] == pytest.approx(varying.lengthscales_[1], rel=1e-6)


def test_columns_that_all_have_one_value_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="the same value in all 40 rows"):
        fit(np.full((40, 2), VALUE))


@pytest.mark.parametrize(("weight", "warns"), [(1.0 / 40, True), (1e-3 / 40, True), (0.8, False), (100.0, False)])
def test_weights_that_leave_nothing_to_learn_are_explained(weight: float, warns: bool) -> None:
    model, messages = fit(X, Y, np.full(40, weight), mean="constant", n_coreset=5)
    assert ["sample weights" in message for message in messages] == [True] * warns
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("unit", [1.0, 1e-9, -1e6])
@pytest.mark.parametrize("rows", [2, 40])
def test_the_spread_of_one_value_is_its_size_over_the_rows(unit: float, rows: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model, messages = fit(X[:rows], np.full(rows, 5.0 * unit), max_iter=None)
    mean, sd = model.predict(X + 3.0, return_std=True)
    np.testing.assert_allclose(mean, 5.0 * unit, rtol=1e-6)
    np.testing.assert_allclose(sd, 5.0 * abs(unit) / rows, rtol=1e-3)
    assert len(messages) == 1
