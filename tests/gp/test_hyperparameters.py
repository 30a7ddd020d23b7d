import numpy as np
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.kernels import Kernel, RBFKernel
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cvgp.gp.kernels import (
    add_log_normal_prior,
    add_lower_prior,
    add_similarity_prior,
    gaussian_likelihood,
    is_held,
    log_density,
    log_positive,
    make_kernel,
    multiply_inside,
    registered_priors,
    release,
)

CONSTRAINTS = {
    "Interval": lambda: Interval(0.3, 0.9),
    "GreaterThan": lambda: GreaterThan(0.3),
    "LessThan": lambda: LessThan(0.9),
    "Positive": Positive,
    "logarithm": log_positive,
}


def kernel_with(name: str, value: float = 0.6) -> RBFKernel:
    kernel = RBFKernel(ard_num_dims=2, lengthscale_constraint=CONSTRAINTS[name]()).double()
    kernel.lengthscale = value
    return kernel


@pytest.mark.parametrize("name", CONSTRAINTS)
@given(factor=st.floats(1e-3, 1e3))
def test_values_stay_where_they_can_be_learned(name: str, factor: float) -> None:
    kernel = kernel_with(name)
    multiply_inside(kernel, "lengthscale", factor)
    assert torch.isfinite(kernel.raw_lengthscale).all()
    kernel.lengthscale.sum().backward()
    assert (kernel.raw_lengthscale.grad > 1e-5).all()


TYPICAL = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)


def held_kernel() -> Kernel:
    kernel = make_kernel("matern32", 3, ard=True)
    kernel.base_kernel.lengthscale = torch.tensor([[0.5, 2.0, 1.0]])
    kernel.outputscale = 16.0
    add_lower_prior(kernel, TYPICAL, torch.tensor(2.0))
    return kernel


def test_lengthscales_that_are_held_around_others_have_normal_logarithms() -> None:
    kernel = make_kernel("matern32", 3, ard=True)
    kernel.base_kernel.lengthscale = torch.tensor([[0.5, 2.0, 3.0]])
    add_log_normal_prior(kernel, TYPICAL, 1.7)
    expected = stats.norm(TYPICAL.log().numpy(), 1.7).logpdf(np.log([0.5, 2.0, 3.0])).sum()
    assert log_density(registered_priors(kernel), TYPICAL).item() == pytest.approx(expected)


def test_similar_lengthscales_are_cauchy_around_their_mean_in_widths_of_their_columns() -> None:
    kernel, values = make_kernel("matern32", 3, ard=True), torch.tensor([0.5, 2.0, 3.0], dtype=torch.float64)
    add_similarity_prior(kernel, TYPICAL)
    kernel.base_kernel.lengthscale = values
    relative = (values / TYPICAL).log().numpy()
    expected = stats.cauchy(relative.mean()).logpdf(relative) - stats.cauchy().logpdf(0.0)
    assert log_density(registered_priors(kernel), TYPICAL).item() == pytest.approx(expected.sum())


def test_lengthscales_that_all_grow_alike_stay_as_likely() -> None:
    kernel = make_kernel("matern32+matern12", 3, ard=True)
    add_similarity_prior(kernel, TYPICAL)
    before = log_density(registered_priors(kernel), TYPICAL).item()
    multiply_inside(kernel.kernels[0].base_kernel, "lengthscale", 7.0)
    assert log_density(registered_priors(kernel), TYPICAL).item() == pytest.approx(before)


def test_inverses_of_held_lengthscales_and_the_held_deviation_of_f_are_half_cauchy() -> None:
    expected = [
        stats.halfcauchy(scale=1.0 / t).logpdf([1.0 / v, 0.0])
        for t, v in zip(TYPICAL.tolist(), [0.5, 2.0, 1.0], strict=True)
    ]
    found = log_density(registered_priors(held_kernel()), TYPICAL).item()
    of_f = -np.log(5.0)  # 1 + (4 / 2)^2
    assert found == pytest.approx(of_f + sum(at - at_infinity for at, at_infinity in expected))


def test_what_is_released_has_no_prior() -> None:
    kernel, likelihood = held_kernel(), gaussian_likelihood(0.04)
    add_log_normal_prior(kernel, TYPICAL, 1.7)
    assert is_held(kernel)
    release(kernel, likelihood)
    assert not registered_priors(kernel, likelihood)
    assert not [name for part in (kernel, likelihood) for name, _ in part.named_buffers() if "held" in name]
