from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from cvgp.gp import bounds
from cvgp.gp.neighbours.conditional_densities import earlier_moments, log_densities
from cvgp.gp.neighbours.decorrelated import gather_decorrelated, localise
from cvgp.gp.neighbours.global_part import GlobalPart, global_part, prior_part
from cvgp.gp.neighbours.refinement import expected_log_density, global_divergence
from cvgp.gp.neighbours.search import RowIndex
from tests.gp.neighbours.problems import Problem, as_lists, make_problem, some_before

PROBLEMS = {
    "plain": make_problem(),
    "all of it": make_problem(outputs=2, noise=np.linspace(0.1, 0.9, 14).tolist(), weights=True),
    "no points": make_problem(M=0),
}
NEIGHBOURS = some_before(14, 3)


def posterior(p: Problem) -> GlobalPart:
    with torch.no_grad():
        return global_part(gather_decorrelated(p.points, p.data, NEIGHBOURS))


def value(p: Problem, u: GlobalPart, rows: Tensor, neighbours: Tensor = NEIGHBOURS) -> Tensor:
    local = localise(rows, neighbours[rows])
    return expected_log_density(p.points, p.data.take(local.touched), local, u)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_bound_at_the_posterior_of_u_is_the_log_marginal(problem: Problem) -> None:
    u = posterior(problem)
    sums = gather_decorrelated(problem.points, problem.data, NEIGHBOURS)
    expected = bounds.solve_titsias(sums, problem.points.L_K_inv).value
    bound = value(problem, u, torch.arange(14)) - global_divergence(u)
    torch.testing.assert_close(bound, expected, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_values_and_gradients_of_batches_sum_to_those_of_all_rows(problem: Problem) -> None:
    u, parameters = posterior(problem), list(problem.kernel.parameters())
    whole = value(problem, u, torch.arange(14))
    parts = sum(value(problem, u, rows) for rows in torch.randperm(14).split(4))
    assert isinstance(parts, Tensor)
    torch.testing.assert_close(parts, whole, rtol=1e-11, atol=0.0)
    for mine, other in zip(torch.autograd.grad(parts, parameters), torch.autograd.grad(whole, parameters), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-8, atol=1e-9)


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
    for i, near in enumerate(as_lists(NEIGHBOURS)):
        b = torch.linalg.solve(S[near][:, near], S[near, i])
        I_minus_B = I_minus_B.index_put((torch.full((len(near),), i), torch.tensor(near, dtype=torch.int64)), -b)
        left.append(S[i, i] - b @ S[near, i])
    chain = torch.linalg.inv(I_minus_B)
    model = Psi @ Psi.mT + chain @ torch.diag(torch.stack(left)) @ chain.mT
    y = p.y.reshape(14, -1)
    constant = (-0.5 * c * (2 * np.pi * p.noise).log() + 0.5 * (2 * np.pi * p.noise / c).log()).sum()
    normal = torch.distributions.MultivariateNormal(torch.zeros(14, dtype=torch.float64), model)
    return normal.log_prob(y.mT).sum() + y.shape[1] * constant


@pytest.mark.parametrize("M", [0, 4])
def test_gradients_are_those_of_differences(M: int) -> None:
    p = make_problem(M=M)
    u, rows = posterior(p), torch.tensor([3, 9, 12])
    parameters = list(p.kernel.parameters())
    noise = p.noise.clone().requires_grad_()
    gradients = torch.autograd.grad(value(replace(p, noise=noise), u, rows), [*parameters, noise])
    step = 1e-6
    for tensor, gradient in zip([*parameters, noise], gradients, strict=True):
        for place in range(tensor.numel()):
            values = []
            for sign in (1.0, -1.0):
                with torch.no_grad():
                    tensor.view(-1)[place] += sign * step
                    values.append(value(replace(p, noise=noise.detach()), u, rows).item())
                    tensor.view(-1)[place] -= sign * step
            slope = (values[0] - values[1]) / (2 * step)
            np.testing.assert_allclose(gradient.reshape(-1)[place], slope, rtol=1e-6, atol=1e-7)


def test_without_points_it_is_the_density_given_the_neighbours() -> None:
    p = make_problem(M=0, outputs=2)
    expected = log_densities(p.data, earlier_moments(p.points, p.data, NEIGHBOURS)[0]).sum()
    torch.testing.assert_close(value(p, prior_part(p.points, 2), torch.arange(14)), expected)


def test_rows_given_any_others_are_a_composite_likelihood() -> None:
    p = make_problem(M=0)
    rows = torch.tensor([0, 8])
    others = RowIndex(p.kernel, p.x).others(torch.arange(14), 13)
    found = value(p, prior_part(p.points, 1), rows, others)
    K = torch.tensor(p.covariance()) + 0.3 * torch.eye(14, dtype=torch.float64)
    P = torch.linalg.inv(K)  # a row given all others has the precision P_ii and the residual (P y)_i / P_ii
    residual, precision = (P @ p.y)[rows] / P.diagonal()[rows], P.diagonal()[rows]
    expected = (0.5 * (precision / (2 * np.pi)).log() - 0.5 * precision * residual.square()).sum()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0.0)


def test_divergence_is_that_of_two_gaussians() -> None:
    u = posterior(PROBLEMS["all of it"])
    S = u.root @ u.root.mT
    prior = torch.distributions.MultivariateNormal(
        torch.zeros(4, dtype=torch.float64), torch.eye(4, dtype=torch.float64)
    )
    expected = sum(
        torch.distributions.kl_divergence(torch.distributions.MultivariateNormal(mean, S), prior) for mean in u.mean.mT
    )
    torch.testing.assert_close(global_divergence(u), expected)
