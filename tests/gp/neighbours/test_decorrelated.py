from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from cvgp import CVGP, Coreset
from cvgp.errors import InvalidInputError
from cvgp.gp import bounds
from cvgp.gp.bounds import Statistics
from cvgp.gp.kernels import KERNEL_NAMES
from cvgp.gp.linalg import add_jitter
from cvgp.gp.model import JITTER
from cvgp.gp.neighbours import decorrelated
from cvgp.gp.neighbours.decorrelated import gather_decorrelated, localise, order_rows
from cvgp.gp.neighbours.whitened_points import no_points, whiten_points
from tests import reference as ref
from tests.gp.neighbours.problems import Problem, all_before, make_problem, some_before

PROBLEMS = {
    "plain": make_problem(),
    "two outputs": make_problem(outputs=2),
    "noise by row": make_problem(noise=np.linspace(0.1, 0.9, 14).tolist()),
    "weights": make_problem(weights=True),
    "all of it": make_problem(outputs=2, noise=np.linspace(0.1, 0.9, 14).tolist(), weights=True),
    "no points": make_problem(M=0),
}


def statistics(p: Problem, neighbours: Tensor) -> Statistics:
    return gather_decorrelated(p.points, p.data, neighbours)


def log_marginal(p: Problem, neighbours: Tensor) -> float:
    with torch.no_grad():
        return bounds.solve_titsias(statistics(p, neighbours), p.points.L_K_inv).value.item()


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
    neighbours = some_before(14, k)
    y = problem.y.numpy()
    expected = ref.gaussian_logpdf(y, np.zeros_like(y), problem.model(neighbours)) + constant(problem)
    np.testing.assert_allclose(log_marginal(problem, neighbours), expected, rtol=1e-10)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_all_rows_before_as_neighbours_give_the_exact_gp(problem: Problem) -> None:
    expected = ref.log_marginal(problem.covariance(), problem.y.numpy(), problem.effective_noise) + constant(problem)
    np.testing.assert_allclose(log_marginal(problem, all_before(14)), expected, rtol=1e-10)


@pytest.mark.parametrize("kernel", KERNEL_NAMES)
def test_every_kernel_gives_the_exact_gp(kernel: str) -> None:
    p = make_problem(kernel=kernel, M=2)  # a linear kernel of two columns has two features
    expected = ref.log_marginal(p.covariance(), p.y.numpy(), 0.3)
    np.testing.assert_allclose(log_marginal(p, all_before(14)), expected, rtol=1e-9)


def test_no_neighbours_give_fitc() -> None:
    p = make_problem()
    Q = p.features() @ p.features().T
    fitc = Q + np.diag(np.diag(p.covariance() - Q) + 0.3)
    expected = ref.gaussian_logpdf(p.y.numpy(), np.zeros(14), fitc)
    np.testing.assert_allclose(log_marginal(p, some_before(14, 0)), expected, rtol=1e-10)


def test_no_points_give_the_vecchia_approximation() -> None:
    p, neighbours = make_problem(M=0), some_before(14, 3)
    K, y = p.covariance() + 0.3 * np.eye(14), p.y.numpy()
    expected = 0.0
    for i, line in enumerate(neighbours.tolist()):
        before = [j for j in line if j >= 0]
        joint, of_neighbours = [*before, i], np.ix_(before, before)
        expected += ref.gaussian_logpdf(y[joint], np.zeros(len(joint)), K[np.ix_(joint, joint)])
        expected -= ref.gaussian_logpdf(y[before], np.zeros(len(before)), K[of_neighbours]) if before else 0.0
    np.testing.assert_allclose(log_marginal(p, neighbours), expected, rtol=1e-10)


