"""`CVGPModel`: equal to exact GPs, in batches, fantasies, acquisition functions, fits and function draws."""

import pickle
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from botorch.acquisition import qKnowledgeGradient, qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.acquisition.multi_objective import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP, SingleTaskVariationalGP
from botorch.models.transforms import Normalize, Standardize
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.sampling.pathwise.posterior_samplers import get_matheron_path_model
from botorch.utils.datasets import SupervisedDataset
from gpytorch.constraints import Interval
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood, FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood, VariationalELBO
from gpytorch.settings import detach_test_caches
from torch import Tensor

from cvgp.adapters import algebra
from cvgp.adapters.botorch import CVGPModel
from cvgp.adapters.gpytorch import CoresetVariationalDistribution, CoresetVariationalStrategy
from cvgp.errors import CVGPError, InvalidInputError, InvalidTypeError

DOUBLE: dict[str, Any] = {"dtype": torch.float64}
CUBE = torch.tensor([[0.0, 0.0], [1.0, 1.0]], **DOUBLE)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def gaussian_parts() -> tuple[ScaleKernel, ConstantMean, GaussianLikelihood]:
    """A kernel, a mean and a likelihood whose parameters all differ from their defaults."""
    parts = (
        ScaleKernel(MaternKernel(2.5, ard_num_dims=2)).double(),
        ConstantMean().double(),
        GaussianLikelihood().double(),
    )
    with torch.no_grad():
        for parameter in (parameter for part in parts for parameter in part.parameters()):
            parameter.add_(0.3 * torch.randn_like(parameter))
    return parts


def make_model(num_points: int = 12, outputs: int = 1, **transforms: Any) -> CVGPModel:
    X = torch.rand(num_points, 2, **DOUBLE)
    y = torch.stack([torch.sin(3 * X[:, 0] + j) + X[:, 1] for j in range(outputs)], -1)
    return CVGPModel(X, y, 5 + 50 * torch.rand(num_points, 1, **DOUBLE), *gaussian_parts(), **transforms)


def trained(transform: Standardize, spread: float = 7.0) -> Standardize:
    transform(torch.randn(50, transform._m, **DOUBLE) * spread + 3)
    return transform


def parts_of(model: CVGPModel) -> tuple[Any, Any, Any]:
    return model.covar_module, model.mean_module, model.likelihood


def exact_twin(model: CVGPModel) -> SingleTaskGP:
    noise = model.precision.reciprocal().expand_as(model.y_c)
    modules = {"covar_module": model.covar_module, "mean_module": model.mean_module}
    return SingleTaskGP(model.X_c, model.y_c, train_Yvar=noise, outcome_transform=None, **modules)


def refactorized(model: CVGPModel) -> CVGPModel:
    """The same points, factorized at once."""
    return CVGPModel(model.X_c.detach(), model.y_c.detach(), model.precision.detach(), *parts_of(model))


def assert_same_posterior(mine: CVGPModel, other: CVGPModel | SingleTaskGP, X: Tensor) -> None:
    a, b = mine.posterior(X), other.posterior(X)
    torch.testing.assert_close(a.mean, b.mean, atol=1e-9, rtol=0)
    covariances = (p.distribution.covariance_matrix for p in (a, b))
    torch.testing.assert_close(*covariances, atol=1e-9, rtol=0)


# The posterior


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_the_posterior_equals_an_exact_gp_with_fixed_noise_and_is_conditioned_like_it(batch: tuple) -> None:
    model, x = make_model(), torch.rand(*batch, 4, 2, **DOUBLE)
    exact = exact_twin(model)
    assert_same_posterior(model, exact, x)
    X, Y = torch.rand(*batch, 5, 2, **DOUBLE), torch.rand(*batch, 5, 1, **DOUBLE)
    noise = 0.01 + torch.rand(*batch, 5, 1, **DOUBLE)
    exact.posterior(X)  # GPyTorch conditions what has predicted
    after = model.condition_on_observations(X, Y, noise=noise)
    assert_same_posterior(after, exact.condition_on_observations(X, Y, noise=noise), x)


