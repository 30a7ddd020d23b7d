"""What goes wrong easily between a coreset and GPyTorch, one test for each."""

import copy
import pickle
import warnings

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import BernoulliLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.mlls import DeepApproximateMLL, VariationalELBO
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    DeltaVariationalDistribution,
    IndependentMultitaskVariationalStrategy,
    LMCVariationalStrategy,
    MeanFieldVariationalDistribution,
    NaturalVariationalDistribution,
    TrilNaturalVariationalDistribution,
    VariationalStrategy,
)
from torch.distributions import kl_divergence

from cvgp.adapters.gpytorch import CoresetVariationalDistribution, CoresetVariationalStrategy
from cvgp.errors import CVGPError, CVGPWarning, InvalidInputError
from tests.adapters.gpytorch.models import DeepKernel, Model, pair, rows


def close(a: torch.Tensor, b: torch.Tensor, atol: float = 1e-8) -> None:
    torch.testing.assert_close(a, b, rtol=0.0, atol=atol)


# The KL


def test_the_kl_of_the_two_distributions_is_the_stable_one() -> None:
    own, model = pair()
    strategy = model.variational_strategy
    close(kl_divergence(strategy.variational_distribution, strategy.prior_distribution), own.kl())


def test_the_kl_of_the_two_distributions_stands_a_singular_kernel_matrix() -> None:
    points = torch.zeros(4, 2, dtype=torch.float64)
    model = Model(points).double()
    model.variational_strategy.set_sites(torch.ones(4), torch.full((4,), 2.0))
    one = Model(points[:1]).double()
    one.variational_strategy.set_sites(torch.ones(1), torch.tensor([8.0]))
    strategy = model.variational_strategy
    found = kl_divergence(strategy.variational_distribution, strategy.prior_distribution)
    close(found, one.variational_strategy.kl_divergence())


def test_the_kl_from_another_distribution_is_that_of_gpytorch() -> None:
    _, model = pair()
    q = model.variational_strategy.variational_distribution
    other = MultivariateNormal(q.mean + 1.0, torch.eye(7, dtype=torch.float64))
    expected = kl_divergence(MultivariateNormal(q.mean, q.covariance_matrix), other)
    torch.testing.assert_close(kl_divergence(q, other), expected, rtol=1e-5, atol=1e-5)


def test_the_distribution_at_the_points_can_be_indexed_and_moved() -> None:
    _, model = pair()
    q = model.variational_strategy.variational_distribution
    assert q[:3].event_shape == (3,)
    close((q + 1.0).mean, q.mean + 1.0)
    assert q.expand(torch.Size([2])).batch_shape == (2,)


@pytest.mark.parametrize("wrap", [IndependentMultitaskVariationalStrategy, LMCVariationalStrategy])
def test_a_wrapper_adds_up_the_kl_of_its_tasks(wrap: type) -> None:
    X, _ = rows(5, seed=1)
    model = Model(X, batch_shape=torch.Size([2])).double()
    strategy = model.variational_strategy
    y_c = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    strategy.set_sites(y_c, torch.ones(2, 5))
    options = {"num_latents": 2} if wrap is LMCVariationalStrategy else {}
    wrapper = wrap(strategy, num_tasks=2, **options).double()
    expected = strategy.kl_divergence().sum()
    close(wrapper.kl_divergence(), expected)
    wrapper.train()(rows()[0])
    close(wrapper.kl_divergence(), expected)


@pytest.mark.parametrize("batch", [(), (4,), (2, 4)])
def test_the_kl_counts_once_however_many_batches_of_data_there_are(batch: tuple[int, ...]) -> None:
    own, model = pair()
    x = torch.randn(*batch, 10, 2, dtype=torch.float64)
    assert model.train()(x).batch_shape == batch
    close(model.variational_strategy.kl_divergence(), own.kl())


@pytest.mark.parametrize("diag", [True, False])
def test_the_kl_of_a_deep_kernel_counts_once_too(diag: bool) -> None:
    X, _ = rows(5, seed=1)
    model = DeepKernel(X, torch.nn.Linear(2, 3)).double()
    alone = model.variational_strategy.kl_divergence()
    model.variational_strategy.set_sites(torch.zeros(5), torch.ones(5))
    expected = model.variational_strategy.kl_divergence()
    model.train()(torch.randn(4, 10, 2, dtype=torch.float64), diag=diag)
    close(model.variational_strategy.kl_divergence(), expected)
    assert alone.shape == ()


