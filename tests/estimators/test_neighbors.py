"""CVGPRegressor(n_neighbors=...): predictions that consult the nearest training rows."""

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import cvgp
from cvgp import CVGPRegressor
from cvgp.errors import CVGPError, CVGPWarning
from cvgp.gp.kernels import square_matrix
from tests.flat_options import make_regressor

Array = NDArray[np.float64]
FIXED: dict[str, Any] = {"max_iter": 10, "random_state": 0}
"""A set length leaves the kernel of the fit as it is, so that these fits take no time."""


def smooth(n: int, seed: int = 0, dims: int = 2) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, dims))
    return X, np.sin(2.0 * X.sum(axis=1)) + 0.1 * rng.standard_normal(n)


def rough(n: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, 2))
    return X, np.sin(20.0 * X[:, 0]) * np.cos(20.0 * X[:, 1]) + 0.1 * rng.standard_normal(n)


def exact(model: CVGPRegressor, X: Array, y: Array, X_new: Array, weight: Array | None = None) -> tuple[Array, Array]:
    """Mean and covariance of f by the naive formulas, with the kernel and the noise of a model, in the user's units."""
    scaling, outputs = model._gp.scaling, y.reshape(len(y), -1)
    x = scaling.scale_x(np.vstack([X, X_new]))
    with torch.no_grad():
        K = square_matrix(model.model_.kernel, torch.as_tensor(x)).numpy()
    noise = model.model_.noise.item() / (np.ones(len(X)) if weight is None else weight)
    n = len(X)
    solve = np.linalg.solve(K[:n, :n] + np.diag(noise), K[:n, n:])  # [N, n]
    mean = scaling.unscale_y(solve.T @ scaling.scale_y(outputs))
    return mean, K[n:, n:] - K[n:, :n] @ solve


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_with_all_rows_as_neighbours_it_is_the_exact_gp(outputs: int, weighted: bool) -> None:
    X, y = smooth(60)
    X_new, _ = smooth(7, seed=1)
    weight = np.random.default_rng(2).integers(1, 4, len(X)).astype(float) if weighted else None
    Y = y if outputs == 1 else np.column_stack([y, np.cos(X[:, 0])])
    model = make_regressor(8, n_neighbors=100, **FIXED).fit(X, Y, sample_weight=weight)
    mean, sd = model.predict(X_new, return_std=True, include_noise=False)
    _, joint = model.predict(X_new, return_cov=True, include_noise=False)
    scale = model._gp.scaling.y_scale
    for q in range(outputs):
        # A row of weight w has a w-th of the noise, which is that of its output.
        own = model.model_.noise.item() / (np.atleast_1d(model.noise_variance_)[q] / scale[q] ** 2)
        expected, cov = exact(model, X, Y, X_new, own * (np.ones(len(X)) if weight is None else weight))
        np.testing.assert_allclose(mean.reshape(7, -1)[:, q], expected[:, q], atol=1e-7)
        np.testing.assert_allclose(sd.reshape(7, -1)[:, q], np.sqrt(cov.diagonal()) * scale[q], atol=1e-7)
        np.testing.assert_allclose(joint.reshape(7, 7, -1)[:, :, q], cov * scale[q] ** 2, atol=1e-6)


def test_known_noise_counts_in_the_rows_that_are_consulted() -> None:
    X, y = smooth(60)
    known = np.random.default_rng(2).uniform(0.0, 0.1, len(X))
    model = make_regressor(8, n_neighbors=100, **FIXED).fit(X, y, noise_variance=known)
    scale = model._gp.scaling.y_scale[0]
    learned = model.model_.noise.item()
    X_new, _ = smooth(7, seed=1)
    expected, _ = exact(model, X, y, X_new, learned / (learned + known / scale**2))
    np.testing.assert_allclose(model.predict(X_new), expected[:, 0], atol=1e-7)


def test_every_kind_of_prediction_consults_the_neighbours() -> None:
    X, y = smooth(300)
    alone = make_regressor(5, **FIXED).fit(X, y)
    model = make_regressor(5, n_neighbors=8, noise="constant", **FIXED).fit(X, y)
    assert (alone.n_neighbors_, model.n_neighbors_) == (0, 8)
    X_new = X[:20]
    mean, sd = model.predict(X_new, return_std=True)
    assert np.abs(mean - alone.predict(X_new)).max() > 1e-4
    median = model.predict_quantiles(X_new, 0.5, interval="model")
    np.testing.assert_allclose(median[:, 0], mean, rtol=1e-12)
    z = (y[:20] - mean) / sd
    np.testing.assert_allclose(
        model.log_predictive_density(X_new, y[:20]), -0.5 * z**2 - np.log(sd * np.sqrt(2 * np.pi))
    )
    draws = model.sample_y(X_new, 4000)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=5 * sd.max() / np.sqrt(4000))
    np.testing.assert_allclose(draws.std(axis=1), sd, rtol=0.1)


