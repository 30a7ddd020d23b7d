from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from cvgp.gp import bounds, vecchia
from cvgp.gp.vecchia import conditional_log_density, local_rows, sequential_moments, vecchia_statistics
from tests import reference as ref
from tests.gp.neighbors.problems import Problem, as_lists, log_densities, make_problem, some_before

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
    early = vecchia_statistics(problem.points, problem.data.take(torch.arange(9)), NEIGHBORS[:9])
    found, _ = sequential_moments(problem.points, problem.data, NEIGHBORS[9:], early)
    torch.testing.assert_close(found.f_mean, before(problem).f_mean[9:])
    torch.testing.assert_close(found.f_var, before(problem).f_var[9:])


@pytest.mark.parametrize("weights", [False, True], ids=["plain", "weighted"])
def test_density_given_the_neighbors_and_its_gradient_are_those_of_the_dense_model(weights: bool) -> None:
    p = make_problem(M=0, outputs=2, weights=weights)
    p = replace(p, noise=p.noise.clone().requires_grad_())
    parameters = [*p.kernel.parameters(), p.noise]
    local = local_rows(torch.arange(14), NEIGHBORS)
    value, expected = conditional_log_density(p.kernel, p.data.take(local.touched), local), dense_log_marginal(p)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=0.0)
    got, wanted = torch.autograd.grad(value, parameters), torch.autograd.grad(expected, parameters)
    for mine, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-7, atol=1e-8)


def dense_log_marginal(p: Problem) -> Tensor:
    """By GPyTorch's kernel and torch's own derivatives alone, without pseudo-inputs."""
    c = torch.ones(14, dtype=torch.float64) if p.sample_weight is None else p.sample_weight
    S = p.kernel(p.x).to_dense() + torch.diag((p.noise / c).expand(14))
    I_minus_B, left = torch.eye(14, dtype=torch.float64), []
    for i, near in enumerate(as_lists(NEIGHBORS)):
        b = torch.linalg.solve(S[near][:, near], S[near, i])
        I_minus_B = I_minus_B.index_put((torch.full((len(near),), i), torch.tensor(near, dtype=torch.int64)), -b)
        left.append(S[i, i] - b @ S[near, i])
    chain = torch.linalg.inv(I_minus_B)
    model = chain @ torch.diag(torch.stack(left)) @ chain.mT
    y = p.y.reshape(14, -1)
    constant = (-0.5 * c * (2 * np.pi * p.noise).log() + 0.5 * (2 * np.pi * p.noise / c).log()).sum()
    normal = torch.distributions.MultivariateNormal(torch.zeros(14, dtype=torch.float64), model)
    return normal.log_prob(y.mT).sum() + y.shape[1] * constant
