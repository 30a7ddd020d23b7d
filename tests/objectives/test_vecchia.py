import numpy as np
import pytest
import torch
from gpytorch.means import ConstantMean

from cvgp import CVGP, Coreset
from cvgp.data.rows import Rows
from cvgp.gp import bounds
from cvgp.gp.vecchia import InducingPosterior, inducing_posterior, order_rows, vecchia_statistics, whiten_points
from cvgp.objectives import VecchiaObjective
from tests.gp.neighbors.problems import all_before, inducing_kl, make_problem


def make_model(M: int = 4, **options: object) -> CVGP:
    X_c = make_problem(M=M).X_c
    return CVGP(Coreset(X_c, torch.zeros(M), torch.ones(M)), "matern32", **options)  # type: ignore[arg-type]


def make_rows(outputs: int | None = None) -> Rows[torch.Tensor]:
    p = make_problem(outputs=outputs, weights=True)
    return Rows(p.x, p.y, p.sample_weight, torch.linspace(0.0, 0.5, 14, dtype=torch.float64))


def posterior(model: CVGP, rows: Rows[torch.Tensor]) -> tuple[InducingPosterior, float]:
    with torch.no_grad():
        points = whiten_points(model.kernel, model.X_c, model.jittered_covariance())
        residual = rows.y - model.mean(rows.x)
        data = order_rows(rows.x, residual, model.total_noise(rows.noise_variance), sample_weight=rows.sample_weight)
        sums = vecchia_statistics(points, data, all_before(14)[:, :5])
        return inducing_posterior(sums), bounds.solve_titsias(sums, points.L_K_inv).value.item()


def test_value_over_all_rows_is_the_log_marginal_and_the_divergence() -> None:
    model, rows = make_model(mean=ConstantMean().double()), make_rows()
    u, expected = posterior(model, rows)
    objective = VecchiaObjective(model, rows, all_before(14)[:, :5], u)
    objective.batch = torch.arange(14)
    value = objective.value_and_backward() - inducing_kl(u).item()
    np.testing.assert_allclose(value, expected, rtol=1e-9)


def test_without_a_coreset_all_rows_before_give_the_exact_likelihood() -> None:
    model, rows = make_model(), make_rows()
    objective = VecchiaObjective(model, rows, all_before(14))
    objective.batch = torch.arange(14)
    noise = model.total_noise(rows.noise_variance)
    K = model.kernel(rows.x).to_dense()
    exact = bounds.log_marginal(K, rows.y, noise, sample_weight=rows.sample_weight)
    np.testing.assert_allclose(objective.value_and_backward(), exact.item(), rtol=1e-9)
    found = [p.grad for p in objective.parameters]
    for mine, other in zip(found, torch.autograd.grad(exact, objective.parameters), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("with_coreset", [True, False], ids=["coreset", "neighbors alone"])
def test_mean_over_batches_is_the_value_over_all_rows(with_coreset: bool) -> None:
    model, rows = make_model(mean=ConstantMean().double()), make_rows()
    u = posterior(model, rows)[0] if with_coreset else None
    objective = VecchiaObjective(model, rows, all_before(14)[:, :5], u)
    objective.batch = torch.arange(14)
    expected = objective.value_and_backward()
    whole = [p.grad.clone() for p in objective.parameters if p.grad is not None]
    model.zero_grad()
    values = []
    for objective.batch in torch.randperm(14).split(7):
        values.append(objective.value_and_backward(0.5))
    np.testing.assert_allclose(sum(values), expected, rtol=1e-10)
    for p, gradient in zip(objective.parameters, whole, strict=True):
        torch.testing.assert_close(p.grad, gradient, rtol=1e-8, atol=1e-9)
