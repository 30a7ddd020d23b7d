"""Gradients in kernel parameters, pseudo-inputs and noise: ours against autograd all the way through GPyTorch."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel
from torch import Tensor

from cvgp.gp import bounds
from cvgp.gp.kernels import kernel_matrices
from cvgp.gp.linalg import add_jitter
from tests.equivalence import naive

JITTER = 1e-5
"""Enough for the naive inverse of K_cc to keep its digits where all pseudo-inputs are as one."""

VANISHING = 1e-11
"""Gradients below this are rounding: of kernels that are zero, or one, wherever they are evaluated."""

KERNELS = {
    "RBF": lambda: RBFKernel(),
    "scaled ARD RBF": lambda: ScaleKernel(RBFKernel(ard_num_dims=2)),
    "scaled ARD RQ": lambda: ScaleKernel(RQKernel(ard_num_dims=2)),
    "scaled periodic": lambda: ScaleKernel(PeriodicKernel()),
    "sum": lambda: LinearKernel() + ScaleKernel(RBFKernel(ard_num_dims=2)),
    "product": lambda: ScaleKernel(RBFKernel(ard_num_dims=2)) * PeriodicKernel(),
    "sum over columns": lambda: ScaleKernel(RBFKernel(active_dims=[0])) + ScaleKernel(PeriodicKernel(active_dims=[1])),
}


def naive_matrices(kernel: Kernel, X_c: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return kernel(X_c).to_dense(), kernel(X_c, x).to_dense(), kernel(x, diag=True)


def elbo(module: ModuleType, K: tuple[Tensor, Tensor, Tensor], sites: dict[str, Tensor], y: Tensor) -> Tensor:
    return module.elbo(*K, y, sites["y_c"], sites["beta"], sites["noise"])


def tight(module: ModuleType, K: tuple[Tensor, Tensor, Tensor], sites: dict[str, Tensor], y: Tensor) -> Tensor:
    K = add_jitter(K[0], JITTER), *K[1:]
    return elbo(module, K, sites, y) + module.tightening(*K, sites["noise"])


BOUNDS = {"elbo": elbo, "tight": tight}


def gradients(
    bound: Callable[..., Tensor],
    make_kernel: Callable[[], Kernel],
    *,
    naively: bool,
    lengthscale: float = 0.8,
    noise: float = 0.1,
    beta: float = 1.0,
    duplicate: bool = False,
) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    X_c, x = (torch.randn(n, 2, generator=generator, dtype=torch.float64) for n in (4, 10))
    y, y_c = (torch.randn(n, generator=generator, dtype=torch.float64) for n in (10, 4))
    if duplicate:
        X_c[3] = X_c[2]
    weights = torch.tensor([beta, 0.5, 1.0, 2.0], dtype=torch.float64)
    leaves = {"X_c": X_c, "y_c": y_c, "beta": weights, "noise": torch.tensor(noise, dtype=torch.float64)}
    kernel = make_kernel().double()
    for part in kernel.modules():
        if isinstance(part, Kernel) and part.has_lengthscale:
            part.lengthscale = lengthscale
    for leaf in leaves.values():
        leaf.requires_grad_()
    K = naive_matrices(kernel, leaves["X_c"], x) if naively else kernel_matrices(kernel, leaves["X_c"], x)
    leaves |= dict(kernel.named_parameters())
    value = bound(naive if naively else bounds, K, leaves, y)
    return dict(zip(leaves, torch.autograd.grad(value, list(leaves.values())), strict=True))


def assert_naive(
    bound: Callable[..., Tensor], make_kernel: Callable[[], Kernel], *, rtol: float, **regime: Any
) -> None:
    """Each gradient agrees with the naive one to a share of its largest element."""
    ours, theirs = (gradients(bound, make_kernel, naively=naively, **regime) for naively in (False, True))
    for name, expected in theirs.items():
        atol = rtol * expected.abs().max().item() + VANISHING
        torch.testing.assert_close(
            ours[name], expected, rtol=0.0, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("make_kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
def test_gradient_is_the_naive_one(bound: Callable[..., Tensor], make_kernel: Callable[[], Kernel]) -> None:
    assert_naive(bound, make_kernel, rtol=1e-8)


REGIMES = {
    "short lengthscale": {"lengthscale": 1e-3},
    "long lengthscale": {"lengthscale": 1e3},
    "little noise": {"noise": 1e-6},
    "duplicate pseudo-inputs": {"duplicate": True},
    "small weight": {"beta": 1e-12},
}


@pytest.mark.parametrize("regime", REGIMES.values(), ids=REGIMES)
@pytest.mark.parametrize("make_kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("bound", BOUNDS.values(), ids=BOUNDS)
def test_gradient_at_an_extreme_is_the_naive_one(
    bound: Callable[..., Tensor], make_kernel: Callable[[], Kernel], regime: dict[str, float]
) -> None:
    # What limits the agreement is the naive inverse of K_cc, and GPyTorch's distances at short lengthscales.
    assert_naive(bound, make_kernel, rtol=1e-5, **regime)
