import numpy as np
import torch
from gpytorch.means import ConstantMean

from cvgp import CVGP, Coreset
from cvgp.data.rows import Rows
from cvgp.gp import bounds
from cvgp.objectives import VecchiaObjective
from tests.gp.neighbors.problems import all_before, make_problem


def make_model(M: int = 4, **options: object) -> CVGP:
    X_c = make_problem(M=M).X_c
    return CVGP(Coreset(X_c, torch.zeros(M), torch.ones(M)), "matern32", **options)  # type: ignore[arg-type]


def make_rows(outputs: int | None = None) -> Rows[torch.Tensor]:
    p = make_problem(outputs=outputs, weights=True)
    return Rows(p.x, p.y, p.sample_weight, torch.linspace(0.0, 0.5, 14, dtype=torch.float64))


def test_all_rows_before_give_the_exact_likelihood() -> None:
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


def test_mean_over_batches_is_the_value_over_all_rows() -> None:
    model, rows = make_model(mean=ConstantMean().double()), make_rows()
    objective = VecchiaObjective(model, rows, all_before(14)[:, :5])
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
