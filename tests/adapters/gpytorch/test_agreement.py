"""The strategy says what cvgp says, to 1e-8 in float64."""

import gpytorch
import pytest
import torch
from gpytorch.mlls import VariationalELBO

from tests.adapters.gpytorch.models import Model, pair, rows

KERNELS = ["rbf", "matern12", "matern52", "rq", "rbf+linear", "periodic*rbf"]


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_mean_sd_and_covariance_are_those_of_cvgp(kernel: str) -> None:
    own, model = pair(kernel)
    x, _ = rows()
    expected, found = own.posterior(x), model.eval()(x)
    close(found.mean, expected.mean)
    close(found.stddev, expected.stddev)
    close(found.covariance_matrix, expected.covariance_matrix)


@pytest.mark.parametrize("kernel", KERNELS)
def test_in_training_mean_and_variance_are_the_same(kernel: str) -> None:
    own, model = pair(kernel)
    x, _ = rows()
    found = model.train()(x)
    close(found.mean, own.posterior(x).mean)
    close(found.variance, own.posterior(x).variance)


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


def test_the_kl_is_that_of_cvgp() -> None:
    own, model = pair()
    close(model.variational_strategy.kl_divergence(), own.kl())


def test_the_variational_distribution_is_the_posterior_at_the_pseudo_inputs() -> None:
    own, model = pair()
    expected, found = own.posterior(own.X_c), model.variational_strategy.variational_distribution
    close(found.mean, expected.mean)
    close(found.covariance_matrix, expected.covariance_matrix)


def test_the_prior_distribution_is_the_prior_at_the_pseudo_inputs() -> None:
    own, model = pair()
    expected, found = model.forward(own.X_c), model.variational_strategy.prior_distribution
    close(found.mean, expected.mean)
    close(found.covariance_matrix, expected.covariance_matrix)


def test_conditioning_is_that_of_cvgp() -> None:
    own, model = pair()
    (x, _), (x_new, y_new) = rows(), rows(5, seed=2)
    expected = own.process().condition(x_new, y_new, own.noise)(x)
    found = model.eval().get_fantasy_model(x_new, y_new)(x)
    close(found.mean, expected.mean)
    close(found.stddev, expected.stddev)
    close(found.covariance_matrix, expected.covariance_matrix)


def test_conditioning_twice_is_conditioning_on_all_rows() -> None:
    _, model = pair()
    (x, _), (x_new, y_new) = rows(), rows(6, seed=2)
    together = model.get_fantasy_model(x_new, y_new)(x)
    in_turn = model.get_fantasy_model(x_new[:2], y_new[:2]).get_fantasy_model(x_new[2:], y_new[2:])(x)
    close(in_turn.mean, together.mean)
    close(in_turn.covariance_matrix, together.covariance_matrix)


def test_conditioning_takes_known_noise_of_the_new_rows() -> None:
    own, model = pair()
    (x, _), (x_new, y_new) = rows(), rows(5, seed=2)
    noise = torch.linspace(0.1, 2.0, 5, dtype=torch.float64)
    close(
        model.get_fantasy_model(x_new, y_new, noise=noise)(x).mean,
        own.process().condition(x_new, y_new, noise)(x).mean,
    )


def test_a_batch_of_fantasies_is_each_of_them() -> None:
    _, model = pair()
    x, _ = rows()
    x_new, _ = rows(4, seed=2)
    targets = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    batch = model.get_fantasy_model(x_new, targets)(x)
    for i, y_new in enumerate(targets):
        one = model.get_fantasy_model(x_new, y_new)(x)
        close(batch.mean[i], one.mean)
        close(batch.variance[i], one.variance)


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
    torch.testing.assert_close(found.mean, expected.mean, rtol=0.0, atol=1e-7)
    torch.testing.assert_close(found.variance, expected.variance, rtol=0.0, atol=1e-7)


def test_the_best_sites_are_those_of_cvgp() -> None:
    own, model = pair()
    x, y = rows()
    bound = own.solve_coreset(x, y)
    model.variational_strategy.initialize_from_data(x, y, own.noise)
    found = VariationalELBO(model.likelihood, model, len(x))(model(x), y) * len(x)
    torch.testing.assert_close(found, bound, rtol=0.0, atol=1e-6)
    close(model.eval()(x).mean, own.posterior(x).mean)


def test_no_other_sites_have_a_higher_bound_than_the_best() -> None:
    own, model = pair()
    x, y = rows()
    model.variational_strategy.initialize_from_data(x, y, own.noise)
    bound = VariationalELBO(model.likelihood, model, len(x))(model(x), y)
    sites = model.variational_strategy._variational_distribution
    slopes = torch.autograd.grad(bound, [sites.pseudo_targets, sites.log_precision])
    assert max(slope.abs().max().item() for slope in slopes) < 1e-4


def test_the_best_sites_take_a_noise_for_each_row() -> None:
    own, model = pair()
    x, y = rows()
    noise = torch.linspace(0.01, 1.0, len(x), dtype=torch.float64)
    own.set_site_noise_offset(0.1)
    own.solve_coreset(x, y, noise_variance=noise)
    model.variational_strategy.initialize_from_data(x, y, own.noise.detach() + noise)
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
