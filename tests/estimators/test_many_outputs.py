"""Several outputs: noise of their own, missing targets, and what such models can and cannot do."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray

import cvgp
from cvgp import CVGPRegressor, TrainingOptions
from cvgp.errors import CVGPWarning, InvalidInputError
from cvgp.gp.kernels import cross_matrix, square_matrix
from cvgp.gp.linalg import JITTER, add_jitter

Array = NDArray[np.float64]
SD = np.array([0.05, 1.0])  # of the noise, whose variances differ by a factor of 400


def waves(count: int, seed: int = 0) -> tuple[Array, Array]:
    """Two smooth functions in the plane, one nearly without noise, and one that is mostly noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (count, 2))
    F = np.column_stack([np.sin(2.0 * X[:, 0]) + X[:, 1], np.cos(1.5 * X[:, 0]) * np.cos(X[:, 1])])
    return X, F + SD * rng.normal(size=F.shape)


def with_gaps(Y: Array, share: float = 0.4, seed: int = 1) -> Array:
    """Targets of the second output are missing at random."""
    gaps = np.random.default_rng(seed).uniform(size=len(Y)) < share
    return np.column_stack([Y[:, 0], np.where(gaps, np.nan, Y[:, 1])])


QUICK = TrainingOptions(max_iter=20)
KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "exact": (150, {"noise": "constant"}),
    "coreset": (400, {"n_coreset": 80, "n_neighbors": 0, "noise": "constant", "training": QUICK}),
    "neighbors": (400, {"n_coreset": 20, "n_neighbors": 15, "noise": "constant", "training": QUICK}),
    "defaults": (900, {}),
}


EVERY = ["exact", "coreset", "neighbors", pytest.param("defaults", marks=pytest.mark.slow)]


@cache
def fitted(kind: str) -> CVGPRegressor:
    count, options = KINDS[kind]
    return CVGPRegressor(random_state=0, **options).fit(*waves(count))


@cache
def with_missing() -> CVGPRegressor:
    X, Y = waves(500)
    options: dict[str, Any] = {"n_neighbors": 0, "noise": "constant", "missing_targets": True}
    return CVGPRegressor(60, random_state=0, training=QUICK, **options).fit(X, with_gaps(Y))


def dense(model: CVGPRegressor, X: Array, y: Array, q: int, at: Array) -> tuple[Array, Array]:
    """Mean and variance of f by the sums over some rows at the model's kernel, points and noise, in matrices."""
    gp, own = model._gp, model.model_
    scale = gp.scaling.y_scale[q]
    noise = np.atleast_1d(model.noise_variance_)[q] / scale**2
    x, x_new = (torch.as_tensor(gp.scaling.scale_x(values)) for values in (X, at))
    with torch.no_grad():
        L = torch.linalg.cholesky(add_jitter(square_matrix(own.kernel, own.X_c), JITTER))
        psi, psi_new = (
            torch.linalg.solve_triangular(L, cross_matrix(own.kernel, own.X_c, values), upper=False).numpy()
            for values in (x, x_new)
        )
        k_nn = square_matrix(own.kernel, x_new).diagonal().numpy()
    precision = np.linalg.inv(psi.T @ psi + noise * np.eye(len(y)))
    between = psi_new.T @ psi
    mean = between @ precision @ ((y - gp.scaling.y_mean[q]) / scale)
    variance = k_nn - ((between @ precision) * between).sum(axis=1)
    return mean * scale + gp.scaling.y_mean[q], variance * scale**2


def agrees_with_matrices(model: CVGPRegressor, X: Array, Y: Array) -> None:
    at = waves(50, seed=2)[0]
    mean, sd = model.predict(at, return_std=True, include_noise=False)
    for q, y in enumerate(Y.T):
        rows = ~np.isnan(y)
        expected, variance = dense(model, X[rows], y[rows], q, at)
        np.testing.assert_allclose(mean[:, q], expected, atol=1e-5 * Y[rows, q].std())
        np.testing.assert_allclose(sd[:, q], np.sqrt(variance), rtol=1e-4)


# Noise of their own


@pytest.mark.parametrize("kind", ["exact", "coreset"])
def test_each_output_is_solved_for_as_if_it_were_alone(kind: str) -> None:
    model = fitted(kind)
    X, Y = waves(KINDS[kind][0])
    agrees_with_matrices(model, X, Y)


def test_each_output_has_its_rows_and_neighbors_at_its_own_noise() -> None:
    model, at = fitted("neighbors"), waves(50, seed=2)[0]
    _, sd = model.predict(at, return_std=True, include_noise=False)
    scaled = sd / model._gp.scaling.y_scale
    assert np.median(scaled[:, 1] / scaled[:, 0]) > 3.0


