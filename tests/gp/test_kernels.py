import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    LinearKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RFFKernel,
    ScaleKernel,
)
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.kernels import (
    KERNEL_NAMES,
    cross_matrix,
    diagonal,
    evaluate,
    kernel_matrices,
    make_kernel,
    name_of_kernel,
    parse_kernel_name,
    square_matrix,
    stationary_form,
    typical_slopes,
)
from cvgp.gp.stationary import FAMILIES

GPYTORCH_KERNELS = {
    "linear": lambda: LinearKernel(ard_num_dims=2),
    "polynomial": lambda: PolynomialKernel(power=2),
    "periodic": PeriodicKernel,
    "random features": lambda: RFFKernel(num_samples=6, num_dims=2),
    "sum": lambda: ScaleKernel(RBFKernel()) + LinearKernel(),
    "product": lambda: RBFKernel(ard_num_dims=2) * PeriodicKernel(),
    "one column": lambda: ScaleKernel(RBFKernel(active_dims=[1])),
    "sum of columns": lambda: ScaleKernel(RBFKernel(active_dims=[1]) + ScaleKernel(LinearKernel(active_dims=[0]))),
    "scaled sum of a column": lambda: ScaleKernel(RBFKernel() + LinearKernel(), active_dims=[1]),
}
DTYPES = [torch.float32, torch.float64]


class HalvedRBF(RBFKernel):
    """A subclass that is not the RBF kernel any more."""

    def forward(self, *arguments, **options):
        return 0.5 * super().forward(*arguments, **options)


@pytest.fixture(params=[*FAMILIES, *GPYTORCH_KERNELS])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """A kernel of each kind in float64, its parameters away from their start."""
    torch.manual_seed(0)
    name = request.param
    made = make_kernel(name, 2) if name in FAMILIES else GPYTORCH_KERNELS[name]().double()
    with torch.no_grad():
        for i, parameter in enumerate(made.parameters()):
            parameter.add_(0.2 + 0.1 * i)
    return made


def inputs(M: int = 4, B: int = 6) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(1)
    return torch.tensor(rng.normal(size=(M, 2))), torch.tensor(rng.normal(size=(B, 2)))


# Kernels by name.


# The fused form.


@pytest.mark.parametrize(
    "kernel",
    [
        RBFKernel() + RBFKernel(),
        ScaleKernel(RBFKernel() + LinearKernel()),
        RBFKernel() * RBFKernel(),
        RBFKernel(active_dims=[0]),
        ScaleKernel(RBFKernel(active_dims=[0])),
        ScaleKernel(RBFKernel(), active_dims=[0]),
        RBFKernel(batch_shape=torch.Size([2])),
        ScaleKernel(RBFKernel(batch_shape=torch.Size([2]))),
        ScaleKernel(RBFKernel(), batch_shape=torch.Size([2])),
        ScaleKernel(ScaleKernel(RBFKernel())),
        HalvedRBF(),
        ScaleKernel(HalvedRBF()),
        LinearKernel(),
        PeriodicKernel(),
        RFFKernel(num_samples=3),
    ],
)
def test_other_kernels_have_no_fused_form(kernel: Kernel) -> None:
    assert stationary_form(kernel, 2) is None


def test_lengthscales_for_other_dimensions_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"RBFKernel has 3 lengthscales for inputs of 2 dim.*ard_num_dims=2"):
        stationary_form(ScaleKernel(RBFKernel(ard_num_dims=3)), 2)


# Matrices.


