"""What a user may get wrong: each gives a sensible model, or an error that says what to do."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from scipy import sparse
from sklearn.exceptions import NotFittedError

from cvgp import Coreset, CVGPRegressor
from cvgp.errors import DivergenceError, FileAccessError, InvalidInputError, InvalidTypeError
from tests.flat_options import make_regressor

N = 40
rng = np.random.default_rng(0)
X = rng.uniform(-2.0, 2.0, size=(N, 2))
Y = np.sin(2.0 * X[:, 0]) + 0.1 * rng.normal(size=N)
MASKED = np.ma.masked_array(Y, mask=np.arange(N) == 3)
MASKED_X = np.ma.masked_array(X, mask=(np.arange(N) == 3)[:, None] & np.ones((1, 2), dtype=bool))


def regressor(**options: Any) -> CVGPRegressor:
    return make_regressor(**{"n_coreset": 6, "max_iter": 10, "random_state": 0, **options})


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


# Rows


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"X": changed(X, -math.inf)}, InvalidInputError, "infinity"),
        ({"y": Y * math.nan}, InvalidInputError, "none of its 40 rows has a target"),
        ({"y": changed(Y, math.inf)}, InvalidInputError, "infinity"),
        ({"X": changed(X, "red")}, InvalidInputError, "could not convert string"),
        ({"y": changed(Y, "red")}, InvalidTypeError, "'red'.*CVGPClassifier"),
        ({"X": X.astype(complex)}, InvalidInputError, "Complex data not supported"),
        ({"X": sparse.csr_matrix(X)}, InvalidTypeError, "dense"),
        ({"X": torch.tensor(X, dtype=torch.bfloat16)}, InvalidTypeError, "BFloat16"),
        ({"X": X[:0], "y": Y[:0]}, InvalidInputError, "minimum of 1 is required"),
        ({"X": X[:, :0]}, InvalidInputError, "minimum of 1 is required"),
        ({"X": X[:, 0]}, InvalidInputError, "reshape"),
        ({"X": X[:1], "y": Y[:1]}, InvalidInputError, "at least 2"),
        ({"y": Y[:-1]}, InvalidInputError, "inconsistent numbers of samples"),
        ({"y": np.arange(len(Y)).astype("datetime64[D]")}, InvalidTypeError, "dates or times"),
        ({"y": 1e200 * Y}, InvalidInputError, "another unit"),
        ({"y": 1e-200 * Y}, InvalidInputError, "another unit"),
        ({"X": MASKED_X}, InvalidInputError, r"^X is a masked array"),
        ({"y": MASKED}, InvalidInputError, r"^y is a masked array of which 1 of 40 .* index \[3"),
        ({"sample_weight": MASKED}, InvalidInputError, r"^sample_weight is a masked array"),
        ({"noise_variance": MASKED}, InvalidInputError, r"^noise_variance is a masked array"),
        ({"sample_weight": np.full(N, -1.0)}, InvalidInputError, "Negative values"),
        ({"sample_weight": np.zeros(N)}, InvalidInputError, "at least one non-zero"),
        ({"sample_weight": changed(np.ones(N), math.nan)}, InvalidInputError, "NaN"),
        ({"sample_weight": np.ones(N - 1)}, InvalidInputError, "sample_weight"),
        ({"sample_weight": np.full(N, "much")}, InvalidInputError, "could not convert"),
        ({"noise_variance": np.ones(N), "y": np.stack([Y, Y], 1)}, InvalidInputError, "fit each output by itself"),
    ],
)
def test_rows_that_cannot_be_fitted_are_refused(arguments: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        regressor().fit(**{"X": X, "y": Y} | arguments)


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (np.full(N, -1.0), "square the deviations"),
        (np.ones(N - 1), "one number per row"),
        (changed(np.ones(N), math.inf), "infinity"),
        (0.1, "at least 1 dimension"),
        (np.full(N, "loud"), "could not convert"),
    ],
)
def test_wrong_noise_is_refused_by_fit_and_predict(noise: Any, message: str, fitted: CVGPRegressor) -> None:
    with pytest.raises(InvalidInputError, match=message):
        regressor().fit(X, Y, noise_variance=noise)
    with pytest.raises(InvalidInputError, match=message):
        fitted.predict(X, return_std=True, noise_variance=noise)


REQUESTS: list[tuple[Callable[[CVGPRegressor], object], type, str]] = [
    (lambda m: m.predict(changed(X, "red")), InvalidInputError, "could not convert string"),
    (lambda m: m.predict(X[:0]), InvalidInputError, "minimum of 1 is required"),
    (lambda m: m.predict(MASKED_X), InvalidInputError, r"^X is a masked array .*Leave these rows out, or fill"),
    (lambda m: m.predict(np.zeros((5, 3))), InvalidInputError, "has 3 features, but CVGPRegressor is expecting 2"),
    (lambda m: m.predict(X, return_std=True, return_cov=True), InvalidInputError, "not both"),
    (lambda m: m.log_predictive_density(X, Y[:-1]), InvalidInputError, "shape of the predictions"),
    (lambda m: m.log_predictive_density(X, MASKED), InvalidInputError, r"^y is a masked array"),
    *(
        (lambda m, q=q: m.predict_quantiles(X, q), InvalidInputError, "between 0 and 1")
        for q in (0.0, [0.5, 2.0], math.nan)
    ),
    (lambda m: m.predict_quantiles(X, "median"), InvalidTypeError, "between 0 and 1"),
    *(
        (lambda m, p=p: m.predict_interval(X, p), InvalidInputError, r"such as 0\.9 for 90 %")
        for p in (0.0, 95, math.nan)
    ),
    (lambda m: m.predict_interval(X, [0.1, 0.9]), InvalidTypeError, "one number"),
    *(
        (lambda m, n=n: m.sample_y(X, n), InvalidInputError, "n_samples must be a whole number")
        for n in (0, 1.5, "many")
    ),
    *((lambda m, t=t: m.prune(t), InvalidInputError, "number of nats") for t in (-1.0, math.nan, None)),
]


@pytest.mark.parametrize(("ask", "error", "message"), REQUESTS)
def test_wrong_requests_are_refused(
    ask: Callable[[CVGPRegressor], object], error: type, message: str, fitted: CVGPRegressor
) -> None:
    with pytest.raises(error, match=message):
        ask(fitted)
    with pytest.raises((NotFittedError, InvalidInputError, InvalidTypeError)):
        ask(CVGPRegressor())


def test_other_names_of_columns_to_predict_are_refused() -> None:
    model = regressor().fit(pd.DataFrame(X, columns=["age", "dose"]), Y)
    with pytest.raises(InvalidInputError, match="weight"):
        model.predict(pd.DataFrame(X, columns=["age", "weight"]))


# Few or degenerate data


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
@pytest.mark.filterwarnings("ignore:y is .* in every row")
def test_a_constant_target_is_predicted(solver: str, standardize: bool) -> None:
    for value in (0.0, 5.0, -3e12, 2e-12):
        model = regressor(solver=solver, standardize=standardize).fit(X, np.full(N, value))
        mean, sd = model.predict(np.vstack([X, [[50.0, 50.0]]]), return_std=True)
        size = abs(value) or 1.0
        np.testing.assert_allclose(mean, value, rtol=0.0, atol=1e-4 * size)
        np.testing.assert_allclose(sd, size / N, rtol=1e-3)


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("k", [1, 10])
@pytest.mark.filterwarnings("ignore:y is .* in every row")
def test_a_few_rows_are_fitted_with_and_without_neighbors(count: int, k: int) -> None:
    assert_sensible(CVGPRegressor(random_state=0).fit(X[:count], Y[:count]), X)
    assert_sensible(CVGPRegressor(n_neighbors=k, random_state=0).fit(X[:count], Y[:count]), X)


@pytest.mark.parametrize(
    "rows",
    [
        (np.column_stack([X, X]), Y),
        (np.repeat(X, 3, axis=0), np.repeat(Y, 3)),
        *((size * X, Y) for size in (1e12, 1e-200)),
        (X * [1e12, 1e-12], Y),
        *((X, size * Y) for size in (1e12, 1e-12)),
    ],
)
def test_repeated_rows_and_columns_and_values_of_any_size_are_learned(rows: tuple[np.ndarray, np.ndarray]) -> None:
    model = regressor(max_iter=30).fit(*rows)
    assert model.score(*rows) > 0.8
    assert_sensible(model, rows[0])


@pytest.mark.parametrize("init", ["kmeans", "random", "greedy"])
def test_few_distinct_inputs_and_more_points_than_rows_are_fitted(init: str) -> None:
    level = rng.integers(0, 3, size=N)
    model = regressor(n_coreset=20, init=init).fit(level[:, None], 10.0 * level + 0.1 * Y)
    np.testing.assert_allclose(model.predict([[0.0], [1.0], [2.0]]), [0.0, 10.0, 20.0], atol=0.5)
    model = regressor(n_coreset=500, init=init).fit(X[:10], Y[:10])
    assert 5 <= len(model.coreset_) <= 10
    assert_sensible(model, X)


# Parameters


WRONG_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"kernel": "gaussian"}, "Choose one of rbf, matern12"),
    ({"kernel": ScaleKernel(RBFKernel(ard_num_dims=5))}, "ard_num_dims=2"),
    ({"init": "best"}, "Choose kmeans, random or greedy"),
    ({"init": Coreset(np.zeros((2, 3)), [0.0, 1.0], [1.0, 1.0])}, "the data have 2 and 1"),
    ({"solver": "newton"}, "must be one of auto, lbfgs, adam, paper"),
    ({"bound": "upper"}, "must be one of auto, elbo, tight"),
    ({"dtype": "float16"}, "must be one of auto, float32, float64"),
    ({"device": "abacus"}, "a device that torch has here"),
    ({"device": 2.5}, "a device that torch has here"),
    ({"mean": "median"}, "must be 'zero', 'constant'"),
    ({"n_coreset": 0}, "whole number of at least 1"),
    ({"n_coreset": 2.5}, "whole number of at least 1"),
    ({"n_coreset": None}, "unless 'auto'"),
    ({"max_iter": 0}, "max_iter must be at least 1"),
    ({"batch_size": 0}, "batch_size must be at least 1"),
    ({"learning_rate": -0.1}, "learning_rate must be positive"),
    ({"max_time": 0}, "max_time must be positive"),
    ({"tol": -1.0}, "tol must be a number of at least 0"),
    ({"validation_fraction": 1.5}, "between 0 and 1"),
    ({"random_state": -1}, "whole number of at least 0"),
    ({"target_transform": "box-cox"}, "target_transform must be one of"),
    ({"early_stopping": True, "validation_fraction": 0.001}, "give more rows or another fraction"),
    ({"early_stopping": True, "solver": "lbfgs"}, "solver='adam'"),
]
WRONG_TYPES: list[tuple[dict[str, Any], str]] = [
    ({"kernel": 3}, "a GPyTorch kernel or None; got int"),
    ({"max_iter": 10.0}, "max_iter must be a whole number"),
    ({"learning_rate": "fast"}, "learning_rate must be a number"),
    ({"max_time": "1 h"}, "max_time must be a number"),
    ({"callbacks": [3]}, "a list of functions"),
    ({"checkpoint_dir": 3}, "a path or None"),
    ({"training": "adam"}, "TrainingOptions or None; got 'adam'"),
]


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [(wrong, InvalidInputError, text) for wrong, text in WRONG_VALUES]
    + [(wrong, InvalidTypeError, text) for wrong, text in WRONG_TYPES],
    ids=str,
)
def test_a_wrong_parameter_is_refused_with_advice(wrong: dict[str, Any], error: type, message: str) -> None:
    model = CVGPRegressor(**wrong) if "training" in wrong else regressor(**wrong)
    with pytest.raises(error, match=message):
        model.fit(X, Y)


def test_a_file_in_place_of_the_checkpoint_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileAccessError, match="Could not make the folder"):
        regressor(checkpoint_dir=tmp_path / "file").fit(X, Y)


@pytest.mark.filterwarnings("ignore::cvgp.errors.CVGPWarning")
def test_a_hopeless_learning_rate_is_refused_with_advice() -> None:
    with pytest.raises(DivergenceError, match="smaller learning_rate"):
        regressor(solver="adam", learning_rate=1e12, max_iter=30).fit(X, Y)
