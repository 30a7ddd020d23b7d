"""Where kernel, mean and noise start."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import AdditiveKernel
from gpytorch.means import LinearMean, ZeroMean

from cvgp.data.source import MemorySource
from cvgp.fitting.kernel import (
    alternative_kernels,
    choose_kernel,
    raise_noise,
    sensible_mean,
    starting_kernel,
    widen_to_gaps,
    with_priors,
)
from cvgp.fitting.monitor import Run
from cvgp.fitting.residuals import constant_density
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
    others = alternative_kernels(None, 2, ard=True, may_be_rough=True)
    found = choose_kernel(kernel, ZeroMean(), rough, Run.alone(), alternatives=others)
    assert set(found.tried) == {"matern32", "matern32+matern12"}
    assert isinstance(found.start.kernel, AdditiveKernel)
    assert choose_kernel(kernel, ZeroMean(), smooth, Run.alone(), alternatives=others).start.name == "matern32"


def test_a_period_is_found() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 30.0, size=(400, 1))
    source = MemorySource(torch.tensor(x), torch.tensor(np.sin(2 * np.pi * x[:, 0] / 3.3) + 0.1 * rng.normal(size=400)))
    found = choose_kernel(starting_kernel("periodic", 1, ard=True), ZeroMean(), source, Run.alone()).start
    assert found.kernel.base_kernel.period_length.item() == pytest.approx(3.3, rel=0.05)


def test_a_known_noise_is_not_learned() -> None:
    found = choose_kernel(
        starting_kernel(None, 1, ard=True), ZeroMean(), make_source(), Run.alone(), known_noise=0.7
    ).start
    assert found.noise == 0.7
    assert not found.likelihood().raw_noise.requires_grad


@pytest.mark.parametrize(("num_rows", "has_priors"), [(15, True), (500, True), (5000, False)])
def test_priors_are_for_few_rows(num_rows: int, has_priors: bool) -> None:
    x = torch.randn(100, 10, dtype=torch.float64)
    kernel = starting_kernel(None, 10, ard=True)
    changed = with_priors(kernel, num_rows, x, 1.0)
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
    widen_to_gaps(kernel, x)
    assert kernel.base_kernel.lengthscale.detach().reshape(-1).tolist() == pytest.approx([0.1, 3.0])


def test_a_mean_far_from_the_data_takes_a_step_towards_them() -> None:
    torch.manual_seed(0)
    rows = make_source(100, dims=2).data
    far = rows._replace(y=1e4 * rows.x[:, 0] - 3e3)
    found = sensible_mean(LinearMean(2).double(), far)
    with torch.no_grad():
        torch.testing.assert_close(found(far.x), far.y, rtol=1e-6, atol=1e-3)
    near = ZeroMean()
    assert sensible_mean(near, rows) is near


def test_the_noise_is_raised_to_what_a_coreset_cannot_explain() -> None:
    source = make_source(200, frequency=9.0)
    model = make_model(source, 3, noise=1e-4)
    raise_noise(model, source.data, (1e-3, 0.01, 0.1, 0.3))
    assert model.noise.item() > 0.1
    assert math.isfinite(model.noise.item())