def test_kernel_matrices_are_those_of_gpytorch(kernel: Kernel) -> None:
    X_c, x = inputs()
    expected = (kernel(X_c).to_dense(), kernel(X_c, x).to_dense(), kernel(x).to_dense().diagonal())
    torch.testing.assert_close(kernel_matrices(kernel, X_c, x), expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("model_dtype", DTYPES)
@pytest.mark.parametrize("data_dtype", DTYPES)
def test_the_square_matrix_is_float64_and_the_data_side_follows_the_data(
    kernel: Kernel, data_dtype: torch.dtype, model_dtype: torch.dtype
) -> None:
    X_c, x = inputs()
    matrices = kernel_matrices(kernel.to(model_dtype), X_c.to(model_dtype), x.to(data_dtype))
    assert [K.dtype for K in matrices] == [torch.float64, data_dtype, data_dtype]


def test_gradients_are_those_of_autograd_through_gpytorch(kernel: Kernel) -> None:
    X_c, x = inputs()
    leaves = [X_c.requires_grad_(), *kernel.parameters()]
    theirs = [kernel(X_c).to_dense(), kernel(X_c, x).to_dense(), kernel(x, diag=True)]
    gradients = [
        torch.autograd.grad(sum((K * K).sum() for K in matrices), leaves)
        for matrices in (kernel_matrices(kernel, X_c, x), theirs)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-6)


SINGULAR_SUMS = {
    "smooth + linear": RBFKernel() + LinearKernel(),
    "linear + linear": LinearKernel() + LinearKernel(),
    "random features + linear": RFFKernel(num_samples=3, num_dims=2) + LinearKernel(),
    "scaled sum": ScaleKernel(PolynomialKernel(power=2) + ScaleKernel(LinearKernel())),
    "sum in a product": (RBFKernel() + LinearKernel()) * PeriodicKernel(),
}


@pytest.mark.parametrize("name", SINGULAR_SUMS)
def test_a_sum_with_singular_terms_is_evaluated_without_a_factorization(name: str) -> None:
    # GPyTorch's own sum warns of jitter here, or fails.
    kernel = SINGULAR_SUMS[name].double()
    X_c = torch.cat([inputs(M=30)[0]] * 2)
    other = torch.cat([X_c, X_c[:1]])  # not the same points, so GPyTorch takes no root
    torch.testing.assert_close(square_matrix(kernel, X_c), kernel(X_c, other).to_dense()[:, :-1])


JOINED = [name for name in KERNEL_NAMES if name != "tanimoto"]
EXPRESSIONS = st.lists(st.lists(st.sampled_from(JOINED), min_size=1, max_size=3), min_size=1, max_size=3)
X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@given(EXPRESSIONS)
def test_a_name_is_read_as_it_was_written(terms: list[list[str]]) -> None:
    text = "+".join("*".join(term) for term in terms)
    assert parse_kernel_name(text) == terms
    assert name_of_kernel(make_kernel(text, 2)) == text


@pytest.mark.parametrize("text", ["rbf+", "*rbf", "", "rbf-linear", "rbf+(linear)", "rbf+poly", "RBF+linear"])
def test_anything_else_is_refused_with_the_names(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"Unknown kernel .* Choose one of rbf, matern12, .*, tanimoto, join"):
        parse_kernel_name(text)


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


def test_a_quasiperiodic_kernel_is_a_periodic_one_that_decays() -> None:
    kernel = make_kernel("linear+quasiperiodic", 2)
    linear, product = kernel.kernels
    matern, periodic = product.base_kernel.kernels
    expected = (X * linear.variance) @ X.mT + product.outputscale * evaluate(matern, X, X) * evaluate(periodic, X, X)
    torch.testing.assert_close(square_matrix(kernel, X), expected)
    assert (matern.nu, name_of_kernel(kernel)) == (1.5, "linear+quasiperiodic")


D = 3


@pytest.mark.parametrize("name", ["rbf", "rq", "linear", "rbf+linear", "linear*rbf+rq"])
def test_slopes_over_a_short_step_are_the_prior_variance_of_the_derivative(name: str) -> None:
    kernel = make_kernel(name, D)
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in kernel.parameters():
            parameter.copy_(0.3 * torch.randn_like(parameter))
    # GPyTorch would take equal points for one and the same.
    x, other = (torch.full((D,), at, dtype=torch.float64, requires_grad=True) for at in (1.0, 1.0 + 1e-9))
    k = evaluate(kernel, x[None], other[None]).sum()
    (slope,) = torch.autograd.grad(k, x, create_graph=True)
    second = [torch.autograd.grad(slope[d], other, retain_graph=True)[0][d].item() for d in range(D)]
    assert typical_slopes(kernel, D, step=1e-4).square().tolist() == pytest.approx(second, rel=1e-3)


def test_a_rough_term_counts_by_how_much_it_varies_between_points() -> None:
    """A Matern 1/2 term of a long lengthscale varies as much over a tenth as a smooth one of a tenth of it."""
    kernel = make_kernel("matern32+matern12", 2)
    smooth, rough = kernel.kernels
    smooth.base_kernel.lengthscale = torch.tensor([[1.0, 1e4]])
    rough.base_kernel.lengthscale = torch.tensor([[1e4, 10.0]])
    kernel.kernels[0].outputscale = kernel.kernels[1].outputscale = 1.0
    first, second = typical_slopes(kernel, 2).tolist()
    assert second == pytest.approx(math.sqrt(2.0 * -math.expm1(-0.01)) / 0.1, rel=1e-3)
    assert second > 0.5 * first
