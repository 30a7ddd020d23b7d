"""Numbers at the ends of their range, and data with almost nothing in them: finite answers, or an error of cvgp."""

import warnings

import numpy as np
import pytest

from cvgp import CVGPRegressor
from cvgp.errors import CVGPError, InvalidInputError
from tests.flat_options import make_regressor
from tests.robustness.fuzz_fits import HASTY, PLAIN, run_fit

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 2))
Y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=30)


def regressor(**settings: object) -> CVGPRegressor:
    fixed = {"n_coreset": 5, "max_iter": 3, "random_state": 0, "n_neighbors": 0, "heuristics": HASTY}
    return make_regressor(**(fixed | settings))


@pytest.mark.parametrize("weight", [1e308, 1e200, 1e-150, 5e-324])
def test_weights_beyond_the_range_are_refused(weight: float) -> None:
    with pytest.raises(InvalidInputError, match="The weights must sum to a number between 1e-100 and 1e"):
        regressor().fit(X, Y, sample_weight=np.full(30, weight))


def test_a_noise_in_other_units_than_y_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="noise_variance must be in the units of y"):
        regressor().fit(X, 1e-59 * Y, noise_variance=np.full(30, 1e300))


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
@pytest.mark.parametrize("factor", [1e150, 1e184, 1e300])
def test_huge_outputs_have_a_finite_bound_or_are_refused(solver: str, factor: float) -> None:
    try:
        model = regressor(solver=solver, standardize=False).fit(X, factor * Y)
    except CVGPError:
        return
    assert np.isfinite(model.elbo_)
    assert np.isfinite(model.predict(X, return_std=True)).all()


def test_a_prediction_very_far_away_is_the_prior() -> None:
    model = regressor(kernel="rbf", input_warp="identity").fit(1e-158 * X, Y)
    np.testing.assert_allclose(model.predict(np.full((1, 2), 1e200)), model.predict(np.full((1, 2), 1e-100)))


def test_noise_of_very_few_rows_is_fitted() -> None:
    run_fit({**PLAIN, "rows": 3, "settings": {"noise": "input-dependent"}})


def test_infinite_float16_is_refused_without_a_warning() -> None:
    with np.errstate(over="ignore"):
        x = (1e20 * X).astype(np.float16)
    with pytest.raises(InvalidInputError, match="infinity"):
        regressor().fit(x, Y)


LARGEST = float(np.finfo(np.float32).max)  # 3.4e38


def answers(x: np.ndarray, y: np.ndarray, at: np.ndarray, **options: object) -> np.ndarray | None:
    """Means and deviations, or None where cvgp refused with an error of its own."""
    model = make_regressor(8, random_state=0, dtype="float32", max_iter=30, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.stack(model.fit(x, y).predict(at, return_std=True))
        except CVGPError:
            return None


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
@pytest.mark.parametrize("factor", [LARGEST, 1e100], ids=["largest", "1e100"])
def test_large_columns_are_standardised_before_they_become_float32(solver: str, factor: float) -> None:
    found = answers(factor * X, factor * Y, factor * X[:5], solver=solver)
    assert found is not None
    assert np.isfinite(found).all()
    assert np.abs(found[0] - factor * Y[:5]).max() < factor


@pytest.mark.parametrize("kernel", ["rbf", "matern32", "rq", "linear", "periodic"])
@pytest.mark.parametrize("distance", [LARGEST, 1e300], ids=["largest", "1e300"])
def test_a_prediction_far_from_all_data_is_finite_or_refused(kernel: str, distance: float) -> None:
    found = answers(X, Y, np.full((2, 2), distance), kernel=kernel, solver="adam")
    assert found is None or np.isfinite(found).all()


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
@pytest.mark.parametrize("kernel", ["matern32", "linear"])
@pytest.mark.parametrize("factor", [1e25, 1e60], ids=["1e25", "1e60"])
def test_without_standardisation_overflow_is_finite_or_refused(solver: str, kernel: str, factor: float) -> None:
    found = answers(factor * X, factor * Y, factor * X[:5], solver=solver, kernel=kernel, standardize=False)
    assert found is None or np.isfinite(found).all()


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_one_enormous_value_among_small_ones_is_finite_or_refused(solver: str) -> None:
    x = X.copy()
    x[3, 0] = 1e38
    found = answers(x, Y, x[:5], solver=solver)
    assert found is None or np.isfinite(found).all()
