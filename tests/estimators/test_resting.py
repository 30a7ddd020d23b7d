"""The parts of a prediction add up to it."""

import numpy as np
import pytest
from gpytorch.means import ConstantMean

from cvgp import CVGPRegressor
from cvgp.estimators.resting import parts_of_mean

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (150, 2))
Y = 3.0 + np.sin(8 * X[:, 0]) + 0.1 * RNG.normal(size=150)


@pytest.mark.parametrize(
    "settings",
    [
        {"neighbors": 0},
        {"neighbors": 0, "mean": "constant"},
        {"neighbors": 0, "mean": ConstantMean()},
        {"neighbors": 5},
    ],
    ids=["coreset", "constant", "mean", "neighbours"],
)
def test_the_parts_add_up_to_the_mean(settings: dict[str, object]) -> None:
    model = CVGPRegressor(8, noise="constant", inputs="identity", max_time=2.0, random_state=0, **settings).fit(X, Y)
    found = parts_of_mean(model.gp_, X[:5], 0)
    np.testing.assert_allclose(found.start + found.parts.sum(axis=1), model.predict(X[:5]), rtol=1e-6)


def test_each_output_has_its_own_parts() -> None:
    both = np.column_stack([Y, -2.0 * Y])
    model = CVGPRegressor(8, max_iter=5, noise="constant", neighbors=0, random_state=0).fit(X, both)
    found = parts_of_mean(model.gp_, X[:5], 1)
    np.testing.assert_allclose(found.start + found.parts.sum(axis=1), model.predict(X[:5])[:, 1], rtol=1e-6)
