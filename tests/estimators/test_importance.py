"""`feature_importances_` and `sobol_indices` of fitted models: what they mean, where they come from, what they cost."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.inspection import permutation_importance

from cvgp import CVGPRegressor
from cvgp.errors import FileFormatError, InvalidInputError
from cvgp.estimators import importance
from cvgp.estimators.fitted import FittedGP
from cvgp.estimators.importance import SobolIndices
from cvgp.fitting.monitor import Budget, Clock, Run
from tests.estimators.sobol_problems import PROBLEMS, Problem
from tests.flat_options import make_regressor

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (300, 3))
Y = 2.0 * X[:, 0] + X[:, 1] + 0.05 * RNG.standard_normal(300)
KNOWN = [0.8, 0.2, 0.0]

Solved = Callable[[Problem], CVGPRegressor]


def regressor(**parameters: Any) -> CVGPRegressor:
    quick = {"n_coreset": 30, "max_iter": 30, "n_neighbors": 0, "noise": "constant", "random_state": 0}
    return make_regressor(**{**quick, **parameters})


@pytest.fixture(scope="module")
def model() -> CVGPRegressor:
    return regressor().fit(X, Y)


def agrees_with_permutation(fitted: CVGPRegressor, x: Any) -> bool:
    """Whether importances are half of permutation importances, whose score is R^2 against the predictions."""
    permuted = permutation_importance(fitted, x, fitted.predict(x), n_repeats=10, random_state=0)
    found = fitted.sobol_indices()
    error = np.hypot(found.total_error, 0.5 * permuted.importances_std)
    return bool((np.abs(found.total - 0.5 * permuted.importances_mean) <= 3.0 * error + 1e-6).all())


@pytest.fixture(scope="module")
def solved() -> Solved:
    """Models of the problems, each fitted once."""
    return cache(lambda problem: regressor(n_coreset=50, kernel="rbf", max_iter=40).fit(*problem.draw(400, 0)))


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_importances_agree_with_permutation_importance(problem: Problem, solved: Solved) -> None:
    assert agrees_with_permutation(solved(problem), problem.draw(400, 0)[0])


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_importances_are_the_known_indices(problem: Problem, solved: Solved) -> None:
    """Within the error of the average, and 0.03 for what 400 rows leave unknown."""
    found = solved(problem).sobol_indices()
    assert (np.abs(found.total - problem.total) <= 3.0 * found.total_uncertainty + 0.03).all()
    assert (np.abs(found.first_order - problem.first_order) <= 3.0 * found.first_order_error + 0.03).all()


def test_with_neighbours_importances_are_those_of_predictions_that_consult_them() -> None:
    fitted = regressor(n_neighbors=10, n_coreset=5).fit(X, Y)
    assert fitted.n_neighbors_ == 10
    assert agrees_with_permutation(fitted, X)


def test_where_y_is_transformed_importances_are_those_of_predictions_of_y() -> None:
    fitted = regressor(target_transform="log").fit(X, np.exp(Y))
    assert agrees_with_permutation(fitted, X)


def test_rows_count_as_often_as_their_weights_say() -> None:
    """Where the second column moves, the first does not, and these rows weigh almost nothing."""
    x = np.vstack([np.column_stack([X[:150, 0], np.zeros(150)]), np.column_stack([np.zeros(150), X[:150, 0]])])
    fitted = regressor().fit(x, x.sum(axis=1), sample_weight=np.repeat([1.0, 1e-3], 150))
    assert fitted.feature_importances_[1] < 0.05


def test_a_column_of_text_has_one_importance(tmp_path: Path) -> None:
    colour = RNG.choice(["blue", "green", "red"], 300)
    effect = np.select([colour == "green", colour == "red"], [1.0, 3.0])
    frame = pd.DataFrame({"size": X[:, 0], "colour": colour, "price": X[:, 0] + effect})
    frame.to_csv(tmp_path / "table.csv", index=False)
    fitted = regressor(n_coreset=60).fit(tmp_path / "table.csv", "price")
    expected = np.array([frame["size"].var(), effect.var()])
    np.testing.assert_allclose(fitted.feature_importances_, expected / expected.sum(), atol=0.15)


def test_a_pruned_model_has_indices_of_its_own(model: CVGPRegressor) -> None:
    pruned = regressor().fit(X, Y)
    assert pruned.prune(0.1) > 0
    assert pruned._gp.indices_of_fit is None
    np.testing.assert_allclose(pruned.feature_importances_, KNOWN, atol=0.25)


def test_a_grown_model_has_the_indices_of_the_rows_it_was_given(model: CVGPRegressor) -> None:
    grown = regressor(n_coreset=5).fit(X, Y)
    grown.grow(30, X, Y)
    assert grown._gp.indices_of_fit is not None
    np.testing.assert_allclose(grown.feature_importances_, KNOWN, atol=0.1)


def test_indices_that_do_not_fit_the_columns_are_refused() -> None:
    broken = regressor().fit(X, Y)
    broken._gp.indices_of_fit = SobolIndices(*np.zeros((5, 7)))
    with pytest.raises(FileFormatError, match="damaged"):
        broken.feature_importances_  # noqa: B018 - it raises


def test_predictions_beyond_the_range_of_floats_do_not_stop_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise InvalidInputError("beyond the range")

    monkeypatch.setattr(importance, "sobol_indices", fail)
    fitted = regressor(max_iter=2).fit(X, Y)
    with pytest.raises(InvalidInputError, match="beyond the range"):
        fitted.sobol_indices()


def test_a_time_limit_leaves_fewer_predictions_for_importance(monkeypatch: pytest.MonkeyPatch) -> None:
    now, mean = 0.0, FittedGP.mean

    def slow(gp: FittedGP, x: np.ndarray) -> np.ndarray:
        nonlocal now
        now += 1e-3 * len(x)
        return mean(gp, x)

    fitted = regressor().fit(X, Y)
    monkeypatch.setattr(FittedGP, "mean", slow)
    importance.note_indices(fitted, X, None, Run.alone()._replace(budget=Budget(1.0, Clock(lambda: now))))
    assert now < 1.1
    assert fitted.feature_importances_ == pytest.approx(KNOWN, abs=0.15)
