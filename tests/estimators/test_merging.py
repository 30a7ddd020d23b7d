"""Models of shards become one model of all rows, from their coresets alone."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from gpytorch.kernels import Kernel

import cvgp
from cvgp import CVGPRegressor, TrainingOptions
from cvgp.errors import CVGPWarning, InvalidInputError, InvalidTypeError
from cvgp.gp.kernels import make_kernel
from tests import reference
from tests.flat_options import make_regressor

rng = np.random.default_rng(3)
X = rng.uniform(-3.0, 3.0, size=(240, 2))
Y = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=240)
AT = rng.uniform(-3.0, 3.0, size=(30, 2))


def frozen_kernel(lengthscale: float = 1.5) -> Kernel:
    kernel = make_kernel("matern32", 2)
    kernel.outputscale = 1.0
    kernel.base_kernel.lengthscale = lengthscale
    for p in kernel.parameters():
        p.requires_grad_(False)
    return kernel


def fit(rows: slice, **options: Any) -> CVGPRegressor:
    options = {"n_coreset": 15, "max_iter": 40, "random_state": 0} | options
    return make_regressor(**options).fit(X[rows], Y[rows])


@pytest.fixture(scope="module")
def same() -> list[CVGPRegressor]:
    """Three models with the same prior."""
    return [fit(slice(i, None, 3), kernel=frozen_kernel(), standardize=False) for i in range(3)]


@pytest.fixture(scope="module")
def different() -> list[CVGPRegressor]:
    """Three models, each with what it learned."""
    return [fit(slice(i, None, 3)) for i in range(3)]


def std(model: CVGPRegressor, include_noise: bool = False) -> np.ndarray:
    return np.asarray(model.predict(AT, return_std=True, include_noise=include_noise)[1])


# The same prior


def test_the_merged_posterior_is_the_exact_gp_on_the_union_of_the_coresets(same: list[CVGPRegressor]) -> None:
    x = np.concatenate([model.coreset_.X for model in same])
    y = np.concatenate([model.coreset_.y for model in same])
    w = np.concatenate([model.coreset_.beta / model.noise_variance_ for model in same])
    K_cc, K_cx, K_xx = (reference.matern32(a, b, 1.5) for a, b in ((x, x), (x, AT), (AT, AT)))
    mean, covariance = reference.posterior(K_cc, K_cx, K_xx, y, w, 1.0)
    found_mean, found_covariance = cvgp.merge(same).predict(AT, return_cov=True, include_noise=False)
    np.testing.assert_allclose(found_mean, mean, atol=1e-8)
    np.testing.assert_allclose(found_covariance, covariance, atol=1e-8)


def test_merging_in_two_steps_is_merging_at_once(same: list[CVGPRegressor]) -> None:
    at_once, stepwise = cvgp.merge(same), cvgp.merge([cvgp.merge(same[:2]), same[2]])
    np.testing.assert_allclose(stepwise.predict(AT), at_once.predict(AT), atol=1e-8)
    np.testing.assert_allclose(stepwise.noise_variance_, at_once.noise_variance_, rtol=1e-8)
    np.testing.assert_allclose(stepwise.elbo_, at_once.elbo_, atol=1e-4)


def test_the_prior_counts_once(same: list[CVGPRegressor]) -> None:
    far = np.full((1, 2), 1e3)
    _, sd = cvgp.merge(same).predict(far, return_std=True, include_noise=False)
    np.testing.assert_allclose(sd, 1.0)


def test_a_new_fit_forgets_that_a_model_was_merged(same: list[CVGPRegressor]) -> None:
    assert not hasattr(cvgp.merge(same).fit(X, Y), "merged_")


def test_what_a_smaller_coreset_loses_of_the_bound_is_its_divergence_from_the_union(same: list[CVGPRegressor]) -> None:
    union, smaller = cvgp.merge(same), cvgp.merge(same, n_coreset=10)
    # Beyond the points of both coresets, the two processes are the prior given the same values.
    points = np.concatenate([union.coreset_.X, smaller.coreset_.X])
    (m_p, S_p), (m_q, S_q) = (model.predict(points, return_cov=True, include_noise=False) for model in (union, smaller))
    jitter = 1e-8 * np.eye(len(points))
    divergence = reference.gaussian_kl(m_q, S_q + jitter, m_p, S_p + jitter)
    np.testing.assert_allclose(union.elbo_ - smaller.elbo_, divergence, rtol=1e-2)


# Different priors


def test_different_kernels_are_averaged_on_the_logarithmic_scale(different: list[CVGPRegressor]) -> None:
    merged = cvgp.merge(different)
    expected = np.exp(np.mean([np.log(model.lengthscales_) for model in different], axis=0))
    np.testing.assert_allclose(merged.lengthscales_, expected)


@pytest.mark.parametrize("size", [None, 20])
def test_the_merged_model_predicts_better_than_each_of_its_parts(
    different: list[CVGPRegressor], size: int | None
) -> None:
    truth = np.sin(AT[:, 0]) + 0.5 * AT[:, 1]
    errors = [np.sqrt(np.mean((model.predict(AT) - truth) ** 2)) for model in different]
    merged = cvgp.merge(different, n_coreset=size)
    assert np.sqrt(np.mean((merged.predict(AT) - truth) ** 2)) < np.mean(errors)


def test_shards_of_different_regions_are_brought_to_one_unit() -> None:
    order = np.argsort(X[:, 0])
    models = [
        CVGPRegressor(15, random_state=0, training=TrainingOptions(max_iter=60)).fit(X[rows], Y[rows])
        for rows in np.array_split(order, 3)
    ]
    truth = np.sin(AT[:, 0]) + 0.5 * AT[:, 1]
    assert np.sqrt(np.mean((cvgp.merge(models).predict(AT) - truth) ** 2)) < 0.1


def test_kernels_of_different_kinds_can_be_merged() -> None:
    kinds = (slice(0, 120), "rbf"), (slice(120, 240), "matern52")
    models = [fit(rows, kernel=kernel, noise="constant") for rows, kernel in kinds]
    truth = np.sin(AT[:, 0]) + 0.5 * AT[:, 1]
    assert np.sqrt(np.mean((cvgp.merge(models).predict(AT) - truth) ** 2)) < 0.15


def test_several_outputs_can_be_merged() -> None:
    both = np.column_stack([Y, 10.0 * Y**2])
    models = [
        # After early stopping, outputs share a noise.
        CVGPRegressor(
            15, noise="constant", random_state=0, training=TrainingOptions(max_iter=400, early_stopping=True)
        ).fit(X[i::2], both[i::2])
        for i in range(2)
    ]
    mean, sd = cvgp.merge(models).predict(X, return_std=True)
    assert mean.shape == sd.shape == (240, 2)
    assert np.corrcoef(mean[:, 1], both[:, 1])[0, 1] > 0.95


# What the result can do


def test_a_merged_model_can_be_pruned(same: list[CVGPRegressor]) -> None:
    merged = cvgp.merge(same)
    before, elbo = merged.predict(AT), merged.elbo_
    dropped = merged.prune(0.02)
    assert dropped == 45 - len(merged.coreset_) > 0
    assert elbo - 0.02 * 240 < merged.elbo_ < elbo
    assert (np.abs(merged.predict(AT) - before) < 2.0 * std(merged)).all()


def shards(*more: str) -> list[CVGPRegressor]:
    """Models of the shards of a frame of a number, and of more columns if these are named."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=90), "city": [f"c{i % 12}" for i in range(90)]})
    y = np.sin(frame["a"]) + frame.index % 12
    options = {"n_coreset": 5, "max_iter": 3, "random_state": 0, "n_neighbors": 0, "noise": "constant"}
    parts = [frame[["a", *more]][start : start + 30] for start in (0, 30, 60)]
    return [make_regressor(**options).fit(part, y[part.index]) for part in parts]


