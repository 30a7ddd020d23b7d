"""A fitted regressor as a model of GPyTorch and of BoTorch: the same numbers, or a warning that says what is lost."""

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
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from sklearn.exceptions import NotFittedError

from cvgp import CVGPRegressor
from cvgp.adapters import botorch
from cvgp.adapters import gpytorch as for_gpytorch
from cvgp.adapters.fitted_regressor import InputScaling
from cvgp.data.scaling import Scaling
from cvgp.data.transforms import Path, warp_of
from cvgp.errors import CVGPWarning, InvalidInputError, InvalidTypeError
from tests.flat_options import make_regressor

PLAIN: dict[str, Any] = {"n_coreset": 12, "n_neighbors": 0, "noise": "constant", "max_iter": 15, "random_state": 0}
MAY_HAVE_HEAVY_TAILS = pytest.mark.filterwarnings("ignore:The exported model.*heavy tails")
"""They are in densities and quantiles of the regressor alone, and these are not compared."""
HOSTS = pytest.mark.parametrize("host", ["gpytorch", "botorch"])


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
        if hasattr(model, "posterior"):
            f, y = model.posterior(x), model.posterior(x, observation_noise=True)
            found = [f.mean, f.variance.sqrt(), y.variance.sqrt()]
            return [values.numpy().squeeze(-1) if values.shape[-1] == 1 else values.numpy() for values in found]
        f = model(x)
        return [f.mean.numpy(), f.stddev.numpy(), model.likelihood(f, x).stddev.numpy()]


def agree(model: Any, r: CVGPRegressor, X: np.ndarray) -> None:
    """In units of the spread of y, to 1e-8."""
    (mean, sd), (_, f_sd) = (r.predict(X, return_std=True, include_noise=noisy) for noisy in (True, False))
    for found, expected in zip(moments(model, X), (mean, f_sd, sd), strict=True):
        np.testing.assert_allclose(found / r._gp.scaling.y_scale, expected / r._gp.scaling.y_scale, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("host", "kind"), [(h, k) for k in KINDS for h in ("gpytorch", "botorch") if h == "botorch" or "outputs" not in k]
)
@MAY_HAVE_HEAVY_TAILS
def test_predictions_agree_before_and_after_conditioning(host: str, kind: str) -> None:
    r = fitted(kind)
    (X, _), (X_new, y_new) = rows_for(r, 1), rows_for(r, 2, 9)
    model = getattr(r, f"to_{host}")()
    agree(model, r, X)
    after = r.condition(X_new, y_new)
    if host == "botorch":
        agree(model.condition_on_observations(torch.tensor(X_new), torch.tensor(y_new.reshape(9, -1))), after, X)
    else:
        agree(model.get_fantasy_model(torch.tensor(X_new), torch.tensor(y_new)), after, X)


@HOSTS
@pytest.mark.parametrize("kind", ["plain", "noise of x"])
@MAY_HAVE_HEAVY_TAILS
def test_joint_covariances_agree(host: str, kind: str) -> None:
    r = fitted(kind)
    X, _ = rows_for(r, 1, 8)
    _, covariance = r.predict(X, return_cov=True, include_noise=False)
    model, x, unit = getattr(r, f"to_{host}")(), torch.tensor(X), r._gp.scaling.y_scale[0] ** 2
    found = model(x) if host == "gpytorch" else model.posterior(x).distribution
    np.testing.assert_allclose(found.covariance_matrix.detach().numpy() / unit, covariance / unit, rtol=0, atol=1e-8)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
@HOSTS
def test_a_copy_predicts_the_same(host: str, again: Any) -> None:
    r = fitted("plain")
    agree(again(getattr(r, f"to_{host}")()), r, data()[0])


def test_the_bound_is_that_of_the_fitted_module_but_for_the_units_of_y() -> None:
    r, (X, y) = fitted("plain"), data()
    model, scaling = r.to_gpytorch(), r._gp.scaling
    bound = VariationalELBO(model.likelihood, model, len(X))(model(torch.tensor(X)), torch.tensor(y)) * len(X)
    own = r.model_.elbo(torch.tensor(scaling.scale_x(X)), torch.tensor(scaling.scale_y(y[:, None])[:, 0]))
    np.testing.assert_allclose(bound.item(), own.item() - len(X) * np.log(scaling.y_scale[0]), rtol=1e-6)


