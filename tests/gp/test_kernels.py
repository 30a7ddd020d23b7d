import numpy as np
import pytest
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RFFKernel,
    RQKernel,
    ScaleKernel,
)
from torch import Tensor, nn

from cvgp.errors import InvalidInputError
from cvgp.gp.kernels import (
    KERNEL_NAMES,
    cross_matrix,
    diagonal,
    evaluate,
    kernel_matrices,
    make_kernel,
    parameters_as,
    scale_kernel,
    square_matrix,
    stationary_form,
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


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_a_named_kernel_is_in_float64(name: str) -> None:
    assert {p.dtype for p in make_kernel(name, 2).parameters()} == {torch.float64}


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_a_named_kernel_has_parameters_per_dimension(name: str) -> None:
    assert max(p.numel() for p in make_kernel(name, 3).parameters()) == 3


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_a_named_kernel_without_ard_has_single_parameters(name: str) -> None:
    assert {p.numel() for p in make_kernel(name, 3, ard=False).parameters()} == {1}


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_a_raw_parameter_of_a_named_kernel_is_a_logarithm(name: str) -> None:
    kernel = make_kernel(name, 2)
    constraints = {c: p for _, p, c in kernel.named_parameters_and_constraints()}
    torch.testing.assert_close(
        torch.cat([c.transform(p).reshape(-1) for c, p in constraints.items()]),
        torch.cat([p.exp().reshape(-1) for p in constraints.values()]),
    )


@pytest.mark.parametrize(("name", "nu"), [("matern12", 0.5), ("matern32", 1.5), ("matern52", 2.5)])
def test_a_matern_kernel_has_the_smoothness_of_its_name(name: str, nu: float) -> None:
    assert make_kernel(name, 2).base_kernel.nu == nu


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInputError, match=r"Unknown kernel 'rfb'\. Choose one of rbf, matern12, .* periodic"):
        make_kernel("rfb", 2)


# The fused form.


@pytest.mark.parametrize("name", FAMILIES)
def test_a_stationary_kernel_has_the_form_of_its_family(name: str) -> None:
    assert stationary_form(make_kernel(name, 2), 2).family is FAMILIES[name]


@pytest.mark.parametrize(
    "kernel", [RBFKernel(), MaternKernel(nu=0.5), MaternKernel(nu=1.5), MaternKernel(nu=2.5), RQKernel()]
)
def test_without_a_scale_the_outputscale_is_one(kernel: Kernel) -> None:
    assert stationary_form(kernel, 2).outputscale.item() == 1.0


@pytest.mark.parametrize("ard_num_dims", [None, 3])
def test_the_form_has_one_inverse_lengthscale_per_dimension(ard_num_dims: int | None) -> None:
    kernel = RBFKernel(ard_num_dims=ard_num_dims)
    kernel.lengthscale = 0.25
    torch.testing.assert_close(stationary_form(kernel, 3).inverse_lengthscale, torch.full((3,), 4.0))