@pytest.mark.parametrize("kind", EVERY)
def test_noise_and_error_of_each_output_are_found(kind: str) -> None:
    X, Y = waves(2000, seed=3)
    mean, sd = fitted(kind).predict(X, return_std=True)
    np.testing.assert_allclose(np.sqrt(fitted(kind).noise_variance_), SD, rtol=0.5)
    z = (Y - mean) / sd
    np.testing.assert_allclose(z.std(axis=0), 1.0, atol=0.4)
    density = fitted(kind).log_predictive_density(X, Y)
    expected = (-0.5 * (np.log(2.0 * np.pi * sd**2) + z**2)).sum(axis=1)
    assert density.mean() == pytest.approx(expected.mean(), abs=0.1)


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("interval", ["model", "conformal"])
def test_intervals_cover_each_output(kind: str, interval: Any) -> None:
    X, Y = waves(2000, seed=3)
    low, high = np.moveaxis(fitted(kind).predict_interval(X, level=0.9, interval=interval), -1, 0)
    coverage = ((low < Y) & (high > Y)).mean(axis=0)
    assert (coverage > 0.84).all()
    # A variance that a coreset leaves unexplained counts in the noise as well, until intervals are calibrated.
    assert kind == "coreset" or (coverage < 0.96).all()


@pytest.mark.parametrize("kind", ["coreset", "neighbors"])
def test_draws_have_the_covariance_of_each_output(kind: str) -> None:
    model, at = fitted(kind), waves(12, seed=2)[0]
    mean, cov = model.predict(at, return_cov=True)
    draws = model.sample_y(at, 20_000)  # [n, Q, S]
    for q in range(2):
        found = np.cov(draws[:, q] - mean[:, [q]])
        np.testing.assert_allclose(found, cov[:, :, q], atol=0.05 * cov[:, :, q].max())


def test_the_variance_of_the_function_depends_on_the_noise_of_the_output() -> None:
    """Under a common noise both outputs would have the same, in standard deviations of y."""
    _, sd = fitted("coreset").predict(waves(50, seed=2)[0], return_std=True, include_noise=False)
    ratio = np.median(sd / fitted("coreset")._gp.scaling.y_scale, axis=0)
    assert ratio[1] > 2.0 * ratio[0]


def test_pseudo_outputs_have_the_mean_of_the_predictions() -> None:
    model, at = fitted("coreset"), waves(50, seed=2)[0]
    with torch.no_grad():
        mean = model.model_.posterior(torch.as_tensor(model._gp.scaling.scale_x(at))).mean.numpy()
    np.testing.assert_allclose(model._gp.scaling.unscale_y(mean), model.predict(at), atol=1e-5)


def test_noise_that_depends_on_x_has_a_common_shape_and_own_levels() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (400, 1))
    noise = np.exp(0.8 * X) * rng.normal(size=(400, 2)) * [0.02, 0.5]
    model = CVGPRegressor(30, n_neighbors=0, noise="input-dependent", random_state=0, training=QUICK)
    model.fit(X, np.column_stack([np.sin(2.0 * X[:, 0]), np.cos(X[:, 0])]) + noise)
    _, _, sd = model.predict([[-1.5], [1.5]], return_std=True, return_noise=True)
    np.testing.assert_allclose(sd[1] / sd[0], np.exp(2.4), rtol=0.4)
    np.testing.assert_allclose(sd[:, 1] / sd[:, 0], 25.0, rtol=0.4)


# Missing targets


def test_each_output_is_solved_for_by_the_rows_that_have_it() -> None:
    X, Y = waves(500)
    agrees_with_matrices(with_missing(), X, with_gaps(Y))


def test_outputs_that_no_row_shares_are_both_learned() -> None:
    X, Y = waves(300)
    first = X[:, 0] < 0.0
    Y = np.where(np.column_stack([first, ~first]), Y, np.nan)
    model = CVGPRegressor(random_state=0, missing_targets=True).fit(X, Y)
    mean = model.predict(X)
    error = np.nanmean((mean - Y) ** 2, axis=0) / np.nanvar(Y, axis=0)
    assert error[0] < 0.05
    assert error[1] < 0.95
    assert model.n_rows_ == 300


def test_a_size_that_is_given_is_kept() -> None:
    assert len(with_missing().coreset_) <= 60


def test_rows_without_any_target_are_left_out_with_a_warning() -> None:
    X, Y = waves(60)
    Y[:5] = np.nan
    with pytest.warns(CVGPWarning, match="missing in 5 of 60 rows"):
        model = CVGPRegressor(10, random_state=0, training=TrainingOptions(max_iter=3)).fit(X, Y)
    assert model.n_rows_ == 55


def test_some_missing_targets_are_an_error_without_the_flag() -> None:
    X, Y = waves(60)
    with pytest.raises(InvalidInputError, match="missing_targets=True"):
        CVGPRegressor(10).fit(X, with_gaps(Y))


