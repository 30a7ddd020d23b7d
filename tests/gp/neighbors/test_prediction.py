from dataclasses import replace

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from cvgp.gp import vecchia
from cvgp.gp.neighbors import RowIndex
from cvgp.gp.vecchia import NeighborProcess, inducing_posterior, vecchia_statistics
from tests import reference as ref
from tests.gp.neighbors.problems import Problem, as_lists, make_problem

PROBLEMS = {
    "plain": make_problem(),
    "all of it": make_problem(outputs=2, noise=np.linspace(0.1, 0.9, 14).tolist(), weights=True),
    "no points": make_problem(M=0),
}
X_NEW = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def fitted(p: Problem, k: int) -> NeighborProcess:
    with torch.no_grad():
        neighbors = RowIndex(p.kernel, p.x).earlier(k)
        u = inducing_posterior(vecchia_statistics(p.points, p.data, neighbors))
        return NeighborProcess(p.points, p.data, u, k)


def correlation(C: ref.Array) -> ref.Array:
    sd = np.sqrt(np.diag(C))
    return C / np.outer(sd, sd)


def dense(p: Problem, k: int, x: Tensor, lines: list[list[int]]) -> ref.Moments:
    """f at x after the data, where `lines` are its neighbors among the rows and among x."""
    together = torch.cat([p.x, x])
    noise = np.concatenate([np.ones(len(p.x)) * p.effective_noise, np.zeros(len(x))])
    neighbors = as_lists(RowIndex(p.kernel, p.x).earlier(k)) + lines
    S = ref.neighbor_model(p.covariance(together), p.features(together), noise, neighbors)
    N = len(p.x)
    return ref.gaussian_condition(S, p.y.numpy().reshape(N, -1), list(range(N)), list(range(N, N + len(x))))


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("k", [0, 3, 50])
def test_moments_are_those_of_the_dense_model(problem: Problem, k: int) -> None:
    f_mean, f_var = fitted(problem, k).moments(X_NEW)
    nearest = RowIndex(problem.kernel, problem.x).nearest(X_NEW, k)
    mean, covariance = dense(problem, k, X_NEW, as_lists(nearest))
    np.testing.assert_allclose(f_mean, mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(f_var, np.diag(covariance), rtol=1e-8)


KERNELS = {
    "fused": ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2)),
    "sum": ScaleKernel(RBFKernel(ard_num_dims=2)) + LinearKernel(),
}


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("k", [0, 3, 50])
@pytest.mark.parametrize("batch_bytes", [vecchia.BATCH_BYTES, 2000])
def test_points_that_share_neighbors_have_the_mean_of_each_by_itself(
    problem: Problem, k: int, batch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, x = fitted(problem, k), torch.cat([X_NEW, X_NEW + 1e-4, X_NEW - 1e-4])
    expected = process.moments(x)[0]
    monkeypatch.setattr(vecchia, "BATCH_BYTES", batch_bytes)
    monkeypatch.setattr(process, "_given_nearest", None)  # points one by one
    torch.testing.assert_close(process.mean(x), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", KERNELS)
def test_points_share_neighbors_with_any_kernel(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = replace(PROBLEMS["plain"], kernel=KERNELS[name].double())
    process, x = fitted(problem, 5), X_NEW.repeat(3, 1)
    expected = process.moments(x)[0]
    monkeypatch.setattr(process, "_given_nearest", None)
    torch.testing.assert_close(process.mean(x), expected, rtol=1e-8, atol=1e-10)


def test_points_without_common_neighbors_have_the_same_mean() -> None:
    process = fitted(PROBLEMS["all of it"], 3)
    torch.testing.assert_close(process.mean(X_NEW), process.moments(X_NEW)[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", ["TABLE_BYTES", "BATCH_BYTES", "FEATURE_ROWS"])
def test_moments_do_not_depend_on_the_sizes_of_tables_and_batches(size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fitted(PROBLEMS["all of it"], 3).moments(X_NEW)
    monkeypatch.setattr(vecchia, size, 1)
    found = fitted(PROBLEMS["all of it"], 3).moments(X_NEW)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_all_rows_as_neighbors_give_the_exact_gp(problem: Problem) -> None:
    process = fitted(problem, 50)
    K = problem.covariance(torch.cat([problem.x, X_NEW]))
    y = problem.y.numpy().reshape(14, -1)
    mean, covariance = ref.exact_gp_predict(K[:14, :14], K[:14, 14:], K[14:, 14:], y, problem.effective_noise)
    f_mean, f_var = process.moments(X_NEW)
    np.testing.assert_allclose(f_mean, mean, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(f_var, np.diag(covariance), rtol=1e-10)
    np.testing.assert_allclose(process.covariance(X_NEW), covariance, rtol=1e-6, atol=1e-8)


def dense_covariance(p: Problem, process: NeighborProcess, k: int, x: Tensor) -> ref.Array:
    """Covariance of the errors f - b^T y_N - phi^T E[u] with dense matrices: those of what is left by u, and of u."""
    N, n = len(p.x), len(x)
    Psi = p.features(torch.cat([p.x, x]))
    C = p.covariance(torch.cat([p.x, x])) - Psi @ Psi.T
    observed = C[:N, :N] + np.diag(np.ones(N) * p.effective_noise)
    W = np.zeros((n, N))
    for i, near in enumerate(as_lists(RowIndex(p.kernel, p.x).nearest(x, k))):
        W[i, near] = np.linalg.solve(observed[np.ix_(near, near)], C[near, N + i])
    errors = C[N:, N:] - W @ C[:N, N:] - C[N:, :N] @ W.T + W @ observed @ W.T
    phi_root = (Psi[N:] - W @ Psi[:N]) @ process.u.root.numpy()
    return errors + phi_root @ phi_root.T


@pytest.mark.parametrize("part_bytes", [vecchia.PART_BYTES, 300])
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("k", [0, 3, 50])
def test_covariance_is_that_of_the_prediction_errors(
    problem: Problem, k: int, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = fitted(problem, k)
    monkeypatch.setattr(vecchia, "PART_BYTES", part_bytes)
    found = process.covariance(X_NEW)
    np.testing.assert_allclose(found, dense_covariance(problem, process, k, X_NEW), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(found.diagonal(), process.moments(X_NEW)[1])


def test_covariance_does_not_depend_on_the_order_of_the_points() -> None:
    """On a sorted grid the points before a point used to take the place of its training rows."""
    p = make_problem(N=300, M=6, D=2, noise=0.05)
    x = torch.linspace(-2.0, 2.0, 200, dtype=torch.float64)[:, None].repeat(1, 2)
    K = p.covariance(torch.cat([p.x, x]))
    exact = ref.exact_gp_predict(K[:300, :300], K[:300, 300:], K[300:, 300:], p.y.numpy(), p.effective_noise)[1]
    process, order = fitted(p, 20), torch.randperm(200, generator=torch.Generator().manual_seed(0))
    found = process.covariance(x)
    torch.testing.assert_close(process.covariance(x[order]), found[order][:, order])
    assert np.abs(correlation(found.numpy()) - correlation(exact)).max() < 0.05
    assert np.linalg.eigvalsh(found.numpy()).min() > 0.0
