"""The GPyTorch strategy: it agrees with cvgp and exact GPs, and holds in the ways in which GPyTorch uses it."""

import copy
import pickle
import warnings
from collections.abc import Callable

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import BernoulliLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.mlls import DeepApproximateMLL, VariationalELBO
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    IndependentMultitaskVariationalStrategy,
    LMCVariationalStrategy,
)
from torch import Tensor
from torch.distributions import kl_divergence

from cvgp.adapters.gpytorch import CoresetVariationalDistribution, CoresetVariationalStrategy
from cvgp.errors import CVGPError, CVGPWarning, InvalidInputError
from tests.adapters.gpytorch_models import DeepKernel, Model, pair, rows

KERNELS = ["rbf", "matern12", "matern52", "rq", "rbf+linear", "periodic*rbf"]


def close(a: Tensor, b: Tensor, atol: float = 1e-8) -> None:
    torch.testing.assert_close(a, b, rtol=0.0, atol=atol)


def same_distribution(found: MultivariateNormal, expected: MultivariateNormal) -> None:
    close(found.mean, expected.mean)
    close(found.covariance_matrix, expected.covariance_matrix)


# Agreement with cvgp and with exact GPs


@pytest.mark.parametrize("kernel", KERNELS)
def test_predictions_are_those_of_cvgp(kernel: str) -> None:
    own, model = pair(kernel)
    x, _ = rows()
    expected = own.posterior(x)
    trained = model.train()(x)
    close(trained.mean, expected.mean)
    close(trained.variance, expected.variance)
    close(trained.covariance_matrix, torch.diag(trained.variance))
    same_distribution(model.train()(x, diag=False), expected)
    same_distribution(model.eval()(x), expected)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("num_data", [30, 300])
def test_the_bound_and_its_gradient_are_those_of_cvgp(kernel: str, num_data: int) -> None:
    own, model = pair(kernel)
    x, y = rows()
    shared = {name: p for name, p in own.named_parameters() if name.startswith(("kernel", "mean"))}
    expected = own.elbo(x, y, num_data)
    expected_gradients = torch.autograd.grad(expected, [own.X_c, own.y_c, own.raw_beta, *shared.values()])
    found = VariationalELBO(model.likelihood, model, num_data)(model(x), y) * num_data
    sites = model.variational_strategy._variational_distribution
    parameters = [model.variational_strategy.inducing_points, sites.pseudo_targets, sites.log_precision]
    gradients = list(torch.autograd.grad(found, [*parameters, *shared.values()]))
    close(found, expected)
    # The parameter of a precision also has the jitter in it, of which log w has the derivative 1 - jitter w.
    gradients[2] = gradients[2] / (1.0 - model.variational_strategy.jitter_val * own.site_precision)
    for one, other in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_the_distributions_at_the_pseudo_inputs_are_those_of_cvgp() -> None:
    own, model = pair()
    strategy = model.variational_strategy
    same_distribution(strategy.variational_distribution, own.posterior(own.X_c))
    same_distribution(strategy.prior_distribution, model.forward(own.X_c))
    close(strategy.kl_divergence(), own.kl())
    close(kl_divergence(strategy.variational_distribution, strategy.prior_distribution), own.kl())


