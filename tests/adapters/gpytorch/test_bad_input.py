"""What cannot be used is refused with a sentence that says what to do."""

from collections.abc import Callable

import gpytorch
import pytest
import torch
from gpytorch.likelihoods import BernoulliLikelihood, GaussianLikelihood

from cvgp.adapters.gpytorch import CoresetVariationalDistribution, CoresetVariationalStrategy
from cvgp.errors import CVGPError, InvalidInputError
from tests.adapters.gpytorch.models import Model, pair, rows

X, Y = rows(4, seed=1)


def model() -> Model:
    found = Model(X).double()
    found.likelihood = GaussianLikelihood().double()
    found.variational_strategy.set_sites(Y, torch.ones(4))
    return found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_inducing_points": 0}, "at least 1; got 0"),
        ({"mean_init_std": -1.0}, "standard deviation of at least 0"),
        ({"init_precision": 0.0}, "positive and finite; got 0"),
        ({"init_precision": float("inf")}, "positive and finite; got inf"),
    ],
)
def test_numbers_out_of_range_are_refused_in_the_distribution(arguments: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        CoresetVariationalDistribution(**{"num_inducing_points": 3} | arguments)


@pytest.mark.parametrize(
    ("points", "options", "message"),
    [
        (torch.zeros(5, 2), {}, "5 inducing points, and 3 pseudo-targets"),
        (torch.zeros(4, 3, 2), {}, r"\(4,\) .*\(2,\), do not broadcast"),
        (torch.zeros(3, 2), {"jitter_val": -1.0}, "at least 0; got -1"),
    ],
)
def test_parts_that_do_not_fit_are_refused(points: torch.Tensor, options: dict, message: str) -> None:
    sites = CoresetVariationalDistribution(3, batch_shape=torch.Size([2]))
    with pytest.raises(InvalidInputError, match=message):
        CoresetVariationalStrategy(None, points, sites, **options)


def test_points_of_one_dimension_may_have_one_axis() -> None:
    strategy = CoresetVariationalStrategy(None, torch.zeros(3), CoresetVariationalDistribution(3))
    assert strategy.inducing_points.shape == (3, 1)


CALLS: dict[str, tuple[Callable[[Model], object], str]] = {
    "columns of x": (lambda m: m(torch.zeros(5, 3).double()), r"x must be \[..., B, 2\].*\(5, 3\)"),
    "shape of y_c": (lambda m: m.variational_strategy.set_sites(torch.zeros(3), torch.ones(4)), r"must be \[4\]"),
    "NaN in y_c": (lambda m: m.variational_strategy.set_sites(Y * float("nan"), torch.ones(4)), "must be finite"),
    "negative w": (lambda m: m.variational_strategy.set_sites(Y, -torch.ones(4)), "must not be negative"),
    "all w zero": (lambda m: m.variational_strategy.set_sites(Y, torch.zeros(4)), "At least one precision"),
    "shape of y": (lambda m: m.variational_strategy.initialize_from_data(X, Y[:2], 0.1), r"y \[..., N\]"),
    "no noise": (lambda m: m.variational_strategy.initialize_from_data(X, Y, 0.0), "must be positive"),
    "shape of noise": (
        lambda m: m.variational_strategy.initialize_from_data(X, Y, torch.ones(3)),
        "do not broadcast",
    ),
    "batches of data": (
        lambda m: m.variational_strategy.initialize_from_data(X, torch.stack([Y, Y]), 0.1),
        "the batch_shape of the data",
    ),
    "columns of fantasies": (lambda m: m.get_fantasy_model(torch.zeros(2, 5).double(), Y[:2]), r"\[..., n, 2\]"),
    "targets of fantasies": (lambda m: m.get_fantasy_model(X, Y[:2]), r"targets \[..., n\]"),
    "a conditioned model in training": (lambda m: m.get_fantasy_model(X, Y).train()(X), r"call eval\(\)"),
}


@pytest.mark.parametrize(("call", "message"), CALLS.values(), ids=CALLS)
def test_a_call_with_bad_values_is_refused(call: Callable[[Model], object], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call(model())


def test_a_prior_mean_with_more_batches_than_the_sites_is_refused() -> None:
    found = Model(X, mean=gpytorch.means.ConstantMean(batch_shape=torch.Size([2]))).double()
    with pytest.raises(InvalidInputError, match="the batch_shape of the mean"):
        found(X)


@pytest.mark.parametrize("likelihood", [BernoulliLikelihood(), None])
def test_a_likelihood_without_closed_form_is_refused_for_fantasies(likelihood: object) -> None:
    found = model()
    found.likelihood = likelihood
    with pytest.raises(NotImplementedError, match="needs a GaussianLikelihood") as caught:
        found.get_fantasy_model(X, Y)
    assert isinstance(caught.value, CVGPError)


@pytest.mark.parametrize("part", ["mean_module", "covar_module"])
def test_a_model_without_a_part_is_refused_for_fantasies(part: str) -> None:
    found = model()
    delattr(found, part)
    with pytest.raises(ModuleNotFoundError, match=f"needs {part}") as caught:
        found.get_fantasy_model(X, Y)
    assert isinstance(caught.value, CVGPError)


def test_a_precision_of_zero_among_others_takes_its_site_out() -> None:
    _, full = pair()
    strategy = full.variational_strategy
    y_c, w = (
        strategy._variational_distribution.pseudo_targets.detach().clone(),
        strategy.site_precision.detach().clone(),
    )
    w[2] = 0.0
    strategy.set_sites(y_c, w)
    kept = torch.arange(7) != 2
    other = Model(strategy.inducing_points.detach()[kept], full.covar_module, full.mean_module).double()
    other.variational_strategy.set_sites(y_c[kept], w[kept])
    x, _ = rows()
    torch.testing.assert_close(full.eval()(x).mean, other.eval()(x).mean, rtol=0.0, atol=1e-8)
