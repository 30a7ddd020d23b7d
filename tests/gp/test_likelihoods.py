"""Likelihoods against other libraries and numerical integrals."""

import numpy as np
import pytest
import torch
from gpytorch.likelihoods import BernoulliLikelihood, LaplaceLikelihood
from scipy import integrate, stats

from cvgp.errors import InvalidInputError
from cvgp.gp import likelihoods as lk

F_MEAN = torch.tensor([[-1.0], [0.2], [1.5]], dtype=torch.float64)
F_VAR = torch.tensor([[0.3], [1.0], [0.05]], dtype=torch.float64)
CASES = {
    "gaussian": (lk.Gaussian(0.4), [0.1, -1.0, 2.0]),
    "student_t": (lk.StudentT(0.5, 4.0), [0.1, -3.0, 2.0]),
    "bernoulli": (lk.Bernoulli(), [0.0, 1.0, 1.0]),
    "probit": (lk.Probit(), [0.0, 1.0, 0.0]),
    "poisson": (lk.Poisson(), [0.0, 3.0, 7.0]),
    "negative_binomial": (lk.NegativeBinomial(2.5), [0.0, 3.0, 7.0]),
    "gamma": (lk.Gamma(1.7), [0.2, 1.0, 6.0]),
    "beta": (lk.Beta(4.0), [0.2, 0.5, 0.9]),
}
REFERENCES = {
    "gaussian": lambda f: stats.norm(f, np.sqrt(0.4)).logpdf,
    "student_t": lambda f: stats.t(4.0, f, 0.5).logpdf,
    "bernoulli": lambda f: stats.bernoulli(1 / (1 + np.exp(-f))).logpmf,
    "probit": lambda f: stats.bernoulli(stats.norm.cdf(f)).logpmf,
    "poisson": lambda f: stats.poisson(np.exp(f)).logpmf,
    "negative_binomial": lambda f: stats.nbinom(2.5, 2.5 / (2.5 + np.exp(f))).logpmf,
    "gamma": lambda f: stats.gamma(1.7, scale=np.exp(f) / 1.7).logpdf,
    "beta": lambda f: stats.beta(4.0 / (1 + np.exp(-f)), 4.0 / (1 + np.exp(f))).logpdf,
}


def integral(function: object, mean: float, variance: float) -> float:
    """The expectation of a function of f, by quadrature that knows nothing of Hermite."""
    sd = np.sqrt(variance)
    return integrate.quad(lambda f: function(f) * stats.norm.pdf(f, mean, sd), mean - 9 * sd, mean + 9 * sd)[0]


@pytest.mark.parametrize("name", CASES)
def test_expectations_are_those_of_an_adaptive_integral(name: str) -> None:
    likelihood, observed = CASES[name]
    y = torch.tensor(observed, dtype=torch.float64)
    found, step = likelihood.expected(y, F_MEAN, F_VAR), 1e-3
    predictive = likelihood.log_predictive(y, F_MEAN, F_VAR)
    for i, value in enumerate(observed):
        mean, variance = F_MEAN[i].item(), F_VAR[i].item()
        log_p = lambda f, value=value: REFERENCES[name](f)(value)  # noqa: E731
        below, here, above = (integral(log_p, mean + d, variance) for d in (-step, 0.0, step))
        assert found.value[i].item() == pytest.approx(here, abs=2e-3)
        assert found.slope[i, 0].item() == pytest.approx((above - below) / (2 * step), abs=5e-3)
        curvature = -(above - 2 * here + below) / step**2
        assert found.curvature[i, 0].item() == pytest.approx(max(curvature, lk.LEAST_CURVATURE), abs=2e-2)
        expected = np.log(integral(lambda f, log_p=log_p: np.exp(log_p(f)), mean, variance))
        assert predictive[i].item() == pytest.approx(expected, abs=5e-3)


@pytest.mark.parametrize("name", CASES)
def test_moments_and_quantiles_are_those_of_draws(name: str) -> None:
    likelihood, _ = CASES[name]
    torch.manual_seed(0)
    f = F_MEAN[:, 0] + F_VAR[:, 0].sqrt() * torch.randn(200_000, 3, dtype=torch.float64)
    drawn, given = likelihood.sample(f, seed=1), likelihood.distribution(f).mean
    mean, f_variance, noise_variance = likelihood.moments(F_MEAN, F_VAR)
    np.testing.assert_allclose(mean, drawn.mean(0), rtol=0.03, atol=0.01)
    np.testing.assert_allclose(f_variance, given.var(0), rtol=0.06)
    np.testing.assert_allclose(f_variance + noise_variance, drawn.var(0), rtol=0.2 if name == "student_t" else 0.06)
    if not isinstance(likelihood, lk.WithQuantiles):
        return
    levels = np.array([0.1, 0.5, 0.9])
    quantiles = likelihood.quantiles(levels, F_MEAN, F_VAR)
    for column, level in zip(quantiles.T, levels, strict=True):
        below = (drawn <= torch.as_tensor(column)).to(torch.float64).mean(0).numpy()
        if likelihood.is_discrete:
            assert (below >= level - 0.005).all()
            assert ((drawn < torch.as_tensor(column)).to(torch.float64).mean(0).numpy() <= level + 0.005).all()
        else:
            np.testing.assert_allclose(below, level, atol=0.005)


def test_gpytorch_agrees_and_can_be_wrapped() -> None:
    y, f = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64), F_MEAN[:, 0]
    wrapped = lk.GPyTorchLikelihood(BernoulliLikelihood())
    torch.testing.assert_close(wrapped.log_density(y, f), lk.Probit().log_density(y, f))
    laplace = lk.GPyTorchLikelihood(LaplaceLikelihood().double())
    found = laplace.expected(torch.tensor([0.3, 0.1, 2.0], dtype=torch.float64), F_MEAN, F_VAR)
    assert torch.isfinite(found.value).all()
    assert (found.curvature > 0).all()


def test_softmax_of_two_classes_is_the_logistic_function_of_their_difference() -> None:
    mean = torch.tensor([[0.5, -0.3], [2.0, -1.0]], dtype=torch.float64)
    variance = torch.tensor([[0.4, 0.2], [1.0, 0.5]], dtype=torch.float64)
    p = lk.Softmax(2).probabilities(mean, variance)
    difference = (mean[:, 1] - mean[:, 0])[:, None], variance.sum(1, keepdim=True)
    torch.testing.assert_close(p, lk.Bernoulli().probabilities(*difference), atol=3e-3, rtol=0.0)


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (lk.Poisson(), [1.0, -2.0]),
        (lk.NegativeBinomial(), [1.5, 2.0]),
        (lk.Gamma(), [0.0, 1.0]),
        (lk.Beta(), [0.5, 1.0]),
        (lk.Bernoulli(), [0.0, 2.0]),
    ],
)
def test_impossible_observations_are_named(likelihood: lk.Likelihood, y: list[float]) -> None:
    with pytest.raises(InvalidInputError, match=likelihood.name):
        likelihood.check(np.array(y))


def test_parameters_are_learned_from_rows() -> None:
    rng = np.random.default_rng(0)
    y = torch.as_tensor(stats.gamma(6.0, scale=1 / 6.0).rvs(4000, random_state=rng))
    nothing = torch.zeros(len(y), 1, dtype=torch.float64)
    found = lk.Gamma(2.0).learned(y, nothing, nothing + 1e-6, torch.ones(len(y), dtype=torch.float64))
    assert found.shape == pytest.approx(6.0, rel=0.1)
