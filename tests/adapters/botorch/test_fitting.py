"""`fit_gpytorch_mll` by cvgp's own solvers: what BoTorch's fit finds, with no settings."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.utils.datasets import SupervisedDataset
from gpytorch.constraints import Interval
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood

from cvgp.adapters.botorch import CVGPModel
from tests.adapters.botorch.conftest import DOUBLE, gaussian_parts

Make = Callable[..., CVGPModel]


def data(num_rows: int = 40, outputs: int = 1, noise: float = 0.05) -> tuple[torch.Tensor, torch.Tensor]:
    X = 4 * torch.rand(num_rows, 2, **DOUBLE) - 1
    Y = torch.stack([10 * torch.sin(3 * X[:, 0] + j) + X[:, 1] for j in range(outputs)], -1)
    return X, Y + 10 * noise * torch.randn(num_rows, outputs, **DOUBLE)


def dataset(X: torch.Tensor, Y: torch.Tensor, Yvar: torch.Tensor | None = None) -> SupervisedDataset:
    names = {"feature_names": ["a", "b"], "outcome_names": [f"y{j}" for j in range(Y.shape[-1])]}
    return SupervisedDataset(X, Y, Yvar=Yvar, **names)


def fitted(model: Any) -> Any:
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def built(*rows: torch.Tensor, **parts: Any) -> CVGPModel:
    return CVGPModel(**CVGPModel.construct_inputs(dataset(*rows), **parts))


@pytest.mark.parametrize("outputs", [1, 2])
def test_few_rows_are_fitted_as_by_single_task_gp(outputs: int) -> None:
    X, Y = data(outputs=outputs)
    mine, theirs = fitted(built(X, Y)), fitted(SingleTaskGP(X, Y, input_transform=Normalize(d=2)))
    x = 4 * torch.rand(10, 2, **DOUBLE) - 1
    torch.testing.assert_close(mine.likelihood.noise, theirs.likelihood.noise, rtol=0.01, atol=0)
    torch.testing.assert_close(mine.posterior(x).mean, theirs.posterior(x).mean, atol=0.02, rtol=0)
    sd, their_sd = mine.posterior(x).variance.sqrt(), theirs.posterior(x).variance.sqrt()
    torch.testing.assert_close(sd, their_sd, atol=0.02, rtol=0)


def test_a_fit_changes_the_model_and_leaves_it_in_eval_mode() -> None:
    model = built(*data())
    before = model.covar_module.lengthscale.clone()
    mll = fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    assert not mll.training
    assert not model.training
    assert not torch.allclose(before, model.covar_module.lengthscale)


def test_the_fitted_parameters_maximise_the_marginal_likelihood() -> None:
    model = fitted(built(*data(num_rows=25, noise=0.2)))
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    best = mll(model(*model.train_inputs), model.train_targets).item()
    for parameter in model.parameters():  # lengthscales, the mean and the noise
        for factor in (0.9, 1.1):
            parameter.data *= factor
            assert mll(model(*model.train_inputs), model.train_targets).item() < best
            parameter.data /= factor


def test_the_same_rows_give_the_same_model() -> None:
    X, Y = data()
    first, second = fitted(built(X, Y)), fitted(built(X, Y))
    assert torch.equal(first.X_c, second.X_c)
    torch.testing.assert_close(first.y_c, second.y_c)


def test_many_rows_become_a_coreset() -> None:
    X, Y = data(num_rows=1500)
    model = fitted(built(X, Y))
    x, y = data(num_rows=200, noise=0.0)
    posterior = model.posterior(x)
    assert len(model.X_c) < 300
    assert (posterior.mean - y).square().mean().sqrt() < 0.25
    assert model.likelihood.noise.item() * model.outcome_transform.stdvs.item() ** 2 == pytest.approx(0.25, rel=0.2)


def test_known_noise_is_beside_the_learned_one() -> None:
    X, Y = data(noise=0.0)
    known = torch.full_like(Y, 4.0)
    known[:20] = 1e-4
    Y = Y + known.sqrt() * torch.randn_like(Y)
    model = fitted(built(X, Y, known))
    assert (model.posterior(X[:20]).mean - Y[:20]).abs().mean() < (model.posterior(X[20:]).mean - Y[20:]).abs().mean()
    assert len(model.training_rows.X) == 40
    assert model.training_rows.known_noise.max() > 0.05  # 4 over the variance of Y


def test_constraints_hold_and_constrained_values_come_back() -> None:
    kernel = ScaleKernel(
        RBFKernel(lengthscale_constraint=Interval(0.4, 0.5, transform=None, initial_value=0.45))
    ).double()
    model = fitted(built(*data(), covar_module=kernel))
    assert 0.4 <= kernel.base_kernel.lengthscale.item() <= 0.5
    assert model.covar_module is kernel


def test_outputs_that_share_all_share_a_coreset() -> None:
    X, Y = data(outputs=2)
    parts = {
        "covar_module": ScaleKernel(RBFKernel()).double(),
        "mean_module": ZeroMean(),
        "likelihood": GaussianLikelihood().double(),
    }
    model = fitted(built(X, Y, **parts))
    assert model.precision.shape[-1] == 1
    assert (model.posterior(X).mean - Y).abs().mean() < 0.6


def test_a_model_of_points_learns_from_them() -> None:
    X, Y = data()
    Y = Y / 10
    kernel, mean, likelihood = gaussian_parts()
    model = CVGPModel(X, Y, likelihood.noise.detach().reciprocal().expand(40), kernel, mean, likelihood)
    before = model.posterior(X).mean
    fitted(model)
    assert (model.posterior(X).mean - Y).abs().mean() < (before - Y).abs().mean()


def test_rows_that_came_later_count_in_the_next_fit() -> None:
    X, Y = data(num_rows=60)
    model = fitted(built(X[:40], Y[:40])).condition_on_observations(X[40:], Y[40:])
    assert len(fitted(model).training_rows.X) == 60
    other = fitted(built(X, Y))
    x = 4 * torch.rand(10, 2, **DOUBLE) - 1
    torch.testing.assert_close(model.posterior(x).mean, other.posterior(x).mean, atol=0.3, rtol=0)


def test_the_models_of_a_list_are_fitted_each() -> None:
    X, Y = data(outputs=2)
    models = ModelListGP(built(X, Y[:, :1]), built(X, Y[:, 1:]))
    fit_gpytorch_mll(SumMarginalLogLikelihood(models.likelihood, models))
    together = fitted(built(X, Y))
    torch.testing.assert_close(models.posterior(X).mean, together.posterior(X).mean, atol=1e-4, rtol=0)