def test_columns_that_all_models_have_are_kept_however_they_are_distributed() -> None:
    merged = cvgp.merge(shards())
    assert [column["name"] for column in merged.schema_["columns"]] == ["a"]


def test_levels_that_were_learned_from_different_rows_are_left_out_with_a_warning() -> None:
    models = shards("city")
    with pytest.warns(CVGPWarning, match="read tables in different ways"):
        merged = cvgp.merge(models)
    assert not hasattr(merged, "schema_")
    assert merged.predict(pd.DataFrame({"a": [0.0], "city": [0.0]})).shape == (1,)


# What cannot be merged


@pytest.mark.parametrize("models", [[], None, "models", [1, 2]])
def test_what_is_no_list_of_models_is_refused(models: Any) -> None:
    with pytest.raises(InvalidTypeError, match="list of at least one fitted CVGPRegressor"):
        cvgp.merge(models)


def test_other_columns_are_refused(same: list[CVGPRegressor]) -> None:
    other = CVGPRegressor(5, random_state=0, training=TrainingOptions(max_iter=3)).fit(X[:, :1], Y)
    with pytest.raises(InvalidInputError, match="same columns and outputs, but model 2 has 1 features"):
        cvgp.merge([same[0], other])


def test_the_same_model_twice_is_refused(same: list[CVGPRegressor]) -> None:
    with pytest.raises(InvalidInputError, match="would count twice"):
        cvgp.merge([same[0], same[1], same[0]])
