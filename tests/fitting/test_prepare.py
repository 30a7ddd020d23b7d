"""The choice of a transform of y and of a warp of x."""

from typing import Any

import numpy as np
import pytest
from gpytorch.kernels import RBFKernel
from gpytorch.means import ConstantMean

from cvgp.data.rows import Array, Rows
from cvgp.data.transforms import IDENTITY, NO_WARP
from cvgp.errors import InvalidInputError
from cvgp.fitting.monitor import Budget, Clock, Run
from cvgp.fitting.options import ModelOptions
from cvgp.fitting.prepare import choose_target, choose_warp, suitable_warp
from cvgp.fitting.sample import learn_sample
from tests.parallel.groups import run_in_threads

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(400, 2))
F = np.sin(2.0 * Z[:, 0]) + 0.5 * Z[:, 1]
SKEWED = Rows(np.column_stack([np.exp(1.5 * Z[:, 0]), Z[:, 1]]), (F + 0.1 * RNG.normal(size=400))[:, None])
"""Smooth in the logarithm of the first column."""
PLAIN = Rows(np.exp(Z), (np.exp(Z[:, 0]) + 0.1 * RNG.normal(size=400))[:, None])
"""Smooth in the columns as they are, though these are skewed."""


def test_a_log_normal_y_is_modeled_on_the_log_scale() -> None:
    rows = Rows(Z, np.exp(F + 0.3 * RNG.normal(size=400))[:, None])
    chosen, scores = choose_target(rows, Run.alone())
    assert chosen.name in ("log", "yeo-johnson")
    best, identity = scores[chosen.name], scores["identity"]
    assert best is not None
    assert identity is not None
    assert best.density > identity.density


def test_densities_of_candidates_are_those_of_y_itself() -> None:
    # If y is scaled by c, every density falls by log c, whatever the transform.
    rows = Rows(Z, np.exp(F + 0.3 * RNG.normal(size=400))[:, None])
    _, plain = choose_target(rows, Run.alone())
    _, scaled = choose_target(rows._replace(y=1000.0 * rows.y), Run.alone())
    for name in plain:
        first, second = plain[name], scaled[name]
        assert first is not None
        assert second is not None
        assert first.density - second.density == pytest.approx(np.log(1000.0), abs=0.02)


@pytest.mark.parametrize("change", ["normal", "few", "constant", "known noise"])
def test_y_is_left_as_it_is_without_need_or_evidence(change: str) -> None:
    rows = {
        "normal": SKEWED,
        "few": Rows(Z[:150], np.exp(F[:150])[:, None]),
        "constant": SKEWED._replace(y=np.ones((400, 1))),
        "known noise": SKEWED._replace(y=np.exp(SKEWED.y), noise_variance=np.ones(400)),
    }[change]
    assert choose_target(rows, Run.alone())[0] is IDENTITY


def test_auto_warps_where_the_function_is_smooth_in_ranks() -> None:
    warp, scores = choose_warp("auto", SKEWED, Run.alone())
    assert warp.name == "mixed"
    assert warp.shares[0] > 0.5
    # The score is that of a GP of the warped rows, which few rows leave out one by one.
    again, mixed = learn_sample(SKEWED._replace(x=warp.apply(SKEWED.x)), None, Run.alone()), scores["mixed"]
    assert again is not None
    assert mixed is not None
    assert mixed.density == again.scores.density


def test_auto_leaves_skewed_columns_that_need_no_warp() -> None:
    assert choose_warp("auto", PLAIN, Run.alone())[0] is NO_WARP
    assert choose_warp("mixed", PLAIN, Run.alone())[0].shares.max(initial=0.0) < 0.3


def test_a_warp_is_not_chosen_without_evidence() -> None:
    assert choose_warp("auto", SKEWED.take(slice(150)), Run.alone())[0] is NO_WARP
    assert choose_warp("auto", SKEWED._replace(y=np.ones((400, 1))), Run.alone())[0] is NO_WARP


def test_ranks_are_those_of_every_column_that_has_some() -> None:
    x = np.column_stack([SKEWED.x, np.ones(400), Z[:, 0] > 0])
    warp, _ = choose_warp("rank", SKEWED._replace(x=x), Run.alone())
    assert warp.warped.tolist() == [True, True, False, False]
    assert warp.shares.tolist() == [1.0, 1.0, 0.0, 0.0]


def test_all_processes_have_the_same_warp() -> None:
    def warp_of(group: Any) -> Any:
        run = Run.alone()._replace(budget=Budget(clock=Clock(group=group)))
        return choose_warp("mixed", SKEWED, run)[0]

    found = run_in_threads(2, warp_of)
    assert found[0].name == "mixed"
    np.testing.assert_array_equal(found[0].values, found[1].values)


def test_weights_and_several_outputs_are_taken() -> None:
    y: Array = np.hstack([SKEWED.y, -2.0 * SKEWED.y])
    rows = SKEWED._replace(y=y, sample_weight=np.full(400, 2.0))
    assert choose_warp("auto", rows, Run.alone())[0].name == "mixed"


@pytest.mark.parametrize(
    "change",
    [
        {"standardize": False},
        {"kernel": "matern32+linear"},
        {"kernel": "periodic"},
        {"kernel": RBFKernel()},
        {"mean": ConstantMean()},
        {"ard": False},
    ],
)
def test_auto_is_the_identity_where_the_prior_is_about_the_columns(change: dict[str, Any]) -> None:
    assert suitable_warp(ModelOptions(), "auto") == "auto"
    assert suitable_warp(ModelOptions(), "paper") == "identity"
    assert suitable_warp(ModelOptions(**change), "auto") == "identity"


def test_a_warp_without_standardizing_and_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="standardize=False"):
        suitable_warp(ModelOptions(input_warp="rank", standardize=False), "auto")
    for name in ("input_warp", "target_transform", "noise"):
        with pytest.raises(InvalidInputError, match=name):
            ModelOptions(**{name: "ranks"})