def test_the_gpytorch_model_can_be_trained_on() -> None:
    X, y = (torch.tensor(values) for values in data())
    model = fitted("plain").to_gpytorch().train()
    objective = VariationalELBO(model.likelihood, model, len(X))
    model.likelihood.noise = 9.0 * model.likelihood.noise.detach()
    # One rate does not suit pseudo-inputs in such units, so these stay.
    learned = [parameter for name, parameter in model.named_parameters() if "inducing_points" not in name]
    optimizer, losses = torch.optim.Adam(learned, lr=0.03), []
    for _ in range(10):
        model.zero_grad()
        loss = -objective(model(X), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert losses[-1] < losses[0] - 0.02


@MAY_HAVE_HEAVY_TAILS
def test_objectives_and_draws_have_the_noise_at_x() -> None:
    X, y = (torch.tensor(values) for values in data())
    model = fitted("noise of x").to_gpytorch().train()
    f, noise = model(X), model.likelihood.variance(X)
    assert noise.max() > 2 * noise.min()  # else a constant noise would do
    loss = -VariationalELBO(model.likelihood, model, len(X))(f, y, noise=noise)
    density = -0.5 * ((y - f.mean).square() + f.variance) / noise - 0.5 * (2 * torch.pi * noise).log()
    torch.testing.assert_close(loss, (model.variational_strategy.kl_divergence().sum() - density.sum()) / len(X))
    loss.backward()
    torch.testing.assert_close(model.likelihood(f.mean, X).variance, noise)
    with pytest.raises(InvalidTypeError, match=r"likelihood\(model\(x\), x\)"):
        model.likelihood(f)


def test_a_coreset_is_not_fitted_as_if_it_were_rows() -> None:
    model = fitted("plain").to_botorch()
    with pytest.raises(InvalidInputError, match=r"not rows to learn from.*construct_inputs"):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))


# What is lost, and what is refused


@HOSTS
def test_a_warning_says_what_is_lost(host: str) -> None:
    with pytest.warns(CVGPWarning, match="5 neighbors .*fit with n_neighbors=0"):
        model = getattr(fitted("neighbors"), f"to_{host}")()
    assert np.isfinite(moments(model, data()[0])).all()
    r = copy.copy(fitted("noise of x"))
    r._gp = copy.copy(r._gp)
    r._gp.noise = r._gp.noise._replace(multipliers=torch.tensor([0.5, 5.5]), weights=torch.tensor([0.9, 0.1]))
    with pytest.warns(CVGPWarning, match="heavy tails of its noise"):
        getattr(r, f"to_{host}")()


@HOSTS
def test_what_a_host_cannot_have_is_refused(host: str) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = data()
    with pytest.raises(InvalidInputError, match=r"transform 'log'.*target_transform='identity'"):
        getattr(make_regressor(**PLAIN | {"target_transform": "log"}).fit(X, y), f"to_{host}")()
    frame = pandas.DataFrame({"year": X[:, 0], "colour": np.where(X[:, 1] > 0.5, "red", "blue")})
    with pytest.raises(InvalidInputError, match=r"\['year', 'colour'\], which are not all numbers"):
        getattr(make_regressor(**PLAIN).fit(frame, y), f"to_{host}")()
    with pytest.raises(NotFittedError):
        getattr(CVGPRegressor(), f"to_{host}")()
    if host == "gpytorch":
        with pytest.raises(InvalidInputError, match=r"has one output.*to_botorch"):
            fitted("two outputs").to_gpytorch()
    with pytest.raises(InvalidTypeError, match=r"fitted cvgp\.CVGPRegressor; got int"):
        {"gpytorch": for_gpytorch, "botorch": botorch}[host].from_regressor(3)


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
