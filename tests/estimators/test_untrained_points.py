"""A coreset of more points than there is time to train: they are rows, and are solved for where they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvgp
from cvgp import CVGPRegressor
from cvgp.training import size, size_choice

rng = np.random.default_rng(3)
X = rng.uniform(-3.0, 3.0, size=(400, 1))
Y = np.sin(12.0 * X[:, 0]) + 0.1 * rng.normal(size=400)
NEW = np.linspace(-2.8, 2.8, 100)[:, None]


@pytest.fixture(autouse=True)
def little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time to train 16 points, and none for the exact GP."""
    monkeypatch.setattr(size_choice, "largest_size", lambda max_time: 16)
    monkeypatch.setattr(size, "EXACT_IS_WORTH", 0.0)


def fitted(**options: Any) -> CVGPRegressor:
    return CVGPRegressor(random_state=0, **{"neighbors": 0, "noise": "constant"} | options).fit(X, Y)


def test_points_are_rows_and_many() -> None:
    model = fitted()
    assert model.solver_ == "closed form"
    assert len(model.coreset_) > 16
    assert np.isclose(model.coreset_.X, X.T).any(axis=1).all()


def test_predictions_follow_what_trained_points_could_not() -> None:
    assert np.abs(fitted().predict(NEW) - np.sin(12.0 * NEW[:, 0])).max() < 0.3


def test_noise_is_learned_from_rows_that_are_no_points() -> None:
    model = fitted(noise="auto")
    _, sd = model.predict(NEW, return_std=True)
    assert 0.08 < np.median(sd) < 0.2


def test_pseudo_inputs_of_a_finished_model_can_be_trained_on() -> None:
    assert fitted().model_.X_c.requires_grad


def test_stored_start_is_solved_for_again(tmp_path: Path) -> None:
    first, again = (fitted(checkpoint_dir=tmp_path) for _ in range(2))
    assert again.solver_ == "closed form"
    np.testing.assert_allclose(again.predict(NEW), first.predict(NEW), rtol=1e-9)


def test_bound_does_not_fall_where_the_model_grows() -> None:
    model = fitted()
    before = model.elbo_
    model.grow(len(model.coreset_) + 20, X, Y)
    assert model.elbo_ >= before - 1e-6 * abs(before)


def test_model_comes_back_from_its_file(tmp_path: Path) -> None:
    model = fitted()
    model.save(tmp_path / "model.cvgp")
    np.testing.assert_allclose(cvgp.load(tmp_path / "model.cvgp").predict(NEW), model.predict(NEW))


@pytest.mark.parametrize("options", [{"max_iter": 3}, {"solver": "adam", "max_iter": 3}, {"init": "random"}])
def test_points_are_trained_where_the_user_says_how(options: dict[str, Any]) -> None:
    assert fitted(**options).solver_ != "closed form"
