"""Intervals of new observations, and what wrappers of scikit-learn make of several predicted arrays."""

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.exceptions import NotFittedError

from cvgp import CVGPRegressor
from cvgp.errors import InvalidInputError, InvalidTypeError, SeveralArraysError

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (80, 1))
Y = np.exp(np.sin(2.0 * X[:, 0]) + 0.1 * RNG.standard_normal(80))


def regressor(**parameters: Any) -> CVGPRegressor:
    return CVGPRegressor(**{"n_coreset": 10, "max_iter": 20, "random_state": 0, **parameters})


@pytest.fixture(scope="module")
def model() -> CVGPRegressor:
    return regressor().fit(X, Y)


@pytest.mark.parametrize("level", [0.5, 0.9, np.float32(0.25)])
def test_the_ends_of_an_interval_are_quantiles(model: CVGPRegressor, level: Any) -> None:
    expected = model.predict_quantiles(X, [0.5 - 0.5 * float(level), 0.5 + 0.5 * float(level)])
    np.testing.assert_array_equal(model.predict_interval(X, level=level), expected)


def test_an_interval_is_of_90_percent_by_default(model: CVGPRegressor) -> None:
    np.testing.assert_array_equal(model.predict_interval(X), model.predict_interval(X, level=0.9))


def test_intervals_of_several_outputs_have_an_axis_for_them() -> None:
    found = regressor().fit(X, np.column_stack([Y, -Y])).predict_interval(X)
    assert found.shape == (80, 2, 2)
    assert (found[..., 0] < found[..., 1]).all()


def test_intervals_of_a_logarithm_stay_above_zero() -> None:
    assert (regressor(target="log").fit(X, Y).predict_interval(X, level=0.999) > 0.0).all()


@pytest.mark.parametrize("level", [0.0, 1.0, 95, -0.5, np.nan])
def test_a_level_outside_of_0_to_1_is_refused(model: CVGPRegressor, level: float) -> None:
    with pytest.raises(InvalidInputError, match=r"between 0 and 1, such as 0\.9 for 90 %"):
        model.predict_interval(X, level=level)


@pytest.mark.parametrize("level", ["high", None, [0.1, 0.9]])
def test_a_level_that_is_no_number_is_refused(model: CVGPRegressor, level: Any) -> None:
    with pytest.raises(InvalidTypeError, match="one number"):
        model.predict_interval(X, level=level)


def test_before_a_fit_there_are_no_intervals() -> None:
    with pytest.raises(NotFittedError):
        CVGPRegressor().predict_interval(X)


# TransformedTargetRegressor of scikit-learn


@pytest.fixture(scope="module")
def wrapped() -> TransformedTargetRegressor:
    return TransformedTargetRegressor(regressor(), func=np.log, inverse_func=np.exp).fit(X, Y)


def test_a_transformed_target_regressor_predicts_the_mean(wrapped: TransformedTargetRegressor) -> None:
    np.testing.assert_allclose(wrapped.predict(X), np.exp(wrapped.regressor_.predict(X)))


@pytest.mark.parametrize("asked", ["return_std", "return_cov", "return_noise"])
def test_asked_for_more_it_points_to_the_parameter_target(wrapped: TransformedTargetRegressor, asked: str) -> None:
    with pytest.raises(SeveralArraysError, match=r"CVGPRegressor\(target='log'\)"):
        wrapped.predict(X, **{asked: True})


def test_several_arrays_are_a_plain_tuple_to_everybody_else(model: CVGPRegressor) -> None:
    found = model.predict(X, return_std=True)
    assert isinstance(found, tuple)
    assert not hasattr(found, "ndim")
    assert np.asarray(found).shape == (2, 80)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(found)), found)


# Masked arrays

MASKED_X = np.ma.masked_array(X, mask=np.arange(80)[:, None] == 3)
MASKED_Y = np.ma.masked_array(Y, mask=np.arange(80) == 3)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("X", {"X": MASKED_X, "y": Y}),
        ("y", {"X": X, "y": MASKED_Y}),
        ("sample_weight", {"X": X, "y": Y, "sample_weight": MASKED_Y}),
        ("noise_variance", {"X": X, "y": Y, "noise_variance": MASKED_Y}),
    ],
)
def test_masked_values_are_refused_by_fit(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=rf"^{name} is a masked array of which 1 of 80 .* index \[3"):
        regressor().fit(**arguments)


def test_masked_values_are_refused_by_predict(model: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match=r"^X is a masked array .*Leave these rows out, or fill"):
        model.predict(MASKED_X)


def test_masked_observations_are_refused(model: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match=r"^y is a masked array"):
        model.log_predictive_density(X, MASKED_Y)


def test_a_masked_array_that_hides_nothing_is_an_array(model: CVGPRegressor) -> None:
    np.testing.assert_array_equal(model.predict(np.ma.masked_array(X, mask=False)), model.predict(X))
