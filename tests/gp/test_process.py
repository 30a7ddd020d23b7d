import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, PeriodicKernel, PolynomialKernel, RBFKernel, RFFKernel, ScaleKernel
from gpytorch.means import ConstantMean, Mean, ZeroMean
from torch import Tensor

from cvgp.errors import InvalidInputError
from cvgp.gp.kernels import evaluate, make_kernel, prior_mean, square_matrix
from cvgp.gp.posterior import factorize
from cvgp.gp.process import CoresetProcess
from cvgp.gp.stationary import FAMILIES
from tests import reference as ref

M, D, NOISE = 6, 2, 0.2
FEATURE_KERNELS = {
    "linear": lambda: make_kernel("linear", D),
    "polynomial": lambda: PolynomialKernel(power=2).double(),
    "random features": lambda: ScaleKernel(RFFKernel(num_samples=20, num_dims=D)).double(),
}
OTHER_KERNELS = {
    "periodic": lambda: make_kernel("periodic", D),
    "sum": lambda: (ScaleKernel(RBFKernel()) + LinearKernel()).double(),
    "product": lambda: (RBFKernel() * PeriodicKernel()).double(),
}
ALL_KERNELS = {name: (lambda name=name: make_kernel(name, D)) for name in FAMILIES} | FEATURE_KERNELS | OTHER_KERNELS


class Data:
    rng = np.random.default_rng(3)
    X_c = torch.tensor(rng.normal(size=(M, D)))
    x = torch.tensor(rng.normal(size=(5, D)))
    y_c = torch.tensor(rng.normal(size=M))
    Y_c = torch.tensor(rng.normal(size=(M, 3)))
    beta = torch.tensor([1.0, 0.0, 3.0, 0.5, 20.0, 2.0], dtype=torch.float64)


def constant_mean(value: float = 1.5) -> Mean:
    mean = ConstantMean().double()
    mean.constant = value
    return mean


def make_process(
    kernel: Kernel | str = "rbf",
    mean: Mean | None = None,
    y_c: Tensor = Data.y_c,
    noise: float = NOISE,
    dtype: torch.dtype = torch.float64,
) -> CoresetProcess:
    torch.manual_seed(0)
    kernel = (ALL_KERNELS[kernel]() if isinstance(kernel, str) else kernel).to(dtype)
    mean = (mean or ZeroMean()).to(dtype)
    X_c = Data.X_c.to(dtype)
    residual = y_c - prior_mean(mean, Data.X_c, y_c)
    return CoresetProcess(kernel, mean, X_c, factorize(square_matrix(kernel, X_c), Data.beta / noise, residual))


def expected_posterior(process: CoresetProcess, x: Tensor, y_c: Tensor = Data.y_c) -> tuple[np.ndarray, np.ndarray]:
    """The reference's mean and covariance, by dense kernel matrices of GPyTorch in float64; zero prior mean."""
    kernel = process.kernel.double()
    matrices = [evaluate(kernel, *pair).detach().numpy() for pair in ((Data.X_c, Data.X_c), (Data.X_c, x), (x, x))]
    return ref.posterior(*matrices, y_c.numpy(), Data.beta.numpy(), NOISE)


@pytest.fixture(params=ALL_KERNELS)
def process(request: pytest.FixtureRequest) -> CoresetProcess:
    return make_process(request.param)


def assert_near(actual: Tensor, expected: np.ndarray, tolerance: float = 1e-7) -> None:
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=tolerance, atol=tolerance)


# Predictions.


def test_predictions_are_the_reference(process: CoresetProcess) -> None:
    prediction, (mean, covariance) = process(Data.x), expected_posterior(process, Data.x)
    assert_near(prediction.mean, mean)
    assert_near(prediction.covariance_matrix, covariance)
    assert_near(prediction.variance, np.diag(covariance))


