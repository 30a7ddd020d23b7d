"""Where kernel, mean and noise start."""

import numpy as np
import pytest
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import AdditiveKernel, PeriodicKernel
from gpytorch.means import ZeroMean
from hypothesis import given, settings
from hypothesis import strategies as st

from cvgp.data.source import MemorySource
from cvgp.fitting.compare import constant_density
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.kernel import (
    alternative_kernels,
    candidate_periods,
    choose_kernel,
    is_alias,
    periodic_parts,
    raise_noise,
    set_periods,
    shortest_periods,
    starting_kernel,
    widen_to_gaps,
    with_priors,
)
from cvgp.fitting.monitor import Run
from cvgp.fitting.sample import Start, learn_exact
from cvgp.gp.kernels import make_kernel, registered_priors, square_matrix
from tests.fitting.problems import make_model, make_source


def standard(x: np.ndarray, y: np.ndarray) -> MemorySource:
    y = (y - y.mean()) / y.std()
    return MemorySource(torch.tensor((x - x.mean(0)) / x.std(0)), torch.tensor(y))


def test_the_evidence_of_a_start_is_the_log_marginal_likelihood() -> None:
    rows = make_source(40, dims=2).data
    start = learn_exact(Start(make_kernel("matern32", 2), ZeroMean(), 0.1), rows, rows, Run.alone(), "test", 10)
    with torch.no_grad():
        K = square_matrix(start.kernel, rows.x) + start.noise * torch.eye(40, dtype=torch.float64)
    normal = torch.distributions.MultivariateNormal(torch.zeros(40, dtype=torch.float64), K)
    assert start.evidence == pytest.approx(normal.log_prob(rows.y).item(), rel=1e-4)


def test_the_relevant_columns_among_many_are_found() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 20))
    source = standard(x, np.sin(2.0 * x[:, 3]) + x[:, 7] + 0.1 * rng.normal(size=1500))
    found = choose_kernel(starting_kernel(None, 20, ard=True), ZeroMean(), source, Run.alone()).start
    shortest = found.kernel.base_kernel.lengthscale.detach().reshape(-1).argsort()[:2]
    assert set(shortest.tolist()) == {3, 7}
    assert found.density > constant_density(source.data) + 0.5


def test_a_rough_part_is_added_where_its_evidence_is_clear() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, size=(600, 2))
    steps = np.sign(x[:, 0]) * np.sign(x[:, 1] - 0.5)
    rough = standard(x, np.sin(x[:, 0]) + steps + 0.02 * rng.normal(size=600))
    smooth = standard(x, np.sin(x[:, 0]) + 0.1 * rng.normal(size=600))
    kernel = starting_kernel(None, 2, ard=True)
    others = [
        starting_kernel(name, 2, ard=True) for name in alternative_kernels(None, is_exact=False, may_be_rough=True)
    ]
    found = choose_kernel(kernel, ZeroMean(), rough, Run.alone(), alternatives=others)
    assert set(found.tried) == {"matern32", "matern32+matern12"}
    assert isinstance(found.start.kernel, AdditiveKernel)
    assert choose_kernel(kernel, ZeroMean(), smooth, Run.alone(), alternatives=others).start.name == "matern32"


def test_an_exact_gp_of_a_smooth_function_has_a_smooth_kernel() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2.0, 2.0, size=(200, 3))
    source = standard(x, np.sin(x.sum(axis=1)) + np.cos(x[:, 0]) + 0.01 * rng.normal(size=200))
    others = [
        starting_kernel(name, 3, ard=True) for name in alternative_kernels(None, is_exact=True, may_be_rough=True)
    ]
    found = choose_kernel(starting_kernel(None, 3, ard=True), ZeroMean(), source, Run.alone(), alternatives=others)
    assert found.start.name == "rbf"
    assert found.start.density > found.tried["matern32"].density + 0.1


