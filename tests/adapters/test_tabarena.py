"""The model for TabArena, against a stub of the base class of AutoGluon's models."""

import pickle
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest

MODULE = "cvgp.adapters.tabarena"


class AbstractModel:
    """What the adapter uses of `autogluon.core.models.AbstractModel`."""

    seed_name: str | None = None

    def __init__(self, problem_type: str, quantile_levels: Any = None, **hyperparameters: Any) -> None:
        self.problem_type, self.quantile_levels, self.model = problem_type, quantile_levels, None
        self._params = {self.seed_name: 0} | hyperparameters

    def fit(self, **given: Any) -> "AbstractModel":
        self._fit(**{"time_limit": None, "num_cpus": 1, "num_gpus": 0, "verbosity": 2, "X_val": None} | given)
        return self

    def _get_model_params(self) -> dict[str, Any]:
        return dict(self._params)

    def preprocess(self, X: pd.DataFrame, is_train: bool = False, **settings: Any) -> pd.DataFrame:
        return X

    def predict_proba(self, X: pd.DataFrame) -> Any:
        return self._predict_proba(X=X).astype(np.float32)

    def _predict_proba(self, X: pd.DataFrame, **settings: Any) -> Any:
        X = self.preprocess(X, **settings)
        if self.problem_type == "regression":
            return self.model.predict(X)
        found = self.model.predict_proba(X)
        return found[:, 1] if self.problem_type == "binary" else found


@pytest.fixture(scope="module")
def kind() -> Iterator[Any]:
    """The adapter's class, on the stub."""
    names = ["autogluon", "autogluon.core", "autogluon.core.models"]
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setitem(sys.modules, name, ModuleType(name))
        sys.modules["autogluon.core.models"].AbstractModel = AbstractModel  # type: ignore[attr-defined]
        yield import_module(MODULE).CVGPModel
    sys.modules.pop(MODULE, None)


def table(count: int = 150) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(0)
    x, place = rng.uniform(-2.0, 2.0, count), pd.Categorical(rng.choice(["north", "south"], count))
    frame = pd.DataFrame({"x": x, "place": place, "count": rng.integers(5, size=count)}, index=100 + np.arange(count))
    return frame, np.sin(2.0 * x) + (place == "north") + 0.1 * rng.normal(size=count)


def made(kind: Any, problem_type: str, **given: Any) -> Any:
    return kind(problem_type, n_coreset=15, **given)


def test_numbers_are_predicted(kind: Any) -> None:
    X, y = table()
    found = made(kind, "regression").fit(X=X, y=pd.Series(y, index=X.index)).predict_proba(X)
    assert found.dtype == np.float32
    assert np.corrcoef(found, y)[0, 1] > 0.95


def test_quantiles_are_those_that_were_asked_for(kind: Any) -> None:
    X, y = table()
    levels = [0.1, 0.5, 0.9]
    found = made(kind, "quantile", quantile_levels=levels).fit(X=X, y=pd.Series(y, index=X.index)).predict_proba(X)
    assert found.shape == (150, 3)
    np.testing.assert_allclose((y[:, None] <= found).mean(0), levels, atol=0.1)


@pytest.mark.parametrize(("problem_type", "classes"), [("binary", 2), ("multiclass", 3)])
def test_classes_have_probabilities(kind: Any, problem_type: str, classes: int) -> None:
    X, y = table()
    labels = pd.Series(np.digitize(y, np.quantile(y, np.arange(1, classes) / classes)), index=X.index)
    found = made(kind, problem_type).fit(X=X, y=labels).predict_proba(X)
    best = (found > 0.5).astype(int) if classes == 2 else found.argmax(1)
    assert found.shape == ((150,) if classes == 2 else (150, 3))
    assert (best == labels).mean() > 0.8


def test_weights_limits_and_the_seed_reach_the_estimator(kind: Any) -> None:
    X, y = table()
    weight = pd.Series(np.full(len(y), 2.0), index=X.index)
    model = made(kind, "regression").fit(X=X, y=y, time_limit=60.0, num_cpus=1, sample_weight=weight).model
    assert (model.max_time, model.n_jobs, model.random_state) == (54.0, 1, 0)
    assert model.n_rows_ == 300.0


def test_a_pickled_model_predicts_the_same(kind: Any) -> None:
    X, y = table()
    model = made(kind, "regression").fit(X=X, y=y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))


def test_autogluon_is_told_what_the_model_can_do(kind: Any) -> None:
    assert set(kind._supported_problem_types) == {"binary", "multiclass", "regression", "quantile"}
    assert (kind.ag_key, kind.seed_name) == ("CVGP", "random_state")
