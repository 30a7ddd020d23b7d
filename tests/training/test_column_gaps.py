import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, ScaleKernel

from cvgp import CVGPRegressor
from cvgp.training.column_gaps import smallest_gaps, widen_to_gaps


def columns(rng: np.random.Generator, rows: int = 200) -> torch.Tensor:
    """Persons by number, a measured column, a constant one."""
    person, measured = rng.integers(0, 8, rows) * 0.5, rng.standard_normal(rows)
    return torch.as_tensor(np.c_[person, measured, np.ones(rows)])


def matern(lengthscale: list[float]) -> ScaleKernel:
    kernel = ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=len(lengthscale))).double()
    kernel.base_kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return kernel


def test_gaps_are_between_different_values() -> None:
    x = columns(np.random.default_rng(0))
    gaps = smallest_gaps(x)
    assert gaps[0] == 0.5
    assert gaps[1] == np.diff(np.unique(x[:, 1])).min()
    assert gaps[2] == 0.0


@pytest.mark.parametrize("rows", [1, 2])
def test_very_few_rows_have_gaps_too(rows: int) -> None:
    gaps = smallest_gaps(torch.arange(2.0 * rows).reshape(rows, 2))
    assert gaps.tolist() == ([2.0, 2.0] if rows == 2 else [0.0, 0.0])


def test_tiny_lengthscales_become_a_tenth_of_the_gap_and_others_stay() -> None:
    x = columns(np.random.default_rng(1))
    kernel, before = matern([1e-6, 0.7, 1e-6]), matern([1e-3, 0.7, 1e-3])(x).to_dense()  # at 1e-6 digits are lost
    widen_to_gaps(kernel, x)
    lengthscale = kernel.base_kernel.lengthscale.detach().ravel()
    torch.testing.assert_close(lengthscale, torch.tensor([0.05, 0.7, 1e-6], dtype=torch.float64))
    torch.testing.assert_close(kernel(x).to_dense(), before, atol=2e-6, rtol=0.0)  # the same function of these rows


def test_frozen_and_periodic_lengthscales_stay() -> None:
    x = columns(np.random.default_rng(2))
    frozen, periodic = matern([1e-6, 0.7, 1e-6]), PeriodicKernel().double()
    frozen.base_kernel.raw_lengthscale.requires_grad_(False)
    periodic.lengthscale = torch.tensor(1e-6, dtype=torch.float64)
    for kernel in (frozen, periodic):
        widen_to_gaps(kernel, x)
    assert frozen.base_kernel.lengthscale.min() == pytest.approx(1e-6)
    assert periodic.lengthscale.item() == pytest.approx(1e-6)


def test_a_column_of_persons_is_learned_by_a_coreset_alone() -> None:
    """Each person has a level and a slope in time: what one says of another is nothing, and lengthscales fall."""
    rng = np.random.default_rng(0)
    person, time = rng.integers(0, 40, 1500), rng.uniform(0.0, 1.0, 1500)
    level, slope = rng.standard_normal((2, 40))
    X, y = np.c_[person, rng.permutation(40)[person], time], level[person] + slope[person] * time
    model = CVGPRegressor(120, neighbors=0, noise="constant", inputs="identity", random_state=0).fit(X[:1200], y[:1200])
    error = math.sqrt(np.mean((model.predict(X[1200:]) - y[1200:]) ** 2))
    assert error < 0.05 * y.std()
