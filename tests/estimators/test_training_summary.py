"""What a fit remembers of its rows."""

from pathlib import Path

import numpy as np
import pytest

import cvgp
from cvgp import CVGPRegressor
from cvgp.data.scaling import learn_scaling
from cvgp.estimators.frames import UserColumn
from cvgp.estimators.training_summary import Baselines, Drift, FeatureQuantiles
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


COLUMNS = [
    UserColumn("plain", slice(0, 1)),
    UserColumn("skewed", slice(1, 2)),
    UserColumn("thirds", slice(2, 3)),
    UserColumn("rare", slice(3, 4)),
    UserColumn("city", slice(4, 8), ("a", "b", "c", "d")),
]


def mixed_rows(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Numbers that are normal, skewed, a few fractions and mostly zero, a column of text, and a skewed target."""
    city = np.eye(4)[rng.choice(4, count, p=[0.7, 0.2, 0.07, 0.03])]
    numbers = [
        rng.normal(size=count),
        rng.lognormal(size=count),
        rng.integers(0, 5, count) / 3,
        rng.random(count) < 0.06,
    ]
    return np.column_stack([*numbers, city]), rng.lognormal(size=count)


def drift_of(train: tuple[np.ndarray, np.ndarray], new: tuple[np.ndarray, np.ndarray]) -> Drift:
    quantiles = FeatureQuantiles.learn(train[0], train[1][:, None])
    return quantiles.drift(*new, COLUMNS, learn_scaling(train[0], train[1][:, None]))


@pytest.mark.parametrize(("num_rows", "num_new"), [(60, 20), (400, 100), (3000, 3000)])
def test_random_splits_hardly_ever_drift(num_rows: int, num_new: int) -> None:
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(200):
        found = drift_of(mixed_rows(num_rows, rng), mixed_rows(num_new, rng))
        alarms += bool(found.shares or found.outside) or found.target is not None
    assert alarms <= 10


def test_a_shift_of_one_sd_and_a_change_of_categories_are_found() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        train, (x, y) = mixed_rows(400, rng), mixed_rows(100, rng)
        x[:, 0] += 1.0
        x[:, 4:] = x[:, [6, 5, 4, 7]]
        found = drift_of(train, (x, np.exp(np.log(y) + 1.0)))
        assert set(found.shares) == {"plain", "city"}
        assert found.target is not None


def test_rows_outside_the_range_are_counted_where_chance_does_not_explain_them() -> None:
    rng = np.random.default_rng(0)
    train, (x, y) = (
        (rng.uniform(size=(400, 8)), rng.uniform(size=400)),
        (rng.uniform(size=(100, 8)), rng.uniform(size=100)),
    )
    columns = [UserColumn(f"x{d}", slice(d, d + 1)) for d in range(8)]
    quantiles, scaling = FeatureQuantiles.learn(train[0], train[1][:, None]), learn_scaling(train[0], train[1][:, None])
    x[:2, 0], x[:1, 1], x[:10, 2] = 1.2, 3.0, 1.2
    assert quantiles.drift(x, y, columns, scaling).outside == {"x1": 1, "x2": 10}
