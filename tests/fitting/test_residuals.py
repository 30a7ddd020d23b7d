"""Residuals of rows that had no part in their own prediction."""

import math

import numpy as np
import pytest
import torch

from cvgp.coreset import Coreset
from cvgp.data.source import MemorySource
from cvgp.fitting.residuals import (
    coreset_residuals,
    exact_residuals,
    exact_residuals_of_new,
    linear_density,
    model_scores,
)
from cvgp.objectives import statistics
from tests.fitting.problems import make_model, make_source


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
    assert linear_density(source.data) == pytest.approx(expected)