def test_some_missing_targets_of_a_table_are_an_error() -> None:
    X, Y = waves(60)
    frame = pd.DataFrame(np.column_stack([X, with_gaps(Y)]), columns=["a", "b", "first", "second"])
    with pytest.raises(InvalidInputError, match="missing_targets=True"):
        CVGPRegressor(10, missing_targets=True).fit(frame, ["first", "second"])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"n_neighbors": 5}, "n_neighbors"),
        ({"target_transform": "log"}, "target_transform"),
    ],
)
def test_what_missing_targets_exclude_is_named(options: dict[str, Any], named: str) -> None:
    X, Y = waves(60)
    with pytest.raises(InvalidInputError, match=named):
        CVGPRegressor(10, missing_targets=True, **options).fit(X, with_gaps(Y))


# What such models can do


@pytest.mark.parametrize("make", [lambda: fitted("coreset"), lambda: fitted("neighbors"), with_missing])
def test_a_saved_model_predicts_the_same(make: Callable[[], CVGPRegressor], tmp_path: Path) -> None:
    model, at = make(), waves(20, seed=2)[0]
    model.save(tmp_path / "model.cvgp")
    again = cvgp.load(tmp_path / "model.cvgp")
    for found, expected in zip(again.predict(at, return_std=True), model.predict(at, return_std=True), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(again.predict_interval(at), model.predict_interval(at))
    assert again.get_params()["missing_targets"] == model.missing_targets


def test_rows_that_come_later_count_as_those_of_the_fit() -> None:
    model, (X, Y), (X_new, Y_new) = deepcopy(fitted("coreset")), waves(400), waves(100, seed=5)
    noise = model.noise_variance_
    model.partial_fit(X_new, Y_new)
    np.testing.assert_array_equal(model.noise_variance_, noise)
    agrees_with_matrices(model, np.vstack([X, X_new]), np.vstack([Y, Y_new]))


def test_neighbors_that_come_later_are_used_at_the_noise_of_each_output() -> None:
    X_new, Y_new = waves(100, seed=5)
    before = fitted("neighbors")
    after = before.condition(X_new, Y_new)
    sd = [model.predict(X_new[:20], return_std=True, include_noise=False)[1] for model in (before, after)]
    assert (np.median(sd[1] / sd[0], axis=0) < 1.0).all()


def test_a_pruned_model_keeps_the_noise_of_each_output() -> None:
    model = deepcopy(fitted("coreset"))
    assert model.prune(0.01) > 0
    X, Y = waves(400)
    agrees_with_matrices(model, X, Y)


def test_calibration_by_own_rows_is_that_of_each_output() -> None:
    model = deepcopy(with_missing()).calibrate(*waves(400, seed=6))
    X, Y = waves(2000, seed=3)
    low, high = np.moveaxis(model.predict_interval(X, level=0.8), -1, 0)
    np.testing.assert_allclose(((low < Y) & (high > Y)).mean(axis=0), 0.8, atol=0.08)


REFUSED: dict[str, Callable[[CVGPRegressor, Path], Any]] = {
    "condition": lambda model, _: model.condition(*waves(10)),
    "merge": lambda model, _: cvgp.merge([model]),
    "export_numpy": lambda model, folder: model.export_numpy(folder / "model.npz"),
    "from_regressor": lambda model, _: model.to_botorch(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_a_common_noise_is_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=f"{name} is not for this model.*noise of their own"):
        REFUSED[name](fitted("coreset"), tmp_path)


@pytest.mark.parametrize("name", ["prune", "forget", "partial_fit", "grow"])
def test_what_needs_common_rows_is_refused_by_name(name: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {"prune": (), "forget": (0.5,), "partial_fit": waves(9)}
    with pytest.raises(InvalidInputError, match=f"{name} is not for this model.*other rows"):
        getattr(deepcopy(with_missing()), name)(*arguments.get(name, (70, *waves(9))))


@pytest.mark.parametrize("kind", ["exact", "coreset", "neighbors"])
@pytest.mark.parametrize("output", [0, 1])
def test_the_weights_of_an_explanation_give_the_mean_of_each_output(kind: str, output: int) -> None:
    model, row = fitted(kind), waves(1, seed=4)[0]
    found = model.explain(row, output=output)
    mean = found.support.prior + found.support.weight @ found.support.residual
    assert mean[output] == pytest.approx(model.predict(row)[0, output], abs=1e-7)
    assert found.effects.sum() == pytest.approx(found.prediction - found.baseline, abs=1e-8)


def test_a_private_model_solves_for_each_output_at_its_points() -> None:
    X, Y = waves(400)
    model = CVGPRegressor(20, private=True, random_state=0, training=TrainingOptions(max_iter=20)).fit(X, Y)
    rows = np.abs(X[:, None] - model.coreset_.X).max(axis=2)
    assert rows.min() > 1e-9
    agrees_with_matrices(model, X, Y)
