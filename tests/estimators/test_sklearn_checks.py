"""scikit-learn's own checks of an estimator, every one of them."""

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from cvgp import CVGPClassifier, CVGPRegressor, TrainingOptions

# The checks fit dozens of times on a handful of rows each; a short fit shows the same behaviour.
ESTIMATORS = [
    CVGPRegressor(n_coreset=10, random_state=0, training=TrainingOptions(max_iter=30)),
    CVGPRegressor(n_coreset=10, random_state=0, training=TrainingOptions(solver="adam", max_iter=20)),
    CVGPClassifier(n_coreset=10, random_state=0, kernel="matern32"),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    check(estimator)
