from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cvgp.errors import InvalidInputError, JitterWarning
from cvgp.gp import bounds, vecchia
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import KERNEL_NAMES
from cvgp.gp.vecchia import condition_on_neighbors, vecchia_statistics
from tests import reference as ref
from tests.gp.neighbors.problems import Problem, all_before, make_problem, some_before


def sets(n: int, k: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    root = torch.randn(n, k + 1, k + 3, dtype=torch.float64, generator=generator)
    return root @ root.mT, torch.rand(n, k, dtype=torch.float64, generator=generator) + 0.1


@given(n=st.integers(1, 4), k=st.integers(0, 5), seed=st.integers(0, 100))
def test_weights_and_variance_are_those_of_the_plain_formula(n: int, k: int, seed: int) -> None:
    C, rho = sets(n, k, seed)
    b, v = condition_on_neighbors(C, rho)
    for i in range(n):
        S = C[i, :-1, :-1] + torch.diag(1.0 / rho[i])
        expected = torch.linalg.inv(S) @ C[i, :-1, -1]
        torch.testing.assert_close(b[i], expected)
        torch.testing.assert_close(v[i], C[i, -1, -1] - C[i, -1, :-1] @ expected)


def test_gradients_are_those_of_differences() -> None:
    C, rho = sets(3, 4, 0)
    half = C.tril().requires_grad_()

    def values(lower: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
        return condition_on_neighbors(lower + lower.mT, precision)

    assert torch.autograd.gradcheck(values, (half, rho.requires_grad_()))


def test_neighbor_of_precision_zero_is_none() -> None:
    C, rho = sets(3, 4, 0)
    without = [0, 1, 3, 4]
    b, v = condition_on_neighbors(C, rho.index_fill(1, torch.tensor(2), 0.0).requires_grad_())
    b_without, v_without = condition_on_neighbors(C[:, without][:, :, without], rho[:, [0, 1, 3]])
    torch.testing.assert_close(b[:, [0, 1, 3]], b_without)
    torch.testing.assert_close(v, v_without)
    assert bool((b[:, 2] == 0).all())


def test_copies_with_almost_no_noise_share_their_weight() -> None:
    C = torch.ones(1, 21, 21, dtype=torch.float64)  # a row and twenty copies of it
    b, v = condition_on_neighbors(C, torch.full((1, 20), 1e8, dtype=torch.float64))
    torch.testing.assert_close(b, torch.full_like(b, 1 / 20), rtol=1e-6, atol=0.0)
    assert 0.0 <= v.item() < 1e-8


def test_matrix_that_is_not_positive_definite_is_mended_with_a_warning() -> None:
    C = torch.eye(3, dtype=torch.float64)[None]
    C[0, 0, 1] = C[0, 1, 0] = 1.0 + 3e-8
    with pytest.warns(JitterWarning, match="of the neighbors"):
        condition_on_neighbors(C, torch.full((1, 2), 1e8, dtype=torch.float64))


PROBLEMS = {
    "plain": make_problem(),
    "two outputs": make_problem(outputs=2),
    "noise by row": make_problem(noise=np.linspace(0.1, 0.9, 14).tolist()),
    "weights": make_problem(weights=True),
    "all of it": make_problem(outputs=2, noise=np.linspace(0.1, 0.9, 14).tolist(), weights=True),
    "no points": make_problem(M=0),
}


def statistics(p: Problem, neighbors: Tensor) -> Statistics:
    return vecchia_statistics(p.points, p.data, neighbors)


def log_marginal(p: Problem, neighbors: Tensor) -> float:
    with torch.no_grad():
        return bounds.solve_titsias(statistics(p, neighbors), p.points.L_K_inv).value.item()


def constant(p: Problem) -> float:
    """What N(y | f, s)^c has beyond N(y | f, s / c), summed over rows and outputs."""
    if p.sample_weight is None:
        return 0.0
    c = p.sample_weight
    per_row = -0.5 * c * (2 * np.pi * p.noise).log() + 0.5 * (2 * np.pi * p.noise / c).log()
    return per_row.sum().item() * p.y[0].numel()


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("k", [0, 1, 3, 20])
def test_log_marginal_is_that_of_the_dense_model(problem: Problem, k: int) -> None:
    neighbors = some_before(14, k)
    y = problem.y.numpy()
    expected = ref.gaussian_logpdf(y, np.zeros_like(y), problem.model(neighbors)) + constant(problem)
    np.testing.assert_allclose(log_marginal(problem, neighbors), expected, rtol=1e-10)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_all_rows_before_as_neighbors_give_the_exact_gp(problem: Problem) -> None:
    expected = ref.log_marginal(problem.covariance(), problem.y.numpy(), problem.effective_noise) + constant(problem)
    np.testing.assert_allclose(log_marginal(problem, all_before(14)), expected, rtol=1e-10)


@pytest.mark.parametrize("kernel", [name for name in KERNEL_NAMES if name != "tanimoto"])
def test_every_kernel_gives_the_exact_gp(kernel: str) -> None:
    p = make_problem(kernel=kernel, M=2)  # a linear kernel of two columns has two features
    expected = ref.log_marginal(p.covariance(), p.y.numpy(), 0.3)
    np.testing.assert_allclose(log_marginal(p, all_before(14)), expected, rtol=1e-9)


def test_no_points_give_the_vecchia_approximation() -> None:
    p, neighbors = make_problem(M=0), some_before(14, 3)
    K, y = p.covariance() + 0.3 * np.eye(14), p.y.numpy()
    expected = 0.0
    for i, line in enumerate(neighbors.tolist()):
        before = [j for j in line if j >= 0]
        joint, of_neighbors = [*before, i], np.ix_(before, before)
        expected += ref.gaussian_logpdf(y[joint], np.zeros(len(joint)), K[np.ix_(joint, joint)])
        expected -= ref.gaussian_logpdf(y[before], np.zeros(len(before)), K[of_neighbors]) if before else 0.0
    np.testing.assert_allclose(log_marginal(p, neighbors), expected, rtol=1e-10)


def test_a_row_of_some_weight_is_as_many_copies() -> None:
    p, neighbors = make_problem(weights=True, outputs=2), some_before(14, 3)
    assert p.sample_weight is not None
    counts = p.sample_weight.to(torch.int64)
    copies = torch.repeat_interleave(torch.arange(14), counts)
    first = torch.cumsum(counts, 0) - counts
    lines = []
    for i, line in enumerate(neighbors.tolist()):
        of_neighbors = [int(first[j]) + c for j in line if j >= 0 for c in range(int(counts[j]))]
        # A copy is given the copies of the neighbors, and those of itself that come before it.
        lines += [of_neighbors + [int(first[i]) + c for c in range(copy)] for copy in range(int(counts[i]))]
    k = max(len(line) for line in lines)
    expanded = torch.tensor([line + [-1] * (k - len(line)) for line in lines])
    repeated = replace(p, x=p.x[copies], y=p.y[copies], sample_weight=None)
    weighted, plain = statistics(p, neighbors), statistics(repeated, expanded)
    torch.testing.assert_close(plain.Phi, weighted.Phi)
    torch.testing.assert_close(plain.b, weighted.b)
    np.testing.assert_allclose(log_marginal(repeated, expanded), log_marginal(p, neighbors), rtol=1e-10)


@pytest.mark.parametrize("table_bytes", [1, 3000, 10**9], ids=["tiny blocks", "blocks", "one block"])
def test_sums_do_not_depend_on_the_size_of_parts(table_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    p, neighbors = make_problem(N=40, outputs=2), some_before(40, 3)
    expected = statistics(p, neighbors)
    monkeypatch.setattr(vecchia, "TABLE_BYTES", table_bytes)
    monkeypatch.setattr(vecchia, "BATCH_BYTES", 500)
    for mine, other in zip(statistics(p, neighbors), expected, strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize(
    "neighbors", [all_before(14).roll(1, 0), all_before(13), all_before(14)[:, 0]], ids=["later", "rows", "ndim"]
)
def test_neighbors_that_do_not_come_before_are_refused(neighbors: Tensor) -> None:
    with pytest.raises(InvalidInputError, match="each of them a row before its own"):
        statistics(make_problem(), neighbors)
