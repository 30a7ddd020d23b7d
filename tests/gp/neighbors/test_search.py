import pickle

import numpy as np
import pytest
import torch
from gpytorch.kernels import AdditiveKernel
from torch import Tensor

from cvgp.gp import neighbors
from cvgp.gp.kernels import make_kernel
from cvgp.gp.neighbors import RowIndex

LENGTHSCALES = {2: [0.2, 3.0], 6: [0.3, 1.0, 2.0, 1.0, 5.0, 0.7]}
DIVISIONS = {"tree": 2, "cells": 6}
"""Dimensions in which `MANY` rows are divided in this way."""
MANY = 4400


def rows(N: int, D: int, seed: int = 0) -> Tensor:
    return torch.randn(N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def ard_kernel(D: int):
    kernel = make_kernel("rbf", D)
    kernel.base_kernel.lengthscale = torch.tensor([LENGTHSCALES[D]], dtype=torch.float64)
    return kernel


def distances(x: Tensor, x2: Tensor) -> np.ndarray:
    scale = np.array(LENGTHSCALES[x.shape[1]])
    return np.sqrt((((x.numpy()[:, None] - x2.numpy()) / scale) ** 2).sum(-1))


@pytest.mark.parametrize("D", LENGTHSCALES)
@pytest.mark.parametrize("N", [1, 5, 300])
def test_earlier_rows_are_the_nearest_of_those_before(N: int, D: int) -> None:
    x, k = rows(N, D), 7
    found, expected = RowIndex(ard_kernel(D), x).earlier(k), distances(x, x)
    for i, line in enumerate(found.tolist()):
        order = np.argsort(expected[i, :i], kind="stable")[:k]
        assert line == [*order.tolist(), *[-1] * (k - len(order))]


@pytest.mark.parametrize("D", LENGTHSCALES)
def test_earlier_rows_from_a_start_on_are_those_of_all_rows(D: int) -> None:
    index = RowIndex(ard_kernel(D), rows(90, D))
    assert torch.equal(index.earlier(4, start=61), index.earlier(4)[61:])
    assert index.earlier(4, start=90).shape == (0, 4)


@pytest.mark.parametrize("D", LENGTHSCALES)
def test_size_of_blocks_does_not_matter(D: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = rows(700, D)
    whole = RowIndex(ard_kernel(D), x).earlier(5)
    monkeypatch.setattr(neighbors, "BLOCK_QUERIES", 33)
    assert torch.equal(RowIndex(ard_kernel(D), x).earlier(5), whole)


@pytest.fixture(params=DIVISIONS)
def divided(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> RowIndex:
    """Many rows, which are not searched one by one."""
    monkeypatch.setattr(neighbors, "MOST_NUMBERS", 0)
    D = DIVISIONS[request.param]
    index = RowIndex(ard_kernel(D), rows(MANY, D))
    index.nearest(index.x[:1], 5)
    assert type(index._division[1]).__name__ == f"_{request.param.capitalize()}"
    return index


def test_nearest_rows_of_a_divided_table_are_those_of_all(divided: RowIndex) -> None:
    new = rows(50, divided.x.shape[1], seed=1)
    expected = np.argsort(distances(new, divided.x), axis=1)
    for k in (1, 40):
        assert np.array_equal(divided.nearest(new, k).numpy(), expected[:, :k])


@pytest.mark.parametrize("surplus", [neighbors.SURPLUS, 0.6], ids=["as it is", "too few"])
def test_earlier_rows_of_a_divided_table_are_the_nearest_of_those_before(
    divided: RowIndex, surplus: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbors, "SURPLUS", surplus)
    start, k = 2100, 7
    found = divided.earlier(k, start)
    for i in range(start, MANY, 30):
        expected = np.argsort(distances(divided.x[i : i + 1], divided.x[:i])[0])[:k]
        assert found[i - start].tolist() == expected.tolist()


@pytest.mark.parametrize("k", [20, 60])
def test_a_few_cells_contain_almost_all_neighbors(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbors, "MOST_NUMBERS", 0)
    monkeypatch.setattr(neighbors, "CELL_ROWS", 64)
    x, new = rows(30_000, 12), rows(300, 12, seed=1)
    index = RowIndex(make_kernel("matern32", 12), x)
    found, expected = index.nearest(new, k), torch.cdist(new, x).topk(k, largest=False).indices
    recall = (found[:, :, None] == expected[:, None]).any(1).to(torch.float64).mean().item()
    cells = index._division[1]
    assert isinstance(cells, neighbors._Cells)
    assert cells._num_searched < 0.5 * len(cells._rows)
    assert recall > 0.99


@pytest.mark.parametrize("D", LENGTHSCALES)
@pytest.mark.parametrize("N", [3, 400])
def test_nearest_rows_to_new_points_are_those_of_all(N: int, D: int) -> None:
    x, new = rows(N, D), rows(8, D, seed=1)
    found = RowIndex(ard_kernel(D), x).nearest(new, 6)
    assert np.array_equal(found.numpy(), np.argsort(distances(new, x), axis=1)[:, :6])


@pytest.mark.parametrize("D", LENGTHSCALES)
def test_other_rows_are_the_nearest_without_the_row_itself(D: int) -> None:
    x = rows(200, D)
    between = distances(x, x)
    np.fill_diagonal(between, np.inf)
    found = RowIndex(ard_kernel(D), x).others(torch.arange(50, 90), 5)
    assert np.array_equal(found.numpy(), np.argsort(between[50:90], axis=1)[:, :5])


@pytest.mark.parametrize("D", LENGTHSCALES)
def test_copies_are_neighbors_of_each_other_and_not_of_themselves(D: int) -> None:
    index = RowIndex(ard_kernel(D), rows(1, D).expand(40, D).clone())
    others, earlier = index.others(torch.arange(40), 3), index.earlier(3)
    lines = torch.arange(40)[:, None]
    assert bool((others != lines).all() and (earlier < lines).all())
    assert bool((earlier[3:] >= 0).all())
    assert all(len(set(line)) == 3 for line in others.tolist())


@pytest.mark.parametrize("D", LENGTHSCALES)
def test_correlations_order_rows_as_distances_do(D: int) -> None:
    x = rows(150, D, seed=2)
    found = RowIndex(AdditiveKernel(ard_kernel(D)), x).earlier(3)  # a sum has no distance
    by_distance = RowIndex(ard_kernel(D), x).earlier(3)
    between = torch.as_tensor(distances(x, x))
    near = between.gather(1, by_distance.clamp_min(0)) < 2.0  # further away float32 sees no correlation
    assert torch.equal(found[near], by_distance[near])
    assert int(near.sum()) > 100


def test_rows_of_a_linear_kernel_are_near_where_they_are_parallel() -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 9.0], [0.0, -0.1], [5.0, 0.1]], dtype=torch.float64)
    found = RowIndex(make_kernel("linear", 2), x).earlier(1)
    assert found.tolist() == [[-1], [0], [1], [0]]


