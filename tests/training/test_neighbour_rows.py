"""Statistics of rows given their neighbours, by a group whose members share the work."""

import pytest
import torch

from cvgp.gp.bounds import Statistics
from cvgp.gp.neighbours.search import RowIndex
from cvgp.parallel.group import ALONE, Group
from cvgp.training.neighbour_choice import judge
from cvgp.training.neighbour_rows import (
    adopt_neighbours,
    gather_early,
    in_random_order,
    ordered,
    residuals_given_neighbours,
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
        torch.testing.assert_close(found.late.Phi, expected.late.Phi)


def test_members_of_a_group_have_the_residuals_of_one_process() -> None:
    source = make_source(100, dims=2)
    model = make_model(source, size=8)
    kept, _ = adopt_neighbours(model, in_random_order(source.data, 0), 5)
    expected = residuals_given_neighbours(model, kept, 30)
    for found in run_in_threads(2, lambda group: residuals_given_neighbours(model, kept, 30, group)):
        torch.testing.assert_close(found.square, expected.square)
        torch.testing.assert_close(found.f_var, expected.f_var)


def test_a_member_without_rows_takes_part() -> None:
    source = make_source(20, dims=2)
    model, rows = make_model(source, size=4), source.data
    points, data, index = whitened(model), ordered(model, rows), RowIndex(model.kernel, rows.x)
    expected = gather_early(points, data, index, 3, ALONE, 10, 12)
    for found in run_in_threads(4, lambda group: gather_early(points, data, index, 3, group, 10, 12)):
        torch.testing.assert_close(found.Phi, expected.Phi)
