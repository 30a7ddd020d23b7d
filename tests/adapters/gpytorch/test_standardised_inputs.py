"""Inputs in the user's units as a fitted model sees them."""

import numpy as np
import torch

from cvgp.adapters.gpytorch.standardised_inputs import Standardise
from cvgp.data.input_warp import Path, warp_of
from cvgp.data.scaling import Scaling

PATH = Path(np.array([-1.0, 0.0, 0.5, 4.0]), np.array([0.0, 2.0, 2.5, 3.0]))
SCALING = Scaling(
    np.array([1.0, 5.0, 3.0]),
    np.array([2.0, 0.1, 0.0]),  # the last column was constant
    np.zeros(1),
    np.ones(1),
    x_limit=50.0,
    warp=warp_of("mixed", np.array([0.5, 0.0, 0.0]), {0: PATH}),
)


def rows() -> np.ndarray:
    first = np.concatenate([PATH.knots, np.linspace(-5, 9, 20)])
    return np.column_stack([first, 5 + 0.1 * np.sin(first), np.full(len(first), 3.0)])


def test_inputs_are_those_of_the_scaling() -> None:
    x = rows()
    np.testing.assert_allclose(Standardise(SCALING)(torch.tensor(x)).numpy(), SCALING.scale_x(x), atol=1e-12)


def test_the_inverse_leads_back() -> None:
    x, standardise = torch.tensor(rows()), Standardise(SCALING)
    torch.testing.assert_close(standardise.inverse(standardise(x)), x, atol=1e-12, rtol=0.0)


def test_far_inputs_count_as_the_limit() -> None:
    x = torch.tensor([[0.0, 1e6, 3.0]], dtype=torch.float64)
    assert Standardise(SCALING)(x)[0, 1] == 50.0


def test_a_column_that_was_constant_is_zero() -> None:
    x = torch.tensor([[0.0, 5.0, 8.0]], dtype=torch.float64)
    assert Standardise(SCALING)(x)[0, 2] == 0.0


def test_gradients_go_through_warps() -> None:
    x = torch.tensor([[-0.4, 5.0, 3.0], [7.0, 5.01, 3.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Standardise(SCALING), x)