def test_several_outputs_equal_a_model_for_each() -> None:
    model = make_model(outputs=3, outcome_transform=trained(Standardize(m=3)))
    X = torch.rand(2, 4, 2, **DOUBLE)
    for noisy in (False, True):
        together = model.posterior(X, observation_noise=noisy)
        for chosen in ([0], [2, 0], [-1]):
            alone = model.subset_output(chosen).posterior(X, observation_noise=noisy)
            indexed = model.posterior(X, output_indices=chosen, observation_noise=noisy)
            for part in (alone, indexed):
                torch.testing.assert_close(together.mean[..., chosen], part.mean)
                torch.testing.assert_close(together.variance[..., chosen], part.variance)
    covariance = model.posterior(X).distribution.covariance_matrix  # a block for each output
    assert (covariance[..., :4, 4:] == 0).all()
    weights = torch.tensor([2.0, -1.0, 0.0], **DOUBLE)
    combined = model.posterior(X, posterior_transform=ScalarizedPosteriorTransform(weights))
    torch.testing.assert_close(combined.mean[..., 0], model.posterior(X).mean @ weights)


def test_precisions_may_be_very_large_or_zero() -> None:
    X = torch.tensor([[0.0], [3.0]], **DOUBLE)
    parts = RBFKernel().double(), ZeroMean(), GaussianLikelihood().double()
    model = CVGPModel(X, X, torch.tensor([1e9, 1.0], **DOUBLE), *parts)
    assert model.posterior(X[:1]).distribution.covariance_matrix.item() == pytest.approx(1e-9, rel=1e-3)
    full = make_model()
    w = torch.cat([full.precision[:3], torch.zeros(9, 1, **DOUBLE)])
    few = CVGPModel(full.X_c[:3], full.y_c[:3, 0], w[:3, 0], *parts_of(full))
    assert_same_posterior(CVGPModel(full.X_c, full.y_c, w, *parts_of(full)), few, torch.rand(4, 2, **DOUBLE))


@pytest.mark.parametrize("q", [5, 12])
def test_observation_noise_is_the_learned_one_or_the_given(q: int) -> None:
    model, X = make_model(num_points=12, outputs=2), torch.rand(3, q, 2, **DOUBLE)
    given = torch.rand(q, 2, **DOUBLE)
    for noise, expected in ((True, model.likelihood.noise.reshape(1, -1).expand(q, 2)), (given, given)):
        added = model.posterior(X, observation_noise=noise).variance - model.posterior(X).variance
        torch.testing.assert_close(added, expected.expand(3, q, 2))


def test_transforms_lead_from_the_units_of_the_data_and_learn_nothing() -> None:
    inner, bounds = make_model(), torch.tensor([[-1.0, 5.0], [3.0, 9.0]], **DOUBLE)
    to_cube, standard = Normalize(d=2, bounds=bounds), trained(Standardize(m=1))
    means = standard.means.clone()
    model = CVGPModel(inner.X_c, inner.y_c, inner.precision, *parts_of(inner), to_cube, standard)
    X, Y = torch.rand(6, 2, **DOUBLE), torch.rand(6, 1, **DOUBLE)
    outside = bounds[0] + X * (bounds[1] - bounds[0])
    after = model.condition_on_observations(outside, Y)
    inner_after = inner.condition_on_observations(X, (Y - means) / standard.stdvs)
    for mine, there in ((model, inner), (after, inner_after)):
        mine, there = mine.posterior(outside), there.posterior(X)
        torch.testing.assert_close(mine.mean, standard.untransform(there.mean)[0])
        torch.testing.assert_close(mine.variance, there.variance * standard.stdvs.square())
    assert torch.equal(model.outcome_transform.means, means)


@pytest.mark.filterwarnings("ignore:The model inputs are of type")
def test_a_float32_model_is_as_exact_as_its_inputs() -> None:
    model, X = make_model(), torch.rand(4, 2)
    single = deepcopy(model).float().posterior(X)
    assert single.mean.dtype == torch.float32
    torch.testing.assert_close(single.mean.double(), model.posterior(X.double()).mean, atol=1e-5, rtol=0)


