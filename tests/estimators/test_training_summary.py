"""What a fit remembers of its rows."""

from pathlib import Path

import numpy as np
import pytest

import cvgp
from cvgp import CVGPRegressor
from cvgp.estimators.training_summary import Baselines
from tests.flat_options import make_regressor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2)) * [1.0, 100.0]
Y = 5.0 + X[:, 0] + 0.1 * RNG.normal(size=60)


def quick(**settings: object) -> CVGPRegressor:
    return make_regressor(6, noise="constant", n_neighbors=0, random_state=0, max_iter=2, **settings)


@pytest.fixture(scope="module")
def model() -> CVGPRegressor:
    return quick().fit(X, Y)


def test_a_fit_keeps_the_range_of_each_column(model: CVGPRegressor) -> None:
    seen = model._feature_quantiles
    np.testing.assert_allclose(seen.x[[0, -1]], [X.min(axis=0), X.max(axis=0)], rtol=1e-6)
    np.testing.assert_allclose(seen.y[8, 0], np.median(Y), rtol=1e-6)
    assert seen.num_rows == 60


def test_a_fit_keeps_a_constant_and_a_line(model: CVGPRegressor) -> None:
    simple = model._baselines
    assert simple.mean == pytest.approx(Y.mean())
    assert simple.line_sd < 0.2


def test_a_row_of_weight_two_is_two_rows() -> None:
    weight = np.where(np.arange(60) < 20, 2.0, 1.0)
    twice = np.concatenate([np.arange(60), np.arange(20)])
    by_weight, by_rows = Baselines.learn(X, Y, weight), Baselines.learn(X[twice], Y[twice])
    for own, other in zip(by_weight, by_rows, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-9)


def test_a_file_keeps_both(model: CVGPRegressor, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    again = cvgp.load(tmp_path / "m")
    for name in ("_baselines", "_feature_quantiles"):
        np.testing.assert_equal(getattr(again, name)._asdict(), getattr(model, name)._asdict())


def test_the_constant_is_that_of_the_target_and_not_of_its_transform() -> None:
    model = quick(target_transform="log").fit(X, np.exp(0.3 * Y))
    assert model._baselines.mean == pytest.approx(np.exp(0.3 * Y).mean())


def test_several_outputs_have_no_line_but_their_columns_are_known() -> None:
    model = quick().fit(X, np.column_stack([Y, -Y]))
    assert not hasattr(model, "_baselines")
    assert model._feature_quantiles.y.shape == (17, 2)


def test_numbers_whose_squares_overflow_leave_nothing_behind(tmp_path: Path) -> None:
    model = quick().fit(1e200 * X, 1e140 * Y)
    assert not hasattr(model, "_baselines")
    model.save(tmp_path / "m")
