"""The choice of a transform of y by the density of rows that were left out."""

from itertools import count

import numpy as np
import pytest
from numpy.typing import NDArray

from cvgp.data.rows import Rows
from cvgp.data.target import TargetTransform
from cvgp.objectives.exact import ExactObjective
from cvgp.training import target_choice
from cvgp.training.monitor import Watch
from cvgp.training.target_choice import choose_target

Array = NDArray[np.float64]


def make_rows(count: int = 400, seed: int = 0) -> Rows[Array]:
    """Rows whose y is normal about a smooth function."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, size=(count, 2))
    return Rows(x, (np.sin(x[:, 0]) + 0.3 * rng.normal(size=count))[:, None])


def changed(rows: Rows[Array], transform: TargetTransform) -> Rows[Array]:
    return rows._replace(y=transform.invert(rows.y))


POWER = TargetTransform("yeo-johnson", np.array([0.0]), np.array([0.5]), np.array([0.0]))


def test_the_transform_that_made_the_rows_is_found() -> None:
    rows = make_rows()
    assert choose_target("auto", rows, 0, Watch()).name == "identity"
    assert choose_target("auto", changed(rows, TargetTransform("log")), 0, Watch()).name == "log"
    assert choose_target("auto", changed(rows, POWER), 0, Watch()).name == "yeo-johnson"


def test_a_skewed_function_with_normal_noise_is_left_as_it_is() -> None:
    rows = make_rows()
    y = np.exp(1.5 * np.sin(rows.x[:, :1])) + 0.2 * np.random.default_rng(1).normal(size=(400, 1))
    assert choose_target("auto", rows._replace(y=y), 0, Watch()).name == "identity"


def test_the_choice_does_not_depend_on_units() -> None:
    rows = changed(make_rows(), TargetTransform("log"))
    histories = []
    for factor in (1.0, 1e6):
        watch = Watch()
        assert choose_target("auto", rows._replace(y=factor * rows.y), 0, watch).name == "log"
        histories.append(watch.history[-1]["bound"] + np.log(factor))
    assert histories[0] == pytest.approx(histories[1], abs=1e-6)


def test_few_rows_and_a_constant_y_are_left_as_they_are() -> None:
    few = changed(make_rows(target_choice.LEAST_ROWS - 1), TargetTransform("log"))
    watch = Watch()
    assert choose_target("auto", few, 0, watch).name == "identity"
    assert choose_target("auto", make_rows()._replace(y=np.ones((400, 1))), 0, watch).name == "identity"
    assert not watch.history


def test_a_transform_that_wins_on_one_part_alone_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = changed(make_rows(), TargetTransform("log"))
    honest = target_choice._densities
    calls: list[str] = []

    def flawed(transform: TargetTransform, learning: Rows[Array], judging: Rows[Array], watch: Watch) -> object:
        calls.append(transform.name)
        found = honest(transform, learning, judging, watch)
        return found - 10.0 if transform.name != "identity" and calls.count(transform.name) == 2 else found + 5.0

    monkeypatch.setattr(target_choice, "_densities", flawed)
    assert choose_target("auto", rows, 0, Watch()).name == "identity"


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
    choose_target("auto", changed(make_rows(), TargetTransform("log")), 0, watch, in_time=in_time)
    assert (len(calls) < 25) == is_short