def test_the_posterior_is_that_of_an_exact_gp_with_the_noise_of_the_sites() -> None:
    own, model = pair()
    x, _ = rows()
    likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(1.0 / own.site_precision.detach())

    class Exact(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(own.X_c.detach(), own.y_c.detach(), likelihood)
            self.mean_module, self.covar_module = own.mean, own.kernel

        forward = Model.forward

    expected, found = Exact().eval()(x), model.eval()(x)
    close(found.mean, expected.mean, atol=1e-7)
    close(found.variance, expected.variance, atol=1e-7)


def test_the_best_sites_are_those_of_cvgp_and_a_maximum() -> None:
    own, model = pair()
    x, y = rows()
    bound = own.solve_coreset(x, y)
    model.variational_strategy.initialize_from_data(x, y, own.noise)
    found = VariationalELBO(model.likelihood, model, len(x))(model(x), y) * len(x)
    torch.testing.assert_close(found, bound, rtol=0.0, atol=1e-6)
    sites = model.variational_strategy._variational_distribution
    slopes = torch.autograd.grad(found / len(x), [sites.pseudo_targets, sites.log_precision])
    assert max(slope.abs().max().item() for slope in slopes) < 1e-4
    close(model.eval()(x).mean, own.posterior(x).mean)


def test_the_best_sites_of_a_batch_are_those_of_each() -> None:
    x, y = rows()
    X, _ = rows(7, seed=1)
    targets = torch.stack([y, -y])
    batch = Model(X, batch_shape=torch.Size([2])).double()
    batch.variational_strategy.initialize_from_data(x, targets, 0.1)
    for i in range(2):
        one = Model(X).double()
        one.variational_strategy.initialize_from_data(x, targets[i], 0.1)
        close(batch.eval()(x).mean[i], one.eval()(x).mean)


# Fantasies


@pytest.mark.parametrize("noise", [None, torch.linspace(0.1, 2.0, 5, dtype=torch.float64)])
def test_conditioning_is_that_of_cvgp_at_once_and_in_turn(noise: Tensor | None) -> None:
    own, model = pair()
    (x, _), (x_new, y_new) = rows(), rows(5, seed=2)
    expected = own.process().condition(x_new, y_new, own.noise if noise is None else noise)(x)
    same_distribution(model.eval().get_fantasy_model(x_new, y_new, noise=noise)(x), expected)
    first, last = (None, None) if noise is None else (noise[:2], noise[2:])
    step = model.get_fantasy_model(x_new[:2], y_new[:2], noise=first)
    same_distribution(step.get_fantasy_model(x_new[2:], y_new[2:], noise=last)(x), expected)


def test_a_batch_of_fantasies_is_each_of_them() -> None:
    _, model = pair()
    (x, _), (x_new, _) = rows(), rows(4, seed=2)
    targets = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    batch = model.get_fantasy_model(x_new, targets)(x)
    for i, y_new in enumerate(targets):
        one = model.get_fantasy_model(x_new, y_new)(x)
        close(batch.mean[i], one.mean)
        close(batch.variance[i], one.variance)


def test_fantasies_keep_precisions_beyond_those_of_gpytorchs_fixed_noise() -> None:
    X, y = rows(3, seed=1)
    model = Model(X, jitter_val=0.0).double()
    model.likelihood = GaussianLikelihood().double()
    model.variational_strategy.set_sites(y, torch.full((3,), 1e10, dtype=torch.float64))
    after = model.get_fantasy_model(torch.full((1, 2), 50.0, dtype=torch.float64), torch.zeros(1, dtype=torch.float64))
    close(after(X).mean, y, atol=1e-8)
    assert after(X).covariance_matrix.diagonal().max() < 2e-10
    assert after.state_dict()["precision"].shape == (4,)
    close(copy.deepcopy(after)(X).mean, after(X).mean)


# The KL


def test_the_kl_of_the_two_distributions_stands_a_singular_kernel_matrix() -> None:
    points = torch.zeros(4, 2, dtype=torch.float64)
    model, one = Model(points).double(), Model(points[:1]).double()
    model.variational_strategy.set_sites(torch.ones(4), torch.full((4,), 2.0))
    one.variational_strategy.set_sites(torch.ones(1), torch.tensor([8.0]))
    strategy = model.variational_strategy
    found = kl_divergence(strategy.variational_distribution, strategy.prior_distribution)
    close(found, one.variational_strategy.kl_divergence())


@pytest.mark.parametrize("wrap", [IndependentMultitaskVariationalStrategy, LMCVariationalStrategy])
def test_a_wrapper_adds_up_the_kl_of_its_tasks(wrap: type) -> None:
    X, _ = rows(5, seed=1)
    strategy = Model(X, batch_shape=torch.Size([2])).double().variational_strategy
    strategy.set_sites(torch.randn(2, 5, generator=torch.Generator().manual_seed(0)), torch.ones(2, 5))
    options = {"num_latents": 2} if wrap is LMCVariationalStrategy else {}
    wrapper = wrap(strategy, num_tasks=2, **options).double()
    expected = strategy.kl_divergence().sum()
    close(wrapper.kl_divergence(), expected)
    wrapper.train()(rows()[0])
    close(wrapper.kl_divergence(), expected)


@pytest.mark.parametrize("batch", [(), (4,), (2, 4)])
@pytest.mark.parametrize("diag", [True, False])
@pytest.mark.parametrize("deep", [False, True])
def test_the_kl_counts_once_however_many_batches_of_data_there_are(batch: tuple, diag: bool, deep: bool) -> None:
    X, y = rows(5, seed=1)
    model = DeepKernel(X, torch.nn.Linear(2, 3)).double() if deep else Model(X).double()
    model.variational_strategy.set_sites(y, torch.ones(5))
    expected = model.variational_strategy.kl_divergence()
    assert model.train()(torch.randn(*batch, 10, 2, dtype=torch.float64), diag=diag).batch_shape == batch
    close(model.variational_strategy.kl_divergence(), expected)


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

    def forward(self, x: Tensor) -> MultivariateNormal:
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


# Batches, and one call of forward


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
        same_distribution(found[i, j], expected)
        close(trained.mean[i, j], expected.mean)
        close(trained.variance[i, j], expected.variance)
        close(kl[i, j], one.variational_strategy.kl_divergence())


@pytest.mark.parametrize("diag", [True, False])
def test_batch_normalization_sees_points_and_rows_in_one_call(diag: bool) -> None:
    X, _ = rows(5, seed=1)
    model = DeepKernel(X, torch.nn.BatchNorm1d(2)).double()
    model.variational_strategy.set_sites(torch.arange(5.0), torch.ones(5))
    x, y = rows()
    model.calls.clear()
    found = model.train()(x, diag=diag)
    VariationalELBO(GaussianLikelihood().double(), model, len(x))(found, y)
    assert model.calls == [(35, 2)]
    z = torch.cat([X, x])
    z = (z - z.mean(0)) / (z.var(0, unbiased=False) + 1e-5).sqrt()
    plain = Model(z[:5], model.covar_module).double()
    plain.variational_strategy.set_sites(torch.arange(5.0), torch.ones(5))
    close(found.mean, plain(z[5:]).mean)
    close(found.variance, plain(z[5:]).variance)


class SumOfCovariances(Model):
    """A covariance that is not one lazily evaluated kernel."""

    def forward(self, x: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x) + self.covar_module(x))


