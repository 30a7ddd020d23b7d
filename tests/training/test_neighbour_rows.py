"""Statistics of rows given their neighbours, by a group whose members share the work."""

import pytest
import torch

from cvgp.data.split import cut
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import square_matrix
from cvgp.gp.neighbours.search import RowIndex
from cvgp.parallel.group import ALONE, Group
from cvgp.training import neighbour_rows
from cvgp.training.neighbour_choice import judge
from cvgp.training.neighbour_rows import (
    Walk,
    adopt_neighbours,
    all_statistics,
    find_near,
    gather_rows,
    in_random_order,
    late_residuals,
    ordered,
    walk,
    whitened,
)
from tests.parallel.groups import run_in_threads
from tests.training.problems import make_model, make_source

DIMS = pytest.mark.parametrize("dims", [2, 6])
"""Neighbours are found by a tree, and in blocks."""


@DIMS
@pytest.mark.parametrize("world", [2, 3])
def test_members_of_a_group_have_the_statistics_of_one_process(world: int, dims: int) -> None:
    source = make_source(100, dims=dims)
    rows = in_random_order(source.data, 0)

    def statistics(group: Group) -> Statistics:
        return adopt_neighbours(make_model(source, size=8), rows, 5, group=group)[0].statistics

    expected = statistics(ALONE)
    for found in run_in_threads(world, statistics):
        for values, others in zip(found, expected, strict=True):
            torch.testing.assert_close(values, others, rtol=1e-10, atol=1e-10)


@DIMS
def test_members_of_a_group_judge_as_one_process_does(dims: int) -> None:
    source = make_source(100, dims=dims)
    rows = in_random_order(source.data, 0)
    model = make_model(source, size=8)
    expected = judge("kernel", model, rows, 5)
    for found in run_in_threads(2, lambda group: judge("kernel", model, rows, 5, group)):
        torch.testing.assert_close(found.densities, expected.densities)
        torch.testing.assert_close(found.walk.statistics.Phi, expected.walk.statistics.Phi)


def test_members_of_a_group_walk_as_one_process_does() -> None:
    source = make_source(100, dims=2)
    model, rows = make_model(source, size=8), source.data

    def walked(group: Group) -> Walk:
        return walk(model, rows, find_near(model, rows.x, 5, group), group)

    expected = walked(ALONE)
    for found in run_in_threads(2, walked):
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


def test_statistics_of_all_rows_need_no_walk_over_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour_rows, "LATE_ROWS", 30)
    monkeypatch.setattr(neighbour_rows, "ROWS_FOR_U", 20)
    monkeypatch.setattr(neighbour_rows, "ROWS_FOR_U_PER_POINT", 1)
    source = make_source(100, dims=2)
    model, rows = make_model(source, size=8), source.data
    found = walk(model, rows, find_near(model, rows.x, 5))
    assert found.near.start == 50
    expected = adopt_neighbours(model, rows, 5)[0].statistics
    for values, others in zip(all_statistics(model, rows, found), expected, strict=True):
        torch.testing.assert_close(values, others)


def test_what_is_left_of_late_rows_is_their_distance_from_what_earlier_rows_say() -> None:
    source = make_source(60, dims=2)
    model, rows = make_model(source, size=8), source.data
    found = walk(model, rows, find_near(model, rows.x, 59))
    left = late_residuals(model, rows, found, 1)
    with torch.no_grad():
        K = square_matrix(model.kernel, rows.x)
        K_yy = K[:-1, :-1] + model.noise * torch.eye(59, dtype=torch.float64)
        mean = K[-1, :-1] @ torch.linalg.solve(K_yy, rows.y[:-1])
        variance = K[-1, -1] - K[-1, :-1] @ torch.linalg.solve(K_yy, K[:-1, -1])
    torch.testing.assert_close(left.square[0, 0], (rows.y[-1] - mean).square(), rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(left.f_var[0], variance, rtol=1e-4, atol=1e-8)
