"""The search for rows that are wildly wrong."""

from itertools import count

import numpy as np
import pytest
from numpy.typing import NDArray

from cvgp.data.rows import Rows
from cvgp.objectives.exact import ExactObjective
from cvgp.training.monitor import Watch
from cvgp.training.wild_rows import LEAST_ROWS, find_wild_rows, kept_rows

Array = NDArray[np.float64]


def make_rows(share: float, count: int = 500) -> tuple[Rows[Array], NDArray[np.bool_]]:
    """A smooth function with noise of .3, and some rows that are off by 20."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, size=(count, 2))
    bad = rng.uniform(size=count) < share
    y = 2.0 * np.sin(2.0 * x[:, 0]) + x[:, 1] + 0.3 * rng.normal(size=count)
    return Rows(x, (y + np.where(bad, 20.0 * rng.choice([-1.0, 1.0], count), 0.0))[:, None]), bad


@pytest.mark.parametrize("share", [0.02, 0.1])
def test_the_wild_rows_are_found_and_no_others(share: float) -> None:
    rows, bad = make_rows(share)
    watch = Watch()
    found = find_wild_rows(rows, 0, watch)
    assert found is not None
    np.testing.assert_array_equal(found.probability > 0.5, bad)
    assert found.outliers.share == pytest.approx(bad.mean(), rel=0.5)
    assert 10.0 < np.sqrt(found.outliers.variance[0]) < 40.0
    assert watch.history[-1]["event"].startswith(f"outliers: {bad.sum()} of 500 rows")


def test_clean_rows_have_none() -> None:
    assert find_wild_rows(make_rows(0.0)[0], 0, Watch()) is None


def test_noise_that_depends_on_x_is_not_taken_for_outliers() -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(-2.0, 2.0, size=(500, 1))
    y = np.sin(x) + (0.05 + 0.5 * (x > 1.0)) * rng.normal(size=(500, 1))
    assert find_wild_rows(Rows(x, y), 0, Watch()) is None


@pytest.mark.parametrize("seed", range(3))
def test_noise_that_grows_by_orders_of_magnitude_is_not_taken_for_outliers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.0, 2.0, size=(800, 1))
    y = np.cos(2.0 * np.pi * x) + x**3 * rng.normal(size=(800, 1))
    assert find_wild_rows(Rows(x, y), 0, Watch()) is None


def test_a_skewed_y_is_not_taken_for_outliers() -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(-2.0, 2.0, size=(500, 1))
    assert find_wild_rows(Rows(x, np.exp(np.sin(x) + 0.4 * rng.normal(size=(500, 1)))), 0, Watch()) is None


def test_few_rows_are_left_as_they_are() -> None:
    assert find_wild_rows(make_rows(0.1, LEAST_ROWS - 1)[0], 0, Watch()) is None


def test_rows_count_by_the_probability_that_they_are_regular() -> None:
    rows = Rows(np.zeros((3, 1)), np.zeros((3, 1)), np.array([1.0, 2.0, 3.0]))
    kept = kept_rows(rows, np.array([0.0, 0.25, 1.0]))
    np.testing.assert_array_equal(kept.sample_weight, [1.0, 1.5])


def learned_evaluations(monkeypatch: pytest.MonkeyPatch, *, in_time: bool) -> int:
    """How often a likelihood is evaluated in a search whose clock goes on by a second whenever it is read."""
    calls: list[int] = []
    original = ExactObjective.value_and_backward

    def counted(self: ExactObjective, scale: float = 1.0) -> float:
        calls.append(1)
        return original(self, scale)

    ticks = count()
    monkeypatch.setattr(ExactObjective, "value_and_backward", counted)
    find_wild_rows(make_rows(0.02)[0], 0, Watch(20.0, clock=lambda: float(next(ticks))), in_time=in_time)
    return len(calls)


def test_search_takes_its_share_of_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert learned_evaluations(monkeypatch, in_time=True) < 10


def test_search_of_a_run_that_may_go_on_later_has_no_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert learned_evaluations(monkeypatch, in_time=False) > 40
