from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from cvgp import CVGP, Coreset
from cvgp.errors import InvalidInputError
from cvgp.gp.neighbours import local_prediction
from cvgp.gp.neighbours.decorrelated import gather_decorrelated
from cvgp.gp.neighbours.global_part import global_part, global_part_of_coreset
from cvgp.gp.neighbours.local_prediction import NeighbourProcess
from cvgp.gp.neighbours.search import RowIndex
from cvgp.gp.neighbours.whitened_points import whiten_points
from tests import reference as ref
from tests.gp.neighbours.problems import Problem, as_lists, make_problem

PROBLEMS = {
    "plain": make_problem(),
    "all of it": make_problem(outputs=2, noise=np.linspace(0.1, 0.9, 14).tolist(), weights=True),
    "no points": make_problem(M=0),
}
X_NEW = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def fitted(p: Problem, k: int) -> NeighbourProcess:
    with torch.no_grad():
        neighbours = RowIndex(p.kernel, p.x).earlier(k)
        u = global_part(gather_decorrelated(p.points, p.data, neighbours))
        return NeighbourProcess(p.points, p.data, u, k)


def dense(p: Problem, k: int, x: Tensor, lines: list[list[int]]) -> ref.Moments:
    """f at x after the data, where `lines` are its neighbours among the rows and among x."""
    together = torch.cat([p.x, x])
    noise = np.concatenate([np.ones(len(p.x)) * p.effective_noise, np.zeros(len(x))])
    neighbours = as_lists(RowIndex(p.kernel, p.x).earlier(k)) + lines
    S = ref.neighbour_model(p.covariance(together), p.features(together), noise, neighbours)
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


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
@pytest.mark.parametrize("k", [0, 3, 50])
def test_joint_moments_are_those_of_the_dense_model(problem: Problem, k: int) -> None:
    joint = fitted(problem, k).joint(X_NEW)
    lines = as_lists(RowIndex(problem.kernel, torch.cat([problem.x, X_NEW])).earlier(k)[14:])
    mean, covariance = dense(problem, k, X_NEW, lines)
    np.testing.assert_allclose(joint.f_mean, mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(joint.f_covariance, covariance, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_all_rows_as_neighbours_give_the_exact_gp(problem: Problem) -> None:
    process = fitted(problem, 50)
    K = problem.covariance(torch.cat([problem.x, X_NEW]))
    y = problem.y.numpy().reshape(14, -1)
    mean, covariance = ref.exact_gp_predict(K[:14, :14], K[:14, 14:], K[14:, 14:], y, problem.effective_noise)
    f_mean, f_var = process.moments(X_NEW)
    np.testing.assert_allclose(f_mean, mean, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(f_var, np.diag(covariance), rtol=1e-10)
    np.testing.assert_allclose(process.joint(X_NEW).f_covariance, covariance, rtol=1e-6, atol=1e-8)


def test_draws_have_the_joint_moments() -> None:
    process = fitted(PROBLEMS["all of it"], 3)
    joint = process.joint(X_NEW)
    draws = process.sample(X_NEW, 40_000, torch.Generator().manual_seed(0))  # [S, n, Q]
    assert draws.shape == (40_000, 6, 2)
    torch.testing.assert_close(draws.mean(0), joint.f_mean, rtol=0.0, atol=0.03)
    centred = draws - draws.mean(0)
    for output in range(2):
        covariance = centred[:, :, output].mT @ centred[:, :, output] / len(draws)
        torch.testing.assert_close(covariance, joint.f_covariance, rtol=0.0, atol=0.03)
    across = centred[:, :, 0].mT @ centred[:, :, 1] / len(draws)
    torch.testing.assert_close(across, torch.zeros_like(across), rtol=0.0, atol=0.03)


def test_draws_are_those_of_the_seed() -> None:
    process = fitted(PROBLEMS["plain"], 3)
    draws = [process.sample(X_NEW, 3, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_copies_among_new_points_have_one_value() -> None:
    process = fitted(PROBLEMS["plain"], 5)
    draws = process.sample(X_NEW[:1].repeat(4, 1), 5, torch.Generator().manual_seed(0))
    torch.testing.assert_close(draws, draws[:, :1].expand_as(draws), rtol=0.0, atol=1e-3)


def test_size_of_parts_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    process = fitted(PROBLEMS["all of it"], 3)
    expected = process.moments(X_NEW)
    monkeypatch.setattr(local_prediction, "PART_BYTES", 300)
    for mine, other in zip(process.moments(X_NEW), expected, strict=True):
        torch.testing.assert_close(mine, other)


def test_float32_points_are_predicted_in_float64() -> None:
    process = fitted(PROBLEMS["plain"], 3)
    for mine, other in zip(process.moments(X_NEW.float()), process.moments(X_NEW), strict=True):
        assert mine.dtype == torch.float64
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


def test_sites_of_plain_rows_would_count_the_neighbours_twice() -> None:
    # The posterior must come from the sums of decorrelated rows: sites of plain rows know the neighbours' outputs.
    p = make_problem(N=40, M=6, noise=0.05, seed=1)
    exact = ref.exact_gp_predict(
        p.covariance(),
        p.covariance(torch.cat([p.x, X_NEW]))[:40, 40:],
        p.covariance(X_NEW),
        p.y.numpy(),
        0.05,
    )[0]
    model = CVGP(Coreset(p.X_c, torch.zeros(6), torch.ones(6)), p.kernel)
    model.likelihood.noise = p.noise
    errors = {}
    with torch.no_grad():
        points = whiten_points(p.kernel, p.X_c, model.jittered_covariance())
        neighbours = RowIndex(p.kernel, p.x).earlier(39)
        for name, sums in {
            "once": gather_decorrelated(points, p.data, neighbours),
            "twice": model.gather(points.L_K_inv, p.x, p.y),
        }.items():
            model.adopt_optimum(sums)
            u = global_part_of_coreset(points, model.process().factor)
            f_mean = NeighbourProcess(points, p.data, u, 40).moments(X_NEW)[0]
            errors[name] = np.abs(f_mean[:, 0].numpy() - exact).max()
    assert errors["once"] < 1e-5
    assert errors["twice"] > 1e-2


@pytest.mark.parametrize("x", [X_NEW[:, :1], X_NEW[0], X_NEW[:0], X_NEW * torch.nan], ids=["D", "ndim", "rows", "NaN"])
def test_points_that_do_not_fit_are_refused(x: Tensor) -> None:
    with pytest.raises(InvalidInputError):
        fitted(PROBLEMS["plain"], 3).moments(x)


def test_fewer_than_no_neighbours_are_refused() -> None:
    process = fitted(PROBLEMS["plain"], 3)
    with pytest.raises(InvalidInputError, match="at least 0; got -1"):
        NeighbourProcess(process.points, process.data, process.u, -1)


def test_weight_of_a_copy_is_that_of_two_rows() -> None:
    p = make_problem()
    twice = replace(p, x=p.x.repeat(2, 1), y=p.y.repeat(2))
    weighted = replace(p, sample_weight=torch.full((14,), 2.0, dtype=torch.float64))
    for mine, other in zip(fitted(twice, 50).moments(X_NEW), fitted(weighted, 50).moments(X_NEW), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-10)
