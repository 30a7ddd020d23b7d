"""partial_fit and forget: models that learn batch by batch."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import cvgp
from cvgp import CVGPClassifier, CVGPRegressor
from cvgp.errors import CVGPError, InvalidInputError
from cvgp.estimators import coresets, updating
from cvgp.estimators.updating import _known_source
from cvgp.parallel.group import ALONE
from tests.flat_options import make_regressor

Array = NDArray[np.float64]


def waves(n: int, seed: int = 0, shift: float = 0.0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2)) + np.array([shift, 0.0])
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(n)


def labels(n: int, seed: int = 0, shift: float = 0.0) -> tuple[Array, NDArray[np.str_]]:
    X, f = waves(n, seed, shift)
    return X, np.where(f > 0.0, "high", "low")


def three_labels(n: int, seed: int = 0) -> tuple[Array, NDArray[np.str_]]:
    X, f = waves(n, seed)
    return X, np.array(["low", "middle", "high"])[np.digitize(f, [-0.7, 0.7])]


BATCHES = [waves(60, seed) for seed in range(1, 5)]
TEST = waves(400, seed=9)


@pytest.fixture(scope="module")
def fitted() -> CVGPRegressor:
    return make_regressor(n_coreset=20, max_iter=15, noise="constant", random_state=0).fit(*waves(150))


@pytest.fixture
def model(fitted: CVGPRegressor) -> CVGPRegressor:
    return deepcopy(fitted)


@pytest.fixture(scope="module")
def fitted_classes() -> CVGPClassifier:
    return CVGPClassifier(n_coreset=15, kernel="rbf", random_state=0).fit(*labels(150))


def log_loss(model: CVGPClassifier, X: Array, y: Any) -> float:
    return float(-np.log(model.predict_proba(X)[y[:, None] == model.classes_]).mean())


def solved_on_all_rows(model: CVGPRegressor, X: Array, y: Array, weight: Array | None = None) -> CVGPRegressor:
    """The best coreset for these rows at the kernel and the pseudo-inputs of a model."""
    found = deepcopy(model)
    source, log_slopes = _known_source(found, X, y, weight, None, ALONE)
    grown = coresets.grow_model(found.model_, source, len(found.coreset_), np.random.default_rng(0))
    grown.model.adopt_optimum(grown.statistics)
    found._adopt(grown, source.total_weight, log_slopes)
    return found


def assert_predicts_the_same(one: CVGPRegressor, two: CVGPRegressor, tolerance: float = 1e-8) -> None:
    for a, b in zip(one.predict(TEST[0], return_std=True), two.predict(TEST[0], return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]], ids=str)
def test_batches_in_any_order_are_a_solution_for_all_rows(model: CVGPRegressor, order: list[int]) -> None:
    before = model.elbo_ / model.n_rows_
    for place in order:
        model.partial_fit(*BATCHES[place])
    X, y = (np.concatenate(parts) for parts in zip(waves(150), *BATCHES, strict=True))
    assert_predicts_the_same(model, solved_on_all_rows(model, X, y))
    assert model.n_rows_ == 150 + 4 * 60
    assert model.elbo_ / model.n_rows_ > before


def test_after_forgetting_old_rows_count_less(model: CVGPRegressor) -> None:
    model.forget(0.5).forget(0.5).partial_fit(*BATCHES[0])
    X, y = (np.concatenate(parts) for parts in zip(waves(150), BATCHES[0], strict=True))
    weight = np.repeat([0.25, 1.0], [150, 60])
    assert_predicts_the_same(model, solved_on_all_rows(model, X, y, weight), 1e-5)  # the search for weights ends early
    assert model.n_rows_ == 0.25 * 150 + 60


def test_with_neighbors_new_rows_join_those_that_predictions_use() -> None:
    known = make_regressor(n_coreset=15, n_neighbors=10, max_iter=5, random_state=0).fit(*waves(150))
    X, y = BATCHES[0]
    order = X[:, 0].argsort()  # the rows of a batch are sorted, and each is conditioned on those before it
    conditioned, model = known.condition(X[order], y[order]), deepcopy(known).partial_fit(X, y)
    assert_predicts_the_same(model, conditioned)
    assert model.forget(0.5).n_rows_ == pytest.approx(105.0)
    model.partial_fit(*waves(60, 3, shift=4.0), adapt=True)
    assert len(model.coreset_) >= 15
    assert model.score(*waves(200, 4, shift=4.0)) > 0.8
    for _ in range(9):
        model.forget(0.3).partial_fit(*BATCHES[1])
    assert len(model._gp.kept.rows.x) < 8 * 60  # rows that hardly count are dropped


def test_an_adapting_model_follows_rows_to_new_places_in_bounded_memory(model: CVGPRegressor) -> None:
    fixed, sizes = deepcopy(model), []
    for number in range(12):
        batch = waves(80, number, shift=number / 3.0)
        fixed.partial_fit(*batch)
        model.partial_fit(*batch, adapt=True)
        sizes.append(len(model.coreset_))
    test = waves(400, 50, shift=4.0)
    assert model.score(*test) > 0.85 > fixed.score(*test)
    assert max(sizes) == 20
    densities = model.batch_log_densities_
    assert densities.shape == (12,)
    assert fixed.batch_log_densities_[-1] < fixed.batch_log_densities_[0] - 0.5  # it cannot follow


def test_few_densities_are_kept_and_all_are_saved(
    model: CVGPRegressor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updating, "MOST_BATCHES", 3)
    expected = []
    for batch in BATCHES:
        mean, sd = model.predict(batch[0], return_std=True)
        expected.append(np.mean(-0.5 * ((batch[1] - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2.0 * np.pi)))
        model.partial_fit(*batch)
    np.testing.assert_allclose(model.batch_log_densities_, expected[-3:], rtol=1e-6)
    model.save(tmp_path / "stream.cvgp")
    again = cvgp.load(tmp_path / "stream.cvgp")
    np.testing.assert_array_equal(again.batch_log_densities_, model.batch_log_densities_)
    assert_predicts_the_same(again.partial_fit(*BATCHES[0]), model.partial_fit(*BATCHES[0]), 1e-12)
    assert not hasattr(again.fit(*waves(60)), "batch_log_densities_")


def test_the_first_call_is_a_fit() -> None:
    options: dict[str, Any] = {"n_coreset": 10, "max_iter": 5, "random_state": 0}
    one, two = make_regressor(**options).partial_fit(*waves(80)), make_regressor(**options).fit(*waves(80))
    assert_predicts_the_same(one, two, 1e-12)


def frame(n: int, seed: int, levels: str = "uv") -> pd.DataFrame:
    X, y = waves(n, seed)
    return pd.DataFrame({"a": X[:, 0], "kind": np.resize(list(levels), n), "y": y})


@pytest.mark.parametrize(
    "change",
    [
        lambda new: new.drop(columns="a"),
        lambda new: new.assign(kind=np.resize(["u", "w"], len(new))),
        lambda new: new.assign(y="much"),
        lambda new: new.assign(a="wide"),
    ],
    ids=["no column", "new level", "text for the target", "text for a number"],
)
def test_another_schema_is_an_error_that_changes_nothing(change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    model = make_regressor(n_coreset=8, max_iter=3, random_state=0).fit(frame(60, 0), "y")
    test = frame(30, 1).drop(columns="y")
    before = model.predict(test, return_std=True)
    with pytest.raises(CVGPError):
        model.partial_fit(change(frame(30, 2)), "y")
    np.testing.assert_array_equal(before, model.predict(test, return_std=True))
    assert not hasattr(model, "batch_log_densities_")
    assert model.partial_fit(frame(30, 2), "y").n_rows_ == 90


def test_other_numbers_of_columns_or_outputs_are_errors(model: CVGPRegressor) -> None:
    X, y = BATCHES[0]
    with pytest.raises(InvalidInputError, match="features"):
        model.partial_fit(X[:, :1], y)
    with pytest.raises(InvalidInputError, match="outputs"):
        model.partial_fit(X, np.column_stack([y, y]))
    assert model.n_rows_ == 150


@pytest.mark.parametrize("factor", [1.1, 0.0, -1.0, np.nan, "half", True])
def test_a_factor_that_does_not_discount_is_an_error(
    model: CVGPRegressor, fitted_classes: CVGPClassifier, factor: Any
) -> None:
    for known in (model, fitted_classes):
        with pytest.raises(InvalidInputError, match="at most 1"):
            known.forget(factor)


CLASS_BATCHES = [labels(100, seed) for seed in range(1, 4)]


@pytest.fixture(scope="module")
def full_classes() -> CVGPClassifier:
    X, y = (np.concatenate(parts) for parts in zip(labels(150), *CLASS_BATCHES, strict=True))
    return CVGPClassifier(n_coreset=15, kernel="rbf", random_state=0).fit(X, y)


@pytest.mark.parametrize("adapt", [False, True])
def test_a_classifier_learns_batches_almost_as_well_as_all_rows(
    fitted_classes: CVGPClassifier, full_classes: CVGPClassifier, adapt: bool
) -> None:
    model, full, test = deepcopy(fitted_classes), full_classes, labels(1000, 9)
    before = log_loss(model, *test)
    for batch in CLASS_BATCHES:
        model.partial_fit(*batch, adapt=adapt)
    assert log_loss(model, *test) < min(before, log_loss(full, *test) + 0.03)
    np.testing.assert_allclose(model.class_prior_, full.class_prior_, rtol=1e-12)
    assert model.elbo_ / model.n_rows_ == pytest.approx(full.elbo_ / full.n_rows_, abs=0.05)
    assert model.batch_log_densities_.shape == (3,)


def test_a_classifier_without_new_rows_to_count_stays_as_it_is(fitted_classes: CVGPClassifier) -> None:
    model, (X, y) = deepcopy(fitted_classes), labels(20, 3)
    model.partial_fit(X, y, sample_weight=np.full(20, 1e-12))
    np.testing.assert_allclose(model.predict_proba(TEST[0]), fitted_classes.predict_proba(TEST[0]), atol=1e-4)
    assert model.elbo_ == pytest.approx(fitted_classes.elbo_, abs=0.05)


def test_a_classifier_follows_drift_on_as_many_points(fitted_classes: CVGPClassifier) -> None:
    model, fixed = deepcopy(fitted_classes), deepcopy(fitted_classes)
    for number in range(8):
        batch = labels(100, number, shift=number / 2.0)
        model.forget(0.7).partial_fit(*batch, adapt=True)
        fixed.partial_fit(*batch)
    test = labels(1000, 9, shift=3.5)
    assert len(model.coresets_[0]) == 15
    assert log_loss(model, *test) < log_loss(fixed, *test) - 0.1


def test_classes_are_named_first_and_then_fixed() -> None:
    X, y = three_labels(120)
    two = y != "high"
    with pytest.raises(InvalidInputError, match="classes="):
        CVGPClassifier().partial_fit(X, y)
    model = CVGPClassifier(n_coreset=10, kernel="rbf", random_state=0)
    model.partial_fit(X[two], y[two], classes=["low", "middle", "high"])
    assert model.classes_.tolist() == ["high", "low", "middle"]
    assert model.class_prior_[0] == 0.0
    for seed in range(3):
        model.partial_fit(*three_labels(120, seed))
    assert model.score(*three_labels(500, 9)) > 0.6
    before = model.predict_proba(X)
    with pytest.raises(InvalidInputError, match="others"):
        model.partial_fit(X, y, classes=["low", "high"])
    with pytest.raises(InvalidInputError):
        model.partial_fit(X, np.where(two, y, "huge"))
    with pytest.raises(InvalidInputError, match="balanced"):
        deepcopy(model).set_params(class_weight="balanced").partial_fit(X, y)
    np.testing.assert_array_equal(before, model.predict_proba(X))


def test_weights_of_classes_count_in_batches_too(fitted_classes: CVGPClassifier) -> None:
    X, y = labels(100, 2)
    weighed = deepcopy(fitted_classes).set_params(class_weight={"low": 3.0, "high": 1.0})
    given = deepcopy(fitted_classes).partial_fit(X, y, sample_weight=np.where(y == "low", 3.0, 1.0))
    np.testing.assert_allclose(
        weighed.partial_fit(X, y).predict_proba(TEST[0]), given.predict_proba(TEST[0]), atol=1e-9
    )


def test_a_model_of_counts_has_no_partial_fit() -> None:
    model = CVGPRegressor(likelihood="poisson")
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError) as raised:
        model.partial_fit([[0.0]], [1.0])
    assert "likelihood='poisson'" in str(raised.value.__cause__)