def test_statistics_lead_to_the_posterior_of_the_dense_model() -> None:
    p, neighbours = PROBLEMS["all of it"], some_before(14, 3)
    sums = statistics(p, neighbours)
    C = np.eye(4) + sums.Phi.numpy()
    S, Psi = p.model(neighbours), p.features()
    gain = Psi.T @ np.linalg.inv(S)
    np.testing.assert_allclose(np.linalg.inv(C), np.eye(4) - gain @ Psi, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(np.linalg.inv(C) @ sums.b.numpy(), gain @ p.y.numpy(), rtol=1e-8, atol=1e-10)


def test_a_row_of_some_weight_is_as_many_copies() -> None:
    p, neighbours = make_problem(weights=True, outputs=2), some_before(14, 3)
    assert p.sample_weight is not None
    counts = p.sample_weight.to(torch.int64)
    copies = torch.repeat_interleave(torch.arange(14), counts)
    first = torch.cumsum(counts, 0) - counts
    lines = []
    for i, line in enumerate(neighbours.tolist()):
        of_neighbours = [int(first[j]) + c for j in line if j >= 0 for c in range(int(counts[j]))]
        # A copy is given the copies of the neighbours, and those of itself that come before it.
        lines += [of_neighbours + [int(first[i]) + c for c in range(copy)] for copy in range(int(counts[i]))]
    k = max(len(line) for line in lines)
    expanded = torch.tensor([line + [-1] * (k - len(line)) for line in lines])
    repeated = replace(p, x=p.x[copies], y=p.y[copies], sample_weight=None)
    weighted, plain = statistics(p, neighbours), statistics(repeated, expanded)
    torch.testing.assert_close(plain.Phi, weighted.Phi)
    torch.testing.assert_close(plain.b, weighted.b)
    np.testing.assert_allclose(log_marginal(repeated, expanded), log_marginal(p, neighbours), rtol=1e-10)


def test_row_of_weight_zero_is_left_out() -> None:
    p, neighbours = make_problem(), some_before(14, 3)
    weight = torch.ones(14, dtype=torch.float64)
    weight[13] = 0.0
    without = replace(p, x=p.x[:13], y=p.y[:13])
    got, expected = statistics(replace(p, sample_weight=weight), neighbours), statistics(without, neighbours[:13])
    for mine, other in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("table_bytes", [1, 3000, 10**9], ids=["tiny blocks", "blocks", "one block"])
def test_sums_do_not_depend_on_the_size_of_parts(table_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    p, neighbours = make_problem(N=40, outputs=2), some_before(40, 3)
    expected = statistics(p, neighbours)
    monkeypatch.setattr(decorrelated, "TABLE_BYTES", table_bytes)
    monkeypatch.setattr(decorrelated, "BATCH_BYTES", 500)
    for mine, other in zip(statistics(p, neighbours), expected, strict=True):
        torch.testing.assert_close(mine, other)


def test_large_tables_without_points_can_be_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    p, neighbours = make_problem(N=40, M=0), some_before(40, 3)
    expected = statistics(p, neighbours)
    monkeypatch.setattr(decorrelated, "TABLE_BYTES", 100)
    torch.testing.assert_close(statistics(p, neighbours).yy, expected.yy)


def test_sums_of_float32_rows_are_float64() -> None:
    p, neighbours = make_problem(), some_before(14, 3)
    single = replace(p, x=p.x.float(), y=p.y.float(), noise=p.noise.float())
    for mine, other in zip(statistics(single, neighbours), statistics(p, neighbours), strict=True):
        assert mine.dtype == torch.float64
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


def test_copies_of_rows_with_almost_no_noise_do_no_harm() -> None:
    p = make_problem(noise=1e-8)
    twice = replace(p, x=p.x.repeat(2, 1), y=p.y.repeat(2))
    value = log_marginal(twice, all_before(28))
    weighted = replace(p, sample_weight=torch.full((14,), 2.0, dtype=torch.float64))
    np.testing.assert_allclose(value, log_marginal(weighted, all_before(14)), rtol=1e-6)


def test_no_variance_is_left_unexplained() -> None:
    sums = statistics(make_problem(), some_before(14, 3))
    torch.testing.assert_close(sums.kk, sums.Phi.trace())


def test_model_adopts_the_best_coreset_of_decorrelated_rows() -> None:
    p, neighbours = make_problem(), some_before(14, 3)
    model = CVGP(Coreset(p.X_c, torch.zeros(4), torch.ones(4)), p.kernel)
    model.likelihood.noise = p.noise
    with torch.no_grad():
        points = whiten_points(p.kernel, p.X_c, model.jittered_covariance())
        sums = gather_decorrelated(points, p.data, neighbours)
        bound = model.adopt_optimum(sums).item()
        full = bounds.solve_titsias(sums, points.L_K_inv)
        # The weights of the mean are those of the model: only the covariance is confined to M weights.
        torch.testing.assert_close(model.process().factor.alpha[:, None], full.alpha, rtol=1e-6, atol=1e-8)
    assert bound <= full.value.item() + 1e-9
    assert full.value.item() - bound < 1.0


def test_jitter_of_the_points_keeps_the_exact_gp() -> None:
    p = make_problem()
    with torch.no_grad():
        points = whiten_points(p.kernel, p.X_c, add_jitter(torch.tensor(p.covariance(p.X_c)), 1e4 * JITTER))
        sums = gather_decorrelated(points, p.data, all_before(14))
        value = bounds.solve_titsias(sums, points.L_K_inv).value.item()
    np.testing.assert_allclose(value, ref.log_marginal(p.covariance(), p.y.numpy(), 0.3), rtol=1e-10)


def test_localise_lists_each_row_once() -> None:
    local = localise(torch.tensor([7, 5]), torch.tensor([[2, 5], [2, -1]]))
    assert local.touched.tolist() == [2, 5, 7]
    assert local.touched[local.rows].tolist() == [7, 5]
    assert local.neighbours.tolist() == [[0, 1], [0, -1]]


@pytest.mark.parametrize(
    "neighbours", [all_before(14).roll(1, 0), all_before(13), all_before(14)[:, 0]], ids=["later", "rows", "ndim"]
)
def test_neighbours_that_do_not_come_before_are_refused(neighbours: Tensor) -> None:
    with pytest.raises(InvalidInputError, match="each of them a row before its own"):
        statistics(make_problem(), neighbours)


def test_rows_that_do_not_fit_are_refused() -> None:
    p = make_problem()
    with pytest.raises(InvalidInputError, match=r"x must be \[N, D\] and y \[N\] or \[N, Q\]"):
        order_rows(p.x, p.y[:3], p.noise)


def test_no_points_have_no_features() -> None:
    p = make_problem()
    assert no_points(p.kernel, p.x).features(p.x).shape == (14, 0)


@pytest.mark.parametrize("table_bytes", [decorrelated.TABLE_BYTES, 100])
def test_sums_of_first_and_last_rows_are_those_of_all(table_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decorrelated, "TABLE_BYTES", table_bytes)
    p, neighbours = PROBLEMS["all of it"], some_before(14, 3)
    first = gather_decorrelated(p.points, p.data.take(torch.arange(9)), neighbours[:9])
    last = gather_decorrelated(p.points, p.data, neighbours[9:], start=9)
    for found, expected in zip(first.merge(last), statistics(p, neighbours), strict=True):
        torch.testing.assert_close(found, expected)
