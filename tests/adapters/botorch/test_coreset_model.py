"""Conditioning and fantasies in closed form, and what acquisition functions make of them."""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from botorch.acquisition import (
    qKnowledgeGradient,
    qLogExpectedImprovement,
    qLogNoisyExpectedImprovement,
)
from botorch.acquisition.multi_objective import qLogNoisyExpectedHypervolumeImprovement
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Standardize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler

from cvgp.adapters.botorch import CVGPModel
from tests.adapters.botorch.conftest import DOUBLE
from tests.adapters.botorch.test_point_model import exact_twin

Make = Callable[..., CVGPModel]
CUBE = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **DOUBLE)


def assert_same_posterior(mine: CVGPModel, other: CVGPModel | SingleTaskGP, X: torch.Tensor) -> None:
    a, b = mine.posterior(X), other.posterior(X)
    torch.testing.assert_close(a.mean, b.mean, atol=1e-9, rtol=0)
    covariances = (p.distribution.covariance_matrix for p in (a, b))
    torch.testing.assert_close(*covariances, atol=1e-9, rtol=0)


def refactorised(model: CVGPModel) -> CVGPModel:
    """The same points, factorised at once."""
    modules = model.covar_module, model.mean_module, model.likelihood
    return CVGPModel(model.X_c.detach(), model.y_c.detach(), model.precision.detach(), *modules)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_conditioning_equals_an_exact_gp_that_is_conditioned(make_model: Make, batch: tuple[int, ...]) -> None:
    model = make_model()
    X, Y = torch.rand(*batch, 5, 2, **DOUBLE), torch.rand(*batch, 5, 1, **DOUBLE)
    noise = 0.01 + torch.rand(*batch, 5, 1, **DOUBLE)
    exact = exact_twin(model)
    exact.posterior(X)  # GPyTorch conditions what has predicted
    assert_same_posterior(
        model.condition_on_observations(X, Y, noise=noise),
        exact.condition_on_observations(X, Y, noise=noise),
        torch.rand(*batch, 4, 2, **DOUBLE),
    )


def test_new_rows_have_the_noise_of_the_likelihood(make_model: Make) -> None:
    model = make_model(outputs=2, own=True)
    X, Y = torch.rand(5, 2, **DOUBLE), torch.rand(5, 2, **DOUBLE)
    noise = model.likelihood.noise.mT.expand(5, 2)
    x = torch.rand(4, 2, **DOUBLE)
    assert_same_posterior(model.condition_on_observations(X, Y), model.condition_on_observations(X, Y, noise=noise), x)


def test_new_rows_become_points(make_model: Make) -> None:
    model = make_model(num_points=12)
    X, Y = torch.rand(5, 2, **DOUBLE), torch.rand(5, 1, **DOUBLE)
    after = model.condition_on_observations(X, Y, noise=torch.full_like(Y, 0.25))
    assert torch.equal(after.X_c[12:], X)
    assert torch.equal(after.y_c[12:], Y)
    assert after.precision[12:].tolist() == [[4.0]] * 5
    assert len(model.X_c) == 12


def test_rows_one_by_one_are_rows_at_once(make_model: Make) -> None:
    model = make_model(outputs=2)
    X, Y = torch.rand(5, 2, **DOUBLE), torch.rand(5, 2, **DOUBLE)
    step = model
    for i in range(5):
        step = step.condition_on_observations(X[i : i + 1], Y[i : i + 1])
    at_once = model.condition_on_observations(X, Y)
    x = torch.rand(4, 2, **DOUBLE)
    assert_same_posterior(step, at_once, x)
    assert_same_posterior(refactorised(at_once), at_once, x)


