"""What types callers of the public interface get; mypy checks this file, and nothing runs it."""

from typing import assert_type

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import cvgp

Array = NDArray[np.float64]


def predict_returns_what_is_asked_for(model: cvgp.CVGPRegressor, X: Array) -> None:
    assert_type(model.predict(X), Array)
    assert_type(model.predict(X, True), tuple[Array, Array])
    assert_type(model.predict(X, return_std=True), tuple[Array, Array])


def predict_takes_what_numpy_takes(model: cvgp.CVGPRegressor) -> None:
    assert_type(model.predict([[1.0, 2.0]]), Array)
    assert_type(model.predict(pd.DataFrame({"x": [1.0]}), return_std=True), tuple[Array, Array])


def other_methods(model: cvgp.CVGPRegressor, X: Array, y: Array) -> None:
    assert_type(model.fit(X, y), cvgp.CVGPRegressor)
    assert_type(model.predict_quantiles(X, 0.5), Array)
    assert_type(model.sample_y(X), Array)
    assert_type(model.log_predictive_density(X, y), Array)
    assert_type(model.prune(), int)
    assert_type(model.grow(100, X, y), int)
    assert_type(model.coreset_, cvgp.Coreset)
    assert_type(model.feature_importances_, Array)


def functions(model: cvgp.CVGPRegressor) -> None:
    assert_type(cvgp.merge([model, model]), cvgp.CVGPRegressor)
