import pickle

import numpy as np
import pytest
import torch
from scipy import stats

from cvgp.gp.kernels import make_kernel
from cvgp.gp.priors import (
    hold_lengthscales,
    lengthscales_are_held,
    log_density,
    registered_priors,
    release_lengthscales,
)

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