def test_the_kl_with_dropout_is_a_mean_over_the_batches_of_data() -> None:
    X, _ = rows(5, seed=1)
    model = DeepKernel(X, torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Dropout(0.5))).double()
    output = model.train()(torch.randn(4, 10, 2, dtype=torch.float64))
    assert output.batch_shape == (4,)
    assert model.variational_strategy.kl_divergence().shape == ()


class Layer(DeepGPLayer):
    def __init__(self, input_dims: int, output_dims: int | None) -> None:
        batch = torch.Size([] if output_dims is None else [output_dims])
        sites = CoresetVariationalDistribution(6, batch_shape=batch)
        points = torch.randn(*batch, 6, input_dims)
        super().__init__(CoresetVariationalStrategy(self, points, sites), input_dims, output_dims)
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch)
        base = gpytorch.kernels.RBFKernel(batch_shape=batch, ard_num_dims=input_dims)
        self.covar_module = gpytorch.kernels.ScaleKernel(base, batch_shape=batch)

    forward = Model.forward


class TwoLayers(DeepGP):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.last = Layer(2, 3), Layer(3, None)

    def forward(self, x: torch.Tensor) -> MultivariateNormal:
        return self.last(self.hidden(x))


def test_in_a_deep_gp_the_kl_counts_once_per_layer_and_not_per_sample() -> None:
    torch.manual_seed(0)
    model, likelihood = TwoLayers(), GaussianLikelihood()
    x, y = rows(dtype=torch.float32)
    with gpytorch.settings.num_likelihood_samples(5):
        output = model(x)
        found = model.variational_strategy.kl_divergence()
        loss = -DeepApproximateMLL(VariationalELBO(likelihood, model, len(x)))(output, y)
    layers = [model.hidden.variational_strategy, model.last.variational_strategy]
    assert output.batch_shape == (5,)
    assert [layer.kl_divergence().shape for layer in layers] == [(3,), ()]
    torch.testing.assert_close(found, sum(layer.kl_divergence().sum() for layer in layers))
    loss.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


# Broadcasting, and one call of forward


def test_points_sites_and_kernel_broadcast_independently() -> None:
    torch.manual_seed(0)
    points, x = torch.randn(3, 1, 5, 2, dtype=torch.float64), torch.randn(4, 9, 2, dtype=torch.float64)
    base = gpytorch.kernels.RBFKernel(batch_shape=torch.Size([4]))
    model = Model(points, gpytorch.kernels.ScaleKernel(base), batch_shape=torch.Size([3, 4])).double()
    base.lengthscale = torch.tensor([0.5, 1.0, 1.5, 2.0])[:, None, None]
    y_c = torch.randn(3, 4, 5, dtype=torch.float64)
    model.variational_strategy.set_sites(y_c, torch.full((3, 4, 5), 3.0))
    trained, found = model.train()(x), model.eval()(x)
    kl = model.variational_strategy.kl_divergence()
    assert (found.batch_shape, kl.shape) == ((3, 4), (3, 4))
    for i, j in [(0, 0), (2, 1), (1, 3)]:
        kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
        one = Model(points[i, 0], kernel).double()
        kernel.base_kernel.lengthscale = base.lengthscale[j]
        one.variational_strategy.set_sites(y_c[i, j], torch.full((5,), 3.0))
        expected = one.eval()(x[j])
        close(found.mean[i, j], expected.mean)
        close(found.covariance_matrix[i, j], expected.covariance_matrix)
        close(trained.mean[i, j], expected.mean)
        close(trained.variance[i, j], expected.variance)
        close(kl[i, j], one.variational_strategy.kl_divergence())


@pytest.mark.parametrize("diag", [True, False])
def test_forward_is_called_once_with_points_and_rows_together(diag: bool) -> None:
    X, _ = rows(5, seed=1)
    model = DeepKernel(X, torch.nn.Linear(2, 3)).double()
    model.variational_strategy.set_sites(torch.zeros(5), torch.ones(5))
    model.calls.clear()
    x, y = rows()
    output = model.train()(x, diag=diag)
    VariationalELBO(GaussianLikelihood().double(), model, len(x))(output, y)
    assert model.calls == [(35, 2)]


def test_batch_normalisation_sees_points_and_rows_together() -> None:
    X, _ = rows(5, seed=1)
    model = DeepKernel(X, torch.nn.BatchNorm1d(2)).double()
    model.variational_strategy.set_sites(torch.arange(5.0), torch.ones(5))
    x, _ = rows()
    found = model.train()(x)
    z = torch.cat([X, x])
    z = (z - z.mean(0)) / (z.var(0, unbiased=False) + 1e-5).sqrt()
    plain = Model(z[:5], model.covar_module).double()
    plain.variational_strategy.set_sites(torch.arange(5.0), torch.ones(5))
    close(found.mean, plain(z[5:]).mean)
    close(found.variance, plain(z[5:]).variance)


