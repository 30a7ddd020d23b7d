import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cvgp.data import scaling
from cvgp.data.scaling import learn_scaling, pool_scalings

rng = np.random.default_rng(3)
X = rng.normal(size=(30, 3)) * [1.0, 20.0, 0.03] + [0.0, -50.0, 4.0]
Y = rng.normal(size=(30, 2)) * [5.0, 0.2] + [100.0, 0.0]
SIZES = [1e-200, 1e-12, 1.0, 1e12, 1e200]
VALUES = hnp.arrays(np.float64, (8, 2), elements=st.floats(-1e6, 1e6))


@given(x=VALUES)
def test_inputs_come_back(x: np.ndarray) -> None:
    scaling = learn_scaling(x, x)
    np.testing.assert_allclose(scaling.unscale_x(scaling.scale_x(x)), x, rtol=1e-9, atol=1e-9 * np.abs(x).max())


@pytest.mark.parametrize("size", SIZES)
def test_scaled_columns_have_variance_one(size: float) -> None:
    scaled = learn_scaling(X, size * Y).scale_y(size * Y)
    np.testing.assert_allclose(scaled.std(0), 1.0, rtol=1e-12)


def test_weights_are_repeats() -> None:
    counts = rng.integers(1, 5, size=30)
    weighted = learn_scaling(X, Y, counts.astype(np.float64))
    repeated = learn_scaling(X.repeat(counts, axis=0), Y.repeat(counts, axis=0))
    for found, expected in zip(weighted[:5], repeated[:5], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("value", [0.0, 7.0, -1e12, 1e-12, 1e200])
def test_constant_column_has_no_scale_and_comes_back(value: float) -> None:
    x = np.full((5, 1), value)
    scaling = learn_scaling(x, x)
    assert scaling.x_scale == 0.0
    np.testing.assert_array_equal(scaling.unscale_x(scaling.scale_x(x + 1.0)), x)


def test_a_column_that_is_constant_in_parts_varies_in_the_whole() -> None:
    parts = [learn_scaling(np.full((3, 1), value), np.zeros((3, 1))) for value in (3.0, 5.0)]
    assert pool_scalings(parts, np.array([3.0, 3.0])).x_scale == pytest.approx(1.0)
    assert pool_scalings(parts[:1] * 2, np.array([3.0, 3.0])).x_scale == 0.0


@pytest.mark.parametrize("size", SIZES)
def test_scalings_of_parts_pool_to_that_of_the_whole(size: float) -> None:
    parts = [slice(0, 12), slice(12, 20), slice(20, 30)]
    scalings = [learn_scaling(size * X[rows], size * Y[rows]) for rows in parts]
    pooled, whole = pool_scalings(scalings, np.array([12.0, 8.0, 10.0])), learn_scaling(size * X, size * Y)
    for found, expected in zip(pooled[:5], whole[:5], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_moments_by_parts_are_those_of_the_whole(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y = 1e6 + rng.standard_normal((50, 3)), rng.standard_normal((50, 1))
    weight = rng.uniform(0.0, 2.0, 50) if weighted else None
    whole = learn_scaling(x, y, weight)
    monkeypatch.setattr(scaling, "PART_ROWS", 7)  # the spread of x is 1e-6 of its mean, which costs digits
    for mine, theirs in zip(learn_scaling(x, y, weight)[:5], whole[:5], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9)
