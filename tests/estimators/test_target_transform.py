"""A regressor that describes a transform of y, as a user meets it: everything it says is about y."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpytorch.kernels import RBFKernel
from gpytorch.means import ConstantMean

import cvgp
from cvgp import CVGPRegressor
from cvgp.errors import InvalidInputError
from tests.flat_options import make_regressor

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, size=(300, 2))
T = 5.0 + np.sin(1.5 * X[:, 0]) + 0.3 * X[:, 1] + 0.4 * RNG.normal(size=300)
PRICE = np.exp(T)
X_NEW = RNG.uniform(-2.0, 2.0, size=(40, 2))


def regressor(**parameters: Any) -> CVGPRegressor:
    return make_regressor(**{"n_coreset": 15, "max_iter": 30, "noise": "constant", "random_state": 0} | parameters)


@pytest.fixture(scope="module")
def by_hand() -> CVGPRegressor:
    """Of the logarithms themselves."""
    return regressor().fit(X, T)


@pytest.fixture(scope="module")
def log() -> CVGPRegressor:
    return regressor(target_transform="log").fit(X, PRICE)


@pytest.fixture(scope="module")
def power() -> CVGPRegressor:
    return regressor(target_transform="yeo-johnson").fit(X, PRICE)


def test_quantiles_are_exponentials_of_those_of_logarithms(log: CVGPRegressor, by_hand: CVGPRegressor) -> None:
    levels = [0.025, 0.5, 0.975]
    expected = np.exp(by_hand.predict_quantiles(X_NEW, levels))
    np.testing.assert_allclose(log.predict_quantiles(X_NEW, levels), expected, rtol=1e-8)
    assert log.target_transform_ == "log"
    assert (expected > 0.0).all()


def test_the_bound_and_densities_are_of_y_in_its_own_units(log: CVGPRegressor, by_hand: CVGPRegressor) -> None:
    assert log.elbo_ == pytest.approx(by_hand.elbo_ - T.sum(), rel=1e-8)
    expected = by_hand.log_predictive_density(X, T) - T
    np.testing.assert_allclose(log.log_predictive_density(X, PRICE), expected, rtol=1e-7)


@pytest.mark.parametrize("name", ["log", "power"])
def test_draws_have_the_mean_and_covariance_that_are_predicted(name: str, request: pytest.FixtureRequest) -> None:
    model: CVGPRegressor = request.getfixturevalue(name)
    mean, cov = model.predict(X_NEW[:3], return_cov=True)
    draws = model.sample_y(X_NEW[:3], n_samples=100_000)
    np.testing.assert_allclose(draws.mean(axis=1), mean, rtol=0.02)
    np.testing.assert_allclose(np.diagonal(np.cov(draws)), np.diagonal(cov), rtol=0.1)
    np.testing.assert_allclose(model.predict(X_NEW[:3], return_std=True)[1] ** 2, np.diagonal(cov), rtol=1e-8)


def test_intervals_of_a_skewed_y_hold_their_share(power: CVGPRegressor) -> None:
    x = np.random.default_rng(1).uniform(-2.0, 2.0, size=(4000, 2))
    noise = 0.4 * np.random.default_rng(2).normal(size=4000)
    y = np.exp(5.0 + np.sin(1.5 * x[:, 0]) + 0.3 * x[:, 1] + noise)
    low, high = power.predict_quantiles(x, [0.05, 0.95]).T
    assert 0.86 < np.mean((low < y) & (y < high)) < 0.94


def test_coreset_is_in_the_units_of_y_and_can_be_started_from(log: CVGPRegressor, by_hand: CVGPRegressor) -> None:
    np.testing.assert_allclose(np.log(log.coreset_.y), by_hand.coreset_.y, rtol=1e-6)
    again = regressor(target_transform="log", init=log.coreset_, n_coreset="auto").fit(X, PRICE)
    assert again.elbo_ > log.elbo_ - 0.01 * len(X)


def test_growing_gives_the_bound_of_y(log: CVGPRegressor, by_hand: CVGPRegressor, tmp_path: Path) -> None:
    log.save(tmp_path / "log.cvgp")
    by_hand.save(tmp_path / "hand.cvgp")
    grown, other = cvgp.load(tmp_path / "log.cvgp"), cvgp.load(tmp_path / "hand.cvgp")
    assert grown.grow(25, X, PRICE) == other.grow(25, X, T)
    assert grown.elbo_ == pytest.approx(other.elbo_ - T.sum(), rel=1e-8)


def test_several_outputs_are_transformed_each_in_its_own_way() -> None:
    y = np.column_stack([PRICE, -PRICE])
    model = regressor(target_transform="yeo-johnson").fit(X, y)
    mean, sd = model.predict(X_NEW, return_std=True)
    assert mean.shape == sd.shape == (40, 2)
    assert model.predict(X_NEW, return_cov=True)[1].shape == (40, 40, 2)
    assert model.predict_quantiles(X_NEW, [0.1, 0.9]).shape == (40, 2, 2)
    assert model.sample_y(X_NEW, n_samples=3).shape == (40, 2, 3)
    np.testing.assert_allclose(mean[:, 0], -mean[:, 1], rtol=1e-3)
    assert model.log_predictive_density(X, y).shape == (300,)


def test_neighbours_and_early_stopping_see_the_transformed_y() -> None:
    near = regressor(target_transform="log", n_neighbors=5).fit(X, PRICE)
    assert near.n_neighbors_ == 5
    assert (near.predict_quantiles(X_NEW, [0.001]) > 0.0).all()
    stopped = regressor(target_transform="log", early_stopping=True, solver="adam").fit(X, PRICE)
    assert np.corrcoef(stopped.predict(X), PRICE)[0, 1] > 0.6


def test_models_of_logarithms_are_merged_and_others_refused(power: CVGPRegressor) -> None:
    shards = [regressor(target_transform="log").fit(X[i::2], PRICE[i::2]) for i in range(2)]
    merged = cvgp.merge(shards)
    assert merged.target_transform_ == "log"
    assert (merged.predict_quantiles(X_NEW, [0.001]) > 0.0).all()
    assert merged.elbo_ == pytest.approx(sum(shard.elbo_ for shard in shards), rel=0.05)
    with pytest.raises(
        InvalidInputError, match=r"describe y in the same way.*target_transform='identity' or target_transform='log'"
    ):
        cvgp.merge([shards[0], power])


def test_the_logarithm_of_outputs_that_have_none_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"target_transform='log' is for y above 0; got 1 of 300 values"):
        regressor(target_transform="log").fit(X, PRICE - PRICE.min())


def test_known_noise_allows_the_identity_alone(log: CVGPRegressor) -> None:
    known = np.full(len(X), 0.1)
    with pytest.raises(
        InvalidInputError, match="units of y squared, and a model with target_transform='log' has other units"
    ):
        regressor(target_transform="log").fit(X, PRICE, noise_variance=known)
    with pytest.raises(
        InvalidInputError, match="units of y squared, and the model describes y by target_transform='log'"
    ):
        log.predict(X_NEW, return_std=True, noise_variance=np.ones(40))
    assert regressor(target_transform="auto").fit(X, PRICE, noise_variance=known).target_transform_ == "identity"


def test_auto_takes_the_logarithm_of_a_skewed_price() -> None:
    model = regressor().fit(X, PRICE)  # which is the default
    assert model.target_transform_ == "log"
    assert (model.predict_quantiles(X_NEW, [0.001]) > 0.0).all()
    assert model.decisions_.target_transform.value["name"] == "log"


@pytest.mark.parametrize(
    "said",
    [{"standardize": False}, {"kernel": "linear"}, {"kernel": RBFKernel()}, {"mean": ConstantMean()}],
    ids=["units", "a line", "a kernel", "a mean"],
)
def test_auto_leaves_y_as_it_is_where_the_prior_is_about_its_units(said: dict[str, Any]) -> None:
    assert regressor(**said).fit(X, PRICE).target_transform_ == "identity"


def test_auto_leaves_a_normal_y_as_it_is() -> None:
    assert regressor(target_transform="auto").fit(X, T).target_transform_ == "identity"


@pytest.mark.slow
def test_a_held_out_zero_rules_the_logarithm_out() -> None:
    price = PRICE.copy()
    price[np.random.default_rng(0).choice(len(price), 3, replace=False)] = 0.0
    for seed in range(4):
        model = regressor(target_transform="auto", early_stopping=True, solver="adam", random_state=seed)
        assert model.fit(X, price).target_transform_ != "log"


@pytest.mark.parametrize("transform", ["log", "yeo-johnson", "auto"])
@pytest.mark.parametrize("factor", [10.0, 1000.0, -1000.0])
@pytest.mark.slow
def test_no_prediction_is_beyond_reason_far_from_the_data(transform: Any, factor: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    y = np.exp(2.0 * x[:, 0] + 0.5 * rng.normal(size=300))
    model = make_regressor(random_state=0, target_transform=transform, n_neighbors=0).fit(x, y)
    far = x * np.array([factor, 1.0, 1.0])
    mean, sd = model.predict(far, return_std=True)
    reach = 10.0 * y.max()
    values = [mean, sd, model.predict_quantiles(far, [0.01, 0.5, 0.99]), model.sample_y(far, n_samples=20)]
    assert all(np.isfinite(value).all() for value in values)
    assert max(np.abs(value).max() for value in values) < reach


def test_new_rows_widen_the_range_of_predictions() -> None:
    def target(x: np.ndarray) -> np.ndarray:
        return np.exp(x[:, 0] + 0.05 * np.random.default_rng(0).normal(size=len(x)))

    x, x_new = np.linspace(-1.0, 1.0, 100)[:, None], np.linspace(1.1, 6.0, 100)[:, None]
    model = make_regressor(random_state=0, target_transform="log", n_neighbors=0).fit(x, target(x))
    assert model.predict(x_new).max() < 5.0
    np.testing.assert_allclose(model.condition(x_new, target(x_new)).predict(x_new), np.exp(x_new[:, 0]), rtol=0.2)
    other = make_regressor(random_state=0, target_transform="log", n_neighbors=0).fit(x_new, target(x_new))
    assert cvgp.merge([model, other]).predict(x_new).max() > 100.0


@pytest.mark.filterwarnings("ignore")
def test_a_constant_target_can_be_stored(tmp_path: Path) -> None:
    model = make_regressor(random_state=0, target_transform="log").fit(X[:30], np.full(30, 7.0))
    model.save(tmp_path / "m.cvgp")
    np.testing.assert_allclose(cvgp.load(tmp_path / "m.cvgp").predict(X[:3]), 7.0, rtol=0.01)


def test_an_audit_row_that_has_no_logarithm_is_refused() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(600, 2)), np.exp(rng.normal(size=600))
    for row in range(0, 600, 10):  # some of these are audit rows
        changed = y.copy()
        changed[row] = 0.0
        with pytest.raises(InvalidInputError, match="above 0"):
            regressor(target_transform="log").fit(x, changed)
