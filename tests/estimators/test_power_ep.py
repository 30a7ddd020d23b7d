"""Fits by power EP: ``CVGPRegressor(bound="power")``."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

import cvgp
from cvgp import CVGPRegressor
from cvgp.training import plan as plan_module
from cvgp.training import shrinkage
from tests import reference as ref

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, size=(90, 2))
Y = 5.0 + 3.0 * np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.3 * RNG.normal(size=90)
NEW = RNG.uniform(-2.0, 2.0, size=(40, 2))


def regressor(**options: Any) -> CVGPRegressor:
    return CVGPRegressor(**{"n_coreset": 8, "max_iter": 25, "random_state": 0, "bound": "power", **options})


@pytest.fixture(scope="module")
def fitted() -> CVGPRegressor:
    return regressor(power=0.7).fit(X, Y)


def in_models_units(model: CVGPRegressor) -> tuple[torch.Tensor, torch.Tensor]:
    scaling = model.gp_.scaling
    return torch.tensor(scaling.scale_x(X)), torch.tensor(scaling.scale_y(Y[:, None])[:, 0])


def test_reported_value_is_the_estimate_in_the_units_of_y(fitted: CVGPRegressor) -> None:
    value = fitted.model_.power_evidence(*in_models_units(fitted), power=0.7).item()
    # The weights have taken up the jitter of their solution, and the model's estimate has its own.
    assert fitted.elbo_ == pytest.approx(value - 90 * np.log(fitted.gp_.scaling.y_scale[0]), abs=0.05)


def test_statistics_have_the_precisions_of_power_ep(fitted: CVGPRegressor) -> None:
    model, (x, y) = fitted.model_, in_models_units(fitted)
    noise = model.noise.item()
    K_cc, K_cx = model.jittered_covariance(), model.kernel(model.X_c, x).to_dense()
    q = (K_cx * torch.linalg.solve(K_cc, K_cx)).sum(0)
    t = noise + 0.7 * (model.kernel(x, diag=True) - q)
    torch.testing.assert_close(fitted.statistics_.yy, (y.square() / t).sum().detach(), rtol=1e-5, atol=0.0)
    torch.testing.assert_close(fitted.statistics_.kk, (q / t).sum().detach(), rtol=1e-5, atol=0.0)


def test_predictions_add_the_learned_noise_alone(fitted: CVGPRegressor) -> None:
    _, of_y = fitted.predict(NEW, return_std=True)
    _, of_f = fitted.predict(NEW, return_std=True, include_noise=False)
    np.testing.assert_allclose(of_y**2 - of_f**2, fitted.noise_variance_, rtol=1e-9)


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_weights_are_repeats(solver: str) -> None:
    counts = np.random.default_rng(6).integers(0, 4, size=90)
    weighted = regressor(solver=solver).fit(X, Y, sample_weight=counts)
    repeated = regressor(solver=solver).fit(X.repeat(counts, axis=0), Y.repeat(counts))
    np.testing.assert_allclose(weighted.predict(NEW), repeated.predict(NEW), rtol=1e-7)
    assert weighted.elbo_ == pytest.approx(repeated.elbo_, rel=1e-7)


def test_rows_of_large_known_noise_count_for_little() -> None:
    known = np.where(np.arange(90) % 3, 0.0, 400.0)
    y = Y + np.sqrt(known) * np.random.default_rng(2).normal(size=90)
    errors = [np.abs(regressor().fit(X, y, noise_variance=v).predict(X) - Y).mean() for v in (known, None)]
    assert errors[0] < 0.5 * errors[1]


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_several_outputs_are_learned_together(solver: str) -> None:
    both = np.stack([Y, -10.0 * Y], 1)
    model = regressor(solver=solver, max_iter=60).fit(X, both)
    mean, sd = model.predict(NEW, return_std=True)
    np.testing.assert_allclose(mean[:, 1], -10.0 * mean[:, 0], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(sd[:, 1], 10.0 * sd[:, 0], rtol=1e-6)
    assert model.score(X, both) > 0.8


def test_every_row_as_a_point_is_the_exact_gp_at_any_power() -> None:
    # Nothing is unexplained then, and the estimate is the log marginal likelihood.
    x, y = X[:30], np.random.default_rng(1).normal(size=30)  # too rough for fewer points
    options: dict[str, Any] = {"n_coreset": 30, "kernel": "matern12", "max_iter": 10, "noise": "constant"}
    model = regressor(**options).fit(x, y)
    exact = regressor(**options, bound="tight").fit(x, y)
    assert len(model.coreset_) == 30
    np.testing.assert_array_equal(model.predict(NEW), exact.predict(NEW))
    scaling, inner = model.gp_.scaling, model.model_
    K = inner.kernel(torch.tensor(scaling.scale_x(x))).to_dense().detach().numpy()
    expected = ref.log_marginal(K, scaling.scale_y(y[:, None])[:, 0], inner.noise.item())
    assert model.elbo_ == pytest.approx(expected - 30 * np.log(scaling.y_scale[0]), rel=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_minibatches_in_either_precision_learn_the_function(dtype: str) -> None:
    model = regressor(solver="adam", dtype=dtype, max_iter=150, batch_size=30).fit(X, Y)
    assert model.score(X, Y) > 0.85


def test_both_solvers_of_many_rows_climb_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrinkage, "FEW", 0)  # no prior, which would be a part of what is climbed
    monkeypatch.setattr(plan_module, "LBFGS_ROWS", 10)
    monkeypatch.setattr(plan_module, "ADAM_STEPS", 40)
    monkeypatch.setattr(plan_module, "POLISH_EVALUATIONS", 20)
    model = regressor(max_iter=None).fit(X, Y)
    assert model.solver_ == "adam+lbfgs"
    climbed = model.history_["bound"][model.history_["phase"] == "lbfgs"]  # nats per row, with y standardised
    assert climbed[-1] > climbed[0]
    # A full covariance of the sites is no worse than the diagonal that closes the fit.
    in_standard_units = model.elbo_ / 90 + np.log(model.gp_.scaling.y_scale[0])
    assert in_standard_units == pytest.approx(climbed.max(), abs=0.05)
    assert in_standard_units <= climbed.max() + 1e-6


def test_pruning_lowers_the_estimate_by_what_it_says(fitted: CVGPRegressor) -> None:
    model = deepcopy(fitted)
    before = model.elbo_
    assert model.prune(tolerance=1.0) > 0
    assert 0.0 < before - model.elbo_ < 90.0


def test_a_clone_has_the_power() -> None:
    model = regressor(power=0.3)
    assert clone(model).get_params()["power"] == 0.3
    assert CVGPRegressor().get_params()["power"] == 0.5


def test_a_saved_model_has_the_power_and_the_predictions(fitted: CVGPRegressor, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    again = cvgp.load(tmp_path / "model")
    assert (again.bound, again.power, again.elbo_) == ("power", 0.7, fitted.elbo_)
    np.testing.assert_array_equal(again.predict(NEW), fitted.predict(NEW))
