"""The posterior of points: equal to exact GPs where these are well conditioned, in any batch and precision."""

import pickle
from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from gpytorch.settings import detach_test_caches

from cvgp.adapters.botorch import CVGPModel, layers
from tests.adapters.botorch.conftest import DOUBLE, gaussian_parts

Make = Callable[..., CVGPModel]


def exact_twin(model: CVGPModel) -> SingleTaskGP:
    noise = model.precision.reciprocal().expand_as(model.y_c)
    modules = {"covar_module": model.covar_module, "mean_module": model.mean_module}
    return SingleTaskGP(model.X_c, model.y_c, train_Yvar=noise, outcome_transform=None, **modules)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_the_posterior_equals_an_exact_gp_with_fixed_noise(make_model: Make, batch: tuple[int, ...]) -> None:
    model = make_model()
    X = torch.rand(*batch, 4, 2, **DOUBLE)
    mine, exact = model.posterior(X), exact_twin(model).posterior(X)
    torch.testing.assert_close(mine.mean, exact.mean, atol=1e-10, rtol=0)
    torch.testing.assert_close(mine.variance, exact.variance, atol=1e-10, rtol=0)
    covariance = mine.distribution.covariance_matrix
    torch.testing.assert_close(covariance, exact.distribution.covariance_matrix, atol=1e-10, rtol=0)


@pytest.mark.parametrize("own", [False, True])
def test_several_outputs_equal_a_model_for_each(make_model: Make, own: bool) -> None:
    model = make_model(outputs=2, own=own)
    X = torch.rand(3, 4, 2, **DOUBLE)
    together = model.posterior(X)
    for output in range(2):
        alone = model.subset_output([output]).posterior(X)
        torch.testing.assert_close(together.mean[..., [output]], alone.mean)
        torch.testing.assert_close(together.variance[..., [output]], alone.variance)


def test_output_indices_choose_outputs(make_model: Make) -> None:
    model = make_model(outputs=3, own=True)
    X = torch.rand(4, 2, **DOUBLE)
    everything, some = model.posterior(X), model.posterior(X, output_indices=[2, 0])
    torch.testing.assert_close(some.mean, everything.mean[..., [2, 0]])
    torch.testing.assert_close(model.posterior(X, output_indices=[-1]).variance, everything.variance[..., [2]])


def test_output_indices_choose_outputs_of_a_transform(make_model: Make) -> None:
    transform = Standardize(m=2)
    transform(torch.randn(20, 2, **DOUBLE) * 9 + 4)
    model = make_model(outputs=2, outcome_transform=transform)
    X = torch.rand(4, 2, **DOUBLE)
    torch.testing.assert_close(model.posterior(X, output_indices=[1]).mean, model.posterior(X).mean[..., [1]])


def test_a_posterior_transform_is_applied(make_model: Make) -> None:
    model = make_model(outputs=2)
    X = torch.rand(4, 2, **DOUBLE)
    weights = torch.tensor([2.0, -1.0], **DOUBLE)
    combined = model.posterior(X, posterior_transform=ScalarizedPosteriorTransform(weights))
    torch.testing.assert_close(combined.mean[..., 0], model.posterior(X).mean @ weights)


def test_outputs_are_independent(make_model: Make) -> None:
    posterior = make_model(outputs=2).posterior(torch.rand(3, 2, **DOUBLE))
    covariance = posterior.distribution.covariance_matrix  # a block for each output
    assert (covariance[:3, 3:] == 0).all()
    assert (covariance[:3, :3] != 0).all()


def test_no_site_variance_is_raised_to_1e_6() -> None:
    X = torch.tensor([[0.0], [3.0]], **DOUBLE)
    parts = RBFKernel().double(), ZeroMean(), GaussianLikelihood().double()
    model = CVGPModel(X, X, torch.tensor([1e9, 1.0], **DOUBLE), *parts)
    assert model.posterior(X[:1]).distribution.covariance_matrix.item() == pytest.approx(1e-9, rel=1e-3)