@pytest.mark.parametrize("bad", [-1, 2.5, "many", True, None])
def test_what_is_no_number_of_neighbours_is_refused(bad: Any) -> None:
    X, y = smooth(20)
    with pytest.raises(CVGPError, match="neighbors must be"):
        CVGPRegressor(4, n_neighbors=bad).fit(X, y)


@pytest.mark.parametrize("said", [{"max_iter": 10}, {"solver": "lbfgs"}, {"bound": "tight"}, {"early_stopping": True}])
@pytest.mark.slow
def test_auto_fits_the_coreset_alone_where_the_user_says_how_to_train_it(said: dict[str, Any]) -> None:
    X, y = rough(300)
    auto, alone = (make_regressor(8, n_neighbors=k, random_state=0, **said).fit(X, y) for k in ("auto", 0))
    assert auto.n_neighbors_ == 0
    assert (auto.predict(X) == alone.predict(X)).all()


@pytest.mark.slow
def test_auto_keeps_neighbours_where_a_function_is_rough() -> None:
    X, y = rough(3000)
    X_new, y_new = rough(300, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = CVGPRegressor(20, n_neighbors="auto", max_time=60, random_state=0).fit(X, y)
    assert model.n_neighbors_ >= 20
    assert model.solver_ == "closed form"
    assert np.sqrt(np.mean((model.predict(X_new) - y_new) ** 2)) < 0.2  # the noise alone is 0.1, and y is 0.5


@pytest.mark.slow
def test_smooth_functions_get_smooth_kernels_and_more_neighbours() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 6))
    frequencies, phases = rng.normal(size=(6, 100)) / 2.0, rng.uniform(0.0, 2.0 * np.pi, 100)
    y = np.cos(X @ frequencies + phases).mean(axis=1) * np.sqrt(200.0) + 0.02 * rng.standard_normal(2500)
    shared: dict[str, Any] = {"n_coreset": 50, "random_state": 0}
    model = CVGPRegressor(**shared).fit(X[:2000], y[:2000])
    plain = CVGPRegressor(**shared, kernel="matern32", n_neighbors=20).fit(X[:2000], y[:2000])
    assert model.n_neighbors_ > 20
    densities = [one.log_predictive_density(X[2000:], y[2000:]).mean() for one in (model, plain)]
    assert densities[0] > densities[1] + 0.1
    again = CVGPRegressor(**shared).fit(X[:2000], y[:2000], decisions=model.decisions_)
    np.testing.assert_allclose(again.predict(X[2000:]), model.predict(X[2000:]))


@pytest.mark.slow
def test_auto_drops_neighbours_where_the_coreset_says_all() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (1000, 2))
    y = np.sin(X.sum(axis=1)) + 0.3 * rng.standard_normal(1000)
    alone = CVGPRegressor(20, n_neighbors=0, noise="constant", random_state=0).fit(X, y)
    model = CVGPRegressor(20, noise="constant", random_state=0).fit(X, y)
    assert model.n_neighbors_ == 0
    assert (model.predict(X) == alone.predict(X)).all()


def test_a_pruned_or_grown_model_consults_the_rows_with_its_new_coreset() -> None:
    X, y = smooth(60)
    X_new, _ = smooth(7, seed=1)
    model = make_regressor(8, n_neighbors=100, **FIXED).fit(X, y)
    expected, _ = exact(model, X, y, X_new)
    assert model.prune(tolerance=1.0) > 0
    assert model.n_neighbors_ == 100
    np.testing.assert_allclose(model.predict(X_new), expected[:, 0], atol=1e-7)
    # With all rows as neighbours, the bound is the log marginal likelihood, up to what M weights can express.
    before = model.elbo_
    model.grow(12, X, y)
    assert model.n_neighbors_ == 100
    assert model.elbo_ == pytest.approx(before, abs=2.0)
    np.testing.assert_allclose(model.predict(X_new), expected[:, 0], atol=1e-7)
    model.grow(14, X[:30], y[:30])
    np.testing.assert_allclose(model.predict(X_new), exact(model, X[:30], y[:30], X_new)[0][:, 0], atol=1e-7)


def test_a_pickled_model_is_no_larger_after_predictions_and_predicts_the_same() -> None:
    X, y = smooth(300)
    model = make_regressor(8, n_neighbors=10, **FIXED).fit(X, y)
    size = len(pickle.dumps(model))
    mean, sd = model.predict(X, return_std=True)
    stored = pickle.dumps(model)
    assert len(stored) <= size
    again = pickle.loads(stored).predict(X, return_std=True)
    np.testing.assert_array_equal(again, (mean, sd))


def test_merging_says_that_neighbours_are_left_out() -> None:
    X, y = smooth(120)
    shards = [make_regressor(8, n_neighbors=5, **FIXED).fit(X[i::2], y[i::2]) for i in range(2)]
    with pytest.warns(CVGPWarning, match="no neighbors"):
        merged = cvgp.merge(shards)
    assert merged.n_neighbors_ == 0
    assert np.sqrt(np.mean((merged.predict(X) - y) ** 2)) < np.std(y)
