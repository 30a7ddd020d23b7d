"""Outputs with a learned covariance: of f, of the noise, and what follows for predictions."""

from collections.abc import Callable
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import cvgp
from cvgp import CVGPRegressor, TrainingOptions
from cvgp.errors import InvalidInputError
from cvgp.gp.kernels import square_matrix

Array = NDArray[np.float64]
B = np.array([[1.0, 1.8], [1.8, 4.0]])
S = np.array([[0.3, -0.4], [-0.4, 0.9]])


def correlated(count: int, seed: int = 0) -> tuple[Array, Array]:
    """Draws of two functions with covariance B and noise with covariance S, in units of their own."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 8.0, (count, 1))
    r = np.sqrt(3.0) * np.abs(X - X.T)
    K = (1.0 + r) * np.exp(-r) + 1e-9 * np.eye(count)
    F, E = np.linalg.cholesky(K) @ rng.normal(size=(count, 2)), rng.normal(size=(count, 2))
    return X, F @ np.linalg.cholesky(B).T + E @ np.linalg.cholesky(S).T + [5.0, -100.0]


def correlation(C: Array) -> float:
    return float(C[0, 1] / np.sqrt(C[0, 0] * C[1, 1]))


@cache
def fitted(count: int = 300, covariance: str = "learned", **options: Any) -> CVGPRegressor:
    X, Y = correlated(2 * count)
    return CVGPRegressor(output_covariance=covariance, random_state=0, **options).fit(X[:count], Y[:count])


@cache
def on_points() -> CVGPRegressor:
    X, Y = correlated(600, seed=3)
    options: dict[str, Any] = {"training": TrainingOptions(max_iter=30)}
    return CVGPRegressor(60, output_covariance="learned", random_state=0, **options).fit(X, Y)


@pytest.mark.parametrize("model", [fitted, on_points])
def test_the_covariances_of_the_functions_and_of_the_noise_are_learned(model: Callable[[], CVGPRegressor]) -> None:
    own = model()
    assert correlation(own.output_covariance_) == pytest.approx(correlation(B), abs=0.1)
    assert correlation(own.noise_covariance_) == pytest.approx(correlation(S), abs=0.1)
    assert np.allclose(own.noise_covariance_, S, atol=0.15)
    assert np.allclose(own.noise_covariance_.diagonal(), own.noise_variance_)


def test_predictions_are_those_of_a_dense_gp_with_these_covariances() -> None:
    model, (X, Y) = fitted(), correlated(600)
    X, Y, at, gp = X[:300], Y[:300], X[300:310], model._gp
    assert len(model.coreset_.X) == len(X)
    with torch.no_grad():
        both = torch.as_tensor(gp.scaling.scale_x(np.concatenate([X, at])))
        every = square_matrix(gp.model.kernel, both).numpy()
    K = np.kron(every / every[0, 0], model.output_covariance_)
    n = Y.size
    inverse = np.linalg.inv(K[:n, :n] + np.kron(np.eye(len(X)), model.noise_covariance_))
    prior = gp.scaling.y_mean @ gp.mixing
    mean = prior + (K[n:, :n] @ inverse @ (Y - prior).ravel()).reshape(-1, 2)
    cov = K[n:, n:] - K[n:, :n] @ inverse @ K[:n, n:]
    predicted, sd = model.predict(at, return_std=True, include_noise=False)
    assert np.allclose(predicted, mean, atol=1e-6)
    assert np.allclose(sd**2, cov.diagonal().reshape(-1, 2), atol=1e-6)
    joint = model.predict(at, return_cov=True, include_noise=False)[1]
    assert np.allclose(joint, np.stack([cov[q::2, q::2] for q in range(2)], axis=2), atol=1e-6)
    own = gp.mixing.T @ (gp.unmixed.moments(at)[1][:, :, None] * gp.mixing)
    assert np.allclose(own, [cov[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] for i in range(len(at))], atol=1e-6)


def test_the_bound_of_an_exact_gp_is_its_evidence_which_variances_of_f_and_noise_maximize() -> None:
    model, (X, Y) = fitted(), correlated(600)
    gp = model._gp
    with torch.no_grad():
        K = square_matrix(gp.model.kernel, torch.as_tensor(gp.scaling.scale_x(X[:300]))).numpy()
    Z = np.linalg.solve(gp.mixing.T, Y[:300].T).T - gp.scaling.y_mean
    values, U = np.linalg.eigh(K)
    rotated = U.T @ Z

    def evidence(f_factor: float = 1.0, noise_factor: float = 1.0) -> Array:
        noise = noise_factor * gp.unmixed.noise_variance
        variance = f_factor * gp.scaling.y_scale**2 * np.maximum(values, 0.0)[:, None] + noise
        return -0.5 * (np.log(2.0 * np.pi * variance) + rotated**2 / variance).sum(axis=0)

    total = evidence().sum() - 300 * np.linalg.slogdet(gp.mixing)[1]
    assert model.elbo_ == pytest.approx(total, abs=1e-3)
    for f_factor, noise_factor in ((1.1, 1.0), (0.9, 1.0), (1.0, 1.05), (1.0, 0.95), (1.1, 1.05), (0.9, 0.95)):
        assert (evidence(f_factor, noise_factor) < evidence()).all()


def test_draws_have_the_covariance_between_outputs() -> None:
    model, at = fitted(), np.array([[4.0]])
    gp = model._gp
    _, f_var, noise = gp.unmixed.moments(at)
    draws = model.sample_y(at, n_samples=20_000)[0]
    assert np.cov(draws) == pytest.approx((gp.mixing.T * (f_var + noise)) @ gp.mixing, rel=0.05)
    assert draws.mean(axis=1) == pytest.approx(model.predict(at)[0], abs=0.05)


def test_the_joint_density_of_new_rows_is_that_of_a_normal_distribution_and_higher_than_of_each_output() -> None:
    (X, Y), model = correlated(600), fitted()
    at, y, gp = X[300:], Y[300:], model._gp
    _, f_var, noise = gp.unmixed.moments(at)
    covariance = gp.mixing.T @ ((f_var + noise)[:, :, None] * gp.mixing)
    error = y - model.predict(at)
    square = np.einsum("nq,nqp,np->n", error, np.linalg.inv(covariance), error)
    density = model.log_predictive_density(at, y)
    assert np.allclose(density, -0.5 * (square + np.linalg.slogdet(2.0 * np.pi * covariance)[1]))
    independent = fitted(covariance="independent").log_predictive_density(at, y)
    assert density.mean() > independent.mean() + 0.2
    assert model.elbo_ > fitted(covariance="independent").elbo_ + 50.0


@pytest.mark.slow
def test_calibrated_intervals_of_each_output_cover_as_asked() -> None:
    X, Y = correlated(4000)
    model = CVGPRegressor(output_covariance="learned", random_state=0).fit(X[:2200], Y[:2200])
    assert model._gp.calibration is not None
    low, high = np.moveaxis(model.predict_interval(X[2200:], level=0.9), -1, 0)
    inside = ((low <= Y[2200:]) & (Y[2200:] <= high)).mean(axis=0)
    assert inside == pytest.approx(0.9, abs=0.04)


def test_a_file_keeps_the_covariances(tmp_path: Path) -> None:
    model, X = fitted(), correlated(600)[0][300:310]
    model.save(tmp_path / "two.cvgp")
    again = cvgp.load(tmp_path / "two.cvgp")
    assert np.array_equal(again.sample_y(X), model.sample_y(X))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert np.array_equal(again.output_covariance_, model.output_covariance_)
    assert again.output_covariance == "learned"


def test_calibration_by_rows_of_ones_own_is_in_the_units_of_y() -> None:
    X, Y = correlated(600)
    at, y = X[300:], Y[300:]
    low, high = np.moveaxis(copy(fitted()).calibrate(at, y).predict_interval(at, level=0.8), -1, 0)
    share = ((low <= y) & (y <= high)).mean(axis=0)
    assert (share >= 0.8).all()
    assert (share < 0.87).all()


def test_summaries_of_the_targets_are_in_the_units_of_y() -> None:
    model, Y = fitted(), correlated(600)[1]
    assert np.allclose(model._feature_quantiles.y[0], Y[:300].min(axis=0), rtol=1e-5)
    assert np.allclose(model._gp.y_spread, np.sqrt(model.output_covariance_.diagonal()), rtol=0.5)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "noise": ({"noise": "input-dependent"}, {}),
    "target_transform": ({"target_transform": "yeo-johnson"}, {}),
    "likelihood": ({"likelihood": "student_t"}, {}),
    "n_neighbors": ({"n_neighbors": 10}, {}),
    "mean": ({"mean": "constant"}, {}),
    "private": ({"private": True}, {}),
    "early_stopping": ({"training": TrainingOptions(early_stopping=True)}, {}),
    "groups": ({}, {"groups": np.arange(60) % 10}),
    "time": ({}, {"time": np.arange(60)}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_combined_is_refused_by_name(name: str) -> None:
    options, given = REFUSED[name]
    with pytest.raises(InvalidInputError, match=name):
        CVGPRegressor(output_covariance="learned", **options).fit(*correlated(60), **given)


def test_targets_that_have_no_covariance_to_learn_are_refused() -> None:
    X, Y = correlated(60)
    gaps = np.where(np.arange(60)[:, None] == [3, -1], np.nan, Y)
    model = CVGPRegressor(output_covariance="learned", missing_targets=True)
    for y, reason in (
        (gaps, "lack some targets"),
        (Y[:, :1], "one output"),
        (Y[:, 0], "one output"),
        (np.column_stack([Y, Y.sum(axis=1)]), "combinations"),
        (np.column_stack([Y, np.ones(60)]), "constant"),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            model.fit(X, y)
    with pytest.raises(InvalidInputError, match="output_covariance must be"):
        CVGPRegressor(output_covariance="dense").fit(X, Y)  # type: ignore[arg-type]


def test_its_own_decisions_can_be_repeated_and_those_of_a_fit_with_neighbors_are_refused() -> None:
    X, Y = correlated(300)
    options: dict[str, Any] = {"training": TrainingOptions(max_iter=5)}
    first = CVGPRegressor(20, output_covariance="learned", random_state=0, **options).fit(X, Y)
    again = CVGPRegressor(20, output_covariance="learned", **options).fit(X, Y, decisions=first.decisions_)
    assert np.allclose(again.predict(X), first.predict(X))
    other = CVGPRegressor(20, n_neighbors=5, noise="constant", random_state=0, **options).fit(X, Y)
    with pytest.raises(InvalidInputError, match="decisions"):
        CVGPRegressor(20, output_covariance="learned", **options).fit(X, Y, decisions=other.decisions_)


UPDATES: dict[str, Callable[[CVGPRegressor, Array, Array], Any]] = {
    "partial_fit": lambda model, X, Y: model.partial_fit(X, Y),
    "condition": lambda model, X, Y: model.condition(X, Y),
    "forget": lambda model, X, Y: model.forget(0.5),
    "prune": lambda model, X, Y: model.prune(),
    "grow": lambda model, X, Y: model.grow(400, X, Y),
    "merge": lambda model, X, Y: cvgp.merge([model, model]),
}


@pytest.mark.parametrize("name", UPDATES)
def test_updates_are_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"{name} is not for this model, whose outputs have a learned cov"):
        UPDATES[name](fitted(), *correlated(20))


def test_without_the_option_there_are_no_covariances() -> None:
    model = fitted(covariance="independent")
    assert model._gp.mixing is None
    assert not hasattr(model, "output_covariance_")
    assert not hasattr(model, "noise_covariance_")


def test_the_support_of_a_prediction_adds_up_to_it() -> None:
    model, x = on_points(), np.array([[4.0]])
    for q in range(2):
        own = model._gp.support(x, q)
        assert own.prior[q] + own.weight @ own.residual[:, q] == pytest.approx(model.predict(x)[0, q], rel=1e-6)
    assert model.explain(x, output=1).prediction == pytest.approx(model.predict(x)[0, 1])
