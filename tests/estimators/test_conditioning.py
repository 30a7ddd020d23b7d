"""CVGPRegressor.condition: a fitted estimator that also sees new rows."""

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from cvgp import CVGPRegressor, TrainingOptions
from cvgp.data.rows import Rows
from cvgp.errors import InvalidInputError
from cvgp.estimators import updating
from cvgp.estimators.coresets import append_rows
from cvgp.fitting.heuristics import Heuristics
from cvgp.fitting.neighbors import adopt_neighbors
from cvgp.gp.kernels import square_matrix
from tests.flat_options import make_regressor

Array = NDArray[np.float64]
FIXED: dict[str, Any] = {"max_iter": 10, "random_state": 0}


def waves(n: int, seed: int = 0, dims: int = 2) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, dims))
    return X, np.sin(3.0 * X.sum(axis=1)) + 0.1 * rng.standard_normal(n)


def half_noisy(n: int, seed: int = 0) -> tuple[Array, Array]:
    """One half of the inputs has far more noise than the other."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 4.0, (n, 1))
    return X, np.sin(3.0 * X[:, 0]) + np.where(X[:, 0] > 2.0, 1.5, 0.1) * rng.standard_normal(n)


def from_scratch(model: CVGPRegressor, X: Array, y: Array, weight: Array | None = None) -> CVGPRegressor:
    """The model with statistics of all rows, the new ones after those that it consults."""
    gp, found = model._gp, deepcopy(model)
    assert gp.kept is not None
    new = gp.scaling.tensors(Rows(X, y.reshape(len(X), -1), weight))
    if gp.noise is not None and gp.weighs_rows:
        new = new._replace(noise_variance=gp.noise.beyond_base(new.x))
    rows = append_rows(gp.kept.rows, new)
    kept, _ = adopt_neighbors(found.model_, rows, model.n_neighbors_)
    found._gp = found._gp.with_model(found.model_, kept, kept.statistics)
    return found


def assert_predicts_the_same(model: CVGPRegressor, other: CVGPRegressor, X: Array, tolerance: float = 1e-8) -> None:
    for one, two in zip(model.predict(X, return_std=True), other.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(one, two, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_with_neighbours_it_is_the_model_of_all_rows_in_that_order(outputs: int, weighted: bool) -> None:
    (X, y), (X_new, y_new) = waves(150), waves(40, seed=1)
    Y, Y_new = (y, y_new) if outputs == 1 else (np.column_stack([y, X[:, 0]]), np.column_stack([y_new, X_new[:, 0]]))
    weight = np.random.default_rng(2).integers(1, 4, len(X_new)).astype(float) if weighted else None
    model = make_regressor(8, n_neighbors=10, **FIXED).fit(X, Y)
    after = model.condition(X_new, Y_new, sample_weight=weight)
    assert_predicts_the_same(after, from_scratch(model, X_new, Y_new, weight), waves(20, seed=3)[0])


def test_with_all_rows_as_neighbours_it_is_the_exact_gp() -> None:
    (X, y), (X_new, y_new) = waves(60), waves(20, seed=1)
    model = make_regressor(8, n_neighbors=100, **FIXED).fit(X, y)
    points = waves(7, seed=3)[0]
    mean, sd = model.condition(X_new, y_new).predict(points, return_std=True, include_noise=False)
    scaling, all_y = model._gp.scaling, np.concatenate([y, y_new])
    with torch.no_grad():
        x = scaling.scale_x(np.vstack([X, X_new, points]))
        K = square_matrix(model.model_.kernel, torch.as_tensor(x)).numpy()
    n = len(all_y)
    solve = np.linalg.solve(K[:n, :n] + model.model_.noise.item() * np.eye(n), K[:n, n:])
    np.testing.assert_allclose(mean, scaling.unscale_y(solve.T @ scaling.scale_y(all_y[:, None]))[:, 0], atol=1e-7)
    variance = (K[n:, n:] - K[n:, :n] @ solve).diagonal()
    np.testing.assert_allclose(sd, np.sqrt(variance) * scaling.y_scale, atol=1e-7)


def test_rows_are_weighed_by_the_noise_that_depends_on_x() -> None:
    (X, y), (X_new, y_new) = half_noisy(400), half_noisy(60, seed=1)
    model = make_regressor(8, n_neighbors=10, noise="input-dependent", **FIXED).fit(X, y)
    assert model._gp.weighs_rows, "as this test needs"
    after, points = model.condition(X_new, y_new), half_noisy(20, seed=3)[0]
    assert_predicts_the_same(after, from_scratch(model, X_new, y_new), points)
    np.testing.assert_array_equal(
        after.predict(points, return_noise=True)[-1], model.predict(points, return_noise=True)[-1]
    )


@pytest.mark.parametrize("neighbors", [0, 10])
def test_the_estimator_of_before_stays_as_it_is(neighbors: int) -> None:
    (X, y), (X_new, y_new) = waves(150), waves(40, seed=1)
    model = make_regressor(8, n_neighbors=neighbors, **FIXED).fit(X, y)
    before = model.predict(X_new, return_std=True), model.elbo_, model.n_rows_, model.coreset_
    after = model.condition(X_new, y_new)
    np.testing.assert_array_equal(model.predict(X_new, return_std=True), before[0])
    assert (model.elbo_, model.n_rows_, model.coreset_) == before[1:]
    assert after.n_rows_ == 190
    after.prune(0.1)
    assert model.coreset_ == before[3]


@pytest.mark.parametrize("outputs", [1, 2])
def test_without_neighbours_it_is_the_coreset_s_posterior_in_closed_form(outputs: int) -> None:
    (X, y), (X_new, y_new) = waves(150), waves(40, seed=1)
    Y, Y_new = (y, y_new) if outputs == 1 else (np.column_stack([y, X[:, 0]]), np.column_stack([y_new, X_new[:, 0]]))
    known = np.random.default_rng(2).uniform(0.0, 0.1, len(X_new)) if outputs == 1 else None
    # After early stopping, outputs share a noise.
    options = {"n_neighbors": 0, "noise": "constant", "early_stopping": outputs > 1}
    model, points = make_regressor(8, **FIXED | options).fit(X, Y), waves(20, seed=3)[0]
    after = model.condition(X_new, Y_new, noise_variance=known)
    new = model._gp.scaling.tensors(Rows(X_new, Y_new.reshape(len(X_new), -1), None, known))
    with torch.no_grad():
        process = model.model_.process().condition(new.x, new.y, model.model_.total_noise(new.noise_variance))
        posterior = process(torch.as_tensor(model._gp.scaling.scale_x(points)))
        expected, variance = posterior.mean.numpy(), posterior.variance.numpy()
    mean = after._gp.scaling.scale_y(after.predict(points).reshape(20, -1))
    np.testing.assert_allclose(mean, expected.reshape(20, -1), atol=1e-7)
    _, sd = after.predict(points, return_std=True, include_noise=False)
    scale = model._gp.scaling.y_scale
    np.testing.assert_allclose(sd.reshape(20, -1), np.sqrt(variance)[:, None] * scale, atol=1e-7)


def test_without_neighbours_the_bound_gains_the_joint_density_of_the_new_rows() -> None:
    (X, y), (X_new, y_new) = waves(150), waves(12, seed=1)
    model = make_regressor(8, n_neighbors=0, noise="constant", **FIXED).fit(X, y)
    mean, cov = model.predict(X_new, return_cov=True)
    _, log_det = np.linalg.slogdet(2.0 * np.pi * cov)
    density = -0.5 * (log_det + (y_new - mean) @ np.linalg.solve(cov, y_new - mean))
    assert model.condition(X_new, y_new).elbo_ - model.elbo_ == pytest.approx(density, rel=1e-6)


@pytest.mark.parametrize("neighbors", [0, 100])
def test_a_weight_counts_as_a_row_given_as_often(neighbors: int) -> None:
    (X, y), (X_new, y_new) = waves(80), waves(5, seed=1)
    model = make_regressor(8, n_neighbors=neighbors, **FIXED).fit(X, y)
    weighted = model.condition(X_new, y_new, sample_weight=np.full(5, 2.0))
    repeated = model.condition(np.repeat(X_new, 2, axis=0), np.repeat(y_new, 2))
    assert_predicts_the_same(weighted, repeated, waves(20, seed=3)[0], tolerance=1e-5)
    assert weighted.elbo_ == pytest.approx(repeated.elbo_, rel=1e-5)
    assert weighted.n_rows_ == repeated.n_rows_


@pytest.mark.parametrize("neighbors", [0, 10])
@pytest.mark.parametrize(
    ("X_new", "y_new", "message"),
    [
        (np.zeros((3, 5)), np.zeros(3), "features"),
        (np.full((3, 2), np.inf), np.zeros(3), "infinity"),
        (np.zeros((3, 2)), np.array([0.0, np.inf, 0.0]), "infinity"),
        (np.zeros((3, 2)), np.zeros((3, 2)), "outputs"),
        (np.zeros((3, 2)), np.zeros(4), "inconsistent"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(neighbors: int, X_new: Array, y_new: Array, message: str) -> None:
    model = CVGPRegressor(4, n_neighbors=neighbors, random_state=0, training=TrainingOptions(max_iter=2)).fit(
        *waves(30)
    )
    with pytest.raises(InvalidInputError, match=message):
        model.condition(X_new, y_new)


def test_more_rows_than_predictions_may_consult_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = CVGPRegressor(4, n_neighbors=5, random_state=0, training=TrainingOptions(max_iter=2)).fit(*waves(30))
    monkeypatch.setattr(updating, "Heuristics", lambda: Heuristics(most_neighbor_rows=35))
    with pytest.raises(InvalidInputError, match=r"at most 35 rows.*would be 36"):
        model.condition(*waves(6))