def test_a_batch_of_new_rows_is_a_batch_of_models(make_model: Make) -> None:
    model = make_model()
    X, Y = torch.rand(3, 5, 2, **DOUBLE), torch.rand(4, 3, 5, 1, **DOUBLE)
    after = model.condition_on_observations(X, Y)
    assert after.batch_shape == (4, 3)
    x = torch.rand(4, 3, 2, 2, **DOUBLE)
    alone = model.condition_on_observations(X[1], Y[2, 1])
    torch.testing.assert_close(after.posterior(x).mean[2, 1], alone.posterior(x[2, 1]).mean)
    torch.testing.assert_close(after.posterior(x).variance[2, 1], alone.posterior(x[2, 1]).variance)
    assert_same_posterior(refactorised(after), after, x)


def test_a_conditioned_model_is_no_part_of_the_old_one(make_model: Make) -> None:
    model = make_model()
    x = torch.rand(4, 2, **DOUBLE)
    before = model.posterior(x).mean
    after = model.condition_on_observations(x, torch.ones(4, 1, **DOUBLE))
    after.covar_module.outputscale = 9.0
    torch.testing.assert_close(model.posterior(x).mean, before)


@pytest.mark.parametrize("outputs", [1, 2])
def test_fantasies_are_models_conditioned_on_draws(make_model: Make, outputs: int) -> None:
    model = make_model(outputs=outputs)
    X = torch.rand(3, 2, 2, **DOUBLE)
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
    fantasies = model.fantasize(X, sampler)
    Y = sampler(model.posterior(X, observation_noise=True))
    assert fantasies.batch_shape == (4, 3)
    assert_same_posterior(fantasies, model.condition_on_observations(X, Y), torch.rand(4, 3, 2, 2, **DOUBLE))


def test_fantasies_of_fantasies_are_a_batch_of_batches(make_model: Make) -> None:
    first = make_model().fantasize(torch.rand(3, 1, 2, **DOUBLE), SobolQMCNormalSampler(torch.Size([4]), seed=0))
    second = first.fantasize(torch.rand(3, 1, 2, **DOUBLE), SobolQMCNormalSampler(torch.Size([2]), seed=1))
    assert second.batch_shape == (2, 4, 3)
    assert_same_posterior(refactorised(second), second, torch.rand(3, 2, 2, **DOUBLE))


def test_gradients_flow_through_fantasies_to_the_inputs(make_model: Make) -> None:
    model = make_model()
    x = torch.rand(3, 2, 2, **DOUBLE)

    def value(X: torch.Tensor) -> torch.Tensor:
        fantasies = model.fantasize(X, SobolQMCNormalSampler(torch.Size([2]), seed=0))
        return fantasies.posterior(x).mean.square().sum() + fantasies.posterior(x).variance.sum()

    assert torch.autograd.gradcheck(value, torch.rand(3, 1, 2, requires_grad=True, **DOUBLE))


def test_a_copy_of_a_fantasy_that_has_gradients_predicts_the_same(make_model: Make) -> None:
    X = torch.rand(3, 1, 2, requires_grad=True, **DOUBLE)
    fantasies = make_model().fantasize(X, SobolQMCNormalSampler(torch.Size([2]), seed=0))
    x = torch.rand(4, 2, **DOUBLE)
    torch.testing.assert_close(deepcopy(fantasies).posterior(x).mean, fantasies.posterior(x).mean)


def test_subset_output_copies_all_that_outputs_share(make_model: Make) -> None:
    model = make_model(outputs=3, own=True)
    part = model.subset_output([2, 0])
    x = torch.rand(4, 2, **DOUBLE)
    torch.testing.assert_close(part.posterior(x).mean, model.posterior(x).mean[:, [2, 0]])
    noisy = model.posterior(x, observation_noise=True).variance[:, [2, 0]]
    torch.testing.assert_close(part.posterior(x, observation_noise=True).variance, noisy)


