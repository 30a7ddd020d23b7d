import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.kernels import RBFKernel
from hypothesis import given
from hypothesis import strategies as st

from cvgp.gp.hyperparameters import multiply_inside
from cvgp.gp.kernels import log_positive

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


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_a_factor_that_stays_inside_is_applied(name: str) -> None:
    kernel = kernel_with(name)
    multiply_inside(kernel, "lengthscale", torch.tensor([1.1, 0.8]))
    assert kernel.lengthscale[0].tolist() == pytest.approx([0.66, 0.48])


def test_a_value_beyond_a_bound_comes_to_rest_near_it() -> None:
    kernel = kernel_with("Interval")
    multiply_inside(kernel, "lengthscale", torch.tensor([4.0, 0.25]))
    assert kernel.lengthscale[0].tolist() == pytest.approx([0.9, 0.3], abs=0.01)
