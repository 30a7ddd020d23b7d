import numpy as np
import pytest
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import PeriodicKernel
from gpytorch.means import ZeroMean
from hypothesis import given, settings
from hypothesis import strategies as st

from cvgp.data.source import MemorySource
from cvgp.fitting.kernel import choose_kernel, starting_kernel
from cvgp.fitting.monitor import Run
from cvgp.fitting.periods import candidate_periods, is_alias, periodic_parts, set_periods, shortest_periods
from cvgp.gp.kernels import make_kernel


def series(period: float, num_rows: int = 200, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A season at irregular times, on a trend that is larger than it."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(-1.7, 1.7, size=num_rows))
    y = np.sin(2 * np.pi * t / period) + 2.0 * t + 0.5 * t**2 + 0.3 * rng.normal(size=num_rows)
    return torch.tensor(t)[:, None], torch.tensor(y)


def likely(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    return candidate_periods(x, y, shortest_periods(x), 3)


@settings(deadline=None, max_examples=30)
@given(period=st.floats(0.05, 1.2), seed=st.integers(0, 5))
def test_the_likeliest_period_is_the_true_one(period: float, seed: int) -> None:
    x, y = series(period, seed=seed)
    first, *_ = likely(x, y)
    assert first.item() == pytest.approx(period, rel=0.12)


def test_each_column_has_periods_of_its_own() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.7, 1.7, size=(300, 2))
    y = np.sin(2 * np.pi * x[:, 0] / 0.5) + np.sin(2 * np.pi * x[:, 1] / 0.9) + 0.1 * rng.normal(size=300)
    first, *_ = likely(torch.tensor(x), torch.tensor(y))
    assert first.tolist() == pytest.approx([0.5, 0.9], rel=0.1)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_few_rows_have_no_periods(rows: int) -> None:
    x, y = series(0.5, rows)
    assert likely(x, y) == []


def test_equal_inputs_and_constant_outputs_have_no_false_numbers() -> None:
    x, y = series(0.5)
    assert likely(0.0 * x, y) == []
    assert all(bool(torch.isfinite(periods).all()) for periods in likely(x, 0.0 * y))


def test_periods_are_set_within_their_constraint() -> None:
    kernel = PeriodicKernel(period_length_constraint=Interval(0.5, 2.0)).double()
    set_periods(kernel, torch.tensor([0.1], dtype=torch.float64))
    assert kernel.period_length.item() == pytest.approx(0.5, abs=0.02)


def test_a_frozen_period_is_not_to_be_searched() -> None:
    kernel = make_kernel("rbf*periodic", 1)
    (part,) = periodic_parts(kernel)
    part.raw_period_length.requires_grad_(False)
    assert periodic_parts(kernel) == []


def test_search_finds_a_period_far_from_where_the_kernel_starts() -> None:
    x, y = series(0.13)
    source = MemorySource(x, (y - y.mean()) / y.std())
    kernel = starting_kernel("linear+rbf+periodic", 1, ard=True)
    found = choose_kernel(kernel, ZeroMean(), source, Run.alone()).start
    (part,) = periodic_parts(found.kernel)
    assert part.period_length.item() == pytest.approx(0.13, rel=0.02)


def test_a_grid_cannot_tell_periods_below_two_of_its_steps() -> None:
    grid = torch.arange(50, dtype=torch.float64)[:, None] / 12.0
    shortest = shortest_periods(grid[torch.randperm(50)[:40]])
    assert shortest.item() == pytest.approx(2.0 / 12.0)
    kernel = make_kernel("periodic", 1)
    for period, expected in ((1.0, False), (1.0 / 61.0, True), (2.0 / 12.0, False)):  # 61 = 1 + 5 * 12
        kernel.base_kernel.period_length = period
        assert is_alias(kernel, shortest) is expected