def test_a_model_list_predicts_conditions_and_fantasises(make_model: Make) -> None:
    model = make_model(outputs=2, own=True)
    both = ModelListGP(model.subset_output([0]), model.subset_output([1]))
    X, Y, x = (torch.rand(3, 2, **DOUBLE) for _ in range(3))
    torch.testing.assert_close(both.posterior(x).mean, model.posterior(x).mean)
    after = both.condition_on_observations([X, X], Y)
    torch.testing.assert_close(after.posterior(x).mean, model.condition_on_observations(X, Y).posterior(x).mean)
    assert both.fantasize(X, SobolQMCNormalSampler(torch.Size([4]))).posterior(x).mean.shape == (4, 3, 2)


@pytest.mark.parametrize("name", ["qLogEI", "qLogNEI"])
def test_acquisition_functions_are_those_of_the_exact_gp(make_model: Make, name: str) -> None:
    model = make_model()
    X = torch.rand(5, 1, 2, **DOUBLE)

    def values(of: CVGPModel | SingleTaskGP) -> torch.Tensor:
        sampler = SobolQMCNormalSampler(torch.Size([16]), seed=0)
        if name == "qLogEI":
            return qLogExpectedImprovement(of, best_f=0.5, sampler=sampler)(X)
        return qLogNoisyExpectedImprovement(of, X_baseline=model.X_c, sampler=sampler, prune_baseline=False)(X)

    torch.testing.assert_close(values(model), values(exact_twin(model)), atol=1e-4, rtol=1e-3)


def test_hypervolume_improvement_takes_several_outputs_with_an_outcome_transform(make_model: Make) -> None:
    transform = Standardize(m=2)
    transform(3 * torch.rand(20, 2, **DOUBLE))
    model, X = make_model(outputs=2, own=True, outcome_transform=transform), torch.rand(5, 2, 2, **DOUBLE)

    def values(cache_root: bool) -> torch.Tensor:
        sampler = SobolQMCNormalSampler(torch.Size([8]), seed=0)
        arguments = {"sampler": sampler, "cache_root": cache_root, "prune_baseline": False}
        improvement = qLogNoisyExpectedHypervolumeImprovement(model, [-1.0, -1.0], model.X_c[:4], **arguments)
        return improvement(X)

    torch.testing.assert_close(values(True), values(False), atol=1e-4, rtol=1e-3)


def test_knowledge_gradient_is_that_of_a_single_task_gp() -> None:
    X, noise = torch.rand(12, 2, **DOUBLE), 0.05
    Y = torch.sin(4 * X[:, :1])
    Y = (Y - Y.mean()) / Y.std()
    exact = SingleTaskGP(X, Y, outcome_transform=None)
    exact.likelihood.noise = noise
    parts = exact.covar_module, exact.mean_module, exact.likelihood
    model = CVGPModel(X, Y, torch.full_like(Y, 1 / noise), *parts)
    x = torch.rand(5, 1 + 4, 2, **DOUBLE)
    values = []
    for of in (model, exact):
        sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
        values.append(qKnowledgeGradient(of, num_fantasies=4, sampler=sampler)(x))
    torch.testing.assert_close(*values, atol=1e-8, rtol=0)


@pytest.mark.parametrize("name", ["qLogEI", "qLogNEI", "qKG"])
def test_acquisition_functions_are_optimised(make_model: Make, name: str) -> None:
    model = make_model()
    acquisition = {
        "qLogEI": lambda: qLogExpectedImprovement(model, best_f=model.y_c.max()),
        "qLogNEI": lambda: qLogNoisyExpectedImprovement(model, X_baseline=model.X_c),
        "qKG": lambda: qKnowledgeGradient(model, num_fantasies=4),
    }[name]()
    options = {"num_restarts": 2, "raw_samples": 8, "options": {"maxiter": 10}}
    candidate, value = optimize_acqf(acquisition, CUBE, q=1, **options)
    start = acquisition(torch.rand(1, 1 if name != "qKG" else 5, 2, **DOUBLE))
    assert candidate.shape == (1, 2)
    assert value >= start
