from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel

from cvgp.coreset import Coreset
from cvgp.errors import InvalidInputError
from cvgp.fitting import place
from cvgp.fitting.place import greedy_order, initial_coreset
from cvgp.gp.kernels import make_kernel
from tests import reference as ref

N, D, M = 60, 2, 8
DATA = np.random.default_rng(0)
X = DATA.normal(size=(N, D))
Y = np.sin(X[:, 0])
Y2 = np.stack([Y, X[:, 1]], 1)
WEIGHT = DATA.uniform(0.1, 5.0, size=N)
LENGTHSCALE = np.array([0.7, 1.6])
METHODS = ["kmeans", "random", "greedy"]
EVERY_METHOD = pytest.mark.parametrize("method", METHODS)


def rbf() -> Kernel:
    kernel = make_kernel("rbf", D)
    kernel.base_kernel.lengthscale = torch.tensor(LENGTHSCALE)
    kernel.outputscale = torch.tensor(1.4, dtype=torch.float64)
    return kernel


def start(method: str, x: np.ndarray = X, y: np.ndarray = Y, size: int = M, seed: int = 0, **options: Any) -> Coreset:
    return initial_coreset(method, x, y, size, np.random.default_rng(seed), kernel=rbf(), **options)


def naive_greedy(size: int) -> tuple[list[int], list[float]]:
    """At each step the point of the largest conditional variance, each variance from a fresh inverse."""
    K = ref.rbf(X, X, LENGTHSCALE, 1.4)
    chosen: list[int] = []
    remaining = []
    left = K.diagonal().copy()
    for _ in range(size):
        chosen.append(int(left.argmax()))
        S = K[np.ix_(chosen, chosen)]
        left = K.diagonal() - np.einsum("ij,ji->i", K[:, chosen], np.linalg.solve(S, K[chosen]))
        left[chosen] = 0.0
        remaining.append(float(left.mean()))
    return chosen, remaining


@EVERY_METHOD
def test_weights_add_up_to_the_number_of_rows(method: str) -> None:
    assert start(method).beta.sum() == pytest.approx(N)


@EVERY_METHOD
def test_weights_add_up_to_the_sample_weights(method: str) -> None:
    assert start(method, sample_weight=WEIGHT).beta.sum() == pytest.approx(WEIGHT.sum())


@EVERY_METHOD
def test_coreset_has_the_size_asked_for(method: str) -> None:
    assert len(start(method)) == M


@EVERY_METHOD
def test_no_more_points_than_rows(method: str) -> None:
    assert len(start(method, X[:5], Y[:5], size=50)) == 5


@EVERY_METHOD
def test_outputs_have_the_columns_of_the_data(method: str) -> None:
    assert start(method, y=Y2).y.shape == (M, 2)


@EVERY_METHOD
def test_same_generator_gives_the_same_coreset(method: str) -> None:
    assert start(method, seed=3) == start(method, seed=3)


@pytest.mark.parametrize("method", ["kmeans", "random"])
def test_another_generator_gives_another_coreset(method: str) -> None:
    assert start(method, seed=3) != start(method, seed=4)


@pytest.mark.parametrize("method", ["kmeans", "greedy"])
def test_total_weight_is_that_of_all_rows_when_a_subsample_is_clustered(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "SAMPLE_PER_CENTER", 2)
    monkeypatch.setattr(place, "SMALLEST_SAMPLE", 10)
    assert start(method, sample_weight=WEIGHT).beta.sum() == pytest.approx(WEIGHT.sum())


def test_kmeans_finds_clusters_that_stand_apart() -> None:
    centers = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    x = np.concatenate([c + 0.01 * X[:20] for c in centers])
    found = start("kmeans", x, np.repeat([1.0, 2.0, 3.0], 20), size=3)
    order = found.y.argsort()
    np.testing.assert_allclose(found.X[order], centers + 0.01 * X[:20].mean(0), atol=1e-9)
    np.testing.assert_allclose(found.y[order], [1.0, 2.0, 3.0])
    np.testing.assert_allclose(found.beta, 20.0)


