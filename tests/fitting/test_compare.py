"""The comparison rule, and residuals of rows that had no part in their own prediction."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cvgp.coreset import Coreset
from cvgp.data.source import MemorySource
from cvgp.fitting.compare import (
    LARGEST_GAIN,
    Scores,
    compare,
    coreset_residuals,
    exact_residuals,
    exact_residuals_of_new,
    model_scores,
    simple_densities,
)
from cvgp.objectives import statistics
from tests.fitting.problems import make_model, make_source


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
    assert not found.is_clear


def test_rows_of_weight_zero_do_not_count() -> None:
    weight = np.r_[np.ones(50), np.zeros(50)]
    a = np.r_[0.1 + 0.01 * np.random.default_rng(0).normal(size=50), np.full(50, -9.0)]
    assert compare(scores(a, weight=weight), scores(np.zeros(100), weight=weight)).gain == pytest.approx(0.1, abs=0.01)


def test_without_rows_nothing_is_clear() -> None:
    assert not compare(scores([]), scores([])).is_clear


def all_points(source: MemorySource) -> Coreset:
    return Coreset(source.data.x, source.data.y, torch.ones(source.num_rows))


def test_rows_as_points_have_the_residuals_of_the_exact_gp() -> None:
    source = make_source(60, dims=2)
    model = make_model(source, 8).with_coreset(all_points(source))
    expected = coreset_residuals(model, statistics(model, [source.data]), source.data)
    found = exact_residuals(model, source.data)
    torch.testing.assert_close(found.square, expected.square, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(found.f_var, expected.f_var, rtol=1e-3, atol=1e-6)


def test_new_rows_have_the_residuals_of_the_exact_gp_of_the_seen_ones() -> None:
    source = make_source(60, dims=2)
    model = make_model(source, 8).with_coreset(all_points(source))
    seen, new = source.data.take(slice(40)), source.data.take(slice(40, None))
    expected = coreset_residuals(model, statistics(model, [seen]), new, are_new=True)
    found = exact_residuals_of_new(model, seen, new)
    torch.testing.assert_close(found.square, expected.square, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(found.f_var, expected.f_var, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("size", [4, 60], ids=["a coreset", "all rows"])
def test_a_row_is_left_out_with_all_its_copies(size: int) -> None:
    source = make_source(60, dims=2)
    model = make_model(source, 4) if size == 4 else make_model(source, 4).with_coreset(all_points(source))
    weight = torch.ones(60, dtype=torch.float64).index_fill_(0, torch.tensor(7), 50.0)
    weighted = source.data._replace(sample_weight=weight)
    others = source.data.take(torch.arange(60) != 7)
    expected = coreset_residuals(model, statistics(model, [others]), source.data.take(slice(7, 8)), are_new=True)
    found = coreset_residuals(model, statistics(model, [weighted]), weighted).take(torch.tensor([7]))
    torch.testing.assert_close(found, expected)


def test_scores_are_the_log_density_and_squared_error_of_the_posterior() -> None:
    source = make_source(50)
    model = make_model(source, 8)
    found = model_scores(model, source.data)
    with torch.no_grad():
        prediction = model.posterior(source.data.x)
    normal = torch.distributions.Normal(prediction.mean, (prediction.variance + model.noise.detach()).sqrt())
    torch.testing.assert_close(found.densities, normal.log_prob(source.data.y))
    torch.testing.assert_close(found.squares, (source.data.y - prediction.mean).square())


def test_the_density_of_a_line_is_that_of_its_leave_one_out_residuals() -> None:
    source = make_source(40, dims=2)
    x = np.c_[np.ones(40), source.data.x.numpy()]
    y = source.data.y.numpy()
    errors = []
    for i in range(40):
        kept = np.arange(40) != i
        errors.append(y[i] - x[i] @ np.linalg.lstsq(x[kept], y[kept], rcond=None)[0])
    expected = -0.5 * math.log(2.0 * math.pi * math.e * np.square(errors).mean())
    assert simple_densities(source.data)[1] == pytest.approx(expected)