@pytest.mark.parametrize("outputs", [1, 2])
def test_many_points_have_the_moments_of_few(monkeypatch: pytest.MonkeyPatch, outputs: int) -> None:
    model = make_model(outputs=outputs)
    X, noise = torch.rand(3, 6, 2, **DOUBLE), torch.rand(6, outputs, **DOUBLE)
    few = [model.posterior(X, observation_noise=added) for added in (False, True, noise)]
    monkeypatch.setattr(algebra, "MOST_POINTS_AT_ONCE", 5)
    for before, added in zip(few, (False, True, noise), strict=True):
        many = model.posterior(X, observation_noise=added)
        torch.testing.assert_close(many.mean, before.mean)
        torch.testing.assert_close(many.variance, before.variance)
        torch.testing.assert_close(*(p.distribution.covariance_matrix for p in (many, before)))


# Gradients, results that are used again, copies


def test_gradients_reach_the_inputs_and_on_request_the_hyperparameters() -> None:
    model = make_model()

    def value(points: Tensor) -> Tensor:
        posterior = model.posterior(points)
        return posterior.mean.sum() + posterior.distribution.covariance_matrix.sum()

    assert torch.autograd.gradcheck(value, torch.rand(2, 3, 2, requires_grad=True, **DOUBLE))
    lengthscale, slopes = model.covar_module.base_kernel.raw_lengthscale, []
    for is_detached in (False, True):
        model.zero_grad()
        with detach_test_caches(is_detached):
            model.posterior(model.X_c[:1]).mean.sum().backward()
        slopes.append(lengthscale.grad.clone())
    assert not torch.allclose(*slopes)


@pytest.mark.parametrize("part", ["covar_module", "mean_module", "y_c", "precision"])
def test_predictions_see_values_that_were_written_past_torch(part: str) -> None:
    model, X = make_model(), torch.rand(4, 2, **DOUBLE)
    model.posterior(X)
    changed = getattr(model, part)
    for values in [changed] if isinstance(changed, Tensor) else changed.parameters():
        values.data += 0.5  # as GPyTorch's `initialize` writes, which torch does not count
    assert_same_posterior(model, refactorized(model), X)


def test_copies_and_state_dicts_hold_all_of_the_posterior() -> None:
    model, other, X = make_model(num_points=12), make_model(num_points=5), torch.rand(4, 2, **DOUBLE)
    other.posterior(X)
    other.load_state_dict(model.state_dict())
    fantasies = model.fantasize(X[:, None].requires_grad_(), SobolQMCNormalSampler(torch.Size([2]), seed=0))
    assert_same_posterior(other, model, X)
    assert_same_posterior(pickle.loads(pickle.dumps(model)), model, X)
    assert_same_posterior(deepcopy(fantasies), fantasies, X)


# Conditioning and fantasies


def test_new_rows_become_points_with_the_noise_of_the_likelihood() -> None:
    model, x = make_model(num_points=12, outputs=2), torch.rand(4, 2, **DOUBLE)
    X, Y = torch.rand(5, 2, **DOUBLE), torch.rand(5, 2, **DOUBLE)
    before = model.posterior(x).mean
    at_once = step = model.condition_on_observations(X, Y)
    assert torch.equal(at_once.X_c[12:], X)
    assert torch.equal(at_once.y_c[12:], Y)
    torch.testing.assert_close(at_once.precision[12:].reciprocal(), model.likelihood.noise.expand(5, 1))
    step = model
    for i in range(5):
        step = step.condition_on_observations(X[i : i + 1], Y[i : i + 1])
    assert_same_posterior(step, at_once, x)
    assert_same_posterior(refactorized(at_once), at_once, x)
    at_once.covar_module.outputscale = 9.0
    torch.testing.assert_close(model.posterior(x).mean, before)


def test_a_batch_of_new_rows_is_a_batch_of_models() -> None:
    model = make_model()
    X, Y = torch.rand(3, 5, 2, **DOUBLE), torch.rand(4, 3, 5, 1, **DOUBLE)
    after, x = model.condition_on_observations(X, Y), torch.rand(4, 3, 2, 2, **DOUBLE)
    assert after.batch_shape == (4, 3)
    alone = model.condition_on_observations(X[1], Y[2, 1])
    torch.testing.assert_close(after.posterior(x).mean[2, 1], alone.posterior(x[2, 1]).mean)
    torch.testing.assert_close(after.posterior(x).variance[2, 1], alone.posterior(x[2, 1]).variance)
    assert_same_posterior(refactorized(after), after, x)


