"""Function draws by BoTorch's samplers have the moments of the posterior."""

from collections.abc import Callable

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskVariationalGP
from botorch.models.transforms import Normalize, Standardize
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.sampling.pathwise.posterior_samplers import get_matheron_path_model
from gpytorch.mlls import VariationalELBO
from gpytorch.variational import VariationalStrategy

from cvgp.adapters.botorch import CVGPModel
from cvgp.adapters.gpytorch import CoresetVariationalDistribution, CoresetVariationalStrategy
from cvgp.errors import InvalidInputError
from tests.adapters.botorch.conftest import DOUBLE

Make = Callable[..., CVGPModel]
DRAWS = 2000


def assert_moments(draws: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> None:
    """Draws [S, ...], within five standard errors and what 1024 features leave."""
    sd = variance.sqrt()
    assert ((draws.mean(0) - mean).abs() / sd).max() < 5 / DRAWS**0.5 + 0.1
    assert (draws.std(0) / sd - 1).abs().max() < 0.2


@torch.no_grad()
def test_paths_have_the_moments_of_the_posterior(make_model: Make) -> None:
    model = make_model()
    X = torch.rand(6, 2, **DOUBLE)
    posterior = model.posterior(X)
    draws = draw_matheron_paths(model, torch.Size([DRAWS]))(X)
    assert_moments(draws, posterior.mean[:, 0], posterior.variance[:, 0])


@torch.no_grad()
@pytest.mark.parametrize("own", [False, True])
def test_paths_of_several_outputs_have_their_moments(make_model: Make, own: bool) -> None:
    model = make_model(outputs=2, own=own)
    X = torch.rand(6, 2, **DOUBLE)
    posterior = model.posterior(X)
    draws = draw_matheron_paths(model, torch.Size([DRAWS]))(X)
    assert_moments(draws, posterior.mean.mT, posterior.variance.mT)


@torch.no_grad()
def test_paths_are_in_the_units_of_the_data(make_model: Make) -> None:
    bounds, standard = torch.tensor([[-3.0, 5.0], [4.0, 9.0]], **DOUBLE), Standardize(m=1)
    standard(torch.randn(50, 1, **DOUBLE) * 7 + 30)
    model = make_model(input_transform=Normalize(d=2, bounds=bounds), outcome_transform=standard)
    X = bounds[0] + (bounds[1] - bounds[0]) * torch.rand(6, 2, **DOUBLE)
    posterior = model.posterior(X)
    draws = draw_matheron_paths(model, torch.Size([DRAWS]))(X)
    assert_moments(draws, posterior.mean[:, 0], posterior.variance[:, 0])


@torch.no_grad()
@pytest.mark.parametrize("outputs", [1, 2])
def test_one_path_is_a_deterministic_model(make_model: Make, outputs: int) -> None:
    path = get_matheron_path_model(make_model(outputs=outputs))
    assert path(torch.rand(5, 3, 2, **DOUBLE)).shape == (5, 3, outputs)


def test_a_batch_of_models_has_no_paths(make_model: Make) -> None:
    fantasies = make_model().fantasize(torch.rand(3, 1, 2, **DOUBLE), SobolQMCNormalSampler(torch.Size([2])))
    with pytest.raises(InvalidInputError, match="a batch of"):
        draw_matheron_paths(fantasies, torch.Size([2]))


def variational_model() -> SingleTaskVariationalGP:
    X = torch.rand(60, 2, **DOUBLE)
    Y = torch.sin(5 * X[:, :1]) * X[:, 1:] + 0.05 * torch.randn(60, 1, **DOUBLE)
    Y = (Y - Y.mean()) / Y.std()
    sites = CoresetVariationalDistribution(12).double()
    coreset = {"variational_distribution": sites, "variational_strategy": CoresetVariationalStrategy}
    return SingleTaskVariationalGP(X, Y, inducing_points=12, **coreset)


def test_the_strategy_is_fitted_inside_single_task_variational_gp() -> None:
    model = variational_model()
    mll = VariationalELBO(model.likelihood, model.model, num_data=60)
    (X,), Y = model.model.train_inputs, model.model.train_targets
    before = mll(model.model(X), Y).item()
    fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 60}})
    assert mll.train()(model.model(X), Y).item() > before + 0.5


@torch.no_grad()
def test_paths_of_the_strategy_have_the_moments_of_its_posterior() -> None:
    model = variational_model()
    strategy = model.model.variational_strategy
    y_c = torch.sin(5 * strategy.inducing_points[:, 0])
    strategy.set_sites(y_c, torch.full((12,), 40.0, **DOUBLE))
    X = torch.rand(6, 2, **DOUBLE)
    posterior = model.posterior(X)
    draws = draw_matheron_paths(model, torch.Size([DRAWS]))(X)
    assert_moments(draws, posterior.mean[:, 0], posterior.variance[:, 0])


def test_the_strategy_is_not_taken_for_a_whitened_one() -> None:
    assert not issubclass(CoresetVariationalStrategy, VariationalStrategy)
