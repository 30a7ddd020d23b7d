"""Gross outliers in y."""

import numpy as np
import pytest
from numpy.typing import NDArray

from cvgp.data.rows import Array, Rows
from cvgp.fitting.monitor import Run
from cvgp.fitting.outliers import find_outliers, regular_rows


def make_rows(share: float, count: int = 500) -> tuple[Rows[Array], NDArray[np.bool_]]:
    """A smooth function with noise of .3, and some rows that are off by 20."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, size=(count, 2))
    bad = rng.uniform(size=count) < share
    y = 2.0 * np.sin(2.0 * x[:, 0]) + x[:, 1] + 0.3 * rng.normal(size=count)
    return Rows(x, (y + np.where(bad, 20.0 * rng.choice([-1.0, 1.0], count), 0.0))[:, None]), bad


@pytest.mark.parametrize("share", [0.02, 0.1])
def test_planted_outliers_are_found_and_no_others(share: float) -> None:
    rows, bad = make_rows(share)
    found = find_outliers(rows, Run.alone())
    assert found is not None
    assert ((found.probability > 0.5) != bad).mean() <= 0.002
    assert found.noise.share == pytest.approx(bad.mean(), rel=0.5)
    assert 10.0 < np.sqrt(found.noise.variance[0]) < 40.0


def smooth(seed: int, noise: str) -> Rows[Array]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 2.0, size=(600, 1))
    z = rng.normal(size=(600, 1))
    y = {
        "constant": np.sin(x) + 0.3 * z,
        "step in x": np.sin(x) + (0.05 + 0.5 * (x > 1.5)) * z,
        "orders of magnitude": np.cos(2.0 * np.pi * x) + x**3 * z,
        "skewed": np.exp(np.sin(x) + 0.4 * z),
    }[noise]
    return Rows(x, y)


@pytest.mark.parametrize("noise", ["constant", "step in x", "orders of magnitude", "skewed"])
def test_noise_is_not_taken_for_outliers(noise: str) -> None:
    assert find_outliers(smooth(1, noise), Run.alone()) is None


def test_few_rows_and_constant_outputs_have_no_outliers() -> None:
    assert find_outliers(make_rows(0.1, 150)[0], Run.alone()) is None
    rows, _ = make_rows(0.0)
    assert find_outliers(rows._replace(y=np.ones_like(rows.y)), Run.alone()) is None


def test_rows_count_by_their_probability_of_not_being_an_outlier() -> None:
    rows = Rows(np.zeros((3, 1)), np.zeros((3, 1)), np.array([1.0, 2.0, 3.0]))
    kept = regular_rows(rows, np.array([0.0, 0.25, 1.0]))
    np.testing.assert_array_equal(kept.sample_weight, [1.0, 1.5])
