from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from cvgp.gp import bounds, vecchia
from cvgp.gp.vecchia import (
    InducingPosterior,
    expected_log_density,
    inducing_posterior,
    inducing_prior,
    local_rows,
    sequential_moments,
    vecchia_statistics,
)
from tests import reference as ref
from tests.gp.neighbors.problems import Problem, as_lists, inducing_kl, log_densities, make_problem, some_before

PROBLEMS = {
    "plain": make_problem(),
    "all of it": make_problem(outputs=2, noise=np.linspace(0.1, 0.9, 14).tolist(), weights=True),
    "no points": make_problem(M=0),
}
NEIGHBORS = some_before(14, 3)


def before(p: Problem) -> vecchia.RowMoments:
    return sequential_moments(p.points, p.data, NEIGHBORS)[0]


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("block", [1, 4, 256])
def test_densities_of_rows_sum_to_the_log_marginal(
    problem: Problem, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vecchia, "BLOCK_ROWS", block)
    monkeypatch.setattr("cvgp.gp.vecchia.BATCH_BYTES", 1)
    sums = vecchia_statistics(problem.points, problem.data, NEIGHBORS)
    expected = bounds.solve_titsias(sums, problem.points.L_K_inv).value
    torch.testing.assert_close(log_densities(problem.data, before(problem)).sum(), expected, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_each_row_has_its_moments_given_all_rows_before(problem: Problem) -> None:
    S, noise, found = problem.model(NEIGHBORS), problem.effective_noise * np.ones(14), before(problem)
    for i in range(1, 14):
        mean, covariance = ref.gaussian_condition(S, problem.y.numpy()[:i], list(range(i)), [i])
        np.testing.assert_allclose(found.f_mean[i], mean.reshape(-1), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(found.f_var[i], covariance[0, 0] - noise[i], rtol=1e-8)


def test_no_row_has_a_part_in_its_own_density() -> None:
    p = PROBLEMS["plain"]
    y = p.y.clone()
    y[9] += 100.0
    found, changed = before(p), before(replace(p, y=y))
    torch.testing.assert_close(changed.f_mean[:10], found.f_mean[:10])
    assert not torch.allclose(changed.f_mean[10:], found.f_mean[10:])


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_late_rows_need_only_the_statistics_of_those_before(problem: Problem) -> None:
    everything = vecchia_statistics(problem.points, problem.data, NEIGHBORS)
    late = vecchia_statistics(problem.points, problem.data, NEIGHBORS[9:], 9)
    found, _ = sequential_moments(problem.points, problem.data, NEIGHBORS[9:], everything.without(late))
    torch.testing.assert_close(found.f_mean, before(problem).f_mean[9:])
    torch.testing.assert_close(found.f_var, before(problem).f_var[9:])


def posterior(p: Problem) -> InducingPosterior:
    with torch.no_grad():
        return inducing_posterior(vecchia_statistics(p.points, p.data, NEIGHBORS))


def value(p: Problem, u: InducingPosterior, rows: Tensor, neighbors: Tensor = NEIGHBORS) -> Tensor:
    local = local_rows(rows, neighbors[rows])
    return expected_log_density(p.points, p.data.take(local.touched), local, u)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_bound_at_the_posterior_of_u_is_the_log_marginal(problem: Problem) -> None:
    u = posterior(problem)
    sums = vecchia_statistics(problem.points, problem.data, NEIGHBORS)
    expected = bounds.solve_titsias(sums, problem.points.L_K_inv).value
    bound = value(problem, u, torch.arange(14)) - inducing_kl(u)
    torch.testing.assert_close(bound, expected, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_gradient_at_the_posterior_of_u_is_that_of_the_log_marginal(problem: Problem) -> None:
    noise = problem.noise.clone().requires_grad_()
    p = replace(problem, noise=noise)
    parameters = [*p.kernel.parameters(), noise]
    got = torch.autograd.grad(value(p, posterior(problem), torch.arange(14)), parameters)
    expected = torch.autograd.grad(dense_log_marginal(p), parameters)
    for mine, other in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-7, atol=1e-8)


def dense_log_marginal(p: Problem) -> Tensor:
    """By GPyTorch's kernel and torch's own derivatives alone."""
    K = p.kernel(p.x).to_dense()
    if len(p.X_c):
        L = torch.linalg.cholesky(p.kernel(p.X_c).to_dense())
        Psi = torch.linalg.solve_triangular(L, p.kernel(p.X_c, p.x).to_dense(), upper=False).mT
    else:
        Psi = K[:, :0]
    c = torch.ones(14, dtype=torch.float64) if p.sample_weight is None else p.sample_weight
    S = K - Psi @ Psi.mT + torch.diag((p.noise / c).expand(14))
    I_minus_B, left = torch.eye(14, dtype=torch.float64), []
    for i, near in enumerate(as_lists(NEIGHBORS)):
        b = torch.linalg.solve(S[near][:, near], S[near, i])
        I_minus_B = I_minus_B.index_put((torch.full((len(near),), i), torch.tensor(near, dtype=torch.int64)), -b)
        left.append(S[i, i] - b @ S[near, i])
    chain = torch.linalg.inv(I_minus_B)
    model = Psi @ Psi.mT + chain @ torch.diag(torch.stack(left)) @ chain.mT
    y = p.y.reshape(14, -1)
    constant = (-0.5 * c * (2 * np.pi * p.noise).log() + 0.5 * (2 * np.pi * p.noise / c).log()).sum()
    normal = torch.distributions.MultivariateNormal(torch.zeros(14, dtype=torch.float64), model)
    return normal.log_prob(y.mT).sum() + y.shape[1] * constant


def test_without_points_it_is_the_density_given_the_neighbors() -> None:
    p = make_problem(M=0, outputs=2)
    expected = log_densities(p.data, sequential_moments(p.points, p.data, NEIGHBORS)[0]).sum()
    torch.testing.assert_close(value(p, inducing_prior(p.points, 2), torch.arange(14)), expected)
