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
    f = np.sin((X[:, 0] - 1950) / 30) + np.cos((X[:, 1] - 0.5) * 200)
    y = 1e3 + 50.0 * f[:, None] * (1.0 + np.arange(outputs)) + rng.normal(0, 5.0, (80, outputs))
    return X, y[:, 0] if outputs == 1 else y


def fitted(outputs: int = 1, **settings) -> tuple[CVGPRegressor, np.ndarray, np.ndarray]:
    X, y = data(outputs)
    return CVGPRegressor(**{"n_coreset": 12} | PLAIN | settings).fit(X, y), X, y


@cache
def plain() -> tuple[CVGPRegressor, np.ndarray, np.ndarray]:
    """One fit for the tests that leave it as it is."""
    return fitted()


MAY_HAVE_HEAVY_TAILS = pytest.mark.filterwarnings("ignore:The GPyTorch model leaves out.*heavy tails")
"""Of the noise: they are in densities and quantiles of the regressor alone, and these are not compared."""


@cache
def with_noise_of_x(outputs: int = 1) -> CVGPRegressor:
    """Noise that grows along the second column."""
    X, y = data(outputs)
    rng = np.random.default_rng(3)
    noise = 20 * np.exp(150 * (X[:, 1] - 0.5)) * rng.standard_normal(y.T.shape)
    return CVGPRegressor(n_coreset=12, **PLAIN | {"noise": "input-dependent"}).fit(X, y + noise.T)


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
        {"inputs": "rank"},
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


@pytest.mark.parametrize("outputs", [1, 2])
@MAY_HAVE_HEAVY_TAILS
def test_the_likelihood_has_the_noise_at_x(outputs: int) -> None:
    r, X = with_noise_of_x(outputs), data(seed=1)[0]
    model = r.to_gpytorch()
    agree(model, r, X)
    with torch.no_grad():
        sd = model.likelihood(model(at(X)), at(X)).stddev.numpy()
    expected = r.predict(X, return_std=True)[1]
    assert np.ptp(expected) > 0.5 * np.mean(expected)  # else a constant noise would do
    np.testing.assert_allclose(sd / r.gp_.scaling.y_scale, expected / r.gp_.scaling.y_scale, rtol=0, atol=1e-8)


@MAY_HAVE_HEAVY_TAILS
def test_conditioning_with_noise_of_x_is_that_of_the_regressor() -> None:
    r, (X, _), (X_new, y_new) = with_noise_of_x(), data(), data(seed=2)
    after = r.to_gpytorch().get_fantasy_model(at(X_new[:9]), at(y_new[:9]))
    mean, sd = r.condition(X_new[:9], y_new[:9]).predict(X, return_std=True)
    found = after.likelihood(after(at(X)), at(X))
    np.testing.assert_allclose(found.mean.detach().numpy(), mean, rtol=1e-8)
    np.testing.assert_allclose(found.stddev.detach().numpy(), sd, rtol=1e-8)


@pytest.mark.parametrize("outputs", [1, 2])
@MAY_HAVE_HEAVY_TAILS
def test_a_model_with_noise_of_x_can_be_trained_on(outputs: int) -> None:
    (X, y), model = data(outputs), with_noise_of_x(outputs).to_gpytorch().train()
    f = model(at(X))
    loss = -VariationalELBO(model.likelihood, model, len(X))(f, at(y))  # f knows its inputs
    noise = model.likelihood.variance(at(X))
    density = -0.5 * ((at(y) - f.mean).square() + f.variance) / noise - 0.5 * (2 * torch.pi * noise).log()
    kl = model.variational_strategy.kl_divergence().sum()
    torch.testing.assert_close(loss, (kl - density.sum()) / len(X))
    loss.backward()
    sites = model.variational_strategy
    sites = sites if outputs == 1 else sites.base_variational_strategy
    assert sites._variational_distribution.pseudo_targets.grad.abs().sum() > 0


@pytest.mark.parametrize("outputs", [1, 2])
@MAY_HAVE_HEAVY_TAILS
def test_draws_of_observations_have_the_noise_at_x(outputs: int) -> None:
    model, X = with_noise_of_x(outputs).to_gpytorch(), at(data(seed=1)[0])
    f = model(X).mean
    given = model.likelihood(f, X)
    noise = model.likelihood(model(X), X).variance - model(X).variance
    torch.testing.assert_close(given.variance, noise, rtol=1e-6, atol=0.0)
    with pytest.raises(InvalidTypeError, match=r"likelihood\(model\(x\), x\)"):
        model.likelihood(f)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_predicts_the_same(again) -> None:
    r, X, _ = plain()
    agree(again(r.to_gpytorch()), r, X)


def test_neighbours_are_said_to_be_lost() -> None:
    r, X, _ = fitted(neighbors=5)
    with pytest.warns(CVGPWarning, match="5 neighbours .*fit with neighbors=0"):
        model = r.to_gpytorch()
    assert model(at(X)).mean.shape == (80,)


def test_heavy_tails_are_said_to_be_lost() -> None:
    r = copy.copy(with_noise_of_x())
    heavy = {"multipliers": torch.tensor([0.5, 5.5]), "weights": torch.tensor([0.9, 0.1])}
    r.gp_ = copy.copy(r.gp_)
    r.gp_.noise = r.gp_.noise._replace(**heavy)
    with pytest.warns(CVGPWarning, match="heavy tails of its noise"):
        r.to_gpytorch()


def test_a_transform_of_y_is_refused() -> None:
    r, _, _ = fitted(target="log")
    with pytest.raises(InvalidInputError, match=r"transform 'log'.*target='identity'"):
        r.to_gpytorch()


def test_a_table_that_is_more_than_numbers_is_refused() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = data()
    frame = pandas.DataFrame({"year": X[:, 0], "colour": np.where(X[:, 1] > 0.5, "red", "blue")})
    r = CVGPRegressor(n_coreset=8, **PLAIN).fit(frame, y)
    with pytest.raises(InvalidInputError, match=r"\['year', 'colour'\], which are not all numbers.*before the fit"):
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