@pytest.mark.parametrize("quantity", ["mean", "variance", "covariance_matrix"])
def test_batches_of_points_are_predicted_one_by_one(process: CoresetProcess, quantity: str) -> None:
    x = torch.randn(2, 3, 4, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    batched, single = getattr(process(x), quantity), getattr(process(x[1, 2]), quantity)
    torch.testing.assert_close(batched[1, 2], single, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("kernel", ALL_KERNELS)
def test_float32_predictions_are_near_those_of_float64(kernel: str) -> None:
    low = make_process(kernel, dtype=torch.float32)(Data.x.float())
    assert_near(low.mean, make_process(kernel)(Data.x).mean.detach().numpy(), 1e-3)


# Draws at given points.


def test_draws_have_the_moments_of_the_posterior() -> None:
    prediction = make_process("matern32")(Data.x)
    draws = prediction.sample(20_000, torch.Generator().manual_seed(0))
    # Five standard errors of draws of unit variance.
    torch.testing.assert_close(draws.mean(0), prediction.mean, rtol=0, atol=5 * math.sqrt(1 / 20_000))
    torch.testing.assert_close(draws.T.cov(), prediction.covariance_matrix, rtol=0, atol=5 * math.sqrt(2 / 20_000))


@pytest.mark.parametrize("kernel", ALL_KERNELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_at_many_close_points_need_no_reported_jitter(kernel: str, dtype: torch.dtype) -> None:
    # With next to no noise the joint covariance is far from definite in float32; a warning would be an error.
    process = make_process(kernel, dtype=dtype, noise=1e-6)
    x = torch.linspace(-1, 1, 60, dtype=dtype)[:, None].expand(60, D)
    assert process(x).sample(3, torch.Generator().manual_seed(0)).dtype == dtype


# Conditioning.


@pytest.mark.parametrize("many_outputs", [False, True], ids=["one output", "many outputs"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", ALL_KERNELS)
def test_conditioning_gives_the_mean_of_the_exact_gp_on_the_union(
    kernel: str, dtype: torch.dtype, many_outputs: bool
) -> None:
    y_c = Data.Y_c if many_outputs else Data.y_c
    y, noise = y_c[:4].flip(0), torch.tensor([0.1, 0.3, 1.0, 0.2], dtype=torch.float64)
    process = make_process(kernel, mean=constant_mean(0.7), y_c=y_c, dtype=dtype)
    new = process.condition(Data.x[:4].to(dtype), y.to(dtype), noise)

    seen = Data.beta > 0
    X = torch.cat([Data.X_c[seen], Data.x[:4]])
    K_nn, K_nx, K_xx = (
        evaluate(process.kernel.double(), *pair).detach().numpy() for pair in ((X, X), (X, Data.x), (Data.x, Data.x))
    )
    all_noise = torch.cat([NOISE / Data.beta[seen], noise]).numpy()
    expected, _ = ref.exact_gp_predict(K_nn, K_nx, K_xx, torch.cat([y_c[seen], y]).numpy() - 0.7, all_noise)
    actual = CoresetProcess(process.kernel.to(dtype), process.mean, new.X_c, new.factor)(Data.x.to(dtype)).mean
    assert_near(actual, expected + 0.7, 1e-7 if dtype == torch.float64 else 2e-3)


def test_the_order_of_conditioning_does_not_matter() -> None:
    y, noise = torch.arange(5.0, dtype=torch.float64), torch.tensor(0.1)
    together = make_process().condition(Data.x, y, noise)
    one_by_one = make_process()
    for i in (3, 0, 4, 1, 2):
        one_by_one = one_by_one.condition(Data.x[i : i + 1], y[i : i + 1], noise)
    torch.testing.assert_close(one_by_one(Data.x).mean, together(Data.x).mean)


# Bad input.


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(D), r"x must be \[..., B, 2\], as the pseudo-inputs are; got \(2,\)"),
        (torch.ones(4, 2, dtype=torch.int64), "floating-point tensor on cpu.*got torch.int64 on cpu"),
        (torch.ones(4, 2, device="meta"), "floating-point tensor on cpu.*got torch.float32 on meta"),
        (torch.tensor([[0.0, math.nan], [0.0, math.inf]]), "x holds 2 NaN or infinite values; drop or impute"),
    ],
    ids=["vector", "whole numbers", "other device", "not finite"],
)
def test_points_that_do_not_fit_are_refused(x: Tensor, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make_process()(x)


@pytest.mark.parametrize(
    ("x", "y", "noise", "message"),
    [
        (torch.ones(4, 3), torch.ones(4), torch.ones(()), r"x must be \[..., B, 2\]"),
        (torch.ones(4, 2), torch.ones(3), torch.ones(()), r"y \[4\] and noise .* got \(4, 2\), \(3,\) and \(\)"),
        (torch.ones(4, 2), torch.ones(4), torch.ones(3), r"noise \[\] or \[n\]; got \(4, 2\), \(4,\) and \(3,\)"),
        (torch.ones(1, 4, 2), torch.ones(1), torch.ones(()), r"x must be \[n, D\].* got \(1, 4, 2\)"),
        (torch.ones(4, 2), torch.full((4,), math.nan), torch.ones(()), "y holds 4 NaN or infinite values"),
        (torch.ones(4, 2), torch.ones(4), torch.zeros(()), "finite and not negative"),
    ],
)
def test_observations_that_do_not_fit_are_refused(x: Tensor, y: Tensor, noise: Tensor, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make_process().condition(x, y, noise)
