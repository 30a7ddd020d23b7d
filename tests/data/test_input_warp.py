"""Warps of inputs: monotone, invertible, and between a column and its ranks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from cvgp.data.transforms import KNOTS, Path, mixed_path, normal_scores

RNG = np.random.default_rng(0)
SKEWED = np.exp(RNG.normal(size=2000))
COLUMNS = {
    "skewed": SKEWED,
    "heavy tails": RNG.standard_t(1, size=2000),
    "few values": RNG.poisson(2.0, size=2000).astype(float),
    "many zeros": np.where(RNG.uniform(size=2000) < 0.7, 0.0, SKEWED),
    "two modes": RNG.normal(size=2000) + 1e4 * RNG.integers(0, 2, size=2000),
    "large": 1e140 * SKEWED,
    "far from zero": 1e9 + SKEWED,
}


def path_of(column: NDArray[np.float64], share: float) -> Path:
    scores = normal_scores(column)
    assert scores is not None
    return mixed_path(scores, share, column.mean(), column.std())


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_a_warp_increases_everywhere(name: str, share: float) -> None:
    column = COLUMNS[name]
    low, high = column.min(), column.max()
    x = np.unique(np.concatenate([column, np.linspace(low - (high - low), high + (high - low), 500)]))
    x = x[np.append(True, np.diff(x) > 1e-6 * np.abs(x).max())]
    assert (np.diff(path_of(column, share).apply(x)) > 0.0).all()


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_a_warp_and_its_inverse_cancel(name: str, share: float) -> None:
    column = COLUMNS[name]
    width = column.max() - column.min()
    x = np.concatenate([column, [column.min() - width, column.max() + width]])
    path = path_of(column, share)
    np.testing.assert_allclose(path.invert(path.apply(x)), x, rtol=1e-9, atol=1e-9 * column.std())


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=80), st.floats(0.0, 1.0))
def test_any_column_has_a_finite_warp_or_none(values: list[float], share: float) -> None:
    column = np.array(values)
    scores = normal_scores(column)
    if scores is None:
        return
    path = mixed_path(scores, share, column.mean(), column.std())
    assert (np.diff(path.knots) > 0).all()
    assert (np.diff(path.values) > 0).all()
    assert np.isfinite(path.apply(np.array([-1e12, 0.0, 1e12]))).all()


def test_normal_scores_are_those_of_scipy_at_the_knots() -> None:
    scores = normal_scores(SKEWED)
    assert scores is not None
    assert len(scores.knots) <= KNOTS + 2
    ranks = (stats.rankdata(SKEWED) - 0.5) / len(SKEWED)
    order = np.argsort(SKEWED)
    expected = stats.norm.ppf(ranks[order][np.searchsorted(SKEWED[order], scores.knots)])
    np.testing.assert_allclose(scores.values, expected, atol=1e-12)


def test_a_weight_of_two_is_a_row_twice() -> None:
    weighted = normal_scores(np.array([1.0, 3.0, 4.0, 9.0]), np.array([1.0, 2.0, 1.0, 3.0]))
    repeated = normal_scores(np.repeat([1.0, 3.0, 4.0, 9.0], [1, 2, 1, 3]))
    assert weighted is not None
    assert repeated is not None
    np.testing.assert_array_equal(weighted.values, repeated.values)


@pytest.mark.parametrize("column", [np.ones(9), np.repeat([0.0, 1.0], 5), np.array([-1e300, 0.0, 1e300])])
def test_there_is_nothing_to_rank_of_two_values_or_of_huge_ones(column: NDArray[np.float64]) -> None:
    assert normal_scores(column) is None


def test_a_share_of_one_are_the_ranks_and_of_zero_the_column() -> None:
    scores = normal_scores(SKEWED)
    assert scores is not None
    ranks = mixed_path(scores, 1.0, SKEWED.mean(), SKEWED.std())
    np.testing.assert_allclose(np.diff(ranks.values), np.diff(scores.values), atol=1e-12)
    plain = mixed_path(scores, 0.0, SKEWED.mean(), SKEWED.std())
    np.testing.assert_allclose(np.diff(plain.values) * SKEWED.std(), np.diff(scores.knots), atol=1e-9)


def test_beyond_the_outer_knots_a_warp_is_a_line_no_steeper_than_its_mean() -> None:
    path = path_of(SKEWED, 0.7)
    beyond = path.apply(path.knots[-1] + np.array([0.0, 1.0, 2.0, 1e6]))
    slopes = np.diff(beyond) / np.array([1.0, 1.0, 1e6 - 2.0])
    mean = (path.values[-1] - path.values[0]) / (path.knots[-1] - path.knots[0])
    np.testing.assert_allclose(slopes, slopes[0], rtol=1e-6)
    assert 0.0 < slopes[0] <= mean * (1.0 + 1e-9)