def test_a_precision_of_zero_leaves_the_point_out(make_model: Make) -> None:
    model = make_model()
    w = model.precision.clone()
    w[3:] = 0
    parts = model.covar_module, model.mean_module, model.likelihood
    few, without = CVGPModel(model.X_c[:3], model.y_c[:3], w[:3], *parts), CVGPModel(model.X_c, model.y_c, w, *parts)
    X = torch.rand(4, 2, **DOUBLE)
    torch.testing.assert_close(without.posterior(X).mean, few.posterior(X).mean)
    torch.testing.assert_close(without.posterior(X).variance, few.posterior(X).variance)


@pytest.mark.parametrize("q", [1, 5, 12])
def test_observation_noise_is_the_learned_one_also_for_as_many_points_as_the_coreset_has(
    make_model: Make, q: int
) -> None:
    model = make_model(num_points=12)
    X = torch.rand(q, 2, **DOUBLE)
    added = model.posterior(X, observation_noise=True).variance - model.posterior(X).variance
    torch.testing.assert_close(added, model.likelihood.noise.expand(q, 1))


def test_observation_noise_of_each_output_is_its_own(make_model: Make) -> None:
    model = make_model(outputs=2, own=True)
    X = torch.rand(3, 4, 2, **DOUBLE)
    added = model.posterior(X, observation_noise=True).variance - model.posterior(X).variance
    torch.testing.assert_close(added, model.likelihood.noise.mT.expand(3, 4, 2))


def test_given_observation_noise_is_added(make_model: Make) -> None:
    model = make_model(outputs=2)
    X, noise = torch.rand(3, 4, 2, **DOUBLE), torch.rand(4, 2, **DOUBLE)
    added = model.posterior(X, observation_noise=noise).variance - model.posterior(X).variance
    torch.testing.assert_close(added, noise.expand(3, 4, 2))


def test_an_outcome_transform_does_not_learn_from_pseudo_outputs(make_model: Make) -> None:
    transform = Standardize(m=1)
    transform(torch.randn(50, 1, **DOUBLE) * 7 + 3)
    means, stdvs = transform.means.clone(), transform.stdvs.clone()
    model = make_model(outcome_transform=transform)
    model.posterior(torch.rand(3, 2, **DOUBLE))
    model.condition_on_observations(torch.rand(2, 2, **DOUBLE), torch.rand(2, 1, **DOUBLE))
    assert torch.equal(model.outcome_transform.means, means)
    assert torch.equal(model.outcome_transform.stdvs, stdvs)


def test_transforms_lead_from_the_units_of_the_data(make_model: Make) -> None:
    inner = make_model()
    bounds = torch.tensor([[-1.0, 5.0], [3.0, 9.0]], **DOUBLE)
    to_cube, standard = Normalize(d=2, bounds=bounds), Standardize(m=1)
    standard(torch.randn(50, 1, **DOUBLE) * 7 + 3)
    parts = inner.covar_module, inner.mean_module, inner.likelihood
    model = CVGPModel(inner.X_c, inner.y_c, inner.precision, *parts, to_cube, standard)
    X = torch.rand(6, 2, **DOUBLE)
    mine, there = model.posterior(bounds[0] + X * (bounds[1] - bounds[0])), inner.posterior(X)
    torch.testing.assert_close(mine.mean, standard.untransform(there.mean)[0])
    torch.testing.assert_close(mine.variance, there.variance * standard.stdvs.square())


@pytest.mark.filterwarnings("ignore:The model inputs are of type")
def test_a_float32_model_is_as_exact_as_its_inputs(make_model: Make) -> None:
    model = make_model()
    X = torch.rand(4, 2)
    single = deepcopy(model).float().posterior(X)
    assert single.mean.dtype == torch.float32
    torch.testing.assert_close(single.mean.double(), model.posterior(X.double()).mean, atol=1e-5, rtol=0)


def test_gradients_reach_the_inputs(make_model: Make) -> None:
    model = make_model()
    X = torch.rand(2, 3, 2, requires_grad=True, **DOUBLE)

    def value(points: torch.Tensor) -> torch.Tensor:
        posterior = model.posterior(points)
        return posterior.mean.sum() + posterior.distribution.covariance_matrix.sum()

    assert torch.autograd.gradcheck(value, X)


