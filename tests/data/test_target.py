"""Transforms of y: monotone, invertible, with the slope that they say they have."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cvgp.data.transforms import TRANSFORMS, TargetTransform, learn_target
from cvgp.errors import InvalidInputError

SKEWED = np.exp(np.random.default_rng(0).normal(size=(2000, 1)))


def power(value: float, centre: float = 0.0, unit: float = 1.0) -> TargetTransform:
    return TargetTransform("yeo-johnson", np.array([centre]), np.array([unit]), np.array([value]))


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0, 1.7, 2.0])
def test_the_power_transform_is_that_of_scipy(value: float) -> None:
    y = np.linspace(-4.0, 6.0, 41)
    np.testing.assert_allclose(power(value).apply(y[:, None])[:, 0], stats.yeojohnson(y, value), rtol=1e-12, atol=1e-14)


@given(st.floats(0.0, 2.0), st.floats(-50.0, 50.0))
def test_a_power_transform_and_its_inverse_cancel(value: float, y: float) -> None:
    transform = power(value, 3.0, 0.7)
    back = transform.invert(transform.apply(np.array([[y]])))
    np.testing.assert_allclose(back, y, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_the_logarithm_of_the_slope_is_that_of_differences(name: str) -> None:
    transform = learn_target(name, SKEWED)  # type: ignore[arg-type]
    step = 1e-6 * SKEWED
    slope = (transform.apply(SKEWED + step) - transform.apply(SKEWED - step)) / (2.0 * step)
    np.testing.assert_allclose(transform.log_slope(SKEWED), np.log(slope), atol=1e-6)


def test_another_unit_and_origin_of_y_give_the_same_transformed_values() -> None:
    first, second = learn_target("yeo-johnson", SKEWED), learn_target("yeo-johnson", 1e6 * SKEWED - 7e5)
    np.testing.assert_allclose(second.apply(1e6 * SKEWED - 7e5), first.apply(SKEWED), atol=1e-6)


def test_weights_are_repeats() -> None:
    weight = np.random.default_rng(2).integers(1, 4, size=len(SKEWED))
    weighted = learn_target("yeo-johnson", SKEWED, weight.astype(np.float64))
    repeated = learn_target("yeo-johnson", np.repeat(SKEWED, weight, axis=0))
    for own, other in zip(weighted[1:], repeated[1:], strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-6)


def test_the_logarithm_refuses_values_that_have_none() -> None:
    with pytest.raises(InvalidInputError, match=r"above 0; got 2 of 3 values at or below it, the smallest -1\."):
        learn_target("log", np.array([[0.0], [-1.0], [2.0]]))
