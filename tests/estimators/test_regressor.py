"""The estimator as a user meets it: what it learns, in which units, and what it predicts."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from scipy import stats
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

import cvgp
from cvgp import Coreset, CVGPRegressor
from cvgp.errors import InvalidTypeError
from cvgp.fitting.monitor import FitEvent
from cvgp.gp.kernels import KERNEL_NAMES, evaluate
from tests import reference as ref
from tests.flat_options import make_regressor

N = 100
UNITS = 2.0**20  # a power of two: no digit is lost


def function(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 2])


def make_data(num_rows: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A function of the first and third of four inputs, with noise of sd 0.1."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, size=(num_rows, 4))
    return x, function(x) + 0.1 * rng.normal(size=num_rows)


X, Y = make_data()
NEW, NEW_Y = make_data(200, seed=1)


def regressor(**options: Any) -> CVGPRegressor:
    return make_regressor(**{"n_coreset": 15, "max_iter": 40, "random_state": 0, **options})


def quick(**options: Any) -> CVGPRegressor:
    """For what does not depend on how well the function is learned."""
    return regressor(**{"n_coreset": 6, "max_iter": 5, **options})


@pytest.fixture(scope="module")
def fitted() -> CVGPRegressor:
    return regressor(noise="constant").fit(X, Y)


@pytest.fixture(scope="module")
def two_outputs() -> CVGPRegressor:
    return regressor(noise="constant").fit(X, np.stack([Y, 100.0 - 20.0 * Y], 1))


def assert_same_predictions(a: CVGPRegressor, b: CVGPRegressor, x: np.ndarray = NEW) -> None:
    """Equal to the bit."""
    for found, expected in zip(a.predict(x, return_std=True), b.predict(x, return_std=True), strict=True):
        np.testing.assert_array_equal(found, expected)


# What is learned


def test_function_noise_and_relevant_inputs_are_learned(fitted: CVGPRegressor) -> None:
    assert np.sqrt(np.mean((fitted.predict(NEW) - function(NEW)) ** 2)) < 0.1
    assert fitted.noise_variance_ == pytest.approx(0.01, rel=0.5)
    assert fitted.score(NEW, NEW_Y) > LinearRegression().fit(X, Y).score(NEW, NEW_Y) + 0.2
    assert set(fitted.feature_importances_.argsort()[-2:]) == {0, 2}


@pytest.mark.parametrize(
    ("options", "least"),
    [
        *(({"kernel": name, "max_iter": 15}, 0.4) for name in KERNEL_NAMES if name not in ("periodic", "tanimoto")),
        *(({"init": init}, 0.9) for init in ("random", "greedy")),
        ({"solver": "adam"}, 0.8),
        ({"mean": "constant"}, 0.8),
        ({"solver": "paper", "max_iter": 30, "learning_rate": 0.01}, 0.5),
    ],
    ids=str,
)
def test_every_option_learns_the_function(options: dict[str, Any], least: float) -> None:
    assert regressor(**options).fit(X, Y).score(NEW, NEW_Y) > least


def test_intervals_of_data_from_a_gaussian_process_cover_what_they_say() -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(-2.0, 2.0, size=(600, 2))
    K = ref.rbf(x, x, np.array([0.8, 1.2]), 1.0)
    y = np.linalg.cholesky(K + 0.09 * np.eye(600)) @ rng.normal(size=600)
    model = regressor(kernel="rbf", n_coreset=40).fit(x[:300], y[:300])
    low, high = model.predict_quantiles(x[300:], [0.05, 0.95]).T
    inside = int(((low < y[300:]) & (y[300:] < high)).sum())
    assert stats.binomtest(inside, 300, 0.9).pvalue > 1e-3


@pytest.mark.parametrize(("count", "size", "slack"), [(N, 15, 30.0), (30, 30, 2.0)])
def test_the_bound_is_below_the_exact_evidence_and_near_it(count: int, size: int, slack: float) -> None:
    model = regressor(n_coreset=size, kernel="rbf", noise="constant").fit(X[:count], Y[:count])
    scaling = model._gp.scaling
    with torch.no_grad():
        x = torch.tensor(scaling.scale_x(X[:count]))
        K = evaluate(model.model_.kernel, x, x).numpy() + model.model_.noise.item() * np.eye(count)
    exact = stats.multivariate_normal(np.zeros(count), K).logpdf(scaling.scale_y(Y[:count, None])[:, 0])
    exact -= count * np.log(scaling.y_scale[0])
    assert exact - slack < model.elbo_ <= exact + 1e-3


# Units


def test_results_have_the_units_of_y(fitted: CVGPRegressor) -> None:
    other = regressor(noise="constant").fit(X, UNITS * Y)
    for found, own in zip(other.predict(NEW, return_std=True), fitted.predict(NEW, return_std=True), strict=True):
        np.testing.assert_array_equal(found, UNITS * own)
    assert other.noise_variance_ == UNITS**2 * fitted.noise_variance_
    own = fitted.coreset_
    assert other.coreset_ == Coreset(own.X, UNITS * own.y, own.beta)
    assert other.elbo_ == pytest.approx(fitted.elbo_ - N * np.log(UNITS), abs=1e-9)


# Rows


def test_the_order_of_rows_does_not_matter(fitted: CVGPRegressor) -> None:
    order = np.random.default_rng(5).permutation(N)
    assert_same_predictions(regressor(noise="constant").fit(X[order], Y[order]), fitted)


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_weights_are_repeats(solver: str) -> None:
    counts = np.random.default_rng(6).integers(0, 4, size=N)
    weighted = regressor(solver=solver).fit(X, Y, sample_weight=counts)
    repeated = regressor(solver=solver).fit(X.repeat(counts, axis=0), Y.repeat(counts))
    np.testing.assert_allclose(weighted.predict(NEW), repeated.predict(NEW), rtol=1e-7)
    assert weighted.elbo_ == pytest.approx(repeated.elbo_, rel=1e-7)


def test_known_noise_weighs_rows_and_is_not_learned_again() -> None:
    x = np.linspace(-2.0, 2.0, 120)[:, None]
    true, rng = np.sin(2.0 * x[:, 0]), np.random.default_rng(7)
    variance = np.tile([1e-4, 4.0], 60)
    y = true + np.sqrt(variance) * rng.normal(size=120)
    models = [regressor().fit(x, y, noise_variance=known) for known in (variance, None)]
    errors = [np.abs(model.predict(x) - true).mean() for model in models]
    assert errors[0] < 0.02 < errors[1]
    assert models[0].noise_variance_ < 0.03


# Predictions


def test_moments_agree_with_each_other(fitted: CVGPRegressor) -> None:
    mean, sd = fitted.predict(NEW, return_std=True)
    np.testing.assert_array_equal(fitted.predict(NEW), mean)
    f_sd = fitted.predict(NEW, return_std=True, include_noise=False)[1]
    np.testing.assert_allclose(sd**2 - f_sd**2, fitted.noise_variance_, rtol=1e-9)
    known = np.linspace(0.0, 2.0, len(NEW))
    _, with_known = fitted.predict(NEW, return_std=True, noise_variance=known)
    np.testing.assert_allclose(with_known**2 - sd**2, known, atol=1e-12)
    for include_noise, own in ((True, sd), (False, f_sd)):
        _, cov = fitted.predict(NEW, return_cov=True, include_noise=include_noise)
        np.testing.assert_allclose(cov.diagonal(), own**2, rtol=1e-7)
    assert np.linalg.eigvalsh(fitted.predict(NEW, return_cov=True)[1]).min() > 0.0
    _, sd = fitted.predict(np.array([[0.0] * 4, [50.0] * 4]), return_std=True)
    assert sd[1] > 3.0 * sd[0]


def test_quantiles_and_densities_are_those_of_the_normal_distribution(fitted: CVGPRegressor) -> None:
    mean, sd = fitted.predict(NEW, return_std=True)
    levels = [0.05, 0.5, 0.9]
    expected = stats.norm(mean[:, None], sd[:, None]).ppf(levels)
    np.testing.assert_allclose(fitted.predict_quantiles(NEW, levels, interval="model"), expected, rtol=1e-9)
    np.testing.assert_allclose(fitted.log_predictive_density(NEW, NEW_Y), stats.norm(mean, sd).logpdf(NEW_Y), rtol=1e-9)
    np.testing.assert_array_equal(fitted.predict_interval(NEW), fitted.predict_quantiles(NEW, [0.05, 0.95]))
    assert fitted.predict_quantiles(NEW, 0.5).shape == (len(NEW), 1)


def test_draws_have_the_predicted_moments(fitted: CVGPRegressor) -> None:
    points = NEW[:4] * 0.1  # close to each other, and so correlated
    mean, cov = fitted.predict(points, return_cov=True)
    draws = fitted.sample_y(points, 20000, 1)
    np.testing.assert_allclose(np.cov(draws), cov, atol=0.05 * cov.max())
    np.testing.assert_array_less(np.abs(draws.mean(1) - mean), 5.0 * np.sqrt(cov.diagonal() / 20000))
    np.testing.assert_array_equal(fitted.sample_y(points, 5, 1), fitted.sample_y(points, 5, 1))
    assert (fitted.sample_y(points, 5, 1) != fitted.sample_y(points, 5, 2)).all()


def test_several_outputs_are_predicted_together(two_outputs: CVGPRegressor, fitted: CVGPRegressor) -> None:
    mean, sd = two_outputs.predict(NEW, return_std=True)
    np.testing.assert_allclose(mean[:, 1], 100.0 - 20.0 * mean[:, 0], rtol=1e-6)
    np.testing.assert_allclose(mean[:, 0], fitted.predict(NEW), atol=0.1)
    np.testing.assert_allclose(two_outputs.noise_variance_[1], 400.0 * two_outputs.noise_variance_[0], rtol=1e-6)
    y = np.stack([NEW_Y, 100.0 - 20.0 * NEW_Y], 1)
    _, cov = two_outputs.predict(NEW[:5], return_cov=True)
    quantiles, draws = two_outputs.predict_quantiles(NEW[:5], [0.1, 0.5, 0.9]), two_outputs.sample_y(NEW[:5], 7)
    shapes = [a.shape for a in (cov, quantiles, draws, two_outputs.coreset_.y, two_outputs.predict_interval(NEW[:5]))]
    assert shapes == [(5, 5, 2), (5, 2, 3), (5, 2, 7), (15, 2), (5, 2, 2)]
    if two_outputs.noise_ == "constant":
        expected = stats.norm(mean, sd).logpdf(y).sum(1)
        np.testing.assert_allclose(two_outputs.log_predictive_density(NEW, y), expected, rtol=1e-9)
    assert quick().fit(X, Y[:, None]).predict(NEW).shape == (len(NEW), 1)


# Containers


def test_tensors_lists_and_masked_arrays_that_hide_nothing_are_accepted(fitted: CVGPRegressor) -> None:
    model = regressor(noise="constant").fit(torch.tensor(X), torch.tensor(Y))
    points = (torch.tensor(NEW, requires_grad=True), NEW.tolist(), np.ma.masked_array(NEW, mask=False))
    for own in points:
        np.testing.assert_array_equal(model.predict(own), fitted.predict(NEW))


# The course of a fit


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_the_random_state_decides_the_result_to_the_bit(solver: str) -> None:
    states = (0, 0, np.random.RandomState(0), 1)
    first, *same, other = (regressor(solver=solver, max_iter=20, random_state=s).fit(X, Y) for s in states)
    for model in same:
        assert_same_predictions(first, model)
    assert (first.predict(NEW) != other.predict(NEW)).any()


def test_a_fit_that_stopped_by_itself_converged() -> None:
    model = regressor(tol=0.05, max_iter=200).fit(X, Y)
    assert model.converged_
    assert model.n_iter_ < 200
    model = regressor(early_stopping=True, max_iter=3000, n_iter_no_change=3, learning_rate=0.3).fit(X, Y)
    assert model.converged_
    assert model.n_iter_ < 3000
    assert 0.0 < model.history_["validation_rmse"][-1] < 1.0


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_a_callback_sees_each_iteration_and_may_end_the_fit(solver: str) -> None:
    events: list[FitEvent] = []

    def stop(event: FitEvent) -> bool:
        events.append(event)
        return event.phase == solver and event.iteration == 30

    model = regressor(solver=solver, max_iter=500, callbacks=[stop]).fit(X, Y)
    assert model.n_iter_ == 30
    assert [event.iteration for event in events if event.phase == solver] == list(range(1, 31))
    assert model.score(NEW, NEW_Y) > 0.8


def test_only_a_verbose_fit_prints(capsys: pytest.CaptureFixture[str]) -> None:
    quick().fit(X, Y)
    assert capsys.readouterr().out == ""
    quick(verbose=1).fit(X, Y)
    assert "lbfgs" in capsys.readouterr().out


def test_a_fit_works_where_gradients_are_switched_off() -> None:
    with torch.no_grad():
        assert np.isfinite(quick().fit(X, Y).elbo_)


# Parameters


def test_a_given_coreset_is_where_the_fit_starts(fitted: CVGPRegressor) -> None:
    start = Coreset(10.0 * X[:3], 5.0 + Y[:3], [1.0, 2.0, 3.0])
    model = quick(init=start, solver="adam", max_iter=1, learning_rate=1e-12).fit(10.0 * X, 5.0 + Y)
    np.testing.assert_allclose(model.coreset_.X, start.X, atol=1e-8)
    assert regressor(init=fitted.coreset_, max_iter=10).fit(X, Y).elbo_ > regressor(max_iter=10).fit(X, Y).elbo_ - 5.0


def test_a_given_kernel_is_fitted_as_a_copy() -> None:
    kernel = ScaleKernel(RBFKernel(ard_num_dims=4))
    before = {name: value.clone() for name, value in kernel.state_dict().items()}
    assert isinstance(quick(kernel=kernel).fit(X, Y).model_.kernel.base_kernel, RBFKernel)
    assert all(torch.equal(value, before[name]) for name, value in kernel.state_dict().items())
    scaling = quick(kernel=RBFKernel(), standardize=False).fit(X, Y)._gp.scaling
    np.testing.assert_array_equal(scaling.scale_x(X), X)


def test_lengthscales_are_those_of_the_kernel() -> None:
    assert quick(kernel="linear").fit(X, Y).lengthscales_ is None
    model = quick(ard=False).fit(X, Y)
    np.testing.assert_allclose(model.lengthscales_ / model._gp.scaling.x_scale, model.lengthscales_[0] / X[:, 0].std())


def test_training_options_are_set_and_searched_from_the_default() -> None:
    model = CVGPRegressor(3, n_neighbors=0, noise="constant", random_state=0)
    assert model.training is None
    assert model.get_params()["training__learning_rate"] is None
    assert set(model.get_params(deep=False)) == set(inspect.signature(CVGPRegressor).parameters)
    search = GridSearchCV(model, {"training__max_iter": [1, 4], "kernel": ["rbf"]}, cv=2, error_score="raise")
    search.fit(X, Y)
    assert search.best_estimator_.training.max_iter == search.best_params_["training__max_iter"]
    assert model.training is None
    assert clone(model.set_params(training__solver="adam")).training.solver == "adam"
    assert model.set_params(training=None, training__tol=0.5).training.tol == 0.5
    with pytest.raises(ValueError, match="Invalid parameter 'rate'"):
        CVGPRegressor().set_params(training__rate=1.0)


def test_clones_pipelines_and_searches_work(fitted: CVGPRegressor) -> None:
    assert clone(fitted).training.max_iter == fitted.training.max_iter
    assert not hasattr(clone(fitted), "_gp")
    search = GridSearchCV(regressor(max_iter=15), {"n_coreset": np.array([1, 12])}, cv=2).fit(X, Y)
    assert search.best_params_ == {"n_coreset": 12}
    pipeline = make_pipeline(PolynomialFeatures(1, include_bias=False), quick())
    np.testing.assert_array_equal(pipeline.fit(X, Y).predict(NEW), quick().fit(X, Y).predict(NEW))


# Decisions


@pytest.mark.parametrize("options", [{}, {"n_neighbors": 10}, {"n_coreset": 8, "n_neighbors": 0}], ids=str)
def test_a_fit_with_the_decisions_of_another_predicts_the_same(options: dict[str, Any], tmp_path: Path) -> None:
    model = CVGPRegressor(**options).fit(X, Y)  # without a seed: the decisions have it
    model.save(tmp_path / "model.cvgp")
    stored = cvgp.load(tmp_path / "model.cvgp").decisions_
    again = CVGPRegressor(**options).fit(X, Y, decisions=stored)
    for found, expected in zip(again.predict(NEW, return_std=True), model.predict(NEW, return_std=True), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    assert "choose kernel" not in again.history_["phase"]


def test_a_decision_that_is_not_one_is_refused() -> None:
    with pytest.raises(InvalidTypeError, match=r"model\.decisions_\.noise"):
        CVGPRegressor().fit(X, Y, decisions={"noise": "constant"})


def test_a_linear_kernel_is_not_tried_where_rows_are_few_for_the_columns() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 80))
    model = CVGPRegressor(kernel="auto", random_state=0).fit(x, np.sin(x[:, 0]) + 0.3 * rng.normal(size=60))
    assert "linear" not in model.kernel_name_