@pytest.mark.parametrize("batch", [(), (4,)])
def test_any_covariance_predicts_trains_and_counts_its_kl_once(batch: tuple[int, ...]) -> None:
    X, y = rows(5, seed=1)
    model, plain = SumOfCovariances(X).double(), Model(X).double()
    plain.covar_module.outputscale = 2 * model.covar_module.outputscale.detach()
    x = torch.randn(*batch, 9, 2, dtype=torch.float64)
    for each in (model, plain):
        each.variational_strategy.set_sites(y, torch.ones(5))
        each.train()(x).variance.sum().backward()
    close(model.variational_strategy.kl_divergence(), plain.variational_strategy.kl_divergence())
    close(model.variational_strategy.inducing_points.grad, plain.variational_strategy.inducing_points.grad)
    same_distribution(model.eval()(x), plain.eval()(x))


# Where the sites start, and their smallest variance


@pytest.mark.parametrize("by_hand", [True, False])
def test_sites_that_were_set_stay_at_the_first_call(by_hand: bool) -> None:
    X, y = rows(5, seed=1)
    model = Model(X).double()
    sites = model.variational_strategy._variational_distribution
    if by_hand:
        sites.initialize(pseudo_targets=y)
    else:
        model.variational_strategy.set_sites(y, torch.ones(5))
    model(X)
    close(sites.pseudo_targets, y)


def test_the_jitter_is_the_smallest_variance_of_a_site() -> None:
    X, y = rows(3, seed=1)
    model = Model(X, jitter_val=0.01).double()
    strategy, sites = model.variational_strategy, model.variational_strategy._variational_distribution
    sites.initialize(log_precision=torch.tensor([0.0, 5.0, 50.0], dtype=torch.float64))
    close(strategy.site_precision, 1.0 / (0.01 + (-sites.log_precision).exp()))
    w = torch.tensor([0.1, 10.0, 90.0], dtype=torch.float64)
    strategy.set_sites(y, w)
    close(strategy.site_precision, w)
    with pytest.warns(CVGPWarning, match="smaller jitter_val"):
        strategy.set_sites(y, 2 * w)
    assert 99.0 < strategy.site_precision.max() <= 100.0