@pytest.mark.parametrize("outputs", [1, 2])
def test_fantasies_are_models_conditioned_on_draws(outputs: int) -> None:
    model, X = make_model(outputs=outputs), torch.rand(3, 2, 2, **DOUBLE)
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
    fantasies = model.fantasize(X, sampler)
    Y = sampler(model.posterior(X, observation_noise=True))
    assert_same_posterior(fantasies, model.condition_on_observations(X, Y), torch.rand(4, 3, 2, 2, **DOUBLE))
    again = fantasies.fantasize(torch.rand(3, 1, 2, **DOUBLE), SobolQMCNormalSampler(torch.Size([2]), seed=1))
    assert again.batch_shape == (2, 4, 3)
    assert_same_posterior(refactorized(again), again, torch.rand(3, 2, 2, **DOUBLE))


def test_gradients_flow_through_fantasies_to_the_inputs() -> None:
    model, x = make_model(), torch.rand(3, 2, 2, **DOUBLE)

    def value(X: Tensor) -> Tensor:
        fantasies = model.fantasize(X, SobolQMCNormalSampler(torch.Size([2]), seed=0))
        return fantasies.posterior(x).mean.square().sum() + fantasies.posterior(x).variance.sum()

    assert torch.autograd.gradcheck(value, torch.rand(3, 1, 2, requires_grad=True, **DOUBLE))


def test_a_model_list_predicts_conditions_and_fantasizes() -> None:
    model = make_model(outputs=2)
    both = ModelListGP(model.subset_output([0]), model.subset_output([1]))
    X, Y, x = (torch.rand(3, 2, **DOUBLE) for _ in range(3))
    torch.testing.assert_close(both.posterior(x).mean, model.posterior(x).mean)
    after = both.condition_on_observations([X, X], Y)
    torch.testing.assert_close(after.posterior(x).mean, model.condition_on_observations(X, Y).posterior(x).mean)
    assert both.fantasize(X, SobolQMCNormalSampler(torch.Size([4]))).posterior(x).mean.shape == (4, 3, 2)


# Acquisition functions


@pytest.mark.parametrize("name", ["qLogEI", "qLogNEI", "qKG"])
def test_acquisition_functions_are_those_of_the_exact_gp(name: str) -> None:
    X, noise = torch.rand(12, 2, **DOUBLE), 0.05
    Y = torch.sin(4 * X[:, :1])
    exact = SingleTaskGP(X, (Y - Y.mean()) / Y.std(), outcome_transform=None)
    exact.likelihood.noise = noise
    outcomes = exact.train_targets[:, None]
    model = CVGPModel(X, outcomes, torch.full_like(outcomes, 1 / noise), *parts_of(exact))
    x = torch.rand(5, 5 if name == "qKG" else 1, 2, **DOUBLE)

    def values(of: CVGPModel | SingleTaskGP) -> Tensor:
        sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
        if name == "qLogEI":
            return qLogExpectedImprovement(of, best_f=0.5, sampler=sampler)(x)
        if name == "qLogNEI":
            return qLogNoisyExpectedImprovement(of, X_baseline=X, sampler=sampler, prune_baseline=False)(x)
        return qKnowledgeGradient(of, num_fantasies=4, sampler=sampler)(x)

    torch.testing.assert_close(values(model), values(exact), atol=1e-4, rtol=1e-3)


def test_hypervolume_improvement_takes_several_outputs_with_an_outcome_transform() -> None:
    model = make_model(outputs=2, outcome_transform=trained(Standardize(m=2), spread=1.0))
    X = torch.rand(5, 2, 2, **DOUBLE)

    def values(cache_root: bool) -> Tensor:
        sampler = SobolQMCNormalSampler(torch.Size([8]), seed=0)
        options = {"sampler": sampler, "cache_root": cache_root, "prune_baseline": False}
        return qLogNoisyExpectedHypervolumeImprovement(model, [-1.0, -1.0], model.X_c[:4], **options)(X)

    torch.testing.assert_close(values(True), values(False), atol=1e-4, rtol=1e-3)


# The fit


