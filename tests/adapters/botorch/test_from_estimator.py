"""A fitted estimator as a BoTorch model: the same numbers, or a plain word about what is lost."""

import numpy as np
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood
from sklearn.exceptions import NotFittedError

from cvgp import CVGPRegressor
from cvgp.adapters.botorch import CVGPModel
from cvgp.errors import CVGPWarning, InvalidInputError, InvalidTypeError
from tests.adapters.botorch.conftest import DOUBLE, rows

ALIKE = [
    "constant noise",
    "noise of x",
    "warped",
    "two outputs",
    "constant column",
    "units of the data",
]
Regressors = dict[str, CVGPRegressor]


def columns(values: np.ndarray) -> torch.Tensor:
    return torch.tensor(np.reshape(values, (len(values), -1)))


@pytest.mark.parametrize("kind", ALIKE)
def test_mean_and_deviations_agree_to_1e_8(regressors: Regressors, kind: str) -> None:
    regressor = regressors[kind]
    X, _ = rows(regressor, 20)
    model = regressor.to_botorch()
    scale = torch.tensor(regressor.gp_.scaling.y_scale)
    for noisy in (False, True):
        mean, sd = regressor.predict(X.numpy(), return_std=True, include_noise=noisy)
        posterior = model.posterior(X, observation_noise=noisy)
        assert ((posterior.mean - columns(mean)).abs() / scale).max() < 1e-8
        assert ((posterior.variance.sqrt() - columns(sd)).abs() / scale).max() < 1e-8


@pytest.mark.parametrize("kind", ["constant noise", "noise of x", "constant column", "units of the data"])
def test_the_joint_covariance_agrees_to_1e_8(regressors: Regressors, kind: str) -> None:
    regressor = regressors[kind]
    X, _ = rows(regressor, 8)
    _, covariance = regressor.predict(X.numpy(), return_cov=True, include_noise=False)
    mine = regressor.to_botorch().posterior(X).distribution.covariance_matrix
    assert (mine - torch.tensor(covariance)).abs().max() / regressor.gp_.scaling.y_scale[0] ** 2 < 1e-8


@pytest.mark.parametrize("kind", ALIKE)
def test_conditioning_agrees_to_1e_8(regressors: Regressors, kind: str) -> None:
    regressor = regressors[kind]
    X, Y = rows(regressor, 6)
    x, _ = rows(regressor, 10)
    after = regressor.to_botorch().condition_on_observations(X, Y).posterior(x)
    single = regressor.predict(X.numpy()).ndim == 1
    theirs = regressor.condition(X.numpy(), Y[:, 0].numpy() if single else Y.numpy())
    mean, sd = theirs.predict(x.numpy(), return_std=True, include_noise=False)
    scale = torch.tensor(regressor.gp_.scaling.y_scale)
    assert ((after.mean - columns(mean)).abs() / scale).max() < 1e-8
    assert ((after.variance.sqrt() - columns(sd)).abs() / scale).max() < 1e-8


def test_noise_of_x_reaches_fantasies(regressors: Regressors) -> None:
    model = regressors["noise of x"].to_botorch()
    X = torch.tensor([[[-1.5, 0.0]], [[1.5, 0.0]]], **DOUBLE)
    added = model.posterior(X, observation_noise=True).variance - model.posterior(X).variance
    assert added[1] > 2 * added[0]
    assert model.fantasize(X, SobolQMCNormalSampler(torch.Size([2]))).batch_shape == (2, 2)


def test_from_regressor_and_to_botorch_are_one(regressors: Regressors) -> None:
    regressor = regressors["constant noise"]
    X, _ = rows(regressor, 3)
    model = CVGPModel.from_regressor(regressor)
    assert torch.equal(model.posterior(X).mean, regressor.to_botorch().posterior(X).mean)
    assert not model.training


def test_the_model_is_no_part_of_the_regressor(regressors: Regressors) -> None:
    regressor = regressors["constant noise"]
    X, _ = rows(regressor, 3)
    before = regressor.predict(X.numpy())
    model = regressor.to_botorch()
    with torch.no_grad():
        for values in (*model.parameters(), model.X_c, model.y_c):
            values.add_(1.0)
    assert np.array_equal(regressor.predict(X.numpy()), before)


def test_neighbours_are_named_as_what_is_lost(regressors: Regressors) -> None:
    with pytest.warns(CVGPWarning, match="5 neighbours .* takes the coreset alone, .* misses what only near rows know"):
        model = regressors["neighbours"].to_botorch()
    assert len(model.X_c) == len(regressors["neighbours"].coreset_)


def test_a_transform_of_y_is_refused() -> None:
    X = np.linspace(0, 6, 40)[:, None]
    regressor = CVGPRegressor(n_coreset=8, neighbors=0, max_iter=5, target="log", random_state=0)
    with pytest.raises(InvalidInputError, match=r"target='log'.*outcome_transform"):
        regressor.fit(X, 2 + np.sin(X[:, 0])).to_botorch()


def test_a_table_that_is_more_than_numbers_is_refused() -> None:
    pandas = pytest.importorskip("pandas")
    x = np.linspace(0, 6, 40)
    frame = pandas.DataFrame({"x": x, "colour": np.where(x > 3, "red", "blue")})
    regressor = CVGPRegressor(n_coreset=8, neighbors=0, max_iter=5, random_state=0).fit(frame, np.sin(x))
    with pytest.raises(InvalidInputError, match=r"\['x', 'colour'\], which are not all numbers.*before the fit"):
        regressor.to_botorch()


def test_another_estimator_is_refused() -> None:
    with pytest.raises(InvalidTypeError, match=r"takes a fitted cvgp.CVGPRegressor; got dict"):
        CVGPModel.from_regressor({})


def test_an_estimator_that_is_not_fitted_is_refused() -> None:
    with pytest.raises(NotFittedError):
        CVGPRegressor().to_botorch()


def test_a_coreset_is_not_fitted_as_if_it_were_rows(regressors: Regressors) -> None:
    model = regressors["constant noise"].to_botorch()
    with pytest.raises(InvalidInputError, match=r"no rows to learn from.*construct_inputs"):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
