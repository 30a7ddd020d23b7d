"""How many pseudo-points, and where they start."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel
from gpytorch.means import ZeroMean

from cvgp.coreset import Coreset
from cvgp.data.source import split
from cvgp.fitting import size
from cvgp.fitting.compare import model_scores
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.monitor import Run
from cvgp.fitting.sample import Start
from cvgp.fitting.size import (
    begin_model,
    choose_size,
    exact_is_affordable,
    greedy_order,
    initial_coreset,
    points_to_keep,
    size_curve,
)
from cvgp.gp.kernels import make_kernel
from cvgp.gp.sites import randomly_pivoted
from cvgp.objectives import solve_coreset
from tests import reference as ref
from tests.fitting.problems import make_source
from tests.parallel.groups import run_in_threads

H = Heuristics()
N, D, M = 60, 2, 8
DATA = np.random.default_rng(0)
X = DATA.normal(size=(N, D))
Y = np.sin(X[:, 0])
WEIGHT = DATA.uniform(0.1, 5.0, size=N)
LENGTHSCALE = np.array([0.7, 1.6])
EVERY_METHOD = pytest.mark.parametrize("method", ["kmeans", "random", "greedy"])


def start(lengthscale: float = 1.0, noise: float = 0.01, dims: int = 1) -> Start:
    kernel = make_kernel("rbf", dims)
    kernel.base_kernel.lengthscale = lengthscale
    return Start(kernel, ZeroMean(), noise)


def test_the_curve_has_the_density_of_a_coreset_that_is_solved_for() -> None:
    source = make_source(300, dims=2)
    learning, judging = source.data.take(slice(200)), source.data.take(slice(200, None))
    curve = size_curve(start(dims=2), learning, judging, 40, np.random.default_rng(0), H)
    assert curve.sizes[-1] == 40
    # The largest size again, by the ordinary posterior: its squared errors do not depend on the factor of variances.
    points = randomly_pivoted(start(dims=2).kernel, learning.x, 40, np.random.default_rng(0))
    model = start(dims=2).model(Coreset(learning.x[points], learning.y[points], np.ones(40)))
    solve_coreset(model, [learning])
    expected = model_scores(model, judging)
    torch.testing.assert_close(curve.scores[-1].squares, expected.squares, rtol=1e-3, atol=1e-6)


def test_a_rough_function_needs_more_points_than_a_smooth_one() -> None:
    smooth = choose_size(start(2.0), make_source(2000), Run.alone()).enough
    rough = choose_size(start(0.1), make_source(2000, frequency=20.0), Run.alone()).enough
    assert smooth < rough


def test_the_exact_gp_is_for_few_rows_and_fewer_beside_neighbors() -> None:
    run = Run.alone()
    assert exact_is_affordable(1200, 5, run)
    assert not exact_is_affordable(3000, 5, run)
    assert not exact_is_affordable(1200, 5, Run.alone(0.5))


def test_fewer_points_are_kept_where_they_leave_a_share_of_the_noise_unexplained() -> None:
    x = make_source(300).data.x.numpy()
    kernel, h = make_kernel("rbf", 1), replace(H, smallest_coreset=1, largest_coreset=100)
    found, more = points_to_keep(kernel, 0.1, x, h), points_to_keep(kernel, 1e-4, x, h)
    assert found is not None
    assert more is not None
    assert found < more
    _, unexplained = greedy_order(kernel, x, found)
    assert unexplained[-1] <= h.unexplained_share * 0.1 < unexplained[-2]
    assert points_to_keep(kernel, 0.1, x, replace(h, largest_coreset=found - 1, bearable_loss=1.0)) is None


@pytest.mark.parametrize("init", ["kmeans", "greedy", "random"])
def test_a_model_begins_with_the_points_that_are_asked_for(init: str) -> None:
    source = make_source(200, dims=2)
    model = begin_model(start(dims=2), source, 12, Run.alone(), init=init)  # type: ignore[arg-type]
    assert model.X_c.shape == (12, 2)
    again = begin_model(start(dims=2), source, 12, Run.alone(), init=init)  # type: ignore[arg-type]
    assert torch.equal(model.X_c, again.X_c)


def test_as_many_points_as_rows_are_the_rows() -> None:
    source = make_source(30)
    model = begin_model(start(), source, 30, Run.alone())
    assert torch.equal(model.X_c, source.data.x)
    assert torch.equal(model.y_c, source.data.y)


def test_all_processes_begin_with_the_same_model() -> None:
    whole = make_source(200, dims=2)
    models = run_in_threads(2, lambda group: begin_model(start(dims=2), split(whole, group), 8, Run.alone()))
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)


def rbf() -> Kernel:
    kernel = make_kernel("rbf", D)
    kernel.base_kernel.lengthscale = torch.tensor(LENGTHSCALE)
    kernel.outputscale = torch.tensor(1.4, dtype=torch.float64)
    return kernel


def placed(method: str, x: np.ndarray = X, y: np.ndarray = Y, size: int = M, seed: int = 0, **options: Any) -> Coreset:
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
def test_weights_add_up_to_the_sample_weights(method: str) -> None:
    assert placed(method, sample_weight=WEIGHT).beta.sum() == pytest.approx(WEIGHT.sum())


@pytest.mark.parametrize("method", ["kmeans", "greedy"])
def test_total_weight_is_that_of_all_rows_when_a_subsample_is_clustered(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(size, "SAMPLE_PER_CENTER", 2)
    monkeypatch.setattr(size, "SMALLEST_SAMPLE", 10)
    assert placed(method, sample_weight=WEIGHT).beta.sum() == pytest.approx(WEIGHT.sum())


def test_kmeans_finds_clusters_that_stand_apart() -> None:
    centers = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    x = np.concatenate([c + 0.01 * X[:20] for c in centers])
    found = placed("kmeans", x, np.repeat([1.0, 2.0, 3.0], 20), size=3)
    order = found.y.argsort()
    np.testing.assert_allclose(found.X[order], centers + 0.01 * X[:20].mean(0), atol=1e-9)
    np.testing.assert_allclose(found.y[order], [1.0, 2.0, 3.0])
    np.testing.assert_allclose(found.beta, 20.0)


def test_kmeans_with_a_center_for_each_row_is_the_data() -> None:
    found = placed("kmeans", size=N)
    order = np.lexsort(X.T[::-1])
    np.testing.assert_array_equal(found.X, X[order])
    np.testing.assert_array_equal(found.y, Y[order])
    np.testing.assert_array_equal(found.beta, np.ones(N))


def test_sample_weights_are_repeats() -> None:
    counts = np.random.default_rng(1).integers(1, 4, size=12)
    weighted = placed("kmeans", X[:12], Y[:12], size=12, sample_weight=counts.astype(np.float64))
    repeated = placed("kmeans", X[:12].repeat(counts, axis=0), Y[:12].repeat(counts), size=12)
    np.testing.assert_allclose(weighted.X, repeated.X, rtol=1e-12)
    np.testing.assert_allclose(weighted.y, repeated.y, rtol=1e-12)
    np.testing.assert_array_equal(weighted.beta, repeated.beta)


def test_cluster_of_no_weight_is_left_out() -> None:
    weight = np.array([1.0, 0.0, 3.0])
    found = placed("kmeans", np.array([[0.0, 0.0], [5.0, 5.0], [9.0, 9.0]]), np.arange(3.0), 3, sample_weight=weight)
    assert found.X.tolist() == [[0.0, 0.0], [9.0, 9.0]]


def test_random_start_is_white_noise_of_equal_weights() -> None:
    found = placed("random", np.tile(X, (50, 1)), np.tile(Y, 50), size=3000)
    values = np.column_stack([found.X, found.y])
    np.testing.assert_allclose(values.mean(0), 0.0, atol=0.1)
    np.testing.assert_allclose(np.cov(values.T), np.eye(3), atol=0.1)
    np.testing.assert_allclose(found.beta, 1.0)


def test_greedy_candidates_come_from_all_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "GREEDY_CANDIDATES", 20)
    ordered = X[X[:, 0].argsort()]
    found = placed("greedy", ordered, Y, size=5)
    assert found.X[:, 0].max() > np.median(X[:, 0])


def test_greedy_order_is_that_of_the_naive_conditional_variance() -> None:
    chosen, left = greedy_order(rbf(), X, 15)
    expected, variances = naive_greedy(15)
    assert chosen.tolist() == expected
    np.testing.assert_allclose(left, variances, rtol=1e-7, atol=1e-12)


def test_greedy_order_ends_when_nothing_is_left_to_explain() -> None:
    chosen, left = greedy_order(make_kernel("linear", D), X, N)
    assert len(chosen) == D
    assert left[-1] == pytest.approx(0.0, abs=1e-9)


def test_rows_that_distances_cannot_tell_apart_are_one_cluster() -> None:
    x = np.array([[0.0, 0.0], [1e-9, 0.0], [1.0, 0.0], [1.0, 1e-10]])
    assert len(placed("kmeans", x, np.arange(4.0), 3)) == 2
