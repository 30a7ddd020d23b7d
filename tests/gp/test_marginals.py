"""Marginal means and variances and the KL, with gradients by hand, against autograd and against the Gaussian bound."""

import pytest
import torch
from torch import Tensor

from cvgp.gp import posterior
from cvgp.gp.bounds import elbo
from cvgp.gp.bounds.elbo import marginals

M, B = 6, 9
BATCHES = {
    "none": ((), (), ()),
    "sites": ((3,), (), ()),
    "rows": ((), (), (5,)),
    "each": ((2,), (2,), (5, 2)),
    "sites and rows": ((3, 4), (3, 1), (4,)),
}
"""Batch shapes of sites, of points and of rows."""


def problem(sites: tuple[int, ...] = (), points: tuple[int, ...] = (), rows: tuple[int, ...] = ()) -> list[Tensor]:
    """K_cc, K_cx, k_xx, y_c and log w."""
    torch.manual_seed(0)
    X, x = torch.randn(*points, M, 2, dtype=torch.float64), torch.randn(*rows, B, 2, dtype=torch.float64)
    K_cc = torch.exp(-0.5 * torch.cdist(X, X).square())
    batch = torch.broadcast_shapes(points, rows)
    K_cx = torch.exp(-0.5 * torch.cdist(X.expand(*batch, M, 2), x.expand(*batch, B, 2)).square())
    values = [torch.randn(*sites, M, dtype=torch.float64) for _ in range(2)]
    return [K_cc, K_cx, torch.ones(*rows, B, dtype=torch.float64), *values]


def by_autograd(K_cc: Tensor, K_cx: Tensor, k_xx: Tensor, y_c: Tensor, log_w: Tensor) -> list[Tensor]:
    factor = posterior.factorize(K_cc, log_w.exp(), y_c[..., None])
    mean = posterior.mean(factor, K_cx)[..., 0]
    return [mean, posterior.variance(factor, K_cx, k_xx), posterior.kl_divergence(factor)]


def with_gradients(arguments: list[Tensor]) -> list[Tensor]:
    return [argument.clone().requires_grad_() for argument in arguments]


@pytest.mark.parametrize("batches", BATCHES.values(), ids=BATCHES)
def test_values_are_those_of_the_factorized_posterior(batches: tuple[tuple[int, ...], ...]) -> None:
    arguments = problem(*batches)
    for found, expected in zip(marginals(*arguments), by_autograd(*arguments), strict=True):
        torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-11)


@pytest.mark.parametrize("batches", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("used", [(0, 1, 2), (0,), (1,), (2,)], ids=["all", "mean", "variance", "kl"])
def test_gradients_are_those_of_autograd(batches: tuple[tuple[int, ...], ...], used: tuple[int, ...]) -> None:
    ours, theirs = with_gradients(problem(*batches)), with_gradients(problem(*batches))
    found, expected = marginals(*ours), by_autograd(*theirs)
    directions = [torch.randn_like(expected[i]) for i in used]
    torch.autograd.backward([found[i] for i in used], directions)
    torch.autograd.backward([expected[i] for i in used], directions)
    for one, other in zip(ours, theirs, strict=True):
        gradient = torch.zeros_like(other) if other.grad is None else other.grad
        mine = torch.zeros_like(one) if one.grad is None else one.grad
        torch.testing.assert_close(mine, gradient, rtol=0.0, atol=1e-10)


def test_the_gaussian_bound_is_a_function_of_them() -> None:
    ours, theirs = with_gradients(problem()), with_gradients(problem())
    y, noise = torch.randn(B, dtype=torch.float64), torch.tensor(0.3, dtype=torch.float64)
    mean, variance, kl = marginals(*ours)
    densities = -0.5 * (2 * torch.pi * noise).log() - 0.5 * ((y - mean).square() + variance) / noise
    (densities.sum() - kl).backward()
    K_cc, K_cx, k_xx, y_c, log_w = theirs
    elbo(K_cc, K_cx, k_xx, y, y_c, log_w.exp() * noise, noise).backward()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("level", [0.0, 10.0], ids=["moderate", "where digits cancel"])
def test_float32_rows_give_float32_results_near_those_of_float64(level: float) -> None:
    K_cc, K_cx, k_xx, y_c, log_w = problem()
    expected = marginals(K_cc, K_cx, k_xx, y_c, log_w + level)
    found = marginals(K_cc, K_cx.float(), k_xx.float(), y_c, log_w + level)
    assert (found.mean.dtype, found.kl.dtype) == (torch.float32, torch.float64)
    torch.testing.assert_close(found.variance.double(), expected.variance, rtol=0.0, atol=2e-6)
    torch.testing.assert_close(found.kl, expected.kl)