@pytest.mark.parametrize(("name", "most"), [("periodic", 1), ("quasiperiodic", 2)])
def test_a_period_is_found(name: str, most: int) -> None:
    """Where cycles may differ, two of them are a cycle as well."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 30.0, size=(400, 1))
    source = MemorySource(torch.tensor(x), torch.tensor(np.sin(2 * np.pi * x[:, 0] / 3.3) + 0.1 * rng.normal(size=400)))
    found = choose_kernel(starting_kernel(name, 1, ard=True), ZeroMean(), source, Run.alone()).start
    (part,) = periodic_parts(found.kernel)
    assert any(part.period_length.item() == pytest.approx(3.3 * cycles, rel=0.05) for cycles in range(1, most + 1))


def test_a_known_noise_is_not_learned() -> None:
    found = choose_kernel(
        starting_kernel(None, 1, ard=True), ZeroMean(), make_source(), Run.alone(), known_noise=0.7
    ).start
    assert found.noise == 0.7
    assert found.noise_is_known


@pytest.mark.parametrize(("num_rows", "has_priors"), [(15, True), (500, True), (5000, False)])
def test_priors_are_for_few_rows(num_rows: int, has_priors: bool) -> None:
    x = torch.randn(100, 10, dtype=torch.float64)
    kernel = starting_kernel(None, 10, ard=True)
    changed = with_priors(kernel, num_rows, x, 1.0, Heuristics())
    assert bool(registered_priors(changed)) == has_priors
    assert not registered_priors(kernel)


def test_few_rows_of_noise_in_many_columns_are_not_explained() -> None:
    rng = np.random.default_rng(0)
    source = standard(rng.normal(size=(60, 30)), rng.normal(size=60))
    found = choose_kernel(starting_kernel(None, 30, ard=True), ZeroMean(), source, Run.alone()).start
    assert found.density > constant_density(source.data) - 0.3


def test_lengthscales_far_below_the_gaps_of_a_column_are_raised() -> None:
    kernel = make_kernel("matern32", 2)
    kernel.base_kernel.lengthscale = torch.tensor([1e-5, 3.0])
    x = torch.tensor([[0.0, 0.0], [1.0, 0.01], [1.0, 0.5]], dtype=torch.float64)
    widen_to_gaps(kernel, x, Heuristics().least_lengthscale)
    assert kernel.base_kernel.lengthscale.detach().reshape(-1).tolist() == pytest.approx([0.1, 3.0])


def test_the_noise_is_raised_to_what_a_coreset_cannot_explain() -> None:
    source = make_source(200, frequency=9.0)
    model = make_model(source, 3, noise=1e-4)
    raise_noise(model, source.data, (1e-3, 0.01, 0.1, 0.3))
    assert model.noise.item() > 0.1


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


def test_periods_are_set_within_their_constraint() -> None:
    kernel = PeriodicKernel(period_length_constraint=Interval(0.5, 2.0)).double()
    set_periods(kernel, torch.tensor([0.1], dtype=torch.float64))
    assert kernel.period_length.item() == pytest.approx(0.5, abs=0.02)


def test_a_frozen_period_is_not_to_be_searched() -> None:
    kernel = make_kernel("rbf*periodic", 1)
    (part,) = periodic_parts(kernel)
    part.raw_period_length.requires_grad_(False)
    assert periodic_parts(kernel) == []


def test_a_grid_cannot_tell_periods_below_two_of_its_steps() -> None:
    grid = torch.arange(50, dtype=torch.float64)[:, None] / 12.0
    shortest = shortest_periods(grid[torch.randperm(50)[:40]])
    assert shortest.item() == pytest.approx(2.0 / 12.0)
    kernel = make_kernel("periodic", 1)
    for period, expected in ((1.0, False), (1.0 / 61.0, True), (2.0 / 12.0, False)):  # 61 = 1 + 5 * 12
        kernel.base_kernel.period_length = period
        assert is_alias(kernel, shortest) is expected