def data(num_rows: int = 40, outputs: int = 1, noise: float = 0.05) -> tuple[Tensor, Tensor]:
    X = 4 * torch.rand(num_rows, 2, **DOUBLE) - 1
    Y = torch.stack([10 * torch.sin(3 * X[:, 0] + j) + X[:, 1] for j in range(outputs)], -1)
    return X, Y + 10 * noise * torch.randn(num_rows, outputs, **DOUBLE)


def built(X: Tensor, Y: Tensor, Yvar: Tensor | None = None, **parts: Any) -> CVGPModel:
    names = {"feature_names": ["a", "b"], "outcome_names": [f"y{j}" for j in range(Y.shape[-1])]}
    return CVGPModel(**CVGPModel.construct_inputs(SupervisedDataset(X, Y, Yvar=Yvar, **names), **parts))


def fitted(model: Any) -> Any:
    assert not fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model)).training
    return model


def test_few_rows_are_fitted_as_by_single_task_gp() -> None:
    X, Y = data()
    mine, theirs = fitted(built(X, Y)), fitted(SingleTaskGP(X, Y, input_transform=Normalize(d=2)))
    x = 4 * torch.rand(10, 2, **DOUBLE) - 1
    torch.testing.assert_close(mine.likelihood.noise, theirs.likelihood.noise, rtol=0.01, atol=0)
    torch.testing.assert_close(mine.posterior(x).mean, theirs.posterior(x).mean, atol=0.02, rtol=0)
    sd, their_sd = mine.posterior(x).variance.sqrt(), theirs.posterior(x).variance.sqrt()
    torch.testing.assert_close(sd, their_sd, atol=0.02, rtol=0)


def test_a_list_of_models_is_fitted_one_by_one() -> None:
    X, Y = data(outputs=2)
    models = ModelListGP(built(X, Y[:, :1]), built(X, Y[:, 1:]))
    fit_gpytorch_mll(SumMarginalLogLikelihood(models.likelihood, models))
    alone = [fitted(built(X, Y[:, [j]])).posterior(X).mean for j in range(2)]
    torch.testing.assert_close(models.posterior(X).mean, torch.cat(alone, -1), atol=1e-4, rtol=0)


def test_outputs_that_share_a_kernel_are_fitted_together() -> None:
    X, Y = data(outputs=2)
    Y = (Y - Y.mean(0)) / Y.std(0)
    model = fitted(CVGPModel(X, Y, torch.full((40,), 10.0, **DOUBLE), *gaussian_parts()))
    assert (model.posterior(X).mean - Y).square().mean().sqrt() < 0.15


def test_the_fitted_parameters_maximize_the_marginal_likelihood_again_and_again() -> None:
    X, Y = data(num_rows=25, noise=0.2)
    model = fitted(built(X, Y))
    torch.testing.assert_close(fitted(built(X, Y)).y_c, model.y_c)  # the same rows give the same model
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    best = mll(model(*model.train_inputs), model.train_targets).item()
    for parameter in model.parameters():  # lengthscales, the mean and the noise
        for factor in (0.9, 1.1):
            parameter.data *= factor
            assert mll(model(*model.train_inputs), model.train_targets).item() < best
            parameter.data /= factor


def test_many_rows_become_a_coreset() -> None:
    model = fitted(built(*data(num_rows=1500)))
    x, y = data(num_rows=200, noise=0.0)
    assert len(model.X_c) <= 400
    assert (model.posterior(x).mean - y).square().mean().sqrt() < 0.25
    assert model.likelihood.noise.item() * model.outcome_transform.stdvs.item() ** 2 == pytest.approx(0.25, rel=0.2)


def test_known_noise_is_added_to_the_learned_one() -> None:
    X, Y = data(noise=0.0)
    known = torch.full_like(Y, 4.0)
    known[:20] = 1e-4
    Y = Y + known.sqrt() * torch.randn_like(Y)
    model = fitted(built(X, Y, known))
    error = (model.posterior(X).mean - Y).abs()
    assert error[:20].mean() < error[20:].mean()
    assert len(model.training_rows.X) == 40
    assert model.training_rows.known_noise.max() > 0.05  # 4 over the variance of Y


def test_constraints_hold_and_constrained_values_come_back() -> None:
    constraint = Interval(0.4, 0.5, transform=None, initial_value=0.45)
    kernel = ScaleKernel(RBFKernel(lengthscale_constraint=constraint)).double()
    model = fitted(built(*data(), covar_module=kernel))
    assert 0.4 <= kernel.base_kernel.lengthscale.item() <= 0.5
    assert model.covar_module is kernel


