"""The comparison rule."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cvgp.fitting.compare import LARGEST_GAIN, Scores, compare


def scores(densities: object, squares: object = None, weight: object = None) -> Scores:
    values = torch.as_tensor(np.asarray(densities, dtype=np.float64))
    squares = torch.ones_like(values) if squares is None else torch.as_tensor(np.asarray(squares, dtype=np.float64))
    weight = torch.ones_like(values) if weight is None else torch.as_tensor(np.asarray(weight, dtype=np.float64))
    return Scores(values, squares, weight)


def test_the_gain_has_the_standard_error_of_paired_differences() -> None:
    rng = np.random.default_rng(0)
    hard = 10.0 * rng.normal(size=400)  # what makes a row hard for both cancels
    a, b = hard + 0.1 + 0.1 * rng.normal(size=400), hard
    found = compare(scores(a), scores(b))
    difference = a - b
    assert found.gain == pytest.approx(difference.mean())
    assert found.gain_error == pytest.approx(difference.std() / math.sqrt(400))
    assert found.is_clear


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=30))
def test_no_model_is_clearly_better_than_itself(values: list[float]) -> None:
    assert not compare(scores(values), scores(values)).is_clear


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=30), st.lists(st.floats(-5, 5), min_size=3, max_size=30))
def test_two_models_are_not_each_clearly_better_than_the_other(a: list[float], b: list[float]) -> None:
    n = min(len(a), len(b))
    first, second = scores(a[:n]), scores(b[:n])
    assert not (compare(first, second).is_clear and compare(second, first).is_clear)


def test_one_row_does_not_decide() -> None:
    a, b = np.zeros(100), np.zeros(100)
    a[0] = 1e6
    found = compare(scores(a), scores(b))
    assert found.gain == pytest.approx(LARGEST_GAIN / 100)
    assert not found.is_clear


def test_a_clear_loss_in_squared_error_rules_a_gain_in_density_out() -> None:
    n = 200
    likelier = scores(np.full(n, 0.5), squares=np.full(n, 2.0) + 0.1 * np.random.default_rng(0).normal(size=n))
    found = compare(likelier, scores(np.zeros(n), squares=np.ones(n)))
    assert found.is_less_accurate
    assert not found.is_clear


def test_rows_of_weight_zero_do_not_count() -> None:
    weight = np.r_[np.ones(50), np.zeros(50)]
    a = np.r_[0.1 + 0.01 * np.random.default_rng(0).normal(size=50), np.full(50, -9.0)]
    assert compare(scores(a, weight=weight), scores(np.zeros(100), weight=weight)).gain == pytest.approx(0.1, abs=0.01)


def test_without_rows_nothing_is_clear() -> None:
    assert not compare(scores([]), scores([])).is_clear
