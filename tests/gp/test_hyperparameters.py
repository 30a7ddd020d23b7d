import pickle

import numpy as np
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.kernels import RBFKernel
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cvgp.gp.hyperparameters import (
    hold_lengthscales,
    lengthscales_are_held,
    log_density,
    multiply_inside,
    registered_priors,
    release_lengthscales,
)
from cvgp.gp.kernels import log_positive, make_kernel

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


CENTRE = torch.tensor([0.5, 1.0, -0.3], dtype=torch.float64)


def test_held_lengthscales_have_the_density_of_normal_logarithms() -> None:
    kernel = make_kernel("matern32", 3, ard=True)
    kernel.base_kernel.lengthscale = torch.tensor([[0.5, 2.0, 3.0]])
    hold_lengthscales(kernel, CENTRE, 1.7)
    expected = stats.norm(CENTRE.numpy(), 1.7).logpdf(np.log([0.5, 2.0, 3.0])).sum()
    assert log_density(registered_priors(kernel), CENTRE).item() == pytest.approx(expected)


def test_released_lengthscales_have_no_prior() -> None:
    kernel = make_kernel("matern32", 3, ard=True)
    hold_lengthscales(kernel, CENTRE, 1.7)
    assert lengthscales_are_held(kernel)
    release_lengthscales(kernel)
    assert not registered_priors(kernel)
    assert not [name for name, _ in kernel.named_buffers() if "held" in name]


def test_a_kernel_that_is_held_can_be_pickled() -> None:
    kernel = make_kernel("matern32", 3, ard=True)
    hold_lengthscales(kernel, CENTRE, 1.7)
    again = pickle.loads(pickle.dumps(kernel))
    before, after = (log_density(registered_priors(k), CENTRE).item() for k in (kernel, again))
    assert after == before
