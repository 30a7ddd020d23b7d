"""Conformal quantiles from residuals of unseen rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cvgp.errors import FileFormatError
from cvgp.files import Fields
from cvgp.gp.calibration import Calibration

LEVELS = (0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99)


def calibration(residuals: np.ndarray, weight: np.ndarray | None = None) -> Calibration:
    return Calibration.of(residuals[:, None], weight)


def own(level: float) -> np.ndarray:
    return np.array([stats.norm.ppf(level)])


@pytest.mark.parametrize("n", [19, 99, 400])
@pytest.mark.parametrize("level", [0.8, 0.9])
def test_intervals_that_are_too_narrow_hold_what_they_promise(n: int, level: float) -> None:
    """Over many calibration sets, the coverage is at least the level and exceeds it by no more than 2 / (n + 1)."""
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(400):
        found = calibration(3.0 * rng.standard_t(3, size=n))
        low, high = (found.quantile(p, own(p))[0] for p in (0.5 - level / 2, 0.5 + level / 2))
        inside.append(np.diff(stats.t(3, scale=3.0).cdf([low, high]))[0])
    error = np.std(inside) / np.sqrt(len(inside))
    assert level - 3 * error < np.mean(inside) < level + 2.0 / (n + 1) + 3 * error


def test_the_rank_is_that_of_split_conformal_prediction() -> None:
    residuals = np.random.default_rng(1).normal(scale=5.0, size=50)
    rank = int(np.ceil(51 * 0.9))
    assert calibration(residuals).quantile(0.9, own(0.9))[0] == np.sort(residuals)[rank - 1]


def test_beyond_the_largest_residual_the_tail_is_the_models_own() -> None:
    found = calibration(np.linspace(-1.0, 1.0, 9))
    assert found.quantile(0.99, np.array([2.5]))[0] == 2.5
    assert found.quantile(0.99, np.array([0.5]))[0] == 1.0  # never inside the residuals
    assert found.quantile(0.01, np.array([-2.5]))[0] == -2.5


def test_narrowing_is_shrunk_and_never_goes_beyond_the_model() -> None:
    residuals = np.random.default_rng(2).normal(scale=0.5, size=200)
    found = calibration(residuals).quantile(0.95, own(0.95))[0]
    exact = np.sort(residuals)[int(np.ceil(201 * 0.95)) - 1]
    assert exact < found < own(0.95)[0]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(-10, 10), min_size=1, max_size=60),
    st.lists(st.floats(0.001, 0.999), min_size=2, max_size=8),
    st.floats(0.1, 3.0),
)
def test_quantiles_do_not_cross(residuals: list[float], levels: list[float], scale: float) -> None:
    found = calibration(np.array(residuals))
    values = [found.quantile(level, scale * own(level))[0] for level in sorted(levels)]
    assert (np.diff(values) >= -1e-12).all()


def test_groups_count_equally() -> None:
    """A group of a hundred rows far away counts as one of ten groups, and so as a tenth."""
    rng = np.random.default_rng(3)
    residuals = np.r_[np.full(100, 8.0), rng.normal(size=9)]
    weight = np.r_[np.full(100, 0.01), np.ones(9)]
    assert calibration(residuals, weight).quantile(0.75, own(0.75))[0] < 4.0
    assert calibration(residuals).quantile(0.75, own(0.75))[0] == 8.0


def test_outputs_are_calibrated_apart() -> None:
    rng = np.random.default_rng(4)
    found = Calibration.of(np.c_[rng.normal(size=300), 4.0 * rng.normal(size=300)])
    first, second = found.quantile(0.95, np.full(2, 1.645))
    assert first < 2.2
    assert 5.0 < second < 8.5


def test_a_file_with_residuals_out_of_order_is_refused() -> None:
    state = calibration(np.array([1.0, -1.0, 0.5])).to_state()
    again = Calibration.from_state(Fields(dict(state), "calibration"), 1)
    np.testing.assert_array_equal(again.residuals[:, 0], [-1.0, 0.5, 1.0])
    with pytest.raises(FileFormatError, match="sorted"):
        Calibration.from_state(Fields(state | {"residuals": np.array([[1.0], [-1.0], [0.5]])}, "calibration"), 1)
