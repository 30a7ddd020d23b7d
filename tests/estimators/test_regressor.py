import re
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.means import LinearMean
from scipy import stats
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from cvgp import Coreset, CVGPRegressor
from cvgp.errors import InvalidInputError
from cvgp.estimators import units as scaled
from cvgp.gp.kernels import KERNEL_NAMES, evaluate
from cvgp.training import monitor as watch
from cvgp.training import size
from cvgp.training.kernel_search import START_FACTORS
from cvgp.training.monitor import FitEvent
from tests import reference as ref

N = 100
UNITS = 2.0**20  # about a million, and without rounding


def function(x: np.ndarray) -> np.ndarray:
    return np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 2]


def make_data(num_rows: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A function of the first and third of four inputs, with noise of sd 0.1."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, size=(num_rows, 4))
    return x, function(x) + 0.1 * rng.normal(size=num_rows)


X, Y = make_data()
NEW, NEW_Y = make_data(200, seed=1)


def regressor(**options: Any) -> CVGPRegressor:
    return CVGPRegressor(**{"n_coreset": 15, "max_iter": 40, "random_state": 0, **options})


def quick(**options: Any) -> CVGPRegressor:
    """For what does not depend on how well the function is learned."""
    return regressor(**{"n_coreset": 6, "max_iter": 5, **options})


@pytest.fixture(scope="module")
def fitted() -> CVGPRegressor:
    return regressor(noise="constant").fit(X, Y)


@pytest.fixture(scope="module")
def two_outputs() -> CVGPRegressor:
    return regressor().fit(X, np.stack([Y, 100.0 - 20.0 * Y], 1))


def assert_same_predictions(a: CVGPRegressor, b: CVGPRegressor, x: np.ndarray = NEW) -> None:
    """Equal to the bit."""
    for found, expected in zip(a.predict(x, return_std=True), b.predict(x, return_std=True), strict=True):
        np.testing.assert_array_equal(found, expected)


# What is learned


def test_function_is_learned(fitted: CVGPRegressor) -> None:
    error = fitted.predict(NEW) - function(NEW)
    assert np.sqrt(np.mean(error**2)) < 0.1


def test_noise_is_learned(fitted: CVGPRegressor) -> None:
    assert fitted.noise_variance_ == pytest.approx(0.01, rel=0.5)


def test_constant_and_linear_models_are_beaten(fitted: CVGPRegressor) -> None:
    linear = LinearRegression().fit(X, Y).score(NEW, NEW_Y)
    assert fitted.score(NEW, NEW_Y) > max(linear, 0.0) + 0.2


def test_relevant_inputs_are_found(fitted: CVGPRegressor) -> None:
    assert set(fitted.feature_importances_.argsort()[-2:]) == {0, 2}


def test_the_old_name_of_the_importances_warns(fitted: CVGPRegressor) -> None:
    with pytest.warns(FutureWarning, match=r"now called feature_importances_; .* removed in cvgp 0\.2"):
        old = fitted.feature_importance_
    np.testing.assert_array_equal(old, fitted.feature_importances_)


@pytest.mark.parametrize("n_coreset", [5, 10, 20])
@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_coreset_smaller_than_the_function_needs_does_not_give_up(n_coreset: int, solver: str) -> None:
    rng = np.random.default_rng(4)
    x = rng.uniform(-3.0, 3.0, size=(150, 2))
    y = np.sin(2.0 * x[:, 0]) + x[:, 1] * np.cos(x[:, 0]) + 1e-3 * rng.normal(size=150)
    assert regressor(n_coreset=n_coreset, solver=solver, max_iter=80).fit(x, y).score(x, y) > 0.5


@pytest.mark.parametrize("kernel", [name for name in KERNEL_NAMES if name != "periodic"])
def test_every_kernel_learns_something(kernel: str) -> None:
    assert regressor(kernel=kernel, max_iter=15).fit(X, Y).score(NEW, NEW_Y) > 0.4


def test_periodic_kernel_goes_on_beyond_the_data() -> None:
    x = np.linspace(0.0, 15.0, 150)[:, None]
    y = np.sin(2.0 * np.pi * x[:, 0] / 3.0)
    noise = 0.05 * np.random.default_rng(0).normal(size=100)
    model = regressor(kernel="periodic", max_iter=30).fit(x[:100], y[:100] + noise)
    assert model.score(x[100:], y[100:]) > 0.9


@pytest.mark.parametrize("init", ["kmeans", "random", "greedy"])
def test_every_initialiser_learns_the_function(init: str) -> None:
    assert regressor(init=init).fit(X, Y).score(NEW, NEW_Y) > 0.9


@pytest.mark.parametrize("options", [{"bound": "tight"}, {"solver": "adam"}, {"mean": "constant"}], ids=str)
def test_function_is_learned_with(options: dict[str, Any]) -> None:
    assert regressor(**options).fit(X, Y).score(NEW, NEW_Y) > 0.8


def test_papers_recipe_runs() -> None:
    model = regressor(solver="paper", max_iter=30, learning_rate=0.01).fit(X, Y)
    assert model.solver_ == "adam"
    assert model.score(NEW, NEW_Y) > 0.5


@pytest.mark.parametrize("name", ["concrete", "energy"])
@pytest.mark.filterwarnings("ignore::cvgp.errors.JitterWarning")
def test_real_data_are_predicted_better_than_by_a_constant(
    name: str, uci: Callable[[str], tuple[np.ndarray, np.ndarray]]
) -> None:
    x, y = uci(name)
    order = np.random.default_rng(0).permutation(len(x))
    test, train = order[:200], order[200:]
    model = regressor(n_coreset=50, max_time=3.0).fit(x[train], y[train])
    constant = stats.norm.logpdf(y[test], y[train].mean(), y[train].std()).mean()
    assert model.log_predictive_density(x[test], y[test]).mean() > constant + 0.5


def test_intervals_of_data_from_a_gaussian_process_cover_what_they_say() -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(-2.0, 2.0, size=(600, 2))
    K = ref.rbf(x, x, np.array([0.8, 1.2]), 1.0)
    y = np.linalg.cholesky(K + 0.09 * np.eye(600)) @ rng.normal(size=600)
    model = regressor(kernel="rbf", n_coreset=40).fit(x[:300], y[:300])
    low, high = model.predict_quantiles(x[300:], [0.05, 0.95]).T
    inside = int(((low < y[300:]) & (y[300:] < high)).sum())
    assert stats.binomtest(inside, 300, 0.9).pvalue > 1e-3


# The bound


def test_bound_is_below_the_exact_log_marginal_likelihood(fitted: CVGPRegressor) -> None:
    scaling, model = fitted.gp_.scaling, fitted.model_
    with torch.no_grad():
        x = torch.tensor(scaling.scale_x(X))
        K = evaluate(model.kernel, x, x).numpy() + model.noise.item() * np.eye(N)
    exact = stats.multivariate_normal(np.zeros(N), K).logpdf(scaling.scale_y(Y[:, None])[:, 0])
    exact -= N * np.log(scaling.y_scale[0])
    assert exact - 30.0 < fitted.elbo_ <= exact


def test_bound_of_as_many_points_as_rows_is_nearly_exact() -> None:
    model = regressor(n_coreset=30, kernel="rbf").fit(X[:30], Y[:30])
    scaling = model.gp_.scaling
    with torch.no_grad():
        x = torch.tensor(scaling.scale_x(X[:30]))
        K = evaluate(model.model_.kernel, x, x).numpy() + model.model_.noise.item() * np.eye(30)
    exact = stats.multivariate_normal(np.zeros(30), K).logpdf(scaling.scale_y(Y[:30, None])[:, 0])
    assert model.elbo_ == pytest.approx(exact - 30 * np.log(scaling.y_scale[0]), abs=2.0)


# Units


@pytest.fixture(scope="module")
def other_unit() -> CVGPRegressor:
    return regressor(noise="constant").fit(X, UNITS * Y)


def test_predictions_have_the_unit_of_y(fitted: CVGPRegressor, other_unit: CVGPRegressor) -> None:
    for found, own in zip(other_unit.predict(NEW, return_std=True), fitted.predict(NEW, return_std=True), strict=True):
        np.testing.assert_array_equal(found, UNITS * own)


def test_noise_has_the_unit_of_y_squared(fitted: CVGPRegressor, other_unit: CVGPRegressor) -> None:
    assert other_unit.noise_variance_ == UNITS**2 * fitted.noise_variance_


def test_coreset_has_the_unit_of_y(fitted: CVGPRegressor, other_unit: CVGPRegressor) -> None:
    own = fitted.coreset_
    assert other_unit.coreset_ == Coreset(own.X, UNITS * own.y, own.beta)


def test_bound_is_shifted_by_the_logarithm_of_the_unit(fitted: CVGPRegressor, other_unit: CVGPRegressor) -> None:
    assert other_unit.elbo_ == pytest.approx(fitted.elbo_ - N * np.log(UNITS), abs=1e-9)


def wave(x: np.ndarray) -> np.ndarray:
    return np.sin(2.0 * x[:, 0]) + 0.1 * np.cos(50.0 * x[:, 0])


@pytest.fixture(scope="module")
def one_input() -> CVGPRegressor:
    """On this problem rounding is not amplified along the search."""
    return regressor(n_coreset=8).fit(X[:, :1], wave(X))


def test_a_million_is_as_good_a_unit(one_input: CVGPRegressor) -> None:
    model = regressor(n_coreset=8).fit(X[:, :1], 1e6 * wave(X))
    np.testing.assert_allclose(model.predict(NEW[:, :1]) / 1e6, one_input.predict(NEW[:, :1]), atol=1e-6)


@pytest.mark.parametrize(("scale", "shift"), [(1e6, 5.0), (1e-6, 0.0), (3.0, -1e3), (1.0, 1e6)])
def test_unit_and_origin_of_the_inputs_do_not_matter(scale: float, shift: float, one_input: CVGPRegressor) -> None:
    model = regressor(n_coreset=8).fit(scale * X[:, :1] + shift, wave(X))
    np.testing.assert_allclose(model.predict(scale * NEW[:, :1] + shift), one_input.predict(NEW[:, :1]), atol=1e-6)


def test_lengthscales_have_the_units_of_the_inputs(fitted: CVGPRegressor) -> None:
    scale = np.array([1024.0, 0.25, 1.0, 2.0])
    np.testing.assert_allclose(regressor().fit(scale * X, Y).lengthscales_, scale * fitted.lengthscales_, rtol=1e-12)


def test_importances_do_not_have_units(fitted: CVGPRegressor) -> None:
    importance = regressor().fit(X * [1024.0, 0.25, 1.0, 2.0], Y).feature_importances_
    np.testing.assert_allclose(importance, fitted.feature_importances_, rtol=1e-6, atol=1e-9)


def test_coreset_lies_among_the_data() -> None:
    coreset = regressor().fit(1000.0 + 10.0 * X, Y - 50.0).coreset_
    assert ((coreset.X > 940.0) & (coreset.X < 1060.0)).all()


def test_without_standardising_a_kernel_of_the_user_sees_the_data_as_they_are() -> None:
    scaling = quick(kernel=RBFKernel(), standardize=False).fit(X, Y).gp_.scaling
    np.testing.assert_array_equal(scaling.scale_x(X), X)


# Rows


def test_order_of_rows_does_not_matter(fitted: CVGPRegressor) -> None:
    order = np.random.default_rng(5).permutation(N)
    assert_same_predictions(regressor(noise="constant").fit(X[order], Y[order]), fitted)


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_weights_are_repeats(solver: str) -> None:
    counts = np.random.default_rng(6).integers(0, 4, size=N)
    weighted = regressor(solver=solver).fit(X, Y, sample_weight=counts)
    repeated = regressor(solver=solver).fit(X.repeat(counts, axis=0), Y.repeat(counts))
    np.testing.assert_allclose(weighted.predict(NEW), repeated.predict(NEW), rtol=1e-7)
    assert weighted.elbo_ == pytest.approx(repeated.elbo_, rel=1e-7)


def test_weighted_rows_count_for_more() -> None:
    x = np.zeros((20, 1))
    x[:, 0] = np.arange(20) // 2
    y = np.tile([0.0, 1.0], 10)
    mean = quick().fit(x, y, sample_weight=np.tile([1.0, 9.0], 10)).predict(x)
    np.testing.assert_allclose(mean, 0.9, atol=0.05)


def test_precise_rows_count_for_more() -> None:
    x = np.linspace(-2.0, 2.0, 120)[:, None]
    true, rng = np.sin(2.0 * x[:, 0]), np.random.default_rng(7)
    variance = np.tile([1e-4, 4.0], 60)
    y = true + np.sqrt(variance) * rng.normal(size=120)
    errors = [
        np.abs(regressor().fit(x, y, noise_variance=known).predict(x) - true).mean() for known in (variance, None)
    ]
    assert errors[0] < 0.02 < errors[1]


def test_known_noise_is_not_learned_again() -> None:
    rng = np.random.default_rng(8)
    x = np.linspace(-2.0, 2.0, 200)[:, None]
    y = np.sin(2.0 * x[:, 0]) + 0.3 * rng.normal(size=200)
    assert regressor().fit(x, y, noise_variance=np.full(200, 0.09)).noise_variance_ < 0.03


# Predictions


def test_prediction_alone_is_the_mean(fitted: CVGPRegressor) -> None:
    np.testing.assert_array_equal(fitted.predict(NEW), fitted.predict(NEW, return_std=True)[0])


def test_noise_is_in_the_standard_deviation_of_y(fitted: CVGPRegressor) -> None:
    of_y, of_f = (fitted.predict(NEW, return_std=True, include_noise=noise)[1] for noise in (True, False))
    np.testing.assert_allclose(of_y**2 - of_f**2, fitted.noise_variance_, rtol=1e-9)


def test_known_noise_of_new_points_is_added(fitted: CVGPRegressor) -> None:
    known = np.linspace(0.0, 2.0, len(NEW))
    _, with_known = fitted.predict(NEW, return_std=True, noise_variance=known)
    _, without = fitted.predict(NEW, return_std=True)
    np.testing.assert_allclose(with_known**2 - without**2, known, atol=1e-12)


@pytest.mark.parametrize("include_noise", [True, False])
def test_covariance_has_the_variance_on_its_diagonal(fitted: CVGPRegressor, include_noise: bool) -> None:
    _, cov = fitted.predict(NEW, return_cov=True, include_noise=include_noise)
    _, sd = fitted.predict(NEW, return_std=True, include_noise=include_noise)
    np.testing.assert_allclose(cov.diagonal(), sd**2, rtol=1e-7)


def test_covariance_is_positive_definite(fitted: CVGPRegressor) -> None:
    _, cov = fitted.predict(NEW, return_cov=True)
    assert np.linalg.eigvalsh(cov).min() > 0.0


def test_uncertainty_grows_away_from_the_data(fitted: CVGPRegressor) -> None:
    _, sd = fitted.predict(np.array([[0.0] * 4, [50.0] * 4]), return_std=True)
    assert sd[1] > 3.0 * sd[0]


def test_quantiles_are_those_of_the_normal_distribution(fitted: CVGPRegressor) -> None:
    mean, sd = fitted.predict(NEW, return_std=True)
    levels = [0.05, 0.5, 0.9]
    expected = stats.norm(mean[:, None], sd[:, None]).ppf(levels)
    np.testing.assert_allclose(fitted.predict_quantiles(NEW, levels), expected, rtol=1e-9)


def test_one_quantile_has_a_column_too(fitted: CVGPRegressor) -> None:
    assert fitted.predict_quantiles(NEW, 0.5).shape == (len(NEW), 1)


def test_log_density_is_the_normal_distributions(fitted: CVGPRegressor) -> None:
    mean, sd = fitted.predict(NEW, return_std=True)
    np.testing.assert_allclose(fitted.log_predictive_density(NEW, NEW_Y), stats.norm(mean, sd).logpdf(NEW_Y), rtol=1e-9)


def test_draws_have_the_predicted_mean(fitted: CVGPRegressor) -> None:
    mean, sd = fitted.predict(NEW[:6], return_std=True)
    draws = fitted.sample_y(NEW[:6], 4000)
    np.testing.assert_array_less(np.abs(draws.mean(1) - mean), 5.0 * sd / np.sqrt(4000))


def test_draws_have_the_predicted_covariance(fitted: CVGPRegressor) -> None:
    points = NEW[:4] * 0.1  # close to each other, and so correlated
    _, cov = fitted.predict(points, return_cov=True)
    np.testing.assert_allclose(np.cov(fitted.sample_y(points, 20000)), cov, atol=0.05 * cov.max())


def test_same_seed_draws_the_same(fitted: CVGPRegressor) -> None:
    np.testing.assert_array_equal(fitted.sample_y(NEW[:3], 5, 1), fitted.sample_y(NEW[:3], 5, 1))


def test_other_seed_draws_something_else(fitted: CVGPRegressor) -> None:
    assert (fitted.sample_y(NEW[:3], 5, 1) != fitted.sample_y(NEW[:3], 5, 2)).all()


def test_score_is_the_coefficient_of_determination(fitted: CVGPRegressor) -> None:
    residual = ((NEW_Y - fitted.predict(NEW)) ** 2).sum()
    assert fitted.score(NEW, NEW_Y) == pytest.approx(1.0 - residual / ((NEW_Y - NEW_Y.mean()) ** 2).sum())


def test_prediction_is_chunked(fitted: CVGPRegressor, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted.predict(NEW, return_std=True)
    monkeypatch.setattr(scaled, "CHUNK_ROWS", 7)
    for found, expected in zip(fitted.predict(NEW, return_std=True), whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_float32_predicts_nearly_the_same(one_input: CVGPRegressor) -> None:
    model = regressor(n_coreset=8, dtype="float32").fit(X[:, :1], wave(X))
    np.testing.assert_allclose(model.predict(NEW[:, :1]), one_input.predict(NEW[:, :1]), atol=1e-3)


# Several outputs


def test_several_outputs_are_predicted_together(two_outputs: CVGPRegressor, fitted: CVGPRegressor) -> None:
    mean = two_outputs.predict(NEW)
    np.testing.assert_allclose(mean[:, 1], 100.0 - 20.0 * mean[:, 0], rtol=1e-6)
    np.testing.assert_allclose(mean[:, 0], fitted.predict(NEW), atol=0.1)


def test_several_outputs_have_shapes_of_their_own(two_outputs: CVGPRegressor) -> None:
    mean, sd = two_outputs.predict(NEW[:5], return_std=True)
    _, cov = two_outputs.predict(NEW[:5], return_cov=True)
    quantiles, draws = two_outputs.predict_quantiles(NEW[:5], [0.1, 0.5, 0.9]), two_outputs.sample_y(NEW[:5], 7)
    shapes = [a.shape for a in (mean, sd, cov, quantiles, draws, two_outputs.noise_variance_, two_outputs.coreset_.y)]
    assert shapes == [(5, 2), (5, 2), (5, 5, 2), (5, 2, 3), (5, 2, 7), (2,), (15, 2)]


def test_several_outputs_have_units_of_their_own(two_outputs: CVGPRegressor) -> None:
    np.testing.assert_allclose(two_outputs.noise_variance_[1], 400.0 * two_outputs.noise_variance_[0], rtol=1e-6)


def test_log_density_of_several_outputs_is_their_sum(two_outputs: CVGPRegressor) -> None:
    y = np.stack([NEW_Y, 100.0 - 20.0 * NEW_Y], 1)
    mean, sd = two_outputs.predict(NEW, return_std=True)
    expected = stats.norm(mean, sd).logpdf(y).sum(1)
    np.testing.assert_allclose(two_outputs.log_predictive_density(NEW, y), expected, rtol=1e-9)


def test_one_column_stays_a_column() -> None:
    assert quick().fit(X, Y[:, None]).predict(NEW).shape == (len(NEW), 1)


# Containers


def test_tensors_are_accepted(fitted: CVGPRegressor) -> None:
    model = regressor().fit(torch.tensor(X), torch.tensor(Y))
    np.testing.assert_array_equal(model.predict(torch.tensor(NEW)), fitted.predict(NEW))


def test_tensor_with_a_gradient_is_accepted(fitted: CVGPRegressor) -> None:
    points = torch.tensor(NEW, requires_grad=True)
    np.testing.assert_array_equal(fitted.predict(points), fitted.predict(NEW))


def test_lists_are_accepted() -> None:
    assert np.isfinite(quick().fit(X.tolist(), Y.tolist()).predict(NEW.tolist())).all()


@pytest.fixture(scope="module")
def named() -> CVGPRegressor:
    return quick().fit(pd.DataFrame(X, columns=list("abcd")), pd.Series(Y))


def test_names_of_columns_are_kept(named: CVGPRegressor) -> None:
    assert named.feature_names_in_.tolist() == list("abcd")


def test_table_of_the_same_columns_is_predicted(named: CVGPRegressor) -> None:
    table = pd.DataFrame(NEW, columns=list("abcd"))
    np.testing.assert_array_equal(named.predict(table), quick().fit(X, Y).predict(NEW))


@pytest.mark.parametrize("columns", [list("bacd"), list("abce")], ids=["another order", "another name"])
def test_table_of_other_columns_is_refused(named: CVGPRegressor, columns: list[str]) -> None:
    with pytest.raises(InvalidInputError, match="feature names"):
        named.predict(pd.DataFrame(NEW, columns=columns))


# The course of a fit


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_same_random_state_gives_the_same_result_to_the_bit(solver: str) -> None:
    first, second = (regressor(solver=solver, max_iter=20).fit(X, Y) for _ in range(2))
    assert_same_predictions(first, second)


def test_other_random_state_gives_another_result(fitted: CVGPRegressor) -> None:
    assert (regressor(random_state=1).fit(X, Y).predict(NEW) != fitted.predict(NEW)).any()


def test_random_state_may_be_a_generator(fitted: CVGPRegressor) -> None:
    assert_same_predictions(regressor(random_state=np.random.RandomState(0), noise="constant").fit(X, Y), fitted)


def test_history_is_a_table_of_every_phase(fitted: CVGPRegressor) -> None:
    starts = {f"{kind} x{factor:g}" for kind in ("start", "start coreset") for factor in START_FACTORS}
    # Where the first coreset is as good as the exact GP, no other is tried.
    assert {"start coreset", "lbfgs"} < set(fitted.history_["phase"]) <= starts | {"start coreset", "lbfgs"}


def test_history_ends_where_the_fit_did(fitted: CVGPRegressor) -> None:
    assert fitted.history_["iteration"][-1] == fitted.n_iter_


def test_history_is_in_nats_an_observation_of_scaled_data(fitted: CVGPRegressor) -> None:
    last = fitted.history_["bound"][-1] - np.log(fitted.gp_.scaling.y_scale[0])
    # The search sees sites of any covariance, which diagonal ones come close to, and the priors of few rows.
    assert last == pytest.approx(fitted.elbo_ / N, abs=0.1)


@pytest.mark.parametrize(("options", "solver"), [({}, "lbfgs"), ({"early_stopping": True}, "adam")], ids=str)
def test_solver_is_reported(options: dict[str, Any], solver: str) -> None:
    assert quick(**options).fit(X, Y).solver_ == solver


def test_fit_that_was_cut_short_did_not_converge() -> None:
    assert not quick().fit(X, Y).converged_


def test_fit_that_stopped_by_itself_converged() -> None:
    model = regressor(tol=0.05, max_iter=200).fit(X, Y)
    assert model.converged_
    assert model.n_iter_ < 200


def test_callbacks_are_called_in_every_phase() -> None:
    events: list[FitEvent] = []
    quick(callbacks=[events.append], noise="constant").fit(X, Y)
    assert [event.phase for event in events][-5:] == ["lbfgs"] * 5
    assert {event.phase for event in events} > {"lbfgs", "start x1"}


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_callback_ends_the_fit_with_what_was_learned(solver: str) -> None:
    model = regressor(solver=solver, max_iter=500, callbacks=[lambda e: e.phase == solver and e.iteration == 30])
    model.fit(X, Y)
    assert model.n_iter_ == 30
    assert model.score(NEW, NEW_Y) > 0.8


def test_callback_that_stops_during_the_search_ends_the_fit() -> None:
    events: list[FitEvent] = []

    def stop(event: FitEvent) -> bool:
        events.append(event)
        return event.phase == "start x1" and event.iteration == 2

    regressor(callbacks=[stop]).fit(X, Y)
    assert [event.iteration for event in events] == [1, 2, 1]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a millisecond whenever it is read: the same on a busy machine as on a quiet one."""
    ticks = count()
    monkeypatch.setattr(watch, "time", SimpleNamespace(perf_counter=lambda: 1e-3 * next(ticks)))


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_time_limit_ends_the_fit(solver: str) -> None:
    model = regressor(solver=solver, max_iter=1000, tol=0.0, max_time=0.2).fit(*make_data(500))
    # Reading the clock is what makes it go on: the iteration that finds the time spent is over by a few ticks.
    # Some time is kept back for the close.
    assert 0.1 < model.history_["seconds"].max() < 0.21


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_best_model_so_far_is_kept_when_time_is_out(solver: str) -> None:
    x, y = make_data(500)
    model = regressor(solver=solver, max_iter=100_000, tol=0.0, max_time=0.2).fit(x, y)
    assert not model.converged_
    assert model.score(NEW, NEW_Y) > 0.6


def test_time_limit_caps_the_size_that_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "EXACT_IS_WORTH", 0.0)
    x, y = make_data(400)
    y = y + np.sin(30.0 * x[:, 1])  # as many points as there are would not be too many
    assert len(CVGPRegressor(max_time=0.5, max_iter=2, random_state=0).fit(x, y).coreset_) <= 50


def test_size_that_is_chosen_grows_with_the_function() -> None:
    x = np.linspace(-3.0, 3.0, 300)[:, None]
    noise = 0.05 * np.random.default_rng(9).normal(size=300)
    sizes = [
        len(CVGPRegressor(max_iter=2, random_state=0).fit(x, np.sin(speed * x[:, 0]) + noise).coreset_)
        for speed in (1.0, 12.0)
    ]
    assert sizes[0] < sizes[1]


def test_early_stopping_reports_the_validation_score() -> None:
    model = regressor(early_stopping=True, max_iter=60).fit(X, Y)
    assert 0.0 < model.history_["validation_rmse"][-1] < 1.0


def test_early_stopping_ends_a_fit_that_gets_no_better() -> None:
    model = regressor(early_stopping=True, max_iter=3000, n_iter_no_change=3, learning_rate=0.3).fit(X, Y)
    assert model.converged_
    assert model.n_iter_ < 3000


def test_verbose_fit_prints_lines(capsys: pytest.CaptureFixture[str]) -> None:
    model = quick(verbose=1).fit(X, Y)
    phases = [line.split("  ")[-1] for line in re.findall(r"^ *(.*?)  +\d+/", capsys.readouterr().out, re.MULTILINE)]
    assert set(phases) == set(model.history_["phase"])


def test_quiet_fit_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    quick().fit(X, Y)
    assert capsys.readouterr().out == ""


# Parameters


def test_given_coreset_is_where_the_fit_starts() -> None:
    start = Coreset(10.0 * X[:3], 5.0 + Y[:3], [1.0, 2.0, 3.0])
    model = quick(init=start, solver="adam", max_iter=1, learning_rate=1e-12).fit(10.0 * X, 5.0 + Y)
    np.testing.assert_allclose(model.coreset_.X, start.X, atol=1e-8)


def test_learned_coreset_can_start_another_fit(fitted: CVGPRegressor) -> None:
    assert regressor(init=fitted.coreset_, max_iter=10).fit(X, Y).elbo_ > regressor(max_iter=10).fit(X, Y).elbo_ - 5.0


def test_given_kernel_stays_as_it_is() -> None:
    kernel = ScaleKernel(RBFKernel(ard_num_dims=4))
    before = {name: value.clone() for name, value in kernel.state_dict().items()}
    quick(kernel=kernel).fit(X, Y)
    assert all(torch.equal(value, before[name]) for name, value in kernel.state_dict().items())


def test_given_kernel_is_of_the_model() -> None:
    assert isinstance(quick(kernel=RBFKernel() + RBFKernel()).fit(X, Y).model_.kernel.kernels[1], RBFKernel)


def test_given_mean_is_learned() -> None:
    steep = 30.0 * X[:, 1] + Y
    model = regressor(mean=LinearMean(4), max_iter=60).fit(X, steep)
    far = np.array([[0.0, 200.0, 0.0, 0.0]])
    assert model.predict(far)[0] == pytest.approx(6000.0, rel=0.05)


def test_no_lengthscale_for_a_kernel_that_has_none() -> None:
    assert quick(kernel="linear").fit(X, Y).lengthscales_ is None


def test_isotropic_kernel_has_one_lengthscale() -> None:
    model = quick(ard=False).fit(X, Y)
    np.testing.assert_allclose(model.lengthscales_ / model.gp_.scaling.x_scale, model.lengthscales_[0] / X[:, 0].std())


def test_parameters_are_those_that_were_given() -> None:
    options = {"n_coreset": 7, "kernel": "rbf", "tol": 0.1, "checkpoint_dir": None, "callbacks": None}
    assert options.items() <= CVGPRegressor(**options).get_params().items()


def test_clone_has_the_parameters_and_nothing_learned(fitted: CVGPRegressor) -> None:
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not hasattr(copy, "gp_")


def test_grid_search_finds_the_larger_coreset() -> None:
    search = GridSearchCV(regressor(max_iter=15), {"n_coreset": np.array([1, 12])}, cv=2).fit(X, Y)
    assert search.best_params_ == {"n_coreset": 12}


def test_pipeline_ends_with_the_regressor() -> None:
    pipeline = make_pipeline(PolynomialFeatures(1, include_bias=False), quick())
    np.testing.assert_array_equal(pipeline.fit(X, Y).predict(NEW), quick().fit(X, Y).predict(NEW))


# Pruning


@pytest.fixture(scope="module")
def crowded() -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(-2.0, 2.0, 120)[:, None]
    return x, x[:, 0] ** 2 + 0.05 * np.random.default_rng(1).normal(size=120)


def test_pruning_reports_how_many_points_went(crowded: tuple[np.ndarray, np.ndarray]) -> None:
    model = regressor(n_coreset=40).fit(*crowded)
    dropped = model.prune(0.01)
    assert 0 < dropped == 40 - len(model.coreset_)


def test_pruning_keeps_predictions_close(crowded: tuple[np.ndarray, np.ndarray]) -> None:
    model = regressor(n_coreset=40).fit(*crowded)
    mean, sd = model.predict(crowded[0], return_std=True)
    model.prune(0.01)
    pruned_mean, pruned_sd = model.predict(crowded[0], return_std=True)
    np.testing.assert_allclose(pruned_mean, mean, atol=0.02)
    np.testing.assert_allclose(pruned_sd, sd, atol=0.02)


def test_pruning_lowers_the_bound_by_no_more_than_the_tolerance(crowded: tuple[np.ndarray, np.ndarray]) -> None:
    model = regressor(n_coreset=40).fit(*crowded)
    before = model.elbo_
    model.prune(0.01)
    assert 0.0 <= before - model.elbo_ < 0.01 * 120


def test_pruned_model_can_be_pruned_again(crowded: tuple[np.ndarray, np.ndarray]) -> None:
    model = regressor(n_coreset=40).fit(*crowded)
    first, second = model.prune(0.001), model.prune(0.1)
    assert len(model.coreset_) == 40 - first - second


def test_fit_works_where_gradients_are_switched_off() -> None:
    x = np.linspace(-2.0, 2.0, 40)[:, None]
    with torch.no_grad():
        model = CVGPRegressor(5, max_iter=10, random_state=0).fit(x, np.sin(x[:, 0]))
    assert np.isfinite(model.elbo_)