def test_kmeans_with_a_center_for_each_row_is_the_data() -> None:
    found = start("kmeans", size=N)
    order = np.lexsort(X.T[::-1])
    np.testing.assert_array_equal(found.X, X[order])
    np.testing.assert_array_equal(found.y, Y[order])
    np.testing.assert_array_equal(found.beta, np.ones(N))


def test_fewer_distinct_inputs_than_centers_give_one_point_each() -> None:
    x = np.repeat([[0.0, 1.0], [2.0, 3.0]], [10, 20], axis=0)
    found = start("kmeans", x, np.arange(30.0), size=8)
    assert found == Coreset([[0.0, 1.0], [2.0, 3.0]], [4.5, 19.5], [10.0, 20.0])


def test_sample_weights_are_repeats() -> None:
    counts = np.random.default_rng(1).integers(1, 4, size=12)
    weighted = start("kmeans", X[:12], Y[:12], size=12, sample_weight=counts.astype(np.float64))
    repeated = start("kmeans", X[:12].repeat(counts, axis=0), Y[:12].repeat(counts), size=12)
    np.testing.assert_allclose(weighted.X, repeated.X, rtol=1e-12)
    np.testing.assert_allclose(weighted.y, repeated.y, rtol=1e-12)
    np.testing.assert_array_equal(weighted.beta, repeated.beta)


def test_outputs_are_weighted_means_of_their_cluster() -> None:
    x = np.zeros((3, 2))
    found = start("kmeans", x, np.array([1.0, 2.0, 6.0]), size=1, sample_weight=np.array([1.0, 2.0, 1.0]))
    assert found.y.tolist() == [2.75]


def test_cluster_of_no_weight_is_left_out() -> None:
    weight = np.array([1.0, 0.0, 3.0])
    found = start("kmeans", np.array([[0.0, 0.0], [5.0, 5.0], [9.0, 9.0]]), np.arange(3.0), 3, sample_weight=weight)
    assert found.X.tolist() == [[0.0, 0.0], [9.0, 9.0]]


def test_random_start_is_white_noise_of_equal_weights() -> None:
    found = start("random", np.tile(X, (50, 1)), np.tile(Y, 50), size=3000)
    values = np.column_stack([found.X, found.y])
    np.testing.assert_allclose(values.mean(0), 0.0, atol=0.1)
    np.testing.assert_allclose(np.cov(values.T), np.eye(3), atol=0.1)
    np.testing.assert_allclose(found.beta, 1.0)


def test_greedy_start_is_made_of_data_points() -> None:
    assert {tuple(x) for x in start("greedy").X} <= {tuple(x) for x in X}


def test_greedy_candidates_come_from_all_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "GREEDY_CANDIDATES", 20)
    ordered = X[X[:, 0].argsort()]
    found = start("greedy", ordered, Y, size=5)
    assert found.X[:, 0].max() > np.median(X[:, 0])


def test_greedy_start_without_a_kernel_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="needs a kernel"):
        initial_coreset("greedy", X, Y, M, np.random.default_rng(0))


def test_unknown_method_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="Choose kmeans, random or greedy"):
        start("best")


def test_greedy_order_is_that_of_the_naive_conditional_variance() -> None:
    chosen, _ = greedy_order(rbf(), X, 15)
    assert chosen.tolist() == naive_greedy(15)[0]


def test_variance_left_is_the_naive_one() -> None:
    _, left = greedy_order(rbf(), X, 15)
    np.testing.assert_allclose(left, naive_greedy(15)[1], rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("kernel", [rbf, lambda: make_kernel("matern12", D)], ids=["rbf", "matern12"])
def test_variance_left_never_grows(kernel: Callable[[], Kernel]) -> None:
    _, left = greedy_order(kernel(), X, N)
    assert (np.diff(left) <= 1e-12).all()


def test_greedy_order_ends_when_nothing_is_left_to_explain() -> None:
    chosen, left = greedy_order(make_kernel("linear", D), X, N)
    assert len(chosen) == D
    assert left[-1] == pytest.approx(0.0, abs=1e-9)


def test_rows_that_distances_cannot_tell_apart_are_one_cluster() -> None:
    x = np.array([[0.0, 0.0], [1e-9, 0.0], [1.0, 0.0], [1.0, 1e-10]])
    assert len(start("kmeans", x, np.arange(4.0), 3)) == 2
