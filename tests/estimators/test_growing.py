from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from gpytorch.kernels import MaternKernel
from sklearn.exceptions import NotFittedError

import cvgp
from cvgp import CVGPRegressor
from cvgp.data.tables import training_table
from cvgp.errors import InvalidInputError
from tests import reference as ref

N = 120
rng = np.random.default_rng(4)
X = rng.uniform(-2.0, 2.0, size=(N, 2))
Y = 10.0 + 3.0 * np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=N)
NEW = rng.uniform(-2.0, 2.0, size=(30, 2))
NEW_Y = 10.0 + 3.0 * np.sin(3.0 * NEW[:, 0]) + NEW[:, 1]
SIZE = 6


def regressor(**options: Any) -> CVGPRegressor:
    return CVGPRegressor(**{"n_coreset": SIZE, "max_iter": 10, "noise": "constant", "random_state": 0, **options})


@pytest.fixture(scope="module")
def small() -> CVGPRegressor:
    return regressor().fit(X, Y)


@pytest.fixture
def model(small: CVGPRegressor) -> CVGPRegressor:
    return deepcopy(small)


@pytest.fixture(scope="module")
def unscaled() -> CVGPRegressor:
    """A model whose prior variance is one, so that the jitter of K_cc is far below its noise."""
    return regressor(kernel=MaternKernel(1.5, ard_num_dims=2)).fit(X, Y)


