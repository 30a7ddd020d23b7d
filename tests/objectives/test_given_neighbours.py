import numpy as np
import pytest
import torch
from gpytorch.means import ConstantMean

from cvgp import CVGP, Coreset
from cvgp.data.rows import Rows
from cvgp.gp import bounds
from cvgp.gp.neighbours.decorrelated import gather_decorrelated, order_rows
from cvgp.gp.neighbours.global_part import GlobalPart, global_part
from cvgp.gp.neighbours.refinement import global_divergence
from cvgp.gp.neighbours.search import RowIndex
from cvgp.gp.neighbours.whitened_points import whiten_points
from cvgp.objectives.given_neighbours import NeighbourObjective
from cvgp.optim.adam import AdamState
from tests.gp.neighbours.problems import all_before, make_problem


def make_model(M: int = 4, **options: object) -> CVGP:
    X_c = make_problem(M=M).X_c
    return CVGP(Coreset(X_c, torch.zeros(M), torch.ones(M)), "matern32", **options)  # type: ignore[arg-type]


def make_rows(outputs: int | None = None) -> Rows[torch.Tensor]:
    p = make_problem(outputs=outputs, weights=True)
    return Rows(p.x, p.y, p.sample_weight, torch.linspace(0.0, 0.5, 14, dtype=torch.float64))


def posterior(model: CVGP, rows: Rows[torch.Tensor]) -> tuple[GlobalPart, float]:
    with torch.no_grad():
        points = whiten_points(model.kernel, model.X_c, model.jittered_covariance())
        residual = rows.y - model.mean(rows.x)
        data = order_rows(rows.x, residual, model.total_noise(rows.noise_variance), sample_weight=rows.sample_weight)
        sums = gather_decorrelated(points, data, all_before(14)[:, :5])
        return global_part(sums), bounds.solve_titsias(sums, points.L_K_inv).value.item()


def test_value_over_all_rows_is_the_log_marginal_and_the_divergence() -> None:
    model, rows = make_model(mean=ConstantMean().double()), make_rows()
    u, expected = posterior(model, rows)
    objective = NeighbourObjective(model, rows, all_before(14)[:, :5], u)
    objective.batch = torch.arange(14)
    value = objective.value_and_backward() - global_divergence(u).item()
    np.testing.assert_allclose(value, expected, rtol=1e-9)


def test_without_a_coreset_all_rows_before_give_the_exact_likelihood() -> None:
    model, rows = make_model(), make_rows()
    objective = NeighbourObjective(model, rows, all_before(14))
    objective.batch = torch.arange(14)
    noise = model.total_noise(rows.noise_variance)
    K = model.kernel(rows.x).to_dense()
    exact = bounds.log_marginal(K, rows.y, noise, sample_weight=rows.sample_weight)
    np.testing.assert_allclose(objective.value_and_backward(), exact.item(), rtol=1e-9)
    found = [p.grad for p in objective.parameters]
    for mine, other in zip(found, torch.autograd.grad(exact, objective.parameters), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("with_coreset", [True, False], ids=["coreset", "neighbours alone"])
def test_mean_over_batches_is_the_value_over_all_rows(with_coreset: bool) -> None:
    model, rows = make_model(mean=ConstantMean().double()), make_rows()
    u = posterior(model, rows)[0] if with_coreset else None
    objective = NeighbourObjective(model, rows, all_before(14)[:, :5], u)
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


def test_parameters_are_kernel_mean_and_noise() -> None:
    model = make_model(mean=ConstantMean().double())
    objective = NeighbourObjective(model, make_rows(), all_before(14))
    names = {name for name, p in model.named_parameters() if any(p is mine for mine in objective.parameters)}
    assert names == {name for name, _ in model.named_parameters() if name not in ("X_c", "y_c", "raw_beta")}


def test_float32_rows_have_the_value_of_float64_rows() -> None:
    model, rows = make_model(), make_rows()
    values = []
    for some in (rows, Rows(*(None if column is None else column.float() for column in rows))):
        objective = NeighbourObjective(model, some, all_before(14)[:, :5])
        objective.batch = torch.arange(14)
        values.append(objective.value_and_backward())
    np.testing.assert_allclose(values[1], values[0], rtol=1e-5)


def test_adam_learns_the_noise_of_two_outputs() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 1, dtype=torch.float64, generator=generator)
    y = torch.cat([x.sin(), x.cos()], 1) + 0.3 * torch.randn(200, 2, dtype=torch.float64, generator=generator)
    model = CVGP(Coreset(x[:1], y[:1], torch.ones(1)), "rbf")
    neighbours = RowIndex(model.kernel, x).earlier(10)
    objective = NeighbourObjective(model, Rows(x, y), neighbours)
    state = AdamState(objective.parameters, 0.05)
    for _ in range(150):
        state.gradient.zero_()
        objective.batch = torch.randint(0, 200, (32,), generator=generator)
        objective.value_and_backward(-1.0 / 200)
        state.update(0.05)
    assert model.noise.item() == pytest.approx(0.09, rel=0.25)