@pytest.mark.parametrize("part", ["covar_module", "mean_module", "y_c", "precision"])
def test_the_cache_sees_values_that_were_written_past_torch(make_model: Make, part: str) -> None:
    model = make_model()
    X = torch.rand(4, 2, **DOUBLE)
    model.posterior(X)
    changed = getattr(model, part)
    for values in [changed] if isinstance(changed, torch.Tensor) else changed.parameters():
        values.data += 0.5  # as GPyTorch's `initialize` writes, of which torch keeps no count
    fresh = CVGPModel(
        model.X_c, model.y_c, model.precision, model.covar_module, model.mean_module, model.likelihood
    ).posterior(X)
    torch.testing.assert_close(model.posterior(X).mean, fresh.mean)
    torch.testing.assert_close(model.posterior(X).variance, fresh.variance)


def test_hyperparameters_get_gradients_of_the_factorised_points_on_request(make_model: Make) -> None:
    model = make_model()
    model.posterior(torch.rand(4, 2, **DOUBLE))
    with detach_test_caches(False):
        model.posterior(model.X_c[:1]).mean.sum().backward()
    whole = model.covar_module.base_kernel.raw_lengthscale.grad.clone()
    model.zero_grad()
    model.posterior(model.X_c[:1]).mean.sum().backward()
    assert not torch.allclose(whole, model.covar_module.base_kernel.raw_lengthscale.grad)


@pytest.mark.parametrize("copied", [deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["deep", "pickle"])
def test_copies_predict_the_same(make_model: Make, copied: Callable[[CVGPModel], CVGPModel]) -> None:
    model = make_model()
    X = torch.rand(4, 2, **DOUBLE)
    before = model.posterior(X)
    torch.testing.assert_close(copied(model).posterior(X).mean, before.mean)


def test_the_state_dict_holds_the_points_with_their_precisions(make_model: Make) -> None:
    model, other = make_model(num_points=12), make_model(num_points=5)
    other.load_state_dict(model.state_dict())
    X = torch.rand(4, 2, **DOUBLE)
    torch.testing.assert_close(other.posterior(X).mean, model.posterior(X).mean)
    torch.testing.assert_close(other.posterior(X).variance, model.posterior(X).variance)


def test_in_training_mode_a_call_is_the_prior(make_model: Make) -> None:
    model = make_model().train()
    X = torch.rand(4, 2, **DOUBLE)
    prior = model(X)
    torch.testing.assert_close(prior.mean, model.mean_module(X))
    torch.testing.assert_close(prior.covariance_matrix, model.covar_module(X).to_dense())


def test_a_posterior_needs_no_eval_first(make_model: Make) -> None:
    model = make_model()
    X = torch.rand(4, 2, **DOUBLE)
    expected = model.posterior(X).mean
    torch.testing.assert_close(model.train().posterior(X).mean, expected)


def test_one_output_may_come_without_a_column() -> None:
    X, parts = torch.rand(6, 2, **DOUBLE), gaussian_parts()
    flat = CVGPModel(X, X[:, 0], torch.full((6,), 9.0, **DOUBLE), *parts)
    column = CVGPModel(X, X[:, :1], torch.full((6, 1), 9.0, **DOUBLE), *parts)
    x = torch.rand(3, 2, **DOUBLE)
    assert torch.equal(flat.posterior(x).mean, column.posterior(x).mean)


@pytest.mark.parametrize("outputs", [1, 2])
def test_many_points_have_the_moments_of_few(make_model: Make, monkeypatch: pytest.MonkeyPatch, outputs: int) -> None:
    model = make_model(outputs=outputs, own=outputs > 1)
    X, noise = torch.rand(3, 6, 2, **DOUBLE), torch.rand(6, outputs, **DOUBLE)
    few = [model.posterior(X, observation_noise=added) for added in (False, True, noise)]
    monkeypatch.setattr(layers, "MOST_POINTS_AT_ONCE", 5)
    for before, added in zip(few, (False, True, noise), strict=True):
        many = model.posterior(X, observation_noise=added)
        torch.testing.assert_close(many.mean, before.mean)
        torch.testing.assert_close(many.variance, before.variance)
        covariances = (posterior.distribution.covariance_matrix for posterior in (many, before))
        torch.testing.assert_close(*covariances)


def test_the_mean_of_many_points_needs_no_covariance(make_model: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    monkeypatch.setattr(layers, "evaluate", None)  # which forms the kernel among the points
    posterior = model.posterior(torch.rand(3000, 2, **DOUBLE))
    assert posterior.mean.shape == posterior.variance.shape == (3000, 1)