def test_the_form_has_the_alpha_of_a_rational_quadratic() -> None:
    kernel = RQKernel()
    kernel.alpha = 2.5
    assert stationary_form(ScaleKernel(kernel), 2).shape.item() == pytest.approx(2.5)


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
    ids=[
        "sum",
        "scaled sum",
        "product",
        "one column",
        "scale of one column",
        "scale on one column",
        "batch",
        "scale of a batch",
        "batch of scales",
        "scale of a scale",
        "subclass",
        "scaled subclass",
        "linear",
        "periodic",
        "random features",
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


def test_the_square_matrix_of_a_float32_kernel_has_the_rounding_of_float64(kernel: Kernel) -> None:
    # Rounded to float32, a matrix of 40 points would have eigenvalues down to about -1e-7.
    X_c, _ = inputs(M=40)
    K_cc = square_matrix(kernel.float(), X_c.float())
    assert torch.linalg.eigvalsh(K_cc).min() > -1e-13 * K_cc.trace()


def test_every_parameter_gets_a_gradient_in_its_own_precision(kernel: Kernel) -> None:
    X_c, x = inputs()
    kernel.float()
    sum(K.sum().double() for K in kernel_matrices(kernel, X_c, x)).backward()
    assert {p.grad.dtype for p in kernel.parameters()} == {torch.float32}


def test_gradients_are_those_of_autograd_through_gpytorch(kernel: Kernel) -> None:
    X_c, x = inputs()
    leaves = [X_c.requires_grad_(), *kernel.parameters()]
    theirs = [kernel(X_c).to_dense(), kernel(X_c, x).to_dense(), kernel(x, diag=True)]
    gradients = [
        torch.autograd.grad(sum((K * K).sum() for K in matrices), leaves)
        for matrices in (kernel_matrices(kernel, X_c, x), theirs)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-6)


def test_the_square_matrix_alone_is_that_of_all_matrices(kernel: Kernel) -> None:
    X_c, x = inputs()
    assert torch.equal(square_matrix(kernel, X_c), kernel_matrices(kernel, X_c, x)[0])


def test_batches_of_points_give_batches_of_cross_matrices(kernel: Kernel) -> None:
    X_c, x = inputs()
    batched = cross_matrix(kernel, X_c, x.reshape(3, 2, 2))
    torch.testing.assert_close(batched, cross_matrix(kernel, X_c, x).reshape(4, 3, 2).movedim(0, 1))


def test_batches_of_points_give_batches_of_diagonals(kernel: Kernel) -> None:
    _, x = inputs()
    torch.testing.assert_close(diagonal(kernel, x.reshape(3, 2, 2)), diagonal(kernel, x).reshape(3, 2))


SINGULAR_SUMS = {
    "smooth + linear": RBFKernel() + LinearKernel(),
    "linear + linear": LinearKernel() + LinearKernel(),
    "random features + linear": RFFKernel(num_samples=3, num_dims=2) + LinearKernel(),
    "scaled sum": ScaleKernel(PolynomialKernel(power=2) + ScaleKernel(LinearKernel())),
    "sum in a product": (RBFKernel() + LinearKernel()) * PeriodicKernel(),
}


@pytest.mark.parametrize("name", SINGULAR_SUMS)
def test_a_sum_with_singular_terms_is_evaluated_without_a_factorisation(name: str) -> None:
    # GPyTorch's own sum warns of jitter here, or fails.
    kernel = SINGULAR_SUMS[name].double()
    X_c = torch.cat([inputs(M=30)[0]] * 2)
    other = torch.cat([X_c, X_c[:1]])  # not the same points, so GPyTorch takes no root
    torch.testing.assert_close(square_matrix(kernel, X_c), kernel(X_c, other).to_dense()[:, :-1])


def test_evaluation_leaves_the_precision_of_the_kernel_alone() -> None:
    kernel = PolynomialKernel(power=2)
    evaluate(kernel, *inputs())
    assert kernel.raw_offset.dtype == torch.float32


def test_whole_numbers_among_the_buffers_keep_their_type() -> None:
    kernel = RBFKernel(active_dims=[1])
    assert parameters_as(torch.float64, kernel)["active_dims"].dtype == torch.int64


def test_a_constraint_with_bounds_works_in_another_precision() -> None:
    kernel = RBFKernel(lengthscale_constraint=Interval(0.1, 10.0)) + LinearKernel()
    X_c, x = inputs()
    torch.testing.assert_close(
        cross_matrix(kernel, X_c, x), nn.Module.double(kernel)(X_c, x).to_dense(), rtol=1e-6, atol=1e-6
    )


def test_a_scale_kernel_is_that_of_gpytorch() -> None:
    ours, theirs = scale_kernel(RBFKernel(ard_num_dims=2)), ScaleKernel(RBFKernel(ard_num_dims=2))
    assert type(ours) is ScaleKernel
    assert vars(ours).keys() == vars(theirs).keys()
    assert ours.batch_shape == theirs.batch_shape == torch.Size()
    assert {n: p.shape for n, p in ours.named_parameters()} == {n: p.shape for n, p in theirs.named_parameters()}
    x = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(ours(x).to_dense(), theirs(x).to_dense())
