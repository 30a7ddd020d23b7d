"""Rows given their neighbors: statistics, predictions in order, and the choice to use them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cvgp.data.rows import Rows
from cvgp.data.source import MemorySource, cut
from cvgp.errors import InvalidInputError, InvalidTypeError
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.monitor import Run
from cvgp.fitting.neighbors import (
    SequentialPredictions,
    adopt_neighbors,
    all_statistics,
    check_neighbors,
    find_near,
    gather_rows,
    in_random_order,
    late_residuals,
    limit_outputscale,
    ordered,
    predict_sequentially,
    vecchia_fit,
    whitened,
    without_copies,
)
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import make_kernel, square_matrix
from cvgp.gp.neighbors import RowIndex
from cvgp.parallel.group import ALONE, Group
from tests.fitting.problems import make_model, make_source
from tests.parallel.groups import run_in_threads

H = Heuristics()


@pytest.mark.parametrize("dims", [2, 6], ids=["a tree", "blocks"])
@pytest.mark.parametrize("world", [2, 3])
def test_members_of_a_group_have_the_statistics_of_one_process(world: int, dims: int) -> None:
    source = make_source(100, dims=dims)
    rows = in_random_order(source.data, 0)

    def found_by(group: Group) -> Statistics:
        return adopt_neighbors(make_model(source, size=8), rows, 5, group=group)[0].statistics

    expected = found_by(ALONE)
    for found in run_in_threads(world, found_by):
        for values, others in zip(found, expected, strict=True):
            torch.testing.assert_close(values, others, rtol=1e-10, atol=1e-10)


def test_members_of_a_group_predict_as_one_process_does() -> None:
    source = make_source(100, dims=2)
    model, rows = make_model(source, size=8), source.data

    def predicted(group: Group) -> SequentialPredictions:
        return predict_sequentially(model, rows, find_near(model, rows, 5, H, group), group)

    expected = predicted(ALONE)
    for found in run_in_threads(2, predicted):
        torch.testing.assert_close(found.moments.f_mean, expected.moments.f_mean)
        torch.testing.assert_close(found.moments.f_var, expected.moments.f_var)


def test_a_member_without_rows_takes_part() -> None:
    source = make_source(20, dims=2)
    model, rows = make_model(source, size=4), source.data
    points, data, index = whitened(model), ordered(model, rows), RowIndex(model.kernel, rows.x)
    expected = gather_rows(points, data, index.earlier(3, 10, 12), ALONE, 10, 12)

    def gathered(group: Group) -> Statistics:
        first, last = (10 + place for place in cut(2, group))
        return gather_rows(points, data, index.earlier(3, first, last), group, 10, 12)

    for found in run_in_threads(4, gathered):
        torch.testing.assert_close(found.Phi, expected.Phi)


def test_statistics_of_all_rows_are_completed_from_those_of_the_last() -> None:
    h = replace(H, late_rows=30, early_rows=20, early_rows_per_point=1)
    source = make_source(100, dims=2)
    model, rows = make_model(source, size=8), source.data
    found = predict_sequentially(model, rows, find_near(model, rows, 5, h))
    assert found.near.start == 50
    expected = adopt_neighbors(model, rows, 5)[0].statistics
    for values, others in zip(all_statistics(model, rows, found), expected, strict=True):
        torch.testing.assert_close(values, others)


def test_with_all_earlier_rows_the_residual_of_the_last_is_that_of_the_exact_gp() -> None:
    source = make_source(60, dims=2)
    model, rows = make_model(source, size=8), source.data
    found = predict_sequentially(model, rows, find_near(model, rows, 59, H))
    residual = late_residuals(model, rows, found, 1)
    with torch.no_grad():
        K = square_matrix(model.kernel, rows.x)
        K_yy = K[:-1, :-1] + model.noise * torch.eye(59, dtype=torch.float64)
        mean = K[-1, :-1] @ torch.linalg.solve(K_yy, rows.y[:-1])
        variance = K[-1, -1] - K[-1, :-1] @ torch.linalg.solve(K_yy, K[:-1, -1])
    torch.testing.assert_close(residual.square[0, 0], (rows.y[-1] - mean).square(), rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(residual.f_var[0], variance, rtol=1e-4, atol=1e-8)


def test_copies_are_no_neighbors_but_equal_values_of_a_discrete_y_are() -> None:
    x = torch.stack([torch.arange(6.0).double(), torch.tensor([5.0, 5.0, 1.0, 2.0, 3.0, 4.0]).double()], 1)
    near, queries = torch.tensor([[1, 2], [0, 2]]), torch.tensor([0, 1])
    copied = Rows(x, torch.tensor([0.1, 0.1, 0.3, 0.4, 0.5, 0.6], dtype=torch.float64))
    many = Rows(x.repeat(100, 1), torch.cat([copied.y, torch.rand(594, dtype=torch.float64)]))
    assert without_copies(many, near, queries).tolist() == [[-1, 2], [-1, 2]]
    discrete = Rows(x, torch.tensor([1.0, 1.0, 2.0, 1.0, 2.0, 1.0], dtype=torch.float64))
    assert without_copies(discrete, near, queries).tolist() == near.tolist()


def rough_source(num_rows: int = 1200, noise: float = 0.05) -> MemorySource:
    """A function with more bumps than a small coreset can follow."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, size=(num_rows, 2))
    y = np.sin(7.0 * x[:, 0]) * np.cos(6.0 * x[:, 1]) + noise * rng.normal(size=num_rows)
    return MemorySource(torch.tensor(x), torch.tensor(y))


