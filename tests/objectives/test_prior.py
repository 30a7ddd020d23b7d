"""Priors of GPyTorch modules in every objective, against autograd on dense matrices."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.priors import GammaPrior, LogNormalPrior, NormalPrior, UniformPrior
from torch import Tensor

from cvgp import CVGP, Coreset
from cvgp.data.rows import Rows
from cvgp.errors import DivergenceError
from cvgp.gp.kernels import gaussian_likelihood, log_positive, make_kernel
from cvgp.objectives import ExactObjective, MinibatchObjective, Objective, TitsiasObjective, direct_elbo
from tests.parallel.groups import ThreadGroup, run_in_threads

N, M, D = 17, 5, 2
rng = np.random.default_rng(2)
ROWS = Rows(torch.tensor(rng.normal(size=(N, D))), torch.tensor(rng.normal(size=N)), None, None)


def make_coreset() -> Coreset:
    own = np.random.default_rng(3)
    return Coreset(own.normal(size=(M, D)), own.normal(size=M), np.linspace(0.5, 2.0, M))


def with_priors() -> CVGP:
    """A model with a prior on each kind of parameter; float32 numbers in priors must not round the others."""
    base = RBFKernel(ard_num_dims=D, lengthscale_prior=GammaPrior(3.0, 6.0), lengthscale_constraint=log_positive())
    kernel = ScaleKernel(base, outputscale_prior=LogNormalPrior(0.5, 0.25), outputscale_constraint=log_positive())
    likelihood = gaussian_likelihood(0.2)
    likelihood.noise_covar.register_prior("noise_prior", LogNormalPrior(-4.0, 1.0), "noise")
    mean = ConstantMean(constant_prior=NormalPrior(0.25, 0.5)).double().initialize(constant=0.1)
    kernel.double()
    return CVGP(make_coreset(), kernel, mean=mean, likelihood=likelihood)


def direct_with_prior() -> CVGP:
    """A model whose training step is written by hand."""
    kernel = make_kernel("matern32", D)
    kernel.base_kernel.register_prior("lengthscale_prior", GammaPrior(3.0, 6.0), "lengthscale")
    model = CVGP(make_coreset(), kernel)
    assert direct_elbo(model) is not None
    return model


def naive_log_prior(model: CVGP) -> Tensor:
    """The sum of the priors of `with_priors`, from their formulas."""
    length, scale = model.kernel.base_kernel.lengthscale, model.kernel.outputscale
    noise, constant = model.likelihood.noise, model.mean.constant

    def normal(value: Tensor, loc: float, sd: float) -> Tensor:
        return (-0.5 * ((value - loc) / sd) ** 2 - math.log(sd * math.sqrt(2.0 * math.pi))).sum()

    gamma = (3.0 * math.log(6.0) - math.lgamma(3.0) + 2.0 * length.log() - 6.0 * length).sum()
    log_normal = normal(scale.log(), 0.5, 0.25) - scale.log() + normal(noise.log(), -4.0, 1.0) - noise.log().sum()
    return gamma + log_normal + normal(constant, 0.25, 0.5)


def naive_log_marginal(model: CVGP) -> Tensor:
    length, scale = model.kernel.base_kernel.lengthscale, model.kernel.outputscale
    z = ROWS.x / length
    K = scale * (-0.5 * (z[:, None] - z[None]).square().sum(-1)).exp() + model.noise * torch.eye(N).double()
    mean = model.mean.constant.expand(N)
    return torch.distributions.MultivariateNormal(mean, K).log_prob(ROWS.y)


def gradients(model: CVGP) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_exact_objective_is_the_map_objective_of_a_naive_gp() -> None:
    model = with_priors()
    found = ExactObjective(model, ROWS).value_and_backward(0.5)
    by_hand = gradients(model)
    model.zero_grad()
    expected = 0.5 * (naive_log_marginal(model) + naive_log_prior(model))
    expected.backward()
    assert found == pytest.approx(expected.item(), rel=1e-6)
    for name, gradient in by_hand.items():
        torch.testing.assert_close(gradient, model.get_parameter(name).grad, rtol=1e-6, atol=1e-6)


def minibatch(model: CVGP) -> Objective:
    objective = MinibatchObjective(model, num_data=1000.0)
    objective.rows = ROWS
    return objective


OBJECTIVES: dict[str, Callable[[CVGP], Objective]] = {
    "exact": lambda model: ExactObjective(model, ROWS),
    "minibatch": minibatch,
    "full batch": lambda model: TitsiasObjective(model, lambda: [ROWS.take(slice(9)), ROWS.take(slice(9, N))], N),
}


@pytest.mark.parametrize("make", [with_priors, direct_with_prior])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_counts_the_whole_prior_once(name: str, make: Callable[[], CVGP]) -> None:
    model, scale = make(), -0.25
    found = OBJECTIVES[name](model).value_and_backward(scale)
    with_prior = gradients(model)
    model.zero_grad()
    prior = model.log_prior()
    (scale * prior).backward()
    of_prior = gradients(model)
    model.zero_grad()
    for part in model.modules():
        if hasattr(part, "_priors"):
            part._priors.clear()
    assert prior.item() != 0.0
    assert model.log_prior().item() == 0.0
    alone = OBJECTIVES[name](model).value_and_backward(scale)
    assert found - alone == pytest.approx(scale * prior.item(), rel=1e-6)
    for parameter, gradient in gradients(model).items():
        torch.testing.assert_close(with_prior[parameter], gradient + of_prior.get(parameter, torch.zeros(())).double())


def test_processes_of_a_group_count_the_prior_once() -> None:
    alone = OBJECTIVES["full batch"](with_priors()).value_and_backward()

    def work(group: ThreadGroup) -> float:
        mine = ROWS.take(slice(9)) if group.rank == 0 else ROWS.take(slice(9, N))
        return TitsiasObjective(with_priors(), lambda: [mine], N, group=group).value_and_backward()

    assert run_in_threads(2, work) == pytest.approx([alone, alone])


def test_value_outside_the_support_is_named() -> None:
    kernel: Kernel = RBFKernel(lengthscale_prior=UniformPrior(0.1, 0.2)).double()
    model = CVGP(Coreset([[0.0]], [0.0], [1.0]), kernel, likelihood=GaussianLikelihood().double())
    with pytest.raises(DivergenceError, match=r"lengthscale_prior .* outside its support"):
        model.log_prior()