def test_a_wrapper_in_training_gets_the_covariances_between_points() -> None:
    _, model = pair()
    x, _ = rows()
    close(model.train()(x, diag=False).covariance_matrix, model.eval()(x).covariance_matrix)


def test_in_training_the_covariance_is_one_of_single_points() -> None:
    _, model = pair()
    covariance = model.train()(rows()[0]).covariance_matrix
    close(covariance, torch.diag(covariance.diagonal()))


# Where the sites start


def test_sites_that_were_set_by_hand_stay_at_the_first_call() -> None:
    X, y = rows(5, seed=1)
    model = Model(X).double()
    model.variational_strategy.set_sites(y, torch.ones(5))
    model(X)
    close(model.variational_strategy._variational_distribution.pseudo_targets, y)
    assert model.variational_strategy.variational_params_initialized.item() == 1


def test_pseudo_targets_that_were_written_directly_stay_at_the_first_call() -> None:
    X, y = rows(5, seed=1)
    model = Model(X).double()
    model.variational_strategy._variational_distribution.initialize(pseudo_targets=y)
    model(X)
    close(model.variational_strategy._variational_distribution.pseudo_targets, y)


def test_without_values_the_pseudo_targets_start_at_the_prior_mean() -> None:
    X, _ = rows(5, seed=1)
    mean = gpytorch.means.ConstantMean()
    mean.constant = 3.0
    model = Model(X, mean=mean).double()
    model(X)
    sites = model.variational_strategy._variational_distribution
    close(sites.pseudo_targets, torch.full((5,), 3.0, dtype=torch.float64), atol=0.01)
    close(sites.precision, torch.full((5,), 10.0, dtype=torch.float64), atol=1e-5)


def test_fantasies_may_be_the_first_call() -> None:
    X, _ = rows(5, seed=1)
    x_new, y_new = rows(3, seed=2)
    model = Model(X).double()
    model.likelihood = GaussianLikelihood().double()
    after = model.get_fantasy_model(x_new, y_new)
    assert model.variational_strategy.variational_params_initialized.item() == 1
    assert isinstance(after, gpytorch.models.ExactGP)
    assert after(x_new).mean.shape == (3,)


# Fantasies


def test_the_noise_of_new_observations_is_the_learned_one_also_for_as_many_rows_as_sites() -> None:
    _, model = pair()
    x_new, y_new = rows(2, seed=2)
    after = model.get_fantasy_model(x_new, y_new)
    for n in (7, 9, 20):  # sites, sites and new rows, others
        f = after(rows(n)[0])
        noise = after.likelihood(f).variance - f.variance
        close(noise, model.likelihood.noise.expand(n), atol=1e-7)


