import pytest
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from cvgp.gp.kernels import KERNEL_NAMES, make_kernel, square_matrix
from cvgp.gp.stationary import FAMILIES
from cvgp.gp.vecchia import no_points

SETS = torch.randn(5, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def local_matrices(kernel: Kernel, x: Tensor) -> Tensor:
    return no_points(kernel, x[0]).among(x)


@pytest.mark.parametrize("name", [*KERNEL_NAMES, "matern32+matern12", "rbf+linear"])
@pytest.mark.parametrize("with_gradients", [True, False])
def test_each_matrix_is_the_kernel_matrix_of_its_points(name: str, with_gradients: bool) -> None:
    kernel = make_kernel(name, 3)
    with torch.set_grad_enabled(with_gradients):
        K = local_matrices(kernel, SETS)
    expected = torch.stack([square_matrix(kernel, points) for points in SETS])
    torch.testing.assert_close(K.detach(), expected.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_copies_far_from_the_origin_are_as_one_point(name: str) -> None:
    points = 1e6 + SETS
    points[:, 0] = points[:, -1]
    K = local_matrices(make_kernel(name, 3), points)
    torch.testing.assert_close(K[:, 0], K[:, -1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [*FAMILIES, "matern32+matern12"])
@pytest.mark.parametrize("ard", [True, False], ids=["ard", "one lengthscale"])
def test_gradients_are_those_of_differences(name: str, ard: bool) -> None:
    kernel = make_kernel(name, 3, ard=ard)
    parameters = list(kernel.parameters())

    def values(x: Tensor, *raw: Tensor) -> Tensor:
        for parameter, value in zip(parameters, raw, strict=True):
            parameter.data = value.detach()
        K: Tensor = local_matrices(kernel, x)
        return K

    x = SETS.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda points: values(points, *parameters), (x,))
    G = torch.randn(5, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (G * local_matrices(kernel, SETS)).sum().backward()
    fused = [parameter.grad for parameter in parameters]
    kernel.zero_grad()
    plain = torch.stack([kernel(points).to_dense() for points in SETS])
    (G * plain).sum().backward()
    for mine, autograd in zip(fused, (parameter.grad for parameter in parameters), strict=True):
        torch.testing.assert_close(mine, autograd, rtol=1e-7, atol=1e-9)
