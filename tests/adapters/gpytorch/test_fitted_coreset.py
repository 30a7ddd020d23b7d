"""A fitted regressor as a GPyTorch model, in the units of its data."""

import copy
import pickle
import warnings
from functools import cache

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.mlls import VariationalELBO
from sklearn.exceptions import NotFittedError

from cvgp import CVGPRegressor
from cvgp.adapters.gpytorch import CoresetGP
from cvgp.errors import CVGPWarning, InvalidInputError, InvalidTypeError

PLAIN = {"neighbors": 0, "noise": "constant", "max_iter": 15, "random_state": 0}


def data(outputs: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose columns have units far from one."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (80, 2)) * [100.0, 0.01] + [1950.0, 0.5]
    f = np.sin((X[:, 0] - 1950) / 30) + (X[:, 1] - 0.5) * 100
    y = 1e3 + 50.0 * f[:, None] * (1.0 + np.arange(outputs)) + rng.normal(0, 5.0, (80, outputs))
    return X, y[:, 0] if outputs == 1 else y


def fitted(outputs: int = 1, **settings) -> tuple[CVGPRegressor, np.ndarray, np.ndarray]:
    X, y = data(outputs)
    return CVGPRegressor(**{"n_coreset": 12} | PLAIN | settings).fit(X, y), X, y


@cache
def plain() -> tuple[CVGPRegressor, np.ndarray, np.ndarray]:
    """One fit for the tests that leave it as it is."""
    return fitted()


def at(X: np.ndarray) -> torch.Tensor:
    return torch.tensor(X)


def agree(model: CoresetGP, r: CVGPRegressor, X: np.ndarray) -> None:
    """Mean, covariance of f and standard deviation of y, in units of the spread of y."""
    unit = float(np.max(r.gp_.scaling.y_scale))
    with torch.no_grad():
        f, y = model(at(X)), model.likelihood(model(at(X)))
    mean, sd = r.predict(X, return_std=True)
    _, f_sd = r.predict(X, return_std=True, include_noise=False)
    np.testing.assert_allclose(f.mean.numpy() / unit, mean / unit, rtol=0, atol=1e-8)
    np.testing.assert_allclose(f.stddev.numpy() / unit, f_sd / unit, rtol=0, atol=1e-8)
    np.testing.assert_allclose(y.stddev.numpy() / unit, sd / unit, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel": "rbf+linear"},
        {"kernel": "periodic*rbf"},
        {"ard": False},
        {"mean": "constant"},
        {"standardize": False},
        {"kernel": gpytorch.kernels.RBFKernel()},
        {"mean": gpytorch.means.LinearMean(2)},
        {"n_coreset": "auto"},
    ],
    ids=lambda settings: "-".join(
        f"{name}={value if isinstance(value, str) else type(value).__name__}" for name, value in settings.items()
    ),
)
def test_the_model_predicts_what_the_regressor_predicts(settings: dict) -> None:
    r, _, _ = fitted(**copy.deepcopy(settings))
    agree(r.to_gpytorch(), r, data(seed=1)[0])


def test_the_model_of_a_plain_fit_predicts_the_same() -> None:
    r, _, _ = plain()
    agree(CoresetGP.from_regressor(r), r, data(seed=1)[0])


def test_joint_covariances_agree() -> None:
    r, X, _ = plain()
    _, covariance = r.predict(X, return_cov=True, include_noise=False)
    unit = r.gp_.scaling.y_scale[0] ** 2
    found = r.to_gpytorch()(at(X)).covariance_matrix.detach().numpy()
    np.testing.assert_allclose(found / unit, covariance / unit, rtol=0, atol=1e-8)


def test_lengthscales_and_noise_are_in_the_users_units() -> None:
    r, _, _ = plain()
    model = CoresetGP.from_regressor(r)
    np.testing.assert_allclose(model.covar_module.base_kernel.lengthscale.detach().numpy()[0], r.lengthscales_)
    np.testing.assert_allclose(model.likelihood.noise.item(), r.noise_variance_, rtol=1e-6)


def test_several_outputs_become_tasks() -> None:
    r, X, _ = fitted(outputs=3)
    model = r.to_gpytorch()
    assert model(at(X)).event_shape == (80, 3)
    agree(model, r, data(seed=1)[0])