def exact_gp(model: CVGPRegressor, repeats: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and variance of f at NEW, and the log evidence, of the exact GP of a model's kernel and noise."""
    scaling, lengthscale = model.gp_.scaling, model.model_.kernel.lengthscale.detach().numpy()[0]
    x, new, y = scaling.scale_x(X), scaling.scale_x(NEW), scaling.scale_y(Y[:, None])[:, 0]
    K, K_s, K_ss = (ref.matern32(a, b, lengthscale) for a, b in ((x, x), (x, new), (new, new)))
    mean, covariance = ref.exact_gp_predict(K, K_s, K_ss, y, model.model_.noise.item() / repeats)
    evidence = ref.log_marginal(K, y, model.model_.noise.item()) - N * np.log(scaling.y_scale[0])
    return scaling.unscale_y(mean[:, None])[:, 0], np.diag(covariance) * scaling.y_scale[0] ** 2, evidence


def test_growing_reports_how_many_points_were_added(model: CVGPRegressor) -> None:
    assert model.grow(20, X, Y) == 20 - SIZE
    assert len(model.coreset_) == 20


@pytest.mark.parametrize("repeats", [np.ones(N), 1.0 + np.arange(N) % 3], ids=["rows", "weighted rows"])
def test_model_with_all_rows_as_points_is_the_exact_gp(unscaled: CVGPRegressor, repeats: np.ndarray) -> None:
    model = deepcopy(unscaled)
    assert model.grow(N + SIZE, X, Y, repeats) == N
    mean, sd = model.predict(NEW, return_std=True, include_noise=False)
    expected_mean, expected_variance, _ = exact_gp(model, repeats)
    np.testing.assert_allclose(mean, expected_mean, atol=1e-6 * Y.std())
    np.testing.assert_allclose(sd**2, expected_variance, atol=1e-6 * Y.var())


def test_bound_with_all_rows_as_points_is_the_evidence_in_the_units_of_the_data(unscaled: CVGPRegressor) -> None:
    model = deepcopy(unscaled)
    model.grow(N + SIZE, X, Y)
    *_, evidence = exact_gp(model, np.ones(N))
    assert model.elbo_ == pytest.approx(evidence, abs=1e-3)


@pytest.mark.parametrize("options", [{}, {"solver": "adam"}, {"bound": "elbo"}, {"mean": "constant"}], ids=str)
def test_bound_of_the_fit_does_not_fall(options: dict[str, Any]) -> None:
    model = regressor(**options).fit(X, Y)
    bounds = [model.elbo_]
    for size in (7, 12, 40, 100):
        model.grow(size, X, Y)
        bounds.append(model.elbo_)
    assert (np.diff(bounds) > -1e-4).all()
    assert bounds[-1] > bounds[0] + 10.0


def test_kernel_and_noise_stay(model: CVGPRegressor, small: CVGPRegressor) -> None:
    model.grow(20, X, Y)
    assert model.noise_variance_ == small.noise_variance_
    np.testing.assert_array_equal(model.lengthscales_, small.lengthscales_)


def test_growing_predicts_better_than_too_few_points(model: CVGPRegressor, small: CVGPRegressor) -> None:
    model.grow(60, X, Y)
    assert model.score(NEW, NEW_Y) > small.score(NEW, NEW_Y)


def test_several_outputs_grow_together() -> None:
    both = np.stack([Y, -100.0 * Y], 1)
    model = regressor().fit(X, both)
    model.grow(30, X, both)
    assert model.coreset_.y.shape == (30, 2)
    mean = model.predict(NEW)
    np.testing.assert_allclose(mean[:, 1], -100.0 * mean[:, 0], rtol=1e-6)


def test_known_noise_counts(model: CVGPRegressor) -> None:
    known = np.where(np.arange(N) < 60, 1e4, 0.0)  # half of the rows say nothing
    other = deepcopy(model)
    model.grow(30, X, Y, noise_variance=known)
    other.grow(30, X, Y)
    sds = [m.predict(X[:60], return_std=True, include_noise=False)[1].mean() for m in (model, other)]
    assert sds[0] > sds[1]


def test_grown_model_is_pruned_and_saved_as_any_other(model: CVGPRegressor, tmp_path: Path) -> None:
    model.grow(40, X, Y)
    model.save(tmp_path / "grown.cvgp")
    loaded = cvgp.load(tmp_path / "grown.cvgp")
    np.testing.assert_array_equal(loaded.predict(NEW), model.predict(NEW))
    assert loaded.prune(1.0) == model.prune(1.0) > 0
    assert loaded.grow(45, X, Y) > 0


def test_same_random_state_grows_the_same(small: CVGPRegressor) -> None:
    first, second = deepcopy(small), deepcopy(small)
    first.grow(20, X, Y)
    second.grow(20, X[::-1], Y[::-1])
    assert first.coreset_ == second.coreset_


@pytest.mark.parametrize("in_memory", [True, False], ids=["loaded", "read in parts"])
def test_table_in_files_grows_as_its_rows_do(in_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})
    frame.to_parquet(tmp_path / "table.parquet")
    model = regressor().fit(frame[["a", "b"]], Y)
    other = deepcopy(model)
    other.grow(N + SIZE, frame[["a", "b"]], Y)
    if not in_memory:
        monkeypatch.setattr(training_table, "IN_MEMORY_BYTES", 0)
    model.grow(N + SIZE, tmp_path / "table.parquet", "y")
    np.testing.assert_allclose(model.predict(frame[["a", "b"]]), other.predict(frame[["a", "b"]]), atol=1e-5)


