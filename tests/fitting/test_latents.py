"""Sites of any likelihood: fixed points, monotone steps, and the Gaussian as a special case."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from gpytorch.likelihoods import LaplaceLikelihood
from torch import Tensor

from cvgp.coreset import Coreset
from cvgp.data.rows import Rows
from cvgp.data.source import MemorySource
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.latents import (
    LatentFit,
    Latents,
    SitesObjective,
    Stream,
    _with_best_scale,
    fit_latents,
    multiply_variance,
    solve_sites,
)
from cvgp.fitting.monitor import Budget, Clock, FitLog, Run
from cvgp.gp import likelihoods as lk
from cvgp.gp.bounds.elbo import marginals
from cvgp.gp.kernels import gaussian_likelihood, kernel_matrices, make_kernel
from cvgp.gp.model import CVGP
from cvgp.optim import Status
from cvgp.parallel.group import ALONE

KINDS = {
    "bernoulli": (lk.Bernoulli(), lambda f, rng: (rng.uniform(size=len(f)) < 1 / (1 + np.exp(-2 * f))).astype(float)),
    "probit": (lk.Probit(), lambda f, rng: (rng.normal(size=len(f)) < f).astype(float)),
    "poisson": (lk.Poisson(), lambda f, rng: rng.poisson(np.exp(f)).astype(float)),
    "negative_binomial": (lk.NegativeBinomial(2.0), lambda f, rng: rng.poisson(np.exp(f)).astype(float)),
    "gamma": (lk.Gamma(2.0), lambda f, rng: rng.gamma(2.0, np.exp(f) / 2.0) + 1e-9),
    "softmax": (lk.Softmax(3), lambda f, rng: np.clip(np.round(f + 1 + 0.3 * rng.normal(size=len(f))), 0, 2)),
}
CLAMPED = {
    "student_t": (lk.StudentT(0.3, 3.0), lambda f, rng: f + 0.3 * rng.standard_t(3.0, size=len(f))),
    "beta": (lk.Beta(3.0), lambda f, rng: np.clip(rng.beta(3 / (1 + np.exp(-f)), 3 / (1 + np.exp(f))), 1e-3, 0.999)),
}


def problem(kind: str, num_rows: int = 300) -> tuple[Latents, Rows[Tensor]]:
    likelihood, draw = (KINDS | CLAMPED)[kind]
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, size=(num_rows, 2))
    y = draw(np.sin(x[:, 0]) + 0.3 * x[:, 1], rng)
    kernel = make_kernel("matern32", 2)
    model = CVGP(Coreset(x[:15], np.zeros(15), np.ones(15)), kernel)
    constant = torch.as_tensor(likelihood.constant(y, np.ones(num_rows)))
    return Latents.begin(model, constant, likelihood), Rows(torch.as_tensor(x), torch.as_tensor(y))


def bound(latents: Latents, rows: Rows[Tensor], y_c: Tensor, log_w: Tensor) -> Tensor:
    """E_q log p(y) minus the KL, for sites [L, M]; derivatives by those of the expectations."""
    model = latents.first
    f = marginals(*(m.detach() for m in kernel_matrices(model.kernel, model.X_c, rows.x)), y_c, log_w)
    expected = latents.likelihood.expected(rows.y, f.mean.detach().mT + latents.constant, f.variance.detach().mT)
    moved = (expected.slope * (f.mean - f.mean.detach()).mT).sum()
    spread = (expected.curvature * (f.variance - f.variance.detach()).mT).sum()
    return expected.value.sum() + moved - 0.5 * spread - f.kl.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_the_bound_vanishes_at_the_sites(kind: str) -> None:
    latents, rows = problem(kind)
    found = solve_sites(latents, MemorySource(*rows), steps=200, tol=1e-13, fresh=True)
    y_c = torch.stack([model.y_c.detach() for model in latents.models]).requires_grad_()
    log_w = torch.stack([model.site_precision.detach().log() for model in latents.models]).requires_grad_()
    value = bound(latents, rows, y_c, log_w)
    assert value.item() == pytest.approx(found.value, abs=1e-3)
    value.backward()
    assert y_c.grad is not None
    assert log_w.grad is not None
    assert y_c.grad.abs().max() < 2e-2
    # A weight at its floor may want to fall further.
    free = log_w.detach() > log_w.detach().max() - 10.0
    assert log_w.grad[free].abs().max() < 2e-2


@pytest.mark.parametrize("kind", ["bernoulli", "poisson", "softmax"])
@pytest.mark.parametrize("factor", [1e-2, 1e2])
def test_no_other_variance_of_f_has_a_higher_bound_after_the_search(kind: str, factor: float) -> None:
    latents, rows = problem(kind)
    multiply_variance(latents.first, factor)
    begun = solve_sites(latents, MemorySource(*rows), steps=20, fresh=True)
    best, found = _with_best_scale(latents, MemorySource(*rows), begun, Run.alone(seed=0))
    assert found.value > begun.value
    for change in (4.0, 0.25):
        other = best.copied()
        multiply_variance(other.first, change)
        assert solve_sites(other, MemorySource(*rows), steps=6).value < found.value + 1e-3


def test_a_variance_that_is_not_learned_stays() -> None:
    latents, rows = problem("bernoulli")
    latents.first.kernel.raw_outputscale.requires_grad_(False)
    before = latents.first.kernel.outputscale.item()
    found = fit_latents(latents, rows, Run.alone(seed=0), most_rows=1000)
    assert found.latents.first.kernel.outputscale.item() == before


@pytest.mark.slow
def test_clear_classes_get_a_wider_f_which_makes_left_out_rows_likelier() -> None:
    latents, rows = problem("softmax", 400)
    scores = torch.stack([rows.x[:, 0].sin() * 2.0, rows.x[:, 1], -rows.x[:, 1]], 1)
    rows = rows._replace(y=scores.argmax(1).double())  # without any noise
    asked, free = (
        fit_latents(latents.copied(), rows, Run.alone(seed=0), most_rows=1000, widen=widen) for widen in (1.0, None)
    )
    found, known = (fit.latents.first.kernel.outputscale.item() for fit in (free, asked))
    assert found >= 4.0 * known
    assert free.left_out.density > asked.left_out.density


@pytest.mark.parametrize("kind", [*KINDS, *CLAMPED])
def test_steps_never_lower_the_bound(kind: str) -> None:
    latents, rows = problem(kind)
    values = [solve_sites(latents, MemorySource(*rows), steps=1, fresh=True).value]
    values += [solve_sites(latents, MemorySource(*rows), steps=1).value for _ in range(8)]
    assert (np.diff(values) > -1e-6 * abs(values[0])).all()
    assert values[-1] > values[0]


def test_the_gaussian_likelihood_has_the_coreset_of_a_regression() -> None:
    latents, rows = problem("gamma")
    noise = 0.2
    same = latents._replace(likelihood=lk.Gaussian(noise), constant=torch.zeros(1, dtype=torch.float64))
    y = torch.sin(rows.x[:, 0]) + 0.3 * torch.as_tensor(np.random.default_rng(1).normal(size=len(rows.x)))
    found = solve_sites(same, MemorySource(rows.x, y), steps=50, tol=1e-13, fresh=True)
    model = CVGP(same.first.coreset, same.first.kernel, likelihood=gaussian_likelihood(noise))
    value = model.solve_coreset(rows.x, y).item()
    assert found.value == pytest.approx(value, abs=1e-5)
    with torch.no_grad():
        ours, theirs = same.first.posterior(rows.x), model.posterior(rows.x)
    torch.testing.assert_close(ours.mean, theirs.mean, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.variance, theirs.variance, atol=1e-5, rtol=1e-4)


def test_the_gradient_in_the_kernel_is_that_of_the_bound() -> None:
    latents, rows = problem("poisson")
    solve_sites(latents, MemorySource(*rows), steps=10, fresh=True)
    objective = SitesObjective(latents, MemorySource(*rows))
    for parameter in objective.parameters:
        parameter.grad = None
    objective.value_and_backward()
    raw = latents.first.kernel.base_kernel.raw_lengthscale
    assert raw.grad is not None
    gradient, step, start, ends = raw.grad.flatten()[0].item(), 1e-4, raw.detach().clone(), []
    for sign in (1.0, -1.0):
        with torch.no_grad():
            raw.copy_(start)
            raw.view(-1)[0] += sign * step
        ends.append(objective.value_and_backward())
    assert gradient == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-3)


@pytest.mark.parametrize("kind", ["bernoulli", "poisson"])
def test_a_fit_finds_the_function_and_left_out_rows_are_as_likely_as_new_ones(kind: str) -> None:
    latents, rows = problem(kind, 1200)
    old, new = rows.take(slice(600)), rows.take(slice(600, None))
    fit = fit_latents(latents, old, Run.alone(), most_rows=5000)
    with torch.no_grad():
        f = fit.latents.first.posterior(new.x)
        at = (f.mean + fit.latents.constant)[:, None], f.variance[:, None]
        density = fit.latents.likelihood.log_predictive(new.y, *at).mean().item()
    truth = torch.sin(new.x[:, 0]) + 0.3 * new.x[:, 1]
    assert torch.corrcoef(torch.stack([truth, at[0][:, 0]]))[0, 1] > 0.95
    assert fit.left_out.density == pytest.approx(density, abs=0.08)
    assert fit.result.converged


def test_a_likelihood_of_gpytorch_is_fitted() -> None:
    latents, rows = problem("student_t")
    wrapped = lk.GPyTorchLikelihood(LaplaceLikelihood().double())
    fit = fit_latents(latents._replace(likelihood=wrapped), rows, Run.alone(), most_rows=5000)
    with torch.no_grad():
        f = fit.latents.first.posterior(rows.x).mean
    truth = torch.sin(rows.x[:, 0]) + 0.3 * rows.x[:, 1]
    assert torch.corrcoef(torch.stack([truth, f]))[0, 1] > 0.9


def test_a_time_limit_ends_the_passes_over_all_rows_after_the_first() -> None:
    latents, rows = problem("poisson", 600)
    passes, seconds = [0], iter(range(10**9))

    def blocks() -> Iterator[Rows[Tensor]]:
        passes[-1] += 1
        yield rows

    def fitted(max_time: float | None) -> LatentFit:
        passes.append(0)
        budget = Budget(max_time, Clock(lambda: float(next(seconds))))
        run = Run(budget, FitLog(), Heuristics())
        return fit_latents(latents.copied(), rows, run, most_rows=200, every=Stream(blocks, ALONE))

    hurried, free, in_time = (fitted(limit) for limit in (0.5, None, 1e6))
    assert passes[1] == 1 < passes[2] == passes[3]
    assert (hurried.is_partial, hurried.result.status) == (True, Status.TIME_LIMIT)
    assert (in_time.is_partial, in_time.bound) == (False, free.bound)