def test_the_algebra_among_points_is_float64_in_a_float32_model() -> None:
    X, y = rows(60, seed=1, dtype=torch.float32)
    model = Model(X, jitter_val=1e-8)
    model.covar_module.base_kernel.lengthscale = 4.0
    model.variational_strategy.set_sites(y, torch.full((60,), 3e4))
    double = copy.deepcopy(model).double()
    x, _ = rows(dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained, found = model.train()(x), model.eval()(x)
    expected = double.eval()(x.double())
    assert found.mean.dtype == torch.float32
    close(found.mean.double(), expected.mean, atol=1e-5)
    close(trained.mean.double(), expected.mean, atol=1e-5)
    close(trained.variance.double(), expected.variance, atol=1e-5)
    kl, other = model.variational_strategy.kl_divergence(), double.variational_strategy.kl_divergence()
    torch.testing.assert_close(kl.double(), other, rtol=1e-4, atol=0.0)


# Results that are used again


def predict(model: gpytorch.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x).mean


def change_by_initialize(model: Model) -> None:
    model.covar_module.base_kernel.initialize(lengthscale=3.0)


def change_by_data(model: Model) -> None:
    model.variational_strategy._variational_distribution.pseudo_targets.data.mul_(2.0)


def change_the_jitter(model: Model) -> None:
    model.variational_strategy.jitter_val = 5.0


def load_another_state(model: Model) -> None:
    state = {name: value * 1.5 if value.is_floating_point() else value for name, value in model.state_dict().items()}
    model.load_state_dict(state)


@pytest.mark.parametrize("change", [change_by_initialize, change_by_data, load_another_state, change_the_jitter])
def test_results_after_a_change_are_those_of_a_new_model(change: Callable[[Model], None]) -> None:
    _, model = pair("rbf")
    x, _ = rows()
    before = predict(model.eval(), x)
    change(model)
    close(predict(model, x), predict(copy.deepcopy(model), x))
    assert not torch.allclose(predict(model, x), before)
    model.train()(x)
    change(model)
    close(model.variational_strategy.kl_divergence(), copy.deepcopy(model).variational_strategy.kl_divergence())


def test_results_without_gradients_are_not_used_where_gradients_flow() -> None:
    _, model = pair()
    x, _ = rows()
    predict(model.eval(), x)
    for _ in range(2):
        model.zero_grad()
        model(x).mean.sum().backward()
        assert model.variational_strategy.inducing_points.grad.abs().sum() > 0
    with torch.no_grad():
        model.train()(x)
    assert model.variational_strategy.kl_divergence().requires_grad


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize("training", [True, False])
def test_a_copy_predicts_the_same(again: Callable[[Model], Model], training: bool) -> None:
    X, y = rows(5, seed=1)
    model = Model(X).double().train(training)
    model.variational_strategy.set_sites(y, torch.ones(5))
    x, _ = rows()
    expected = model(x).mean if training else predict(model, x)
    other = again(model)
    assert other.variational_strategy.model is other
    close(other(x).mean, expected)


# Training


@pytest.mark.parametrize("kind", ["tasks", "classes"])
def test_other_likelihoods_learn(kind: str) -> None:
    x, y = rows(60, dtype=torch.float32)
    X, _ = rows(8, seed=1, dtype=torch.float32)
    if kind == "tasks":
        model, likelihood, targets = Model(X, batch_shape=[2]), MultitaskGaussianLikelihood(2), torch.stack([y, -y], -1)
        model.variational_strategy = IndependentMultitaskVariationalStrategy(model.variational_strategy, num_tasks=2)
    else:
        model, likelihood, targets = Model(X), BernoulliLikelihood(), (y > y.median()).float()
    objective = VariationalELBO(likelihood, model, len(x))
    optimizer, losses = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.1), []
    for _ in range(60):
        optimizer.zero_grad()
        loss = -objective(model(x), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1
    if kind == "classes":
        assert ((likelihood(model.eval()(x)).mean > 0.5) == targets.bool()).float().mean() > 0.85


# Bad input


def bad_model() -> Model:
    found = Model(X4).double()
    found.likelihood = GaussianLikelihood().double()
    found.variational_strategy.set_sites(Y4, torch.ones(4))
    return found


def strategy_of(points: Tensor, **options: float) -> CoresetVariationalStrategy:
    sites = CoresetVariationalDistribution(3, batch_shape=torch.Size([2]))
    return CoresetVariationalStrategy(None, points, sites, **options)


X4, Y4 = rows(4, seed=1)
CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "no points": (lambda: CoresetVariationalDistribution(0), "at least 1; got 0"),
    "number of points": (lambda: strategy_of(torch.zeros(5, 2)), "5 inducing points, and 3 pseudo-targets"),
    "batch of points": (lambda: strategy_of(torch.zeros(4, 3, 2)), r"must broadcast.*\[4\], \[2\]"),
    "jitter": (lambda: strategy_of(torch.zeros(3, 2), jitter_val=-1.0), "at least 0; got -1"),
    "columns of x": (lambda: bad_model()(torch.zeros(5, 3).double()), r"x must be \[..., B, 2\].*\(5, 3\)"),
    "y_c": (lambda: bad_model().variational_strategy.set_sites(torch.zeros(3), torch.ones(4)), r"must be \[4\]"),
    "NaN": (lambda: bad_model().variational_strategy.set_sites(Y4 * float("nan"), torch.ones(4)), "must be finite"),
    "w < 0": (lambda: bad_model().variational_strategy.set_sites(Y4, -torch.ones(4)), "must not be negative"),
    "w = 0": (lambda: bad_model().variational_strategy.set_sites(Y4, torch.zeros(4)), "At least one precision"),
    "y": (lambda: bad_model().variational_strategy.initialize_from_data(X4, Y4[:2], 0.1), r"y \[..., N\]"),
    "no noise": (lambda: bad_model().variational_strategy.initialize_from_data(X4, Y4, 0.0), "must be positive"),
    "noise": (lambda: bad_model().variational_strategy.initialize_from_data(X4, Y4, torch.ones(3)), "must broadcast"),
    "batches of data": (
        lambda: bad_model().variational_strategy.initialize_from_data(X4, torch.stack([Y4, Y4]), 0.1),
        "the batch_shape of the data",
    ),
    "columns of fantasies": (lambda: bad_model().get_fantasy_model(torch.zeros(2, 5).double(), Y4[:2]), r"n, 2\]"),
    "targets of fantasies": (lambda: bad_model().get_fantasy_model(X4, Y4[:2]), r"targets \[..., n\]"),
    "conditioned model in training": (lambda: bad_model().get_fantasy_model(X4, Y4).train()(X4), r"call eval\(\)"),
    "batch of the mean": (
        lambda: Model(X4, mean=gpytorch.means.ConstantMean(batch_shape=torch.Size([2]))).double()(X4),
        "the batch_shape of the mean",
    ),
}


@pytest.mark.parametrize(("call", "message"), CALLS.values(), ids=CALLS)
def test_bad_input_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_a_foreign_distribution_is_refused_with_the_name_of_the_right_one() -> None:
    with pytest.raises(TypeError, match="CoresetVariationalDistribution; got Cholesky") as caught:
        CoresetVariationalStrategy(None, torch.zeros(3, 1), CholeskyVariationalDistribution(3))
    assert isinstance(caught.value, CVGPError)


@pytest.mark.parametrize("missing", ["likelihood", "mean_module", "covar_module"])
def test_a_model_without_a_part_has_no_fantasies(missing: str) -> None:
    model = bad_model()
    delattr(model, missing)
    expected = NotImplementedError if missing == "likelihood" else ModuleNotFoundError
    with pytest.raises(expected, match="GaussianLikelihood" if missing == "likelihood" else missing) as caught:
        model.get_fantasy_model(X4, Y4)
    assert isinstance(caught.value, CVGPError)
