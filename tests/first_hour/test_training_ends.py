"""What a fit says about the end of its training, and whether the remedy that it names works."""

import numpy as np
import pytest

from cvgp import CVGPRegressor, TrainingOptions
from cvgp.estimators.display import model_facts, training_advice

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (600, 2))
Y = np.sin(3 * X[:, 0]) * X[:, 1] + 0.1 * RNG.standard_normal(600)
PLAIN = {"input_warp": "identity", "target_transform": "identity", "noise": "constant", "random_state": 0}


def fitted(**parameters: object) -> CVGPRegressor:
    return CVGPRegressor(**{**PLAIN, **parameters}).fit(X, Y)


@pytest.mark.parametrize("parameters", [{}, {"n_neighbors": 10}], ids=["exact", "neighbors"])
@pytest.mark.slow
def test_a_default_fit_ends_by_its_own_rule_and_needs_no_advice(parameters: dict[str, object]) -> None:
    model = fitted(**parameters)
    assert model.converged_
    assert training_advice(model) == ""


def test_the_limit_that_ended_a_fit_is_named_and_raising_it_helps() -> None:
    short, longer = (fitted(n_coreset=20, training=TrainingOptions(max_iter=steps)) for steps in (3, 30))
    assert not short.converged_
    assert "max_iter" in training_advice(short)
    assert longer.elbo_ > short.elbo_ + 1.0


def test_an_option_that_rules_out_neighbors_is_named() -> None:
    without, both = (fitted(n_coreset=20, n_neighbors=n, training=TrainingOptions(max_iter=3)) for n in ("auto", 10))
    assert (without.n_neighbors_, both.n_neighbors_) == (0, 10)
    assert "max_iter" in model_facts(without)["neighbors"]
