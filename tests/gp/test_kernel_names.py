import pytest
import torch
from gpytorch.kernels import AdditiveKernel, CosineKernel, MaternKernel, RBFKernel, ScaleKernel
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.kernel_names import KERNEL_NAMES, name_of_kernel, parse_kernel_name
from cvgp.gp.kernels import cross_matrix, diagonal, evaluate, make_kernel, square_matrix

EXPRESSIONS = st.lists(st.lists(st.sampled_from(KERNEL_NAMES), min_size=1, max_size=3), min_size=1, max_size=3)
X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@given(EXPRESSIONS)
def test_a_name_is_read_as_it_was_written(terms: list[list[str]]) -> None:
    text = "+".join("*".join(term) for term in terms)
    assert parse_kernel_name(text) == terms
    assert name_of_kernel(make_kernel(text, 2)) == text


def test_spaces_do_not_matter() -> None:
    assert parse_kernel_name(" rbf +linear * rq ") == [["rbf"], ["linear", "rq"]]


@pytest.mark.parametrize("text", ["rbf+", "*rbf", "", "rbf-linear", "rbf+(linear)", "rbf+poly", "RBF+linear"])
def test_anything_else_is_refused_with_the_names(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"Unknown kernel .* Choose one of rbf, matern12, .*, periodic, join"):
        parse_kernel_name(text)


def test_kernels_of_users_have_names_too() -> None:
    kernel = ScaleKernel(CosineKernel() + MaternKernel(2.5)) * RBFKernel()
    assert name_of_kernel(kernel) == "(cosine+matern52)*rbf"


def dense(kernel: AdditiveKernel) -> Tensor:
    """k of `rbf+matern32*periodic+linear`, term by term, from GPyTorch's own values of each named kernel."""
    rbf, product, linear = kernel.kernels
    matern, periodic = product.base_kernel.kernels
    return (
        rbf.outputscale * evaluate(rbf.base_kernel, X, X)
        + product.outputscale * evaluate(matern, X, X) * evaluate(periodic, X, X)
        + (X * linear.variance) @ X.mT
    )


@pytest.mark.parametrize("ard", [True, False])
def test_products_bind_more_closely_and_each_term_has_a_scale(ard: bool) -> None:
    kernel = make_kernel("rbf+matern32*periodic+linear", 2, ard=ard)
    with torch.no_grad():
        for i, parameter in enumerate(kernel.parameters()):
            parameter.copy_(0.1 * (i + 1) * torch.ones_like(parameter))
    expected = dense(kernel)
    torch.testing.assert_close(square_matrix(kernel, X), expected)
    torch.testing.assert_close(cross_matrix(kernel, X, X), expected)
    torch.testing.assert_close(diagonal(kernel, X), expected.diagonal())
    found, wanted = (
        torch.autograd.grad(K.sin().sum(), kernel.parameters()) for K in (square_matrix(kernel, X), expected)
    )
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_a_product_with_a_linear_factor_has_its_variances_as_scale() -> None:
    names = dict(make_kernel("linear*rbf", 2).named_parameters())
    assert set(names) == {"kernels.0.raw_variance", "kernels.1.raw_lengthscale"}


def test_float32_inputs_give_float32_values_near_those_of_float64() -> None:
    kernel = make_kernel("rbf+matern32*periodic+linear", 2)
    values = cross_matrix(kernel, X, X.float())
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), cross_matrix(kernel, X, X), rtol=1e-5, atol=1e-5)