def test_fantasies_keep_precisions_beyond_those_of_gpytorchs_fixed_noise() -> None:
    X, y = rows(3, seed=1)
    model = Model(X, jitter_val=0.0).double()
    model.likelihood = GaussianLikelihood().double()
    model.variational_strategy.set_sites(y, torch.full((3,), 1e10, dtype=torch.float64))
    after = model.get_fantasy_model(torch.full((1, 2), 50.0, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    close(after(X).mean, y, atol=1e-8)
    assert after(X).covariance_matrix.diagonal().max() < 2e-10


def test_the_precisions_of_fantasies_are_in_the_state_dict() -> None:
    _, model = pair()
    after = model.get_fantasy_model(*rows(2, seed=2))
    assert after.state_dict()["precision"].shape == (9,)


def test_a_copy_of_a_conditioned_model_predicts_the_same() -> None:
    _, model = pair()
    after = model.get_fantasy_model(*rows(2, seed=2))
    x, _ = rows()
    close(copy.deepcopy(after)(x).mean, after(x).mean)


def test_fantasies_of_a_deep_kernel_go_through_its_features() -> None:
    X, y = rows(5, seed=1)
    model = DeepKernel(X, torch.nn.Linear(2, 3)).double()
    model.likelihood = GaussianLikelihood().double()
    model.variational_strategy.set_sites(y, torch.ones(5))
    x_new, y_new = rows(3, seed=2)
    z = model.layers
    plain = Model(z(X).detach(), model.covar_module, model.mean_module).double()
    plain.likelihood = model.likelihood
    plain.variational_strategy.set_sites(y, torch.ones(5))
    x, _ = rows()
    expected = plain.get_fantasy_model(z(x_new).detach(), y_new)(z(x).detach())
    close(model.get_fantasy_model(x_new, y_new)(x).mean, expected.mean)


def test_gradients_of_fantasies_reach_the_new_inputs() -> None:
    _, model = pair()
    x_new, y_new = rows(2, seed=2)
    x_new.requires_grad_()
    x, _ = rows(4)
    (slope,) = torch.autograd.grad(model.get_fantasy_model(x_new, y_new)(x).variance.sum(), x_new)
    moved = x_new.detach().clone()
    moved[0, 0] += 1e-6
    before = model.get_fantasy_model(x_new.detach(), y_new)(x).variance.sum()
    change = (model.get_fantasy_model(moved, y_new)(x).variance.sum() - before) / 1e-6
    torch.testing.assert_close(slope[0, 0], change, rtol=1e-3, atol=1e-6)


# The cache


def predict(model: gpytorch.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(x).mean


def test_two_predictions_factorise_once() -> None:
    _, model = pair()
    model.eval()
    x, _ = rows()
    predict(model, x)
    first = model.variational_strategy._last
    predict(model, x)
    assert model.variational_strategy._last is first


def change_by_initialize(model: Model) -> None:
    model.covar_module.base_kernel.initialize(lengthscale=3.0)


def change_by_data(model: Model) -> None:
    model.variational_strategy._variational_distribution.pseudo_targets.data.mul_(2.0)


def change_by_step(model: Model) -> None:
    with torch.no_grad():
        model.variational_strategy.inducing_points.add_(0.5)


def change_the_jitter(model: Model) -> None:
    model.variational_strategy.jitter_val = 5.0


def load_another_state(model: Model) -> None:
    state = {name: value * 1.5 if value.is_floating_point() else value for name, value in model.state_dict().items()}
    model.load_state_dict(state)


CHANGES = [change_by_initialize, change_by_data, change_by_step, load_another_state, change_the_jitter]


@pytest.mark.parametrize("change", CHANGES)
def test_a_prediction_after_a_change_is_that_of_a_new_model(change) -> None:
    _, model = pair("rbf")
    model.eval()
    x, _ = rows()
    before = predict(model, x)
    change(model)
    fresh = copy.deepcopy(model)
    close(predict(model, x), predict(fresh, x))
    assert not torch.allclose(predict(model, x), before)


@pytest.mark.parametrize("change", CHANGES)
def test_a_kl_after_a_change_is_that_of_a_new_model(change) -> None:
    _, model = pair("rbf")
    model.train()(rows()[0])
    change(model)
    close(model.variational_strategy.kl_divergence(), copy.deepcopy(model).variational_strategy.kl_divergence())


def test_in_eval_mode_gradients_flow_again_and_again() -> None:
    _, model = pair()
    model.eval()
    x, _ = rows()
    predict(model, x)
    for _ in range(2):
        model.zero_grad()
        model(x).mean.sum().backward()
        assert model.variational_strategy.inducing_points.grad.abs().sum() > 0


def test_a_prediction_without_gradients_is_not_used_where_gradients_flow() -> None:
    _, model = pair()
    model.eval()
    with torch.no_grad():
        model(rows()[0])
    assert model(rows()[0]).mean.requires_grad


def test_a_kl_without_gradients_is_not_used_where_gradients_flow() -> None:
    _, model = pair()
    with torch.no_grad():
        model.train()(rows()[0])
    assert model.variational_strategy.kl_divergence().requires_grad


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize("training", [True, False])
def test_a_copy_predicts_the_same_and_leaves_the_cache_behind(again, training: bool) -> None:
    X, y = rows(5, seed=1)
    model = Model(X).double().train(training)
    model.variational_strategy.set_sites(y, torch.ones(5))
    x, _ = rows()
    expected = model(x).mean if training else predict(model, x)
    other = again(model)
    assert other.variational_strategy._last is None
    assert other.variational_strategy.model is other
    close(other(x).mean, expected)


def test_a_state_dict_brings_all_of_the_posterior() -> None:
    _, model = pair("rbf")
    other = Model(torch.zeros(7, 2), copy.deepcopy(model.covar_module)).double()
    other.likelihood = GaussianLikelihood()
    missing, unexpected = other.load_state_dict(model.state_dict(), strict=False)
    assert not [name for name in [*missing, *unexpected] if "likelihood" not in name]
    x, _ = rows()
    close(other.eval()(x).mean, model.eval()(x).mean)


# The jitter


def test_the_jitter_is_the_smallest_variance_of_a_site() -> None:
    X, _ = rows(3, seed=1)
    model = Model(X, jitter_val=0.01).double()
    sites = model.variational_strategy._variational_distribution
    sites.initialize(log_precision=torch.tensor([0.0, 5.0, 50.0], dtype=torch.float64))
    w = sites.precision
    close(model.variational_strategy.site_precision, w / (1.0 + 0.01 * w))
    assert model.variational_strategy.site_precision.max() <= 100.0


def test_the_precision_that_is_set_is_the_one_that_the_posterior_has() -> None:
    X, y = rows(3, seed=1)
    model = Model(X, jitter_val=0.01).double()
    w = torch.tensor([0.1, 10.0, 90.0], dtype=torch.float64)
    model.variational_strategy.set_sites(y, w)
    close(model.variational_strategy.site_precision, w)


def test_a_precision_beyond_the_jitter_is_said() -> None:
    X, y = rows(3, seed=1)
    model = Model(X, jitter_val=0.01).double()
    with pytest.warns(CVGPWarning, match="smaller jitter_val"):
        model.variational_strategy.set_sites(y, torch.full((3,), 200.0))
    assert 99.0 < model.variational_strategy.site_precision.max() <= 100.0


def test_the_algebra_among_points_is_float64_in_a_float32_model() -> None:
    X, y = rows(60, seed=1, dtype=torch.float32)
    model = Model(X, jitter_val=1e-8)
    kernel = model.covar_module.base_kernel
    kernel.lengthscale = 4.0
    model.variational_strategy.set_sites(y, torch.full((60,), 3e4))
    double = copy.deepcopy(model).double()
    x, _ = rows(dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained, found = model.train()(x), model.eval()(x)
    expected = double.eval()(x.double())
    assert found.mean.dtype == torch.float32
    torch.testing.assert_close(found.mean.double(), expected.mean, rtol=0.0, atol=1e-5)
    torch.testing.assert_close(trained.mean.double(), expected.mean, rtol=0.0, atol=1e-5)
    torch.testing.assert_close(trained.variance.double(), expected.variance, rtol=0.0, atol=1e-5)
    kl, other = model.variational_strategy.kl_divergence(), double.variational_strategy.kl_divergence()
    torch.testing.assert_close(kl.double(), other, rtol=1e-4, atol=0.0)


# The class, and what it refuses


def test_botorch_will_not_take_it_for_a_whitened_strategy() -> None:
    assert not issubclass(CoresetVariationalStrategy, VariationalStrategy)


@pytest.mark.parametrize(
    "foreign",
    [
        CholeskyVariationalDistribution,
        MeanFieldVariationalDistribution,
        DeltaVariationalDistribution,
        NaturalVariationalDistribution,
        TrilNaturalVariationalDistribution,
    ],
)
def test_a_foreign_distribution_is_refused_with_the_name_of_the_right_one(foreign: type) -> None:
    with pytest.raises(TypeError, match=f"CoresetVariationalDistribution; got {foreign.__name__}") as caught:
        CoresetVariationalStrategy(None, torch.zeros(3, 1), foreign(3))
    assert isinstance(caught.value, CVGPError)


def test_multitask_likelihoods_learn_through_both_wrappers() -> None:
    x, y = rows(dtype=torch.float32)
    X, _ = rows(5, seed=1, dtype=torch.float32)
    model = Model(X, batch_shape=torch.Size([2]))
    model.variational_strategy = IndependentMultitaskVariationalStrategy(model.variational_strategy, num_tasks=2)
    likelihood = MultitaskGaussianLikelihood(num_tasks=2)
    objective = VariationalELBO(likelihood, model, len(x))
    optimiser = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.05)
    losses = []
    for _ in range(20):
        optimiser.zero_grad()
        loss = -objective(model(x), torch.stack([y, -y], -1))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_a_classifier_learns() -> None:
    x, y = rows(60, dtype=torch.float32)
    labels = (y > y.median()).float()
    X, _ = rows(8, seed=1, dtype=torch.float32)
    model, likelihood = Model(X), BernoulliLikelihood()
    objective = VariationalELBO(likelihood, model, len(x))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(60):
        optimiser.zero_grad()
        loss = -objective(model(x), labels)
        loss.backward()
        optimiser.step()
    model.eval()
    assert ((likelihood(model(x)).mean > 0.5) == labels.bool()).float().mean() > 0.85


def test_second_derivatives_are_refused_rather_than_wrong() -> None:
    _, model = pair()
    output = model.train()(rows()[0]).mean.sum()
    with pytest.raises(InvalidInputError, match="first derivatives only"):
        torch.autograd.grad(output, model.variational_strategy.inducing_points, create_graph=True)
