"""The choice of a warp of inputs: taken where unseen rows gain clearly, and otherwise not."""

from itertools import count

import numpy as np
import pytest
from gpytorch.kernels import RBFKernel
from gpytorch.means import ConstantMean

from cvgp.data.input_warp import NO_WARP
from cvgp.data.rows import Array, Rows
from cvgp.errors import InvalidInputError
from cvgp.objectives.exact import ExactObjective
from cvgp.training.input_choice import InputsName, check_inputs_name, choose_inputs, suited_name
from cvgp.training.monitor import Watch
from tests.parallel.groups import run_in_threads

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(400, 2))
F = np.sin(2.0 * Z[:, 0]) + 0.5 * Z[:, 1]
SKEWED = Rows(np.column_stack([np.exp(1.5 * Z[:, 0]), Z[:, 1]]), (F + 0.1 * RNG.normal(size=400))[:, None])
"""Smooth in the logarithm of the first column."""
PLAIN = Rows(np.exp(Z), (np.exp(Z[:, 0]) + 0.1 * RNG.normal(size=400))[:, None])
"""Smooth in the columns as they are, though these are skewed."""
PRIOR = {"standardize": True, "kernel": None, "mean": "zero", "ard": True, "solver": "auto"}


def test_auto_takes_the_mixture_where_the_function_is_smooth_in_ranks() -> None:
    watch = Watch()
    warp = choose_inputs("auto", SKEWED, 0, watch)
    assert warp.name == "mixed"
    assert warp.shares[0] > 0.5
    assert "inputs mixed" in str(watch.history[-1])


def test_auto_leaves_skewed_columns_that_need_no_warp() -> None:
    assert choose_inputs("auto", PLAIN, 0, Watch()) is NO_WARP


def test_the_learned_share_follows_the_function() -> None:
    assert choose_inputs("mixed", PLAIN, 0, Watch()).shares.max(initial=0.0) < 0.3


def test_auto_needs_some_rows() -> None:
    assert choose_inputs("auto", SKEWED.take(slice(150)), 0, Watch()) is NO_WARP


def test_ranks_are_those_of_every_column_that_has_some() -> None:
    x = np.column_stack([SKEWED.x, np.ones(400), Z[:, 0] > 0])
    warp = choose_inputs("rank", SKEWED._replace(x=x), 0, Watch())
    assert warp.warped.tolist() == [True, True, False, False]
    assert warp.shares.tolist() == [1.0, 1.0, 0.0, 0.0]


def test_outputs_without_spread_teach_no_warp() -> None:
    assert choose_inputs("auto", SKEWED._replace(y=np.ones((400, 1))), 0, Watch()) is NO_WARP


def test_all_processes_have_the_same_warp() -> None:
    found = run_in_threads(2, lambda group: choose_inputs("mixed", SKEWED, 0, Watch(group=group)))
    assert found[0].name == "mixed"
    np.testing.assert_array_equal(found[0].values, found[1].values)


def test_weights_and_several_outputs_are_taken() -> None:
    y: Array = np.hstack([SKEWED.y, -2.0 * SKEWED.y])
    rows = SKEWED._replace(y=y, sample_weight=np.full(400, 2.0))
    assert choose_inputs("auto", rows, 0, Watch()).name == "mixed"


@pytest.mark.parametrize(
    "change",
    [
        {"standardize": False},
        {"kernel": "matern32+linear"},
        {"kernel": "periodic"},
        {"kernel": RBFKernel()},
        {"mean": ConstantMean()},
        {"ard": False},
        {"solver": "paper"},
    ],
)
def test_auto_is_the_identity_where_the_prior_is_about_the_columns(change: dict[str, object]) -> None:
    assert suited_name("auto", **PRIOR | change) == "identity"  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["auto", "rank", "mixed", "identity"])
def test_a_kernel_of_distances_by_name_takes_any_warp(name: InputsName) -> None:
    assert suited_name(name, **PRIOR) == name  # type: ignore[arg-type]


def test_a_warp_without_standardising_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="standardize=False"):
        suited_name("rank", **PRIOR | {"standardize": False})  # type: ignore[arg-type]


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="inputs must be one of auto, identity, rank, mixed"):
        check_inputs_name("ranks")


@pytest.mark.parametrize(("in_time", "is_short"), [(True, True), (False, False)])
def test_only_a_run_that_cannot_go_on_later_keeps_to_its_share_of_the_time(
    in_time: bool, is_short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks, calls, evaluate = count(), list[int](), ExactObjective.value_and_backward

    def counted(objective: ExactObjective, scale: float = 1.0) -> float:
        calls.append(len(objective.rows.x))
        return evaluate(objective, scale)

    monkeypatch.setattr(ExactObjective, "value_and_backward", counted)
    watch = Watch(5.0, clock=lambda: 0.02 * next(ticks))
    choose_inputs("auto", SKEWED, 0, watch, in_time=in_time)
    assert (len(calls) < 25) == is_short
