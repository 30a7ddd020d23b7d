import math
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cvgp.gp.stationary import FAMILIES, StationaryKernel, cross_matrix, square_matrix
from tests import reference as ref

BASES: dict[str, Kernel] = {
    "rbf": RBFKernel(ard_num_dims=3),
    "matern12": MaternKernel(nu=0.5, ard_num_dims=3),
    "matern32": MaternKernel(nu=1.5, ard_num_dims=3),
    "matern52": MaternKernel(nu=2.5, ard_num_dims=3),
    "rq": RQKernel(ard_num_dims=3),
}
LENGTHSCALE = (0.5, 1.2, 2.0)
OUTPUTSCALE = 1.7
ALPHA = 0.8
ARGUMENTS = ("X_c", "x", "lengthscale", "outputscale", "alpha")
DERIVATIVES = [(name, argument) for name in FAMILIES for argument in ARGUMENTS if name == "rq" or argument != "alpha"]

# GPyTorch's distance of a point from itself is 1e-8, to which exp(-r) alone is sensitive.
TOLERANCE = {name: 1e-6 if name == "matern12" else 1e-9 for name in FAMILIES}

Arguments = dict[str, Tensor]


def arguments(dtype: torch.dtype = torch.float64, M: int = 5, B: int = 7) -> Arguments:
    """Leaf tensors: pseudo-inputs and data away from the origin, and the kernel's parameters."""
    rng = np.random.default_rng(2)
    values = {
        "X_c": rng.normal(size=(M, 3)) + 3.0,
        "x": rng.normal(size=(B, 3)) + 3.0,
        "lengthscale": LENGTHSCALE,
        "outputscale": OUTPUTSCALE,
        "alpha": ALPHA,
    }
    return {name: torch.tensor(value, dtype=dtype, requires_grad=True) for name, value in values.items()}


def fused(name: str, a: Arguments) -> tuple[Tensor, Tensor]:
    kernel = StationaryKernel(FAMILIES[name], a["lengthscale"].reciprocal(), a["outputscale"], a["alpha"])
    return square_matrix(kernel, a["X_c"]), cross_matrix(kernel, a["X_c"], a["x"])


def by_gpytorch(name: str, a: Arguments) -> tuple[Tensor, Tensor]:
    """The same matrices by GPyTorch, as differentiable functions of the same leaves."""
    kernel = ScaleKernel(BASES[name]).to(a["x"].dtype)
    parameters = {
        "raw_outputscale": kernel.raw_outputscale_constraint.inverse_transform(a["outputscale"]),
        "base_kernel.raw_lengthscale": BASES[name].raw_lengthscale_constraint.inverse_transform(a["lengthscale"][None]),
    }
    if name == "rq":
        parameters["base_kernel.raw_alpha"] = BASES[name].raw_alpha_constraint.inverse_transform(a["alpha"][None])
    return tuple(
        torch.func.functional_call(_Dense(kernel), {f"kernel.{k}": v for k, v in parameters.items()}, (a["X_c"], other))
        for other in (a["X_c"], a["x"])
    )


class _Dense(torch.nn.Module):
    """GPyTorch evaluates lazily; the values must exist before functional_call takes the parameters back."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self.kernel(x1, x2).to_dense()


def gradients(matrices: tuple[Tensor, Tensor], a: Arguments) -> Arguments:
    """Gradients of one weighted sum of all entries; a parameter that a family has not gets None."""
    generator = torch.Generator().manual_seed(4)
    total = sum(
        (torch.randn(K.shape, generator=generator, dtype=torch.float64).to(K.dtype) * K).sum().double()
        for K in matrices
    )
    return dict(zip(a, torch.autograd.grad(total, list(a.values()), allow_unused=True), strict=True))


@pytest.fixture(params=FAMILIES)
def name(request: pytest.FixtureRequest) -> str:
    """A family; tests that differentiate parametrize it themselves, beside the argument."""
    return request.param


# Values.


def test_values_are_those_of_the_formula(name: str) -> None:
    a = {key: value.detach() for key, value in arguments().items()}
    options = {"alpha": ALPHA} if name == "rq" else {}
    expected = getattr(ref, name)(a["X_c"].numpy(), a["x"].numpy(), np.array(LENGTHSCALE), OUTPUTSCALE, **options)
    np.testing.assert_allclose(fused(name, a)[1].numpy(), expected, rtol=1e-12)


def test_a_shift_of_all_inputs_costs_few_digits(name: str) -> None:
    a = arguments()
    far = a | {"X_c": a["X_c"] + 1e6, "x": a["x"] + 1e6}
    torch.testing.assert_close(fused(name, far)[1], fused(name, a)[1], rtol=1e-8, atol=1e-8)


# Gradients.


@pytest.mark.parametrize(("name", "argument"), DERIVATIVES)
def test_gradients_are_those_of_autograd_through_gpytorch(name: str, argument: str) -> None:
    a = arguments()
    ours, theirs = gradients(fused(name, a), a)[argument], gradients(by_gpytorch(name, a), a)[argument]
    torch.testing.assert_close(ours, theirs, rtol=TOLERANCE[name], atol=TOLERANCE[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("name", "argument"), DERIVATIVES)
def test_gradients_are_finite_where_points_coincide(name: str, argument: str, dtype: torch.dtype) -> None:
    a = arguments(dtype)
    X_c = torch.cat([a["X_c"][:2], a["X_c"][:2]]).detach().requires_grad_()
    a = a | {"X_c": X_c, "x": X_c.detach().clone().requires_grad_()}
    assert torch.isfinite(gradients(fused(name, a), a)[argument]).all()


# Memory.


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.numel = max([self.numel, *(leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor))])
        return result


def test_no_tensor_is_larger_than_a_kernel_matrix(name: str) -> None:
    M, B, D = 50, 64, 30
    one = torch.ones((), dtype=torch.float64)
    X_c, x, scale, outputscale, shape = (
        tensor.requires_grad_()
        for tensor in (torch.rand(M, D, dtype=torch.float64), torch.rand(B, D), math.pi * torch.ones(D), one, one + 1)
    )
    kernel = StationaryKernel(FAMILIES[name], scale, outputscale, shape)
    with LargestTensor() as largest:
        (square_matrix(kernel, X_c).sum() + cross_matrix(kernel, X_c, x).sum()).backward()
    assert largest.numel <= max(M * B, B * (2 * D + 1))