@pytest.mark.parametrize("in_memory", [True, False], ids=["loaded", "read in parts"])
def test_table_of_other_columns_is_refused(in_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pd.DataFrame({"a": X[:, 0], "c": X[:, 1], "y": Y}).to_parquet(tmp_path / "table.parquet")
    model = regressor().fit(pd.DataFrame(X, columns=["a", "b"]), Y)
    if not in_memory:
        monkeypatch.setattr(training_table, "IN_MEMORY_BYTES", 0)
    with pytest.raises(InvalidInputError, match="feature"):
        model.grow(20, tmp_path / "table.parquet", "y")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((SIZE, X, Y), "more than the present 6; got 6. To have fewer points, use prune"),
        ((2, X, Y), "more than the present 6"),
        ((0, X, Y), "n must be a whole number"),
        ((20.0, X, Y), "n must be a whole number"),
        ((N + SIZE + 1, X, Y), "only 120 distinct rows"),
        ((20, X[:, :1], Y), "2 features"),
        ((20, X, Y[:5]), "inconsistent numbers of samples"),
        ((20, X, np.stack([Y, Y], 1)), "the 1 outputs"),
        ((20, np.where(X > 1.9, np.nan, X), Y), "NaN"),
        ((20, X, Y, -np.ones(N)), "weights are at least 0"),
        ((20, X, Y, None, -np.ones(N)), "variances"),
    ],
)
def test_what_cannot_be_used_is_refused(model: CVGPRegressor, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        model.grow(*arguments)
    assert len(model.coreset_) == SIZE


def test_rules_for_tables_are_refused_with_arrays(model: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match="are for tables"):
        model.grow(20, X, Y, impute="mean")


def test_a_model_that_is_not_fitted_cannot_grow() -> None:
    with pytest.raises(NotFittedError):
        regressor().grow(20, X, Y)


# Quality by size


def test_quality_has_a_row_for_each_power_of_two_up_to_twice_the_size(small: CVGPRegressor) -> None:
    quality = cvgp.quality_by_size(small, X, Y)
    assert quality["size"].tolist() == [1, 2, 4, 8]
    assert {len(column) for column in quality.values()} == {4}
    assert list(quality) == ["size", "bound_per_row", "rmse", "mean_log_likelihood", "seconds"]


def test_bound_rises_with_the_size(small: CVGPRegressor) -> None:
    quality = cvgp.quality_by_size(small, X, Y, sizes=[50, 3, 6, 20, 3], held_out=(NEW, NEW_Y))
    assert quality["size"].tolist() == [3, 6, 20, 50]
    assert (np.diff(quality["bound_per_row"]) > 0).all()
    assert quality["rmse"][-1] < quality["rmse"][0]


def test_scores_at_the_present_size_are_those_of_the_model(small: CVGPRegressor) -> None:
    quality = cvgp.quality_by_size(small, X, Y, sizes=[SIZE], held_out=(NEW, NEW_Y))
    assert quality["rmse"][0] == pytest.approx(cvgp.metrics.rmse(NEW_Y, small.predict(NEW)), rel=1e-4)
    density = small.log_predictive_density(NEW, NEW_Y).mean()
    assert quality["mean_log_likelihood"][0] == pytest.approx(density, rel=1e-3)


def test_rows_that_are_held_out_are_the_last_fifth_and_have_no_say(small: CVGPRegressor) -> None:
    spoilt = np.where(np.arange(N) < 96, Y, 1e3)
    quality, other = (cvgp.quality_by_size(small, X, y) for y in (Y, spoilt))
    np.testing.assert_array_equal(quality["bound_per_row"], other["bound_per_row"])
    assert (other["rmse"] > 900.0).all()


def test_quality_leaves_the_model_as_it_is(model: CVGPRegressor, small: CVGPRegressor) -> None:
    cvgp.quality_by_size(model, X, Y)
    assert model.coreset_ == small.coreset_
    assert model.elbo_ == small.elbo_


def test_scores_of_several_outputs_are_means_over_them() -> None:
    both = np.stack([Y, -2.0 * Y], 1)
    model = regressor().fit(X, both)
    quality = cvgp.quality_by_size(model, X, both, sizes=[SIZE], held_out=(X, both))
    expected = np.sqrt(np.mean((both - model.predict(X)) ** 2))
    assert quality["rmse"][0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sizes": [0]}, "each of sizes must be a whole number"),
        ({"sizes": [1000]}, "distinct rows"),
        ({"held_out": (NEW[:, :1], NEW_Y)}, "2 features"),
    ],
)
def test_quality_refuses_what_cannot_be_used(small: CVGPRegressor, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        cvgp.quality_by_size(small, X, Y, **given)


def test_too_few_rows_to_hold_some_out_are_refused(small: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match=r"at least 3 rows; got 2\. Give held_out"):
        cvgp.quality_by_size(small, X[:2], Y[:2])