def test_rows_that_came_later_count_in_the_next_fit() -> None:
    X, Y = data(num_rows=60)
    model = fitted(fitted(built(X[:40], Y[:40])).condition_on_observations(X[40:], Y[40:]))
    assert len(model.training_rows.X) == 60
    x = 4 * torch.rand(10, 2, **DOUBLE) - 1
    torch.testing.assert_close(model.posterior(x).mean, fitted(built(X, Y)).posterior(x).mean, atol=0.3, rtol=0)


# Function draws

DRAWS = 2000


def assert_moments(draws: Tensor, mean: Tensor, variance: Tensor) -> None:
    """Draws [S, ...], within five standard errors and the error of 1024 features."""
    sd = variance.sqrt()
    assert ((draws.mean(0) - mean).abs() / sd).max() < 5 / DRAWS**0.5 + 0.1
    assert (draws.std(0) / sd - 1).abs().max() < 0.2


@torch.no_grad()
@pytest.mark.parametrize("outputs", [1, 2])
def test_paths_have_the_moments_of_the_posterior(outputs: int) -> None:
    bounds = torch.tensor([[-3.0, 5.0], [4.0, 9.0]], **DOUBLE)
    transforms = {
        "input_transform": Normalize(d=2, bounds=bounds),
        "outcome_transform": trained(Standardize(m=outputs)),
    }
    model = make_model(outputs=outputs, **transforms if outputs == 1 else {})
    X = torch.rand(6, 2, **DOUBLE)
    X = bounds[0] + (bounds[1] - bounds[0]) * X if outputs == 1 else X
    posterior, draws = model.posterior(X), draw_matheron_paths(model, torch.Size([DRAWS]))(X)
    assert_moments(draws, posterior.mean.mT.squeeze(0), posterior.variance.mT.squeeze(0))
    assert get_matheron_path_model(model)(X.expand(5, 6, 2)).shape == (5, 6, outputs)


def variational_model() -> SingleTaskVariationalGP:
    X = torch.rand(60, 2, **DOUBLE)
    Y = torch.sin(5 * X[:, :1]) * X[:, 1:] + 0.05 * torch.randn(60, 1, **DOUBLE)
    sites = CoresetVariationalDistribution(12).double()
    coreset = {"variational_distribution": sites, "variational_strategy": CoresetVariationalStrategy}
    return SingleTaskVariationalGP(X, (Y - Y.mean()) / Y.std(), inducing_points=12, **coreset)


def test_the_strategy_is_fitted_inside_single_task_variational_gp() -> None:
    model = variational_model()
    mll = VariationalELBO(model.likelihood, model.model, num_data=60)
    (X,), Y = model.model.train_inputs, model.model.train_targets
    before = mll(model.model(X), Y).item()
    fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 60}})
    assert mll.train()(model.model(X), Y).item() > before + 0.5


# Bad input

X6, Y6, ONES = torch.rand(6, 2, **DOUBLE), torch.rand(6, 1, **DOUBLE), torch.ones(6, 1, **DOUBLE)


def of_points(X_c: Tensor, y_c: Tensor, precision: Tensor) -> Callable[[], object]:
    return lambda: CVGPModel(X_c, y_c, precision, *gaussian_parts())


def given(X: Tensor, Y: Tensor, noise: Tensor | None = None, **options: Any) -> Callable[[], object]:
    return lambda: make_model(**options).condition_on_observations(X, Y, noise=noise)


def fantasies() -> CVGPModel:
    return make_model().fantasize(X6[:3, None], SobolQMCNormalSampler(torch.Size([2])))


