"""Numbers beyond the range of float32: finite answers, or an error of cvgp that says so."""

import warnings

import numpy as np
import pytest

from cvgp.errors import CVGPError
from tests.flat_options import make_regressor

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
Y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)

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