@pytest.mark.parametrize("name", ["matern32", "linear"])
@pytest.mark.parametrize("num_dims", [2, 8], ids=["tree", "blocks"])
def test_an_index_that_was_used_can_be_pickled(name: str, num_dims: int) -> None:
    x = torch.randn(50, num_dims, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    index = RowIndex(make_kernel(name, num_dims), x)
    found = index.nearest(x[:5], 4)
    assert torch.equal(pickle.loads(pickle.dumps(index)).nearest(x[:5], 4), found)


@pytest.mark.parametrize("D", LENGTHSCALES)
def test_rows_of_the_own_cluster_are_passed_over(D: int) -> None:
    x, cluster = rows(300, D), torch.arange(300) // 7
    index, places = RowIndex(ard_kernel(D), x, cluster), torch.arange(300)
    found = distances(x, x)
    for near, allowed in (
        (index.earlier(5), (places < places[:, None]) & (cluster != cluster[:, None])),
        (index.others(places, 5), cluster != cluster[:, None]),
    ):
        expected = np.where(allowed.numpy(), found, np.inf)
        order = np.argsort(expected, axis=1)[:, :5]
        is_there = np.isfinite(np.take_along_axis(expected, order, 1))
        np.testing.assert_array_equal(near.numpy(), np.where(is_there, order, -1))