def test_a_column_that_was_constant_changes_no_prediction() -> None:
    X, y = data()
    X = np.column_stack([X, np.full(len(X), 7.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CVGPWarning)
        r = CVGPRegressor(n_coreset=12, **PLAIN).fit(X, y)
    X[:, 2] = 9.0
    agree(r.to_gpytorch(), r, X)


def test_the_bound_is_that_of_the_fitted_module_but_for_the_units_of_y() -> None:
    r, X, y = plain()
    model, scaling = r.to_gpytorch(), r.gp_.scaling
    bound = VariationalELBO(model.likelihood, model, len(X))(model(at(X)), at(y)) * len(X)
    own = r.model_.elbo(at(scaling.scale_x(X)), at(scaling.scale_y(y[:, None])[:, 0]))
    np.testing.assert_allclose(bound.item(), own.item() - len(X) * np.log(scaling.y_scale[0]), rtol=1e-6)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_model_can_be_trained_on(outputs: int) -> None:
    r, X, y = plain() if outputs == 1 else fitted(outputs=outputs)
    model = r.to_gpytorch().train()
    objective = VariationalELBO(model.likelihood, model, len(X))
    noise = "noise" if outputs == 1 else "task_noises"
    setattr(model.likelihood, noise, 9.0 * getattr(model.likelihood, noise).detach())
    # One rate does not suit pseudo-inputs in such units, so these stay.
    learned = [parameter for name, parameter in model.named_parameters() if "inducing_points" not in name]
    optimiser, losses = torch.optim.Adam(learned, lr=0.03), []
    for _ in range(10):
        model.zero_grad()
        loss = -objective(model(at(X)), at(y))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert losses[-1] < losses[0] - 0.02


def test_training_on_leaves_the_regressor_as_it_is() -> None:
    r, X, _ = plain()
    before = r.predict(X)
    model = r.to_gpytorch()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    np.testing.assert_array_equal(r.predict(X), before)


def test_conditioning_is_that_of_the_regressor() -> None:
    r, X, _ = plain()
    X_new, y_new = data(seed=2)
    after = r.to_gpytorch().get_fantasy_model(at(X_new[:9]), at(y_new[:9]))
    expected = r.condition(X_new[:9], y_new[:9]).predict(X)
    np.testing.assert_allclose(after(at(X)).mean.detach().numpy(), expected, rtol=1e-8)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_predicts_the_same(again) -> None:
    r, X, _ = plain()
    agree(again(r.to_gpytorch()), r, X)


def test_neighbours_are_said_to_be_lost() -> None:
    r, X, _ = fitted(neighbors=5)
    with pytest.warns(CVGPWarning, match="5 neighbours .*fit with neighbors=0"):
        model = r.to_gpytorch()
    assert model(at(X)).mean.shape == (80,)


def test_noise_that_depends_on_x_is_said_to_be_lost_and_the_mean_stays() -> None:
    r, X, _ = fitted(noise="input-dependent")
    with pytest.warns(CVGPWarning, match="noise that depends on x"):
        model = r.to_gpytorch()
    np.testing.assert_allclose(model(at(X)).mean.detach().numpy(), r.predict(X), rtol=1e-8)


def test_a_transform_of_y_is_refused() -> None:
    r, _, _ = fitted(target="log")
    with pytest.raises(InvalidInputError, match=r"transform 'log'.*target='identity'"):
        r.to_gpytorch()


def test_a_regressor_that_is_not_fitted_is_refused() -> None:
    with pytest.raises(NotFittedError):
        CVGPRegressor().to_gpytorch()
    with pytest.raises(NotFittedError):
        CoresetGP.from_regressor(CVGPRegressor())


def test_something_else_is_refused() -> None:
    with pytest.raises(InvalidTypeError, match=r"fitted cvgp\.CVGPRegressor; got int"):
        CoresetGP.from_regressor(3)


@pytest.mark.parametrize(
    ("y_c", "precision", "message"),
    [(torch.zeros(3), torch.ones(3), r"y_c \[M\] or"), (torch.zeros(2), torch.ones(3), "precision must be")],
)
def test_values_of_wrong_shapes_are_refused(y_c: torch.Tensor, precision: torch.Tensor, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        CoresetGP(torch.zeros(2, 1), y_c, precision, gpytorch.kernels.RBFKernel())
