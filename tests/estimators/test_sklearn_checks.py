"""scikit-learn's own checks of an estimator, every one of them."""

from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from cvgp import CVGPClassifier, CVGPRegressor, TrainingOptions

# The checks fit dozens of times on a handful of rows each; a short fit shows the same behaviour.
ESTIMATORS = [
    CVGPRegressor(n_coreset=10, random_state=0, training=TrainingOptions(max_iter=30)),
    CVGPRegressor(n_coreset=10, random_state=0, training=TrainingOptions(solver="adam", max_iter=20)),
    CVGPClassifier(n_coreset=10, random_state=0, kernel="matern32"),
]


class OfCounts(CVGPRegressor):
    """Rounds y, since targets of the checks are fractions."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "OfCounts":  # type: ignore[override]
        values = np.empty(0) if y is None else np.asarray(y)
        super().fit(X, np.round(values) if len(values) and values.dtype.kind == "f" else y, sample_weight)
        return self


OF_OTHERS = [
    CVGPRegressor(n_coreset=10, random_state=0, kernel="matern32", likelihood="student_t"),
    OfCounts(n_coreset=10, random_state=0, kernel="matern32", likelihood="poisson"),
]


@pytest.mark.slow  # sites are solved for in each of several hundred fits
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # some targets are noise alone
@parametrize_with_checks(OF_OTHERS)
def test_scikit_learn_check_of_another_likelihood(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    check(estimator)
