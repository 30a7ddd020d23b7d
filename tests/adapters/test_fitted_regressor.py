"""A fitted regressor as a model of BoTorch: the same numbers, or a warning that says what is lost."""

import copy
import pickle
import warnings
from functools import cache
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from gpytorch.mlls import ExactMarginalLogLikelihood
from sklearn.exceptions import NotFittedError

from cvgp import CVGPRegressor
from cvgp.adapters import botorch
from cvgp.adapters.fitted_regressor import InputScaling
from cvgp.data.scaling import Scaling
from cvgp.data.transforms import Path, warp_of
from cvgp.errors import CVGPWarning, InvalidInputError, InvalidTypeError
from tests.flat_options import make_regressor

PLAIN: dict[str, Any] = {"n_coreset": 12, "n_neighbors": 0, "noise": "constant", "max_iter": 15, "random_state": 0}
MAY_HAVE_HEAVY_TAILS = pytest.mark.filterwarnings("ignore:The exported model.*heavy tails")
"""They are in densities and quantiles of the regressor alone, and these are not compared."""


def data(outputs: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose columns have units far from one."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (80, 2)) * [100.0, 0.01] + [1950.0, 0.5]
    f = np.sin((X[:, 0] - 1950) / 30) + np.cos((X[:, 1] - 0.5) * 200)
    y = 1e3 + 50.0 * f[:, None] * (1.0 + np.arange(outputs)) + rng.normal(0, 5.0, (80, outputs))
    return X, y[:, 0] if outputs == 1 else y


@cache
def fitted(kind: str) -> CVGPRegressor:
    """One fit of each kind for all tests, which leave it as it is."""
    outputs = 2 if "outputs" in kind else 1
    X, y = data(outputs)
    by_kind = {
        "sum of kernels": {"kernel": "rbf+linear"},
        "product of kernels": {"kernel": "periodic*rbf"},
        "one lengthscale": {"ard": False},
        "constant mean": {"mean": "constant"},
        "linear mean": {"mean": gpytorch.means.LinearMean(2)},
        "units of the data": {"standardize": False},
        "kernel without scale": {"kernel": gpytorch.kernels.RBFKernel()},
        "warped": {"input_warp": "rank"},
        "neighbors": {"n_neighbors": 5},
    }
    settings = next((values for name, values in by_kind.items() if name in kind), {})
    if "noise of x" in kind:
        rng = np.random.default_rng(3)
        y = y + (20 * np.exp(150 * (X[:, 1] - 0.5)) * rng.standard_normal(y.T.shape)).T
        settings = {"noise": "input-dependent"}
    if outputs > 1:
        settings = {**settings, "early_stopping": True}  # after which outputs share a noise
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CVGPWarning)
        return make_regressor(**PLAIN | settings).fit(np.c_[X, np.full(80, 7.0)] if "column" in kind else X, y)


KINDS = ["plain", "sum of kernels", "product of kernels", "one lengthscale", "constant mean", "linear mean"]
KINDS += ["units of the data", "kernel without scale", "warped", "constant column"]
KINDS += ["two outputs", "two outputs, sum of kernels", "noise of x", "two outputs, noise of x"]


def rows_for(r: CVGPRegressor, seed: int, count: int = 80) -> tuple[np.ndarray, np.ndarray]:
    X, y = data(1 if r.predict(data()[0] if r.n_features_in_ == 2 else np.zeros((1, 3))).ndim == 1 else 2, seed)
    X = np.c_[X, np.full(80, 9.0)] if r.n_features_in_ == 3 else X  # another value than in the fit
    return X[:count], y[:count]


def moments(model: Any, X: np.ndarray) -> list[np.ndarray]:
    """Mean of f, sd of f and sd of y, [n] or [n, Q]."""
    x = torch.tensor(X)
    with torch.no_grad():
        f, y = model.posterior(x), model.posterior(x, observation_noise=True)
        found = [f.mean, f.variance.sqrt(), y.variance.sqrt()]
        return [values.numpy().squeeze(-1) if values.shape[-1] == 1 else values.numpy() for values in found]


