from dataclasses import replace

import numpy as np
import pytest
import torch

from cvgp.gp import bounds
from cvgp.gp.neighbours import conditional_densities
from cvgp.gp.neighbours.conditional_densities import earlier_moments, log_densities
from cvgp.gp.neighbours.decorrelated import gather_decorrelated
from cvgp.gp.neighbours.global_part import global_part, global_part_of_coreset, prior_part
from cvgp.gp.posterior import factorise
from cvgp.gp.sites import best_coreset
from tests import reference as ref
from tests.gp.neighbours.problems import Problem, make_problem, some_before

PROBLEMS = {
    "plain": make_problem(),
    "all of it": make_problem(outputs=2, noise=np.linspace(0.1, 0.9, 14).tolist(), weights=True),
    "no points": make_problem(M=0),
}
NEIGHBOURS = some_before(14, 3)


def before(p: Problem) -> conditional_densities.RowMoments:
    return earlier_moments(p.points, p.data, NEIGHBOURS)[0]


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("block", [1, 4, 256])
def test_densities_of_rows_sum_to_the_log_marginal(
    problem: Problem, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditional_densities, "BLOCK_ROWS", block)
    monkeypatch.setattr("cvgp.gp.neighbours.decorrelated.BATCH_BYTES", 1)
    sums = gather_decorrelated(problem.points, problem.data, NEIGHBOURS)
    expected = bounds.solve_titsias(sums, problem.points.L_K_inv).value
    torch.testing.assert_close(log_densities(problem.data, before(problem)).sum(), expected, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_each_row_has_its_moments_given_all_rows_before(problem: Problem) -> None:
    S, noise, found = problem.model(NEIGHBOURS), problem.effective_noise * np.ones(14), before(problem)
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
    everything = gather_decorrelated(problem.points, problem.data, NEIGHBOURS)
    late = gather_decorrelated(problem.points, problem.data, NEIGHBOURS[9:], 9)
    found, _ = earlier_moments(problem.points, problem.data, NEIGHBOURS[9:], everything.without(late))
    torch.testing.assert_close(found.f_mean, before(problem).f_mean[9:])
    torch.testing.assert_close(found.f_var, before(problem).f_var[9:])


def test_row_of_weight_zero_is_predicted_as_any_other() -> None:
    p = PROBLEMS["plain"]
    weight = torch.ones(14, dtype=torch.float64)
    weight[13] = 0.0
    found, expected = before(replace(p, sample_weight=weight)), before(p)
    torch.testing.assert_close(found.f_mean, expected.f_mean)
    torch.testing.assert_close(found.f_var, expected.f_var)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_a_pass_over_late_rows_ends_with_the_statistics_of_all(problem: Problem) -> None:
    expected = gather_decorrelated(problem.points, problem.data, NEIGHBOURS)
    before_late = expected.without(gather_decorrelated(problem.points, problem.data, NEIGHBOURS[9:], 9))
    _, found = earlier_moments(problem.points, problem.data, NEIGHBOURS[9:], before_late)
    for values, others in zip(found, expected, strict=True):
        torch.testing.assert_close(values, others)


def test_the_last_moments_are_those_of_the_last_rows() -> None:
    found = before(PROBLEMS["all of it"])
    torch.testing.assert_close(found.last(3).f_mean, found.f_mean[11:])
    assert len(found.last(100).f_var) == 14


def test_coreset_has_the_mean_of_u_and_the_covariance_of_its_weights() -> None:
    p = PROBLEMS["plain"]
    with torch.no_grad():
        sums = gather_decorrelated(p.points, p.data, NEIGHBOURS)
        K_cc = torch.tensor(p.covariance(p.X_c))
        best = best_coreset(K_cc, sums, torch.ones(4, dtype=torch.float64))
        u, of_coreset = global_part(sums), global_part_of_coreset(p.points, factorise(K_cc, best.w, best.y_c))
        L_K = torch.linalg.inv(p.points.L_K_inv)
        precision = torch.eye(4, dtype=torch.float64) + L_K.mT @ torch.diag(best.w) @ L_K
    torch.testing.assert_close(of_coreset.mean, u.mean, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(of_coreset.root @ of_coreset.root.mT, torch.linalg.inv(precision))


def test_prior_of_u_is_standard_normal() -> None:
    u = prior_part(make_problem().points, 2)
    torch.testing.assert_close(u.mean, torch.zeros(4, 2, dtype=torch.float64))
    torch.testing.assert_close(u.root, torch.eye(4, dtype=torch.float64))