def test_copies_that_differ_in_an_irrelevant_column_do_not_speak_for_neighbors() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, size=(600, 1))
    y = np.sin(2.0 * x[:, 0]) + 0.5 * rng.normal(size=600)
    twice = np.c_[np.r_[x, x], rng.normal(size=1200)]
    source = MemorySource(torch.tensor(twice), torch.tensor(np.r_[y, y]))
    found = vecchia_fit(make_model(source, 10, noise=0.25), source.data, 10, Run.alone())
    assert found is not None
    assert 0.15 < found[0].noise.item() < 0.4  # the noise is .25, and copies would teach 0


@pytest.mark.slow
def test_the_rows_with_the_most_noise_do_not_decide_on_the_kernel() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, size=(1500, 3))
    is_loud = x[:, 1] > 1.4
    truth = np.sin(4.0 * x[:, 0])
    y = truth + np.where(is_loud, 5.0, 0.05) * rng.normal(size=len(x))
    source = MemorySource(torch.tensor(x), torch.tensor(y))

    def error_of_quiet_rows(h: Heuristics) -> float:
        found = vecchia_fit(make_model(source, 10, noise=1.0), source.data, 20, Run.alone()._replace(heuristics=h))
        assert found is not None
        model, known = found[0], torch.tensor(np.where(is_loud, 25.0, 0.0))
        model.likelihood.noise = torch.tensor(0.05**2, dtype=torch.float64)
        rows = source.data._replace(noise_variance=known)
        left = late_residuals(model, rows, predict_sequentially(model, rows, find_near(model, rows, 20, h)), 500)
        return float(left.square[left.known == 0.0].mean())

    assert error_of_quiet_rows(H) < 0.5 * error_of_quiet_rows(replace(H, least_noise_gain=np.inf))


@pytest.mark.parametrize("name", ["matern32", "matern32+matern12"])
def test_the_prior_variance_is_limited_also_for_sums(name: str) -> None:
    source = make_source(40, dims=2)
    model = make_model(source, 4)
    model.kernel = make_kernel(name, 2)
    for part in model.kernel.modules():
        if hasattr(part, "raw_outputscale"):
            part.outputscale = 500.0
    limit_outputscale(model, 100.0)
    with torch.no_grad():
        prior = square_matrix(model.kernel, source.data.x[:1]).item()
    assert prior == pytest.approx(100.0)


@pytest.mark.parametrize("value", [-1, True, 1.5, "many"])
def test_other_numbers_of_neighbors_are_refused(value: object) -> None:
    with pytest.raises((InvalidInputError, InvalidTypeError), match="n_neighbors"):
        check_neighbors(value)
