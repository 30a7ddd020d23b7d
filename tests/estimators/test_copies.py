"""Copies of rows: they are one observation, and must not teach a noise of zero."""

import numpy as np
import pytest

from cvgp import CVGPRegressor

Data = tuple[np.ndarray, np.ndarray]


def coverage(model: CVGPRegressor, X: np.ndarray, y: np.ndarray) -> float:
    low, high = np.asarray(model.predict_interval(X, 0.9)).T
    return float(((low <= y) & (y <= high)).mean())


def noisy(rng: np.random.Generator, num_rows: int) -> Data:
    X = rng.uniform(-3.0, 3.0, size=(num_rows, 2))
    return X, np.sin(2.0 * X[:, 0]) * np.cos(X[:, 1]) + rng.normal(0.0, 0.5, num_rows)


def doubled(X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Data:
    order = rng.permutation(2 * len(y))
    return np.r_[X, X][order], np.r_[y, y][order]


@pytest.mark.parametrize("num_rows", [2000, pytest.param(50_002, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_intervals_hold_where_every_row_is_given_twice(num_rows: int) -> None:
    rng = np.random.default_rng(0)
    X, y = doubled(*noisy(rng, num_rows), rng)
    model = CVGPRegressor(random_state=0).fit(X, y)
    X_new, y_new = noisy(rng, 2000)
    assert 0.86 < coverage(model, X_new, y_new) < 0.94
    assert np.sqrt(np.mean((model.predict(X_new) - y_new) ** 2)) < 0.55


@pytest.mark.slow
def test_intervals_hold_where_copies_differ_in_an_irrelevant_column() -> None:
    rng = np.random.default_rng(0)
    X, y = doubled(*noisy(rng, 2000), rng)
    model = CVGPRegressor(random_state=0).fit(np.c_[X, rng.normal(size=len(X))], y)
    X_new, y_new = noisy(rng, 2000)
    assert 0.86 < coverage(model, np.c_[X_new, rng.normal(size=2000)], y_new) < 0.94


@pytest.mark.slow
def test_intervals_hold_where_a_few_rows_are_most_of_the_data() -> None:
    rng = np.random.default_rng(0)
    distinct = np.c_[rng.normal(size=(12_000, 13)), rng.integers(0, 4, size=(12_000, 13))]
    share = 1.0 / np.arange(1, 12_001)

    def draw(num_rows: int) -> Data:
        X = distinct[rng.choice(12_000, num_rows, p=share / share.sum())]
        f = np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.3 * X[:, 13] + np.cos(X[:, 3])
        return X, f + 0.02 * np.exp(X[:, 4]) * rng.normal(size=num_rows)

    model = CVGPRegressor(random_state=0).fit(*draw(20_000))
    assert 0.85 < coverage(model, *draw(3000)) < 0.95