BATCHED = RBFKernel(batch_shape=torch.Size([2])).double(), ConstantMean().double(), GaussianLikelihood().double()
TWO = SupervisedDataset(X6, Y6.expand(6, 2), feature_names=["a", "b"], outcome_names=["y", "z"])
CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "X_c": (of_points(X6[0], Y6, ONES), r"X_c must be \[..., M, D\]"),
    "no points": (of_points(X6[:0], Y6[:0], ONES[:0]), "at least one point"),
    "y_c": (of_points(X6, Y6[:5], ONES), r"y_c must be \[..., 6, m\]"),
    "precision": (of_points(X6, Y6.expand(6, 3), ONES.expand(6, 2)), r"precision \[6\] or \[..., 6, 1\]"),
    "batches": (of_points(X6.expand(2, 6, 2), Y6.expand(3, 6, 1), ONES), "must broadcast"),
    "negative": (of_points(X6, Y6, -ONES), "finite and not negative"),
    "NaN in X_c": (of_points(X6 * torch.nan, Y6, ONES), "X_c holds 12 NaN"),
    "infinite y_c": (of_points(X6, Y6 * torch.inf, ONES), "y_c holds 6 NaN or infinite"),
    "array": (of_points(X6.numpy(), Y6, ONES), "X_c must be a torch.Tensor; got ndarray"),
    "untrained": (lambda: make_model(outcome_transform=Standardize(m=1)), "Standardize has not seen data"),
    "columns of X": (lambda: make_model().posterior(X6[:, :1]), r"\[..., n, 2\]"),
    "NaN in X": (lambda: make_model().posterior(X6 * torch.nan), "X holds 12 NaN"),
    "outputs": (lambda: make_model(outputs=2).posterior(X6, output_indices=[2]), "counted from 0 to 1"),
    "noise of X": (lambda: make_model().posterior(X6, observation_noise=ONES[:4]), r"variances \[..., 6, 1\]"),
    "Y": (given(X6, Y6[:, 0]), r"Y must be a tensor \[..., 6, 1\]; got \[6\]"),
    "noise": (given(X6, Y6, ONES[:4]), r"positive variances \[..., 6, 1\]"),
    "no noise": (given(X6, Y6, 0 * ONES), "positive variances"),
    "batches of rows": (given(X6.expand(2, 6, 2), Y6.expand(3, 6, 1)), "must broadcast"),
    "columns of rows": (given(X6[:, :1], Y6), r"\[..., n, 2\]"),
    "training mode": (lambda: make_model().train().condition_on_observations(X6, Y6), r"model.eval\(\)"),
    "GPyTorch's fantasies": (
        lambda: make_model(input_transform=Normalize(d=2, bounds=CUBE)).get_fantasy_model(X6, Y6[:, 0]),
        "call condition_on_observations of each model",
    ),
    "options": (lambda: make_model().custom_fit(None, optimizer_kwargs={}), "leave out optimizer_kwargs"),
    "fit of a batch": (lambda: fitted(fantasies()), r"A batch of models, \[2, 3\]"),
    "modules": (lambda: CVGPModel(X6, Y6.expand(6, 2), ONES, *BATCHED), "join models in a .*ModelListGP"),
    "two outputs": (lambda: CVGPModel.construct_inputs(TWO), "one output; got 2.*ModelListGP"),
    "noise of outputs": (given(X6, Y6.expand(6, 2), ONES.expand(6, 2), outputs=2), r"positive variances \[..., 6, 1\]"),
    "data": (lambda: CVGPModel.construct_inputs({}), "SupervisedDataset; got dict"),
    "paths of a batch": (lambda: draw_matheron_paths(fantasies(), torch.Size([2])), "a batch of"),
}


@pytest.mark.parametrize(("call", "message"), CALLS.values(), ids=CALLS)
def test_bad_input_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises((InvalidInputError, InvalidTypeError), match=message) as caught:
        call()
    assert isinstance(caught.value, CVGPError)


@pytest.mark.parametrize("likelihood", [BernoulliLikelihood(), FixedNoiseGaussianLikelihood(ONES[:, 0])])
def test_a_likelihood_without_noise_for_new_rows_is_refused_unless_noise_is_given(likelihood: Any) -> None:
    model = CVGPModel(X6, Y6, ONES, RBFKernel().double(), ZeroMean(), likelihood)
    message = f"{type(likelihood).__name__} has no noise variance for new observations.*GaussianLikelihood"
    with pytest.raises(InvalidTypeError, match=message):
        model.condition_on_observations(X6, Y6)
    with pytest.raises(InvalidTypeError, match=message):
        model.posterior(X6, observation_noise=True)
    assert model.condition_on_observations(X6, Y6, noise=ONES).posterior(X6).mean.shape == (6, 1)
