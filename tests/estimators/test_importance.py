"""Sobol indices of functions that are known, and `feature_importances_` and `sobol_indices` of fitted models."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.inspection import permutation_importance

from cvgp import CVGPRegressor
from cvgp.errors import InvalidInputError
from cvgp.estimators import importance
from cvgp.estimators.display import model_facts
from cvgp.estimators.importance import SobolIndices, sobol_indices
from tests.flat_options import make_regressor

Array = NDArray[np.float64]

RNG = np.random.default_rng(0)
X = RNG.uniform(-1.0, 1.0, (300, 3))
Y = 2.0 * X[:, 0] + X[:, 1] + 0.05 * RNG.standard_normal(300)
KNOWN = [0.8, 0.2, 0.0]


@dataclass(frozen=True, eq=False)
class Problem:
    """A function of independent columns, uniform between two ends, and its indices by the formula."""

    name: str
    function: Callable[[Array], Array]
    ends: tuple[float, float]
    first_order: Array
    total: Array

    def draw(self, rows: int, seed: int) -> Array:
        return np.random.default_rng(seed).uniform(*self.ends, (rows, len(self.total)))

    def indices(self, x: Array) -> SobolIndices:
        return sobol_indices(x, columns(x.shape[1]), lambda at: self.function(at)[:, None])


def columns(count: int) -> list[slice]:
    return [slice(d, d + 1) for d in range(count)]


def _ishigami() -> tuple[Array, Array]:
    first, second = 0.5 * (1.0 + 0.1 * np.pi**4 / 5.0) ** 2, 49.0 / 8.0
    both = 8.0 * 0.1**2 * np.pi**8 / 225.0
    whole = first + second + both
    return np.array([first, second, 0.0]) / whole, np.array([first + both, second, both]) / whole


def _g_function(a: Array) -> tuple[Array, Array]:
    own = 1.0 / (3.0 * (1.0 + a) ** 2)
    whole = np.prod(1.0 + own) - 1.0
    others = np.array([np.prod(np.delete(1.0 + own, j)) for j in range(len(a))])
    return own / whole, own * others / whole


G = np.array([0.0, 1.0, 4.5, 9.0])
SUM = np.array([9.0, 4.0, 1.0, 0.0]) / 14.0
PROBLEMS = [
    Problem(
        "Ishigami",
        lambda x: np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0]),
        (-np.pi, np.pi),
        *_ishigami(),
    ),
    Problem("Sobol's g", lambda x: np.prod((np.abs(4 * x - 2) + G) / (1 + G), axis=1), (0, 1), *_g_function(G)),
    Problem("linear", lambda x: x @ [3.0, 2.0, 1.0, 0.0], (-1, 1), SUM, SUM),
    Problem("product", lambda x: x[:, 0] * x[:, 1], (-1, 1), np.zeros(3), np.array([1.0, 1.0, 0.0])),
]
each_problem = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)


@each_problem
def test_indices_are_those_of_the_formula(problem: Problem) -> None:
    found = problem.indices(problem.draw(20_000, 1))
    assert (np.abs(found.total - problem.total) <= 4.0 * found.total_error + 1e-9).all()
    np.testing.assert_allclose(found.first_order, problem.first_order, atol=0.04)


def test_the_standard_error_is_that_of_repeated_draws() -> None:
    found = [PROBLEMS[0].indices(PROBLEMS[0].draw(400, seed)) for seed in range(300)]
    spread = np.std([one.total for one in found], axis=0)
    said = np.mean([one.total_error for one in found], axis=0)
    assert ((said > 0.85 * spread) & (said < 1.5 * spread)).all()


def test_features_of_one_column_are_replaced_together() -> None:
    level = np.random.default_rng(0).integers(0, 3, 5000)
    x = np.column_stack([np.eye(3)[level], np.random.default_rng(1).standard_normal(5000)])
    effect = np.array([0.0, 1.0, 5.0])
    found = sobol_indices(x, [slice(0, 3), slice(3, 4)], lambda at: (at[:, :3] @ effect + at[:, 3])[:, None])
    variance = effect[level].var()
    np.testing.assert_allclose(found.total, np.array([variance, 1.0]) / (variance + 1.0), atol=0.03)


def test_a_sum_of_columns_has_no_interaction_and_a_product_nothing_else() -> None:
    x = np.random.default_rng(0).multivariate_normal([0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]], 300)
    added = sobol_indices(x, columns(2), lambda at: (at[:, 0] + np.sin(at[:, 1]))[:, None])
    np.testing.assert_allclose(added.interaction, 0.0, atol=1e-12)
    multiplied = sobol_indices(np.sign(x), columns(2), lambda at: (at[:, 0] * at[:, 1])[:, None])
    assert (multiplied.interaction > 0.8).all()


def test_of_correlated_columns_each_counts_by_what_replacing_it_changes() -> None:
    """For a linear function that is the variance of its term over that of the function."""
    x = np.random.default_rng(0).multivariate_normal([0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]], 20_000)
    found = sobol_indices(x, columns(2), lambda at: at.sum(axis=1, keepdims=True))
    np.testing.assert_allclose(found.total, [1.0 / 3.6, 1.0 / 3.6], atol=0.01)


def test_several_outputs_count_alike_whatever_their_units() -> None:
    x = np.random.default_rng(0).standard_normal((4000, 2))
    found = sobol_indices(x, columns(2), lambda at: at * [1e9, 1e-9])
    np.testing.assert_allclose(found.total, [0.5, 0.5], atol=0.02)


def regressor(**parameters: Any) -> CVGPRegressor:
    quick = {"n_coreset": 30, "max_iter": 30, "n_neighbors": 0, "noise": "constant", "random_state": 0}
    return make_regressor(**{**quick, **parameters})


def agrees_with_permutation(fitted: CVGPRegressor, x: Any) -> bool:
    """Whether importances are half of permutation importances, whose score is R^2 against the predictions."""
    permuted = permutation_importance(fitted, x, fitted.predict(x), n_repeats=10, random_state=0)
    found = fitted.sobol_indices()
    error = np.hypot(found.total_error, 0.5 * permuted.importances_std)
    return bool((np.abs(found.total - 0.5 * permuted.importances_mean) <= 3.0 * error + 1e-6).all())


@each_problem
def test_importances_are_the_known_indices_and_agree_with_permutation_importance(problem: Problem) -> None:
    """Within the error of the average, and 0.06 for the correlations of 400 rows."""
    x = problem.draw(400, 0)
    y = problem.function(x)
    fitted = regressor(n_coreset=50, kernel="rbf", max_iter=40).fit(x, y + 0.05 * y.std() * RNG.standard_normal(400))
    found = fitted.sobol_indices()
    assert (np.abs(found.total - problem.total) <= 3.0 * found.total_error + 0.06).all()
    assert agrees_with_permutation(fitted, x)


@pytest.mark.parametrize("options", [{"n_neighbors": 10, "n_coreset": 5}, {"target_transform": "log"}], ids=str)
def test_importances_are_those_of_predictions_with_neighbors_and_of_a_transformed_y(options: dict[str, Any]) -> None:
    assert agrees_with_permutation(regressor(**options).fit(X, np.exp(Y)), X)


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


def test_a_pruned_model_has_indices_of_its_own_and_a_grown_one_those_of_its_rows() -> None:
    pruned, grown = regressor().fit(X, Y), regressor(n_coreset=5).fit(X, Y)
    assert pruned.prune(0.1) > 0
    np.testing.assert_allclose(pruned.feature_importances_, KNOWN, atol=0.25)
    grown.grow(30, X, Y)
    np.testing.assert_allclose(grown.feature_importances_, KNOWN, atol=0.1)


def test_predictions_beyond_the_range_of_floats_do_not_stop_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise InvalidInputError("beyond the range")

    monkeypatch.setattr(importance, "sobol_indices", fail)
    fitted = regressor(max_iter=2).fit(X, Y)
    with pytest.raises(InvalidInputError, match="beyond the range"):
        fitted.sobol_indices()


def test_estimates_are_bounded_and_zero_where_they_cannot_be_told() -> None:
    """A function that nearly cancels itself on the rows, and a column whose share is within its error."""
    found = SobolIndices.bounded(
        first_order=np.array([7.0, -0.2, 0.3, 0.2]),
        total=np.array([503443.0, 1.03, 0.5, 0.01]),
        total_error=np.array([4000.0, 0.1, 0.1, 0.02]),
    )
    assert found.total.tolist() == [1.0, 1.0, 0.5, 0.0]
    np.testing.assert_allclose(found.first_order, [0.0, 0.0, 0.3, 0.0], atol=1e-4)
    np.testing.assert_allclose(found.interaction, [1.0, 1.0, 0.2, 0.0], atol=1e-4)
    assert (found.total_error <= 1.0).all()


@pytest.mark.parametrize("seed", range(3))
def test_shares_of_any_function_are_between_zero_and_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.multivariate_normal(np.zeros(2), [[1.0, 0.999], [0.999, 1.0]], 100)
    found = sobol_indices(x, columns(2), lambda at: (at[:, :1] - at[:, 1:]) * 100.0)  # terms cancel on the rows
    for share in (found.first_order, found.total, found.interaction):
        assert ((share >= 0.0) & (share <= 1.0)).all()
    assert found.total.max() == 1.0


def test_facts_name_the_interaction() -> None:
    """Predictions of a product need each column only together with the other one."""
    fitted = regressor(kernel="rbf").fit(X, X[:, 0] * X[:, 1])
    assert "in interaction" in model_facts(fitted)["importance"]
    assert "interaction" not in model_facts(regressor(kernel="linear").fit(X, Y))["importance"]