def agree(model: Any, r: CVGPRegressor, X: np.ndarray) -> None:
    """In units of the spread of y, to 1e-8."""
    (mean, sd), (_, f_sd) = (r.predict(X, return_std=True, include_noise=noisy) for noisy in (True, False))
    for found, expected in zip(moments(model, X), (mean, f_sd, sd), strict=True):
        np.testing.assert_allclose(found / r._gp.scaling.y_scale, expected / r._gp.scaling.y_scale, rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@MAY_HAVE_HEAVY_TAILS
def test_predictions_agree_before_and_after_conditioning(kind: str) -> None:
    r = fitted(kind)
    (X, _), (X_new, y_new) = rows_for(r, 1), rows_for(r, 2, 9)
    model = r.to_botorch()
    agree(model, r, X)
    conditioned = model.condition_on_observations(torch.tensor(X_new), torch.tensor(y_new.reshape(9, -1)))
    agree(conditioned, r.condition(X_new, y_new), X)


@pytest.mark.parametrize("kind", ["plain", "noise of x"])
@MAY_HAVE_HEAVY_TAILS
def test_joint_covariances_agree(kind: str) -> None:
    r = fitted(kind)
    X, _ = rows_for(r, 1, 8)
    _, covariance = r.predict(X, return_cov=True, include_noise=False)
    unit = r._gp.scaling.y_scale[0] ** 2
    found = r.to_botorch().posterior(torch.tensor(X)).distribution
    np.testing.assert_allclose(found.covariance_matrix.detach().numpy() / unit, covariance / unit, rtol=0, atol=1e-8)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_predicts_the_same(again: Any) -> None:
    r = fitted("plain")
    agree(again(r.to_botorch()), r, data()[0])


@MAY_HAVE_HEAVY_TAILS
def test_the_likelihood_takes_the_inputs() -> None:
    model, x = fitted("noise of x").to_botorch(), torch.tensor(data()[0])
    z = model.transform_inputs(x)
    noise = model.likelihood.variance(z)
    assert noise.max() > 2 * noise.min()  # else a constant noise would do
    torch.testing.assert_close(model.likelihood(model(z), z).variance, model(z).variance + noise)
    with pytest.raises(InvalidTypeError, match=r"likelihood\(model\(x\), x\)"):
        model.likelihood(model(z))


def test_a_coreset_is_not_fitted_as_if_it_were_rows() -> None:
    model = fitted("plain").to_botorch()
    with pytest.raises(InvalidInputError, match=r"not rows to learn from.*construct_inputs"):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))


# What is lost, and what is refused


def test_a_warning_says_what_is_lost() -> None:
    with pytest.warns(CVGPWarning, match="5 neighbors .*fit with n_neighbors=0"):
        model = fitted("neighbors").to_botorch()
    assert np.isfinite(moments(model, data()[0])).all()
    r = copy.copy(fitted("noise of x"))
    r._gp = copy.copy(r._gp)
    r._gp.noise = r._gp.noise._replace(multipliers=torch.tensor([0.5, 5.5]), weights=torch.tensor([0.9, 0.1]))
    with pytest.warns(CVGPWarning, match="heavy tails of its noise"):
        r.to_botorch()


def test_what_the_model_cannot_have_is_refused() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = data()
    with pytest.raises(InvalidInputError, match=r"transform 'log'.*target_transform='identity'"):
        make_regressor(**PLAIN | {"target_transform": "log"}).fit(X, y).to_botorch()
    frame = pandas.DataFrame({"year": X[:, 0], "colour": np.where(X[:, 1] > 0.5, "red", "blue")})
    with pytest.raises(InvalidInputError, match=r"\['year', 'colour'\], which are not all numbers"):
        make_regressor(**PLAIN).fit(frame, y).to_botorch()
    with pytest.raises(NotFittedError):
        CVGPRegressor().to_botorch()
    with pytest.raises(InvalidTypeError, match=r"fitted cvgp\.CVGPRegressor; got int"):
        botorch.from_regressor(3)


# The scaling of inputs


def test_the_scaling_of_inputs_is_that_of_the_regressor_with_gradients() -> None:
    path = Path(np.array([-1.0, 0.0, 0.5, 4.0]), np.array([0.0, 2.0, 2.5, 3.0]))
    x_mean, x_scale = np.array([1.0, 5.0, 3.0]), np.array([2.0, 0.1, 0.0])  # the last column was constant
    warp = warp_of("mixed", np.array([0.5, 0.0, 0.0]), {0: path})
    scaling = Scaling(x_mean, x_scale, np.zeros(1), np.ones(1), x_limit=50.0, warp=warp)
    first = np.concatenate([path.knots, np.linspace(-5, 9, 20)])
    x = np.column_stack([first, 5 + 0.1 * np.sin(first), np.full(len(first), 3.0)])
    module = InputScaling(scaling)
    np.testing.assert_allclose(module(torch.tensor(x)).numpy(), scaling.scale_x(x), atol=1e-12)
    far = torch.tensor([[0.0, 1e6, 8.0]], dtype=torch.float64)
    assert module(far)[0, 1:].tolist() == [50.0, 0.0]
    near = torch.tensor([[-0.4, 5.0, 3.0], [7.0, 5.01, 3.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(module, near)
