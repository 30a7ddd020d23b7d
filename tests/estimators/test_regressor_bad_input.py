"""What a user may get wrong: each gives a sensible model, or an error that says what to do."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from scipy import sparse

from cvgp import Coreset, CVGPRegressor
from cvgp.errors import CVGPError, DivergenceError, FileAccessError, InvalidInputError, InvalidTypeError

N = 40
rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, size=(N, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=N)


def regressor(**options: Any) -> CVGPRegressor:
    return CVGPRegressor(**{"n_coreset": 6, "max_iter": 10, "random_state": 0, **options})


def changed(values: np.ndarray, value: object) -> np.ndarray:
    """A copy with one value replaced."""
    copy = values.astype(object if isinstance(value, str) else np.float64)
    copy.flat[3] = value
    return copy


@pytest.fixture(scope="module")
def fitted() -> CVGPRegressor:
    return regressor().fit(X, Y)


def assert_sensible(model: CVGPRegressor, x: np.ndarray) -> None:
    mean, sd = model.predict(x, return_std=True)
    assert np.isfinite(mean).all()
    assert (np.isfinite(sd) & (sd > 0.0)).all()
    assert np.isfinite(model.elbo_)


# Values that are no numbers


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_inputs_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(InvalidInputError, match=r"NaN|infinity"):
        regressor().fit(changed(X, value), Y)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_outputs_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(InvalidInputError, match=r"NaN|infinity"):
        regressor().fit(X, changed(Y, value))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_points_to_predict_that_are_not_finite_are_refused(value: float, fitted: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match=r"NaN|infinity"):
        fitted.predict(changed(X, value))


def test_text_in_the_inputs_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="could not convert string"):
        regressor().fit(changed(X, "red"), Y)


@pytest.mark.parametrize("y", [changed(Y, "red"), np.full(N, "red")], ids=["one cell", "all cells"])
def test_text_in_the_outputs_is_refused(y: np.ndarray) -> None:
    with pytest.raises(InvalidInputError, match="could not convert string"):
        regressor().fit(X, y)


def test_text_to_predict_is_refused(fitted: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match="could not convert string"):
        fitted.predict(changed(X, "red"))


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="Complex data not supported"):
        regressor().fit(X.astype(complex), Y)


def test_sparse_matrix_is_refused() -> None:
    with pytest.raises(InvalidTypeError, match="dense"):
        regressor().fit(sparse.csr_matrix(X), Y)


def test_precision_that_numpy_lacks_is_refused() -> None:
    with pytest.raises(InvalidTypeError, match="BFloat16"):
        regressor().fit(torch.tensor(X, dtype=torch.bfloat16), Y)


# Shapes


@pytest.mark.parametrize(("x", "y"), [(X[:0], Y[:0]), (X[:, :0], Y)], ids=["no rows", "no columns"])
def test_empty_table_is_refused(x: np.ndarray, y: np.ndarray) -> None:
    with pytest.raises(InvalidInputError, match="minimum of 1 is required"):
        regressor().fit(x, y)


def test_vector_of_inputs_is_refused_with_advice() -> None:
    with pytest.raises(InvalidInputError, match="reshape"):
        regressor().fit(X[:, 0], Y)


def test_outputs_of_another_length_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="inconsistent numbers of samples"):
        regressor().fit(X, Y[:-1])


@pytest.mark.parametrize("columns", [1, 3])
def test_wrong_number_of_columns_to_predict_is_refused(columns: int, fitted: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match=f"has {columns} features, but CVGPRegressor is expecting 2"):
        fitted.predict(np.zeros((5, columns)))


def test_other_names_of_columns_to_predict_are_refused() -> None:
    model = regressor().fit(pd.DataFrame(X, columns=["age", "dose"]), Y)
    with pytest.raises(InvalidInputError, match="weight"):
        model.predict(pd.DataFrame(X, columns=["age", "weight"]))


def test_no_rows_to_predict_are_refused(fitted: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match="minimum of 1 is required"):
        fitted.predict(X[:0])


def test_density_of_outputs_of_another_length_is_refused(fitted: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match="shape of the predictions"):
        fitted.log_predictive_density(X, Y[:-1])


# Few or degenerate data


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
@pytest.mark.filterwarnings("ignore:y is .* in every row")
def test_one_row_is_fitted(solver: str, standardize: bool) -> None:
    model = regressor(solver=solver, standardize=standardize).fit(X[:1], Y[:1])
    assert_sensible(model, X)
    assert model.predict(X[:1])[0] == pytest.approx(Y[0])


def test_two_rows_are_fitted() -> None:
    assert_sensible(regressor(n_coreset="auto").fit(X[:2], Y[:2]), X)


@pytest.mark.parametrize("value", [0.0, 5.0, -3e12, 2e-12])
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
@pytest.mark.filterwarnings("ignore:y is .* in every row")
def test_constant_target_is_predicted(solver: str, standardize: bool, value: float) -> None:
    model = regressor(solver=solver, standardize=standardize).fit(X, np.full(N, value))
    mean, sd = model.predict(np.vstack([X, [[50.0, 50.0]]]), return_std=True)
    size = abs(value) or 1.0
    np.testing.assert_allclose(mean, value, rtol=0.0, atol=1e-4 * size)
    np.testing.assert_allclose(sd, size / N, rtol=1e-3)


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
@pytest.mark.filterwarnings("ignore:y is .* in every row")
def test_noise_of_a_constant_target_is_not_learned(solver: str, tmp_path: Path) -> None:
    for _ in range(2):  # the second fit recalls its start
        model = regressor(solver=solver, checkpoint_dir=tmp_path).fit(X, np.full(N, 5.0))
        assert model.noise_variance_ == pytest.approx((5.0 / N) ** 2)
        assert not model.model_.likelihood.raw_noise.requires_grad


@pytest.mark.filterwarnings("ignore:y is .* in every row", "error::sklearn.exceptions.ConvergenceWarning")
def test_constant_target_that_differs_by_rounding_is_no_failed_fit() -> None:
    y = np.full(N, 0.1)
    y[::2] += 1e-17 + np.spacing(0.1)
    sd = regressor(max_iter=None).fit(X, y).predict(X, return_std=True)[1]
    np.testing.assert_allclose(sd, 0.1 / N, rtol=1e-3)


@pytest.mark.filterwarnings("ignore:Columns with one value")
def test_constant_column_changes_nothing() -> None:
    with_column = np.column_stack([X, np.full(N, 7.0)])
    model = regressor(max_iter=30).fit(with_column, Y)
    assert model.score(with_column, Y) > 0.8


@pytest.mark.filterwarnings("ignore:Columns with one value")
def test_inputs_that_are_all_constant_give_the_mean() -> None:
    model = regressor().fit(np.ones((N, 2)), Y)
    mean, sd = model.predict(np.ones((3, 2)), return_std=True)
    np.testing.assert_allclose(mean, Y.mean(), atol=0.05)
    np.testing.assert_allclose(sd, Y.std(), rtol=0.2)


def test_duplicate_columns_are_fitted() -> None:
    twice = np.column_stack([X, X])
    assert regressor(max_iter=30).fit(twice, Y).score(twice, Y) > 0.8


def test_duplicate_rows_are_fitted() -> None:
    model = regressor(max_iter=30).fit(np.repeat(X, 3, axis=0), np.repeat(Y, 3))
    assert model.score(X, Y) > 0.8


@pytest.mark.parametrize("init", ["kmeans", "random", "greedy"])
def test_few_distinct_inputs_are_fitted(init: str) -> None:
    level = rng.integers(0, 3, size=N)
    model = regressor(n_coreset=20, init=init).fit(level[:, None], 10.0 * level + 0.1 * Y)
    np.testing.assert_allclose(model.predict([[0.0], [1.0], [2.0]]), [0.0, 10.0, 20.0], atol=0.5)


def test_flags_are_numbers() -> None:
    flags = X > 0.0
    assert_sensible(regressor().fit(flags, Y), flags)


@pytest.mark.parametrize("init", ["kmeans", "random", "greedy"])
def test_more_points_than_rows_are_cut_to_the_rows(init: str) -> None:
    model = regressor(n_coreset=500, init=init).fit(X[:10], Y[:10])
    if init == "greedy":  # which leaves out rows that others explain
        assert 5 <= len(model.coreset_) <= 10
    else:
        assert len(model.coreset_) == 10
    assert_sensible(model, X)


# Size of the values


@pytest.mark.parametrize("size", [1e12, 1e-12, 1e200, 1e-200])
def test_inputs_of_any_size_are_fitted(size: float) -> None:
    assert regressor(max_iter=30).fit(size * X, Y).score(size * X, Y) > 0.8


def test_inputs_of_very_different_sizes_are_fitted() -> None:
    mixed = X * [1e12, 1e-12]
    assert regressor(max_iter=30).fit(mixed, Y).score(mixed, Y) > 0.8


@pytest.mark.parametrize("size", [1e12, 1e-12, 1e6])
def test_outputs_of_any_size_are_fitted(size: float) -> None:
    model = regressor(max_iter=30).fit(X, size * Y)
    assert model.score(X, size * Y) > 0.8
    assert_sensible(model, X)


@pytest.mark.parametrize("size", [1e12, 1e-12])
def test_coreset_of_outputs_of_any_size_has_that_size(size: float) -> None:
    y_c = regressor(max_iter=30).fit(X, size * Y).coreset_.y
    assert 0.1 * size < np.abs(y_c).max() < 100.0 * size


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_outputs_whose_variance_is_no_number_are_refused(size: float) -> None:
    with pytest.raises(InvalidInputError, match="another unit"):
        regressor().fit(X, size * Y)


# Weights and noise


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.full(N, -1.0), "Negative values"),
        (np.zeros(N), "at least one non-zero"),
        (changed(np.ones(N), math.nan), "NaN"),
        (np.ones(N - 1), "sample_weight"),
        (np.full(N, "much"), "could not convert"),
    ],
    ids=["negative", "all zero", "NaN", "wrong length", "text"],
)
def test_wrong_weights_are_refused(weight: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        regressor().fit(X, Y, sample_weight=weight)


@pytest.mark.parametrize("size", [1e-12, 1e12])
@pytest.mark.filterwarnings("ignore:The sample weights of")
def test_weights_of_any_size_are_fitted(size: float) -> None:
    assert_sensible(regressor().fit(X, Y, sample_weight=np.full(N, size)), X)


def test_heavy_rows_are_fitted_as_well_as_light_ones() -> None:
    assert regressor(max_iter=40).fit(X, Y, sample_weight=np.full(N, 100.0)).score(X, Y) > 0.8


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (np.full(N, -1.0), "square the deviations"),
        (np.ones(N - 1), "one number per row"),
        (changed(np.ones(N), math.inf), "infinity"),
        (0.1, "at least 1 dimension"),
        (np.full(N, "loud"), "could not convert"),
    ],
    ids=["negative", "wrong length", "infinite", "one number", "text"],
)
def test_wrong_noise_is_refused_by_fit_and_predict(noise: Any, message: str, fitted: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match=message):
        regressor().fit(X, Y, noise_variance=noise)
    with pytest.raises(InvalidInputError, match=message):
        fitted.predict(X, return_std=True, noise_variance=noise)


def test_noise_of_several_outputs_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="fit each output by itself"):
        regressor().fit(X, np.stack([Y, Y], 1), noise_variance=np.ones(N))


@pytest.mark.parametrize("size", [0.0, 1e-12, 1e12])
def test_noise_of_any_size_is_fitted(size: float) -> None:
    assert_sensible(regressor().fit(X, Y, noise_variance=np.full(N, size)), X)


# Parameters


WRONG_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"kernel": "gaussian"}, "Choose one of rbf, matern12"),
    ({"init": "best"}, "Choose kmeans, random or greedy"),
    ({"init": None}, "Choose kmeans, random or greedy"),
    ({"solver": "newton"}, "must be one of auto, lbfgs, adam, paper"),
    ({"bound": "upper"}, "must be one of auto, elbo, tight, power"),
    ({"bound": "power", "power": 0}, "power must be above 0 and at most 1; got 0"),
    ({"bound": "power", "power": 1.5}, "power must be above 0 and at most 1; got 1.5"),
    ({"bound": "power", "power": float("nan")}, "power must be above 0 and at most 1; got nan"),
    ({"power": 2.0}, "power must be above 0"),
    ({"dtype": "float16"}, "must be one of auto, float32, float64"),
    ({"device": "abacus"}, "a device that torch has here"),
    ({"device": "cuda:99"}, "a device that torch has here"),
    ({"device": 2.5}, "a device that torch has here"),
    ({"mean": "median"}, "must be 'zero', 'constant'"),
    ({"n_coreset": 0}, "whole number of at least 1"),
    ({"n_coreset": -5}, "whole number of at least 1"),
    ({"n_coreset": 2.5}, "whole number of at least 1"),
    ({"n_coreset": "many"}, "unless 'auto'"),
    ({"n_coreset": None}, "unless 'auto'"),
    ({"max_iter": 0}, "max_iter must be at least 1"),
    ({"batch_size": 0}, "batch_size must be at least 1"),
    ({"learning_rate": -0.1}, "learning_rate must be positive"),
    ({"max_time": 0}, "max_time must be positive"),
    ({"tol": -1.0}, "tol must be a number of at least 0"),
    ({"validation_fraction": 1.5}, "between 0 and 1"),
    ({"n_iter_no_change": 0}, "n_iter_no_change must be at least 1"),
    ({"random_state": "seed"}, "whole number of at least 0"),
    ({"random_state": -1}, "whole number of at least 0"),
    ({"early_stopping": True, "validation_fraction": 0.001}, "give more rows or another fraction"),
    ({"early_stopping": True, "solver": "lbfgs"}, "solver='adam'"),
]
WRONG_TYPES: list[tuple[dict[str, Any], str]] = [
    ({"kernel": 3}, "a GPyTorch kernel or None; got int"),
    ({"max_iter": 10.0}, "max_iter must be a whole number"),
    ({"max_iter": "10"}, "max_iter must be a whole number"),
    ({"batch_size": "all"}, "batch_size must be a whole number"),
    ({"learning_rate": "fast"}, "learning_rate must be a number"),
    ({"max_time": "1 h"}, "max_time must be a number"),
    ({"bound": "power", "power": "x"}, "power must be a number above 0 and at most 1; got 'x'"),
    ({"bound": "power", "power": True}, "power must be a number above 0 and at most 1; got True"),
    ({"callbacks": print}, "a list of functions"),
    ({"callbacks": [3]}, "a list of functions"),
    ({"checkpoint_dir": 3}, "a path or None"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG_VALUES, ids=str)
def test_wrong_value_of_a_parameter_is_refused_with_advice(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        regressor(**wrong).fit(X, Y)


@pytest.mark.parametrize(("wrong", "message"), WRONG_TYPES, ids=str)
def test_wrong_type_of_a_parameter_is_refused_with_advice(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidTypeError, match=message):
        regressor(**wrong).fit(X, Y)


def test_kernel_of_other_inputs_is_refused_with_advice() -> None:
    with pytest.raises(InvalidInputError, match="ard_num_dims=2"):
        regressor(kernel=ScaleKernel(RBFKernel(ard_num_dims=5))).fit(X, Y)


@pytest.mark.parametrize(
    "init",
    [Coreset(np.zeros((2, 3)), [0.0, 1.0], [1.0, 1.0]), Coreset(X[:2], np.zeros((2, 2)), [1.0, 1.0])],
    ids=["inputs", "outputs"],
)
def test_coreset_of_other_columns_is_refused(init: Coreset) -> None:
    with pytest.raises(InvalidInputError, match="the data have 2 and 1"):
        regressor(init=init).fit(X, Y)


def test_coreset_of_one_column_of_outputs_fits_a_vector() -> None:
    assert_sensible(regressor(init=Coreset(X[:5], Y[:5, None], np.ones(5))).fit(X, Y), X)


def test_file_in_place_of_the_checkpoint_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileAccessError, match="Could not make the folder"):
        regressor(checkpoint_dir=tmp_path / "file").fit(X, Y)


@pytest.mark.filterwarnings("ignore::cvgp.errors.CVGPWarning")
def test_hopeless_learning_rate_is_refused_with_advice() -> None:
    with pytest.raises(DivergenceError, match="smaller learning_rate"):
        regressor(solver="adam", learning_rate=1e12, max_iter=30).fit(X, Y)


# Requests to a fitted model


@pytest.mark.parametrize("q", [0.0, 1.0, -0.5, [0.5, 2.0], math.nan, [[0.5]]], ids=str)
def test_wrong_quantile_is_refused(q: Any, fitted: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match="numbers between 0 and 1"):
        fitted.predict_quantiles(X, q)


def test_quantile_by_name_is_refused(fitted: CVGPRegressor) -> None:
    with pytest.raises(InvalidTypeError, match="numbers between 0 and 1"):
        fitted.predict_quantiles(X, "median")


@pytest.mark.parametrize("n_samples", [0, -1, 1.5, "many"])
def test_wrong_number_of_draws_is_refused(n_samples: Any, fitted: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match="n_samples must be a whole number"):
        fitted.sample_y(X, n_samples)


@pytest.mark.parametrize("tolerance", [-1.0, math.nan, "little", None])
def test_wrong_tolerance_of_pruning_is_refused(tolerance: Any, fitted: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match="tolerance must be a number of nats"):
        fitted.prune(tolerance)


def test_deviation_and_covariance_together_are_refused(fitted: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match="not both"):
        fitted.predict(X, return_std=True, return_cov=True)


@pytest.mark.parametrize("error", [InvalidInputError, InvalidTypeError, DivergenceError, FileAccessError])
def test_every_error_is_caught_by_one_name(error: type[Exception]) -> None:
    assert issubclass(error, CVGPError)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (InvalidInputError, ValueError),
        (InvalidTypeError, TypeError),
        (DivergenceError, FloatingPointError),
        (FileAccessError, OSError),
    ],
)
def test_every_error_is_the_builtin_that_a_reader_expects(error: type[Exception], builtin: type[Exception]) -> None:
    assert issubclass(error, builtin)
