"""Both matrices of a stationary kernel in one node: the values and gradients of each by itself."""

import pytest
import torch

from cvgp.gp.stationary import FAMILIES, StationaryKernel, cross_matrix, square_matrix
from cvgp.gp.stationary_pair import can_be_paired, square_and_cross_matrix

M, B, D = 6, 11, 3
PAIRED = [name for name, family in FAMILIES.items() if family.shape_slope is None]


def arguments(dtype: torch.dtype) -> list[torch.Tensor]:
    """X_c, x, inverse lengthscales, outputscale."""
    torch.manual_seed(0)
    values = [torch.randn(M, D), torch.randn(B, D), torch.rand(D) + 0.5, torch.tensor(1.7)]
    return [value.to(dtype) for value in values]


@pytest.mark.parametrize("name", PAIRED)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_values_and_gradients_are_those_of_each_by_itself(name: str, dtype: torch.dtype) -> None:
    G_cc, G_cx = torch.randn(M, M, dtype=torch.float64), torch.randn(M, B, dtype=dtype)
    found, gradients = [], []
    for paired in (True, False):
        X_c, x, inverse, scale = arguments(dtype)
        learned = [X_c.requires_grad_(), inverse.requires_grad_(), scale.requires_grad_()]
        kernel = StationaryKernel(FAMILIES[name], inverse, scale, torch.ones((), dtype=dtype))
        both = square_matrix(kernel, X_c), cross_matrix(kernel, X_c, x)
        matrices = square_and_cross_matrix(kernel, X_c, x) if paired else both
        found.append(matrices)
        gradients.append(torch.autograd.grad(matrices, learned, [G_cc, G_cx]))
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
    for one, other in [*zip(*found, strict=True), *zip(*gradients, strict=True)]:
        torch.testing.assert_close(one, other, **tolerance)


def test_rows_with_a_gradient_or_a_batch_and_shapes_to_learn_are_left_to_the_other_path() -> None:
    _, x, inverse, scale = arguments(torch.float64)
    kernel = StationaryKernel(FAMILIES["rbf"], inverse, scale, scale)
    assert can_be_paired(kernel, x)
    assert not can_be_paired(kernel, x[None])
    assert not can_be_paired(kernel, x.clone().requires_grad_())
    assert not can_be_paired(kernel._replace(family=FAMILIES["rq"]), x)
