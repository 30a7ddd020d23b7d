import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cvgp.data.scaling import bulk_of, learn_scaling, median

rng = np.random.default_rng(2)
X = rng.normal(size=(200, 2))
Y = np.zeros((200, 1))
VALUES = hnp.arrays(np.float64, 7, elements=st.floats(-9, 9))
COUNTS = hnp.arrays(np.int64, 7, elements=st.integers(1, 4))


@given(values=VALUES, counts=COUNTS)
def test_a_weighted_median_is_that_of_repeats(values: np.ndarray, counts: np.ndarray) -> None:
    assert median(values, counts.astype(np.float64)) == np.median(values.repeat(counts))


def test_a_column_without_outliers_has_its_plain_scale() -> None:
    for found, expected in zip(learn_scaling(X, Y, None, bulk_of(X))[:5], learn_scaling(X, Y)[:5], strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("far", [1e4, 1e9, -1e300])
def test_one_value_far_away_does_not_squeeze_a_column(far: float) -> None:
    x = X.copy()
    x[5, 0] = far
    scale = learn_scaling(x, Y, None, bulk_of(x)).x_scale
    np.testing.assert_allclose(scale, X.std(0), rtol=1.0)


def test_the_few_others_of_a_column_of_zeros_are_no_outliers() -> None:
    x = np.zeros((100, 1))
    x[:3, 0] = [1.0, 2.0, 1.5]
    np.testing.assert_array_equal(bulk_of(x).moved_into(x), x)
